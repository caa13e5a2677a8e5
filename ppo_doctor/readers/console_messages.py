"""Messages in a log: exceptions, early stops, warnings, evaluations, planned passes, and the method of its records."""

from __future__ import annotations

import re
from statistics import median_high
from typing import TYPE_CHECKING, Protocol

from ppo_doctor.model.run import SourceRef
from ppo_doctor.readers.console_base import NUMBER, Dialect
from ppo_doctor.readers.methods import may_name, method_of
from ppo_doctor.readers.table import METHOD_KEYS, SECTION, EmbeddedConfig

if TYPE_CHECKING:
    from ppo_doctor.model.words import NoteEvent
    from ppo_doctor.readers.console_base import Line, Sink
    from ppo_doctor.readers.notes import Ledger

#: Characters of a line that are searched, and of a message that are shown, at most.
_SHOWN = 160
#: Phrases of exceptions about numbers that are not finite.
_NONFINITE = re.compile(
    r"\bnans?\b|\binf\b|nan\(|infinite|invalid values|not finite|non-finite|expected parameter", re.I
)


_BEGIN = "Traceback (most recent call last)"
#: The prefix that torchrun and Slurm add to each line of a process.
_RANK = re.compile(r"\[?(?:rank ?)?\d{1,5}\]?:\s?(?=\s|Traceback|[A-Za-z])")
#: A frame as Python prints it, or as rich does between bars.
_FRAME = re.compile(r'\s+File "([^"]*)", line (\d+), in (\S+)|\|?\s*(\S+\.py):(\d+) in (\S+)')
#: The line that ends a traceback: the exception's class, perhaps with its module, and its message.
_EXCEPTION = re.compile(
    r"((?:\w+\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Stop)|Exception(?=:))\w*)(?:: (.*))?$"
)
#: Messages about a process that was killed or ended without a Python exception.
_ENDED = re.compile(
    r"CUDA out of memory|out of memory: killed process|oom[-_ ]kill|\bSIGKILL\b|\bSegmentation fault\b|core dumped"
    r"|\bNCCL (?:error|watchdog|timeout)|\bncclSystemError|Watchdog caught collective operation timeout"
    r"|\bworker (?:died|was killed|crashed)|(?:Actor|Worker)(?:Died|Crashed)Error|The actor is dead"
    r"|DUE TO TIME LIMIT|DUE TO PREEMPTION|exit ?code:? -?9\b|^\s*Killed\s*$",
    re.IGNORECASE,
)
#: Texts of which the lower case of an exception or of such a message holds one; few lines are searched for them.
_LAST_WORDS = (
    *("error", "exception", "interrupt", "exit", "stop", "memory", "oom", "sigkill", "segmentation", "dumped"),
    *("nccl", "watchdog", "worker", "actor", "due to", "killed"),
)
#: Most lines of one traceback.
_MOST_LINES = 400


class Reader(Protocol):
    """A reader of a log: the number of records so far, and its notes."""

    @property
    def records(self) -> int:
        """Return the number of records so far."""

    @property
    def notes(self) -> Ledger:
        """Return the notes."""


