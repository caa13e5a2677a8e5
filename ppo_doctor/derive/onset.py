"""When does something begin, and does it last? Change points, phases of the reward, spikes.

Change points are found by binary segmentation with Pettitt's rank test (A. N. Pettitt 1979, "A non-parametric approach
to the change-point problem", J. R. Stat. Soc. C 28): ranks bound what an outlier can do, and the significance has a
closed form, p ≈ 2·exp(-6·U²/(n³ + n²)). Autocorrelated records count as fewer: n is replaced by n·(1 - ρ)/(1 + ρ) in
the exponent, with ρ the lag-1 autocorrelation of what is left beside the split and slow trends (Yue and Wang 2004).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import distinct, median, ranks, span_medians
from ppo_doctor.model import Fact
from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Axis, FloatArray, IntArray, Series

#: Chance of a split in a stretch that has none.
SIGNIFICANCE = 1e-3
#: Shortest stretch, in records.
SHORTEST = 4
#: Longer series are read at half as many points: medians over equal spans of steps.
POINTS = 400


@frozen
class Stretch:
    """Records [first, stop) on one level: median, and the scatter around it."""

    first: int
    stop: int
    level: float
    scatter: float

    def __len__(self) -> int:
        return self.stop - self.first


def split(values: FloatArray) -> tuple[int, float]:
    """Return the most likely change point (index of the first record after it) and its significance p."""
    size = len(values)
    if size < 2 * SHORTEST:
        return 0, 1.0
    statistic = 2 * np.cumsum(ranks(values))[:-1] - np.arange(1, size) * (size + 1)
    inner = slice(SHORTEST - 1, size - SHORTEST)
    at = int(np.argmax(np.abs(statistic[inner]))) + SHORTEST
    exponent = 6 * float(statistic[at - 1]) ** 2 / (size**3 + size**2)
    return at, min(1.0, 2 * float(np.exp(-exponent * _independence(values, at))))


def _independence(values: FloatArray, at: int) -> float:
    """Return the share of independent records: (1 - ρ)/(1 + ρ), never above 1.

    ρ is that of the ranks on either side around their running mean, so that a trend does not pass for correlation.
    """
    rest = np.concatenate([_residual(ranks(side)) for side in (values[:at], values[at:])])
    power = float(np.dot(rest, rest))
    rho = float(np.dot(rest[:-1], rest[1:])) / power if power > 0 else 0.0
    rho = min(max(rho, 0.0), 0.9)
    return (1 - rho) / (1 + rho)


def _residual(values: FloatArray) -> FloatArray:
    width = min(len(values), max(5, len(values) // 10))
    return values - np.convolve(values, np.ones(width), "same") / _within(len(values), width)


@lru_cache(maxsize=64)  # of sides that are asked for again in the next run of a sweep
def _within(size: int, width: int) -> FloatArray:
    """Return of how many records the running mean at each record is."""
    return np.convolve(np.ones(size), np.ones(width), "same")


def _stretch(values: FloatArray, first: int, stop: int) -> Stretch:
    part = values[first:stop]
    level = median(part)
    return Stretch(first=first, stop=stop, level=level, scatter=1.4826 * median(np.abs(part - level)))


@lru_cache(maxsize=4)  # ten quantities ask for the reward
def thinned(series: Series) -> tuple[FloatArray, FloatArray]:
    """Return the steps and values of a series' finite records; of a long one, medians over equal spans of steps.

    A log with a record per episode has most of its records where episodes are short: steps are the fair scale.
    """
    known = np.isfinite(series.values)
    whole = bool(known.all())
    values = series.values if whole else series.values[known]
    steps, bounds = _spans_of(series.axis) if whole else _spans(series.axis.steps[known])
    return steps, values if bounds is None else span_medians(values, bounds)


@lru_cache(maxsize=2)  # most series of a run have one axis
def _spans_of(axis: Axis) -> tuple[FloatArray, IntArray | None]:
    return _spans(axis.steps)


def _spans(logged: IntArray) -> tuple[FloatArray, IntArray | None]:
    """Return the first steps of equal spans of a long series' steps, and their bounds; of a short one all steps."""
    steps = logged.astype(np.float64)
    if len(steps) <= POINTS:
        return steps, None
    edges = np.searchsorted(steps, np.linspace(steps[0], steps[-1], POINTS // 2 + 1)[:-1])
    if len(distinct(edges)) < 3 * SHORTEST:  # one step far from the others leaves these in a single span
        edges = np.arange(POINTS // 2) * len(steps) // (POINTS // 2)
    bounds = distinct(np.append(edges, len(steps)))
    return steps[bounds[:-1]], bounds


def reward_series(observations: Observations) -> Series | None:
    """Return what the run is rewarded with: episode returns, the rollout's mean reward, else evaluations."""
    for name in ("episode_return", "reward_mean", "eval_return"):
        series = observations.run.series.get(name)
        if series is not None and np.count_nonzero(np.isfinite(series.values)) >= 3 * SHORTEST:
            return series
    return None


def reward_gain(observations: Observations) -> Fact | None:
    """Return how far the reward's last third stands above its first, in standard errors of their medians.

    Negative: it fell. Source: median test, standard error 1.2533·σ/√n with σ from the median absolute deviation; only
    independent records count.
    """
    series = reward_series(observations)
    if series is None:
        return None
    _, values = thinned(series)
    third = len(values) // 3
    first, last = _stretch(values, 0, third), _stretch(values, len(values) - third, len(values))
    both = np.concatenate([values[:third], values[-third:]])
    spread = max(first.scatter, last.scatter, 1e-9 * max(1.0, float(np.abs(values).max())))
    error = 1.2533 * spread * np.sqrt(2 / (third * _independence(both, third)))
    says = f"{series.raw} went from {first.level:.4g} (first third) to {last.level:.4g} (last third)"
    return Fact(
        name="reward_gain",
        value=float((last.level - first.level) / error),
        how="computed",
        unit="standard errors",
        source=series.source(),
        says=says,
    )
