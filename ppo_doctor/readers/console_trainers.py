"""Formats of particular trainers, each recognised by its first line: blocks, reports, step lines and results."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ppo_doctor.readers.console_base import NUMBER, Block, Dialect
from ppo_doctor.trainers.names import COUNTERS, LONGEST, metric_of, setting_of

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

_ITERATION = re.compile(r"\s*(Learning iteration)\s+(\d+)\s*/\s*\d+\s*\Z")
_BANNER = re.compile(r"\s*#{10,}\s*\Z")
_ITERATION_ENTRY = re.compile(rf"\s*([^:=|{{}}]{{1,100}}): +({NUMBER}\S{{0,3}}|\d[\d.]* steps/s.*|[\d:]+)\s*\Z")


class RslRl(Block):
    """Reads one record per block below `Learning iteration 3/1500` (rsl_rl, Isaac Lab), up to a banner or another."""

    def take(self, line: Line) -> bool:
        """Start a block, or add an entry to the open one."""
        start = _ITERATION.match(line.text)
        if start or _BANNER.match(line.text):
            self.begin(line, {start[1]: start[2]} if start else {})
            return bool(start)
        if not self.cells:
            return False
        if not line.text.strip(" -"):
            return True
        entry = _ITERATION_ENTRY.match(line.text)
        if entry is None:
            if line.torn:
                self.sink.notes.tell("torn", "a block is cut off; its complete lines are used", self.first)
            return False
        self.cells |= self.sink.pairs(line, [(entry[1], entry[2])])
        return True


_NEMO_STEP = re.compile(r"\s*={5,} (Step) (\d+)/\d+ ={5,}\s*\Z")
_NEMO_SECTION = re.compile(r"\s*[^\w\s•=]\S* +([A-Z][\w ]{1,40}):\s*\Z")
_NEMO_ENTRY = re.compile(rf"\s*• ([^:]{{1,60}}): ({NUMBER})")


class NemoRl(Block):
    """Reads the bullets below "Training Results" of each step of NeMo RL; other sections are consumed and not used."""

    fewest = 2
    _training = False

    def take(self, line: Line) -> bool:
        """Start a step, or read a section heading or a bullet of the open one."""
        if start := _NEMO_STEP.match(line.text):
            self.begin(line, {start[1]: start[2]})
            self._training = False
            return True
        if not self.cells:
            return False
        if section := _NEMO_SECTION.match(line.text):
            self._training = section[1] == "Training Results"
            return self._training
        entry = _NEMO_ENTRY.match(line.text)
        if entry and self._training:
            self.cells |= self.sink.pairs(line, [(entry[1], entry[2])])
        return entry is not None


_DEEPSPEED = re.compile(r"\s*epoch: *\d+ *\| *step: *\d+ *\|", re.IGNORECASE)
_DEEPSPEED_REWARD = re.compile(r"\s*average reward score:", re.IGNORECASE)
_DASHES = re.compile(r"\s*-{10,}\s*\Z")


class DeepSpeedChat(Block):
    """Reads `epoch: 0|step: 6|ppo_ep: 1|act_loss: …` and the average reward score that follows a few lines later."""

    def take(self, line: Line) -> bool:
        """Read the losses that start a record, or the rewards that complete it."""
        if _DEEPSPEED.match(line.text):
            self.begin(line, self._pairs(line))
        elif self.cells and _DEEPSPEED_REWARD.match(line.text):
            self.cells |= self._pairs(line)
        elif self.cells and _DASHES.match(line.text):
            self.finish()
        else:
            return False
        return True

    def _pairs(self, line: Line) -> dict[str, str]:
        parts = (part.partition(":") for part in line.text.split("|"))
        return self.sink.pairs(line, [(key.strip(), value.strip()) for key, colon, value in parts if colon])


_FRAMES = re.compile(r".*\bFps is \(.*\bTotal num frames: (\d+)\.")
_EPISODE_REWARD = re.compile(r".*\bAvg episode rewards?: \[(.*)\]\s*\Z")
_POLICY = re.compile(r"\((\d+), '?([-+.\w]+)'?\)")


class SampleFactory(Block):
    """Reads a report of frames and the rewards below it as one record; the last report of a frame count wins.

    The rewards are a list with one pair per policy. The first policy's reward has the plain name.
    """

    _frames = ""

    def take(self, line: Line) -> bool:
        """Read a frame count or the rewards that belong to it."""
        if frames := _FRAMES.match(line.text):
            if frames[1] != self._frames:
                self.finish()
            self._frames, self.first = frames[1], line.number
            return True
        rewards = _EPISODE_REWARD.match(line.text) if self._frames else None
        if rewards is None:
            return False
        self.cells = {
            "Avg episode reward" + (f" {policy}" if int(policy) else ""): value
            for policy, value in _POLICY.findall(rewards[1])
        }
        if self.cells:
            self.cells = {"Total num frames": self._frames, **self.cells}
        return True


_STEP_LINE = re.compile(r"(?:.*\s)?(step:\d+ - \S.*)\Z")


class Verl(Dialect):
    """Reads the step lines of verl: `step:12 - actor/pg_loss:-0.002 - …`."""

    def take(self, line: Line) -> bool:
        """Read the pairs of a step line."""
        match = _STEP_LINE.match(line.text)
        if match is None:
            return False
        pairs = []
        for part in match[1].split(" - "):
            key, colon, value = part.strip().rpartition(":")
            if colon and key and value:
                pairs.append((key, value))
            elif line.torn:
                pairs.append((part, ""))
            else:
                self.sink.notes.tell("part", f"a part without a value is not read: {part[:80]}", line.number)
        self.sink.cells(line.number, self.sink.pairs(line, pairs))
        return True


#: Characters of a line that are searched for a summary.
_LONGEST_SUMMARY = 1 << 10
_SUMMARY = re.compile(r"(?:.*[\s\]])?([\w ?=&-]+?)[.:] Step: (\d+)\. Time Elapsed: ([\d.]+) s\.?(.*)")
_UNITY_REWARD = re.compile(rf"\b(Mean Reward|Std of Reward|Mean Group Reward|ELO): ({NUMBER}?)\.?(?=\s|\Z)")


class UnitySummaries(Dialect):
    """Reads `[INFO] Walker. Step: 5000. Time Elapsed: 43.5 s. Mean Reward: 0.5. …`; ones without a reward are dropped.

    Keys of every behaviour but the first have its name in front.
    """

    _plain = ""

    def take(self, line: Line) -> bool:
        """Read a summary that holds a reward; consume one that does not."""
        summary = _SUMMARY.match(line.text[:_LONGEST_SUMMARY]) if "Time Elapsed: " in line.text else None
        if summary is None:
            return False
        rewards = _UNITY_REWARD.findall(summary[4])
        if line.torn:
            rewards = rewards[:-1]
        name = summary[1].strip()
        self._plain = self._plain or name
        of = "" if name == self._plain else f"{name}/"
        if rewards:
            trains = "0" if "Not Training" in summary[4] else "1"
            cells = {"Step": summary[2], f"{of}Time Elapsed": summary[3], f"{of}Is Training": trains}
            self.sink.cells(line.number, cells | {f"{of}{key}": value for key, value in rewards})
        return True


#: The line above a result that Ray prints, and an entry of it: all of them are indented.
_RESULT_HEAD = re.compile(r"\s*Result for \S+:\s*\Z")
_RESULT_ENTRY = re.compile(r"( +)(?:- .*|([^\s:-][^:]{0,199}):(?: +(.*\S))?\s*)\Z")
#: An entry of a result without that line: "episode_reward_mean: 21.5", "info:", "custom_metrics: {}", "- 12".
_YAML_ENTRY = re.compile(r"( *)(?:- .*|([A-Za-z_][\w./@-]{0,199}):(?: (\S.*))?)\s*\Z")
#: Lines or cells of one result that are kept; nested levels that tell it from a list of settings or pairs.
_MOST_LINES, _FEWEST_LEVELS = 4_000, 3


class YamlResults(Dialect):
    """Reads results in YAML, below `Result for TRIAL:` or alone as Ray's `pretty_print` writes them.

    Nested keys are joined by slashes, as in Ray's result.json. The lines of a text that turns out to be no result are
    given back.
    """

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        #: the last line that was given back; lines up to it are not read again
        self._refused = 0
        self._reset()

    def _reset(self) -> None:
        self._headed = False
        self._lines: list[Line] = []
        self._cells: dict[str, str] = {}
        self._above: list[tuple[int, str]] = []
        self._deepest = 0

    def take(self, line: Line) -> bool:
        """Read a head or an entry; a first-level key that repeats starts another result, any other line ends it."""
        if _RESULT_HEAD.match(line.text):
            if not self._ended_by(line):
                self._headed, self._lines = True, [line]
            return True
        pattern = _RESULT_ENTRY if self._headed else _YAML_ENTRY
        entry = pattern.match(line.text) if line.number > self._refused else None
        if entry is None or (not self._lines and (entry[1] or entry[2] is None)):
            return bool(self._lines) and self._ended_by(line)
        if not entry[1] and entry[2] in self._cells and self._ended_by(line):
            return True
        if not self._headed:
            self._lines.append(line)
        if entry[2] is not None and not line.torn and len(self._cells) < _MOST_LINES:
            self._enter(len(entry[1]), entry[2].strip("'\""), entry[3])
        if len(self._lines) > _MOST_LINES:
            self.finish()
        return True

    def _ended_by(self, line: Line) -> bool:
        """End the open result; lines that it gives back go before `line`, which is then given back too."""
        self.finish()
        if self.sink.given_back:
            self.sink.given_back.append(line)
        return bool(self.sink.given_back)

    def _enter(self, indent: int, key: str, value: str | None) -> None:
        self._above = [(place, name) for place, name in self._above if place < indent]
        path = "/".join([*(name for _, name in self._above), key])
        if value is None:
            self._above.append((indent, key))
            self._deepest = max(self._deepest, len(self._above))
        if not indent or value is not None:
            self._cells[path] = value or ""

    def finish(self) -> None:
        """Hand on the open result, or give its lines back if it is none."""
        headed, lines, cells, levels = self._headed, self._lines, self._cells, self._deepest + 1
        self._reset()
        if (headed and cells) or (levels >= _FEWEST_LEVELS and any(map(_is_metric, cells))):
            self.sink.cells(lines[0].number, {key: value for key, value in cells.items() if value and value[0] != "{"})
        elif lines and not headed:
            self._refused = lines[-1].number
            self.sink.given_back += lines


def _is_metric(key: str) -> bool:
    metric = metric_of(key[-LONGEST:])
    return bool(metric) and metric not in COUNTERS and setting_of(key.rpartition("/")[2]) is None
