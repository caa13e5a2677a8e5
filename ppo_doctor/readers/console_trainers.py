"""Formats of particular trainers: blocks, boxes, reports and step lines, recognised by their first line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ppo_doctor.readers.console_base import NUMBER, WORD, Block, Dialect
from ppo_doctor.trainers.names import COUNTERS, LONGEST, metric_of, setting_of

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

_ITERATION = re.compile(r"\s*(Learning iteration)\s+(\d+)\s*/\s*\d+\s*\Z")
_BANNER = re.compile(r"\s*#{10,}\s*\Z")
_ITERATION_ENTRY = re.compile(rf"\s*([^:=|{{}}]{{1,100}}): +({NUMBER}\S{{0,3}}|\d[\d.]* steps/s.*|[\d:]+)\s*\Z")


class RslRl(Block):
    """Reads a block per learning iteration (rsl_rl, Isaac Lab), which a banner or the next iteration ends."""

    def take(self, line: Line) -> bool:
        """Read a line of a block."""
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
    """Reads the bullets under "Training Results" of each step; those of timing and of validation are left alone."""

    fewest = 2
    _training = False

    def take(self, line: Line) -> bool:
        """Read a line of a step."""
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
    """Reads `epoch: 0|step: 6|ppo_ep: 1|act_loss: …` with the average reward score, which follows a few lines later."""

    def take(self, line: Line) -> bool:
        """Read a line of losses or of rewards."""
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
    """Reads a report of frames and the rewards below it as one record; of reports without new frames the last counts.

    Rewards stand in a list with one pair per policy; those of the first policy have the plain name.
    """

    _frames = ""

    def take(self, line: Line) -> bool:
        """Read a line of frames or of rewards."""
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
        """Read a step line."""
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


#: Characters of a summary: what is longer is none, and costly to search.
_LONGEST_SUMMARY = 1 << 10
_SUMMARY = re.compile(r"(?:.*[\s\]])?([\w ?=&-]+?)[.:] Step: (\d+)\. Time Elapsed: ([\d.]+) s\.?(.*)")
_UNITY_REWARD = re.compile(rf"\b(Mean Reward|Std of Reward|Mean Group Reward|ELO): ({NUMBER}?)\.?(?=\s|\Z)")


class UnitySummaries(Dialect):
    """Reads `[INFO] Walker. Step: 5000. Time Elapsed: 43.5 s. Mean Reward: 0.5. …`; one without a reward holds nothing.

    Where several behaviours are trained, those after the first have their name before each key.
    """

    _plain = ""

    def take(self, line: Line) -> bool:
        """Read a summary."""
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


class _Nesting:
    """The keys above an entry of an indented text."""

    def __init__(self) -> None:
        self.above: list[tuple[int, str]] = []

    def path(self, indent: int, key: str, *, opens: bool) -> str:
        """Return a key behind those above it, joined by slashes; one that opens a level stands above what follows."""
        self.above = [(place, name) for place, name in self.above if place < indent]
        path = "/".join([*(name for _, name in self.above), key])
        if opens:
            self.above.append((indent, key))
        return path


_RAY_RESULT = re.compile(r"\s*Result for \S+:\s*\Z")
_RAY_ENTRY = re.compile(r" +(?:- .*|([^\s:-][^:]{0,199}):(?: +(.*\S))?\s*)\Z")
#: Entries of a result beyond these are not kept: histograms, and episodes by the thousand.
_MOST_ENTRIES = 2_000


class RayResults(Block):
    """Reads the block below `Result for TRIAL:` with nested keys joined by slashes, as in Ray's result.json."""

    def take(self, line: Line) -> bool:
        """Read the head of a block or an entry of the open one; any other line ends it."""
        if _RAY_RESULT.match(line.text):
            self.begin(line)
            self._nesting = _Nesting()
            return True
        entry = _RAY_ENTRY.match(line.text) if self.first else None
        if entry is None:
            self.finish()
            return False
        if entry[1] is not None:
            path = self._nesting.path(line.indent, entry[1].strip("'\""), opens=entry[2] is None)
            if entry[2] is not None and len(self.cells) < _MOST_ENTRIES and not line.torn:
                self.cells[path] = entry[2]
        return True


