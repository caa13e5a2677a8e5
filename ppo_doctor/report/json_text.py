"""JSON as text: indented, finite, and without a character that acts on a terminal."""

from __future__ import annotations

import math
import re
from typing import TypeAlias

from ppo_doctor.report.escape import unsafe

Json: TypeAlias = "str | int | float | bool | None | list[Json] | dict[str, Json]"

_NOT_ASCII = re.compile(r"[^\x00-\x7e]")


def element(value: Json) -> str:
    """Return a value as it stands in a list of a document's, on lines of its own."""
    return "\n    " + dump(value).rstrip("\n").replace("\n", "\n    ")


def dump(value: Json) -> str:
    """Return a value as indented JSON with a line end, and no control or invisible character outside an escape."""
    try:
        text = _by_orjson(value)  # it writes NaN and infinities as null: going through all values takes 3 ms
    except (ImportError, TypeError):  # TypeError: bytes of a path that are no text, an integer beyond 64 bits
        text = _encoded(_finite(value))
    # A regular expression over a report of 160 kB takes 1 ms, the two looks 20 µs.
    plain = text.isascii() and "\x7f" not in text
    return (text if plain else _NOT_ASCII.sub(_escaped, text)) + "\n"


def _finite(value: Json) -> Json:
    """Return a value that JSON can hold: NaN and infinities as null, undecodable bytes of a path as escapes."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {str(_finite(key)): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return value


def _by_orjson(value: Json) -> str:
    import orjson

    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def _encoded(value: Json) -> str:
    try:
        return _by_orjson(value)
    except (ImportError, TypeError):
        import json

        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def _escaped(match: re.Match[str]) -> str:
    """Return a JSON escape for a character that must not reach a terminal; nothing is lost for a parser."""
    character = match.group()
    return _escape(character) if unsafe(character) else character


def ascii_only(text: str) -> str:
    """Return JSON text with every character beyond ASCII as an escape: the same document in any encoding."""
    return _NOT_ASCII.sub(lambda match: _escape(match.group()), text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
