"""What dialects of console text share: a line, a collector of records, and the interface."""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ppo_doctor.model.run import SourceRef
from ppo_doctor.readers.notes import Unread
from ppo_doctor.readers.pack import Packer
from ppo_doctor.readers.table import EmbeddedConfig
from ppo_doctor.readers.values import LONGEST_TEXT, SCALED, Values, config_values, planned_of
from ppo_doctor.trainers.names import is_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ppo_doctor.readers.source import Source
    from ppo_doctor.readers.table import Table

    _Loose = tuple[int, Mapping[str, str]]

#: Runs of digits are taken whole: giving them back one by one takes the square of their number.
_PLAIN = (
    r"[-+]?(?:[1-9]\d{0,2}(?:,\d{3})++(?![\d,])(?:\.\d++)?"
    r"|\d++(?:\.\d*+)?(?:[eE][-+]?\d++)?|\.\d++(?:[eE][-+]?\d++)?"
    r"|nan|NaN|[iI]nf(?:inity)?|∞)"
)
#: A number as programs print it, perhaps in a unit that scales it, as "3/10", as an array of one, or in the wrapper of
#: NumPy 2.
NUMBER = (
    rf"(?:{_PLAIN}(?: ?(?:{SCALED})|/\d+)?|\[ ?{_PLAIN} ?\]"
    r"|np\.\w+\([^()]*\)|(?:tensor|(?:Device)?[Aa]rray)\([^()]*\))"
)
#: A word of a name: letters of any alphabet with their accents, and the signs that mathematicians write.
MARKS = "\u0300-\u036f"
WORD = rf"(?:[^\W\d]|[∇∂⟨‖])[\w{MARKS}./%@()∇∂⟩‖^-]{{0,99}}"
#: A number and a unit that adds nothing to it, then perhaps more words.
_WITH_UNIT = re.compile(
    r"([-+]?\d++(?:\.\d*+)?(?:[eE][-+]?\d++)?) ?(?:s|ms|it/s|s/it|steps/s|fps|GB|GiB|MB|MiB)\b(?!:)"
)
_DECIMAL = re.compile(r"[-+]?\d+\.\d{2,}")
#: Loose `key=value` records held back until it is clear that the log has nothing better.
HELD_BACK = 5_000
#: … and of narrow ones while nothing better came yet: a trainer may print thousands of samples before its first step.
HELD_BACK_NARROW = 40_000
#: Records per layout from which on one that never recurs is taken for a message.
_MANY = 5
#: Lines that come in turn with loose records: so many for each of them.
_AS_OFTEN = 0.8, 1.25
#: Values per record: loose records below the one are messages beside certain records above the other.
_NARROW, _WIDE = 2.5, 8.0


@dataclass(frozen=True, slots=True)
class Line:
    """One line, or what stood between two carriage returns, without colours and without a Ray prefix."""

    text: str
    number: int
    #: the file ends here without the end of the line: the last value may be cut off
    torn: bool = False

    @property
    def indent(self) -> int:
        """Return the number of blanks that the line begins with."""
        return len(self.text) - len(self.text.lstrip())


