"""Statistics of rewards: whether they differ, rise, fall, vanish, are sparse, or do not follow the policy."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.series import (
    any_known,
    blocks,
    condition,
    constant,
    course_of,
    drift,
    entropy_of,
    fact,
    finite,
    late,
    on_average,
)
from ppo_doctor.checks.statistics import REWARDS_LOGGED, once, statistic
from ppo_doctor.model.arrays import has_two_decimals, median
from ppo_doctor.model.run import SINGLE

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import BoolArray, Fact, FloatArray, Run, Series

#: KL (nats) of an update that moves log-probs by a twentieth of a nat.
MOVING_KL = 1e-3
#: Share of its size below which a change of a reward does not count.
OF_SIZE = 0.005
#: Rewards in order of preference: of a sample, of an episode, of evaluation, in total.
REWARDS = ("reward_mean", "episode_return", "eval_return", "reward_total")
#: Fewest records of a constant reward: in general, if it is 0, and if it is an episode's limit.
FEWEST, FEWEST_OF_ZERO, FEWEST_AT_LIMIT = 5, 3, 2
#: Fewest records in which a lost reward is exactly 0, and least distance between 0 and the rewards before, in usual
#: changes from record to record.
GONE, LEAP = 4, 4.0
#: Deviation of normal noise over the mean of its changes, and most standard errors that a rise is compared with.
PER_CHANGE, BY_CHANCE = 0.886, 9.0
#: Share of records that may differ from the others by accident.
ODD = 0.05
#: Share of the first entropy that a policy loses if it settles at once, and share of the run within which the rewards
#: that it still earns have to end.
SETTLED, EARLY = 0.5, 0.2
#: Records at the start of a run.
AT_FIRST = 3


def passes(series: Series) -> bool:
    """Return whether a reward can be the rate at which answers pass, whose maximum is 1."""
    values = finite(series)
    named = series.name == "reward_mean" or any(word in series.raw.lower() for word in ("acc", "correct", "pass"))
    return named and len(values) >= AT_FIRST and bool((values >= 0).all() and (values <= 1).all())


def reward_of(view: RunView, *names: str) -> tuple[Series, FloatArray] | None:
    """Return the reward and its finite values: the first that is logged, of all or of `names`.

    If the mean reward of a step is constant, the return of an episode, which differs with its length, is preferred.
    """
    series = view.logged(*names) if names else _reward(view)
    return None if series is None else (series, finite(series))


@once
def _reward(view: RunView) -> Series | None:
    series = view.logged(*REWARDS)
    if series is not None and series.name == "reward_mean" and constant(finite(series)):
        return view.logged("episode_return", "reward_mean")
    return series


@statistic(*REWARDS_LOGGED)
def reward_spread(view: RunView) -> Fact | None:
    """Return the range of the rewards over their largest size: exactly 0 if every record has the same.

    If the mean is constant while the samples behind it differ, as with centred rewards, their deviation is used
    instead.
    """
    first = filter(None, [reward_of(view)])
    logged = (*first, *filter(None, (reward_of(view, name) for name in REWARDS)))
    reward = next(((s, values) for s, values in logged if len(values) >= _enough(view, values)), None)
    if reward is None:
        return None
    series, values = reward
    size = float(np.abs(values).max())
    spread = 0.0 if constant(values) else float(np.ptp(values)) / size
    inside = spread_inside(view.run, series)
    if inside is not None:
        most = float(finite(inside).max())
        says = f"{series.raw} is {values[0]:.4g} in all {len(values)} records, and {inside.raw} reaches {most:.4g}"
        return fact(most / max(size, most), series, says)
    span = f"lies in {values.min():.4g} to {values.max():.4g} in" if spread else f"is {values[0]:.4g} in all"
    says = f"{series.raw} {span} {len(values)} records"
    return fact(spread, series, says)


def spread_inside(run: Run, series: Series) -> Series | None:
    """Return the deviation of rewards within a batch if rewards differ but their mean is one number throughout."""
    deviations, values = run.series.get("reward_std"), finite(series)
    if deviations is None or series.name != "reward_mean" or not len(values) or not constant(values):
        return None
    return deviations if float(np.mean(deviations.values > 0)) > ODD else None


def _enough(view: RunView, values: FloatArray) -> int:
    """Return how many records of a constant reward are enough.

    Fewer are if the episodes of each record are all alike, or if the reward is 0 or the limit of an episode.
    """
    if "episode_return" not in view.run.series:
        return FEWEST  # a batch of completions is not a mean over many episodes
    if _at_limit(view, values) or _alike_within(view, values):
        return FEWEST_AT_LIMIT
    return FEWEST_OF_ZERO if values[0] == 0 else FEWEST


def _alike_within(view: RunView, values: FloatArray) -> bool:
    """Return whether the smallest and the largest return of the episodes of each record equal its mean."""
    ends = [view.values(f"episode_return_{end}") for end in ("min", "max")]
    return all(end is not None and len(end) == len(values) and bool((end == values).all()) for end in ends)


def _at_limit(view: RunView, values: FloatArray) -> bool:
    """Return whether the reward is the length of an episode, as with one per step."""
    lengths = view.values("episode_length")
    return lengths is not None and values[0] != 0 and abs(abs(values[0]) - lengths[-1]) <= SINGLE * lengths[-1]


@statistic(*REWARDS_LOGGED)
def reward_size(view: RunView) -> Fact | None:
    """Return the largest |reward| as it is learned from, scaled, and per step if episode lengths are logged."""
    reward, lengths = reward_of(view), view.values("episode_length")
    if reward is None:
        return None
    series, values = reward
    largest, steps = float(np.abs(values).max()), 1.0 if lengths is None else max(1.0, float(median(lengths)))
    scale = view.given("reward_scale")
    size = largest / steps * (1.0 if scale is None else abs(scale))
    per = "" if steps == 1 else f" per step of episodes of {steps:.3g}"
    by = "" if scale is None else f", scaled by {scale:g}"
    says = (
        f"|{series.raw}| is {size:.4g} at most{per}{by}" if size else f"{series.raw} is 0 in all {len(values)} records"
    )
    return fact(size, series, says)


@statistic(*REWARDS_LOGGED)
def reward_fixed_elsewhere(view: RunView) -> Fact | None:
    """Return whether every sample is paid one amount that is neither 0 nor the episode's length.

    False for returns of episodes, which may be those of a solved task or of never reaching the goal.
    """
    spread = view.fact("reward_spread")
    reward = reward_of(view)
    if spread is None or reward is None:
        return None
    series, values = reward
    deviations = view.values("reward_std")
    varied_inside = deviations is not None and bool((deviations > 0).any())
    amount = float(values[0])
    earned = series.name in ("episode_return", "eval_return")
    explained = earned or _at_limit(view, values) or varied_inside
    if deviations is None and view.holds("policy_moves"):  # a mean of samples that may differ
        explained = explained or not has_two_decimals(amount)
    holds = spread.value == 0 and amount != 0 and not explained and not settled_at_once(view)
    return condition(holds, series, str(spread.says))


@statistic("episode_return", "eval_return")
def return_at_floor(view: RunView) -> Fact | None:
    """Return whether every episode costs one negative whole number, as if it never reaches the goal."""
    reward, spread = reward_of(view, "episode_return", "eval_return"), view.fact("reward_spread")
    if reward is None or spread is None:
        return None
    series, values = reward
    amount = float(values[0])
    holds = spread.value == 0 and amount < 0 and amount.is_integer()
    return condition(holds, series, str(spread.says))


@statistic(*REWARDS_LOGGED)
def reward_gone(view: RunView) -> Fact | None:
    """Return how many records at the end pay exactly 0, after rewards that varied and did not fade before.

    To exclude fading, the last fifth of the rewards has to reach half of the best tenth; costs, which become smaller as
    they are learned, have to differ from 0 by more than they change from record to record.
    """
    reward = reward_of(view)
    if reward is None or len(reward[1]) < 2 * GONE:
        return None
    series, values = reward
    other = np.flatnonzero(values)
    tail = len(values) - (int(other[-1]) + 1 if len(other) else 0)
    before = values[: len(values) - tail]
    size = max(GONE, len(before) // 10)
    blocks = np.abs(before[len(before) % size :].reshape(-1, size).mean(axis=1))
    least = blocks.max() / 2 if len(blocks) else 0.0
    if len(blocks) and before.max() <= 0:
        least = min(least, LEAP * median(np.abs(np.diff(before[-2 * size :]))))
    lately = bool(len(blocks)) and bool(blocks[-2:].max() >= least)  # a mean of episodes fades
    at_once = np.count_nonzero(before) >= GONE and not constant(before) and lately
    at_once = at_once and not (len(before) < EARLY * len(values) and settled_at_once(view))
    count = tail if at_once else 0
    gone = fact(count, series, f"{series.raw} is exactly 0 in the last {tail} records")
    at = np.flatnonzero(np.isfinite(series.values))[-tail] if count else 0
    return replace(gone, since=int(series.axis.steps[at]), source=series.source(int(at))) if count else gone


def settled_at_once(view: RunView) -> bool:
    """Return whether the policy lost most of its entropy in the first tenth, which may explain constant rewards."""
    return (view.value("entropy_first_drop") or 0.0) > SETTLED


#: Share of the best sample's reward below which a mean shows that next to no sample earns it.
RARE = 0.01
#: Standard errors above which a reward rises.
RISES = 3.0
#: Largest reward, in units of the last printed digit, that counts as next to 0.
VISIBLE = 6


@statistic(*REWARDS_LOGGED)
def reward_zero_share(view: RunView) -> Fact | None:
    """Return the share of records that pay 0, or less than a hundredth of what the best sample of the run earned.

    0 if the last third has at most half as many of them as the first. Those at the end of a run that was paid are left
    out: a reward that was earned and lost is not sparse.
    """
    reward = reward_of(view)
    if reward is None or len(reward[1]) < 2 * FEWEST or not reward[1].any():
        return None
    series, values = reward
    best = view.values("reward_max")
    bound = max(RARE * float(best.max()), 0.0) if best is not None and values.min() >= 0 else 0.0
    printed = series.resolution.absolute
    if printed <= RARE * float(np.abs(values).max()):  # a printed 0 is next to 0
        bound = max(bound, printed)
    if series.resolution.least and VISIBLE * printed >= float(np.abs(values).max()) > 0:
        bound = max(bound, printed)  # such a print is made for larger rewards
    elif series.resolution.least and printed > bound:
        return None
    zero = np.abs(values) <= bound  # a reward that is negative at times has a bound of 0
    if (seldom := _seldom_paid(view)) is not None:
        zero |= seldom
    if zero.all():
        return fact(1.0, series, f"{series.raw} is at most {bound:.3g} in every record")
    third = len(zero) // 3
    fewer = bool(zero[-third:].mean() <= zero[:third].mean() / 2)
    until_last_reward = zero[: int(np.flatnonzero(~zero)[-1]) + 1]
    lost = len(until_last_reward) >= GONE and until_last_reward.mean() < 0.5
    share = 0.0 if fewer else float(until_last_reward.mean() if lost else zero.mean())
    least = f"at most {bound:.3g}" if bound > 0 else "exactly 0"
    says = f"{series.raw} is {least} in {zero.mean():.0%} of the records"
    return fact(share, series, says)


#: Share of successful episodes that counts as next to none.
SELDOM = 0.05


def _seldom_paid(view: RunView) -> BoolArray | None:
    """Return in which records next to no episode succeeds, if only success is paid; else None."""
    reward, success = reward_of(view), view.run.series.get("success_rate")
    if reward is None or success is None or len(success) != len(reward[1]) or reward[1].min() < 0:
        return None
    rewarded = reward[1] > 0
    alone = int((~rewarded).sum()) >= FEWEST and bool(success.values[rewarded].all())
    return success.values < SELDOM if alone else None


def does_not_rise(view: RunView) -> bool:
    """Return whether a reward is logged and does not rise by three standard errors, as `reward-rises` requires."""
    rise = view.value("reward_course")
    return rise is not None and rise < RISES


@statistic(*REWARDS_LOGGED)
def reward_course(view: RunView) -> Fact | None:
    """Return the change of the reward from start to end, in standard errors."""
    reward = reward_of(view)
    trend = None if reward is None else course_of(reward[0])
    if reward is None or trend is None:
        return None
    series, values = reward
    change = trend.change if abs(trend.end - trend.start) >= _least(values) else 0.0
    return fact(change, series, on_average(series.raw, trend.start, trend.end))


def _least(values: FloatArray) -> float:
    """Return the least change of a reward that counts, however little it scatters."""
    return OF_SIZE * float(np.abs(values).max())


@statistic(*REWARDS_LOGGED)
def reward_below_start(view: RunView) -> Fact | None:
    """Return the share of the second half's records that pay less than the first tenth did."""
    reward = reward_of(view)
    if reward is None or len(reward[1]) < 6:
        return None
    series, values = reward
    start = float(values[: max(2, len(values) // 10)].mean())
    below = float((values[len(values) // 2 :] < start - _least(values)).mean())
    says = f"{series.raw} begins at {start:.4g}, on average, and lies below that in {below:.0%} of the second half"
    return fact(below, series, says)


@statistic("reward_mean+entropy", "episode_return+entropy", "eval_return+entropy")
def falls_as_it_moves(view: RunView) -> Fact | None:
    """Return the share of later records below the reward at the start; 0 if the policy does not move.

    None if only the reward shows that anything changes, since a reward falls for many reasons.
    """
    below, entropy_or_weights = view.fact("reward_below_start"), view.holds("moves_apart_from_ratio")
    usual = view.value("divergence_usual")
    moves = any_known(entropy_or_weights, None if usual is None else usual > MOVING_KL)
    if below is None or moves is None:
        return None
    return replace(below, name="falls_as_it_moves", value=below.value if moves else 0.0)


@statistic(*REWARDS_LOGGED)
def reward_rose_first(view: RunView) -> Fact | None:
    """Return how far the reward, in means of a tenth of the run, rose above its start, over how far it ended below.

    The fall counts as at most nine standard errors of such a difference. None if it ended above its start.
    """
    reward = reward_of(view)
    if reward is None or len(reward[1]) < 6:
        return None
    series, values = reward
    width = max(3, len(values) // 10)
    sums = np.concatenate(([0.0], np.cumsum(values - values[0])))
    means = values[0] + (sums[width:] - sums[:-width]) / width
    start, best, last = (float(value) for value in (means[0], means.max(), means[-1]))
    if last >= start:
        return None
    says = f"{series.raw} begins at {start:.4g}, reaches {best:.4g} and ends at {last:.4g}"
    error = PER_CHANGE * float(np.abs(np.diff(values)).mean()) * math.sqrt(2 / width)
    fall = min(start - last, BY_CHANCE * error) if error > 0 else start - last
    return fact((best - start) / fall, series, says)


@statistic("episode_return+eval_return")
def evaluation_beats_training(view: RunView) -> Fact | None:
    """Return whether the evaluation reward rises while the training episodes do not follow."""
    trained, tested = view.logged("episode_return"), view.logged("eval_return")
    if trained is None or tested is None:
        return None
    one = course_of(trained)
    other = course_of(tested)
    if one is None or other is None:
        return None
    rise = other.end - other.start
    last = float(late(finite(tested), 1).mean())
    holds = other.change > 2 and rise > 0 and abs(one.change) < 3 and last - one.end > rise / 2
    says = f"{tested.raw} goes from {other.start:.4g} to {other.end:.4g}, "
    says += f"{trained.raw} from {one.start:.4g} to {one.end:.4g}"
    return condition(holds, tested, says)


#: Standard errors of `drift` above which a reward wanders and does not only scatter.
WANDERS = 3.0


@statistic(
    *(
        "reward_mean+entropy",
        "reward_mean+entropy_loss",
        "episode_return+entropy",
        "episode_return+entropy_loss",
        "eval_return+entropy",
        "eval_return+entropy_loss",
    )
)
def movement_without_gain(view: RunView) -> Fact | None:
    """Return the relative change of entropy of a policy whose reward does not follow; else 0."""
    reward, entropy = reward_of(view), entropy_of(view)
    if reward is None or entropy is None or len(reward[1]) < 8 or len(entropy) < 8:
        return None
    series, values = reward
    trend, entropy_trend = course_of(series), course_of(entropy)
    if trend is None or entropy_trend is None:
        return None
    # a reward that wanders was gained and lost for another reason
    every = map(view.logged, REWARDS)  # a step's reward may rise less than an episode's
    rises = any((one := course_of(other)) is not None and one.change > RISES for other in every if other is not None)
    flat = -3 < trend.change < 2 and not rises and drift(blocks(values)) < WANDERS and abs(entropy_trend.change) > 4
    moved = abs(entropy_trend.end - entropy_trend.start) / max(0.3, abs(entropy_trend.start)) if flat else 0.0
    says = f"entropy goes from {entropy_trend.start:.3g} to {entropy_trend.end:.3g}, "
    says += f"{series.raw} from {trend.start:.4g} to {trend.end:.4g}"
    return fact(moved, series, says)


@statistic("reward_std", "reward_mean", "episode_return", "eval_return")
def rewards_differ(view: RunView) -> Fact | None:
    """Return whether rewards differ in more than a few records: within a batch, else from record to record."""
    deviations = view.logged("reward_std")
    if deviations is not None:
        varied = bool((finite(deviations) > 0).mean() > ODD)
        return condition(varied, deviations, f"{deviations.raw} is above 0" if varied else "")
    reward = reward_of(view)
    if reward is None or view.fact("reward_spread") is None:
        return None
    _, values = reward
    usual = np.unique(values, return_counts=True)[1].max()
    return condition(bool(usual < (1 - ODD) * len(values)), None, "")


@statistic("reward_std", "value_loss", "reward_mean", "episode_return", "eval_return")
def signal_present(view: RunView) -> Fact | None:
    """Return whether there was something to learn from: rewards that differ, or a critic that is trained."""
    differ = view.fact("rewards_differ")
    critic = view.logged("value_loss")
    trained = None if critic is None else bool((finite(critic) > 0).any())
    known = [answer for answer in (None if differ is None else bool(differ.value), trained) if answer is not None]
    says = (
        "rewards differ"
        if differ is not None and differ.value
        else f"{critic.raw} is above 0"
        if trained and critic
        else ""
    )
    return condition(any(known) if known else None, critic, says)
