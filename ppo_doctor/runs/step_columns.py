"""Find the column that counts the steps of a log, and the order of its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray

#: Numbers from which on a column is checked for counting up, and its most falls as a share of its rises.
LEAST_STEPS, MOST_RESTARTS = 5, 0.4
#: The same share if the newest record comes first. It is small because such logs are rare and other columns fall too.
MOST_RESTARTS_BACK = 0.05
#: Records in which a column of whole numbers has to fall only, to be a total in a log whose newest record comes first.
SURELY_BACK = 20
#: A log with at most so many different steps, each of more than so many records, is ordered by its lines.
FEW_STEPS, RECORDS_PER_STEP = 10, 50
#: Columns of the time at which a record was written, in seconds since 1970. Smaller values are durations.
UNIX_TIMES = ("wall_time", "_timestamp", "timestamp", "time")
YEAR_2001 = 1e9


def counts(parts: Sequence[FloatArray]) -> bool:
    """Return whether a column counts steps in each file: up, or down if the newest record comes first.

    True for a few values if they are not all equal.
    """
    known = [values[np.isfinite(values)] for values in parts]
    steps = np.concatenate(known)
    if len(steps) < LEAST_STEPS:
        return len(steps) < 2 or bool((steps != steps[0]).any())
    return _rises(known, MOST_RESTARTS) or _rises([-values for values in known], MOST_RESTARTS_BACK)


def possible_steps(columns: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Return the columns that may count steps, without those of step sizes."""
    return {key: values for key, values in columns.items() if not is_size(values)}


def is_size(values: FloatArray) -> bool:
    """Return whether a column named after steps holds their size: it stays below 1 and does not rise."""
    known = values[np.isfinite(values)]
    return len(known) >= LEAST_STEPS and 0 < known.max() < 1 and not _rises([known], MOST_RESTARTS)


def added_up(columns: Iterable[FloatArray], begins: Sequence[int]) -> FloatArray | None:
    """Return a column that mostly rises and never falls in any file, of whole numbers if possible; None without any.

    In a log whose newest record comes first, it is a column of whole numbers that mostly falls and never rises.
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
    """Return whether nearly all changes are rises, as in steps that start over only where a run does."""
    change = np.concatenate([np.diff(values) for values in parts])
    return bool((change > 0).any() and (change < 0).sum() <= most_falls * (change > 0).sum())


def falls(values: FloatArray) -> bool:
    """Return whether values fall as the steps of a log whose newest record comes first."""
    return _rises([-values[np.isfinite(values)]], MOST_RESTARTS_BACK)


def too_coarse(steps: FloatArray, records: int) -> bool:
    """Return whether there are no steps, or a few that hundreds of records share."""
    known = np.sort(steps[np.isfinite(steps)])
    count = len(known) and 1 + int(np.count_nonzero(np.diff(known)))
    return count == 0 or (count <= FEW_STEPS and count * RECORDS_PER_STEP < records)


def repeated_steps(steps: FloatArray) -> FloatArray:
    """Return steps in which a row of records without steps has those of the row before it, if that is as long."""
    known = np.isfinite(steps)
    begins = [0, *(np.flatnonzero(np.diff(known)) + 1).tolist(), len(steps)]
    filled = steps.copy()
    for first, middle, end in zip(begins, begins[1:], begins[2:], strict=False):
        if known[first] and middle - first == end - middle > 1:
            filled[middle:end] = steps[first:middle]
    return filled


def are_dates(values: FloatArray) -> bool:
    """Return whether all values are Unix times."""
    return bool((values[np.isfinite(values)] > YEAR_2001).all())


def ranked(columns: Sequence[FloatArray]) -> FloatArray:
    """Return the rank of each record, from 0 to below 1, sorted by the first column, then the next; NaN comes first."""
    cells = np.nan_to_num(np.stack(columns), nan=-1.0)
    order = np.lexsort(cells[::-1])
    rank = np.zeros(len(order))
    rank[order] = np.cumsum(np.append(False, (np.diff(cells[:, order]) != 0).any(axis=0)))
    return np.asarray(rank / (1.0 + rank.max(initial=0.0)))
