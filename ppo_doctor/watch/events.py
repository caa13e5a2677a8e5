"""What a watcher tells: one line per event, safe to print."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ppo_doctor.report.escape import plain, prose

#: file: what happened to the log; run: a run begins; cause: one is confirmed, or gone; verdict: it changed;
#: silence: nothing new, or something again; problem: what we could not do; end: why we stop.
Kind = Literal["file", "run", "cause", "cleared", "verdict", "silence", "problem", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing worth a line."""

    kind: Kind
    text: str
    #: last step of the run when it happened, None outside a run
    step: int | None = None
    severity: str | None = None

    def line(self, time: str) -> str:
        """Return the event as one line: time, step, kind, text."""
        step = "-" if self.step is None else str(self.step)
        kind = f"{self.kind} {self.severity}" if self.severity else self.kind
        return f"{time}  step {step:<8}  {plain(kind):<14}  {prose(self.text)}"


def duration(seconds: float) -> str:
    """Return a time span as people say it: 40 s, 12 min, 3 h 5 min."""
    minutes, whole = int(seconds // 60), int(seconds)
    if minutes < 1:
        return f"{whole} s"
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
