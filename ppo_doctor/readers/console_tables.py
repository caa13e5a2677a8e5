"""Tables of a header and rows: set with pipes, as a notebook (Unsloth), markdown or a box has them, or with blanks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ppo_doctor.readers.console_base import NUMBER

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

_RULE = re.compile(r"[|+]? ?:?-{2,}:? *(?:[|+] *:?-{2,}:? *)+[|+]?\Z")
_NUMBER = re.compile(NUMBER)
_NAME = re.compile(r"[A-Za-z_][\w./%()-]{0,99}\Z")
_FURTHER = "etc."
#: Columns from which on words above numbers are their header, and characters of a line that may be one.
FEWEST, LONGEST = 3, 1 << 11


class Tables:
    """Reads one record per row, once a header and a rule of dashes have been seen."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        #: the rows since the last rule
        self._above: list[list[str]] = []
        self._names: list[str] = []

    def take(self, line: Line) -> bool:
        """Read a header, a rule or a row."""
        if _RULE.match(line.text.strip()):
            return self._ruled(len(_cells(line.text.replace("+", "|"))))
        if "|" not in line.text:
            self._names, self._above = [], []
            return False
        cells = _cells(line.text)
        if not self._names:
            self._above.append(cells)
            return False
        if len(cells) != len(self._names) and not (line.torn and len(cells) < len(self._names)):
            detail = f"{len(cells)} instead of {len(self._names)}"
            self._sink.notes.skip("its number of cells is not that of the header", line.number, detail=detail)
            return True
        self._sink.cells(line.number, self._sink.pairs(line, list(zip(self._names, cells, strict=False))))
        return True

    def finish(self) -> None:
        """Nothing is ever open."""

    def _ruled(self, width: int) -> bool:
        """Take the row above for a header, where it is alone below the last rule and holds no number."""
        above, self._above = self._above, []
        header = above[0] if len(above) == 1 else []
        named = len(header) == width and not any(map(_NUMBER.fullmatch, header))
        self._names = header if named else []
        return named


class Aligned:
    """Reads rows of numbers below as many names, with blanks or pipes between them ("Step Time | avgR stdR")."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._above: tuple[int, list[str]] = (0, [])
        self._names: list[str] = []

    def take(self, line: Line) -> bool:
        """Read a row, or keep in mind what may be the header of the next one."""
        words = line.text[:LONGEST].replace("|", " ").split()
        if len(words) < FEWEST or len(line.text) > LONGEST:
            return False
        if all(map(_NAME.match, words)) and len(set(words)) == len(words):
            self._above = line.number, words
        if not all(map(_NUMBER.fullmatch, words)):
            return False
        if self._above[0] == line.number - 1 and _fit(self._above[1], words):
            self._names = self._above[1]
        if not _fit(self._names, words):
            return False
        names = [name for name in self._names if name != _FURTHER]
        self._sink.loose(line.number, self._sink.pairs(line, list(zip(names, words, strict=False))))
        return True

    def finish(self) -> None:
        """Nothing is ever open."""


def _fit(names: list[str], words: list[str]) -> bool:
    """Tell whether there is a name for each word, of which "etc." stands for one and more."""
    return len(names) == len(words) or (bool(names) and names[-1] == _FURTHER and len(words) > len(names))


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.strip().removeprefix("|").removesuffix("|").split("|")]
