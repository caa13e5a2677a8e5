"""Values as people write them on a line, and references from one setting to another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

Scalar = str | int | float | bool | None
_WORDS: Mapping[str, Scalar] = {"true": True, "false": False, "none": None, "null": None}
_REFERENCE = re.compile(r"\$\{(?:oc\.select:)?(?P<key>[A-Za-z_][\w.]*)(?:,(?P<otherwise>[^{}]*))?\}\Z")
#: References that lead on to references are followed so far.
_FARTHEST = 5

_V = TypeVar("_V")


def value_of(text: str) -> Scalar:
    """Return a number, boolean, None or the text itself, without its quotes."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return parse_value(text)


def parse_value(text: str) -> Scalar:
    """Return a number, boolean, None or the text itself."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def followed(flat: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return settings with OmegaConf's references (`${a.b}`, `${oc.select:a.b,default}`) replaced by what they name.

    A reference to nothing that the file holds stays as it is written.
    """
    return {key: _end(value, flat) for key, value in flat.items()}


def _end(value: Scalar, flat: Mapping[str, Scalar]) -> Scalar:
    for _ in range(_FARTHEST):
        match = _REFERENCE.match(value) if isinstance(value, str) else None
        if match is None:
            return value
        if match["key"] in flat:
            value = flat[match["key"]]
        elif match["otherwise"] is not None:
            return value_of(match["otherwise"])
        else:
            return value
    return value
