"""An evaluation that a script prints once, before training beside after it: told in a note, for it is no course."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ppo_doctor.readers.console_base import NUMBER

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

_SCORE = r"(?:[\w@-]+ ){0,3}(?:accuracy|reward|score|return|success(?: rate)?|win rate|pass@\d+)"
_VALUE = rf"({NUMBER} ?%?)"
#: "Eval accuracy: 0.150 -> 0.800"
_ARROW = re.compile(rf"({_SCORE})\s*[:=]\s*{_VALUE}\s*(?:->|=>|→)\s*{_VALUE}(?=\s|\Z)", re.IGNORECASE)
#: "Baseline Avg Reward: 0.150", and in a line after it "GRPO Avg Reward: 0.800"
_BEFORE = r"baseline|base(?: model)?|before(?: training)?|untrained(?: model)?|pre-?trained(?: model)?"
_AFTER = r"after(?: training)?|GRPO|PPO|RLHF|(?:fine-?)?tuned(?: model)?|trained(?: model)?"
_SIDE = re.compile(rf"(?:({_BEFORE})|(?:{_AFTER}))(?: model)? ({_SCORE})\s*[:=]\s*{_VALUE}", re.IGNORECASE)
#: Lines within which the second stands after the first, and characters of one.
_NEAR, _LONGEST = 4, 200


class Evaluations:
    """Notes scores before and after training."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._name, self._value, self._line = "", "", 0

    def take(self, line: Line) -> bool:
        """Read a line that holds both, or the second of two; the first is left to others."""
        text = line.text.strip(" \t-*#|>•") if len(line.text) <= _LONGEST else ""
        if both := _ARROW.fullmatch(text):
            return self._tell(line, both[1], both[2], both[3])
        side = _SIDE.fullmatch(text)
        if side is None:
            return False
        if side[1]:
            self._name, self._value, self._line = side[2].lower(), side[3], line.number
        elif side[2].lower() == self._name and line.number - self._line <= _NEAR:
            return self._tell(line, side[2], self._value, side[3])
        return False

    def finish(self) -> None:
        """Hold nothing back."""

    def _tell(self, line: Line, name: str, before: str, after: str) -> bool:
        text = f"an evaluation before and after training: {name} {before.strip()} → {after.strip()}"
        self._sink.notes.tell("evaluation", text, line.number, kind="said")
        return True
