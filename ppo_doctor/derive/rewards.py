"""Where does the reward stand between nothing and the most that was ever earned, and where is it heading?"""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import deviation_of, finite_of, mean_of, median, parts, same, variance_of
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
#: Entropy lost, as a share of the first, by a policy that has been taught what it does (policy-nearly-sure-of-worse).
SURE = 0.77
#: More records with numbers that are not finite than this share are no accident of the log.
FEW_BROKEN = 0.05
#: A rise by this many scatters of single records is no drift.
RISEN = 5
#: The fact of a run's later part that holds the peak of the whole.
PEAK_BEFORE = "reward_peak_of_the_whole"
#: Order of preference: what an episode earns, then what a sample earns, then evaluation.
REWARDS = ("episode_return", "reward_mean", "eval_return")


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


def reward_peak(observations: Observations) -> Fact | None:
    """Return the highest level that the reward held on average over a sixth of the run; of a later part, ever."""
    before = observations.run.facts.get(PEAK_BEFORE)
    if before is not None:  # the part has less to show: what was earned once can be earned
        return dataclasses.replace(before, name="reward_peak")
    level = observations.series("reward_level")
    blocks = reward_blocks(level) if level is not None else None
    if level is None or blocks is None:
        return None
    says = f"best of {BLOCKS} parts of the run"
    return Fact(
        name="reward_peak", value=max(blocks), how="computed", unit=level.unit, source=level.source(), says=says
    )


def reward_step(observations: Observations) -> Series | None:
    """Return |reward - reward one record earlier|; 0 over a stretch means that it cannot vary there."""
    reward = logged_reward(observations)
    if reward is None or not _own_records(reward):
        return None
    values = np.append(np.nan, np.abs(np.diff(reward.values)))
    values[1:][same(reward.values[1:], reward.values[:-1])] = 0.0
    coarse = reward.resolution.scaled(2)
    says = f"change of {reward.raw}"
    return dataclasses.replace(reward, name="reward_step", values=values, resolution=coarse, how="computed", says=says)


def _own_records(reward: Series) -> bool:
    """Tell whether a record is a batch: a return per finished episode repeats at its cap in any sound run."""
    return len(reward) < 2 or bool(np.all(np.diff(reward.axis.steps) > 0))


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


def reward_fall(observations: Observations) -> Fact | None:
    """Return the share of its first level that the reward loses, 0 unless it falls from the start and stays down.

    The run is cut into six parts: the first has to be the best, the second has lost a quarter of the loss, no later one
    may regain half of it, and the loss has to be twice the scatter of single records in the later half. A reward whose
    first records lie more than a quarter of the loss below its first part rose before it fell; where they lie half as
    high again above it, most of the loss came at once, and they are the first level. None for the later part of a run,
    which begins later.
    """
    reward = logged_reward(observations) if "continues" not in observations.run.facts else None
    blocks = reward_blocks(reward) if reward is not None else None
    if reward is None or blocks is None:
        return None
    _, finite = thinned(reward)
    earliest = mean_of(finite[: max(EARLIEST, len(finite) // 20)])
    first, rest = earliest if earliest > AT_ONCE * blocks[0] > 0 else blocks[0], blocks[1:]
    loss = first - min(rest)
    lowest = np.minimum.accumulate((first, *rest))
    regained = float(np.max(np.array(rest) - lowest[1:])) > 0.5 * loss or max(rest) > first - 0.25 * loss
    noise = first - blocks[-1] < 2 * deviation_of(finite[len(finite) // 2 :])
    rose = earliest < first - 0.25 * loss
    size = max(abs(first), abs(min(blocks)) if first <= 0 else 0.0)
    fall = (first - blocks[-1]) / size if size > 0 and not (regained or noise or rose) else 0.0
    says = f"{reward.raw} by sixths of the run: {', '.join(f'{b:.3g}' for b in blocks)}"
    return Fact(
        name="reward_fall",
        value=max(fall, 0.0),
        how="computed",
        unit="of the first level",
        source=reward.source(),
        says=says,
    )


def sharpening_loss(observations: Observations) -> Fact | None:
    """Return the share of its first entropy that the policy loses while the reward falls from the start, else 0."""
    entropy, fall = observations.run.series.get("entropy"), observations.fact("reward_fall")
    blocks = reward_blocks(entropy) if entropy is not None else None
    if entropy is None or blocks is None or fall is None or blocks[0] <= 0:
        return None
    falls = isinstance(fall.value, float) and fall.value > 0
    lost = max(0.0, 1 - blocks[-1] / blocks[0]) if falls else 0.0
    says = f"{entropy.raw} by sixths of the run: {', '.join(f'{b:.3g}' for b in blocks)}; {fall.says}"
    return Fact(
        name="sharpening_loss",
        value=lost,
        how="computed",
        unit="of the first entropy",
        source=entropy.source(),
        says=says,
    )


def gain_of_drift(observations: Observations) -> Fact | None:
    """Return the reward's gain in standard errors; its rise in scatters where it rose, in whichever sixth, by five.

    What rose far above the first records and fell afterwards was learnt. None where the policy has become sure of what
    earns less, and where numbers have stopped being finite.
    """
    gain, sharper, reward = observations.fact("reward_gain"), observations.fact("sharpening_loss"), None
    sure = sharper is not None and isinstance(sharper.value, float) and sharper.value >= SURE
    broken = observations.series("nonfinite_metrics")
    if broken is not None and mean_of(broken.values > 0) > FEW_BROKEN:
        return None
    if gain is not None and isinstance(gain.value, float) and not sure:
        reward = logged_reward(observations)
    blocks = reward_blocks(reward) if reward is not None else None
    if gain is None or reward is None or blocks is None or not isinstance(gain.value, float):
        return None
    _, finite = thinned(reward)
    earliest = mean_of(finite[: max(EARLIEST, len(finite) // 20)])
    scatter = max(deviation_of(finite[len(finite) // 2 :]), 1e-12)
    rise = (max(blocks) - earliest) / scatter
    return dataclasses.replace(gain, name="gain_of_drift", value=rise if rise > RISEN else gain.value)


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
    if flat is None or len(known) < 2 * LEAST:
        return None
    first, last = (median(half) for half in parts(known, 2))
    says = f"medians of the halves of the run: {first:.3g} and {last:.3g}"
    return Fact(
        name="flat_share", value=min(first, last), how="observed", unit="of groups", source=flat.source(), says=says
    )
