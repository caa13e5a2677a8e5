"""What the dialects of console text share: patterns of numbers and words, a line, the record sink, the interfaces."""

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

#: Possessive quantifiers keep the search linear in the number of digits.
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
#: A number and a unit that is dropped, then perhaps more words.
_WITH_UNIT = re.compile(
    r"([-+]?\d++(?:\.\d*+)?(?:[eE][-+]?\d++)?) ?(?:s|ms|it/s|s/it|steps/s|fps|GB|GiB|MB|MiB)\b(?!:)"
)
_DECIMAL = re.compile(r"[-+]?\d+\.\d{2,}")
#: Loose records that are kept until it is clear whether the log has better ones.
HELD_BACK = 5_000
#: The same for narrow records before the first certain one: a trainer may print thousands of samples first.
HELD_BACK_NARROW = 40_000
#: Mean number of records per layout above which a layout that appears once is a message.
_MANY = 5
#: Lines that alternate with loose records: the range of lines per record.
_AS_OFTEN = 0.8, 1.25
#: Mean values per record: loose records below the first are messages if certain records are above the second.
_NARROW, _WIDE = 2.5, 8.0


@dataclass(frozen=True, slots=True)
class Line:
    """One line, or the part between two carriage returns, without colours and without a Ray prefix."""

    text: str
    number: int
    #: whether the file ends without a line break here, so that the last value may be cut off
    torn: bool = False

    @property
    def indent(self) -> int:
        """Return the number of blanks that the line begins with."""
        return len(self.text) - len(self.text.lstrip())


