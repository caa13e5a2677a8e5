"""Start, end, trend and scatter of a series; entropy and reward of a run; constructors of facts; three-valued logic."""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, SupportsInt

import numpy as np

from ppo_doctor.checks.statistics import once, statistic
from ppo_doctor.model.arrays import GAUSSIAN_ENTROPY, distinct, finite_of, mean_of, median, parts, ranks, span_medians
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.run import CONDITION, SINGLE, Fact, Series

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import Axis, BoolArray, FloatArray, IntArray, Setting, SourceRef
    from ppo_doctor.model.words import How

#: Number of means over equal spans of records by which a long series is represented.
BLOCKS = 24
#: Fewest values of a `Course`.
FEWEST = 4
#: Share of the residuals of a straight line that counts as scatter: the rest may be curvature.
CURVED = 0.7
#: Resolution, as a share of the largest value, above which a printed 0 may be another number.
COARSE = 0.01
#: Scatter that stands for 0 in divisions.
SMALLEST = 1e-300
#: Median of |difference| → deviation of single values, for Gaussian noise.
GAUSSIAN = 1.4826 / math.sqrt(2)


@frozen
class Course:
    """Means of the first two and the last quarter of the blocks, scatter of one block, change in standard errors."""

    start: float
    end: float
    scatter: float
    change: float


@once
def entropy_of(view: RunView) -> Series | None:
    """Return the entropy in nats, else its term in the loss over the first one, else the entropy by `action_std`.

    A term that begins near 0, as a density's may, is not used. A Gaussian's entropy is ln(σ √(2πe)) per dimension.
    """
    series, term = view.logged("entropy"), view.logged("entropy_loss")
    if series is not None:
        return series
    start = float(finite(term)[0]) if term is not None else 0.0
    if term is not None and abs(start) >= max(0.5 * np.abs(finite(term)).max(), 10 * term.resolution.least):
        share, coarse = term.values / start, term.resolution.scaled(1 / start)
        return replace(term, values=share, resolution=coarse, raw=f"{term.raw} over its first")
    deviation = view.logged("action_std")
    if deviation is None or not (finite(deviation) > 0).all():
        return None
    coarse = deviation.resolution.scaled(1 / float(finite(deviation).min()))
    nats = np.log(np.maximum(deviation.values, SMALLEST)) + GAUSSIAN_ENTROPY
    return replace(deviation, values=nats, resolution=coarse, raw=f"entropy by {deviation.raw}")


def discrete(view: RunView) -> bool:
    """Return whether the entropy is known to be that of a choice, which has a zero; a density's has none."""
    return view.kind.facet("actions").value == "discrete"


def dimensions(series: Series) -> float | None:
    """Return the action dimensions over which a density's entropy is summed; None if its first value does not show it.

    Most policies start with deviations near 1, whose entropy is 1.42 nats for each dimension.
    """
    if series.name == "action_std":  # a mean over dimensions
        return 1.0
    values = finite(series)
    count = round(float(values[0]) / GAUSSIAN_ENTROPY) if len(values) else 0
    return float(count) if count >= 1 else None


@lru_cache(maxsize=16)  # two hundred times in a run, of fifteen series
def finite(series: Series) -> FloatArray:
    """Return the finite values of a series, with 0 for those within the rounding of their computation.

    They may be the array of the series, so do not write to the result.
    """
    return finite_of(series.settled)


def blocks(values: FloatArray) -> FloatArray:
    """Return the means of a long series over equal spans of records; a short series as it is."""
    if len(values) <= 2 * BLOCKS:
        return values
    return np.array([mean_of(part) for part in parts(values, BLOCKS)])


@lru_cache(maxsize=4)  # three statistics use that of the reward, two that of the entropy
def course_of(series: Series) -> Course | None:
    """Return the course of the finite values of a series; None if it has fewer than four."""
    return course(finite(series))


