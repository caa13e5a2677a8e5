"""Nested results in YAML without a head, as Ray's `pretty_print` writes them: keys in blocks, deeper ones indented."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ppo_doctor.ingest.naming import COUNTERS, LONGEST, metric_of, setting_of

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

#: "episode_reward_mean: 21.5", "info:", "custom_metrics: {}", "- 12": nothing stands before what is not indented.
_ENTRY = re.compile(r"( *)(?:- .*|([A-Za-z_][\w./@-]{0,199}):(?: (\S.*))?)\s*\Z")
#: Entries of one result; levels of its nesting that show that it is one, and no list of settings or of single pairs.
_MOST, _LEVELS = 4_000, 3


class YamlResults:
    """Reads results that nest; lines that turn out to be none are given back, those of settings with them."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._lines: list[Line] = []
        self._cells: dict[str, str] = {}
        self._above: list[tuple[int, str]] = []
        self._deepest = 0
        #: lines up to this one were no result
        self._refused = 0

    def take(self, line: Line) -> bool:
        """Read an entry; a key of the first level that comes again begins another result, any other line ends it."""
        entry = _ENTRY.match(line.text) if line.number > self._refused else None
        if entry is None or (not self._lines and (entry[1] or entry[2] is None)):
            return self._end(line)
        if not entry[1] and entry[2] in self._cells:
            self.finish()
            if self._sink.given_back:
                self._sink.given_back.append(line)
                return True
        self._lines.append(line)
        if entry[2] is not None and not line.torn:
            self._enter(len(entry[1]), entry[2], entry[3])
        if len(self._lines) > _MOST:
            self.finish()
        return True

    def _end(self, line: Line) -> bool:
        """End the open result with a line that is none of it; what is given back goes before that line."""
        held = bool(self._lines)
        self.finish()
        if held and self._sink.given_back:
            self._sink.given_back.append(line)
            return True
        return False

    def _enter(self, indent: int, key: str, value: str | None) -> None:
        self._above = [(place, name) for place, name in self._above if place < indent]
        if value is None:
            self._above.append((indent, key))
            self._deepest = max(self._deepest, len(self._above))
        if not indent or value is not None:
            self._cells["/".join([*(name for place, name in self._above if place < indent), key])] = value or ""

    def finish(self) -> None:
        """Hand on the result that is open, or give its lines back."""
        lines, cells, deep = self._lines, self._cells, self._deepest + 1
        self._lines, self._cells, self._above, self._deepest = [], {}, [], 0
        if not lines:
            return
        means = [key for key in cells if (found := metric_of(key[-LONGEST:])) and found not in COUNTERS]
        means = [key for key in means if setting_of(key.rpartition("/")[2]) is None]
        if deep >= _LEVELS and means:
            self._sink.cells(lines[0].number, {key: value for key, value in cells.items() if value and value[0] != "{"})
        else:
            self._refused = lines[-1].number
            self._sink.given_back += lines