#: "episode_reward_mean: 21.5", "info:", "custom_metrics: {}", "- 12": nothing stands before what is not indented.
_YAML_ENTRY = re.compile(r"( *)(?:- .*|([A-Za-z_][\w./@-]{0,199}):(?: (\S.*))?)\s*\Z")
#: Entries of one result; levels of its nesting that show that it is one, and no list of settings or of single pairs.
_MOST_LINES, _LEVELS = 4_000, 3


class YamlResults(Dialect):
    """Reads results in YAML without a head, as Ray's `pretty_print` writes them; other lines are given back."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        #: lines up to this one were no result
        self._refused = 0
        self._reset()

    def _reset(self) -> None:
        self._lines: list[Line] = []
        self._cells: dict[str, str] = {}
        self._nesting = _Nesting()
        self._deepest = 0

    def take(self, line: Line) -> bool:
        """Read an entry; a key of the first level that comes again begins another result, any other line ends it."""
        entry = _YAML_ENTRY.match(line.text) if line.number > self._refused else None
        if entry is None or (not self._lines and (entry[1] or entry[2] is None)):
            return bool(self._lines) and self._ended_by(line)
        if not entry[1] and entry[2] in self._cells and self._ended_by(line):
            return True
        self._lines.append(line)
        if entry[2] is not None and not line.torn:
            self._enter(len(entry[1]), entry[2], entry[3])
        if len(self._lines) > _MOST_LINES:
            self.finish()
        return True

    def _ended_by(self, line: Line) -> bool:
        """End the open result with a line that is none of it; what is given back goes before that line."""
        self.finish()
        if self.sink.given_back:
            self.sink.given_back.append(line)
        return bool(self.sink.given_back)

    def _enter(self, indent: int, key: str, value: str | None) -> None:
        path = self._nesting.path(indent, key, opens=value is None)
        if value is None:
            self._deepest = max(self._deepest, len(self._nesting.above))
        if not indent or value is not None:
            self._cells[path] = value or ""

    def finish(self) -> None:
        """Hand on the result that is open, or give its lines back."""
        lines, cells, deep = self._lines, self._cells, self._deepest + 1
        self._reset()
        if not lines:
            return
        means = [key for key in cells if (found := metric_of(key[-LONGEST:])) and found not in COUNTERS]
        means = [key for key in means if setting_of(key.rpartition("/")[2]) is None]
        if deep >= _LEVELS and means:
            self.sink.cells(lines[0].number, {key: value for key, value in cells.items() if value and value[0] != "{"})
        else:
            self._refused = lines[-1].number
            self.sink.given_back += lines


_STAMP = r"\s*(?:\d{4}-\d\d-\d\d [^|]*\|\s*)?(?:\[[^\]]*\]\s*(?:\|\s*)?)?"
_RULES = re.compile(_STAMP + r"-{5,}\s{1,4}-{5,}\s*\Z")
_RULED_ROW = re.compile(_STAMP + rf"(\S[^|]{{0,199}}?)\s{{2,}}({NUMBER})\s*\Z")
#: Rows without rules: words with one blank between them, then more blanks.
_PLAIN_ROW = re.compile(rf"\s*({WORD}(?: {WORD}){{0,4}})(?:\t|[ \t]{{2,}})\s*({NUMBER})\s*\Z")
_FEWEST_ROWS, _MOST_TABLES = 3, 32


class Columns(Dialect):
    """Reads one record per table of two columns between rules of dashes (garage, rllab), perhaps behind a time.

    Without rules, rows below each other are a table where one with the same first name comes again.
    """

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._pairs: list[tuple[str, str]] = []
        self._first = 0
        self._ruled = False
        #: the first names of tables without rules → the first such table, None once there were two
        self._tables: dict[str, tuple[int, dict[str, str]] | None] = {}

    def take(self, line: Line) -> bool:
        """Read a rule or a row; a line that is neither ends the table, and its rows count."""
        if _RULES.match(line.text):
            opens = not self._ruled
            self.finish()
            self._first, self._ruled = line.number, opens
            return True
        row = (_RULED_ROW if self._ruled else _PLAIN_ROW).match(line.text)
        if row is None:
            self.finish()
            return False
        if any(row[1] == name for name, _ in self._pairs) and not self._ruled:
            self.finish()
        self._first = self._first if self._pairs or self._ruled else line.number
        self._pairs += [] if line.torn else [(row[1], row[2])]
        return True

    def finish(self) -> None:
        """Hand on the table that is open."""
        if self._pairs and self._ruled:
            self.sink.cells(self._first, dict(self._pairs))
        elif len(self._pairs) >= _FEWEST_ROWS:
            self._hold(self._pairs[0][0], dict(self._pairs))
        self._pairs, self._first, self._ruled = [], 0, False

    def _hold(self, name: str, cells: dict[str, str]) -> None:
        """Hold a table back until a second one begins like it."""
        if name not in self._tables:
            if len(self._tables) < _MOST_TABLES:
                self._tables[name] = self._first, cells
            return
        if (first := self._tables[name]) is not None:
            self.sink.loose(*first)
        self._tables[name] = None
        self.sink.loose(self._first, cells)


#: The top of a box with a title in it, and a row of one: the name of a group in its first line, then its pairs.
_TITLE = re.compile(r"\+-{3,} .{1,80} -{3,}\+\Z")
_PANEL_ROW = re.compile(r"\|  ?(\S{0,40}) {2,}(\S.*?) *\|\Z")
_BORDER, _NUMBER = re.compile(r"\s*[-=+]{5,}\s*\Z"), re.compile(NUMBER)


class Panels(Dialect):
    """Reads one record per box with a title, whose groups hold `key: value | key: value` over several lines (rich)."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._groups: list[tuple[str, list[str]]] = []
        #: line of the open box's title, 0 while none is open
        self._first = 0

    def take(self, line: Line) -> bool:
        """Read a title or a row; what is neither ends the box."""
        text = line.text.strip()
        if _TITLE.match(text):
            self.finish()
            self._first = line.number
            return True
        row = _PANEL_ROW.match(text) if self._first else None
        if row is None or not (row[1] or self._groups):
            closed = bool(self._first) and _BORDER.match(text) is not None
            self.finish()
            return closed
        if row[1]:
            self._groups.append((row[1], []))
        self._groups[-1][1].append(row[2])
        return True

    def finish(self) -> None:
        """Hand on the box that is open."""
        cells = {
            f"{group}/{key.strip()}": value.strip()
            for group, lines in self._groups
            for key, colon, value in (pair.partition(":") for pair in " ".join(lines).split("|"))
            if colon
        }
        if cells:
            self.sink.cells(self._first, cells)
        self._groups, self._first = [], 0


