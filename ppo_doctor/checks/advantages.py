"""Statistics of advantages: whether they differ from zero and carry a signal."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.mismatch import of_episodes
from ppo_doctor.model.arrays import beside, finite_of, median, quantile
from ppo_doctor.model.run import SINGLE, Fact

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import Series

#: Rewards in fewer records than this say nothing about their variation.
LEAST = 5
#: Trainers whose logged advantages are whitened: of size 1, or exactly 0. Three printed decimals tell which.
WHITENED, TELLS = ("verl",), 0.005
#: Spreads that are zero exactly when every advantage is zero, the most direct first.
DIRECT = ("advantages_abs_max", "advantages_raw_std", "advantages_std")


def advantage_spread(view: RunView) -> Series | None:
    """Return a series that is 0 exactly where every advantage of the record's batch is zero.

    With groups it is the share of groups whose rewards differ; else the spread of the advantages themselves; for
    group methods without either, the spread of rewards.
    """
    series = view.run.series
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
    direct = next((series[name] for name in DIRECT if name in series), None) or _from_extremes(view)
    if direct is None and view.run.algorithm in ("grpo", "rloo"):
        direct = _of_rewards(view)
    return direct and dataclasses.replace(direct, name="advantage_spread", how="computed")


def advantages_in_loss(view: RunView) -> Series | None:
    """Return a series that is 0 exactly where every advantage is zero as the loss takes them.

    What groups or raw advantages show may be lost before: by a mask, or by whitening minibatches of one.
    """
    series = view.run.series
    direct = series.get("advantages_abs_max") or series.get("advantages_std") or _from_extremes(view)
    return direct and dataclasses.replace(direct, name="advantages_in_loss", how="computed")


def _of_rewards(view: RunView) -> Series | None:
    """Return the spread of rewards; that of equal ones is 0 up to the rounding of their mean."""
    series = view.run.series
    spread, mean = series.get("reward_group_std") or series.get("reward_std"), series.get("reward_mean")
    if spread is None or mean is None:
        return spread
    least = SINGLE * float(np.abs(finite_of(mean.values)).max(initial=0.0))
    return dataclasses.replace(spread, resolution=dataclasses.replace(spread.resolution, rounding=least))


def _from_extremes(view: RunView) -> Series | None:
    """Return the larger of |smallest| and |largest advantage|, as verl logs them: 0 only if every advantage is 0."""
    high = view.run.series.get("advantages_max")
    low = beside(high, view.run.series.get("advantages_min"))
    if low is None or high is None:
        return None
    values = np.maximum(np.abs(low.values), np.abs(high.values))
    coarser = max((low.resolution, high.resolution), key=lambda resolution: resolution.absolute)
    if coarser.absolute <= TELLS and view.run.framework in WHITENED:
        coarser = dataclasses.replace(coarser, absolute=0.0)
    raw = f"{low.raw}, {high.raw}"
    return dataclasses.replace(high, name="advantage_spread", raw=raw, values=values, resolution=coarser)


#: Records that a statement about a whole run needs.
ADVANTAGE_SIGNS_LEAST = 20
#: Entropy that moves by less than this share of its start stands still.
STILL = 0.05
#: KL below which the number format's noise is of one size as well (nats).
NOISE = 1e-6


def steady_kl_spread(view: RunView) -> Fact | None:
    """Return the ninth over the first decile of the KL per update, where entropy stands still; 100 where it moves.

    Steps along a gradient grow and shrink with advantages and distance; noise of a fixed size moves the policy by the
    same KL each time, and leads nowhere. None below 1e-6 nats, where number formats do that, and in control tasks: a
    policy that has got as far as it gets, or was resumed there, goes on by steps of one size.
    """
    kl, entropy = view.run.series.get("approx_kl"), view.run.series.get("entropy")
    if kl is None or entropy is None or of_episodes(view):
        return None
    moved, free = (finite_of(s.values) for s in (kl, entropy))
    if (
        len(moved) < ADVANTAGE_SIGNS_LEAST
        or len(free) < ADVANTAGE_SIGNS_LEAST
        or median(moved) <= NOISE
        or not quantile(moved, 0.1) > 0
    ):
        return None
    low, high = quantile(moved, 0.1), quantile(moved, 0.9)
    still = abs(median(free[-(len(free) // 5) :]) - free[0]) <= STILL * abs(free[0])
    says = f"{kl.raw} lies between {low:.3g} and {high:.3g} in four of five records"
    value = high / low if still else 100.0
    return Fact(name="steady_kl_spread", value=value, how="computed", unit="times", source=kl.source(), says=says)
