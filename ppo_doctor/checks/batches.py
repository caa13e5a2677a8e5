"""Numbers of samples per rollout, minibatch and answer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.series import condition_series, fact
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model.arrays import beside, finite_median, finite_of, has_two_decimals, mean_of, median, same
from ppo_doctor.model.run import EXACT, Fact
from ppo_doctor.trainers.detection import traits_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import BoolArray, FloatArray, Series, Setting
    from ppo_doctor.model.words import ConfigValue

#: Records that a median, or a comparison of two ends of a run, needs.
LEAST = 6
#: Records that tell how long completions were at first: a price on tokens halves them within six.
EARLIEST = 3
#: An upper bound of a length tells of shrinking only well below the length at first, which is an estimate.
SAYS_SO = 0.3
#: What is within this share of the limit has hit it, all but for a token that ends it.
NEAR = 0.05
#: Environment steps between two records of updates that can hold one rollout only.
NARROW = 64


@statistic("env_steps+iteration", "rollout_steps+num_envs")
def rollout_steps_seen(view: RunView) -> Fact | None:
    """Return the environment steps of one rollout: counted where steps and rollouts are, else as configured.

    Failing both, records of updates that stand a few environment steps apart: their rollouts held no more than that.
    """
    return _counted(view) or _configured(view) or _spaced(view)


def _counted(view: RunView) -> Fact | None:
    steps = view.run.series.get("env_steps")
    rollouts = beside(steps, view.run.series.get("iteration"))
    if steps is None or rollouts is None or len(steps) < LEAST:
        return None
    done, taken = np.diff(rollouts.values), np.diff(steps.values)
    usable = np.isfinite(done) & np.isfinite(taken) & (done > 0) & (taken > 0)
    if usable.sum() < LEAST - 1:
        return None
    value = median(taken[usable] / done[usable])
    says = f"{steps.raw} per {rollouts.raw}"
    return fact(value, steps, says, "environment steps", how="observed")


def _configured(view: RunView) -> Fact | None:
    """Only for tasks with episodes: a batch of sequences holds many tokens."""
    if not _has_episodes(view) or not view.configured("rollout_steps"):
        return _rollout_size(view)
    steps, envs = view.number("rollout_steps"), view.number("num_envs")
    if not steps or not envs:
        return None
    says = f"{steps:g} steps × {envs:g} environments"
    return fact(steps * envs, view.run.config["rollout_steps"], says, "environment steps", how="configured")


def _has_episodes(view: RunView) -> bool:
    """Tell whether samples are steps of an environment, by the log, or by a configuration that is all there is."""
    if "from_settings" not in view.run.facts:
        return "episode_return" in view.run.series
    counts = view.run.facts.get("steps_are_env_steps")
    return bool(counts and counts.value) or any(map(view.configured, ("rollout_steps", "num_envs")))


def _spaced(view: RunView) -> Fact | None:
    """Return the spacing of updates in environment steps where it is so narrow that it bounds the rollout.

    A wide one bounds nothing: several updates may lie between two records.
    """
    counts = view.run.facts.get("steps_are_env_steps")
    updates = view.run.series.get("policy_loss")
    if counts is None or not counts.value or updates is None or len(updates) < LEAST:
        return None
    apart = np.diff(updates.axis.steps)
    value = median(apart[apart > 0].astype(np.float64)) if (apart > 0).sum() >= LEAST - 1 else np.inf
    if value > NARROW:
        return None
    return fact(value, updates, "updates are this many steps apart", "environment steps", how="observed")


def _rollout_size(view: RunView) -> Fact | None:
    size = view.given("rollout_size")
    if not _has_episodes(view) or not size:
        return None
    setting = view.run.config["rollout_size"]
    return fact(size, setting, f"{setting.key} = {size:g}", "environment steps", how="configured")


@statistic("gamma")
def discount_horizon(view: RunView) -> Fact | None:
    """Return 1/(1 - gamma), the steps over which a reward fades to a third; only for episodes of many more steps.

    None where the discount is a default, and where episodes are known not to be at least five times as long.
    """
    gamma, length = view.given("gamma"), view.run.series.get("episode_length")
    if gamma is None or gamma >= 1:
        return None
    horizon = 1 / (1 - gamma)
    finite: FloatArray = finite_of(length.values) if length is not None else np.empty(0)
    if len(finite) >= LEAST and median(finite) < 5 * horizon:
        return None
    setting = view.run.config["gamma"]
    lasting = f"of {median(finite):.3g} steps" if len(finite) >= LEAST else "whose length is not logged"
    says = f"{setting.key} = {gamma:g}, episodes {lasting}"
    return fact(horizon, setting, says, "steps", how="configured")


@statistic("truncated_fraction", "response_length+max_response_length")
def share_cut(view: RunView) -> Series | None:
    """Return the share of completions that hit the length limit: logged, else the least that their mean length tells.

    Where the mean is d below a limit of L, at most d / (0.05 L) of all are more than a twentieth below it (Markov's
    inequality). None where the mean is beyond the limit by more than the token that ends a completion.
    """
    logged, mean = (view.run.series.get(name) for name in ("truncated_fraction", "response_length"))
    limit = view.given("max_response_length")
    if logged is not None and len(logged):
        return replace(logged, name="share_cut")
    if mean is None or not len(mean) or not limit:
        return None
    if float(np.nanmax(mean.values)) > limit + 1:
        return None
    values = np.clip(1.0 - (limit - mean.values) / (NEAR * limit), 0.0, 1.0)
    says = f"the share that {mean.raw} next to a limit of {limit:g} tokens makes"
    return replace(mean, name="share_cut", values=values, unit="fraction", how="computed", says=says)


@statistic("truncated_fraction")
def truncation_rise(view: RunView) -> Fact | None:
    """Return by how much the share of truncated completions rose from the first to the last fifth of the run."""
    ends = _ends(view.run.series.get("truncated_fraction"))
    if ends is None:
        return None
    series, first, last = ends
    says = f"{series.raw} went from {first:.3g} to {last:.3g}"
    return fact(last - first, series, says, "fraction", how="observed")


@statistic("response_length", "objective_entropy+entropy+max_response_length")
def length_left(view: RunView) -> Fact | None:
    """Return the mean length of completions, or its bound, in the last fifth of the run over that in the first."""
    ends = _length_ends(view)
    if ends is None or ends[1] <= 0:
        return None
    series, first, last = ends
    says = f"{series.raw} went from {first:.3g} to {last:.3g}"
    if series.name == "objective_entropy":
        says = f"{series.raw} counts each token of padding as -1: at most {last:.3g} tokens, and {first:.3g} at first"
    return fact(last / first, series, says, "of the first fifth", how="observed")


def _length_ends(view: RunView) -> tuple[Series, float, float] | None:
    """Return the length of completions with that of the first records and of the last fifth, or what bounds it.

    Without a logged length: TRL's PPO sums -log p over an answer and counts -1 for each token of padding, so that the
    sum plus the longest length is at least the length. The first length takes the entropy per token. None where that
    bound says little.
    """
    logged = _ends(view.run.series.get("response_length"), first=EARLIEST)
    if logged is not None:
        return logged
    whole, token = (_ends(view.run.series.get(name), first=EARLIEST) for name in ("objective_entropy", "entropy"))
    longest = view.number("max_response_length")
    if whole is None or token is None or not longest or token[1] < 0:
        return None
    first, last = (whole[1] + longest) / (token[1] + 1), whole[2] + longest
    return (whole[0], first, last) if 0 <= last <= SAYS_SO * first else None


def _ends(series: Series | None, first: int = LEAST) -> tuple[Series, float, float] | None:
    """Return a series with the mean of its first records and the median of its last fifth."""
    finite = finite_of(series.values) if series is not None else np.empty(0)
    if series is None or len(finite) < 2 * LEAST:
        return None
    fifth = max(3, len(finite) // 5)
    start = max(3, min(fifth, first))  # a collapse may be over within the first fifth
    return series, mean_of(finite[:start]), median(finite[-fifth:])


#: Statistics of a rollout that are means over so many real numbers that two rollouts do not share them.
TELLING = (
    *("explained_variance", "returns_mean", "returns_std", "values_mean", "advantages_raw_std", "response_length"),
    *("objective_entropy", "kl_penalty_reward"),
)
#: These have to agree as well where they are logged, but repeat in sound runs: pass rates, lengths at the limit.
OTHERS = ("reward_mean", "reward_std", "truncated_fraction", "response_length_min", "response_length_max")
#: Counts what was sampled.
COUNTER = "env_steps"
#: Printed to fewer digits than this, equal numbers say little.
DIGITS = 1e-5
#: Of two that repeat together four digits are enough.
COARSER = 5e-4
#: Explained variance of returns that differ.
EXPLAINED = 0.5
#: A value this close to a whole number may be a limit, a floor or a count.
WHOLE = 1e-3
#: Entropy (nats) below which a policy repeats itself.
SHARP = 0.05
#: Changes of batch whose even spacing is no accident.
EVENLY = 4
#: Episodes of which the best and the worst do not agree by chance.
MANY = 8


@statistic("explained_variance", "response_length", "returns_mean", "objective_entropy", "episode_return+env_steps")
def batch_repeats(view: RunView) -> Series | None:
    """Return 1 where statistics of the rollout equal those of the record before, else 0; NaN in the first record.

    At least two have to, or all that there are: some trainers take values anew after each update. Only statistics that
    are logged with at least five digits count, and only where they are no whole numbers. A policy that always acts
    alike, and groups without any difference, repeat themselves honestly: 0 there, unless episodes went on to differ.
    """
    told = _told(view)
    if not told or view.fact("records_per_batch") is not None:
        return None
    others_told = (beside(told[0], view.run.series.get(name)) for name in OTHERS)
    enough = _alike(told)
    if enough.any():
        others = np.logical_and.reduce([enough, *(_equal_to_last(s.values) for s in others_told if s is not None)])
        enough = others & ~_repeats_honestly(view, told[0])
    values = enough.astype(np.float64)
    values[0] = np.nan
    says = f"{', '.join(series.raw for series in told)} as in the record before"
    return condition_series(dataclasses.replace(told[0], resolution=EXACT), "batch_repeats", values, says)


@statistic("explained_variance", "response_length", "returns_mean", "objective_entropy", "episode_return+env_steps")
def records_per_batch(view: RunView) -> Fact | None:
    """Return the records of each batch where statistics of the rollout change in every so many of them, else None.

    A trainer that writes a record per optimizer step repeats there what it knows of the rollout.
    """
    told = _told(view)
    if not told:
        return None
    changes = np.flatnonzero(~_alike(told)[1:])
    gaps = np.diff(changes)
    if len(changes) < EVENLY or gaps[0] < 2 or (gaps != gaps[0]).any():
        return None
    says = f"{', '.join(series.raw for series in told)} change in every {gaps[0]}th record"
    value = float(gaps[0])
    return fact(value, told[0], says, how="observed")


def _told(view: RunView) -> list[Series]:
    """Return the statistics of the rollout that tell one from another, on the records of the first of them.

    A mean reward tells beside a spread within the batch, or beside a count of environment steps, or where it is one
    number from the first record on although returns differ: without any of these it may be the mean of a solved task,
    or of episodes that ended long ago.
    """
    told = [series for name in TELLING if (series := _fine(view, name)) is not None]
    run = view.run.series
    spread, counter = run.get("reward_std"), run.get(COUNTER)
    if spread is not None and finite_median(spread.values) > 0:
        pair = [_fine(view, name, COARSER) for name in ("reward_mean", "reward_std")]
        told += [series for series in pair if series is not None] if None not in pair else []
    elif counter is not None and (series := _fine(view, "episode_return", COARSER)) is not None:
        length = _fine(view, "episode_length", COARSER)
        told += [one for one in (series, length, counter) if one is not None]
    elif (paid := _never_changes(view)) is not None:
        told = [paid, *(series for series in told if series.name != "explained_variance")]  # a critic is trained on
    if not told or len(told[0]) < 2:
        return []
    return [here for series in told if (here := beside(told[0], series)) is not None]


def _never_changes(view: RunView) -> Series | None:
    """Return a mean reward that is one number throughout while the policy moves, and is no constant.

    The critic explains much of returns that differ, or it has more digits than what a reward function returns.
    """
    run, spread = view.run.series, view.fact("reward_spread")
    critic = run.get("explained_variance")
    moves = view.fact("policy_moves")
    if spread is None or spread.value != 0 or "reward_std" in run or moves is None or not moves.value:
        return None
    differ = critic is not None and float(critic.values[np.isfinite(critic.values)].max(initial=0.0)) > EXPLAINED
    for name in ("episode_return", "reward_mean"):
        series = _fine(view, name, COARSER)
        if series is not None and (differ or not has_two_decimals(float(series.values[0]))):
            return series
    return None


def _alike(told: Sequence[Series]) -> BoolArray:
    """Return where all statistics, or at least two, equal those of the record before and are no whole numbers.

    A count of environment steps that stands says the same of whatever number.
    """
    alike = [_equal_to_last(series.values) for series in told]
    broken = [_no_whole_number(s.values) if s.name != COUNTER else np.ones(len(s), dtype=bool) for s in told]
    enough: BoolArray = np.logical_and.reduce(alike) & np.logical_or.reduce(broken)
    if len(told) > 1:
        enough |= np.sum([one & other for one, other in zip(alike, broken, strict=True)], axis=0) >= 2
    return enough


def _fine(view: RunView, name: str, digits: float = DIGITS) -> Series | None:
    series = view.run.series.get(name)
    if series is None or not np.isfinite(series.values).any():
        return None
    size = finite_median(np.abs(series.values))
    return series if series.resolution.absolute <= digits * max(size, WHOLE) else None


def _equal_to_last(values: FloatArray) -> BoolArray:
    repeats = np.zeros(len(values), dtype=bool)
    repeats[1:] = same(values[1:], values[:-1])
    known = np.isfinite(values)
    if not known.all():
        repeats[1:] |= ~(known[1:] | known[:-1])
    return repeats


def _no_whole_number(values: FloatArray) -> BoolArray:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.isfinite(values) & (np.abs(values - np.round(values)) > WHOLE))


def _repeats_honestly(view: RunView, told: Series) -> BoolArray:
    honest = np.zeros(len(told), dtype=bool)
    for name, bound in (("entropy", SHARP), ("reward_std", 0.0), ("reward_group_std", 0.0)):
        series = beside(told, view.run.series.get(name))
        if series is not None:
            honest |= (series.values <= bound) | series.at(bound)
    flat = beside(told, view.run.series.get("frac_reward_zero_std"))
    if flat is not None:
        honest |= flat.at(1)
    return honest & ~_episodes_differ(view, told) if honest.any() else honest


def _episodes_differ(view: RunView, records: Series) -> BoolArray:
    """Tell at which records return and length of the first or the last new episode are others than a record before.

    New episodes that differ are new samples, however sure of itself the policy is. Nowhere where they are not logged.
    """
    told = [view.run.series.get(name) for name in ("episode_return", "episode_length")]
    known = [series for series in told if series is not None and np.isfinite(series.values).sum() > 1]
    differ = np.full(len(records), len(known) == len(told), dtype=bool)
    for series in known:
        finite = np.isfinite(series.values)
        values, until = series.values[finite], np.searchsorted(series.axis.steps[finite], records.axis.steps, "right")
        since = np.minimum(np.concatenate([[0], until[:-1]]), until - 1)
        ends = [np.where(until > 0, values[at], 0.0) for at in (since, until - 1)]
        differ[0] = False
        differ[1:] &= np.logical_or.reduce([~same(one[1:], one[:-1]) for one in ends]) & (until[1:] > until[:-1])
    return differ


@statistic("episode_return_min+episode_return_max+env_steps")
def equal_episodes(view: RunView) -> Series | None:
    """Return 1 where the best and the worst of many episodes earned the same to the last digit, else 0.

    NaN where fewer than eight episodes can have ended since the record before, at the highest and the lowest return of
    the run (a cap, a floor), and where the policy always acts alike.
    """
    names = ("episode_return_min", "episode_return_max", "episode_length", "env_steps")
    low, *others = (view.run.series.get(name) for name in names)
    high, length, steps = (beside(low, other) for other in others)
    if low is None or high is None or length is None or steps is None or len(low) < 2:
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        ended = np.append(np.nan, np.diff(steps.values)) / length.values
    edges = same(low.values, np.fmin.reduce(low.values)) | same(high.values, np.fmax.reduce(high.values))
    usable = (ended >= MANY) & np.isfinite(low.values) & ~edges & ~_repeats_honestly(view, low)
    values = np.where(usable, same(low.values, high.values).astype(np.float64), np.nan)
    return condition_series(
        dataclasses.replace(low, resolution=EXACT), "equal_episodes", values, f"{low.raw} as high as {high.raw}"
    )


#: How launchers name the number of processes.
PROCESSES = ("num_processes", "world_size", "nproc_per_node", "num_gpus", "n_gpus", "nproc")
#: Processes that people start; seven beside one that generates.
USUAL_PROCESSES, BESIDE_A_SAMPLER = (1, 2, 3, 4, 6, 8), 7
SAMPLER = ("use_vllm", "vllm_mode")


def broken_groups(view: RunView) -> Iterator[tuple[Setting, str]]:
    """Yield the group size that no batch of the configuration holds a whole number of, and what is wrong in words.

    A batch is what is told as one, else the answers of a device times its steps per generation and the processes.
    """
    run = view.run
    size = view.number("num_generations")
    if (
        "compares_groups" not in traits_of(run.framework)
        or not view.configured("num_generations")
        or not size
        or size < 1
    ):
        return
    told = _whole(run.config_raw, "generation_batch_size")
    batch, words = (told[1], f"{told[0]} = {told[1]}") if told is not None else _of_a_device(view)
    if batch is None:
        return
    setting, needed = run.config["num_generations"], int(size) // math.gcd(int(size), batch)
    if needed == 1 or (told is None and not _refused(needed, run.config_raw)):
        return
    unless = "" if told is not None else f", unless processes are a multiple of {needed}"
    yield (
        setting,
        f"{setting.key} = {size:g}, {words}: a batch is no whole number of groups{unless}; the trainer refuses it",
    )


def _refused(needed: int, raw: Mapping[str, ConfigValue]) -> bool:
    """Tell whether no number of processes that is told, or else usual, is a multiple of what the groups need."""
    told = next((found for name in PROCESSES if (found := _whole(raw, name)) is not None), None)
    if told is not None:
        return told[1] % needed != 0
    apart = any(raw.get(name) not in (None, False) for name in SAMPLER)
    return all(number % needed for number in (*USUAL_PROCESSES, *((BESIDE_A_SAMPLER,) if apart else ())))


def _of_a_device(view: RunView) -> tuple[int | None, str]:
    """Return the answers that one device makes per generation, and in words how; None where nothing tells."""
    if not view.configured("minibatch_size"):
        return None, ""
    parts: list[tuple[str, int]] = []
    steps = "steps_per_generation" if view.configured("steps_per_generation") else "gradient_accumulation_steps"
    for name in ("minibatch_size", steps):
        value = view.number(name)
        if not view.configured(name):
            continue
        if value is None or value < 1 or not value.is_integer():
            return None, ""
        parts.append((view.run.config[name].key, int(value)))
    return math.prod(value for _, value in parts), ", ".join(f"{key} = {value}" for key, value in parts)


def _whole(raw: Mapping[str, ConfigValue], name: str) -> tuple[str, int] | None:
    """Return a setting that holds a whole number from 1 on, by the last part of its key."""
    for key, value in raw.items():
        if key.rpartition(".")[2] == name and isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return key, value
    return None
