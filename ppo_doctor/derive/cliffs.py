"""Updates that become a fraction of what they were from one batch to the next, and stay so."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ppo_doctor.arrays import finite_of, median, quantile, running_quantiles
from ppo_doctor.derive.onset import reward_series
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray, Series

#: Rollout batches before the fall, and after it: Adam's memory of a gradient is 1000 steps, some tens of batches.
BEFORE, AFTER, LEAST_AFTER = 5, 20, 15
#: One odd batch in five may be small before; one in five large after.
ODD = 0.2
#: Entropy that is left after the fall: a policy that has become sure of itself moves little however large its steps.
ALIVE = 0.7
#: Most batches that are looked at one by one; of a longer run each is several.
MOST = 400
#: KL (nats) below which updates have ceased rather than shrunk.
CEASED = 1e-9


def movement_cliff(observations: Observations) -> Fact | None:
    """Return how many times larger the KL of updates was before the sharpest fall that lasts; 1 where there is none.

    The second smallest KL of five batches against the KL that four in five of the next twenty stay below, both over
    the square of the learning rate, to which KL is proportional. Falls to nothing, and falls with the entropy, are 1.
    """
    size, entropy = observations.series("kl_size"), observations.run.series.get("entropy")
    if size is None or entropy is None:
        return None
    width = max(_records_per_batch(observations, size), math.ceil(len(size) / MOST))
    count = len(size) // width
    if count < BEFORE + 1 + LEAST_AFTER:
        return None
    steps = size.axis.steps[: count * width : width].astype(np.float64)
    kl = size.values[: count * width].reshape(count, width).mean(axis=1)
    per_rate = kl / np.square(_rate(observations, steps))
    falls = _falls(per_rate)
    ordered = np.lexsort((np.arange(len(falls)), falls))[::-1]  # the sharpest first, of equal ones the latest
    lasting = (
        (float(falls[place]), at)
        for place in ordered.tolist()
        if _ceased_not(kl, at := place + BEFORE) and _entropy_left(entropy, steps, at) > ALIVE
    )  # few are asked
    value, at = next(lasting, (1.0, 0))
    says = f"{size.raw} is {value:.3g} times smaller after step {steps[at]:.0f} than before, and stays so"
    return Fact(
        name="movement_cliff", value=max(1.0, value), how="computed", unit="times", source=size.source(), says=says
    )


def _records_per_batch(observations: Observations, size: Series) -> int:
    """Trainers that log each optimizer step log rewards once per batch."""
    reward = reward_series(observations)
    return max(1, round(len(size) / len(reward))) if reward is not None and len(reward) else 1


def _rate(observations: Observations, steps: FloatArray) -> FloatArray:
    """Return the learning rate at each step over its largest; 1 where it is not logged."""
    rate = observations.run.series.get("learning_rate")
    known = np.isfinite(rate.values) & (rate.values > 0) if rate is not None else np.zeros(0, dtype=bool)
    if rate is None or not known.any():
        return np.ones(len(steps))
    values: FloatArray = np.interp(steps, rate.axis.steps[known], rate.values[known])
    shares: FloatArray = values / values.max()
    return shares


def _falls(values: FloatArray) -> FloatArray:
    """Return the fall at each batch that has enough before and after it; 1 where one of those is not finite."""
    count = len(values) - BEFORE - LEAST_AFTER
    known = np.isfinite(values)
    sound = values if known.all() else np.where(known, values, 0.0)
    before = np.sort(sliding_window_view(sound, BEFORE), axis=1)[:count, 1]
    whole = max(0, count + LEAST_AFTER - AFTER)  # from there on fewer than AFTER batches are left
    later = sound[BEFORE + 1 :]
    ends = [quantile(later[place : place + AFTER], 1 - ODD) for place in range(whole, count)]
    after = np.concatenate([running_quantiles(later, AFTER, 1 - ODD)[:whole] if whole else [], ends])
    falls: FloatArray = before / np.maximum(after, 1e-300)
    if sound is not values:
        for place in range(count):
            first = place + BEFORE
            if not (known[place:first].all() and known[first + 1 : first + 1 + AFTER].all()):
                falls[place] = 1.0
    return falls


def _ceased_not(kl: FloatArray, at: int) -> bool:
    after = kl[at + 1 : at + 1 + AFTER]
    return bool(np.isfinite(after).all()) and median(after) > CEASED


def _entropy_left(entropy: Series, steps: FloatArray, at: int) -> float:
    """Return the median entropy of the batches after over that of the batches before."""
    end = steps[min(at + AFTER, len(steps) - 1)]
    held = entropy.axis.steps
    begins, ends = np.searchsorted(held, [steps[at - BEFORE], steps[at]])
    later, last = np.searchsorted(held, [steps[at], end], side="right")
    before, after = entropy.values[begins:ends], entropy.values[later:last]
    before, after = finite_of(before), finite_of(after)
    if not len(before) or not len(after) or not median(before) > 0:
        return 1.0
    return median(after) / median(before)
