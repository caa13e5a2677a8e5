"""Boxed tables of keys and values, as Stable-Baselines 1 to 3 and OpenAI baselines print them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

_BORDER = re.compile(r"\s*[-=+]{5,}\s*\Z")


class Boxes:
    """Reads one record per box; a key under a section row such as `train/` is the section and the key."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._pairs: list[tuple[str, str]] = []
        self._keys: set[str] = set()
        self._first = 0
        self._section, self._section_indent = "", 0
        #: whether boxes of this log are closed by a border: one that is not was cut off
        self._bordered = False

    def take(self, line: Line) -> bool:
        """Read a row or a border; any other line ends the table."""
        if _BORDER.match(line.text):
            self._bordered = self._bordered or bool(self._pairs)
            self._close()
            return self._bordered
        # Three pipes, the first and the last at the ends: a torn row has no last one.
        parts = line.text.strip().split("|")
        if len(parts) != 4 or parts[0] or parts[3] or not parts[1].strip():
            self._cut_off()
            return False
        key = parts[1]
        self._add(line, len(key) - len(key.lstrip(" ")), key.strip(), parts[2].strip())
        return True

    def finish(self) -> None:
        """Use the rows of a box that is still open."""
        self._cut_off()

    def _add(self, line: Line, indent: int, key: str, value: str) -> None:
        if not value and key.endswith("/"):
            self._section, self._section_indent = key, indent
            self._first = self._first or line.number
            return
        if self._section and indent > self._section_indent:
            key = self._section + key
        else:
            self._section = ""
        if key in self._keys:
            self._close()
        self._first = self._first or line.number
        self._keys.add(key)
        self._pairs.append((key, value))

    def _cut_off(self) -> None:
        if self._pairs and self._bordered:
            self._sink.notes.tell("torn", "a table is cut off; its complete rows are used", self._first)
        self._close()

    def _close(self) -> None:
        if self._pairs:
            self._sink.cells(self._first, dict(self._pairs))
        self._pairs, self._keys, self._first, self._section = [], set(), 0, ""
