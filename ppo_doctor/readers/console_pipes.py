"""Tables of many columns set with pipes: what a notebook shows (Unsloth), or markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

_RULE = re.compile(r"\|? ?:?-{2,}:? *(?:\| *:?-{2,}:? *)+\|?\Z")


class Pipes:
    """Reads one record per row, once a header and a rule of dashes have been seen."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._above: list[str] = []
        self._names: list[str] = []

    def take(self, line: Line) -> bool:
        """Read a header, a rule or a row."""
        if "|" not in line.text:
            self._names, self._above = [], []
            return False
        cells = _cells(line.text)
        if _RULE.match(line.text.strip()):
            self._names = self._above if len(self._above) == len(cells) else []
            return bool(self._names)
        self._above = cells
        if not self._names:
            return False
        if len(cells) != len(self._names) and not (line.torn and len(cells) < len(self._names)):
            detail = f"{len(cells)} instead of {len(self._names)}"
            self._sink.notes.skip("its number of cells is not that of the header", line.number, detail=detail)
            return True
        self._sink.cells(line.number, self._sink.pairs(line, list(zip(self._names, cells, strict=False))))
        return True

    def finish(self) -> None:
        """Nothing is ever open."""


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.strip().removeprefix("|").removesuffix("|").split("|")]
