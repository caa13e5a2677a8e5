"""Where does the reward stand between nothing and the most that was ever earned, and where is it heading?"""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_of, mean_of, median, parts, variance_of
from ppo_doctor.derive.onset import thinned
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray, Series

#: Records per third, or block, below which a trend cannot be told from noise.
LEAST = 6
#: Parts that a run is cut into to see the shape of its reward.
BLOCKS = 6
#: Records that tell where a reward began.
EARLIEST = 3
#: First records that lie this many times above the first sixth are the level that a reward fell from.
AT_ONCE = 1.5
#: Order of preference: what an episode earns, then what a sample earns, then evaluation.
REWARDS = ("episode_return", "reward_mean", "eval_return")
#: Records of groups from which on a median says something of a run.
FEWEST = 3


def logged_reward(observations: Observations) -> Series | None:
    """Return the series that tells best what the policy earns, None if none has enough finite values."""
    logged = (observations.run.series.get(name) for name in REWARDS)
    return next((s for s in logged if s is not None and np.isfinite(s.values).sum() >= LEAST), None)


def reward_level(observations: Observations) -> Series | None:
    """Return the reward between its floor (0) and its ceiling (1), per record.

    Bounds are seldom logged. The floor is the lowest value seen, 0 at most; the ceiling the highest, 0 at least, and 1
    where all mean rewards lie in [0, 1], as those of a verifier do.
    """
    reward = logged_reward(observations)
    if reward is None:
        return None
    floor, ceiling = _bounds(observations, reward)
    width = ceiling - floor
    values = (reward.values - floor) / width if width > 0 else reward.values * 0.0
    resolution = reward.resolution.scaled(1 / width) if width > 0 else reward.resolution
    return dataclasses.replace(
        reward,
        name="reward_level",
        values=values,
        resolution=resolution,
        unit="of the way from floor to ceiling",
        how="computed",
    )


def reward_ceiling_level(observations: Observations) -> Series | None:
    """Return the reward's level where its ceiling means something, else 0: the best of a flat run is no ceiling.

    It does for scores within [0, 1], and for a reward that rose from below 0.6 of the best that was seen.
    """
    reward, level = logged_reward(observations), observations.series("reward_level")
    if reward is None or level is None:
        return None
    floor, ceiling = _bounds(observations, reward)
    blocks = reward_blocks(level)
    known = reward.name == "reward_mean" and (floor, ceiling) == (0.0, 1.0)
    rose = blocks is not None and blocks[0] < 0.6
    values = level.values if known or rose else level.values * 0.0
    return dataclasses.replace(level, name="reward_ceiling_level", values=values)


def _bounds(observations: Observations, reward: Series) -> tuple[float, float]:
    seen = [finite_of(reward.values)]
    if reward.name == "reward_mean":
        extremes = (observations.run.series.get(name) for name in ("reward_min", "reward_max"))
        seen += [finite_of(s.values) for s in extremes if s is not None]
    everything = np.concatenate(seen)
    floor, ceiling = min(0.0, float(everything.min())), max(0.0, float(everything.max()))
    unit = reward.name == "reward_mean" and floor == 0 and ceiling <= 1
    return floor, 1.0 if unit else ceiling


def reward_trend(observations: Observations) -> Fact | None:
    """Return how far the reward moved from the first to the last third of the run, in standard errors, with its sign.

    Moving averages repeat themselves, so each third counts as n·(1 - r)/(1 + r) records, r its correlation with itself
    one record later (Bartlett 1946). None for the later part of a run: moving averages over a hundred episodes, and
    episodes that are longer than a rollout, go on rising there for what was learned before.
    """
    reward = logged_reward(observations) if "continues" not in observations.run.facts else None
    values = finite_of(reward.values) if reward is not None else np.empty(0)
    third = len(values) // 3
    if reward is None or third < LEAST:
        return None
    first, last = values[:third], values[-third:]
    gap = mean_of(last) - mean_of(first)
    floor = reward.resolution.absolute + 1e-9 * float(np.abs(values).max())
    error = math.hypot(math.sqrt(_variance_of_mean(first) + _variance_of_mean(last)), floor)
    z = (gap / error if math.isfinite(error) else math.nan) if error else 0.0  # squares that overflow tell nothing
    says = f"{reward.raw} went from {mean_of(first):.4g} to {mean_of(last):.4g}"
    return Fact(name="reward_trend", value=z, how="computed", unit="standard errors", source=reward.source(), says=says)


def _variance_of_mean(values: FloatArray) -> float:
    spread = variance_of(values, ddof=1)
    if spread == 0:
        return 0.0
    centred = values - mean_of(values)
    repeat = float((centred[1:] * centred[:-1]).sum() / (centred**2).sum())
    effective = len(values) * (1 - max(repeat, 0.0)) / (1 + max(repeat, 0.0))
    return spread / max(effective, 2.0)


@lru_cache(maxsize=4)  # as of `thinned`: five quantities ask
def reward_blocks(series: Series) -> tuple[float, ...] | None:
    """Return the means of sixths of a run; of a long log by steps, since short episodes leave most of its records."""
    _, values = thinned(series)
    if len(values) < BLOCKS * 3:
        return None
    return tuple(map(mean_of, parts(values, BLOCKS)))


def flat_share(observations: Observations) -> Fact | None:
    """Return the share of groups without any difference in reward: the lower median of the two halves of the run.

    A sound run starts with groups that differ and ends with flat ones; prompts that do not fit are flat throughout.
    """
    flat = observations.run.series.get("frac_reward_zero_std")
    known = finite_of(flat.values) if flat is not None else np.empty(0)
    if flat is None or len(known) < FEWEST:
        return None
    first, last = (median(half) for half in parts(known, 2))
    says = f"medians of the halves of the run: {first:.3g} and {last:.3g}"
    return Fact(
        name="flat_share", value=min(first, last), how="observed", unit="of groups", source=flat.source(), says=says
    )


def flat_share_late(observations: Observations) -> Fact | None:
    """Return the median share of groups without any difference in reward over the last quarter of the run."""
    flat = observations.run.series.get("frac_reward_zero_std")
    known = finite_of(flat.values) if flat is not None else np.empty(0)
    if flat is None or len(known) < 4 * FEWEST:
        return None
    quarters = [median(quarter) for quarter in parts(known, 4)]
    says = f"{flat.raw} is {quarters[-1]:.3g} in the last quarter, {quarters[0]:.3g} in the first"
    return Fact(
        name="flat_share_late", value=quarters[-1], how="observed", unit="of groups", source=flat.source(), says=says
    )
