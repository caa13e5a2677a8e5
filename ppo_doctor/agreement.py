"""Whether two readings are of the same run: their metrics compared where they share steps, or by their values alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import distinct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppo_doctor.model import BoolArray, FloatArray, IntArray, Run, Series

#: What storing as float32 may change, relative to the value, with room for a sum done in another order.
STORED = 1e-6
#: Values have to differ among themselves before finding them again tells anything.
TELLING = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One metric on which two readings differ: at how many of the shared steps, and where first."""

    name: str
    shared: int
    differing: int
    step: int
    ours: float
    theirs: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How two readings compare: metrics of both, points at shared steps, and where these differ.

    `clock` maps their steps to ours where the same records carry other steps, so (theirs, ours) of equal length.
    """

    metrics: int
    shared: int
    differences: tuple[Difference, ...] = ()
    alike: float = 0.0
    clock: tuple[IntArray, IntArray] | None = None

    @property
    def differing(self) -> int:
        """Return the number of points at shared steps that differ."""
        return sum(difference.differing for difference in self.differences)

    @property
    def share(self) -> float:
        """Return the share of points at shared steps that agree, or of values found again where no step is shared."""
        return 1.0 - self.differing / self.shared if self.shared else self.alike


def compared(ours: Run, theirs: Run) -> Agreement:
    """Compare two readings, metric by metric."""
    names = [
        name for name in ours.series if name in theirs.series and _same_kind(ours.series[name], theirs.series[name])
    ]
    found = [_at_shared_steps(ours.series[name], theirs.series[name]) for name in names]
    shared = sum(difference.shared for difference in found)
    share = 1 - sum(difference.differing for difference in found) / shared if shared else 0.0
    clock = None if share > 0.5 else _clock(ours.series, theirs.series, names)
    if clock is not None:
        return Agreement(metrics=len(names), shared=0, alike=1.0, clock=clock)
    differing = tuple(difference for difference in found if difference.differing)
    if shared:
        return Agreement(metrics=len(names), shared=shared, differences=differing)
    return Agreement(metrics=len(names), shared=0, alike=_found_again(ours.series, theirs.series, names))


def overlap(ours: Run, theirs: Run) -> float:
    """Return the share of the shorter range of steps that the other covers."""
    if ours.steps is None or theirs.steps is None:
        return 0.0
    (a, b), (c, d) = ours.steps, theirs.steps
    shorter = min(b - a, d - c)
    common = min(b, d) - max(a, c)
    return max(0.0, min(1.0, common / shorter)) if shorter else float(common >= 0)


def _same_kind(ours: Series, theirs: Series) -> bool:
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
    relative = STORED + ours.resolution.relative + theirs.resolution.relative
    absolute = ours.resolution.absolute + theirs.resolution.absolute
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(a - b) <= absolute * 1.000001 + relative * np.maximum(np.abs(a), np.abs(b)) + 1e-12
    return np.asarray(near | (a == b) | (np.isnan(a) & np.isnan(b)), dtype=np.bool_)


def _clock(
    ours: Mapping[str, Series], theirs: Mapping[str, Series], names: list[str]
) -> tuple[IntArray, IntArray] | None:
    """Return their steps and ours, if the same records stand in the same order under other steps."""
    for name in names:
        a, b = ours[name], theirs[name]
        if len(a) != len(b) or len(distinct(a.values[np.isfinite(a.values)])) < TELLING:
            continue
        if _equal(a.values, b.values, a, b).all():
            return b.axis.steps, a.axis.steps
    return None


def _found_again(ours: Mapping[str, Series], theirs: Mapping[str, Series], names: list[str]) -> float:
    """Return the share of values of the one with fewer that the other has too, over metrics that can tell."""
    shares = [share for name in names if (share := _values_shared(ours[name], theirs[name])) is not None]
    return float(np.mean(shares)) if shares else 0.0


def _values_shared(ours: Series, theirs: Series) -> float | None:
    a, b = (distinct(series.values[np.isfinite(series.values)]) for series in (ours, theirs))
    few, many = (a, b) if len(a) <= len(b) else (b, a)
    if len(few) < TELLING:
        return None
    at = np.clip(np.searchsorted(many, few), 1, len(many) - 1)
    nearest = np.where(np.abs(many[at] - few) < np.abs(many[at - 1] - few), many[at], many[at - 1])
    return float(_equal(few, nearest, ours, theirs).mean())