class Exceptions:
    """Reads tracebacks and other last words of a process; the last one is noted if no record follows it."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._open = 0
        self._frame = ""
        #: the last exception: its line, its message, and the number of records before it
        self._last: tuple[int, str, int] | None = None

    def take(self, line: Line) -> bool:
        """Read a line of a traceback."""
        if _BEGIN in line.text[:_SHOWN]:
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
        elif exception := _EXCEPTION.match(text.strip()):
            where = f" ({self._frame})" if self._frame else ""
            message = f"{exception[1]}: {exception[2]}" if exception[2] else exception[1]
            self._last, self._open = (line.number, message[:_SHOWN] + where, self._reader.records), 0
        elif not text[:1].isspace() and not text.startswith(("|", "+")):  # the end of the traceback is missing
            self._open = 0
            return False
        return True

    def _alone(self, line: Line) -> bool:
        """Read an exception without a traceback, or a message about a killed process; an earlier one is preferred."""
        text = line.text[: 2 * _SHOWN].strip()
        lowered = text.lower()
        if not any(words in lowered for words in _LAST_WORDS):
            return False
        exception = _EXCEPTION.match(text) if line.text[:1].isalpha() else None
        if not (exception and exception[2]) and not _ENDED.search(text):
            return False
        if self._last is None or self._last[2] != self._reader.records:
            self._last = (line.number, text[:_SHOWN], self._reader.records)
        return True

    def finish(self) -> None:
        """Note the last exception if no record follows it."""
        if self._last is not None and self._last[2] == self._reader.records:
            number, message, _ = self._last
            event: NoteEvent = "died_of_numbers" if _NONFINITE.search(message) else "died"
            text = f"the run died here: {message}"
            self._reader.notes.tell("exception", text, number, event=event, message=message)


#: As in Spinning Up and Stable-Baselines3; the number is that of the pass that was stopped.
_STOPPED = re.compile(r"\bearly[ -]stop(?:ping|ped)\b.{0,20}?\b(?:step|epoch|iteration)\s*[:=]?\s*(\d{1,6})\b", re.I)
#: As in DeepSpeed and apex: a step that the loss scaler discards.
_OVERFLOWED = re.compile(r"\boverflow\b.{0,40}\bskipping step\b", re.IGNORECASE)
#: As in transformers, before the first record.
_RESUMED = re.compile(
    r"\b(?:continuing|resum(?:ing|ed)) (?:training )?(?:from|at) (?:(?:the |a )?\S*checkpoint|(?:global_?)?step)",
    re.IGNORECASE,
)
#: A warning as Python prints it: category and message, after the file and the line number.
_WARNING = re.compile(r"(?:^|[\s:])((?:User|Runtime)Warning): (\S.*)")
#: Most warnings that are noted, one of each text.
_MOST_WARNINGS = 4


class Messages(Dialect):
    """Counts early stops, skipped steps, a resumed run and warnings, and notes each kind."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._first: dict[str, int] = {}
        self._passes: list[int] = []
        self._skipped = 0
        self._warnings: dict[str, tuple[int, int]] = {}

    def take(self, line: Line) -> bool:
        """Read a message; a line that is a record as well is left to other dialects."""
        text = line.text[:_SHOWN]
        if (stopped := _STOPPED.search(text)) and "=" not in line.text:
            self._passes.append(int(stopped[1]))
            self._first.setdefault("stopped", line.number)
        elif ("verflow" in text or "VERFLOW" in text) and _OVERFLOWED.search(text):  # few lines are searched
            self._skipped += 1
            self._first.setdefault("skipped", line.number)
        elif not self.sink.records and _RESUMED.search(line.text[: 2 * _SHOWN]):
            self._first.setdefault("resumed", line.number)
        else:
            return self._warning(line)
        return True

    def _warning(self, line: Line) -> bool:
        """Read a warning that is not about a deprecated name."""
        text = line.text[: 3 * _SHOWN]
        warning = _WARNING.search(text) if "Warning: " in text else None
        if warning is None or "deprecated" in warning[2]:
            return False
        message = f"{warning[1]}: {warning[2].strip()[:_SHOWN]}"
        first, count = self._warnings.get(message, (line.number, 0))
        self._warnings[message] = (first, count + 1)
        return True

    def finish(self) -> None:
        """Note each kind of message with its count."""
        tell, first = self.sink.notes.tell, self._first
        if self._passes:
            soon = median_high(self._passes)
            text = f"{len(self._passes)} updates say that they were stopped early, half of them by pass {soon}"
            tell("stopped", text, first["stopped"], event="stopped_early", numbers=(len(self._passes), soon))
        if self._skipped:
            text = f"{self._skipped} lines say that an optimizer step was skipped because gradients overflowed"
            tell("skipped", text, first["skipped"], event="steps_skipped", numbers=(self._skipped,))
        if "resumed" in first:
            text = "the console says that the run goes on from a checkpoint"
            tell("resumed", text, first["resumed"], event="resumed")
        for text, (number, count) in list(self._warnings.items())[:_MOST_WARNINGS]:
            message = text if count == 1 else f"{text} ({count:,} times)"
            tell(f"warning {text}", message, number, kind="said")


_SCORE = r"(?:[\w@-]+ ){0,3}(?:accuracy|reward|score|return|success(?: rate)?|win rate|pass@\d+)"
_VALUE = rf"({NUMBER} ?%?)"
#: "Eval accuracy: 0.150 -> 0.800"
_ARROW = re.compile(rf"({_SCORE})\s*[:=]\s*{_VALUE}\s*(?:->|=>|→)\s*{_VALUE}(?=\s|\Z)", re.IGNORECASE)
#: "Baseline Avg Reward: 0.150", with "GRPO Avg Reward: 0.800" below
_BEFORE = r"baseline|base(?: model)?|before(?: training)?|untrained(?: model)?|pre-?trained(?: model)?"
_AFTER = r"after(?: training)?|GRPO|PPO|RLHF|(?:fine-?)?tuned(?: model)?|trained(?: model)?"
_SIDE = re.compile(rf"(?:({_BEFORE})|(?:{_AFTER}))(?: model)? ({_SCORE})\s*[:=]\s*{_VALUE}", re.IGNORECASE)
#: Most lines from the first score to the second, and characters of a line.
_NEAR, _LONGEST = 4, 200


