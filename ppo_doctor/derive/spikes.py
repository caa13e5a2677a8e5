"""What a gradient spike leaves behind in the optimizer."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_of
from ppo_doctor.derive.counters import shows_each_step
from ppo_doctor.derive.onset import spikes
from ppo_doctor.derive.optimizer import ZERO_IS_OFF
from ppo_doctor.derive.steps import RARE, SPIKE
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray, Series

#: Rollout batches on either side of a spike.
SIDE = 5
#: Steps that Adam remembers at its usual β₂, as records at most; fewest records of a run that tell a spike.
MEMORY, LEAST_NORMS = 1000, 12
#: What a configuration calls a clip that is off.
OFF = ("none", "null", "inf")
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
    told = [share for share in shares if np.isfinite(share)]
    if shares and not told:  # updates too small before it, or too few on a side: nothing is known
        return None
    value = min(told, default=1.0)
    says = f"{moved.raw} falls to {value:.2g} of what it was before an isolated spike of {grad.raw}"
    return Fact(
        name="steps_after_spike", value=value, how="computed", unit="of before", source=moved.source(), says=says
    )


def unclipped_spike(observations: Observations) -> Fact | None:
    """Return how many times larger than usual the largest isolated gradient is that reaches the optimizer; 0: none.

    Usual is what Adam remembers: the root mean square of the norms before it, which a policy that has lost its signal
    still holds of earlier times. Norms are taken after the configured clip. A clip at None, and at 0 in trainers that
    switch it off so, clips nothing. None where no such setting is known.
    """
    grad, limit = observations.run.series.get("grad_norm"), _clip(observations)
    if grad is None or limit is None:
        return None
    norms = np.minimum(grad.values[np.isfinite(grad.values) & (grad.values > 0)], limit)
    if len(norms) < LEAST_NORMS:
        return None
    alone = spikes(norms, SPIKE).astype(np.int64)
    if not len(alone) and not shows_each_step(observations, grad):
        return None
    times = [float(norms[at] / _remembered(norms[max(0, at - MEMORY) : at])) for at in alone.tolist() if at >= SIDE]
    value = max(times, default=0.0) if len(alone) <= RARE * len(norms) else 0.0
    says = f"the largest isolated {grad.raw} that no clip bounds is {value:.3g} times the root mean square before it"
    return Fact(name="unclipped_spike", value=value, how="computed", unit="times", source=grad.source(), says=says)


def unclipped_cliff(observations: Observations) -> Fact | None:
    """Return the sharpest lasting fall of the updates' KL where the configuration says that no gradient is clipped.

    None where gradients are clipped, or where nothing says so: then a fall has other reasons.
    """
    limit, fall = _clip(observations), observations.fact("movement_cliff")
    if fall is None or limit is None or math.isfinite(limit):
        return None
    return dataclasses.replace(fall, name="unclipped_cliff", says=f"{fall.says}; no gradient is clipped")


def _remembered(norms: FloatArray) -> float:
    """Return the root of the mean square: what Adam divides by."""
    return float(np.sqrt(np.mean(np.square(norms))))


def _clip(observations: Observations) -> float | None:
    """Return the norm that gradients are clipped at, infinite where the configuration says that none is."""
    setting = observations.run.config.get("max_grad_norm")
    if setting is None or "grad_norm_after_clipping" in observations.run.facts:
        return None
    limit = observations.number("max_grad_norm")
    if limit is None:
        return math.inf if str(setting.value).lower() in OFF else None
    return math.inf if limit == 0 and observations.run.framework.startswith(ZERO_IS_OFF) else limit


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
    finite = finite_of(values)
    return float(finite.mean()) if len(finite) else float("nan")
