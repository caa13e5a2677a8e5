"""Sizes of rollouts and groups, response lengths, truncated completions, and tokens in the loss."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.series import configured, fact, finite, late, paired
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model.arrays import beside, correlation, finite_of, mean_of, median
from ppo_doctor.model.run import Fact
from ppo_doctor.trainers.detection import traits_of

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import Series, Setting
    from ppo_doctor.model.words import ConfigValue

#: Fewest records for a median, or for a comparison of the two ends of a run.
LEAST = 6
#: Records that give the first length of completions: a price on tokens halves it within six.
EARLIEST = 3
#: An upper bound of a length is used only if it is below this share of the first length, which is an estimate.
CLEARLY_SHORTER = 0.3
#: A length within this share of the limit counts as at the limit, to allow for a token that ends the completion.
NEAR = 0.05
#: Records of updates this many environment steps apart, or fewer, hold one rollout each.
NARROW = 64
#: Correlation of the changes of two series above which they measure the same thing.
ALIKE = 0.7
#: Fewest records in which tokens of the loss can be compared with tokens written.
FEWEST = 3


@statistic("env_steps+iteration", "rollout_steps+num_envs")
def rollout_steps_seen(view: RunView) -> Fact | None:
    """Return the environment steps of one rollout: as counted in the log, else as configured.

    If neither is known, return the distance between updates that are only a few environment steps apart: a rollout
    holds at most that many.
    """
    return _steps_per_iteration(view) or _steps_configured(view) or _steps_between_updates(view)


def _steps_per_iteration(view: RunView) -> Fact | None:
    steps = view.run.series.get("env_steps")
    rollouts = beside(steps, view.run.series.get("iteration"))
    if steps is None or rollouts is None or len(steps) < LEAST:
        return None
    done, taken = np.diff(rollouts.values), np.diff(steps.values)
    usable = np.isfinite(done) & np.isfinite(taken) & (done > 0) & (taken > 0)
    if usable.sum() < LEAST - 1:
        return None
    size = median(taken[usable] / done[usable])
    return fact(size, steps, f"{steps.raw} per {rollouts.raw}", "environment steps", how="observed")


def _steps_configured(view: RunView) -> Fact | None:
    """Return the configured size of a rollout if samples are environment steps: a batch of completions holds tokens.

    They are if episodes are logged, or if the configuration, without any log, is that of environments.
    """
    per_environment = view.configured("rollout_steps")
    if "from_settings" not in view.run.facts:
        of_episodes = "episode_return" in view.run.series
    else:
        of_episodes = "steps_are_env_steps" in view.run.facts or per_environment or view.configured("num_envs")
    if not of_episodes:
        return None
    if not per_environment:
        size = view.given("rollout_size")
        return configured(view.run.config["rollout_size"], size, "environment steps") if size else None
    steps, envs = view.number("rollout_steps"), view.number("num_envs")
    if not steps or not envs:
        return None
    says = f"{steps:g} steps × {envs:g} environments"
    return fact(steps * envs, view.run.config["rollout_steps"], says, "environment steps", how="configured")


def _steps_between_updates(view: RunView) -> Fact | None:
    """Return the median distance between updates if it is narrow; between distant records several updates may lie."""
    updates = view.run.series.get("policy_loss")
    if "steps_are_env_steps" not in view.run.facts or updates is None or len(updates) < LEAST:
        return None
    apart = np.diff(updates.axis.steps)
    apart = apart[apart > 0].astype(np.float64)
    if len(apart) < LEAST - 1 or (distance := median(apart)) > NARROW:
        return None
    return fact(distance, updates, "updates are this many steps apart", "environment steps", how="observed")


@statistic("gamma")
def discount_horizon(view: RunView) -> Fact | None:
    """Return 1/(1 - gamma), the number of steps over which a reward decays to a third.

    None if the discount is a default, or if episodes are known to be shorter than five times that.
    """
    gamma, length = view.given("gamma"), view.logged("episode_length", fewest=LEAST)
    if gamma is None or gamma >= 1:
        return None
    horizon, lasting = 1 / (1 - gamma), "whose length is not logged"
    if length is not None:
        usual = median(finite_of(length.values))
        if usual < 5 * horizon:
            return None
        lasting = f"of {usual:.3g} steps"
    setting = view.run.config["gamma"]
    return fact(horizon, setting, f"{setting.key} = {gamma:g}, episodes {lasting}", "steps", how="configured")


@statistic("loss+reward_mean")
def updates_per_reward(view: RunView) -> Fact | None:
    """Return the number of logged optimizer steps per reward record, for logs with one reward per generation."""
    rewards = view.run.series.get("reward_mean")
    updates = view.logged("loss", "policy_loss", "entropy")
    if rewards is None or updates is None:
        return None
    says = f"{len(updates)} updates for {len(rewards)} records of {rewards.raw}"
    return fact(len(updates) / len(rewards), rewards, says)


@statistic("reward_mean")
def rewards_logged(view: RunView) -> Fact | None:
    """Return the number of records with a mean reward."""
    rewards = view.run.series.get("reward_mean")
    return None if rewards is None else fact(len(rewards), rewards, f"{rewards.raw} stands in {len(rewards)} records")


@statistic("truncated_fraction", "response_length+max_response_length")
def share_cut(view: RunView) -> Series | None:
    """Return the fraction of completions that reach the length limit: as logged, else a lower bound.

    If the mean length is d below a limit of L, at most d / (0.05 L) of all completions are more than 5 % below it
    (Markov's inequality). None if the mean exceeds the limit by more than the token that ends a completion.
    """
    logged, mean = (view.run.series.get(name) for name in ("truncated_fraction", "response_length"))
    limit = view.given("max_response_length")
    if logged is not None:
        return replace(logged, name="share_cut")
    if mean is None or not limit or float(np.nanmax(mean.values)) > limit + 1:
        return None
    values = np.clip(1.0 - (limit - mean.values) / (NEAR * limit), 0.0, 1.0)
    says = f"the share that {mean.raw} next to a limit of {limit:g} tokens makes"
    return replace(mean, name="share_cut", values=values, unit="fraction", how="computed", says=says)


@statistic("truncated_fraction")
def truncation_rise(view: RunView) -> Fact | None:
    """Return by how much the fraction of truncated completions rose from the first to the last fifth of the run."""
    series = view.logged("truncated_fraction", fewest=2 * LEAST)
    if series is None:
        return None
    first, last = _ends(series, LEAST)
    return fact(last - first, series, f"{series.raw} went from {first:.3g} to {last:.3g}", "fraction", how="observed")


@statistic("response_length", "objective_entropy+entropy+max_response_length")
def length_left(view: RunView) -> Fact | None:
    """Return the mean response length (or an upper bound of it) of the last fifth of the run over the first one."""
    series = view.logged("response_length", fewest=2 * LEAST)
    if series is None:
        return _length_left_by_entropy(view)
    first, last = _ends(series, EARLIEST)
    if first <= 0:
        return None
    says = f"{series.raw} went from {first:.3g} to {last:.3g}"
    return fact(last / first, series, says, "of the first fifth", how="observed")


def _length_left_by_entropy(view: RunView) -> Fact | None:
    """Return an upper bound of what is left of the response length, by the entropy of whole answers; None if not low.

    TRL's PPO sums -log p over an answer and counts -1 for each token of padding, so that this sum plus the longest
    length is at least the length. The first length is estimated from the entropy per token.
    """
    whole, token = (view.logged(name, fewest=2 * LEAST) for name in ("objective_entropy", "entropy"))
    longest = view.number("max_response_length")
    if whole is None or token is None or not longest:
        return None
    per_token = _ends(token, EARLIEST)[0]
    first, last = (end + longest for end in _ends(whole, EARLIEST))
    if per_token < 0 or first <= 0:
        return None
    first /= per_token + 1
    if not 0 <= last <= CLEARLY_SHORTER * first:
        return None
    says = f"{whole.raw} counts each token of padding as -1: at most {last:.3g} tokens, and {first:.3g} at first"
    return fact(last / first, whole, says, "of the first fifth", how="observed")


def _ends(series: Series, earliest: int) -> tuple[float, float]:
    """Return the mean of the first records, at most `earliest`, and the median of the last fifth of the run."""
    values = finite_of(series.values)
    fifth = max(3, len(values) // 5)
    start = max(3, min(fifth, earliest))  # a collapse may be over within the first fifth
    return mean_of(values[:start]), median(values[-fifth:])


@statistic("response_length")
def length_kept(view: RunView) -> Fact | None:
    """Return the mean response length at the end over the one at the start."""
    series = view.logged("response_length")
    if series is None or len(series) < 4:
        return None
    first, last = float(finite(series)[:2].mean()), float(late(finite(series), 2).mean())
    return fact(last / max(first, 1e-9), series, f"{series.raw} goes from {first:.3g} to {last:.3g}")


@statistic("response_length")
def length_late(view: RunView) -> Fact | None:
    """Return the mean response length at the end, in tokens."""
    series = view.logged("response_length")
    if series is None or len(series) < 4:
        return None
    last = float(late(finite(series), 2).mean())
    return fact(last, series, f"{series.raw} is {last:.3g} at the end")


@statistic("response_length+max_response_length")
def length_over_bound(view: RunView) -> Fact | None:
    """Return the largest mean response length over the configured limit; above 1, tokens of others are counted.

    A trainer that is not known may count the end token in addition to the limit.
    """
    series, bound = view.logged("response_length"), view.given("max_response_length")
    if series is None or bound is None or bound < 1:
        return None
    longest = float(finite(series).max())
    guessed = view.run.keys.get(series.raw) == "guessed"
    says = f"{series.raw} reaches {longest:.4g}, and at most {bound:g} tokens are sampled"
    return fact(longest / (bound + guessed), series, says)


@statistic("reward_mean+response_length")
def reward_length_link(view: RunView) -> Fact | None:
    """Return the absolute correlation of reward and response length over the records.

    If their changes from record to record correlate less, return that correlation instead: two rising series, or a
    single jump, correlate without measuring the same. For this reason the largest change of the length is left out.
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


@statistic("tokens_in_loss", "truncated_fraction+mask_truncated")
def loss_tokens(view: RunView) -> Series | None:
    """Return the number of tokens in the loss.

    If it is not logged and truncated completions are masked, return the fraction that is not truncated.
    """
    counted, truncated = view.run.series.get("tokens_in_loss"), view.run.series.get("truncated_fraction")
    if counted is not None:
        return replace(counted, name="loss_tokens", how="computed")
    masked = view.run.config.get("mask_truncated")
    if masked is None or masked.value is not True or truncated is None:
        return None
    unit, says = "of completions", f"1 - {truncated.raw}"
    return replace(truncated, name="loss_tokens", values=1.0 - truncated.values, unit=unit, how="computed", says=says)


@statistic("tokens_in_loss+response_length+rollout_size+ppo_epochs")
def loss_tokens_per_written(view: RunView) -> Fact | None:
    """Return the tokens in the loss over the tokens that the policy wrote: mean length × samples × passes.

    None if the number of samples or of passes is not known.
    """
    tokens = view.run.series.get("tokens_in_loss")
    length = beside(tokens, view.run.series.get("response_length"))
    samples, passes = view.given("rollout_size"), view.given("ppo_epochs")
    if tokens is None or length is None or not samples or not passes:
        return None
    usable = np.isfinite(tokens.values) & np.isfinite(length.values) & (length.values > 0)
    if usable.sum() < FEWEST:
        return None
    share = median(tokens.values[usable] / (length.values[usable] * samples * passes))
    return fact(share, tokens, f"{tokens.raw} over {samples:g} completions, {passes:g} passes")


#: Names of the number of processes in launchers.
PROCESSES = ("num_processes", "world_size", "nproc_per_node", "num_gpus", "n_gpus", "nproc")
#: Usual numbers of processes; seven if an eighth generates.
USUAL_PROCESSES, BESIDE_A_SAMPLER = (1, 2, 3, 4, 6, 8), 7
SAMPLER = ("use_vllm", "vllm_mode")


def broken_groups(view: RunView) -> Iterator[tuple[Setting, str]]:
    """Yield the group size if no batch of the configuration holds a whole number of groups, and what is wrong.

    A batch is the configured generation batch, else the answers of a device times the number of processes.
    """
    run, size = view.run, view.given("num_generations")
    if "compares_groups" not in traits_of(run.framework) or not size or size < 1:
        return
    whole = _whole_number(run.config_raw, "generation_batch_size")
    batch, words = (whole[1], f"{whole[0]} = {whole[1]}") if whole is not None else _batch_of_a_device(view)
    if batch is None:
        return
    setting, needed = run.config["num_generations"], int(size) // math.gcd(int(size), batch)
    if needed == 1 or (whole is None and not _never_a_multiple(needed, run.config_raw)):
        return
    unless = "" if whole is not None else f", unless processes are a multiple of {needed}"
    yield (
        setting,
        f"{setting.key} = {size:g}, {words}: a batch is no whole number of groups{unless}; the trainer refuses it",
    )


def _never_a_multiple(needed: int, raw: Mapping[str, ConfigValue]) -> bool:
    """Return whether the number of processes, or if it is not set any usual one, is no multiple of `needed`."""
    processes = next((found for name in PROCESSES if (found := _whole_number(raw, name)) is not None), None)
    if processes is not None:
        return processes[1] % needed != 0
    apart = any(raw.get(name) not in (None, False) for name in SAMPLER)
    return all(number % needed for number in (*USUAL_PROCESSES, *((BESIDE_A_SAMPLER,) if apart else ())))


def _batch_of_a_device(view: RunView) -> tuple[int | None, str]:
    """Return the answers that one device generates in a step, and how they are computed; None if not configured."""
    if not view.configured("minibatch_size"):
        return None, ""
    steps = "steps_per_generation" if view.configured("steps_per_generation") else "gradient_accumulation_steps"
    factors: list[tuple[str, int]] = []
    for name in filter(view.configured, ("minibatch_size", steps)):
        value = view.number(name)
        if value is None or value < 1 or not value.is_integer():
            return None, ""
        factors.append((view.run.config[name].key, int(value)))
    return math.prod(value for _, value in factors), ", ".join(f"{key} = {value}" for key, value in factors)


def _whole_number(raw: Mapping[str, ConfigValue], name: str) -> tuple[str, int] | None:
    """Return the key and value of a setting that is a positive whole number, by the last part of its key."""
    for key, value in raw.items():
        if key.rpartition(".")[2] == name and isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return key, value
    return None
