"""Parse values as people write them on a line, and references from one setting to another."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar

from ppo_doctor.model.literals import python_literal
from ppo_doctor.model.toml_files import loads

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


__all__ = ["PARSERS", "SCRIPTS", "UnreadableError", "Written", "line_of", "parse"]

#: Suffix → "module:function"; every other file is text, of which JSON is tried first.
PARSERS: Mapping[str, str] = {
    ".toml": "config_formats:read_toml",
    ".yaml": "config_yaml:read",
    ".yml": "config_yaml:read",
    ".json": "config_python:read_document",
    ".py": "config_python:read",
}
_TEXT = "config_python:read_any"
#: Programs, in which settings stand as literals.
SCRIPTS = (".py",)
#: Keys whose lines are kept.
MOST_LINES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Settings as a file nests them; `lines` tells, by dotted key, the line (from 1) on which a key stands.

    `other_lines` counts the lines of a text that hold something else; `imports` is what a program imports.
    """

    values: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)
    other_lines: int = 0
    imports: tuple[str, ...] = ()


class UnreadableError(ValueError):
    """A text that is not in its format; `line` is where, from 1, None where nothing tells."""

    def __init__(self, why: str, line: int | None = None) -> None:
        super().__init__(" ".join(why.split()))
        self.line = line


def parse(suffix: str, text: str) -> Written:
    """Read the text of a configuration by the suffix of its file.

    Raises:
        UnreadableError: it is not in that format, or holds no table of settings. What parsers raise ends here.
    """
    module, _, function = PARSERS.get(suffix.lower(), _TEXT).partition(":")
    read: Callable[[str], Written] = getattr(import_module(f"ppo_doctor.trainers.{module}"), function)
    try:
        written = read(text)
    except RecursionError as error:
        raise UnreadableError("it is nested too deeply") from error
    except UnreadableError:
        raise
    except ValueError as error:
        raise UnreadableError(str(error), _line_told(error)) from error
    if not isinstance(written.values, dict):
        raise UnreadableError("it is no table of settings")
    return written


def _line_told(error: ValueError) -> int | None:
    """Return the line that a parser's message names: `lineno` of JSON, "(at line 3, column 1)" of TOML."""
    told = re.search(r"at line (\d+)", str(error))
    return getattr(error, "lineno", None) or (int(told[1]) if told else None)


def line_of(lines: Mapping[str, int], key: str) -> int | None:
    """Return the line of a dotted key, or of the nearest key above it that has one."""
    while key not in lines:
        key, dot, _ = key.rpartition(".")
        if not dot:
            return None
    return lines[key]


_SIGN = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[{}\[\](),:]|\n')
_CLOSED_BY = {"{": "}", "[": "]", "(": ")"}


def read_json(text: str) -> Written:
    """Read a JSON document; raise ValueError where it is none."""
    values = json.loads(text)
    return Written(values=values, lines=lines_in(text))


def read_literal(text: str) -> Written:
    """Read a dict as Python's pprint writes it; raise ValueError where it is none, or holds more than literals."""
    values: Any = python_literal(text)
    return Written(values=values, lines=lines_in(text))


def lines_in(text: str, first: int = 1) -> dict[str, int]:
    """Return the line of each key by its dotted path; keys inside lists have none."""
    lines: dict[str, int] = {}
    for path, line in _keys(text, first):
        if len(lines) >= MOST_LINES:
            break
        lines[path] = line
    return lines


def _keys(text: str, line: int) -> Iterator[tuple[str, int]]:
    """Yield (path, line) for every key: a string that a colon follows, in an object that no list holds."""
    path: list[str | None] = []
    string: tuple[str, int] | None = None
    pending: str | None = None
    for match in _SIGN.finditer(text):
        sign = match[0]
        if sign == "\n":
            line += 1
        elif sign[0] in "\"'":
            string = (sign[1:-1], line)
            line += sign.count("\n")
        elif sign == ":" and string is not None and None not in path[1:]:
            pending = string[0]
            yield ".".join([*(part for part in path[1:] if part), pending]), string[1]
        elif sign in _CLOSED_BY:
            path.append(pending if sign == "{" else None)  # what stands inside a list has no path
            string = pending = None
        elif sign in "}])" and path:
            path.pop()
            string = pending = None
        elif sign == ",":
            string = pending = None


_TABLE = re.compile(r"\s*\[(?P<name>[^\[\]]+)\]\s*(?:#.*)?\Z")
_LIST = re.compile(r"\s*\[\[")
_KEY = re.compile(r"\s*(?P<key>(?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_QUOTES = ('"""', "'''")


def read_toml(text: str) -> Written:
    """Read a TOML document; raise ValueError where it is none."""
    return Written(values=loads(text), lines=_lines(text))


def _lines(text: str) -> dict[str, int]:
    lines: dict[str, int] = {}
    table: str | None = ""
    inside: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if inside is not None:
            inside = None if inside in line else inside
            continue
        if _LIST.match(line):
            table = None
        elif heading := _TABLE.match(line):
            table = _path(heading["name"])
        elif table is not None and (found := _KEY.match(line)) and len(lines) < MOST_LINES:
            lines[f"{table}.{_path(found['key'])}".lstrip(".")] = number
        inside = next((quotes for quotes in _QUOTES if line.count(quotes) % 2), None)
    return lines


def _path(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))