class Sink:
    """Takes records in any shape and packs them."""

    def __init__(self, source: Source) -> None:
        self.notes = source.notes
        self.values = Values(source.notes)
        self.packer = Packer(source.path, source.notes)
        self.configs: list[EmbeddedConfig] = []
        #: where another method begins
        self.sections: list[EmbeddedConfig] = []
        #: lines that a dialect took for its own and then was not able to read
        self.given_back: list[Line] = []
        #: lines of which nothing is used, and what to do before loose records are settled
        self.unread = Unread()
        self.before_settling: Callable[[], None] | None = None
        #: whether what is joined to loose records stands behind them
        self._follows: bool | None = None
        self.path = source.path
        #: records of dialects that cannot be mistaken
        self._certain = self._certain_cells = 0
        #: the line of the first of them
        self._first_certain = 0
        self._loose: list[_Loose] = []
        #: values of all loose records so far
        self._loose_cells = 0
        self._loose_kept = 0
        self._loose_dropped = 0
        #: the first line that was dropped, and its keys
        self._loose_first: tuple[int, str] = (0, "")

    def cells(self, line: int, cells: Mapping[str, str]) -> None:
        """Take a record of written values."""
        self._count(line, cells)
        self._pack(line, cells)

    def loose(self, line: int, cells: Mapping[str, str]) -> None:
        """Take a record that may be some other message; such are used only where they are most of what there is."""
        self._loose.append((line, cells))
        self._loose_cells += len(cells)
        most = HELD_BACK_NARROW if not self._certain and self._is_narrow() else HELD_BACK
        if len(self._loose) >= most:
            self._settle()

    def alternates(self, lines: Sequence[int]) -> bool:
        """Tell whether loose records are held that come in turn with what stands in other lines."""
        low, high = _AS_OFTEN
        if self._certain or not self._loose or not low <= len(lines) / len(self._loose) <= high:
            return False
        return len({bisect(self._loose, line, key=_line) for line in lines}) >= low * len(lines)

    def join(self, line: int, cells: Mapping[str, str]) -> bool:
        """Add to the loose record behind a line, or before it where records come first; False if none is held."""
        if self._follows is None:
            self._follows = bool(self._loose) and self._loose[0][0] < line
        at = bisect(self._loose, line, key=_line) - self._follows
        if 0 <= at < len(self._loose):
            number, held = self._loose[at]
            self._loose[at] = number, {**cells, **held}
        return at < len(self._loose)

    def mapping(self, line: int, record: Mapping[str, Any]) -> None:
        """Take a record of values."""
        self._count(line, record)
        self.packer.add(line, *self.values.flat(record, line))

    def config(self, line: int, config: Mapping[str, Any]) -> None:
        """Take a configuration."""
        values = config_values(config)
        if not any(values == known.values for known in self.configs):
            self.configs.append(EmbeddedConfig(values=values, source=SourceRef(path=self.path, line=line)))

    @property
    def records(self) -> int:
        """The number of records taken so far, those that may be messages included."""
        return self._certain + len(self._loose)

    def finish(self) -> Iterator[Table | EmbeddedConfig]:
        """Yield what is left, configurations last."""
        self._settle()
        if self._loose_dropped:
            first, keys = self._loose_first
            text = f"{self._loose_dropped:,} lines such as line {first} ({keys}) hold no metrics and were not read"
            self.notes.tell("loose", text)
        yield from self.packer.flush()
        yield from self.configs
        yield from self.sections

    def _count(self, line: int, values: Mapping[str, Any]) -> None:
        self._first_certain = self._first_certain or line
        self._certain += 1
        self._certain_cells += len(values)

    def _seen(self) -> int:
        return len(self._loose) + self._loose_kept + self._loose_dropped

    def _is_narrow(self) -> bool:
        return self._loose_cells < _NARROW * self._seen()

    def _has_better(self) -> bool:
        """Tell whether records of certain dialects are so many, or hold so much more, that loose pairs are messages."""
        if not self._certain:
            return False
        wide = self._certain_cells >= _WIDE * self._certain
        return self._certain * 10 >= len(self._loose) + self._loose_kept or (wide and self._is_narrow())

    def _settle(self) -> None:
        if self.before_settling is not None:
            self.before_settling()
        kept = [] if self._has_better() else _recurring(self._loose)
        held = set(map(id, kept))
        others = [record for record in self._loose if id(record) not in held]
        self._drop(others[self._as_settings(others, kept[0][0] if kept else self._first_certain) :])
        self._loose_kept += len(kept)
        for line, cells in kept:
            self._pack(line, cells)
        self._loose = []

    def _drop(self, records: list[_Loose]) -> None:
        """Count lines that are not read, and keep the first."""
        if records and not self._loose_dropped:
            line, cells = records[0]
            self._loose_first = line, ", ".join(list(cells)[:3])
        self._loose_dropped += len(records)

    def _as_settings(self, others: list[_Loose], first: int) -> int:
        """Take what was printed before the first record as a configuration, if it is one; return how many lines are."""
        head = [record for record in others if record[0] < first]
        cells = {key: cell for _, record in head for key, cell in record.items()}
        if not is_settings(cells):
            return 0
        self.config(head[0][0], {key: self.values.of_text(key, cell, head[0][0]) for key, cell in cells.items()})
        return len(head)

    def _pack(self, line: int, cells: Mapping[str, str]) -> None:
        numbers: dict[str, float] = {}
        texts: dict[str, str] = {}
        for key, cell in cells.items():
            value = self.values.of_text(key, cell, line)
            if isinstance(value, str) and (match := _WITH_UNIT.match(value)):
                value = float(match[1])
            if isinstance(value, str):
                texts[key] = value[:LONGEST_TEXT]
            elif value is not None:
                numbers[key] = value
        planned = planned_of(cells)
        self.packer.add(line, numbers | planned, texts)
        written = dict(cells) | {key: f"{value:g}" for key, value in planned.items()}
        self.packer.printed(numbers | planned, written, fixed=_one_format(cells))

    def pairs(self, line: Line, pairs: list[tuple[str, str]]) -> dict[str, str]:
        """Return pairs as cells: a later key wins with a note, and the last value of a torn line is dropped."""
        if line.torn and pairs:
            key, _ = pairs.pop()
            self.notes.tell("torn", f"the file ends within this line; its last value, {key}, is not used", line.number)
        cells: dict[str, str] = {}
        for key, value in pairs:
            if key in cells:
                self.values.note_twice([key, key], line.number)
            cells[key] = value
        return cells


class Dialect:
    """One way of printing metrics."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def take(self, line: Line) -> bool:
        """Read a line; False leaves it to the next dialect."""
        raise NotImplementedError

    def finish(self) -> None:
        """Hand on what is still open at the end of the file."""


class Block(Dialect):
    """A record over several lines: its cells so far, and its first line, 0 while none is open."""

    #: cells without which a record holds nothing but its counter
    fewest = 1

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self.cells: dict[str, str] = {}
        self.first = 0

    def begin(self, line: Line, cells: dict[str, str] | None = None) -> None:
        """Hand on the record that is open, and open another."""
        self.finish()
        self.cells, self.first = cells or {}, line.number

    def finish(self) -> None:
        """Hand on the record that is open."""
        if len(self.cells) >= self.fewest:
            self.sink.cells(self.first, self.cells)
        self.cells, self.first = {}, 0


def _line(record: _Loose) -> int:
    return record[0]


def _recurring(records: list[_Loose]) -> list[_Loose]:
    """Leave out what was printed once among many records that recur: a message, not a metric."""
    often = Counter(frozenset(cells) for _, cells in records)
    if len(records) < _MANY * len(often):
        return records
    return [record for record in records if often[frozenset(record[1])] > 1]


def _one_format(cells: Mapping[str, str]) -> bool:
    """Tell whether at least five values have decimals, and all the same number of them: printed with one format."""
    places = [len(cell.rpartition(".")[2]) for cell in cells.values() if _DECIMAL.fullmatch(cell)]
    return len(places) >= 5 and len(set(places)) == 1
