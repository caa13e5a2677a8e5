"""From which step on two runs' metrics part: further than either wanders by itself, and for good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.metrics import METRICS

if TYPE_CHECKING:
    from ppo_doctor.model import FloatArray, IntArray, Run

#: A gap counts beyond this many standard deviations of what both sides wander from record to record.
NOISES = 4.0
#: A gap below this share of the larger value is none, however quiet the metric.
LEAST_SHARE = 0.02
#: From the step of parting on, at least this share of the records has to be apart.
FOR_GOOD = 0.9
#: Fewer common records tell nothing.
LEAST_RECORDS = 5
#: Clocks and counters, which differ between any two runs.
_IDLE = frozenset(
    name
    for name in METRICS
    if name.startswith("time_") or name in ("fps", "mfu", "num_tokens", "env_steps", "iteration")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A metric that parts: from which step, and the median of each side from there on."""

    metric: str
    step: int
    a: float
    b: float


def divergences(a: Sequence[Run], b: Sequence[Run]) -> tuple[Divergence, ...]:
    """Return the metrics that part, in the order in which they do."""
    names = [name for name in METRICS if name not in _IDLE and _held(name, a) and _held(name, b)]
    found = [divergence for name in names if (divergence := _parting(name, a, b)) is not None]
    return tuple(sorted(found, key=lambda divergence: divergence.step))


def _held(name: str, runs: Sequence[Run]) -> bool:
    return all(name in run.series and len(run.series[name]) for run in runs)


def _parting(name: str, a: Sequence[Run], b: Sequence[Run]) -> Divergence | None:
    steps = _common_steps(name, [*a, *b])
    if len(steps) < LEAST_RECORDS:
        return None
    left, right = (np.stack([_at(run, name, steps) for run in side]) for side in (a, b))
    start = first_apart(left, right)
    if start is None:
        return None
    return Divergence(
        metric=name,
        step=int(steps[start]),
        a=float(np.nanmedian(left[:, start:])) if np.isfinite(left[:, start:]).any() else float("nan"),
        b=float(np.nanmedian(right[:, start:])) if np.isfinite(right[:, start:]).any() else float("nan"),
    )


def _common_steps(name: str, runs: Sequence[Run]) -> IntArray:
    """Return the steps that every run has; runs that count differently have few or none in common."""
    common = np.unique(runs[0].series[name].axis.steps)
    for run in runs[1:]:
        common = np.intersect1d(common, run.series[name].axis.steps)
    return common


def _at(run: Run, name: str, steps: IntArray) -> FloatArray:
    """Return the mean of a run's records at each step; a step of several minibatches has several."""
    series = run.series[name]
    keep = np.isin(series.axis.steps, steps)
    place = np.searchsorted(steps, series.axis.steps[keep])
    total = np.bincount(place, weights=series.values[keep], minlength=len(steps))
    size = np.bincount(place, minlength=len(steps))
    mean: FloatArray = total / size
    return mean


def first_apart(a: FloatArray, b: FloatArray) -> int | None:
    """Return the first record from which two sides (seeds × records) stay apart; finite against not counts as apart."""
    left, right = a.mean(axis=0), b.mean(axis=0)
    finite = np.isfinite(left) & np.isfinite(right)
    gap = np.abs(np.where(finite, left, 0.0) - np.where(finite, right, 0.0))
    smooth = _smoothed(gap)
    # A run without any noise, such as a schedule, still has the rounding of its numbers.
    scale = np.maximum(np.abs(np.where(finite, left, 0.0)), np.abs(np.where(finite, right, 0.0)))
    bound = np.maximum(NOISES * np.hypot(_noise(a), _noise(b)), LEAST_SHARE * scale)
    apart = (smooth > bound) & (gap > 0) | (np.isfinite(left) != np.isfinite(right))
    return _lasting(apart)


def _smoothed(values: FloatArray) -> FloatArray:
    """Return the running median over an odd window of a twentieth of the records."""
    half = len(values) // 40
    if not half:
        return values
    padded = np.pad(values, half, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1)
    median: FloatArray = np.median(windows, axis=1)
    return median


def _noise(side: FloatArray) -> float:
    """Return how far a side wanders: between records of a run, and between its seeds."""
    with np.errstate(invalid="ignore"):
        jumps = np.diff(side, axis=1)
    finite = jumps[np.isfinite(jumps)]
    wander = 1.4826 * float(np.median(np.abs(finite))) / np.sqrt(2.0) if finite.size else 0.0
    if len(side) < 2:
        return float(wander)
    spread = side.std(axis=0, ddof=1)
    spread = spread[np.isfinite(spread)]
    between = float(np.median(spread)) if spread.size else 0.0
    return float(np.hypot(wander, between) / np.sqrt(len(side)))


def _lasting(apart: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> int | None:
    """Return the first record that is apart and from which at least nine in ten are, with three or more to tell."""
    behind = np.cumsum(apart[::-1])[::-1] / np.arange(len(apart), 0, -1)
    starts = np.flatnonzero(apart & (behind >= FOR_GOOD))
    if not len(starts) or len(apart) - starts[0] < 3:
        return None
    return int(starts[0])
