"""What changes between two records, far into a run: the learning rate upwards, the entropy to nothing."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ppo_doctor.arrays import finite_of, median, scatter_of
from ppo_doctor.derive.onset import reward_series, thinned
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray, Series

#: Warm-ups and first updates are over after this share of a run.
BEGUN = 0.2
#: Fewest records of a run; records before a fall, and at least after it; share of a run that has to follow it.
FEWEST, BEFORE, AFTER, REST = 20, 8, 6, 0.05
#: How long a fall may take, in records and as a share of a run.
WITHIN, WITHIN_SHARE = 2, 1 / 60
#: Records before a leap that tell the reward it met.
NEAR = 10
#: Share of what follows that may be back up.
BACK = 0.2


def learning_rate_leap(observations: Observations) -> Fact | None:
    """Return the largest learning rate, from a fifth of the run on, over the largest before it; 1 at least.

    Schedules climb while they warm up, and restart at most where they began. None for a rate that follows the KL.
    """
    rate = observations.run.series.get("learning_rate")
    if rate is None or observations.series("controller_idle") is not None:
        return None
    values = finite_of(rate.values)
    if len(values) < FEWEST or not values[: int(BEGUN * len(values))].max() > 0:
        return None
    at, before = _leap(values)
    value = max(1.0, float(values[at]) / before)
    says = f"{rate.raw} goes up to {values[at]:.3g}, and was at most {before:.3g} before"
    return Fact(name="learning_rate_leap", value=value, how="computed", unit="times", source=rate.source(), says=says)


def _leap(rates: FloatArray) -> tuple[int, float]:
    """Return the place of the largest rate over all before it, from a fifth of the run on, and the largest before."""
    before = np.maximum.accumulate(rates)[:-1]
    first = int(BEGUN * len(rates)) - 1
    at = first + int(np.argmax(rates[1:][first:] / before[first:]))
    return at + 1, float(before[at])


def reward_lost_to_leap(observations: Observations) -> Fact | None:
    """Return by how many scatters the reward lies lower after the learning rate's largest leap than before it.

    Medians of ten records before and of all records after; scatter from the differences of neighbours, of which a
    series of running means has little: a hundredth of the reward's range at least. 0 where the rate does not leap.
    """
    leap, rate = observations.fact("learning_rate_leap"), observations.run.series.get("learning_rate")
    reward = reward_series(observations)
    if leap is None or rate is None or reward is None or not isinstance(leap.value, float):
        return None
    steps, values = thinned(reward)
    cut = int(np.searchsorted(steps, _leaps_at(rate))) if leap.value > 1 else 0
    before, after = values[max(0, cut - NEAR) : cut], values[cut:]
    fell = median(before) - median(after) if min(len(before), len(after)) >= AFTER else 0.0
    scatter = max(scatter_of(values) / np.sqrt(2), 0.01 * float(np.ptp(values)), 1e-12)
    says = f"{reward.raw} lies {fell:.3g} lower after the leap of {rate.raw} than before, its scatter is {scatter:.2g}"
    value = max(0.0, fell / scatter)
    return Fact(
        name="reward_lost_to_leap", value=value, how="computed", unit="scatters", source=reward.source(), says=says
    )


def leap_step(observations: Observations) -> int | None:
    """Return the step from which the learning rate is the one that it leapt to; None where it is not logged."""
    rate = observations.run.series.get("learning_rate")
    return None if rate is None or observations.fact("learning_rate_leap") is None else int(_leaps_at(rate))


def _leaps_at(rate: Series) -> float:
    """Return the step of the record with the largest learning rate over all before it."""
    finite = np.isfinite(rate.values)
    return float(rate.axis.steps[finite][_leap(rate.values[finite])[0]])


def entropy_left_at_once(observations: Observations) -> Fact | None:
    """Return the share of entropy that the steepest lasting fall leaves, from a fifth of the run on; 1 where none is.

    What four in five later records stay below, over the least of eight records before, two records apart (or a
    sixtieth of the run). None where entropy is not above 0, as for narrow Gaussians.
    """
    entropy = observations.run.series.get("entropy")
    if entropy is None:
        return None
    steps, values = thinned(entropy)  # the tail of each record is sorted: a long run by its medians
    count = len(values)
    if count < FEWEST or not values[: int(BEGUN * count)].min() > 0:
        return None
    skip = max(WITHIN, int(WITHIN_SHARE * count))
    last = count - skip - max(AFTER, int(REST * count))
    first = max(BEFORE, int(BEGUN * count))
    kept = _stays_below(np.abs(values), first + skip, last + skip)
    least = sliding_window_view(values, BEFORE).min(axis=1)[first - BEFORE : last - BEFORE].tolist()
    shares = [(high / low, at) for at, high, low in zip(range(first, last), kept, least, strict=True) if low > 0]
    value, at = min(shares, default=(1.0, 0))
    says = f"{entropy.raw} falls to {value:.2g} of what it was, within {skip} records from step {steps[at]:.0f} on"
    source = entropy.source()
    return Fact(name="entropy_left_at_once", value=min(1.0, value), how="computed", source=source, says=says)


def _stays_below(values: FloatArray, first: int, last: int) -> list[float]:
    """Return, for each record from `first` up to `last`, what four in five of it and all later ones stay below.

    From the end on each record takes its place among those after it: a sort for each took a twentieth of a diagnosis.
    """
    held, found = np.sort(values[last:]).tolist(), []
    for value in reversed(values[first:last].tolist()):
        insort(held, value)
        at = (1 - BACK) * (len(held) - 1)
        low = int(at)
        found.append(held[low] + (at - low) * (held[min(low + 1, len(held) - 1)] - held[low]))
    return found[::-1]
