"""Reward level and trend, evaluation returns, groups with equal rewards, parts of the reward, and success rate."""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.mismatch import of_episodes
from ppo_doctor.checks.outcome import outcome
from ppo_doctor.checks.rewards import AT_FIRST, RISES, does_not_rise, passes
from ppo_doctor.checks.series import course_of, fact, finite, on_average, thinned
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model.arrays import (
    beside,
    finite_of,
    finite_parts,
    mean_of,
    median,
    parts,
    running_medians,
    scatter_of,
    variance_of,
)
from ppo_doctor.model.evidence import way
from ppo_doctor.model.run import Fact

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import FloatArray, Series

#: Fewest records per third, or block, that tell a trend from noise.
LEAST = 6
#: Parts of a run whose mean rewards are compared.
BLOCKS = 6
#: Rewards in order of preference: of an episode, of a sample, of evaluation.
REWARDS = ("episode_return", "reward_mean", "eval_return")
#: Fewest records of groups per median.
FEWEST = 3


def logged_reward(view: RunView) -> Series | None:
    """Return the reward that best shows what the policy earns; None if none has enough finite values."""
    return view.logged(*REWARDS, fewest=LEAST)


@statistic("reward_mean", "episode_return")
def reward_level(view: RunView) -> Series | None:
    """Return the reward between its floor (0) and its ceiling (1), per record.

    Bounds are seldom logged. The floor is the lowest value, at most 0; the ceiling is the highest, at least 0, and 1 if
    all mean rewards lie in [0, 1], as those of a verifier do.
    """
    reward = logged_reward(view)
    if reward is None:
        return None
    floor, ceiling = _bounds(view, reward)
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


@statistic("reward_mean", "episode_return")
def reward_ceiling_level(view: RunView) -> Series | None:
    """Return the reward's level if its ceiling means something, else 0: the best of a flat run is no ceiling.

    It does for scores within [0, 1], and for a reward that rose from below 0.6 of its range.
    """
    reward, level = logged_reward(view), view.series("reward_level")
    if reward is None or level is None:
        return None
    floor, ceiling = _bounds(view, reward)
    blocks = reward_blocks(level)
    known = reward.name == "reward_mean" and (floor, ceiling) == (0.0, 1.0)
    rose = blocks is not None and blocks[0] < 0.6
    values = level.values if known or rose else level.values * 0.0
    return dataclasses.replace(level, name="reward_ceiling_level", values=values)


def _bounds(view: RunView, reward: Series) -> tuple[float, float]:
    """Return the floor and the ceiling of the reward; see `reward_level`."""
    logged = [finite_of(reward.values)]
    if reward.name == "reward_mean":
        extremes = (view.run.series.get(name) for name in ("reward_min", "reward_max"))
        logged += [finite_of(s.values) for s in extremes if s is not None]
    values = np.concatenate(logged)
    floor, ceiling = min(0.0, float(values.min())), max(0.0, float(values.max()))
    unit = reward.name == "reward_mean" and floor == 0 and ceiling <= 1
    return floor, 1.0 if unit else ceiling


@statistic("reward_mean", "episode_return")
def reward_trend(view: RunView) -> Fact | None:
    """Return how far the reward moved from the first to the last third of the run, in standard errors, with its sign.

    Neighbouring records of a moving average are alike, so each third counts as n·(1 - r)/(1 + r) records, with r the
    correlation of neighbours (Bartlett 1946). None for the later part of a run: moving averages over a hundred
    episodes, and episodes longer than a rollout, go on rising there for what was learned before.
    """
    reward = logged_reward(view) if "continues" not in view.run.facts else None
    values = finite_of(reward.values) if reward is not None else np.empty(0)
    third = len(values) // 3
    if reward is None or third < LEAST:
        return None
    first, last = values[:third], values[-third:]
    gap = mean_of(last) - mean_of(first)
    floor = reward.resolution.absolute + 1e-9 * float(np.abs(values).max())
    error = math.hypot(math.sqrt(_variance_of_mean(first) + _variance_of_mean(last)), floor)
    z = (gap / error if math.isfinite(error) else math.nan) if error else 0.0  # the squares may overflow
    says = f"{reward.raw} went from {mean_of(first):.4g} to {mean_of(last):.4g}"
    return fact(z, reward, says, "standard errors")


