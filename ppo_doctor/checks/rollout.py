"""Rollouts: batches that repeat, equal episodes, several updates per batch, and samples of an older policy."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.series import both, condition, condition_series, constant, entropy_of, fact, finite
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model.arrays import beside, finite_median, finite_of, has_two_decimals, median, same
from ppo_doctor.model.run import EXACT, Fact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import BoolArray, FloatArray, Series

#: Conditions that do not hold twice in a row unless the rollout repeats.
REPEATS = ("reward_repeats", "lengths_repeat", "explained_repeats")


@statistic("response_length+entropy")
def lengths_repeat(view: RunView) -> Fact | None:
    """Return whether a mean length that is no whole number is the same in every record while the policy moves."""
    series = view.logged("response_length", fewest=4)
    if series is None:
        return None
    values = finite(series)
    repeats = constant(values) and abs(values[0] - round(float(values[0]))) > 1e-6
    holds = both(repeats, view.holds("policy_moves"))
    return condition(holds, series, f"{series.raw} is {values[0]:.6g} in every record")


@statistic("reward_mean+reward_std+entropy")
def reward_repeats(view: RunView) -> Fact | None:
    """Return whether a mean reward is the same in every record, though rewards in a batch differ and the policy moves.

    None with fewer than four records.
    """
    rewards, deviations = view.logged("reward_mean", fewest=4), view.values("reward_std")
    if rewards is None or deviations is None:
        return None
    repeats = constant(finite(rewards)) and float(median(deviations)) > 0
    holds = both(repeats, view.holds("policy_moves"))
    return condition(holds, rewards, f"{rewards.raw} is {rewards.values[-1]:.6g} in every record")


@statistic("reward_mean+reward_std+entropy", "response_length+entropy", "explained_variance+value_loss")
def rollout_repeats(view: RunView) -> Fact | None:
    """Return whether a mean over the rollout, which another rollout would change, is the same in every record."""
    known = [repeats for name in REPEATS if (repeats := view.fact(name)) is not None]
    first = next((repeats for repeats in known if repeats.value), next(iter(known), None))
    return first and replace(first, name="rollout_repeats")


#: Means over so many real numbers that no two rollouts have the same.
DISTINCTIVE = (
    *("explained_variance", "returns_mean", "returns_std", "values_mean", "advantages_raw_std", "response_length"),
    *("objective_entropy", "kl_penalty_reward"),
)
#: These must agree as well if they are logged, but repeat in sound runs: pass rates, lengths at the limit.
OTHERS = ("reward_mean", "reward_std", "truncated_fraction", "response_length_min", "response_length_max")
#: The metric that counts samples.
COUNTER = "env_steps"
#: Resolution, over the usual size, beyond which equal numbers prove little; for two that repeat together it is coarser.
DIGITS, COARSER = 1e-5, 5e-4
#: Explained variance of returns that differ.
EXPLAINED = 0.5
#: A value this close to a whole number may be a limit, a floor or a count.
WHOLE = 1e-3
#: Entropy (nats) below which a policy repeats itself.
SHARP = 0.05
#: Fewest changes of batch whose even spacing is not accidental.
EVENLY = 4
#: Number of episodes of which the best and the worst are not equal by chance.
MANY = 8


@statistic("explained_variance", "response_length", "returns_mean", "objective_entropy", "episode_return+env_steps")
def batch_repeats(view: RunView) -> Series | None:
    """Return 1 in records whose statistics of the rollout equal those of the record before, else 0; NaN in the first.

    At least two must be equal, or all if there are fewer: some trainers recompute values after each update. Statistics
    count if they have at least five digits and are no whole numbers. Policies that always act alike and groups without
    any difference repeat in sound runs: the result is 0 then, unless new episodes differ.
    """
    means = _distinctive_means(view)
    if not means or view.fact("records_per_batch") is not None:
        return None
    repeats = _repeat(means)
    if repeats.any():
        others = (beside(means[0], view.run.series.get(name)) for name in OTHERS)
        repeats = np.logical_and.reduce([repeats, *(_equal_to_last(s.values) for s in others if s is not None)])
        repeats &= ~_repeats_in_sound_runs(view, means[0])
    values = repeats.astype(np.float64)
    values[0] = np.nan
    says = f"{', '.join(series.raw for series in means)} as in the record before"
    return condition_series(replace(means[0], resolution=EXACT), "batch_repeats", values, says)


@statistic("explained_variance", "response_length", "returns_mean", "objective_entropy", "episode_return+env_steps")
def records_per_batch(view: RunView) -> Fact | None:
    """Return the number of records per batch if statistics of the rollout change at regular intervals, else None.

    A trainer that writes a record per optimizer step repeats the statistics of the rollout in each of them.
    """
    means = _distinctive_means(view)
    if not means:
        return None
    changes = np.flatnonzero(~_repeat(means)[1:])
    gaps = np.diff(changes)
    if len(changes) < EVENLY or gaps[0] < 2 or (gaps != gaps[0]).any():
        return None
    says = f"{', '.join(series.raw for series in means)} change in every {gaps[0]}th record"
    return fact(float(gaps[0]), means[0], says, how="observed")


def _distinctive_means(view: RunView) -> list[Series]:
    """Return the statistics by which rollouts can be told apart, on the records of the first of them.

    A mean reward is one of them only together with the spread within the batch or a count of environment steps, or if
    it never changes although returns differ. Otherwise it may be the mean of a solved task, or of old episodes.
    """
    means = [series for name in DISTINCTIVE if (series := _precise(view, name)) is not None]
    run = view.run.series
    spread, counter = run.get("reward_std"), run.get(COUNTER)
    if spread is not None and finite_median(spread.values) > 0:
        rewards, deviations = (_precise(view, name, COARSER) for name in ("reward_mean", "reward_std"))
        means += [rewards, deviations] if rewards is not None and deviations is not None else []
    elif counter is not None and (returns := _precise(view, "episode_return", COARSER)) is not None:
        length = _precise(view, "episode_length", COARSER)
        means += [returns, *([length] if length is not None else []), counter]
    elif (paid := _unchanging_reward(view)) is not None:
        means = [paid, *(series for series in means if series.name != "explained_variance")]  # a critic is trained on
    if not means or len(means[0]) < 2:
        return []
    return [here for series in means if (here := beside(means[0], series)) is not None]


def _unchanging_reward(view: RunView) -> Series | None:
    """Return a mean reward that never changes while the policy moves, if it is not the constant of a reward function.

    It is not if a critic explains much of the returns, which differ then, or if it has more than two decimals.
    """
    run, spread = view.run.series, view.fact("reward_spread")
    critic = run.get("explained_variance")
    if spread is None or spread.value != 0 or "reward_std" in run or not view.holds("policy_moves"):
        return None
    differ = critic is not None and float(finite_of(critic.values).max(initial=0.0)) > EXPLAINED
    for name in ("episode_return", "reward_mean"):
        series = _precise(view, name, COARSER)
        if series is not None and (differ or not has_two_decimals(float(series.values[0]))):
            return series
    return None


def _repeat(means: Sequence[Series]) -> BoolArray:
    """Return in which records all statistics, or at least two, equal those before and are no whole numbers.

    A count of environment steps may be any number.
    """
    alike = [_equal_to_last(series.values) for series in means]
    fractional = [_no_whole_number(s.values) if s.name != COUNTER else np.ones(len(s), dtype=bool) for s in means]
    repeat: BoolArray = np.logical_and.reduce(alike) & np.logical_or.reduce(fractional)
    repeat |= np.sum([one & other for one, other in zip(alike, fractional, strict=True)], axis=0) >= 2
    return repeat


def _precise(view: RunView, name: str, digits: float = DIGITS) -> Series | None:
    """Return a metric whose resolution is at most `digits` of its usual size."""
    series = view.logged(name)
    if series is None:
        return None
    size = finite_median(np.abs(series.values))
    return series if series.resolution.absolute <= digits * max(size, WHOLE) else None


def _equal_to_last(values: FloatArray) -> BoolArray:
    """Return which values equal the one before; two that are not finite are equal."""
    repeats = np.zeros(len(values), dtype=bool)
    known = np.isfinite(values)
    repeats[1:] = same(values[1:], values[:-1]) | ~(known[1:] | known[:-1])
    return repeats


def _no_whole_number(values: FloatArray) -> BoolArray:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.isfinite(values) & (np.abs(values - np.round(values)) > WHOLE))


def _repeats_in_sound_runs(view: RunView, records: Series) -> BoolArray:
    """Return in which records the policy always acts alike or groups do not differ, unless new episodes differ."""
    expected = np.zeros(len(records), dtype=bool)
    for name, bound in (("entropy", SHARP), ("reward_std", 0.0), ("reward_group_std", 0.0)):
        series = beside(records, view.run.series.get(name))
        if series is not None:
            expected |= (series.values <= bound) | series.at(bound)
    flat = beside(records, view.run.series.get("frac_reward_zero_std"))
    if flat is not None:
        expected |= flat.at(1)
    return expected & ~_episodes_differ(view, records) if expected.any() else expected


def _episodes_differ(view: RunView, records: Series) -> BoolArray:
    """Return in which records the first or the last new episode has another return and length than the one before.

    Episodes that differ are new samples, however certain the policy is. All false if they are not logged.
    """
    returns, lengths = (view.logged(name, fewest=2) for name in ("episode_return", "episode_length"))
    if returns is None or lengths is None:
        return np.zeros(len(records), dtype=bool)
    differ = np.ones(len(records), dtype=bool)
    differ[0] = False
    for series in (returns, lengths):
        known = np.isfinite(series.values)
        values, until = series.values[known], np.searchsorted(series.axis.steps[known], records.axis.steps, "right")
        since = np.minimum(np.concatenate([[0], until[:-1]]), until - 1)
        ends = [np.where(until > 0, values[at], 0.0) for at in (since, until - 1)]
        differ[1:] &= np.logical_or.reduce([~same(one[1:], one[:-1]) for one in ends]) & (until[1:] > until[:-1])
    return differ


@statistic("episode_return_min+episode_return_max+env_steps")
def equal_episodes(view: RunView) -> Series | None:
    """Return 1 in records in which the best and the worst of many episodes earned the same to the last digit, else 0.

    NaN if fewer than eight episodes can have ended since the record before, at the highest and the lowest return of
    the run (a cap, a floor), and if the policy always acts alike.
    """
    names = ("episode_return_min", "episode_return_max", "episode_length", "env_steps")
    low, *others = (view.run.series.get(name) for name in names)
    high, length, steps = (beside(low, other) for other in others)
    if low is None or high is None or length is None or steps is None or len(low) < 2:
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        ended = np.append(np.nan, np.diff(steps.values)) / length.values
    edges = same(low.values, np.fmin.reduce(low.values)) | same(high.values, np.fmax.reduce(high.values))
    usable = (ended >= MANY) & np.isfinite(low.values) & ~edges & ~_repeats_in_sound_runs(view, low)
    values = np.where(usable, same(low.values, high.values).astype(np.float64), np.nan)
    says = f"{low.raw} as high as {high.raw}"
    return condition_series(replace(low, resolution=EXACT), "equal_episodes", values, says)


#: Records after which a loss scaler has found its scale: it halves it in each of its first steps.
SEARCHED = 10
#: The message of DeepSpeed if even the smallest scale overflows.
SMALLEST_SCALE = "loss scale already at minimum"


@statistic("approx_kl", "reward_mean", "episode_return", "eval_return")
def first_pass_stops(view: RunView) -> Fact | None:
    """Return the share of updates stopped in their first pass, by the console; 0 if half of those went further."""
    note = next((note for note in view.run.notes if note.event == "stopped_early"), None)
    updates = max(map(len, view.run.series.values()), default=0)
    if note is None or not updates:
        return None
    count, usual_pass = note.numbers
    return fact(min(1.0, count / updates) if usual_pass == 0 else 0.0, note, note.text)


@statistic("approx_kl", "policy_loss", "loss", "reward_mean", "episode_return", "eval_return")
def steps_said_skipped(view: RunView) -> Fact | None:
    """Return the number of optimizer steps that the console reports as skipped, over the records, at most 1.

    1 if the run ended because its loss scaler had no smaller scale to try.
    """
    note = next((note for note in view.run.notes if note.event == "steps_skipped"), None)
    updates = max(map(len, view.run.series.values()), default=0)
    if note is None or updates < SEARCHED:
        return None
    end = next((other.text for other in view.run.notes if other.died and SMALLEST_SCALE in other.text), None)
    if end is not None:
        return fact(1.0, note, f"{note.text}; {end}")
    return fact(min(1.0, note.numbers[0] / updates), note, note.text)


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
    """Return whether a batch is used for more than one optimizer step, by counters, clipped values or the settings."""
    known = view.fact("updates_effective")
    if known is not None and known.how != "default" and isinstance(known.value, int | float):
        return condition(known.value > 1, None, known.says or known.how)
    passes = view.logged("epochs_executed")
    if passes is not None and float(median(finite(passes))) >= 2:
        return condition(True, passes, f"{passes.raw} counts the passes over each batch")
    total = view.logged("epochs_executed_total", fewest=3)
    if total is not None and (per := float(median(np.diff(finite(total))))) >= 2:
        return condition(True, total, f"{per:g} passes over each batch are counted")
    clipped = view.logged("value_clip_fraction")
    if clipped is not None and float(np.nanmax(clipped.values)) > 0.02:
        return condition(True, clipped, f"{clipped.raw} is above 0: values move within a batch")
    return _too_far_for_one_step(view)


#: What one optimizer step does not move a policy by, in nats: a median KL, entropy that one of the first updates takes,
#: and entropy that so many updates take together.
FAR_FOR_ONE, LOST_IN_ONE, FIRST_UPDATES = 0.01, 0.1, 5
LOST_IN_ALL, FEW_RECORDS = 0.3, 200


def _too_far_for_one_step(view: RunView) -> Fact | None:
    """Return that a batch is used for several steps if updates move the policy too far for one.

    Only if clipping is logged and there is a critic: whoever logs this means to use a batch more than once.
    """
    names = view.run.series
    clipped = names.get("clip_fraction")
    if clipped is None or not ("value_loss" in names or "explained_variance" in names):
        return None
    if view.run.keys.get(clipped.raw) != "guessed":
        return None  # the settings or defaults of the trainer are known
    probe, entropy = view.logged("probe_kl"), entropy_of(view)
    if probe is not None and (size := float(median(finite(probe)))) > FAR_FOR_ONE:
        says = f"an update moves the policy by a KL of {size:.2g}, further than one optimizer step does"
        return condition(True, probe, says)
    known = finite(entropy) if entropy is not None else np.zeros(0)
    if len(known) < FIRST_UPDATES:
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


#: Fewest records of a run, and of its start.
FEWEST, EARLY = 20, 8
#: Share of early records below 0 that is more than chance makes if a policy does not move.
MOSTLY = 0.7
#: The ratio of the lengths of successive stretches from the start.
LONGER = 1.25


@statistic("ref_kl")
def reference_kl_sinks(view: RunView) -> Fact | None:
    """Return how far the signed KL to the reference is below 0 early in the run, in standard errors.

    The policy starts as the reference. Samples of the reference, with log-probs of a policy that has moved away, make
    the mean of log π - log ref a negative KL (Schulman 2020) until newer samples come. The result is the largest over
    stretches that begin with the second record, from eight records to a third of the run. 0 if the first record, which
    is logged before any step, is not much nearer to 0, or if fewer than seven in ten of the others are below 0.
    """
    kl = view.logged("ref_kl", fewest=FEWEST)
    if kl is None or kl.estimator not in (None, "k1"):
        return None
    values = finite_of(kl.values)
    early = values[1 : 1 + max(EARLY, len(values) // 3)]
    lengths = [round(EARLY * LONGER**n) for n in range(math.floor(math.log(len(early) / EARLY, LONGER)) + 1)]
    starts = [early[:length] for length in (*lengths, len(early))]
    deficit = max(_errors_below_zero(float(values[0]), start, kl.resolution.absolute) for start in starts)
    return fact(deficit, kl, f"{kl.raw} is below 0 early on, by {deficit:.2g} standard errors")


def _errors_below_zero(first: float, early: FloatArray, resolution: float) -> float:
    if float(np.mean(early < -resolution)) < MOSTLY or abs(first) > median(np.abs(early)) / 2:
        return 0.0
    error = float(np.std(early, ddof=1)) / float(np.sqrt(len(early)))
    return max(0.0, -float(np.mean(early)) / max(error, 1e-12))


@statistic("rollout_ratio_min", "masked_fraction")
def least_ratio_taught(view: RunView) -> Series | None:
    """Return the smallest importance ratio of trainer over sampler, 0 if a mask drops samples; NaN if groups are flat.

    1 if the fraction of masked samples is logged and is 0.
    """
    masked = view.run.series.get("masked_fraction")
    if masked is not None:
        return replace(
            masked, name="least_ratio_taught", values=np.where(1 - masked.values < 1, 0.0, 1.0), how="computed"
        )
    return _taught(view, "rollout_ratio_min", "least_ratio_taught")


@statistic("rollout_ratio_mean", "masked_fraction")
def mean_ratio_taught(view: RunView) -> Series | None:
    """Return the fraction of samples that a mask leaves, else the mean importance ratio, which a mask lowers as much.

    NaN if all groups are flat.
    """
    masked = view.run.series.get("masked_fraction")
    if masked is not None:
        return replace(masked, name="mean_ratio_taught", values=1 - masked.values, how="computed")
    return _taught(view, "rollout_ratio_mean", "mean_ratio_taught")


def _taught(view: RunView, metric: str, name: str) -> Series | None:
    """Return a metric of the batches in which groups differ, or of all if that is not known.

    Nothing is learnt from a batch without any difference, masked or not.
    """
    ratio = view.run.series.get(metric)
    flat = beside(ratio, view.run.series.get("frac_reward_zero_std"))
    if ratio is None:
        return None
    values = ratio.values if flat is None else np.where(flat.values >= 1, np.nan, ratio.values)
    return replace(ratio, name=name, values=values)