class Boxes(Block):
    """Reads one record per box; a key under a section row such as `train/` is the section and the key.

    A row holds one pair (Stable-Baselines, OpenAI Baselines) or several (tabulate).
    """

    _section, _section_indent = "", 0
    #: whether boxes of this log are closed by a border: one that is not was cut off
    _bordered = False
    #: rows since the last border: one alone is a row of a box that has a border below each
    _rows = 0

    def take(self, line: Line) -> bool:
        """Read a row or a border; any other line ends the table."""
        if _BORDER.match(line.text):
            self._bordered = self._bordered or bool(self.cells)
            if self._rows != 1:
                self._close()
            self._rows = 0
            return self._bordered
        pairs = _row_pairs(line.text.strip().split("|"))
        if not pairs:
            self.finish()
            return False
        self._rows += 1
        for key, value in pairs:
            self._add(line, len(key) - len(key.lstrip(" ")), key.strip(), value.strip())
        return True

    def finish(self) -> None:
        """Use the rows of a box that is still open."""
        if self.cells and self._bordered and self._rows:
            self.sink.notes.tell("torn", "a table is cut off; its complete rows are used", self.first)
        self._close()

    def _add(self, line: Line, indent: int, key: str, value: str) -> None:
        if not value and key.endswith("/"):
            self._section, self._section_indent = key, indent
            self.first = self.first or line.number
            return
        if self._section and indent > self._section_indent:
            key = self._section + key
        else:
            self._section = ""
        if key in self.cells:
            self._close()
        self.first = self.first or line.number
        self.cells[key] = value

    def _close(self) -> None:
        super().finish()
        self._section = ""


def _row_pairs(parts: list[str]) -> list[tuple[str, str]]:
    """Return the pairs of a row between pipes, of which a torn row lacks the last; several are names and numbers."""
    if len(parts) < 4 or len(parts) % 2 or parts[0] or parts[-1]:
        return []
    pairs = [pair for pair in zip(parts[1:-1:2], parts[2:-1:2], strict=True) if any(map(str.strip, pair))]
    if len(parts) > 4 and not all(_NUMBER.fullmatch(value.strip()) for _, value in pairs):
        return []
    return pairs if all(key.strip() and not _NUMBER.fullmatch(key.strip()) for key, _ in pairs) else []
