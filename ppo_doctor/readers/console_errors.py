"""What a trainer says in prose: the exception that a log ends in, and updates that a KL stopped early."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from ppo_doctor.model import DIED, STOPPED_EARLY

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink
    from ppo_doctor.readers.notes import Ledger


class Reading(Protocol):
    """What reads the log: how many records it has read so far, and where it notes what it met."""

    @property
    def records(self) -> int:
        """Return the number of records so far."""

    @property
    def notes(self) -> Ledger:
        """Return the notes."""


_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s+File "([^"]*)", line (\d+), in (\S+)')
#: The line that ends a traceback: the exception's class, perhaps with its module, and what it says.
_EXCEPTION = re.compile(r"((?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Stop)\w*)(?:: (.*))?$")
#: Lines of one traceback; characters of its message that are told.
_MOST_LINES, _TOLD = 400, 160


class Exceptions:
    """Takes the lines of tracebacks; the last one is noted where no record follows it."""

    def __init__(self, sink: Reading) -> None:
        self._sink = sink
        self._open = 0
        self._frame = ""
        #: the last exception: its line, what it says, and how many records stood before it
        self._last: tuple[int, str, int] | None = None

    def take(self, line: Line) -> bool:
        """Read a line of a traceback."""
        if line.text.lstrip().startswith(_BEGIN):
            self._open, self._frame = _MOST_LINES, ""
            return True
        if not self._open:
            return False
        self._open -= 1
        if frame := _FRAME.match(line.text):
            self._frame = f"{frame[1].replace(chr(92), '/').rpartition('/')[2]}:{frame[2]}, in {frame[3]}"
        elif found := _EXCEPTION.match(line.text.strip()):
            where = f" ({self._frame})" if self._frame else ""
            told = f"{found[1]}: {found[2]}" if found[2] else found[1]
            self._last, self._open = (line.number, told[:_TOLD] + where, self._sink.records), 0
        elif not line.indent:  # a traceback of which the end is missing
            self._open = 0
            return False
        return True

    def finish(self) -> None:
        """Note the exception that the log ends in."""
        if self._last is not None and self._last[2] == self._sink.records:
            number, told, _ = self._last
            self._sink.notes.tell("exception", f"{DIED}: {told}", number)


#: Spinning Up, Stable-Baselines3, and what was written after them: the number is that of the pass that was stopped.
_STOPPED = re.compile(r"\bearly[ -]stop(?:ping|ped)\b.{0,20}?\b(?:step|epoch|iteration)\s*[:=]?\s*(\d{1,6})\b", re.I)


class EarlyStops:
    """Takes the lines that tell of an update stopped early, and notes how many there were."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._passes: list[int] = []
        self._first = 0

    def take(self, line: Line) -> bool:
        """Read a line that tells of an early stop."""
        found = _STOPPED.search(line.text[:_TOLD])
        if found is None or "=" in line.text:  # a record that tells of it besides
            return False
        self._first = self._first or line.number
        self._passes.append(int(found[1]))
        return True

    def finish(self) -> None:
        """Note the early stops, and how soon they came."""
        if self._passes:
            soon = sorted(self._passes)[len(self._passes) // 2]
            self._sink.notes.tell("stopped", STOPPED_EARLY.format(len(self._passes), soon), self._first)
            self._passes = []
