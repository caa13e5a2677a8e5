"""Statistics of rollouts: repeated batches, and lengths of completions."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.rewards import AT_FIRST, RISES, does_not_rise, passes
from ppo_doctor.checks.series import (
    both,
    condition,
    constant,
    course,
    entropy_of,
    fact,
    finite,
    late,
    on_average,
    paired,
)
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model.arrays import beside, correlation, finite_of, median
from ppo_doctor.model.run import Fact

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import FloatArray, Series

#: How the parts of a reward are named, and the size of a group where none is told.
PART, LEAST_GROUP = "reward_component.", 4.0
#: Records of a part of the reward from which on it says something that it is 0.
FEWEST_OF_PARTS = 8
#: What would not repeat if the rollout did not.
REPEATS = ("reward_repeats", "lengths_repeat", "explained_repeats")
#: Records after which a loss scaler has found its scale: it halves it in each of its first steps.
SEARCHED = 10
#: Correlation of their changes from which on two series are of one thing, in other digits or units.
ALIKE = 0.7
#: What DeepSpeed says where even the smallest scale overflows.
SMALLEST_SCALE = "loss scale already at minimum"


@statistic("loss+reward_mean")
def updates_per_reward(view: RunView) -> Fact | None:
    """Return how many optimizer steps are logged for each record with a reward, where it is logged per generation."""
    rewards = view.run.series.get("reward_mean")
    updates = view.logged("loss", "policy_loss", "entropy")
    if rewards is None or updates is None or len(rewards) == 0:
        return None
    per = len(updates) / len(rewards)
    return fact(per, rewards, f"{len(updates)} updates for {len(rewards)} records of {rewards.raw}")


@statistic("reward_mean")
def rewards_logged(view: RunView) -> Fact | None:
    """Return how many records have a reward."""
    rewards = view.run.series.get("reward_mean")
    return None if rewards is None else fact(len(rewards), rewards, f"{rewards.raw} stands in {len(rewards)} records")


@statistic("response_length+entropy")
def lengths_repeat(view: RunView) -> Fact | None:
    """Tell whether a mean length that is no whole number is the same in every record while the policy moves."""
    series = view.logged("response_length", fewest=4)
    if series is None:
        return None
    values = finite(series)
    same = constant(values) and abs(values[0] - round(float(values[0]))) > 1e-6
    holds = both(same, view.holds("policy_moves"))
    return condition(holds, series, f"{series.raw} is {values[0]:.6g} in every record")


@statistic("reward_mean+reward_std+entropy", "response_length+entropy", "explained_variance+value_loss")
def rollout_repeats(view: RunView) -> Fact | None:
    """Tell whether a mean over the rollout is the same in every record, of those that another rollout would change."""
    told = [found for name in REPEATS if (found := view.fact(name)) is not None]
    first = next((found for found in told if found.value), next(iter(told), None))
    return first and replace(first, name="rollout_repeats")


@statistic("response_length")
def length_kept(view: RunView) -> Fact | None:
    """Return the late over the first mean length of completions."""
    series = view.logged("response_length")
    if series is None or len(series) < 4:
        return None
    values = finite(series)
    kept = float(late(values, 2).mean() / max(float(values[:2].mean()), 1e-9))
    return fact(kept, series, f"{series.raw} goes from {values[:2].mean():.3g} to {late(values, 2).mean():.3g}")


@statistic("response_length")
def length_late(view: RunView) -> Fact | None:
    """Return the mean length of completions at the end, in tokens."""
    series = view.logged("response_length")
    if series is None or len(series) < 4:
        return None
    size = float(late(finite(series), 2).mean())
    return fact(size, series, f"{series.raw} is {size:.3g} at the end")


@statistic("reward_mean+response_length")
def reward_length_link(view: RunView) -> Fact | None:
    """Return the size of the correlation of reward and completion length over the records, and over their changes.

    Where the changes do not agree their correlation counts: two series that rise, or one jump, correlate without being
    the same. The largest change of the length is left out for that reason.
    """
    reward, lengths = view.run.series.get("reward_mean"), view.run.series.get("response_length")
    if reward is None or lengths is None:
        return None
    paid, sizes = paired(reward, lengths)
    if len(paid) < 6 or np.ptp(paid) == 0 or np.ptp(sizes) == 0:
        return None
    steps = np.diff(sizes)
    rest = np.arange(len(steps)) != np.argmax(np.abs(steps))
    changes = np.diff(paid)[rest], steps[rest]
    alike = abs(correlation(*changes)) if np.ptp(changes[0]) and np.ptp(changes[1]) else 0.0
    whole = abs(correlation(paid, sizes))
    says = f"{reward.raw} and {lengths.raw} correlate by {whole:.4f}, and from record to record by {alike:.4f}"
    return fact(whole if alike > ALIKE else min(whole, alike), reward, says)


@statistic("frac_reward_zero_std+entropy")
def groups_alike_at_first(view: RunView) -> Fact | None:
    """Return the share of groups with equal rewards at first beyond what chance makes so; 0 without entropy.

    With a pass rate p all G answers of a group earn alike by chance in p^G + (1 - p)^G of the groups.
    """
    series, entropy = view.logged("frac_reward_zero_std"), view.logged("entropy")
    if series is None or entropy is None or len(finite(series)) < AT_FIRST:
        return None
    alike = float(np.mean(finite(series)[:AT_FIRST]))
    chance = alike_by_chance(view)
    fresh = float(finite(entropy)[0]) > 0.3
    beyond = max(0.0, alike - chance) / max(1 - chance, 1e-9) if chance < 1 else 0.0
    says = f"{series.raw} is {alike:.2g} at first" + (f", {chance:.2g} by chance" if chance else "")
    return fact(beyond if fresh else 0.0, series, says)


def alike_by_chance(view: RunView) -> float:
    """Return the share of groups that earn alike by chance at first; 0 where rewards are no pass rate."""
    parts = [s for name, s in view.run.series.items() if name.startswith(PART) and passes(s)]
    reward = view.logged("reward_mean")
    graded = next(iter(parts), reward if reward is not None and passes(reward) else None)
    if graded is None:
        return 0.0
    size = view.given("num_generations") or _first(view, "num_generations") or LEAST_GROUP
    rate = float(np.mean(finite(graded)[:AT_FIRST]))
    return float(rate**size + (1 - rate) ** size)


def _first(view: RunView, name: str) -> float | None:
    """Return the first number of a metric."""
    values = view.values(name)
    return None if values is None else float(values[0])


@statistic("approx_kl", "reward_mean", "episode_return", "eval_return")
def first_pass_stops(view: RunView) -> Fact | None:
    """Return the share of updates that a console tells to have been stopped in their first pass; 0 if half went on."""
    told = next((note for note in view.run.notes if note.event == "stopped_early"), None)
    updates = max(map(len, view.run.series.values()), default=0)
    if told is None or not updates:
        return None
    count, soon = told.numbers
    return fact(min(1.0, count / updates) if soon == 0 else 0.0, told, told.text)


@statistic("approx_kl", "policy_loss", "loss", "reward_mean", "episode_return", "eval_return")
def steps_said_skipped(view: RunView) -> Fact | None:
    """Return how many optimizer steps a console tells to have been skipped, over the records, at most 1.

    1 where the run ended because its scaler had no smaller scale to try.
    """
    told = next((note for note in view.run.notes if note.event == "steps_skipped"), None)
    updates = max(map(len, view.run.series.values()), default=0)
    if told is None or updates < SEARCHED:
        return None
    ended = next((note.text for note in view.run.notes if note.died and SMALLEST_SCALE in note.text), None)
    share = min(1.0, told.numbers[0] / updates) if ended is None else 1.0
    says = told.text if ended is None else f"{told.text}; {ended}"
    return fact(share, told, says)


@statistic("response_length+max_response_length")
def length_over_bound(view: RunView) -> Fact | None:
    """Return the largest mean length of completions over the configured bound: above 1, others' tokens are counted.

    A trainer that is not known may count the token that ends a completion beside those that the bound allows.
    """
    series, bound = view.logged("response_length"), view.given("max_response_length")
    if series is None or bound is None or bound < 1:
        return None
    longest = float(finite(series).max())
    says = f"{series.raw} reaches {longest:.4g}, and at most {bound:g} tokens are sampled"
    guessed = view.run.keys.get(series.raw) == "guessed"
    return fact(longest / (bound + guessed), series, says)


@statistic(
    *(
        "optimizer_steps",
        "epochs_executed",
        "epochs_executed_total",
        "value_clip_fraction",
        "ppo_epochs",
        "clip_fraction+value_loss",
        "clip_fraction+explained_variance",
    )
)
def several_updates(view: RunView) -> Fact | None:
    """Tell whether a batch is used for more than one optimizer step: by counters, clipped values or the settings."""
    known = view.fact("updates_effective")
    if known is not None and known.how != "default" and isinstance(known.value, int | float):
        return condition(known.value > 1, None, str(known.says or known.how))
    passes = view.logged("epochs_executed")
    if passes is not None and float(median(finite(passes))) >= 2:
        return condition(True, passes, f"{passes.raw} counts the passes over each batch")
    epochs = view.values("epochs_executed_total")
    if epochs is not None and len(epochs) > 2 and float(median(np.diff(epochs))) >= 2:
        per = float(median(np.diff(epochs)))
        series = view.logged("epochs_executed_total")
        return condition(True, series, f"{per:g} passes over each batch are counted")
    clipped = view.logged("value_clip_fraction")
    if clipped is not None and float(np.nanmax(clipped.values)) > 0.02:
        return condition(True, clipped, f"{clipped.raw} is above 0: values move within a batch")
    return _moved_far(view)


#: What one optimizer step does not move a policy by, in nats: a median KL, entropy that one of the first updates takes,
#: and entropy that so many updates take together.
FAR_FOR_ONE, LOST_IN_ONE, FIRST_UPDATES = 0.01, 0.1, 5
LOST_IN_ALL, FEW_RECORDS = 0.3, 200


def _moved_far(view: RunView) -> Fact | None:
    """Tell that a batch is used for several steps by how far the policy goes, where clipping is logged beside a critic.

    Who logs the share of clipped samples of a policy with a critic means to use a batch more than once.
    """
    names = view.run.series
    clipped = names.get("clip_fraction")
    if clipped is None or not ("value_loss" in names or "explained_variance" in names):
        return None
    if view.run.keys.get(clipped.raw) != "guessed":
        return None  # a trainer's settings tell, or its defaults
    probe, entropy = view.values("probe_kl"), entropy_of(view)
    if probe is not None and len(probe) and (size := float(median(probe))) > FAR_FOR_ONE:
        says = f"an update moves the policy by a KL of {size:.2g}, further than one optimizer step does"
        return condition(True, names["probe_kl"], says)
    known = finite(entropy) if entropy is not None else np.zeros(0)
    if entropy is None or len(known) < FIRST_UPDATES:
        return None
    lost = float((-np.diff(known[: FIRST_UPDATES + 1])).max())
    if lost > LOST_IN_ONE:
        says = f"an update takes {lost:.2g} nats of entropy, more than one optimizer step does"
        return condition(True, entropy, says)
    wholly = "approx_kl" in names and not {"ratio_max", "ratio_min", "ratio_abs_dev", "ratio_mean"}.isdisjoint(names)
    if wholly and len(known) <= FEW_RECORDS and (moved := abs(float(known[-1] - known[0]))) > LOST_IN_ALL:
        says = f"{len(known)} updates change the entropy by {moved:.2g} nats, more than as many optimizer steps do"
        return condition(True, entropy, says)
    return None


@statistic("reward_mean+reward_std+entropy")
def reward_repeats(view: RunView) -> Fact | None:
    """Tell whether one batch's rewards come again and again, spread inside the batch, while the policy moves."""
    rewards, deviations = view.logged("reward_mean"), view.values("reward_std")
    if rewards is None or deviations is None or np.isfinite(rewards.values).sum() < 4:
        return None
    repeats = constant(finite(rewards)) and float(median(deviations)) > 0
    holds = both(repeats, view.holds("policy_moves"))
    return condition(holds, rewards, f"{rewards.raw} is {rewards.values[-1]:.6g} in every record")


