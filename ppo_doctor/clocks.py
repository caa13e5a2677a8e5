"""What tells the order of records: columns that count up, or down where the newest stands first, and Unix times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ppo_doctor.model import FloatArray
    from ppo_doctor.table import Table

#: A column of fewer numbers is not asked whether it counts up; one that does falls in at most this share of its rises.
LEAST_STEPS, MOST_RESTARTS = 5, 0.4
#: The same share in a log written newest first, which few are; lengths of episodes that shrink fall as often.
MOST_RESTARTS_BACK = 0.05
#: A column of whole numbers that only falls in so many records counts what was added up, newest record first.
SURELY_BACK = 20

#: So few steps, each of so many records, order a log no more than its lines do.
FEW_STEPS, RECORDS_PER_STEP = 10, 50
#: Columns of the time at which a record was written, in seconds since 1970, and the least that is one.
UNIX_TIMES = ("wall_time", "_timestamp", "timestamp", "time")
YEAR_2001 = 1e9


def counts(parts: Sequence[FloatArray]) -> bool:
    """Tell whether a column counts steps in each file, up or, where the newest stands first, down.

    Few values that change may.
    """
    known = [values[np.isfinite(values)] for values in parts]
    steps = np.concatenate(known)
    if len(steps) < LEAST_STEPS:
        return len(steps) < 2 or bool((steps != steps[0]).any())
    return _rises(known, MOST_RESTARTS) or _rises([-values for values in known], MOST_RESTARTS_BACK)


def possible(columns: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Return the columns that may count steps: what stays below 1 and does not rise is the size of a step."""
    return {key: values for key, values in columns.items() if not is_size(values)}


def is_size(values: FloatArray) -> bool:
    """Tell whether the numbers of a column that is called after steps are their size, a learning rate."""
    known = values[np.isfinite(values)]
    return len(known) >= LEAST_STEPS and 0 < known.max() < 1 and not _rises([known], MOST_RESTARTS)


def added_up(columns: Iterable[FloatArray], begins: Sequence[int]) -> FloatArray | None:
    """Return a column of any name that mostly rises and never falls in any file, of whole numbers if there is one.

    In a log whose newest record stands first, one of whole numbers that mostly falls and never rises.
    """
    rising: list[FloatArray] = []
    falling: list[FloatArray] = []
    for values in columns:
        if _never_falls(np.split(values, begins)):
            rising.append(values)
        elif len(values) >= SURELY_BACK and not _fractional(values) and _never_falls(np.split(-values, begins)):
            falling.append(values)
    return min([*rising, *falling], key=_fractional, default=None)


def _fractional(values: FloatArray) -> bool:
    return bool((values[np.isfinite(values)] % 1 != 0).any())


def _never_falls(parts: Sequence[FloatArray]) -> bool:
    known = [values[np.isfinite(values)] for values in parts]
    if not all(map(len, known)) or max(map(len, known)) < LEAST_STEPS:
        return False
    change = np.concatenate([np.diff(values) for values in known])
    return bool((change >= 0).all() and np.mean(change > 0) >= 0.5)


def _rises(parts: Sequence[FloatArray], most_falls: float) -> bool:
    """Tell whether values rise in nearly all of their changes, as steps do, save where a run begins again."""
    change = np.concatenate([np.diff(values) for values in parts])
    return bool((change > 0).any() and (change < 0).sum() <= most_falls * (change > 0).sum())


def falls(values: FloatArray) -> bool:
    """Tell whether values fall as the steps of a log do whose newest record stands first."""
    return _rises([-values[np.isfinite(values)]], MOST_RESTARTS_BACK)


def turned(table: Table, size: int) -> Table:
    """Return a table of a log of `size` records whose last record is put first."""
    return replace(
        table,
        records=size - 1 - table.records[::-1],
        lines=table.lines[::-1],
        columns={key: values[::-1] for key, values in table.columns.items()},
        texts={key: tuple((size - 1 - at, text) for at, text in cells[::-1]) for key, cells in table.texts.items()},
    )


def too_coarse(steps: FloatArray, records: int) -> bool:
    """Tell whether steps, of which there may be none, hardly count: few for a thing that hundreds of records are of."""
    known = np.sort(steps[np.isfinite(steps)])
    told = len(known) and 1 + int(np.count_nonzero(np.diff(known)))
    return told == 0 or (told <= FEW_STEPS and told * RECORDS_PER_STEP < records)


def once_more(steps: FloatArray) -> FloatArray:
    """Return steps with those of each row of records on the row of as many after it that have none."""
    known = np.isfinite(steps)
    begins = [0, *(np.flatnonzero(np.diff(known)) + 1).tolist(), len(steps)]
    filled = steps.copy()
    for first, middle, end in zip(begins, begins[1:], begins[2:], strict=False):
        if known[first] and middle - first == end - middle > 1:
            filled[middle:end] = steps[first:middle]
    return filled


def are_dates(values: FloatArray) -> bool:
    """Tell Unix times from durations."""
    return bool((values[np.isfinite(values)] > YEAR_2001).all())


def ranked(columns: Sequence[FloatArray]) -> FloatArray:
    """Return the rank of each record by some columns, the first before the next, from 0 to below 1; NaN goes first."""
    cells = np.nan_to_num(np.stack(columns), nan=-1.0)
    order = np.lexsort(cells[::-1])
    rank = np.zeros(len(order))
    rank[order] = np.cumsum(np.append(False, (np.diff(cells[:, order]) != 0).any(axis=0)))
    return np.asarray(rank / (1.0 + rank.max(initial=0.0)))
