"""Collects single values with a tag and a step into tables with one row per step; exact decimals of float32 values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.readers.pack import Keys
from ppo_doctor.readers.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ppo_doctor.model.run import FloatArray, IntArray
    from ppo_doctor.readers.notes import Ledger

#: Values that are collected before they become tables, of 40 bytes each.
WINDOW = 1 << 20
STEP, WALL_TIME = "step", "wall_time"
_OWN = (STEP, WALL_TIME)
#: The number of every tag that is not read.
_UNREAD = -1


class Points:
    """Collects values in any order and yields them as tables with a row per step.

    Values of one step form one row, even if the log is sorted by tag. A second value of a tag for the same step starts
    another row, and so does a lower step of a tag, as in a run resumed from a checkpoint. Rows are in the order of the
    records. The line of a row is that of its first value.
    """

    def __init__(self, path: str, notes: Ledger) -> None:
        self.path = path
        self._notes = notes
        self._tags: dict[str, int] = {}
        self._names: list[str] = []
        self._keys = Keys(notes)
        #: by tag: last step seen, and how often its steps fell back
        self._last = np.empty(0, dtype=np.int64)
        self._falls = np.empty(0, dtype=np.int64)
        self._parts: list[tuple[IntArray, IntArray, FloatArray, FloatArray, IntArray]] = []
        self._collected = 0
        self._rows = 0
        self._pass = 0
        self._constants: dict[str, float] = {}

    @property
    def full(self) -> bool:
        """Tell whether it is time to yield tables."""
        return self._collected >= WINDOW

    def tag(self, name: str) -> int:
        """Return the number of a tag, negative for a tag that is not read."""
        number = self._tags.get(name)
        if number is None:
            if not self._keys.admit(name):
                return _UNREAD
            number = self._tags[name] = len(self._names)
            self._names.append(self._column(name))
        return number

    def begin(self, constants: Mapping[str, float]) -> None:
        """Start another run of the same source: its steps start over, and each of its records holds the constants."""
        self._constants = dict(constants)
        self._last = np.empty(0, dtype=np.int64)
        self._falls = np.empty(0, dtype=np.int64)
        self._pass = 0

    def add(
        self,
        tags: Iterable[int],
        steps: Iterable[int],
        values: Iterable[float],
        walls: Iterable[float],
        lines: Iterable[int],
    ) -> None:
        """Add values in the order of the log; each argument has shape [values]."""
        part = (
            np.asarray(tags, dtype=np.int64),
            np.asarray(steps, dtype=np.int64),
            np.asarray(values, dtype=np.float64),
            np.asarray(walls, dtype=np.float64),
            np.asarray(lines, dtype=np.int64),
        )
        if (part[0] < 0).any():
            read = part[0] >= 0
            part = (part[0][read], part[1][read], part[2][read], part[3][read], part[4][read])
        if len(part[0]):
            self._parts.append(part)
            self._collected += len(part[0])

    def tables(self, *, final: bool = True) -> Iterator[Table]:
        """Yield the collected values; unless `final`, those of the last step are kept until the step is complete."""
        if not self._collected:
            return
        tags, steps, values, walls, lines = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        cut = len(steps) if final else _last_step(steps)
        self._parts, self._collected = [], 0
        self.add(tags[cut:], steps[cut:], values[cut:], walls[cut:], lines[cut:])
        yield from self._tabulated(tags[:cut], steps[:cut], values[:cut], walls[:cut], lines[:cut])

    def _column(self, name: str) -> str:
        if name not in _OWN:
            return name
        self._notes.tell_once(
            "they are called like a column of the container", name, f"the tag {name} is read as {name}_"
        )
        return name + "_"

    def _tabulated(
        self, tags: IntArray, steps: IntArray, values: FloatArray, walls: FloatArray, lines: IntArray
    ) -> Iterator[Table]:
        passes, turns = self._order(tags, steps)
        order = np.lexsort((tags, turns, steps, passes))
        first = np.append(True, _changes(passes[order], steps[order], turns[order]))
        starts = np.flatnonzero(first)
        counts = np.diff(np.append(starts, len(order)))
        at = np.minimum.reduceat(lines[order], starts)
        for count in np.unique(counts).tolist():
            rows = np.flatnonzero(counts == count)
            cells = order[starts[rows][:, None] + np.arange(count)]
            for layout, members in _layouts(tags[cells]):
                held = cells[members]
                columns = {STEP: steps[held[:, 0]].astype(np.float64), WALL_TIME: walls[held[:, 0]]}
                columns |= {key: np.full(len(held), value) for key, value in self._constants.items()}
                matrix = np.ascontiguousarray(values[held].T)
                columns |= {self._names[tag]: matrix[i] for i, tag in enumerate(layout)}
                chosen = rows[members]
                yield Table(path=self.path, records=self._rows + chosen, lines=at[chosen], columns=columns)
        self._rows += len(starts)

    def _order(self, tags: IntArray, steps: IntArray) -> tuple[IntArray, IntArray]:
        """Return for each value how often steps fell back before it, and how many values its tag had at its step."""
        self._grow()
        order = np.argsort(tags, kind="stable")
        tag, step = tags[order], steps[order]
        begins = np.append(True, tag[1:] != tag[:-1])
        heads = np.flatnonzero(begins)
        fell = np.append(False, step[1:] < step[:-1])
        fell[heads] = step[heads] < self._last[tag[heads]]
        passes = np.cumsum(fell)
        sizes = np.diff(np.append(heads, len(tag)))
        passes += np.repeat(self._falls[tag[heads]] - passes[heads] + fell[heads], sizes)
        tails = np.append(heads[1:], len(tag)) - 1
        self._last[tag[tails]], self._falls[tag[tails]] = step[tails], passes[tails]
        fresh = begins | np.append(True, step[1:] != step[:-1])
        runs = np.flatnonzero(fresh)
        turns = np.arange(len(tag)) - np.repeat(runs, np.diff(np.append(runs, len(tag))))
        out = np.empty((2, len(tag)), dtype=np.int64)
        out[:, order] = passes, turns
        # Once one tag fell back, all later values belong to a later pass, even if their own steps do not fall.
        out[0] = np.maximum.accumulate(np.maximum(out[0], self._pass))
        self._pass = int(out[0, -1])
        return out[0], out[1]

    def _grow(self) -> None:
        missing = len(self._names) - len(self._last)
        if missing:
            self._last = np.append(self._last, np.full(missing, np.iinfo(np.int64).min))
            self._falls = np.append(self._falls, np.zeros(missing, dtype=np.int64))


def _last_step(steps: IntArray) -> int:
    """Return the index of the first value of the last step, or the end if there is only one step."""
    other = np.flatnonzero(steps != steps[-1])
    return int(other[-1]) + 1 if len(other) else len(steps)


def _changes(*keys: IntArray) -> NDArray[np.bool_]:
    return np.asarray(np.logical_or.reduce([key[1:] != key[:-1] for key in keys]), dtype=np.bool_)


def _layouts(tags: IntArray) -> Iterator[tuple[Sequence[int], IntArray]]:
    """Yield each distinct row of tags with the indices of the equal rows; `tags` has shape [rows, tags per row]."""
    if (tags == tags[0]).all():
        yield tags[0].tolist(), np.arange(len(tags))
        return
    order = np.lexsort(tags.T[::-1])
    ranked = tags[order]
    edges = np.flatnonzero((ranked[1:] != ranked[:-1]).any(axis=1)) + 1
    for members in np.split(order, edges):
        yield tags[members[0]].tolist(), np.sort(members)


def within(step: int) -> int:
    """Return the step if float64 holds it exactly; raise ValueError for a larger one, which is damage."""
    if abs(step) > 1 << 53:
        raise ValueError("no step is as large as that")
    return step


#: Single precision distinguishes all decimals of six digits.
_DIGITS = 6
#: Powers of ten up to this exponent are exact in double precision, so a quotient is the double nearest its decimal.
_EXACT = 22


def written(values: NDArray[np.float32]) -> FloatArray:
    """Return float32 values as float64: the decimal of at most six digits that rounds to the value, if there is one.

    A learning rate of 0.0003 is stored as 0.000300000014249…, which is the same float32. The decimal also shows the
    rounding of a metric that was logged with few digits. Other values are unchanged.
    """
    out = values.astype(np.float64)
    usable = np.isfinite(out) & (out != 0.0)
    stored = out[usable]
    places = _DIGITS - 1 - np.floor(np.log10(np.abs(stored)))
    sure = np.abs(places) <= _EXACT
    power = 10.0 ** np.where(sure, np.abs(places), 0.0)
    decimal = np.where(places >= 0, np.rint(stored * power) / power, np.rint(stored / power) * power)
    meant = sure & (decimal.astype(np.float32) == values[usable])
    out[usable] = np.where(meant, decimal, stored)
    return out
