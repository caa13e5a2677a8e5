"""The step lines of verl: `step:12 - actor/pg_loss:-0.002 - …`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

_STEP_LINE = re.compile(r"(?:.*\s)?(step:\d+ - \S.*)\Z")


class Verl:
    """Reads a record per line; values are fixed to three decimals (before 0.5) or as Python and NumPy print them."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def take(self, line: Line) -> bool:
        """Read a step line."""
        match = _STEP_LINE.match(line.text)
        if match is None:
            return False
        pairs = []
        for part in match[1].split(" - "):
            key, colon, value = part.strip().rpartition(":")
            if colon and key and value:
                pairs.append((key, value))
            elif line.torn:
                pairs.append((part, ""))
            else:
                self._sink.notes.tell("part", f"a part without a value is not read: {part[:80]}", line.number)
        self._sink.cells(line.number, self._sink.pairs(line, pairs))
        return True

    def finish(self) -> None:
        """Nothing is ever open."""