def _variance_of_mean(values: FloatArray) -> float:
    """Return the variance of the mean of correlated records."""
    spread = variance_of(values, ddof=1)
    if spread == 0:
        return 0.0
    centred = values - mean_of(values)
    repeat = float((centred[1:] * centred[:-1]).sum() / (centred**2).sum())
    effective = len(values) * (1 - max(repeat, 0.0)) / (1 + max(repeat, 0.0))
    return spread / max(effective, 2.0)


@lru_cache(maxsize=4)  # five statistics use it
def reward_blocks(series: Series) -> tuple[float, ...] | None:
    """Return the means of sixths of a run; of a long log by steps, since most of its records are short episodes."""
    _, values = thinned(series)
    if len(values) < BLOCKS * 3:
        return None
    return tuple(map(mean_of, parts(values, BLOCKS)))


@statistic("frac_reward_zero_std")
def flat_share(view: RunView) -> Fact | None:
    """Return the share of groups with equal rewards: the lower of the medians of the two halves of the run.

    A sound run starts with groups that differ and ends with flat ones; unsuitable prompts are flat throughout.
    """
    flat = view.run.series.get("frac_reward_zero_std")
    known = finite_of(flat.values) if flat is not None else np.empty(0)
    if flat is None or len(known) < FEWEST:
        return None
    first, last = (median(half) for half in parts(known, 2))
    says = f"medians of the halves of the run: {first:.3g} and {last:.3g}"
    return fact(min(first, last), flat, says, "of groups", how="observed")


@statistic("frac_reward_zero_std")
def flat_share_late(view: RunView) -> Fact | None:
    """Return the median share of groups with equal rewards over the last quarter of the run."""
    flat = view.run.series.get("frac_reward_zero_std")
    known = finite_of(flat.values) if flat is not None else np.empty(0)
    if flat is None or len(known) < 4 * FEWEST:
        return None
    quarters = [median(quarter) for quarter in parts(known, 4)]
    says = f"{flat.raw} is {quarters[-1]:.3g} in the last quarter, {quarters[0]:.3g} in the first"
    return fact(quarters[-1], flat, says, "of groups", how="observed")


#: Fewest evaluations and records of training whose trends are compared.
EVALUATIONS, GOAL_LEAST = 8, 30
#: Scatters of a single record by which a lower level differs.
SCATTERS = 3.0
#: Prefix of parts of the reward, and words in the names of those for format and accuracy.
PART = "reward_component."
FORMAT, ACCURACY = ("format", "xml", "tag"), ("accuracy", "correct", "answer", "exact", "math")


