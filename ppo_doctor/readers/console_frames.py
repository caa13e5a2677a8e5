"""What Sample Factory prints every few seconds: frames so far, then the mean reward of the last episodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

_FRAMES = re.compile(r".*\bFps is \(.*\bTotal num frames: (\d+)\.")
_REWARD = re.compile(r".*\bAvg episode rewards?: \[(.*)\]\s*\Z")
_POLICY = re.compile(r"\((\d+), '?([-+.\w]+)'?\)")


class SampleFactory:
    """Reads a report of frames and the rewards below it as one record; of reports without new frames the last counts.

    Rewards stand in a list with one pair per policy; those of the first policy have the plain name.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._cells: dict[str, str] = {}
        self._frames = ""
        self._first = 0

    def take(self, line: Line) -> bool:
        """Read a line of frames or of rewards."""
        if frames := _FRAMES.match(line.text):
            if frames[1] != self._frames:
                self.finish()
            self._frames, self._first = frames[1], line.number
            return True
        rewards = _REWARD.match(line.text) if self._frames else None
        if rewards is None:
            return False
        self._cells = {
            "Avg episode reward" + (f" {policy}" if int(policy) else ""): value
            for policy, value in _POLICY.findall(rewards[1])
        }
        return True

    def finish(self) -> None:
        """Hand on the report that is open; one without rewards holds nothing."""
        if self._cells:
            self._sink.cells(self._first, {"Total num frames": self._frames, **self._cells})
        self._cells = {}
