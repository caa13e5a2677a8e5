"""Is it a new batch? Statistics of a rollout that come out the same to the last digit are those of the same rows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside, finite_median, has_two_decimals, same
from ppo_doctor.derive.conditions import condition
from ppo_doctor.model import EXACT, Fact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.derive import Observations
    from ppo_doctor.model import BoolArray, FloatArray, Series

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


def batch_repeats(observations: Observations) -> Series | None:
    """Return 1 where statistics of the rollout equal those of the record before, else 0; NaN in the first record.

    At least two have to, or all that there are: some trainers take values anew after each update. Only statistics that
    are logged with at least five digits count, and only where they are no whole numbers. A policy that always acts
    alike, and groups without any difference, repeat themselves honestly: 0 there, unless episodes went on to differ.
    """
    told = _told(observations)
    if not told or observations.fact("records_per_batch") is not None:
        return None
    others_told = (beside(told[0], observations.run.series.get(name)) for name in OTHERS)
    enough = _alike(told)
    if enough.any():
        others = np.logical_and.reduce([enough, *(_equal_to_last(s.values) for s in others_told if s is not None)])
        enough = others & ~_repeats_honestly(observations, told[0])
    values = enough.astype(np.float64)
    values[0] = np.nan
    says = f"{', '.join(series.raw for series in told)} as in the record before"
    return condition(dataclasses.replace(told[0], resolution=EXACT), "batch_repeats", values, says)


def records_per_batch(observations: Observations) -> Fact | None:
    """Return the records of each batch where statistics of the rollout change in every so many of them, else None.

    A trainer that writes a record per optimizer step repeats there what it knows of the rollout.
    """
    told = _told(observations)
    if not told:
        return None
    changes = np.flatnonzero(~_alike(told)[1:])
    gaps = np.diff(changes)
    if len(changes) < EVENLY or gaps[0] < 2 or (gaps != gaps[0]).any():
        return None
    says = f"{', '.join(series.raw for series in told)} change in every {gaps[0]}th record"
    value = float(gaps[0])
    return Fact(name="records_per_batch", value=value, how="observed", source=told[0].source(), says=says)


def _told(observations: Observations) -> list[Series]:
    """Return the statistics of the rollout that tell one from another, on the records of the first of them.

    A mean reward tells beside a spread within the batch, or beside a count of environment steps, or where it is one
    number from the first record on although returns differ: without any of these it may be the mean of a solved task,
    or of episodes that ended long ago.
    """
    told = [series for name in TELLING if (series := _fine(observations, name)) is not None]
    run = observations.run.series
    spread, counter = run.get("reward_std"), run.get(COUNTER)
    if spread is not None and finite_median(spread.values) > 0:
        pair = [_fine(observations, name, COARSER) for name in ("reward_mean", "reward_std")]
        told += [series for series in pair if series is not None] if None not in pair else []
    elif counter is not None and (series := _fine(observations, "episode_return", COARSER)) is not None:
        length = _fine(observations, "episode_length", COARSER)
        told += [one for one in (series, length, counter) if one is not None]
    elif (paid := _never_changes(observations)) is not None:
        told = [paid, *(series for series in told if series.name != "explained_variance")]  # a critic is trained on
    if not told or len(told[0]) < 2:
        return []
    return [here for series in told if (here := beside(told[0], series)) is not None]


def _never_changes(observations: Observations) -> Series | None:
    """Return a mean reward that is one number throughout while the policy moves, and is no constant.

    The critic explains much of returns that differ, or it has more digits than what a reward function returns.
    """
    run, spread = observations.run.series, observations.fact("reward_spread")
    critic = run.get("explained_variance")
    moves = observations.fact("policy_moves")
    if spread is None or spread.value != 0 or "reward_std" in run or moves is None or not moves.value:
        return None
    differ = critic is not None and float(critic.values[np.isfinite(critic.values)].max(initial=0.0)) > EXPLAINED
    for name in ("episode_return", "reward_mean"):
        series = _fine(observations, name, COARSER)
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


def _fine(observations: Observations, name: str, digits: float = DIGITS) -> Series | None:
    series = observations.run.series.get(name)
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


def _repeats_honestly(observations: Observations, told: Series) -> BoolArray:
    honest = np.zeros(len(told), dtype=bool)
    for name, bound in (("entropy", SHARP), ("reward_std", 0.0), ("reward_group_std", 0.0)):
        series = beside(told, observations.run.series.get(name))
        if series is not None:
            honest |= (series.values <= bound) | series.at(bound)
    flat = beside(told, observations.run.series.get("frac_reward_zero_std"))
    if flat is not None:
        honest |= flat.at(1)
    return honest & ~_episodes_differ(observations, told) if honest.any() else honest


def _episodes_differ(observations: Observations, records: Series) -> BoolArray:
    """Tell at which records return and length of the first or the last new episode are others than a record before.

    New episodes that differ are new samples, however sure of itself the policy is. Nowhere where they are not logged.
    """
    told = [observations.run.series.get(name) for name in ("episode_return", "episode_length")]
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


def equal_episodes(observations: Observations) -> Series | None:
    """Return 1 where the best and the worst of many episodes earned the same to the last digit, else 0.

    NaN where fewer than eight episodes can have ended since the record before, at the highest and the lowest return of
    the run (a cap, a floor), and where the policy always acts alike.
    """
    names = ("episode_return_min", "episode_return_max", "episode_length", "env_steps")
    low, *others = (observations.run.series.get(name) for name in names)
    high, length, steps = (beside(low, other) for other in others)
    if low is None or high is None or length is None or steps is None or len(low) < 2:
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        ended = np.append(np.nan, np.diff(steps.values)) / length.values
    edges = same(low.values, np.fmin.reduce(low.values)) | same(high.values, np.fmax.reduce(high.values))
    usable = (ended >= MANY) & np.isfinite(low.values) & ~edges & ~_repeats_honestly(observations, low)
    values = np.where(usable, same(low.values, high.values).astype(np.float64), np.nan)
    return condition(
        dataclasses.replace(low, resolution=EXACT), "equal_episodes", values, f"{low.raw} as high as {high.raw}"
    )