@statistic("reward_component")
def part_always_zero(view: RunView) -> Fact | None:
    """Return 2 where one of several parts of the reward is 0 in every record and their sum does not rise.

    1 where it rises, 0 where each part is paid at times, and where none is.
    """
    parts = [one for name, one in view.run.series.items() if name.startswith(PART)]
    told = [one for one in parts if len(finite(one)) >= FEWEST_OF_PARTS]
    if len(told) < 2:
        return None
    never = [one for one in told if not finite(one).any()]
    holds = bool(never) and len(never) < len(told)
    first = never[0] if never else told[0]
    names = ", ".join(one.raw for one in never)
    says = f"{names} {'is' if len(never) == 1 else 'are'} 0 in all {len(first)} records" if never else first.raw
    return fact(holds * (1 + does_not_rise(view)), first, says)


@statistic("success_rate+reward_mean", "success_rate+episode_return")
def success_lost(view: RunView) -> Fact | None:
    """Return the share of its first success rate that is gone, 0 where that is within its scatter or the reward falls.

    The reward has to be another number than the rate.
    """
    rate, rise = view.run.series.get("success_rate"), view.value("reward_course")
    told = None if rate is None else course(finite(rate))
    if rate is None or told is None or rise is None:
        return None
    lost = 1 - told.end / told.start if told.start > 0 else 0.0
    falls = told.change < -RISES and rise > RISES
    return fact(lost if falls else 0.0, rate, on_average(rate.raw, told.start, told.end))


