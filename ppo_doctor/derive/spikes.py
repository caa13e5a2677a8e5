"""What a gradient spike leaves behind in the optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.derive.onset import spikes
from ppo_doctor.derive.steps import RARE, SPIKE
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray, Series

#: Rollout batches on either side of a spike.
SIDE = 5
#: Movement before a spike below which a fall says nothing: KL in nats, share of clipped samples.
LEAST = {"kl_size": 1e-5, "clip_fraction": 2e-3}
#: A level is told from 0 from this many times the rounding of the log on.
ROUNDINGS = 10


def steps_after_spike(observations: Observations) -> Fact | None:
    """Return the smallest movement per batch after an isolated gradient spike over that before it; 1 without spikes.

    Adam divides by the root of a running mean of squared gradients whose memory is 1/(1 - β₂) = 1000 steps (Kingma and
    Ba 2015, section 2), so that a single gradient g times as large leaves steps at most about √1000/g of their size for
    hundreds of steps. Movement is the KL of an update, else the share of clipped samples; means over five batches.
    """
    grad = observations.run.series.get("grad_norm")
    moved = _movement(observations)
    if grad is None or moved is None or np.isfinite(grad.values).sum() < 12:
        return None
    keep = np.isfinite(grad.values) & (grad.values > 0)
    alone = spikes(grad.values[keep], SPIKE).astype(np.int64)
    at = grad.axis.steps[keep][alone] if len(alone) <= RARE * keep.sum() else grad.axis.steps[:0]
    width = SIDE * _records_per_batch(observations, moved)
    # What a log prints as 0 is no movement lost: the level before has to stand well above the last digit.
    least = max(LEAST[moved.name], ROUNDINGS * moved.resolution.absolute)
    shares = [_left(moved, least, int(step), width) for step in at.tolist()]
    value = min((share for share in shares if np.isfinite(share)), default=1.0)
    says = f"{moved.raw} falls to {value:.2g} of what it was before an isolated spike of {grad.raw}"
    return Fact(name="steps_after_spike", value=value, how="computed", source=moved.source(), says=says)


def _movement(observations: Observations) -> Series | None:
    found = observations.series("kl_size") or observations.run.series.get("clip_fraction")
    return found if found is not None and len(found) >= 4 * SIDE else None


def _records_per_batch(observations: Observations, moved: Series) -> int:
    """Trainers that log each optimizer step log rewards once per batch."""
    reward = observations.run.series.get("reward_mean")
    return max(1, round(len(moved) / len(reward))) if reward is not None and len(reward) >= SIDE else 1


def _left(moved: Series, least: float, step: int, width: int) -> float:
    """Return the mean of `width` records after a step over that of as many before it, without those of its batch."""
    cut = int(np.searchsorted(moved.axis.steps, step))
    skip = width // SIDE
    before = moved.values[max(0, cut - width) : cut]
    after = moved.values[cut + skip : cut + skip + width]
    if len(before) < width or len(after) < width or not _mean(before) > least:
        return float("nan")
    return _mean(after) / _mean(before)


def _mean(values: FloatArray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")
