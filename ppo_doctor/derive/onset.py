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

from ppo_doctor.arrays import distinct, median, quantile, ranks, running_medians, scatter_of, span_medians
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
#: The reward has collapsed when this share of what it had over its floor is gone …
FALLEN = 0.6
#: … after a stretch this long on which it held at least that share, and for at least this much of the run's end.
HEALTHY_SHARE, TAIL_SHARE = 0.1, 0.1
#: A run whose rewards can be negative shows its floor only if it rose from it by this many scatters.
SCATTERS = 3.0


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


@frozen
class Collapse:
    """A fall of the reward that lasts: index of its first record, and levels before, after and at the floor."""

    at: int
    before: float
    after: float
    floor: float

    @property
    def lost(self) -> float:
        """Return the share of the reward over its floor that is gone."""
        return (self.before - self.after) / (self.before - self.floor)


def find_collapse(values: FloatArray) -> Collapse | None:
    """Return the fall of a series from its best level to (nearly) its floor, if it lasts to the end.

    The change point is that of the part from the first healthy record on. The floor is where the run began, or 0 for a
    reward that is never negative and began high. A dip from which the series recovers is no collapse, and neither is a
    spike: nearly all records after it have to lie below nearly all of the healthy ones before it.
    """
    if len(values) < 3 * SHORTEST:
        return None
    best = _best(values)
    floor = _floor(values, median(values[: max(3, len(values) // 20)]), best)
    if floor is None or best <= floor:
        return None
    limit = best - FALLEN * (best - floor)
    first = int(np.argmax(values > limit))
    within, chance = split(values[first:])
    at = first + within
    if chance > SIGNIFICANCE or len(values) - at < max(SHORTEST, TAIL_SHARE * len(values)):
        return None
    before, after, end = values[:at], values[at:], values[-max(3, len(values) // 10) :]
    healthy = before[before > limit]
    if len(healthy) < max(SHORTEST, HEALTHY_SHARE * len(values)) or max(median(after), median(end)) > limit:
        return None
    if quantile(after, 0.75) >= quantile(healthy, 0.25):
        return None
    return Collapse(at=at, before=best, after=median(after), floor=floor)


def _best(values: FloatArray) -> float:
    """Return the largest running median."""
    width = max(5, len(values) // 12)
    return float(running_medians(values, width).max())


def _floor(values: FloatArray, start: float, best: float) -> float | None:
    """Return the level of a policy that is worth nothing, None where the run does not show one."""
    if float(values.min()) >= 0:
        return start if start < 0.5 * best else 0.0
    rise = best - start
    return start if rise > SCATTERS * scatter_of(values) else None


@lru_cache(maxsize=4)  # as of `thinned`: three quantities ask
def _collapse_of(series: Series) -> Collapse | None:
    return find_collapse(thinned(series)[1])


def reward_lost(observations: Observations) -> Fact | None:
    """Return the share of the reward (over its floor) that a lasting collapse took, 0 without one; says since when."""
    series = reward_series(observations)
    if series is None:
        return None
    steps, _ = thinned(series)
    found = _collapse_of(series)
    if found is None:
        return Fact(
            name="reward_lost",
            value=0.0,
            how="computed",
            unit="of the reward",
            source=series.source(),
            says="no lasting fall",
        )
    at = int(np.searchsorted(series.axis.steps, steps[found.at]))
    fell = f"{series.raw} fell from {found.before:.3g} to {found.after:.3g}"
    says = f"{fell} and stayed there from step {steps[found.at]:.0f}"
    return Fact(
        name="reward_lost",
        value=found.lost,
        how="computed",
        unit="of the reward",
        source=series.source(at),
        says=says,
        since=int(steps[found.at]),
    )


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
