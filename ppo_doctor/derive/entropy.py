"""Does the policy turn deterministic, or random?"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import median
from ppo_doctor.derive.onset import reward_series, thinned
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Series

#: Below this entropy at the start (nats) the policy began deterministic, as where one action is rare.
ALIVE = 0.15


def entropy_share(observations: Observations) -> Series | None:
    """Return entropy over its level at the start, per record; None where it starts near 0 or below.

    A differential entropy (a Gaussian policy) has no such scale once it is negative, so it is left out then.
    """
    entropy = observations.run.series.get("entropy")
    if entropy is None or len(entropy) < 12:
        return None
    finite = entropy.values[np.isfinite(entropy.values)]
    if len(finite) < 12 or float(finite.min()) < -1e-6:
        return None
    start = median(finite[: max(1, len(finite) // 50)])
    if start < ALIVE:
        return None
    resolution = dataclasses.replace(entropy.resolution, absolute=entropy.resolution.absolute / start)
    return dataclasses.replace(
        entropy, name="entropy_share", values=entropy.values / start, unit="", resolution=resolution, how="computed"
    )


def entropy_rise(observations: Observations) -> Fact | None:
    """Return the median entropy of the last tenth over that of the first half; 0 where it rose by less than 0.5 nats.

    Exploration returns by a few tenths in sound runs; a policy that runs off gains nats.
    """
    entropy = observations.run.series.get("entropy")
    if entropy is None:
        return None
    values = entropy.values[np.isfinite(entropy.values)]
    if len(values) < 20:
        return None
    early, late = median(values[: len(values) // 2]), median(values[-max(2, len(values) // 10) :])
    says = f"{entropy.raw} went from {early:.3g} (first half) to {late:.3g} (last tenth)"
    value = late / max(early, 0.05) if late - early >= 0.5 else 0.0
    return Fact(name="entropy_rise", value=value, how="computed", unit="times", source=entropy.source(), says=says)


def reward_after_entropy(observations: Observations) -> Fact | None:
    """Return the reward at the end over the best that the run had, from its start, once entropy fell below a tenth.

    1 means that the policy settled on the best it found. None where entropy never fell, or without rewards.
    """
    share, reward = observations.series("entropy_share"), reward_series(observations)
    if share is None or reward is None:
        return None
    low = np.flatnonzero(share.values < 0.1)
    if not len(low):
        return None
    begin = int(share.axis.steps[int(low[0])])
    steps, values = thinned(reward)
    after = values[steps >= begin]
    if len(after) < 4:
        return None
    return Fact(
        name="reward_after_entropy",
        value=float(_rise(after)),
        how="computed",
        unit="standard deviations",
        source=reward.source(),
        says=f"{reward.raw} after entropy fell below a tenth at step {begin}",
    )


def _rise(values: object) -> float:
    held = np.asarray(values, dtype=np.float64)
    third = max(1, len(held) // 3)
    spread = 1.4826 * median(np.abs(held - median(held)))
    return (median(held[-third:]) - median(held[:third])) / max(spread, 1e-9)


def solved_level(observations: Observations) -> Fact | None:
    """Return how much of the largest possible reward completions earn at the end, for rewards within 0 and 1.

    None for other scales: what is good cannot be told from an unknown scale.
    """
    reward, top = observations.run.series.get("reward_mean"), observations.run.series.get("reward_max")
    if reward is None or "frac_reward_zero_std" not in observations.run.series and top is None:
        return None
    _, values = thinned(reward)
    if len(values) < 12 or float(values.min()) < 0 or float(values.max()) > 1:
        return None
    level = median(values[-(len(values) // 3) :])
    says = f"{reward.raw} {level:.3g} of at most 1 over the last third"
    return Fact(name="solved_level", value=level, how="computed", source=reward.source(), says=says)
