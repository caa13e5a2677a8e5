"""What happened to a run since a cursor, which holds all that the server would have to remember."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from ppo_doctor.cli.watch.monitor import STEADY_SUSPICION, Event, Monitor, as_it_was, cause_says, updates
from ppo_doctor.model.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.run import Run

#: Longest cursor that is read, and most digits of its count.
LONGEST, DIGITS = 4000, 18


@dataclass(frozen=True, slots=True)
class Cursor:
    """A run as a client knows it: how many updates, the verdict ("" while none has held), and confirmed causes."""

    run: str
    updates: int
    verdict: str
    causes: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> Cursor:
        """Return the cursor that `text` wrote.

        Raises:
            DoctorError: it is none (exit code 2).
        """
        run, *rest = text[:LONGEST].split(":")
        if len(rest) != 3 or not rest[0].isascii() or not rest[0].isdigit() or len(rest[0]) > DIGITS:
            hint = "give the cursor of the last answer unchanged, or none"
            raise DoctorError("this is no cursor of watch", hint=hint, code=ExitCode.USAGE)
        return cls(run, int(rest[0]), rest[1], tuple(filter(None, rest[2].split(","))))

    def text(self) -> str:
        """Return the cursor as text, which is no JSON: the SDK would parse that before we see it."""
        return f"{self.run}:{self.updates}:{self.verdict}:{','.join(self.causes)}"

    def events_since(self, before: Cursor | None, monitor: Monitor, run: Run) -> list[Event]:
        """Return what this state of a run has that an earlier one had not."""
        step = run.steps[1] if run.steps else None
        if before is not None and (before.run != self.run or before.updates > self.updates):
            text = "another run is there now" if before.run != self.run else "the log is shorter than it was"
            return [Event(kind="run", text=text, step=step), *self.events_since(None, monitor, run)]
        known = before.causes if before is not None else ()
        fresh = [cause for cause in monitor.standing if cause.id not in known]
        events = [Event(kind="cause", text=cause_says(each), step=step, severity=each.severity) for each in fresh]
        gone = [name for name in known if name not in self.causes]
        events += [Event(kind="cleared", text=f"no longer what explains the run: {name}", step=step) for name in gone]
        if self.verdict and self.verdict != (before.verdict if before is not None else ""):
            events.append(Event(kind="verdict", text=monitor.says, step=step))
        return events


def seen(run: Run, judge: Callable[[Run], Diagnosis]) -> tuple[Cursor, Monitor]:
    """Return a run as a watcher sees it that has looked once before, long enough ago for a verdict to hold."""
    monitor = Monitor()
    before = as_it_was(run, STEADY_SUSPICION)
    if before is not None:
        monitor.take(before, judge(before), judge)
    monitor.take(run, judge(run), judge)
    causes = tuple(cause.id for cause in monitor.standing)
    return Cursor(_short(run.id), updates(run), monitor.verdict or "", causes), monitor


def _short(name: str) -> str:
    """Return a name as a few digits: a cursor holds no text of files."""
    return blake2b(name.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