class Sink:
    """Collects certain records, which are packed at once, and loose ones, packed if nothing better follows."""

    def __init__(self, source: Source) -> None:
        self.notes = source.notes
        self.values = Values(source.notes)
        self.packer = Packer(source.path, source.notes)
        self.configs: list[EmbeddedConfig] = []
        #: lines at which another method begins
        self.sections: list[EmbeddedConfig] = []
        #: lines that a dialect consumed and then was unable to read
        self.given_back: list[Line] = []
        #: lines that no dialect reads, and a callback that runs before loose records are settled
        self.unread = Unread()
        self.before_settling: Callable[[], None] | None = None
        #: whether cells are joined to the loose record before them, None until the first join
        self._follows: bool | None = None
        self.path = source.path
        #: number of certain records and of their values
        self._certain = self._certain_cells = 0
        #: the line of the first certain record
        self._first_certain = 0
        self._loose: list[_Loose] = []
        #: number of values of all loose records so far
        self._loose_cells = 0
        self._loose_kept = 0
        self._loose_dropped = 0
        #: the first line that was dropped, and its keys
        self._loose_first: tuple[int, str] = (0, "")

    def cells(self, line: int, cells: Mapping[str, str]) -> None:
        """Add a certain record of values as text."""
        self._count(line, cells)
        self._pack(line, cells)

    def loose(self, line: int, cells: Mapping[str, str]) -> None:
        """Add a record that may be a message; it is used only if loose records are most of the log."""
        self._loose.append((line, cells))
        self._loose_cells += len(cells)
        most = HELD_BACK_NARROW if not self._certain and self._is_narrow() else HELD_BACK
        if len(self._loose) >= most:
            self._settle()

    def alternates(self, lines: Sequence[int]) -> bool:
        """Tell whether the loose records alternate with `lines`."""
        low, high = _AS_OFTEN
        if self._certain or not self._loose or not low <= len(lines) / len(self._loose) <= high:
            return False
        return len({bisect(self._loose, line, key=_line) for line in lines}) >= low * len(lines)

    def join(self, line: int, cells: Mapping[str, str]) -> bool:
        """Add cells to the loose record after a line, or before it if records come first; False if there is none."""
        if self._follows is None:
            self._follows = bool(self._loose) and self._loose[0][0] < line
        at = bisect(self._loose, line, key=_line) - self._follows
        if 0 <= at < len(self._loose):
            number, held = self._loose[at]
            self._loose[at] = number, {**cells, **held}
        return at < len(self._loose)

    def mapping(self, line: int, record: Mapping[str, Any]) -> None:
        """Add a certain record of Python values."""
        self._count(line, record)
        self.packer.add(line, *self.values.flat(record, line))

    def config(self, line: int, config: Mapping[str, Any]) -> None:
        """Add a configuration, once."""
        values = config_values(config)
        if not any(values == known.values for known in self.configs):
            self.configs.append(EmbeddedConfig(values=values, source=SourceRef(path=self.path, line=line)))

    @property
    def records(self) -> int:
        """Return the number of records so far, loose ones included."""
        return self._certain + len(self._loose)

    def finish(self) -> Iterator[Table | EmbeddedConfig]:
        """Yield the remaining tables, then the configurations."""
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

    def _is_narrow(self) -> bool:
        return self._loose_cells < _NARROW * (len(self._loose) + self._loose_kept + self._loose_dropped)

    def _has_better(self) -> bool:
        """Tell whether certain records are so many, or hold so many more values, that loose records are messages."""
        if not self._certain:
            return False
        wide = self._certain_cells >= _WIDE * self._certain
        return self._certain * 10 >= len(self._loose) + self._loose_kept or (wide and self._is_narrow())

    def _settle(self) -> None:
        if self.before_settling is not None:
            self.before_settling()
        kept = [] if self._has_better() else _recurring(self._loose)
        kept_ids = set(map(id, kept))
        others = [record for record in self._loose if id(record) not in kept_ids]
        self._drop(others[self._as_settings(others, kept[0][0] if kept else self._first_certain) :])
        self._loose_kept += len(kept)
        for line, cells in kept:
            self._pack(line, cells)
        self._loose = []

    def _drop(self, records: list[_Loose]) -> None:
        """Count loose records that are not used, and remember the first."""
        if records and not self._loose_dropped:
            line, cells = records[0]
            self._loose_first = line, ", ".join(list(cells)[:3])
        self._loose_dropped += len(records)

    def _as_settings(self, others: list[_Loose], first: int) -> int:
        """Read unused records above line `first` as a configuration if they are one; return how many they are."""
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
        """Return pairs as cells: the later of two equal keys wins, and the last value of a torn line is dropped."""
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
        """Read a line, or return False to leave it to the next dialect."""
        raise NotImplementedError

    def finish(self) -> None:
        """Hand on the open record at the end of the file."""


class Block(Dialect):
    """A dialect whose record spans lines: its cells so far, and the number of its first line, 0 if none is open."""

    #: a record with fewer cells is dropped
    fewest = 1
    #: whether its records cannot be messages
    certain = True

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self.cells: dict[str, str] = {}
        self.first = 0

    def begin(self, line: Line, cells: dict[str, str] | None = None) -> None:
        """Hand on the open record, and open another."""
        self.finish()
        self.cells, self.first = cells or {}, line.number

    def finish(self) -> None:
        """Hand on the open record."""
        if len(self.cells) >= self.fewest:
            (self.sink.cells if self.certain else self.sink.loose)(self.first, self.cells)
        self.cells, self.first = {}, 0


def _line(record: _Loose) -> int:
    return record[0]


def _recurring(records: list[_Loose]) -> list[_Loose]:
    """Return the records without the layouts that appear once among many that recur: they are messages."""
    often = Counter(frozenset(cells) for _, cells in records)
    if len(records) < _MANY * len(often):
        return records
    return [record for record in records if often[frozenset(record[1])] > 1]


def _one_format(cells: Mapping[str, str]) -> bool:
    """Tell whether at least five values have decimals and all of them equally many, as one format prints them."""
    places = [len(cell.rpartition(".")[2]) for cell in cells.values() if _DECIMAL.fullmatch(cell)]
    return len(places) >= 5 and len(set(places)) == 1
