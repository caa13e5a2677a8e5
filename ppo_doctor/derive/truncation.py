"""What do cut completions cost: does the reward survive them, and does it fall further than they explain?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import deviation_of, finite_of, mean_of, median
from ppo_doctor.derive.rewards import BLOCKS, logged_reward, reward_blocks
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray, Series

#: Records that the level at the start rests on, and the least of a run.
FIRST, LEAST = 6, 18
#: With fewer completions than this finished at the end cuts explain every loss.
FEW_FINISHED = 0.02
#: A gain is one that stands out from the scatter of single records by this many times.
CLEAR = 2.0


def gain_kept(observations: Observations) -> Fact | None:
    """Return the share of the reward's largest gain over its first sixth that is left at the end; 0 without a gain.

    A gain has to be twice the scatter of single records in the later half.
    """
    reward = logged_reward(observations)
    blocks = reward_blocks(reward) if reward is not None else None
    if reward is None or blocks is None:
        return None
    later = finite_of(reward.values)
    noise = CLEAR * deviation_of(later[len(later) // 2 :])
    gain = max(blocks) - blocks[0]
    kept = (blocks[-1] - blocks[0]) / gain if gain > noise else 0.0
    says = f"{reward.raw} by {BLOCKS} parts of the run: {', '.join(f'{b:.3g}' for b in blocks)}"
    return Fact(name="gain_kept", value=kept, how="computed", unit="of the gain", source=reward.source(), says=says)


def reward_beyond_cuts(observations: Observations) -> Fact | None:
    """Return the share of the reward that is left over the share of finished completions that is left, 1 at most.

    Cutting completions takes away what they would have earned, nothing of what the finished ones earn: for rewards that
    are never negative the reward falls in proportion at most. None for rewards below 0.
    """
    reward, cut = observations.run.series.get("reward_mean"), observations.run.series.get("truncated_fraction")
    if reward is None or cut is None or reward.axis is not cut.axis:
        return None
    known = np.isfinite(reward.values) & np.isfinite(cut.values)
    earned, finished = reward.values[known], 1 - cut.values[known]
    if len(earned) < LEAST or float(earned.min()) < 0:
        return None
    before, after = _ends(earned)
    whole, left = _ends(finished)
    if not before > 0 or not whole > FEW_FINISHED:
        return None
    value = (after / before) / (left / whole) if left > FEW_FINISHED else 1.0
    says = f"{reward.raw} went from {before:.3g} to {after:.3g}, finished completions from {whole:.3g} to {left:.3g}"
    return Fact(
        name="reward_beyond_cuts",
        value=min(1.0, value),
        how="computed",
        unit="of what cuts explain",
        source=reward.source(),
        says=says,
    )


def ended_share(observations: Observations) -> Series | None:
    """Return the end-of-sequence tokens per completion of a rollout, which completions that ended are at most.

    TRL counts them in the completions of one process, padding included where that is the same token. None where the
    size of a rollout is not known.
    """
    counted = observations.run.series.get("end_tokens")
    size = observations.number("local_rollout_size")
    if not size:
        size = (observations.number("rollout_size") or 0.0) / max(1.0, observations.number("num_ranks") or 1.0)
    if counted is None or size < 1:
        return None
    resolution = counted.resolution.scaled(1 / size)
    says = f"{counted.raw} / {size:g} completions"
    values = counted.values / size
    return replace(counted, name="ended_share", values=values, unit="per completion", resolution=resolution, says=says)


def _ends(values: FloatArray) -> tuple[float, float]:
    return mean_of(values[:FIRST]), median(values[-max(FIRST, len(values) // 5) :])
