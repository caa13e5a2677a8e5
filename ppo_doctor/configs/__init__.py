"""Configurations as files write them: every format becomes nested settings, and the line on which each key stands.

Nothing here knows a trainer, and nothing in a file is run: YAML by a safe loader, Python literals as literals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

__all__ = ["PARSERS", "SCRIPTS", "UnreadableError", "Written", "line_of", "parse"]

#: Suffix → "module:function"; every other file is text, of which JSON is tried first.
PARSERS: Mapping[str, str] = {
    ".toml": "toml_text:read",
    ".yaml": "yaml_text:read",
    ".yml": "yaml_text:read",
    ".json": "written_text:read_document",
    ".py": "python_text:read",
}
_TEXT = "written_text:read_any"
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
    read: Callable[[str], Written] = getattr(import_module(f"ppo_doctor.configs.{module}"), function)
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