#: Fewest records of a run; fewest from its start.
FEWEST, EARLY = 20, 8
#: Share of early records below 0: more than half are by chance where a policy stands still.
MOSTLY = 0.7
#: Each stretch is this much longer than the one before.
LONGER = 1.25


@statistic("ref_kl")
def reference_kl_sinks(view: RunView) -> Fact | None:
    """Return by how many standard errors the signed KL to the reference lies below 0 from the start of the run on.

    The policy starts as the reference. Samples that are still the reference's, with log-probs of a policy that has
    left it, make the mean of log π - log ref the negative of a KL (Schulman 2020), until newer samples come. The
    largest over stretches that begin with the second record, of eight records to a third of the run. 0 where the
    first, which comes before any step, is not much nearer to 0, or fewer than seven in ten of the others are below 0.
    """
    kl = view.run.series.get("ref_kl")
    if kl is None or kl.estimator not in (None, "k1"):
        return None
    values = finite_of(kl.values)
    if len(values) < FEWEST:
        return None
    early = values[1 : 1 + max(EARLY, len(values) // 3)]
    deficit = max(_deficit(float(values[0]), early[:size], kl.resolution.absolute) for size in _sizes(len(early)))
    says = f"{kl.raw} is below 0 early on, by {deficit:.2g} standard errors"
    return fact(deficit, kl, says)


def _sizes(longest: int) -> list[int]:
    count = max(0, math.floor(math.log(longest / EARLY, LONGER)))
    return [*(round(EARLY * LONGER**power) for power in range(count + 1)), longest]


def _deficit(first: float, early: FloatArray, resolution: float) -> float:
    if float(np.mean(early < -resolution)) < MOSTLY or abs(first) > median(np.abs(early)) / 2:
        return 0.0
    error = float(np.std(early, ddof=1)) / float(np.sqrt(len(early)))
    return max(0.0, -float(np.mean(early)) / max(error, 1e-12))


@statistic("rollout_ratio_min", "masked_fraction")
def least_ratio_taught(view: RunView) -> Series | None:
    """Return the smallest importance ratio of trainer over sampler; NaN where all groups are flat."""
    masked = _kept(view, "least_ratio_taught")
    if masked is not None:
        return dataclasses.replace(masked, values=np.where(masked.values < 1, 0.0, 1.0))
    return _taught(view, "rollout_ratio_min", "least_ratio_taught")


@statistic("rollout_ratio_mean", "masked_fraction")
def mean_ratio_taught(view: RunView) -> Series | None:
    """Return the part of the samples that a mask leaves, else their mean importance ratio, which a mask lowers as much.

    NaN where all groups are flat.
    """
    return _kept(view, "mean_ratio_taught") or _taught(view, "rollout_ratio_mean", "mean_ratio_taught")


def _taught(view: RunView, metric: str, name: str) -> Series | None:
    """Return a metric of the batches in which groups differ: of a flat batch nothing is learnt, masked or not.

    All of it where nothing tells which groups are flat.
    """
    ratio = view.run.series.get(metric)
    flat = beside(ratio, view.run.series.get("frac_reward_zero_std"))
    if ratio is None:
        return None
    if flat is None:
        return dataclasses.replace(ratio, name=name)
    return dataclasses.replace(ratio, name=name, values=np.where(flat.values >= 1, np.nan, ratio.values))


def _kept(view: RunView, name: str) -> Series | None:
    masked = view.run.series.get("masked_fraction")
    return None if masked is None else dataclasses.replace(masked, name=name, values=1 - masked.values, how="computed")


#: Records that a quotient of two metrics takes to tell something.
LEAST = 6


@statistic("advantages_raw_std+returns_std")
def raw_advantage_share(view: RunView) -> Fact | None:
    """Return the deviation of advantages before whitening over that of returns, in the last two thirds.

    With returns = advantage + value this is √(1 - explained variance): what the critic leaves to learn from.
    """
    raw = view.run.series.get("advantages_raw_std")
    returns = beside(raw, view.run.series.get("returns_std"))
    if raw is None or returns is None:
        return None
    alive = np.where(returns.values > 0, returns.values, math.nan)
    known = finite_of((raw.values / alive)[len(raw) // 3 :])
    if len(known) < LEAST:
        return None
    return fact(median(known), raw, f"{raw.raw} / {returns.raw} over the last two thirds")


@statistic("loss+ref_kl+kl_coef")
def kl_term_share(view: RunView) -> Fact | None:
    """Return the coefficient of the KL term that the loss shows, over the configured one.

    None where the loss does not show it, or the configuration names none, or another one than a positive.
    """
    shown, configured = view.fact("kl_in_loss"), _coefficient(view)
    if shown is None or configured is None or not isinstance(shown.value, float):
        return None
    says = f"{shown.says}, over the configured {configured:g}"
    value = shown.value / configured
    return fact(value, shown, says, "of the configured")


def _coefficient(view: RunView) -> float | None:
    given = (view.given(name) for name in ("kl_loss_coef", "kl_coef"))
    return next((number for number in given if number is not None and number > 0), None)
