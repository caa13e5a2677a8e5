"""How a series goes: where it starts, where it ends, and whether that is more than its scatter."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ppo_doctor.arrays import median
from ppo_doctor.model import CONDITION, NOT_SO, SINGLE, Fact
from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from ppo_doctor.model import BoolArray, FloatArray, Run, Series
    from ppo_doctor.model.kinds import SampleKind

#: Longer series are read as this many means over equal spans of records.
BLOCKS = 24
#: Fewest values of which a course is told.
FEWEST = 4
#: Share of a straight line's residuals that counts as scatter: what is curved is no noise.
CURVED = 0.7
#: What is rounded to this part of the largest value is 0 for all purposes where it prints 0.
COARSE = 0.01
#: Scatter of a series that is 0 throughout.
SMALLEST = 1e-300
#: Entropy in nats of a Gaussian with a deviation of 1.
GAUSSIAN_ENTROPY = 0.5 * math.log(2 * math.pi * math.e)
#: Median of |difference| → deviation of single values, for Gaussian noise.
GAUSSIAN = 1.4826 / math.sqrt(2)


class Observations(Protocol):
    """A run with what is derived from it, each once: `derive.Observations`, which knows the signals by name."""

    run: Run

    @property
    def kind(self) -> SampleKind:
        """Return what kind of run it is."""

    def fact(self, name: str) -> Fact | None:
        """Return a fact of the run or a derived one."""

    def series(self, name: str) -> Series | None:
        """Return a metric of the run or a derived one."""

    def number(self, name: str) -> float | None:
        """Return a setting as a number."""

    def configured(self, name: str) -> bool:
        """Tell whether a setting was found, rather than taken from defaults."""


@frozen
class Course:
    """Means of the first and of the last blocks, the scatter of one block, and the change over its own error."""

    start: float
    end: float
    scatter: float
    change: float


def values_of(observations: Observations, *names: str) -> FloatArray | None:
    """Return the finite values of the first of some metrics that has any, shape [records]."""
    series = series_of(observations, *names)
    return None if series is None else finite(series)


def series_of(observations: Observations, *names: str) -> Series | None:
    """Return the first of some metrics that has a finite value."""
    logged = (observations.run.series.get(name) for name in names)
    return next((each for each in logged if each is not None and bool(np.isfinite(each.values).any())), None)


def entropy_of(observations: Observations) -> Series | None:
    """Return the entropy in nats, else its term in the loss as a share of the first one, else that of a deviation.

    A term that begins near to 0 tells nothing, as a density's may. A Gaussian's entropy is ln(σ √(2πe)) per dimension.
    """
    series, term = series_of(observations, "entropy"), series_of(observations, "entropy_loss")
    if series is not None:
        return series
    start = float(finite(term)[0]) if term is not None else 0.0
    if term is not None and abs(start) >= max(0.5 * np.abs(finite(term)).max(), 10 * term.resolution.least):
        share, coarse = term.values / start, term.resolution.scaled(1 / start)
        return replace(term, values=share, resolution=coarse, raw=f"{term.raw} over its first")
    deviation = series_of(observations, "action_std")
    if deviation is None or not (finite(deviation) > 0).all():
        return None
    coarse = deviation.resolution.scaled(1 / float(finite(deviation).min()))
    nats = np.log(np.maximum(deviation.values, SMALLEST)) + GAUSSIAN_ENTROPY
    return replace(deviation, values=nats, resolution=coarse, raw=f"entropy by {deviation.raw}")


def discrete(observations: Observations) -> bool:
    """Tell whether the entropy is that of a choice, which has a zero; what nobody knows may be a density's."""
    return observations.kind.facet("actions").value == "discrete"


def dimensions(series: Series) -> float | None:
    """Return of how many action dimensions a density's entropy is the sum; None where the first one does not tell.

    Most policies start with deviations near 1, whose entropy is 1.42 nats for each dimension.
    """
    if series.name == "action_std":  # a mean over dimensions
        return 1.0
    values = finite(series)
    count = round(float(values[0]) / GAUSSIAN_ENTROPY) if len(values) else 0
    return float(count) if count >= 1 else None


def finite(series: Series) -> FloatArray:
    """Return the finite values of a series, 0 wherever they are 0 up to what computing them can resolve."""
    values = series.settled
    return values[np.isfinite(values)]


def blocks(values: FloatArray) -> FloatArray:
    """Return a long series as the means of equal spans of it."""
    if len(values) <= 2 * BLOCKS:
        return values
    return np.array([part.mean() for part in np.array_split(values, BLOCKS)])


