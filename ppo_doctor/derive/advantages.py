"""Is there a signal: do advantages differ from zero?"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside, finite_of
from ppo_doctor.model import SINGLE

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Series

#: Rewards in fewer records than this say nothing about their variation.
LEAST = 5
#: Trainers whose logged advantages are whitened: of size 1, or exactly 0. Three printed decimals tell which.
WHITENED, TELLS = ("verl",), 0.005
#: Spreads that are zero exactly when every advantage is zero, the most direct first.
DIRECT = ("advantages_abs_max", "advantages_raw_std", "advantages_std")


def advantage_spread(observations: Observations) -> Series | None:
    """Return a series that is 0 exactly where every advantage of the record's batch is zero.

    With groups it is the share of groups whose rewards differ; else the spread of the advantages themselves; for
    group methods without either, the spread of rewards.
    """
    series = observations.run.series
    zero_groups = series.get("frac_reward_zero_std")
    if zero_groups is not None:
        return dataclasses.replace(
            zero_groups,
            name="advantage_spread",
            raw=f"1 - {zero_groups.raw}",
            values=1.0 - zero_groups.values,
            unit="fraction of groups",
            how="computed",
        )
    direct = next((series[name] for name in DIRECT if name in series), None) or _from_extremes(observations)
    if direct is None and observations.run.algorithm in ("grpo", "rloo"):
        direct = _of_rewards(observations)
    return direct and dataclasses.replace(direct, name="advantage_spread", how="computed")


def advantages_in_loss(observations: Observations) -> Series | None:
    """Return a series that is 0 exactly where every advantage is zero as the loss takes them.

    What groups or raw advantages show may be lost before: by a mask, or by whitening minibatches of one.
    """
    series = observations.run.series
    direct = series.get("advantages_abs_max") or series.get("advantages_std") or _from_extremes(observations)
    return direct and dataclasses.replace(direct, name="advantages_in_loss", how="computed")


def _of_rewards(observations: Observations) -> Series | None:
    """Return the spread of rewards; that of equal ones is 0 up to the rounding of their mean."""
    series = observations.run.series
    spread, mean = series.get("reward_group_std") or series.get("reward_std"), series.get("reward_mean")
    if spread is None or mean is None:
        return spread
    least = SINGLE * float(np.abs(finite_of(mean.values)).max(initial=0.0))
    return dataclasses.replace(spread, resolution=dataclasses.replace(spread.resolution, rounding=least))


def _from_extremes(observations: Observations) -> Series | None:
    """Return the larger of |smallest| and |largest advantage|, as verl logs them: 0 only if every advantage is 0."""
    high = observations.run.series.get("advantages_max")
    low = beside(high, observations.run.series.get("advantages_min"))
    if low is None or high is None:
        return None
    values = np.maximum(np.abs(low.values), np.abs(high.values))
    coarser = max((low.resolution, high.resolution), key=lambda resolution: resolution.absolute)
    if coarser.absolute <= TELLS and observations.run.framework in WHITENED:
        coarser = dataclasses.replace(coarser, absolute=0.0)
    raw = f"{low.raw}, {high.raw}"
    return dataclasses.replace(high, name="advantage_spread", raw=raw, values=values, resolution=coarser)
