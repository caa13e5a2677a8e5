"""TOML with the line of every key."""

from __future__ import annotations

import re

from ppo_doctor.configs import MOST_LINES, Written
from ppo_doctor.toml_text import loads

_TABLE = re.compile(r"\s*\[(?P<name>[^\[\]]+)\]\s*(?:#.*)?\Z")
_LIST = re.compile(r"\s*\[\[")
_KEY = re.compile(r"\s*(?P<key>(?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_QUOTES = ('"""', "'''")


def read(text: str) -> Written:
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
