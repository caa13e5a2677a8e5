"""Pack records into dense columns, one buffer per key layout."""

from __future__ import annotations

import struct
from collections import Counter
from sys import intern
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.readers.table import METHOD_KEYS, RUN_KEYS, SCIENTIFIC, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ppo_doctor.model.run import FloatArray
    from ppo_doctor.readers.notes import Ledger

# Two doubles next to the largest, which no measurement has. A word like "nan1" or "1nan" becomes something that is no
# number, or too large for one, so a cell with one of the two values was written as NaN or infinity.
_NAN, _INF = b"1.7976931348623155e308", b"1.7976931348623153e308"
_NAN_NUMBER, _INF_NUMBER = float(_NAN), float(_INF)


def disguise(data: bytes, nan: tuple[bytes, ...], infinity: tuple[bytes, ...]) -> bytes:
    """Return JSON or CSV with every spelling of NaN and infinity replaced by a number that stands for it.

    Texts change too, so the result can be used only if it holds nothing but numbers.
    """
    # `replace` searches twice: to count, and to replace.
    for spelling in nan:
        data = _NAN.join(data.split(spelling))
    for spelling in infinity:
        data = _INF.join(data.split(spelling))
    return data


def restore(columns: FloatArray) -> None:
    """Replace the numbers that stand for NaN and infinity in an array of shape [columns, rows], in place."""
    if not columns.size:
        return
    # Most columns hold neither. A column with a NaN compares false and is searched.
    clear = (columns.max(axis=1) < _INF_NUMBER) & (columns.min(axis=1) > -_INF_NUMBER)
    for column in (columns[place] for place in np.flatnonzero(~clear)):
        size = np.abs(column)
        column[size == _NAN_NUMBER] = np.nan
        infinite = size == _INF_NUMBER
        column[infinite] = np.copysign(np.inf, column[infinite])


#: Most keys of one log. A log of each layer and expert of a large model has some thousands.
MOST_KEYS = 16_384
#: Most characters of a key: a longer one is no name, and slow to search.
LONGEST_KEY = 4_096
_QUOTED = 60


class Keys:
    """Admits the first 16,384 keys of a source, and notes that further ones are not read."""

    def __init__(self, notes: Ledger) -> None:
        self._notes = notes
        self._known: set[str] = set()

    def admit(self, key: str, line: int | None = None) -> bool:
        """Return whether a key is read."""
        if key in self._known:
            return True
        if len(key) > LONGEST_KEY:
            text = f"a key of {len(key):,} characters is no name, and not read: {key[:_QUOTED]}…"
            self._notes.tell("keys that are no names", text, line, kind="dropped")
            return False
        if len(self._known) >= MOST_KEYS:
            text = f"more than {MOST_KEYS:,} keys; further ones, from {key[:_QUOTED]} on, are not read"
            self._notes.tell_once("more keys than are read", "", text, line, kind="lost")
            return False
        self._known.add(key)
        return True


#: Records between two flushes, which bounds memory.
FLUSH_EVERY = 65_536
#: Texts kept for a key. Those that name a run are all kept: without them, records would go to another run.
MOST_TEXTS = 1_000
#: Most key layouts remembered between flushes, and keys in all of them before an early flush: a log in which every
#: record has other keys must not take memory without end.
_MOST_LAYOUTS, _MOST_REMEMBERED = 4_096, 1 << 20
#: A column with more decimals than this is printed in full precision.
_MOST_DECIMALS = 9
#: Values with the same number of decimals that prove a format.
_ENOUGH = 5
_FIXED = lazy_pattern(r"\s*[-+]?\d+(?:\.(\d+))?\s*(%)?\s*\Z")
_HAS_DIGIT = lazy_pattern(r"\d")


class Layout:
    """The records with the same keys, packed as two integers (ordinal, line) and one double per key."""

    __slots__ = ("buffer", "decimals", "keys", "pack", "texts", "texts_left")

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys
        self.pack: Callable[..., bytes] = struct.Struct(f"=qq{len(keys)}d").pack
        self.buffer = bytearray()
        self.texts: dict[str, list[tuple[int, str]]] = {}
        #: text cells that are counted and not kept
        self.texts_left: Counter[str] = Counter()
        self.decimals: dict[str, Decimals] = {}

    def table(self, path: str, *, disguised: bool) -> Table:
        """Return the packed records as a table and remove them; every column is contiguous."""
        rows = np.frombuffer(self.buffer, dtype=np.float64).reshape(-1, len(self.keys) + 2)
        head, matrix = rows[:, :2].T.copy().view(np.int64), rows[:, 2:].T.copy()
        del rows  # the buffer cannot be cleared while an array refers to it
        if disguised:
            restore(matrix)
        columns = dict(zip(self.keys, matrix, strict=True))
        table = Table(
            path=path,
            records=head[0],
            lines=head[1],
            columns=columns,
            decimals={
                key: places for key, seen in self.decimals.items() if (places := seen.of(columns[key])) is not None
            },
            texts={key: tuple(texts) for key, texts in self.texts.items()},
            texts_left=dict(self.texts_left),
        )
        # The buffer stays the same object, because readers keep its methods.
        self.buffer.clear()
        self.texts.clear()
        self.texts_left.clear()
        self.decimals.clear()
        return table


