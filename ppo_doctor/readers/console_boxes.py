"""Boxed tables of keys and values, one pair to a row (Stable-Baselines, OpenAI Baselines) or several (tabulate)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ppo_doctor.readers.console_base import NUMBER

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

#: The top of a box with a title in it, and a row of one: the name of a group in its first line, then its pairs.
_TITLE = re.compile(r"\+-{3,} .{1,80} -{3,}\+\Z")
_ROW = re.compile(r"\|  ?(\S{0,40}) {2,}(\S.*?) *\|\Z")
_BORDER, _NUMBER = re.compile(r"\s*[-=+]{5,}\s*\Z"), re.compile(NUMBER)


class Panels:
    """Reads one record per box with a title, whose groups hold `key: value | key: value` over several lines (rich)."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._groups: list[tuple[str, list[str]]] = []
        #: line of the open box's title, 0 while none is open
        self._first = 0

    def take(self, line: Line) -> bool:
        """Read a title or a row; what is neither ends the box."""
        text = line.text.strip()
        if _TITLE.match(text):
            self.finish()
            self._first = line.number
            return True
        row = _ROW.match(text) if self._first else None
        if row is None or not (row[1] or self._groups):
            closed = bool(self._first) and _BORDER.match(text) is not None
            self.finish()
            return closed
        if row[1]:
            self._groups.append((row[1], []))
        self._groups[-1][1].append(row[2])
        return True

    def finish(self) -> None:
        """Hand on the box that is open."""
        cells = {
            f"{group}/{key.strip()}": value.strip()
            for group, lines in self._groups
            for key, colon, value in (pair.partition(":") for pair in " ".join(lines).split("|"))
            if colon
        }
        if cells:
            self._sink.cells(self._first, cells)
        self._groups, self._first = [], 0


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
        #: rows since the last border: one alone is a row of a box that has a border below each
        self._rows = 0

    def take(self, line: Line) -> bool:
        """Read a row or a border; any other line ends the table."""
        if _BORDER.match(line.text):
            self._bordered = self._bordered or bool(self._pairs)
            if self._rows != 1:
                self._close()
            self._rows = 0
            return self._bordered
        pairs = _pairs(line.text.strip().split("|"))
        if not pairs:
            self.finish()
            return False
        self._rows += 1
        for key, value in pairs:
            self._add(line, len(key) - len(key.lstrip(" ")), key.strip(), value.strip())
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
        if self._pairs and self._bordered and self._rows:
            self._sink.notes.tell("torn", "a table is cut off; its complete rows are used", self._first)
        self._close()

    def _close(self) -> None:
        if self._pairs:
            self._sink.cells(self._first, dict(self._pairs))
        self._pairs, self._keys, self._first, self._section = [], set(), 0, ""


def _pairs(parts: list[str]) -> list[tuple[str, str]]:
    """Return the pairs of a row between pipes, of which a torn row lacks the last; several are names and numbers."""
    if len(parts) < 4 or len(parts) % 2 or parts[0] or parts[-1]:
        return []
    pairs = [pair for pair in zip(parts[1:-1:2], parts[2:-1:2], strict=True) if any(map(str.strip, pair))]
    if len(parts) > 4 and not all(_NUMBER.fullmatch(value.strip()) for _, value in pairs):
        return []
    return pairs if all(key.strip() and not _NUMBER.fullmatch(key.strip()) for key, _ in pairs) else []
