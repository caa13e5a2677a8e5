"""Are batches new? And what do completions look like?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import correlation, median
from ppo_doctor.signals.course import (
    both,
    condition,
    constant,
    course,
    entropy_of,
    fact,
    finite,
    given,
    late,
    on_average,
    paired,
    series_of,
    truth_of,
    value_of,
    values_of,
)
from ppo_doctor.signals.rewards import AT_FIRST, RISES, does_not_rise, passes

if TYPE_CHECKING:
    from ppo_doctor.model import Fact
    from ppo_doctor.signals.course import Observations

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


def updates_per_reward(observations: Observations) -> Fact | None:
    """Return how many optimizer steps are logged for each record with a reward, where it is logged per generation."""
    rewards = observations.run.series.get("reward_mean")
    updates = series_of(observations, "loss", "policy_loss", "entropy")
    if rewards is None or updates is None or len(rewards) == 0:
        return None
    per = len(updates) / len(rewards)
    return fact(
        "updates_per_reward",
        per,
        rewards,
        f"{len(updates)} updates for {len(rewards)} records of {rewards.raw}",
    )


def rewards_logged(observations: Observations) -> Fact | None:
    """Return how many records have a reward."""
    rewards = observations.run.series.get("reward_mean")
    return (
        None
        if rewards is None
        else fact("rewards_logged", len(rewards), rewards, f"{rewards.raw} stands in {len(rewards)} records")
    )


def lengths_repeat(observations: Observations) -> Fact | None:
    """Tell whether a mean length that is no whole number is the same in every record while the policy moves."""
    series = series_of(observations, "response_length")
    if series is None or np.isfinite(series.values).sum() < 4:
        return None
    values = finite(series)
    same = constant(values) and abs(values[0] - round(float(values[0]))) > 1e-6
    holds = both(same, truth_of(observations.fact("policy_moves")))
    return condition("lengths_repeat", holds, series, f"{series.raw} is {values[0]:.6g} in every record")


def rollout_repeats(observations: Observations) -> Fact | None:
    """Tell whether a mean over the rollout is the same in every record, of those that another rollout would change."""
    told = [found for name in REPEATS if (found := observations.fact(name)) is not None]
    first = next((found for found in told if found.value), next(iter(told), None))
    return first and replace(first, name="rollout_repeats")


def length_kept(observations: Observations) -> Fact | None:
    """Return the late over the first mean length of completions."""
    series = series_of(observations, "response_length")
    if series is None or len(series) < 4:
        return None
    values = finite(series)
    kept = float(late(values, 2).mean() / max(float(values[:2].mean()), 1e-9))
    return fact(
        "length_kept", kept, series, f"{series.raw} goes from {values[:2].mean():.3g} to {late(values, 2).mean():.3g}"
    )


def length_late(observations: Observations) -> Fact | None:
    """Return the mean length of completions at the end, in tokens."""
    series = series_of(observations, "response_length")
    if series is None or len(series) < 4:
        return None
    size = float(late(finite(series), 2).mean())
    return fact("length_late", size, series, f"{series.raw} is {size:.3g} at the end")


def reward_length_link(observations: Observations) -> Fact | None:
    """Return the size of the correlation of reward and completion length over the records, and over their changes.

    Where the changes do not agree their correlation counts: two series that rise, or one jump, correlate without being
    the same. The largest change of the length is left out for that reason.
    """
    reward, lengths = observations.run.series.get("reward_mean"), observations.run.series.get("response_length")
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
    return fact("reward_length_link", whole if alike > ALIKE else min(whole, alike), reward, says)


def groups_alike_at_first(observations: Observations) -> Fact | None:
    """Return the share of groups with equal rewards at first beyond what chance makes so; 0 without entropy.

    With a pass rate p all G answers of a group earn alike by chance in p^G + (1 - p)^G of the groups.
    """
    series, entropy = series_of(observations, "frac_reward_zero_std"), series_of(observations, "entropy")
    if series is None or entropy is None or len(finite(series)) < AT_FIRST:
        return None
    alike = float(np.mean(finite(series)[:AT_FIRST]))
    chance = alike_by_chance(observations)
    fresh = float(finite(entropy)[0]) > 0.3
    beyond = max(0.0, alike - chance) / max(1 - chance, 1e-9) if chance < 1 else 0.0
    says = f"{series.raw} is {alike:.2g} at first" + (f", {chance:.2g} by chance" if chance else "")
    return fact("groups_alike_at_first", beyond if fresh else 0.0, series, says)


def alike_by_chance(observations: Observations) -> float:
    """Return the share of groups that earn alike by chance at first; 0 where rewards are no pass rate."""
    parts = [s for name, s in observations.run.series.items() if name.startswith(PART) and passes(s)]
    reward = series_of(observations, "reward_mean")
    graded = next(iter(parts), reward if reward is not None and passes(reward) else None)
    if graded is None:
        return 0.0
    size = given(observations, "num_generations") or _first(observations, "num_generations") or LEAST_GROUP
    rate = float(np.mean(finite(graded)[:AT_FIRST]))
    return float(rate**size + (1 - rate) ** size)


def _first(observations: Observations, name: str) -> float | None:
    """Return the first number of a metric."""
    values = values_of(observations, name)
    return None if values is None else float(values[0])


def first_pass_stops(observations: Observations) -> Fact | None:
    """Return the share of updates that a console tells to have been stopped in their first pass; 0 if half went on."""
    told = next((note for note in observations.run.notes if note.stopped_early), None)
    updates = max(map(len, observations.run.series.values()), default=0)
    if told is None or told.stopped_early is None or not updates:
        return None
    count, soon = told.stopped_early
    found = fact("first_pass_stops", min(1.0, count / updates) if soon == 0 else 0.0, None, told.text)
    return replace(found, source=told.source)


def steps_said_skipped(observations: Observations) -> Fact | None:
    """Return how many optimizer steps a console tells to have been skipped, over the records, at most 1.

    1 where the run ended because its scaler had no smaller scale to try.
    """
    told = next((note for note in observations.run.notes if note.steps_skipped), None)
    updates = max(map(len, observations.run.series.values()), default=0)
    if told is None or updates < SEARCHED:
        return None
    ended = next((note.text for note in observations.run.notes if note.died and SMALLEST_SCALE in note.text), None)
    share = min(1.0, told.steps_skipped / updates) if ended is None else 1.0
    says = told.text if ended is None else f"{told.text}; {ended}"
    return replace(fact("steps_said_skipped", share, None, says), source=told.source)


def length_over_bound(observations: Observations) -> Fact | None:
    """Return the largest mean length of completions over the configured bound: above 1, others' tokens are counted.

    A trainer that is not known may count the token that ends a completion beside those that the bound allows.
    """
    series, bound = series_of(observations, "response_length"), given(observations, "max_response_length")
    if series is None or bound is None or bound < 1:
        return None
    longest = float(finite(series).max())
    says = f"{series.raw} reaches {longest:.4g}, and at most {bound:g} tokens are sampled"
    guessed = observations.run.keys.get(series.raw) == "guessed"
    return fact("length_over_bound", longest / (bound + guessed), series, says)


def several_updates(observations: Observations) -> Fact | None:
    """Tell whether a batch is used for more than one optimizer step: by counters, clipped values or the settings."""
    known = observations.fact("updates_effective")
    if known is not None and known.how != "default" and isinstance(known.value, int | float):
        return condition("several_updates", known.value > 1, None, str(known.says or known.how))
    passes = series_of(observations, "epochs_executed")
    if passes is not None and float(median(finite(passes))) >= 2:
        return condition("several_updates", True, passes, f"{passes.raw} counts the passes over each batch")
    epochs = values_of(observations, "epochs_executed_total")
    if epochs is not None and len(epochs) > 2 and float(median(np.diff(epochs))) >= 2:
        per = float(median(np.diff(epochs)))
        series = series_of(observations, "epochs_executed_total")
        return condition("several_updates", True, series, f"{per:g} passes over each batch are counted")
    clipped = series_of(observations, "value_clip_fraction")
    if clipped is not None and float(np.nanmax(clipped.values)) > 0.02:
        return condition("several_updates", True, clipped, f"{clipped.raw} is above 0: values move within a batch")
    return _moved_far(observations)


#: What one optimizer step does not move a policy by, in nats: a median KL, entropy that one of the first updates takes,
#: and entropy that so many updates take together.
FAR_FOR_ONE, LOST_IN_ONE, FIRST_UPDATES = 0.01, 0.1, 5
LOST_IN_ALL, FEW_RECORDS = 0.3, 200


def _moved_far(observations: Observations) -> Fact | None:
    """Tell that a batch is used for several steps by how far the policy goes, where clipping is logged beside a critic.

    Who logs the share of clipped samples of a policy with a critic means to use a batch more than once.
    """
    names = observations.run.series
    clipped = names.get("clip_fraction")
    if clipped is None or not ("value_loss" in names or "explained_variance" in names):
        return None
    if observations.run.keys.get(clipped.raw) != "guessed":
        return None  # a trainer's settings tell, or its defaults
    probe, entropy = values_of(observations, "probe_kl"), entropy_of(observations)
    if probe is not None and len(probe) and (size := float(median(probe))) > FAR_FOR_ONE:
        says = f"an update moves the policy by a KL of {size:.2g}, further than one optimizer step does"
        return condition("several_updates", True, names["probe_kl"], says)
    known = finite(entropy) if entropy is not None else np.zeros(0)
    if entropy is None or len(known) < FIRST_UPDATES:
        return None
    lost = float((-np.diff(known[: FIRST_UPDATES + 1])).max())
    if lost > LOST_IN_ONE:
        says = f"an update takes {lost:.2g} nats of entropy, more than one optimizer step does"
        return condition("several_updates", True, entropy, says)
    wholly = "approx_kl" in names and not {"ratio_max", "ratio_min", "ratio_abs_dev", "ratio_mean"}.isdisjoint(names)
    if wholly and len(known) <= FEW_RECORDS and (moved := abs(float(known[-1] - known[0]))) > LOST_IN_ALL:
        says = f"{len(known)} updates change the entropy by {moved:.2g} nats, more than as many optimizer steps do"
        return condition("several_updates", True, entropy, says)
    return None


def reward_repeats(observations: Observations) -> Fact | None:
    """Tell whether one batch's rewards come again and again, spread inside the batch, while the policy moves."""
    rewards, deviations = series_of(observations, "reward_mean"), values_of(observations, "reward_std")
    if rewards is None or deviations is None or np.isfinite(rewards.values).sum() < 4:
        return None
    repeats = constant(finite(rewards)) and float(median(deviations)) > 0
    holds = both(repeats, truth_of(observations.fact("policy_moves")))
    return condition("reward_repeats", holds, rewards, f"{rewards.raw} is {rewards.values[-1]:.6g} in every record")


