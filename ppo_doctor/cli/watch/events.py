"""Events of a watcher: one safe line each, and a screen that prints only them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from ppo_doctor.report.escape import plain, prose

if TYPE_CHECKING:
    from ppo_doctor.cli.watch.session import View

#: file: what happened to the log; run: a run begins; cause: one is confirmed, or gone; verdict: it changed;
#: silence: nothing new, or something again; problem: what we could not do; end: why we stop.
Kind = Literal["file", "run", "cause", "cleared", "verdict", "silence", "problem", "end"]
#: What is printed with --quiet.
LOUD = ("cause", "cleared", "verdict", "problem", "end")


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


class PlainScreen:
    """Prints each event as one line on standard output; raises KeyboardInterrupt when nobody reads any more."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._left = False

    def tell(self, event: Event) -> None:
        """Print one event with the time of day; the wall clock serves this and nothing else."""
        if self._quiet and event.kind not in LOUD:
            return
        sys.stdout.write(event.line(f"{datetime.now():%Y-%m-%d %H:%M:%S}") + "\n")
        sys.stdout.flush()
        if getattr(sys.stdout, "left", False) and not self._left:  # see streams.Output
            self._left = True  # last words go nowhere, and end nothing
            raise KeyboardInterrupt

    def update(self, view: View) -> None:
        """Show nothing between events."""


def duration(seconds: float) -> str:
    """Return a time span as people say it: 40 s, 12 min, 3 h 5 min."""
    minutes, whole = int(seconds // 60), int(seconds)
    if minutes < 1:
        return f"{whole} s"
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
