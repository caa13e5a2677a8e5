"""Updates that become a fraction of what they were from one batch to the next, and stay so."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import median, quantile
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
    falls = sorted(((_fall(per_rate, at), at) for at in range(BEFORE, count - LEAST_AFTER)), reverse=True)
    lasting = (
        (fall, at) for fall, at in falls if _ceased_not(kl, at) and _entropy_left(entropy, steps, at) > ALIVE
    )  # the sharpest first: few are asked
    value, at = next(lasting, (1.0, 0))
    says = f"{size.raw} is {value:.3g} times smaller after step {steps[at]:.0f} than before, and stays so"
    return Fact(name="movement_cliff", value=max(1.0, value), how="computed", source=size.source(), says=says)


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


def _fall(values: FloatArray, at: int) -> float:
    before, after = values[at - BEFORE : at], values[at + 1 : at + 1 + AFTER]
    if not np.isfinite(before).all() or not np.isfinite(after).all():
        return 1.0
    return float(np.sort(before)[1] / max(quantile(after, 1 - ODD), 1e-300))


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
    before, after = before[np.isfinite(before)], after[np.isfinite(after)]
    if not len(before) or not len(after) or not median(before) > 0:
        return 1.0
    return median(after) / median(before)
