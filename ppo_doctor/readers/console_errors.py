"""What a trainer says in prose: the exception that a log ends in, warnings, and updates that a KL stopped early."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from ppo_doctor.model import DIED, RESUMED, SKIPPED, STOPPED_EARLY

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


_BEGIN = "Traceback (most recent call last)"
#: What torchrun and Slurm put before each line of a process.
_RANK = re.compile(r"\[?(?:rank ?)?\d{1,5}\]?:\s?(?=\s|Traceback|[A-Za-z])")
#: A frame as Python prints it, and as rich does between bars.
_FRAME = re.compile(r'\s+File "([^"]*)", line (\d+), in (\S+)|\|?\s*(\S+\.py):(\d+) in (\S+)')
#: The line that ends a traceback: the exception's class, perhaps with its module, and what it says.
_EXCEPTION = re.compile(
    r"((?:\w+\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Stop)|Exception(?=:))\w*)(?:: (.*))?$"
)
#: What systems write of a process that they end, or that ends without an exception of Python's.
_ENDED = re.compile(
    r"CUDA out of memory|out of memory: killed process|oom[-_ ]kill|\bSIGKILL\b|\bSegmentation fault\b|core dumped"
    r"|\bNCCL (?:error|watchdog|timeout)|\bncclSystemError|Watchdog caught collective operation timeout"
    r"|\bworker (?:died|was killed|crashed)|(?:Actor|Worker)(?:Died|Crashed)Error|The actor is dead"
    r"|DUE TO TIME LIMIT|DUE TO PREEMPTION|exit ?code:? -?9\b|^\s*Killed\s*$",
    re.IGNORECASE,
)
#: Lines of one traceback; characters of its message that are told.
_MOST_LINES, _TOLD = 400, 160


class Exceptions:
    """Takes the lines of tracebacks; the last one, or what else a log ends in, is noted where no record follows it."""

    def __init__(self, sink: Reading) -> None:
        self._sink = sink
        self._open = 0
        self._frame = ""
        #: the last exception: its line, what it says, and how many records stood before it
        self._last: tuple[int, str, int] | None = None

    def take(self, line: Line) -> bool:
        """Read a line of a traceback."""
        if _BEGIN in line.text[:_TOLD]:
            self._open, self._frame = _MOST_LINES, ""
            return True
        if not self._open:
            return self._alone(line)
        self._open -= 1
        rank = _RANK.match(line.text)
        text = line.text[rank.end() :] if rank else line.text
        if frame := _FRAME.match(text):
            path, number, name = frame[1] or frame[4], frame[2] or frame[5], frame[3] or frame[6]
            self._frame = f"{path.replace(chr(92), '/').rpartition('/')[2]}:{number}, in {name}"
        elif found := _EXCEPTION.match(text.strip()):
            where = f" ({self._frame})" if self._frame else ""
            told = f"{found[1]}: {found[2]}" if found[2] else found[1]
            self._last, self._open = (line.number, told[:_TOLD] + where, self._sink.records), 0
        elif not text[:1].isspace() and not text.startswith(("|", "+")):  # a traceback of which the end is missing
            self._open = 0
            return False
        return True

    def _alone(self, line: Line) -> bool:
        """Read an exception without its traceback, or what ended the process; a traceback before it says more."""
        text = line.text[: 2 * _TOLD].strip()
        found = _EXCEPTION.match(line.text[: 2 * _TOLD]) if line.text[:1].isalpha() else None
        if not (found and found[2]) and not _ENDED.search(text):
            return False
        if self._last is None or self._last[2] != self._sink.records:
            self._last = (line.number, text[:_TOLD], self._sink.records)
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


#: DeepSpeed, and apex before it: a step that the loss scaler throws away.
_OVERFLOWED = re.compile(r"\boverflow\b.{0,40}\bskipping step\b", re.IGNORECASE)


class Overflows:
    """Takes the lines that tell of an optimizer step skipped for infinite gradients, and notes how many there were."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._count = 0
        self._first = 0

    def take(self, line: Line) -> bool:
        """Read a line that tells of a skipped step."""
        told = line.text[:_TOLD]
        if not ("verflow" in told or "VERFLOW" in told) or _OVERFLOWED.search(told) is None:  # few lines are searched
            return False
        self._first = self._first or line.number
        self._count += 1
        return True

    def finish(self) -> None:
        """Note how many steps were skipped."""
        if self._count:
            self._sink.notes.tell("skipped", SKIPPED.format(self._count), self._first)
            self._count = 0


#: transformers, and what was written like it, before the first record.
_RESUMED = re.compile(
    r"\b(?:continuing|resum(?:ing|ed)) (?:training )?(?:from|at) (?:(?:the |a )?\S*checkpoint|(?:global_?)?step)",
    re.IGNORECASE,
)


class Resumptions:
    """Takes the lines that tell, before any record, that training goes on from a checkpoint, and notes the first."""

    def __init__(self, sink: Reading) -> None:
        self._sink = sink
        self._first = 0

    def take(self, line: Line) -> bool:
        """Read a line that tells of a checkpoint."""
        if self._sink.records or _RESUMED.search(line.text[: 2 * _TOLD]) is None:
            return False
        self._first = self._first or line.number
        return True

    def finish(self) -> None:
        """Note that the run goes on from a checkpoint."""
        if self._first:
            self._sink.notes.tell("resumed", RESUMED, self._first)
            self._first = 0


#: A warning as Python prints it: the category and what it says, behind the file and the line that gave it.
_WARNING = re.compile(r"(?:^|[\s:])((?:User|Runtime)Warning): (\S.*)")
#: Warnings that are told, one of each text.
_MOST_WARNINGS = 4


class Warnings:
    """Takes Python's warnings of how the program runs, and notes each text with how often it came."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._met: dict[str, tuple[int, int]] = {}

    def take(self, line: Line) -> bool:
        """Read the line of a warning; those of deprecated names tell nothing of a run."""
        found = _WARNING.search(line.text[: 3 * _TOLD]) if "Warning: " in line.text[: 3 * _TOLD] else None
        if found is None or "deprecated" in found[2]:
            return False
        text = f"{found[1]}: {found[2].strip()[:_TOLD]}"
        first, count = self._met.get(text, (line.number, 0))
        self._met[text] = (first, count + 1)
        return True

    def finish(self) -> None:
        """Note the warnings that were met first."""
        for text, (first, count) in list(self._met.items())[:_MOST_WARNINGS]:
            told = text if count == 1 else f"{text} ({count:,} times)"
            self._sink.notes.tell(f"warning {text}", told, first, kind="said")
        self._met = {}
