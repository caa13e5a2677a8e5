"""JSON, and dicts as Python prints them, with the line of every key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ppo_doctor.configs import MOST_LINES, Written
from ppo_doctor.literals import python_literal

_SIGN = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[{}\[\](),:]|\n')
_CLOSED_BY = {"{": "}", "[": "]", "(": ")"}


def read(text: str) -> Written:
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