class Evaluations(Dialect):
    """Notes scores before and after training, which a script prints once and which are no series."""

    _before = "", "", 0

    def take(self, line: Line) -> bool:
        """Read a line with both scores, or the second of two lines; the first is left to other dialects."""
        text = line.text.strip(" \t-*#|>•") if len(line.text) <= _LONGEST else ""
        if both := _ARROW.fullmatch(text):
            return self._tell(line, both[1], both[2], both[3])
        side = _SIDE.fullmatch(text)
        if side is None:
            return False
        name, value, number = self._before
        if side[1]:
            self._before = side[2].lower(), side[3], line.number
        elif side[2].lower() == name and line.number - number <= _NEAR:
            return self._tell(line, side[2], value, side[3])
        return False

    def _tell(self, line: Line, name: str, before: str, after: str) -> bool:
        text = f"an evaluation before and after training: {name} {before.strip()} → {after.strip()}"
        self.sink.notes.tell("evaluation", text, line.number, kind="said")
        return True


#: Setting → its number in a banner: "5 passes x 6 minibatches".
_PLANS = {
    "ppo_epochs": r"(\d{1,3}) (?:(?:ppo|sgd|update|policy) )?(?:epochs?|passes|pass|sweeps?)\b",
    "num_minibatches": r"(\d{1,4}) (?:mini-?batch(?:es)?|chunks?|splits?|shards?)\b",
    "num_generations": r"\d{1,6} (?:prompts?|questions?|tasks?)[ \t]*[x×*][ \t]*(\d{1,4}) (?:samples?|completions?"
    r"|generations?|answers?|rollouts?|responses?)\b",
}
_PLAN_PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _PLANS.items()}
#: Passes count only together with minibatches: alone, they may be passes over all data.
_TOGETHER = ("ppo_epochs", "num_minibatches")
_LONGEST_PLAN = 400


class Plans(Dialect):
    """Reads the line of a banner with passes and minibatches, or with completions per prompt, as a configuration."""

    def take(self, line: Line) -> bool:
        """Read a line above the first record."""
        if self.sink.records or len(line.text) > _LONGEST_PLAN or not any(map(str.isdigit, line.text)):
            return False
        planned = {name: int(match[1]) for name, at in _PLAN_PATTERNS.items() if (match := at.search(line.text))}
        if not all(name in planned for name in _TOGETHER):
            planned = {name: value for name, value in planned.items() if name not in _TOGETHER}
        if not planned or not all(planned.values()):
            return False
        self.sink.config(line.number, planned)
        return True


#: Most changes of the method that are kept.
_MOST_SECTIONS = 100_000
_NAME = r"[A-Za-z][A-Za-z0-9+ _-]{1,24}?"
#: "======== DQN ========", "## SAC, seed 3"
_RULED = re.compile(r"\s*(?:[-=_*~+>#]{2,}|#)\s*([^|:=]{2,60}?)\s*:?\s*[-=_*~+<#]*\s*\Z")
#: "DQN", "[DQN]", "Training DQN ..."
_ALONE = re.compile(
    rf"\s*\[?(?:(?:training|running|starting)\s+)?({_NAME})\]?\s*:?\s*(?:\.\.\.|…)?\s*\Z", re.IGNORECASE
)
#: "[DQN] step 100 …", "DQN | step 100 …"
_FIRST = re.compile(rf"\s*(?:\[({_NAME})\]|({_NAME})\s*[|:])\s")
#: "step 100 | algo DQN | …", "algorithm=SAC"
_METHOD_PAIR = re.compile(
    rf"(?:\A|[\s|,;(\[{{'\"])(?:{'|'.join(METHOD_KEYS)})['\"]?\s*[=:\s]\s*['\"]?([A-Za-z][A-Za-z0-9+_-]{{1,24}})"
)


class Sections(Dialect):
    """Notes the lines at which the method of the records changes; other dialects read these lines too."""

    _last: str | None = None

    def take(self, line: Line) -> bool:
        """Note the method that a line names, and leave the line to other dialects."""
        method = section_of(line.text[:_SHOWN])
        if method is not None and method != self._last and len(self.sink.sections) < _MOST_SECTIONS:
            self._last = method
            source = SourceRef(path=self.sink.path, line=line.number)
            self.sink.sections.append(EmbeddedConfig(values={SECTION: method}, source=source))
        return False


def section_of(text: str) -> str | None:
    """Return the method that a line names for its own record or for those below; None if it names none."""
    if not may_name(text):
        return None
    found = _METHOD_PAIR.search(text) or _RULED.match(text) or _ALONE.match(text) or _FIRST.match(text)
    return method_of(next(filter(None, found.groups()))) if found else None
