"""Reports of older trainers: Ray's results in YAML, Unity ML-Agents' summaries, the two columns of garage and rllab."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ppo_doctor.readers.console_base import NUMBER, WORD

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

_RESULT = re.compile(r"\s*Result for \S+:\s*\Z")
_ENTRY = re.compile(r" +(?:- .*|([^\s:-][^:]{0,199}):(?: +(.*\S))?\s*)\Z")
#: Entries of a result beyond these are not kept: histograms, and episodes by the thousand.
_MOST_ENTRIES = 2_000
#: Characters of a summary: what is longer is none, and costly to search.
_LONGEST = 1 << 10
_SUMMARY = re.compile(r"(?:.*[\s\]])?([\w ?=&-]+?)[.:] Step: (\d+)\. Time Elapsed: ([\d.]+) s\.?(.*)")
_REWARD = re.compile(rf"\b(Mean Reward|Std of Reward|Mean Group Reward|ELO): ({NUMBER}?)\.?(?=\s|\Z)")
#: What ML-Agents writes at the end of a summary of a behaviour that is not trained.
_IDLE = "Not Training"
_STAMP = r"\s*(?:\d{4}-\d\d-\d\d [^|]*\|\s*)?(?:\[[^\]]*\]\s*(?:\|\s*)?)?"
_RULES = re.compile(_STAMP + r"-{5,}\s{1,4}-{5,}\s*\Z")
_ROW = re.compile(_STAMP + rf"(\S[^|]{{0,199}}?)\s{{2,}}({NUMBER})\s*\Z")
#: Rows without rules: words with one blank between them, then more blanks.
_PLAIN_ROW = re.compile(rf"\s*({WORD}(?: {WORD}){{0,4}})(?:\t|[ \t]{{2,}})\s*({NUMBER})\s*\Z")
_FEWEST_ROWS, _MOST_TABLES = 3, 32


class RayResults:
    """Reads the block below `Result for TRIAL:` with nested keys joined by slashes, as in Ray's result.json."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._cells: dict[str, str] = {}
        self._above: list[tuple[int, str]] = []
        self._first = 0

    def take(self, line: Line) -> bool:
        """Read the head of a block or an entry of the open one; any other line ends it."""
        if _RESULT.match(line.text):
            self.finish()
            self._first = line.number
            return True
        entry = _ENTRY.match(line.text) if self._first else None
        if entry is None:
            self.finish()
            return False
        if entry[1] is not None:
            self._enter(line, entry[1].strip("'\""), entry[2])
        return True

    def finish(self) -> None:
        """Hand on the block that is open."""
        if self._cells:
            self._sink.cells(self._first, self._cells)
        self._cells, self._above, self._first = {}, [], 0

    def _enter(self, line: Line, key: str, value: str | None) -> None:
        self._above = [(indent, name) for indent, name in self._above if indent < line.indent]
        if value is None:
            self._above.append((line.indent, key))
        elif len(self._cells) < _MOST_ENTRIES and not line.torn:
            self._cells["/".join([*(name for _, name in self._above), key])] = value


class UnitySummaries:
    """Reads `[INFO] Walker. Step: 5000. Time Elapsed: 43.5 s. Mean Reward: 0.5. …`; one without a reward holds nothing.

    Where several behaviours are trained, those after the first have their name before each key.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._plain = ""

    def take(self, line: Line) -> bool:
        """Read a summary."""
        summary = _SUMMARY.match(line.text[:_LONGEST]) if "Time Elapsed: " in line.text else None
        if summary is None:
            return False
        rewards = _REWARD.findall(summary[4])
        if line.torn:
            rewards = rewards[:-1]
        name = summary[1].strip()
        self._plain = self._plain or name
        of = "" if name == self._plain else f"{name}/"
        if rewards:
            trains = "0" if _IDLE in summary[4] else "1"
            cells = {"Step": summary[2], f"{of}Time Elapsed": summary[3], f"{of}Is Training": trains}
            self._sink.cells(line.number, cells | {f"{of}{key}": value for key, value in rewards})
        return True

    def finish(self) -> None:
        """Nothing is held back."""


class Columns:
    """Reads one record per table of two columns between rules of dashes, perhaps behind a time and a name.

    Without rules, rows below each other are a table where one with the same first name comes again.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
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
        row = (_ROW if self._ruled else _PLAIN_ROW).match(line.text)
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
            self._sink.cells(self._first, dict(self._pairs))
        elif len(self._pairs) >= _FEWEST_ROWS:
            self._hold(self._pairs[0][0], dict(self._pairs))
        self._pairs, self._first, self._ruled = [], 0, False

    def _hold(self, name: str, cells: dict[str, str]) -> None:
        """Hold a table back until a second one begins like it."""
        if name not in self._tables:
            if len(self._tables) < _MOST_TABLES:
                self._tables[name] = self._first, cells
            return
        if (held := self._tables[name]) is not None:
            self._sink.loose(*held)
        self._tables[name] = None
        self._sink.loose(self._first, cells)