def part_always_zero(observations: Observations) -> Fact | None:
    """Return 2 where one of several parts of the reward is 0 in every record and their sum does not rise.

    1 where it rises, 0 where each part is paid at times, and where none is.
    """
    parts = [one for name, one in observations.run.series.items() if name.startswith(PART)]
    told = [one for one in parts if len(finite(one)) >= FEWEST_OF_PARTS]
    if len(told) < 2:
        return None
    never = [one for one in told if not finite(one).any()]
    holds = bool(never) and len(never) < len(told)
    first = never[0] if never else told[0]
    names = ", ".join(one.raw for one in never)
    says = f"{names} {'is' if len(never) == 1 else 'are'} 0 in all {len(first)} records" if never else first.raw
    return fact("part_always_zero", holds * (1 + does_not_rise(observations)), first, says)


def success_lost(observations: Observations) -> Fact | None:
    """Return the share of its first success rate that is gone, 0 where that is within its scatter or the reward falls.

    The reward has to be another number than the rate.
    """
    rate, rise = observations.run.series.get("success_rate"), value_of(observations.fact("reward_course"))
    told = None if rate is None else course(finite(rate))
    if rate is None or told is None or rise is None:
        return None
    lost = 1 - told.end / told.start if told.start > 0 else 0.0
    falls = told.change < -RISES and rise > RISES
    return fact("success_lost", lost if falls else 0.0, rate, on_average(rate.raw, told.start, told.end))
