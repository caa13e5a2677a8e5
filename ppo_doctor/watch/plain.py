"""A watcher without a screen: one line per event, for logs, pipes and terminals that are none."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ppo_doctor.watch.events import Event
    from ppo_doctor.watch.session import View

#: What is told with --quiet.
LOUD = ("cause", "cleared", "verdict", "problem", "end")


class PlainScreen:
    """Prints each event as one line on standard output; raises KeyboardInterrupt when nobody reads any more."""

    def __init__(self, *, quiet: bool = False, clock: Callable[[], datetime] = datetime.now) -> None:
        self._quiet = quiet
        self._clock = clock
        self._left = False

    def tell(self, event: Event) -> None:
        """Print one event with the time of day; the wall clock serves this and nothing else."""
        if self._quiet and event.kind not in LOUD:
            return
        sys.stdout.write(event.line(f"{self._clock():%Y-%m-%d %H:%M:%S}") + "\n")
        sys.stdout.flush()
        if getattr(sys.stdout, "left", False) and not self._left:  # see cli.streams.Output
            self._left = True  # last words go nowhere, and end nothing
            raise KeyboardInterrupt

    def update(self, view: View) -> None:
        """Show nothing between events."""
