"""Records over several lines: blocks of rsl_rl and Isaac Lab, bullets of NeMo-RL, pairs of lines of DeepSpeed-Chat."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ppo_doctor.readers.console_base import NUMBER

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

_ITERATION = re.compile(r"\s*(Learning iteration)\s+(\d+)\s*/\s*\d+\s*\Z")
_BANNER = re.compile(r"\s*#{10,}\s*\Z")
_ENTRY = re.compile(rf"\s*([^:=|{{}}]{{1,100}}): +({NUMBER}\S{{0,3}}|\d[\d.]* steps/s.*|[\d:]+)\s*\Z")
#: "===== Step 3/100 =====", then sections of bullets, of which one holds the metrics of training.
_NEMO_STEP = re.compile(r"\s*={5,} (Step) (\d+)/\d+ ={5,}\s*\Z")
_NEMO_SECTION = re.compile(r"\s*[^\w\s•=]\S* +([A-Z][\w ]{1,40}):\s*\Z")
_NEMO_ENTRY = re.compile(rf"\s*• ([^:]{{1,60}}): ({NUMBER})")
_NEMO_TRAINING = "Training Results"
_DEEPSPEED = re.compile(r"\s*epoch: *\d+ *\| *step: *\d+ *\|", re.IGNORECASE)
_REWARD = re.compile(r"\s*average reward score:", re.IGNORECASE)
_RULE = re.compile(r"\s*-{10,}\s*\Z")


class RslRl:
    """Reads a block per learning iteration, which a banner or the next iteration ends."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._cells: dict[str, str] = {}
        self._first = 0

    def take(self, line: Line) -> bool:
        """Read a line of a block."""
        start = _ITERATION.match(line.text)
        if start or _BANNER.match(line.text):
            self.finish()
            if start:
                self._cells, self._first = {start[1]: start[2]}, line.number
            return bool(start)
        if not self._cells:
            return False
        if not line.text.strip(" -"):
            return True
        entry = _ENTRY.match(line.text)
        if entry is None:
            if line.torn:
                self._sink.notes.tell("torn", "a block is cut off; its complete lines are used", self._first)
            return False
        self._cells |= self._sink.pairs(line, [(entry[1], entry[2])])
        return True

    def finish(self) -> None:
        """Hand on the block that is open."""
        if self._cells:
            self._sink.cells(self._first, self._cells)
        self._cells = {}


class NemoRl:
    """Reads the bullets under "Training Results" of each step; those of timing and of validation are left alone."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._cells: dict[str, str] = {}
        self._first = 0
        self._training = False

    def take(self, line: Line) -> bool:
        """Read a line of a step."""
        if start := _NEMO_STEP.match(line.text):
            self.finish()
            self._cells, self._first = {start[1]: start[2]}, line.number
            return True
        if not self._cells:
            return False
        if section := _NEMO_SECTION.match(line.text):
            self._training = section[1] == _NEMO_TRAINING
            return self._training
        entry = _NEMO_ENTRY.match(line.text)
        if entry and self._training:
            self._cells |= self._sink.pairs(line, [(entry[1], entry[2])])
        return entry is not None

    def finish(self) -> None:
        """Hand on the step that is open, if it came to its results."""
        if len(self._cells) > 1:
            self._sink.cells(self._first, self._cells)
        self._cells, self._training = {}, False


class DeepSpeedChat:
    """Reads `epoch: 0|step: 6|ppo_ep: 1|act_loss: …` with the average reward score, which follows a few lines later."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._cells: dict[str, str] = {}
        self._first = 0

    def take(self, line: Line) -> bool:
        """Read a line of losses or of rewards."""
        if _DEEPSPEED.match(line.text):
            self.finish()
            self._cells, self._first = self._pairs(line), line.number
            return True
        if not self._cells:
            return False
        if _REWARD.match(line.text):
            self._cells |= self._pairs(line)
            return True
        if _RULE.match(line.text):
            self.finish()
            return True
        return False

    def finish(self) -> None:
        """Hand on the record that is open."""
        if self._cells:
            self._sink.cells(self._first, self._cells)
        self._cells = {}

    def _pairs(self, line: Line) -> dict[str, str]:
        parts = (part.partition(":") for part in line.text.split("|"))
        return self._sink.pairs(line, [(key.strip(), value.strip()) for key, colon, value in parts if colon])