class Decimals:
    """The number of decimals with which a column was printed, if that is fixed.

    A fixed format is proved by the same number of decimals in several values, or by a trailing zero, which a float
    printed in full precision does not have. Values without decimals, or with ".0" only, prove nothing.
    """

    __slots__ = ("padded", "places", "powers", "seen", "tenths")

    def __init__(self) -> None:
        self.places = -1
        self.seen = 0
        self.tenths = 0
        self.powers = 0
        self.padded = False

    def see(self, text: str, *, fixed: bool = False) -> None:
        """Count one printed value; `fixed` means that its record proves the format."""
        match = _FIXED.match(text)
        if match is None and not _HAS_DIGIT.search(text):
            return  # NaN and infinity are printed alike in every format
        fraction = match[1] or "" if match else ""
        places = len(fraction) + 2 * bool(match and match[2]) if match else _MOST_DECIMALS + 1
        self.seen += 1
        self.powers += match is None and ("e" in text or "E" in text)
        self.tenths += places == 1 and fraction != "0"
        self.padded |= places > 1 and (fixed or fraction.endswith("0"))
        self.places = places if self.places in (-1, places) else _MOST_DECIMALS + 1

    def of(self, column: FloatArray) -> int | None:
        """Return the decimals of a fixed notation, SCIENTIFIC if all are zeros with an exponent, or else None."""
        if self.seen and self.powers == self.seen and not column.any():
            return SCIENTIFIC
        return self.places if self._certain_for(column) else None

    def _certain_for(self, column: FloatArray) -> bool:
        """Return whether a column was printed in fixed notation; not every printed value may have been counted."""
        proven = self.padded or (self.seen >= _ENOUGH if self.places > 1 else self.tenths >= _ENOUGH)
        if not (proven and 1 <= self.places <= _MOST_DECIMALS):
            return False
        scaled = column[np.isfinite(column)] * 10.0**self.places
        return bool(np.all(np.abs(scaled - np.rint(scaled)) <= 1e-9 * np.maximum(np.abs(scaled), 1.0)))


class Packer:
    """Collects the records of one source in one table per key layout."""

    def __init__(self, path: str, notes: Ledger, every: int = FLUSH_EVERY) -> None:
        self.path = path
        self._every = every
        self.layouts: dict[tuple[str, ...], Layout] = {}
        #: whether records may hold the numbers that `disguise` inserts
        self.disguised = False
        #: ordinal of the next record
        self.ordinal = 0
        self._next_flush = every
        self._notes = notes
        self._texts_kept: dict[str, int] = {}
        self._keys = Keys(notes)
        #: number of keys in all layouts
        self._remembered = 0

    @property
    def full(self) -> bool:
        """Return whether the tables should be flushed."""
        return self.ordinal >= self._next_flush or self._remembered > _MOST_REMEMBERED

    def add(self, line: int, numbers: Mapping[str, float], texts: Mapping[str, str] | None = None) -> None:
        """Add one record; one without values is skipped with a note."""
        if not numbers and not texts:
            self._notes.skip("it holds no value", line)
            return
        layout = self.layout(tuple(numbers))
        if len(layout.keys) < len(numbers):
            numbers = {key: numbers[key] for key in layout.keys}
        layout.buffer += layout.pack(self.ordinal, line, *numbers.values())
        if texts:
            self._keep(layout, texts, line)
        self.ordinal += 1

    def printed(self, keys: Iterable[str], written: Mapping[str, str], *, fixed: bool = False) -> None:
        """Count how the values of a record with these keys were printed."""
        layout = self.layout(tuple(keys))
        for key in layout.keys:
            layout.decimals.setdefault(key, Decimals()).see(written[key], fixed=fixed)

    def layout(self, keys: tuple[str, ...]) -> Layout:
        """Return the layout of records with these keys; it holds fewer keys if some of them are not read."""
        layout = self.layouts.get(keys)
        if layout is None:
            self._remembered += len(keys)
            kept = tuple(key for key in keys if self._keys.admit(key))
            layout = self.layouts[keys] = self.layout(kept) if len(kept) < len(keys) else Layout(keys)
        return layout

    def flush(self) -> Iterator[Table]:
        """Yield one table per layout of the records since the last flush."""
        self._next_flush = self.ordinal + self._every
        filled = [layout for keys, layout in self.layouts.items() if layout.buffer and keys == layout.keys]
        tables = [layout.table(self.path, disguised=self.disguised) for layout in filled]
        if len(self.layouts) > _MOST_LAYOUTS or self._remembered > _MOST_REMEMBERED:
            self.layouts.clear()
            self._remembered = 0
        yield from tables

    def _keep(self, layout: Layout, texts: Mapping[str, str], line: int) -> None:
        for key, text in texts.items():
            if not self._keys.admit(key, line):
                continue
            kept = self._texts_kept.get(key, 0)
            if kept < MOST_TEXTS or key in RUN_KEYS or key in METHOD_KEYS:
                layout.texts.setdefault(key, []).append((self.ordinal, intern(text)))
                self._texts_kept[key] = kept + 1
            else:
                layout.texts_left[key] += 1
                note = f"{key}: only the first {MOST_TEXTS:,} texts are kept"
                self._notes.tell_once("more texts than are kept", key, note, line)