def course(values: FloatArray) -> Course | None:
    """Return how a series goes, None where it has fewer than four values."""
    means = blocks(values)
    size = len(means)
    if size < FEWEST:
        return None
    late = max(2, size // 4)
    start, end = float(means[:2].mean()), float(means[-late:].mean())
    places = np.arange(size)
    line = np.polynomial.Polynomial.fit(places, means, 1)(places)
    steps = float(median(np.abs(np.diff(means)))) * GAUSSIAN
    least = max(1e-12 * float(np.abs(means).max()), SMALLEST)
    scatter = max(steps, CURVED * float(np.std(means - line)), least)
    return Course(start=start, end=end, scatter=steps, change=(end - start) / (scatter * math.sqrt(1 / 2 + 1 / late)))


def on_average(raw: str, start: float, end: float) -> str:
    """Return the means that a course starts and ends with, told so that nobody looks for them in one record."""
    return f"{raw} goes from {start:.4g} at first to {end:.4g} in the last quarter, on average"


def drift(values: FloatArray) -> float:
    """Return by how many standard errors neighbours are more alike than in scatter about one mean.

    Von Neumann 1941: of scatter the mean squared difference of neighbours is twice the variance, give or take 2/√n.
    """
    spread = float(np.square(values - values.mean()).sum())
    ratio = float(np.square(np.diff(values)).sum()) / spread if spread else 2.0
    return (2 - ratio) * math.sqrt(len(values)) / 2


def zero_share(series: Series | None, fewest: int = 1) -> float | None:
    """Return the share of finite records that are exactly 0; None where a 0 may be one in print only."""
    if series is None:
        return None
    values = finite(series)
    zeros = values == 0
    coarse = series.resolution.absolute > COARSE * float(np.abs(values).max()) if len(values) else True
    if len(values) < fewest or (coarse and bool(zeros.any()) and series.resolution.absolute > 0):
        return None
    return float(zeros.mean())


def constant(values: FloatArray) -> bool:
    """Tell whether all values are one number, up to two units of float32."""
    return bool(np.all(np.abs(values - values[0]) <= SINGLE * abs(values[0])))


def late(values: FloatArray, fewest: int = 3) -> FloatArray:
    """Return the last quarter of a series, and at least a few records."""
    return values[-max(fewest, len(values) // 4) :]


def early(values: FloatArray, fewest: int = 2) -> FloatArray:
    """Return the first fifth of a series, and at least a few records."""
    return values[: max(fewest, len(values) // 5)]


def fact(name: str, value: float, series: Series | None, says: str, unit: str = "") -> Fact:
    """Return a computed number with the place of the metric that it is told of."""
    source = None if series is None else series.source()
    return Fact(name=name, value=float(value), how="computed", source=source, says=says, unit=unit)


def condition(name: str, holds: bool | None, series: Series | None, says: str) -> Fact | None:
    """Return 1 where something is so and 0 where not; None where nobody can tell."""
    return None if holds is None else fact(name, float(holds), series, says if holds else f"{NOT_SO}{says}", CONDITION)


def given(observations: Observations, name: str) -> float | None:
    """Return a setting that was found, as a number; None for what only a default says."""
    return observations.number(name) if observations.configured(name) else None


def told_of(observations: Observations, *names: str) -> str:
    """Return what some facts say, of those that are known."""
    return "; ".join(
        str(found.says).removeprefix(NOT_SO) for found in map(observations.fact, names) if found is not None
    )


def generation_starts(observations: Observations, series: Series | None) -> BoolArray | None:
    """Return which records of a series begin a generation; None where that is nearly every one, or unknown.

    A marker that comes before the first of them is written before the steps on its batch, else with the first one. A
    trainer of agents logs rewards as episodes end, which begins nothing.
    """
    marker = observations.run.series.get("reward_mean")
    if "generation_marker" not in observations.run.facts:
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
    _, at, beside = np.intersect1d(one.axis.steps, other.axis.steps, return_indices=True)
    left, right = one.values[at], other.values[beside]
    known = np.isfinite(left) & np.isfinite(right)
    return left[known], right[known]


def all_known(*answers: bool | None) -> bool | None:
    """Return whether all answers that are known are yes; None where none is known."""
    known = [answer for answer in answers if answer is not None]
    return all(known) if known else None


def any_known(*answers: bool | None) -> bool | None:
    """Return whether some answer that is known is yes; None where none is known."""
    known = [answer for answer in answers if answer is not None]
    return any(known) if known else None


def both(*answers: bool | None) -> bool | None:
    """Return Kleene's AND."""
    if False in answers:
        return False
    return None if None in answers else True


def value_of(found: Fact | None) -> float | None:
    """Return the number of a fact that may be unknown."""
    return None if found is None or not isinstance(found.value, int | float) else float(found.value)


def truth_of(found: Fact | None) -> bool | None:
    """Return a condition's answer."""
    return None if found is None else bool(found.value)
