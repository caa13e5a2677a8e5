"""What `fleet` tells on stderr while it judges."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppo_doctor.fleets.run import Progress

#: Seconds between two lines, on a terminal and in a file of a job.
ON_TERMINAL, IN_FILE = 0.5, 30.0


class ProgressLine:
    """Writes how many runs are done and how fast: a line that is written over, or now and then a new one in a file."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._begun = self._told = time.monotonic()
        self._written = False

    def __call__(self, done: Progress) -> None:
        """Tell it if it is time to."""
        now = time.monotonic()
        if now - self._told > (ON_TERMINAL if self._terminal else IN_FILE):
            self._told = now
            self._written = True
            text = told(done, now - self._begun)
            sys.stderr.write(f"\r\x1b[K{text}" if self._terminal else f"{text}\n")
            sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._terminal and self._written:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def told(done: Progress, seconds: float) -> str:
    """Return what has been done in one line."""
    count = sum(done.rows.values())
    failed = f", {done.rows['failed']:,} failed" if done.rows["failed"] else ""
    unchanged = f", {done.unchanged:,} unchanged" if done.unchanged else ""
    return f"{count:,} runs judged{failed}{unchanged}, {count / max(seconds, 1e-9):.0f} per second"