def course(values: FloatArray) -> Course | None:
    """Return the start, end and scatter of values; None if they are fewer than four."""
    means = blocks(values)
    size = len(means)
    if size < FEWEST:
        return None
    late = max(2, size // 4)
    start, end = float(means[:2].mean()), float(means[-late:].mean())
    line = _line(means)
    steps = float(median(np.abs(np.diff(means)))) * GAUSSIAN
    least = max(1e-12 * float(np.abs(means).max()), SMALLEST)
    scatter = max(steps, CURVED * float(np.std(means - line)), least)
    return Course(start=start, end=end, scatter=steps, change=(end - start) / (scatter * math.sqrt(1 / 2 + 1 / late)))


def _line(values: FloatArray) -> FloatArray:
    """Return the straight line of least squares through values at equal distances.

    It has the numbers of `np.polynomial.Polynomial.fit`, whose import takes a fiftieth of a short diagnosis.
    """
    size = len(values)
    places, scaled, norms = _straight(size)
    level, slope = np.linalg.lstsq(scaled, values, rcond=size * sys.float_info.epsilon)[0] / norms
    line: FloatArray = level + slope * places
    return line


@lru_cache(maxsize=2 * BLOCKS)
def _straight(size: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return places from -1 to 1, the columns of a straight line over them divided by their norms, and the norms."""
    rows = np.stack((np.ones(size), 2 / (size - 1) * np.arange(size) - 1))
    norms = np.sqrt(np.square(rows).sum(axis=1))
    return rows[1], rows.T / norms, norms


def on_average(raw: str, start: float, end: float) -> str:
    """Return a sentence with the means that a course starts and ends with."""
    return f"{raw} goes from {start:.4g} at first to {end:.4g} in the last quarter, on average"


def drift(values: FloatArray) -> float:
    """Return by how many standard errors neighbours are more alike than in scatter about one mean.

    Von Neumann 1941: for scatter the mean squared difference of neighbours is twice the variance, within 2/√n.
    """
    spread = float(np.square(values - values.mean()).sum())
    ratio = float(np.square(np.diff(values)).sum()) / spread if spread else 2.0
    return (2 - ratio) * math.sqrt(len(values)) / 2


def zero_share(series: Series | None, fewest: int = 1) -> float | None:
    """Return the share of finite records that are exactly 0; None if the log prints too coarsely to show it."""
    if series is None:
        return None
    values = finite(series)
    zeros = values == 0
    coarse = series.resolution.absolute > COARSE * float(np.abs(values).max()) if len(values) else True
    if len(values) < fewest or (coarse and bool(zeros.any()) and series.resolution.absolute > 0):
        return None
    return float(zeros.mean())


def constant(values: FloatArray) -> bool:
    """Return whether all values are one number, up to two units of float32."""
    return bool(np.all(np.abs(values - values[0]) <= SINGLE * abs(values[0])))


def late(values: FloatArray, fewest: int = 3) -> FloatArray:
    """Return the last quarter of a series, and at least `fewest` records."""
    return values[-max(fewest, len(values) // 4) :]


def early(values: FloatArray, fewest: int = 2) -> FloatArray:
    """Return the first fifth of a series, and at least `fewest` records."""
    return values[: max(fewest, len(values) // 5)]


class Placed(Protocol):
    """Anything with a place in a file: a setting, a note, another fact."""

    @property
    def source(self) -> SourceRef | None:
        """Return the place."""


def fact(
    value: float | str,
    of: Series | Placed | None,
    says: str = "",
    unit: str = "",
    *,
    at: int = 0,
    since: SupportsInt | None = None,
    how: How = "computed",
    name: str = "",
) -> Fact:
    """Return a statistic with the place of `of`: of a series, that of record `at`.

    `since` is the step from which on it applies. Without `name` a statistic takes the name that it is registered under.
    """
    value = value if isinstance(value, str | int) else float(value)
    onset = None if since is None else int(since)
    return Fact(name=name, value=value, how=how, source=_place(of, at), says=says, unit=unit, since=onset)


def _place(of: Series | Placed | None, at: int = 0) -> SourceRef | None:
    return None if of is None else of.source(at) if isinstance(of, Series) else of.source


def fact_since(value: float, series: Series, at: int, says: str, unit: str = "") -> Fact:
    """Return a statistic that applies from record `at` on, with the place and the step of that record."""
    return fact(value, series, says, unit, at=at, since=series.axis.steps[at])


def recorded(view: RunView, *names: str) -> list[Series]:
    """Return the series of those metrics that have records, finite or not, in the order of `names`."""
    return [series for name in names if (series := view.run.series.get(name)) is not None and len(series)]


def configured(setting: Setting, value: float, unit: str = "") -> Fact:
    """Return a numeric setting as a statistic, with its place."""
    return fact(value, setting, f"{setting.key} = {value:g}", unit, how="configured")


def condition(holds: bool | None, of: Series | Placed | None, says: str, *, how: How = "computed") -> Fact | None:
    """Return a statistic of 1 if `holds`, 0 if not; None if that is unknown."""
    if holds is None:
        return None
    return Fact(name="", value=float(holds), how=how, source=_place(of), says=says, unit=CONDITION, denied=not holds)


def generation_starts(view: RunView, series: Series | None) -> BoolArray | None:
    """Return which records of a series begin a generation; None if nearly every one does, or if it is unknown.

    A marker before the first record of the series is written before the steps on its batch, otherwise with the first of
    them. Only trainers with a known generation marker are considered: others log rewards as episodes end.
    """
    marker = view.run.series.get("reward_mean")
    if "generation_marker" not in view.run.facts:
        return None
    if series is None or marker is None or not len(series) or not len(marker):
        return None
    steps, marks = series.axis.steps, marker.axis.steps
    begins = np.isin(steps, marks)
    if marks[0] < steps[0]:
        begins = np.isin(np.arange(len(steps)), np.searchsorted(steps, marks, side="right"))
    return begins if begins.sum() >= 3 and (~begins).sum() >= 0.8 * begins.sum() else None


def paired(one: Series, other: Series) -> tuple[FloatArray, FloatArray]:
    """Return the finite values that two series have at the same steps."""
    _, at, place = np.intersect1d(one.axis.steps, other.axis.steps, return_indices=True)
    left, right = one.values[at], other.values[place]
    known = np.isfinite(left) & np.isfinite(right)
    return left[known], right[known]


def all_known(*answers: bool | None) -> bool | None:
    """Return whether all known answers are yes; None if none is known."""
    known = [answer for answer in answers if answer is not None]
    return all(known) if known else None


def any_known(*answers: bool | None) -> bool | None:
    """Return whether any known answer is yes; None if none is known."""
    known = [answer for answer in answers if answer is not None]
    return any(known) if known else None


def both(*answers: bool | None) -> bool | None:
    """Return the logical AND of all answers in three-valued logic (Kleene): unknown unless one answer is no."""
    if False in answers:
        return False
    return None if None in answers else True


#: Fewest records of a `Stretch`.
SHORTEST = 4
#: Records above which a series is represented by half as many medians over equal spans of steps.
POINTS = 400


@frozen
class Stretch:
    """Median of records [first, stop), and their scatter around it."""

    first: int
    stop: int
    level: float
    scatter: float

    def __len__(self) -> int:
        return self.stop - self.first


def _independence(values: FloatArray, at: int) -> float:
    """Return the share of independent records: (1 - ρ)/(1 + ρ), never above 1.

    ρ is the correlation of neighbouring ranks on either side, around their running mean, so that a trend does not
    count.
    """
    rest = np.concatenate([_residual(ranks(side)) for side in (values[:at], values[at:])])
    power = float(np.dot(rest, rest))
    rho = float(np.dot(rest[:-1], rest[1:])) / power if power > 0 else 0.0
    rho = min(max(rho, 0.0), 0.9)
    return (1 - rho) / (1 + rho)


def _residual(values: FloatArray) -> FloatArray:
    """Return values minus their running mean over a tenth of them."""
    width = min(len(values), max(5, len(values) // 10))
    return values - np.convolve(values, np.ones(width), "same") / _within(len(values), width)


@lru_cache(maxsize=64)  # runs of a sweep have sides of equal lengths
def _within(size: int, width: int) -> FloatArray:
    """Return the number of records in the running mean at each record."""
    return np.convolve(np.ones(size), np.ones(width), "same")


def _stretch(values: FloatArray, first: int, stop: int) -> Stretch:
    part = values[first:stop]
    level = median(part)
    return Stretch(first=first, stop=stop, level=level, scatter=1.4826 * median(np.abs(part - level)))


@lru_cache(maxsize=4)  # ten statistics use the reward
def thinned(series: Series) -> tuple[FloatArray, FloatArray]:
    """Return the steps and values of a series' finite records; for a long series, medians over equal spans of steps.

    Spans are equal in steps, since a log with a record per episode has most of its records where episodes are short.
    """
    known = np.isfinite(series.values)
    whole = bool(known.all())
    values = series.values if whole else series.values[known]
    steps, bounds = _spans_of(series.axis) if whole else _spans(series.axis.steps[known])
    return steps, values if bounds is None else span_medians(values, bounds)


@lru_cache(maxsize=2)  # most series of a run share one axis
def _spans_of(axis: Axis) -> tuple[FloatArray, IntArray | None]:
    return _spans(axis.steps)


def _spans(logged: IntArray) -> tuple[FloatArray, IntArray | None]:
    """Return the first steps of equal spans of a long series, and their bounds; all steps and None for a short one."""
    steps = logged.astype(np.float64)
    if len(steps) <= POINTS:
        return steps, None
    edges = np.searchsorted(steps, np.linspace(steps[0], steps[-1], POINTS // 2 + 1)[:-1])
    if len(distinct(edges)) < 3 * SHORTEST:  # one step far from the others leaves these in a single span
        edges = np.arange(POINTS // 2) * len(steps) // (POINTS // 2)
    bounds = distinct(np.append(edges, len(steps)))
    return steps[bounds[:-1]], bounds


def reward_series(view: RunView) -> Series | None:
    """Return the reward of the run: episode returns, the rollout's mean reward, else evaluations."""
    return view.logged("episode_return", "reward_mean", "eval_return", fewest=3 * SHORTEST)


@statistic("episode_return", "reward_mean")
def reward_gain(view: RunView) -> Fact | None:
    """Return the reward's last third minus its first, in standard errors of their medians; negative if it fell.

    Source: median test, standard error 1.2533·σ/√n with σ from the median absolute deviation. Only independent records
    count.
    """
    series = reward_series(view)
    if series is None:
        return None
    _, values = thinned(series)
    third = len(values) // 3
    first, last = _stretch(values, 0, third), _stretch(values, len(values) - third, len(values))
    both = np.concatenate([values[:third], values[-third:]])
    spread = max(first.scatter, last.scatter, 1e-9 * max(1.0, float(np.abs(values).max())))
    error = 1.2533 * spread * np.sqrt(2 / (third * _independence(both, third)))
    says = f"{series.raw} went from {first.level:.4g} (first third) to {last.level:.4g} (last third)"
    return fact((last.level - first.level) / error, series, says, "standard errors")


def condition_series(series: Series, name: str, values: FloatArray, says: str) -> Series:
    """Return a condition on the records of a series, of shape [records]; `says` is the sentence of a 1."""
    return dataclasses.replace(series, name=name, values=values, unit=CONDITION, how="computed", says=says)