@statistic("eval_return+reward_mean", "eval_return+episode_return")
def evaluation_lost(view: RunView) -> Fact | None:
    """Return the share of the evaluation's gain that is lost at the end although the training reward rose; else 0.

    The best evaluation is that of the running median of three. The ones after it have to be three scatters below it,
    and the training reward's median over the last part above that around the best. If the evaluation never gained, or
    is lost for good, the lost share of its best is returned. In control tasks only that counts: the greedy policy is
    evaluated by the same reward, and has ups and downs of its own.
    """
    evaluated = view.logged("eval_return", fewest=EVALUATIONS)
    reward = view.logged("episode_return", "reward_mean", fewest=GOAL_LEAST)
    if evaluated is None:
        return None
    if (gone := _gone(view)) is not None:
        return gone
    if reward is None or of_episodes(view):
        return None
    keep = np.isfinite(evaluated.values)
    steps, values = evaluated.axis.steps[keep].astype(np.float64), evaluated.values[keep]
    ends = [median(values[:2]), median(values[-2:])]
    smooth = np.concatenate([ends[:1], running_medians(values, 3), ends[1:]])
    best = int(np.argmax(smooth[: -max(2, len(values) // 6)]))
    gained, lost = smooth[best] - smooth[0], smooth[best] - median(values[-max(3, len(values) // 6) :])
    scatter = scatter_of(values) / math.sqrt(2)
    rose = _rise(reward, steps[best])
    falls = gained > SCATTERS * scatter and lost > SCATTERS * scatter and rose > SCATTERS
    says = (
        f"{evaluated.raw} went from {smooth[0]:.3g} to {smooth[best]:.3g} and back to {smooth[best] - lost:.3g}; "
        f"{reward.raw} rose by {rose:.2g} scatters since"
    )
    value = float(lost / gained) if falls else 0.0
    return fact(value, evaluated, says, "of the gain", at=best)


def _gone(view: RunView) -> Fact | None:
    """Return the share of its best that an evaluation lost for good while the training reward rose."""
    training = outcome(view.run)
    evaluation = training.evaluation
    if evaluation is None or evaluation.what not in ("lost", "fell") or not training.sound or not evaluation.best:
        return None
    share = (evaluation.best - (evaluation.end or 0.0)) / abs(evaluation.best)
    says = f"{evaluation.key}: {way(evaluation)}; {training.key}: {way(training)}"
    return fact(share, evaluation, says, "of its best")


@statistic("eval_return+episode_return")
def evaluation_behind(view: RunView) -> Fact | None:
    """Return the share of the training return's gain that the evaluation of a control task reached."""
    training = outcome(view.run)
    evaluation = training.evaluation
    if evaluation is None or training.metric != "episode_return" or training.what not in ("learned", "levelled_off"):
        return None
    start, end, level = training.start, training.end, evaluation.end
    if start is None or end is None or level is None:
        return None
    if evaluation.records < EVALUATIONS or not of_episodes(view):
        return None
    says = f"{evaluation.key} ends at {level:.4g}, {training.key} goes from {start:.4g} to {end:.4g}"
    return fact((level - start) / (end - start), evaluation, says)


def _rise(reward: Series, since: float) -> float:
    """Return how many scatters the reward's last fifth is above the records around a step."""
    steps, values = thinned(reward)
    width = max(5, len(values) // 5)
    at = int(np.searchsorted(steps, since))
    around, last = values[max(0, at - width) : at + 1], values[-width:]
    scatter = scatter_of(values) / math.sqrt(2)
    return (median(last) - median(around)) / max(scatter, 1e-9 * max(1.0, float(np.abs(values).max())))


@statistic("ptx_loss")
def pretraining_loss_rise(view: RunView) -> Fact | None:
    """Return by which share the loss on pretraining text rose from the first to the last fifth of the run."""
    loss = view.run.series.get("ptx_loss")
    values = finite_of(loss.values) if loss is not None else np.empty(0)
    if loss is None or len(values) < GOAL_LEAST:
        return None
    fifth = len(values) // 5
    first, last = median(values[:fifth]), median(values[-fifth:])
    if first <= 0:
        return None
    says = f"{loss.raw} went from {first:.4g} to {last:.4g}"
    return fact(last / first - 1, loss, says, "of the start")


@statistic("reward_component")
def accuracy_since_format(view: RunView) -> Fact | None:
    """Return by how many standard errors accuracy rose since the format of answers was learned.

    Both are parts of the reward, found by their names. The format is learned once it reaches 95 % of its best after a
    start below 70 %. None if it was there from the start, if accuracy is solved, or with too few records since.
    """
    form = _part(view, FORMAT)
    right = beside(form, _part(view, ACCURACY))
    if form is None or right is None:
        return None
    usable = np.isfinite(form.values) & np.isfinite(right.values)
    level, accuracy = form.values[usable], right.values[usable]
    if len(level) < 2 * GOAL_LEAST or not level.max() > 0 or np.mean(level[: len(level) // 10]) > 0.7 * level.max():
        return None
    below = np.flatnonzero(np.convolve(level, np.ones(5) / 5, "valid") < 0.95 * level.max())
    since = accuracy[int(below[-1]) + 5 if len(below) else 0 :]
    if len(since) < GOAL_LEAST or median(since) > 0.9 * max(1.0, float(accuracy.max())):
        return None
    first, last = since[: len(since) // 3], since[-(len(since) // 3) :]
    error = math.sqrt((float(np.var(first)) + float(np.var(last))) / len(first) + 1e-12)
    says = f"{right.raw} went from {mean_of(first):.3g} to {mean_of(last):.3g} since {form.raw} was learnt"
    return fact((mean_of(last) - mean_of(first)) / error, right, says, "standard errors")


def _part(view: RunView, words: tuple[str, ...]) -> Series | None:
    """Return the part of the reward with one of these words in its name; of several, the one that is earned most."""
    series = view.run.series
    named = [n for n in series if n.startswith(PART) and any(word in n.lower() for word in words)]
    earned = [(mean_of(values), n) for n in named if len(values := finite_of(series[n].values))]
    return series[max(earned)[1]] if earned else None


#: Prefix of the deviation of a part of the reward.
PROMPTS_PART = "reward_component_std."


@statistic("reward_group_std+reward_component_std")
def answers_share(view: RunView) -> Fact | None:
    """Return the deviation of rewards within groups over that of the whole batch: the largest third's median.

    The variance of a batch is that within its groups plus that between them: a share s leaves 1 - s² to the prompts. It
    shrinks in sound runs as well while completions become alike, hence the largest. Trainers log the deviation over the
    batch per part of the reward, so the reward must have one part; None if it has several.
    """
    within = view.run.series.get("reward_group_std")
    whole = beside(within, _of_the_only_part(view))
    if within is None or whole is None:
        return None
    shares = within.values / np.where(whole.values > 0, whole.values, math.nan)
    thirds = finite_parts(shares, 3)
    if min(len(part) for part in thirds) < LEAST:
        return None
    levels = [median(part) for part in thirds]
    says = f"{within.raw} / {whole.raw} by thirds of the run: {', '.join(f'{level:.3g}' for level in levels)}"
    return fact(max(levels), within, says)


def _of_the_only_part(view: RunView) -> Series | None:
    """Return the deviation of the reward's only part; None if there is another number of parts."""
    parts = [series for name, series in view.run.series.items() if name.startswith(PROMPTS_PART)]
    return parts[0] if len(parts) == 1 else None


#: Size of a group if it is not known.
LEAST_GROUP = 4.0
#: Fewest records of a part of the reward that is always 0.
FEWEST_OF_PARTS = 8


@statistic("frac_reward_zero_std+entropy")
def groups_alike_at_first(view: RunView) -> Fact | None:
    """Return the share of groups with equal rewards at first, beyond what is due to chance; 0 if entropy is low.

    With a pass rate p, all G answers of a group earn the same by chance in p^G + (1 - p)^G of the groups.
    """
    series, entropy = view.logged("frac_reward_zero_std"), view.logged("entropy")
    if series is None or entropy is None or len(finite(series)) < AT_FIRST:
        return None
    equal_share = float(np.mean(finite(series)[:AT_FIRST]))
    chance = alike_by_chance(view)
    random_at_first = float(finite(entropy)[0]) > 0.3
    beyond = max(0.0, equal_share - chance) / max(1 - chance, 1e-9) if chance < 1 else 0.0
    says = f"{series.raw} is {equal_share:.2g} at first" + (f", {chance:.2g} by chance" if chance else "")
    return fact(beyond if random_at_first else 0.0, series, says)


def alike_by_chance(view: RunView) -> float:
    """Return the share of groups with equal rewards by chance at first; 0 if rewards are no pass rate."""
    parts = [s for name, s in view.run.series.items() if name.startswith(PART) and passes(s)]
    reward = view.logged("reward_mean")
    graded = next(iter(parts), reward if reward is not None and passes(reward) else None)
    if graded is None:
        return 0.0
    sizes = view.values("num_generations")
    size = view.given("num_generations") or (float(sizes[0]) if sizes is not None else LEAST_GROUP)
    rate = float(np.mean(finite(graded)[:AT_FIRST]))
    return float(rate**size + (1 - rate) ** size)


@statistic("reward_component")
def part_always_zero(view: RunView) -> Fact | None:
    """Return 2 if one of several parts of the reward is 0 in every record and the whole reward does not rise.

    1 if the reward rises; 0 if each part is paid at times, or none is.
    """
    parts = [one for name, one in view.run.series.items() if name.startswith(PART)]
    logged = [one for one in parts if len(finite(one)) >= FEWEST_OF_PARTS]
    if len(logged) < 2:
        return None
    never = [one for one in logged if not finite(one).any()]
    holds = bool(never) and len(never) < len(logged)
    first = never[0] if never else logged[0]
    names = ", ".join(one.raw for one in never)
    says = f"{names} {'is' if len(never) == 1 else 'are'} 0 in all {len(first)} records" if never else first.raw
    return fact(holds * (1 + does_not_rise(view)), first, says)


@statistic("success_rate+reward_mean", "success_rate+episode_return")
def success_lost(view: RunView) -> Fact | None:
    """Return the lost share of the first success rate while the reward rises; 0 if it is within scatter."""
    rate, rise = view.run.series.get("success_rate"), view.value("reward_course")
    ends = None if rate is None else course_of(rate)
    if rate is None or ends is None or rise is None:
        return None
    lost = 1 - ends.end / ends.start if ends.start > 0 else 0.0
    falls = ends.change < -RISES and rise > RISES
    return fact(lost if falls else 0.0, rate, on_average(rate.raw, ends.start, ends.end))
