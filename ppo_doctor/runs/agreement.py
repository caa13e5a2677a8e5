"""Decide whether two readings are of the same run, by their values at common steps or by values alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import by_value, distinct, mean_of
from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model.run import BoolArray, FloatArray, IntArray, Run, Series

#: What storing as float32 may change, relative to the value, with room for a sum done in another order.
STORED = 1e-6
#: Different values from which on equal values in two files are no coincidence.
TELLING = 5
#: Significant digits to which loggers round. More make no larger difference than STORED.
DIGITS = range(3, 7)
#: Whole numbers from here on have more digits than some loggers print.
LARGE = 10.0 ** DIGITS[0]
#: Largest distance of a float64 number from the decimal that it was written as, relative to its first digit.
FLOAT = 1e-12
#: Share of averages that have to lie within the values that they average; windows may begin between logged steps.
NEARLY = 0.9
#: Metrics of time, which each logger measures itself.
OF_THE_CLOCK = ("fps", "time_")
#: Metrics that have to come one record late in one of two files of one run.
ENOUGH = 2


@frozen
class Difference:
    """How often two readings differ in a metric at shared steps, and where first."""

    name: str
    shared: int
    differing: int
    step: int
    ours: float
    theirs: float


@frozen
class Agreement:
    """How far two readings agree: the number of common metrics, where these differ, and the share of equal values.

    `share` counts metrics that go up and down, because counters and schedules are equal in all runs;
    it is None if there are none. `clock` holds their steps and the same steps as ours if both count steps differently.
    """

    metrics: int
    share: float | None = None
    differences: tuple[Difference, ...] = ()
    clock: tuple[IntArray, IntArray] | None = None


def compared(ours: Run, theirs: Run) -> Agreement:
    """Compare two readings at shared steps, or else record by record, or else by their values alone."""
    pairs = [(ours.series[name], theirs.series[name]) for name in ours.series if name in theirs.series]
    pairs = [pair for pair in pairs if _same_kind(*pair)]
    telling = [pair for pair in pairs if _varies(pair[0]) and _varies(pair[1])]
    late = [pair for pair in telling if _one_late(*pair)]
    moved = {series.name for series, _ in late} if len(late) >= ENOUGH else set()
    found = [_at_shared_steps(*pair) for pair in pairs if pair[0].name not in moved]
    names = {series.name for series, _ in telling}
    share = _share([d for d in found if d.name in names] if telling else found)
    clock = _clock(telling) or (_late_clock(late) if moved and share is None else None)
    if clock is not None:
        return Agreement(metrics=len(pairs), share=1.0, clock=clock)
    if moved:
        return Agreement(metrics=len(pairs), share=1.0, differences=tuple(d for d in found if d.differing))
    if share is None:
        return Agreement(metrics=len(pairs), share=_found_again(telling))
    return Agreement(metrics=len(pairs), share=share, differences=tuple(d for d in found if d.differing))


def _share(found: Sequence[Difference]) -> float | None:
    shared = sum(difference.shared for difference in found)
    return 1.0 - sum(difference.differing for difference in found) / shared if shared else None


def _varies(series: Series) -> bool:
    """Return whether a metric goes up and down, so that two runs would hardly agree in it."""
    moves = np.diff(series.values[np.isfinite(series.values)])
    return bool((moves > 0).any() and (moves < 0).any())


def overlap(ours: Run, theirs: Run) -> float:
    """Return the share of the shorter range of steps that the other covers."""
    if ours.steps is None or theirs.steps is None:
        return 0.0
    (a, b), (c, d) = ours.steps, theirs.steps
    shorter = min(b - a, d - c)
    common = min(b, d) - max(a, c)
    return max(0.0, min(1.0, common / shorter)) if shorter else float(common >= 0)


def averages(ours: Run, theirs: Run) -> bool:
    """Return whether `theirs` holds averages of `ours`: each value is within the range of ours since the one before."""
    pairs = [(s, theirs.series[name]) for name, s in ours.series.items() if name in theirs.series and _varies(s)]
    inside = [within for pair in pairs if (within := _inside(*pair)) is not None]
    return bool(inside) and all(inside)


def of_minibatches(whole: Run, detail: Run) -> bool:
    """Return whether `detail` holds the minibatches of the updates in `whole`: the value of an update is among theirs.

    Half of the metrics have to agree. A norm of the whole step, for example, is not an average of its minibatches.
    """
    pairs = [(s, detail.series[name]) for name, s in whole.series.items() if name in detail.series and _varies(s)]
    found = [among for pair in pairs if (among := _among(*pair))]
    enough = sum(map(len, found)) >= 2 * TELLING
    return enough and float(np.median([np.mean(among) for among in found])) >= NEARLY


def _among(whole: Series, detail: Series) -> list[bool]:
    """Return for each update of both whether its value is within the range of its minibatches."""
    ours, theirs = whole.axis.update, detail.axis.update
    if theirs is None or whole.axis.minibatch is not None or detail.axis.minibatch is None:
        return []
    if ours is None:  # suppose one record per update; the values show whether that is so
        ours = np.searchsorted(distinct(whole.axis.steps), whole.axis.steps) + theirs.min()
    values = {int(n): value for n, value in zip(ours, whole.values, strict=True) if np.isfinite(value)}
    within: list[bool] = []
    for number, rows in by_value(theirs):
        held = detail.values[rows]
        if int(number) in values and len(rows) > 1 and np.isfinite(held).all():
            room = whole.resolution.absolute + STORED * abs(values[int(number)])
            within.append(bool(held.min() - room <= values[int(number)] <= held.max() + room))
    return within


def _inside(ours: Series, theirs: Series) -> bool | None:
    """Return whether nearly all values are within our windows; None if too few windows hold several values."""
    ends = np.searchsorted(ours.axis.steps, theirs.axis.steps, side="right")
    starts = np.concatenate(([0], ends[:-1]))
    full = np.flatnonzero((ends - starts > 1) & np.isfinite(theirs.values))
    if len(full) < TELLING or len(full) < len(theirs) / 2:
        return None
    windows = [ours.values[a:b] for a, b in zip(starts[full], ends[full], strict=True)]
    low, high = (np.asarray([edge(window) for window in windows]) for edge in (np.min, np.max))
    room = theirs.resolution.absolute + STORED * np.abs(theirs.values[full])
    within = (theirs.values[full] >= low - room) & (theirs.values[full] <= high + room)
    return bool(within.mean() >= NEARLY)


def _same_kind(ours: Series, theirs: Series) -> bool:
    if ours.name.startswith(OF_THE_CLOCK):
        return False
    return ours.estimator == theirs.estimator and ours.unit == theirs.unit


def _at_shared_steps(ours: Series, theirs: Series) -> Difference:
    steps, mine, other = np.intersect1d(_once(ours), _once(theirs), return_indices=True)
    a, b = ours.values[_positions(ours)[mine]], theirs.values[_positions(theirs)[other]]
    differ = np.flatnonzero(~_equal(a, b, ours, theirs))
    first = int(differ[0]) if len(differ) else 0
    at = (int(steps[first]), float(a[first]), float(b[first])) if len(steps) else (0, 0.0, 0.0)
    return Difference(name=ours.name, shared=len(steps), differing=len(differ), step=at[0], ours=at[1], theirs=at[2])


def _positions(series: Series) -> IntArray:
    """Return the last record of each step."""
    steps = series.axis.steps
    return np.flatnonzero(np.append(steps[1:] != steps[:-1], True)) if len(steps) else np.zeros(0, dtype=np.int64)


def _once(series: Series) -> IntArray:
    return series.axis.steps[_positions(series)]


def _equal(a: FloatArray, b: FloatArray, ours: Series, theirs: Series) -> BoolArray:
    size = np.maximum(np.abs(a), np.abs(b))
    places = ours.resolution.absolute + theirs.resolution.absolute
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        cut = np.maximum(places, _half_digit(a) + _half_digit(b))
        near = np.abs(a - b) <= cut * 1.000001 + STORED * size + 1e-12
    return np.asarray(near | (a == b) | (np.isnan(a) & np.isnan(b)), dtype=np.bool_)


def _half_digit(values: FloatArray) -> FloatArray:
    """Return half of the last digit of each number of a column rounded to significant digits (%.4g), else zeros.

    The resolution of a series does not describe such a column, because its numbers have no common decimals. A number of
    more digits than nearly all others is taken as exact. Whole numbers are counts, unless all of them are so large that
    rounding leaves no other digits.
    """
    place = np.nan_to_num(10.0 ** np.floor(np.log10(np.abs(values))), posinf=0.0)
    leading = np.nan_to_num(values / place, posinf=0.0, neginf=0.0)
    counts = np.array_equal(values, np.round(values), equal_nan=True) and (np.abs(values) < LARGE).any()
    digits = None if counts else next((n for n in DIGITS if mean_of(_fits(leading, n)) >= NEARLY), None)
    if digits is None:
        return np.zeros_like(place)
    return np.where(_fits(leading, digits), 0.5 * place * 10.0 ** (1 - digits), 0.0)


def _fits(leading: FloatArray, digits: int) -> BoolArray:
    """Return which of some numbers from 1 to 10 have at most so many digits."""
    return np.asarray(np.abs(np.round(leading, digits - 1) - leading) < FLOAT, dtype=np.bool_)


def _clock(pairs: Sequence[tuple[Series, Series]]) -> tuple[IntArray, IntArray] | None:
    """Return their steps and ours if both hold the same records in the same order under other steps."""
    alike = [(a, b) for a, b in pairs if len(a) == len(b) and _tells(a)]
    if not alike or not all(_equal(a.values, b.values, a, b).all() for a, b in alike):
        return None
    ours, theirs = max(alike, key=lambda pair: len(pair[0]))
    if np.array_equal(ours.axis.steps, theirs.axis.steps):
        return None
    return theirs.axis.steps, ours.axis.steps


def _one_late(ours: Series, theirs: Series) -> bool:
    """Return whether all values of one series are in the other, one record later.

    SB3's loggers write the values of an update at the end of the next rollout.
    """
    return _tells(ours) and _tells(theirs) and _late_by(ours, theirs) is not None


def _late_by(ours: Series, theirs: Series) -> tuple[slice, slice] | None:
    """Return the records of two series that hold the same values, one record apart; None if there are none."""
    size = min(len(ours), len(theirs))
    if abs(len(ours) - len(theirs)) > 1 or size < TELLING:
        return None
    # Series of one length may each hold a record that the other lacks: the first or the last.
    for count in (size, size - 1):
        for at, there in ((0, len(theirs) - count), (len(ours) - count, 0)):
            mine, other = slice(at, at + count), slice(there, there + count)
            same = np.array_equal(ours.axis.steps[mine], theirs.axis.steps[other])
            if not same and _equal(ours.values[mine], theirs.values[other], ours, theirs).all():
                return mine, other
    return None


def _late_clock(pairs: Sequence[tuple[Series, Series]]) -> tuple[IntArray, IntArray] | None:
    """Return their steps and ours of records that come one late and have other steps."""
    ours, theirs = max(pairs, key=lambda pair: len(pair[0]))
    places = _late_by(ours, theirs)
    return None if places is None else (theirs.axis.steps[places[1]], ours.axis.steps[places[0]])


def _tells(series: Series) -> bool:
    return len(distinct(series.values[np.isfinite(series.values)])) >= TELLING


def _found_again(pairs: Sequence[tuple[Series, Series]]) -> float | None:
    """Return the share of values of the shorter series that the other contains; None if there are too few."""
    shares = [_values_shared(ours, theirs) for ours, theirs in pairs if _tells(ours) and _tells(theirs)]
    return float(np.mean(shares)) if shares else None


def _values_shared(ours: Series, theirs: Series) -> float:
    a, b = (distinct(series.values[np.isfinite(series.values)]) for series in (ours, theirs))
    few, many = (a, b) if len(a) <= len(b) else (b, a)
    at = np.clip(np.searchsorted(many, few), 1, len(many) - 1)
    nearest = np.where(np.abs(many[at] - few) < np.abs(many[at - 1] - few), many[at], many[at - 1])
    return float(_equal(few, nearest, ours, theirs).mean())
