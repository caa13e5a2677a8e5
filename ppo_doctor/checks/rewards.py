"""Statistics of rewards: variation, direction, and whether they are rewards at all."""

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
    course,
    drift,
    entropy_of,
    fact,
    finite,
    late,
    on_average,
)
from ppo_doctor.checks.statistics import REWARDS_LOGGED, statistic
from ppo_doctor.model.arrays import has_two_decimals, median
from ppo_doctor.model.run import SINGLE

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import BoolArray, Fact, FloatArray, Run, Series

#: KL of an update that moves log-probs by a twentieth of a nat.
MOVING_KL = 1e-3
#: A change of a reward by less than this part of its size is none.
OF_SIZE = 0.005
#: What a sample earns, then what an episode does, then evaluation.
REWARDS = ("reward_mean", "episode_return", "eval_return", "reward_total")
#: Fewest records of a reward that never varies; of one that says by its value why, fewer.
FEWEST, FEWEST_OF_ZERO, FEWEST_AT_LIMIT = 5, 3, 2
#: Records in which a reward that had varied is exactly 0, before it counts as gone, and how many times the usual change
#: from record to record lies between 0 and what was paid before.
GONE, LEAP = 4, 4.0
#: The deviation of normal noise over the mean of its changes, and the standard errors that a rise is measured by.
PER_CHANGE, BY_CHANCE = 0.886, 9.0
#: The share of records that may be unlike the others without telling anything.
ODD = 0.05
#: Share of the first entropy that is gone where a policy settled at once; what was paid for a fifth of the run after
#: that was paid to the policy that settled.
SETTLED, EARLY = 0.5, 0.2
#: Records at the start of a run; fewer tell of a batch, not of a run.
AT_FIRST = 3


def passes(series: Series) -> bool:
    """Tell whether a reward can be the rate at which answers pass, of which 1 is the most."""
    values = finite(series)
    named = series.name == "reward_mean" or any(word in series.raw.lower() for word in ("acc", "correct", "pass"))
    return named and len(values) >= AT_FIRST and bool((values >= 0).all() and (values <= 1).all())


def reward_of(view: RunView, *names: str) -> tuple[Series, FloatArray] | None:
    """Return the reward and its finite values: the first that is logged, of all or of those named.

    What a step earns may be one number where episodes differ by their lengths: then what these earn.
    """
    series = view.logged(*(names or REWARDS))
    if series is not None and not names and series.name == "reward_mean" and constant(finite(series)):
        series = view.logged("episode_return", "reward_mean")
    return None if series is None else (series, finite(series))


@statistic(*REWARDS_LOGGED)
def reward_spread(view: RunView) -> Fact | None:
    """Return the range of the rewards over the largest of them: exactly 0 where every record has the same.

    A mean that stays while the samples behind it differ is that of rewards that were centred: the range is theirs then.
    """
    first = filter(None, [reward_of(view)])
    logged = (*first, *filter(None, (reward_of(view, name) for name in REWARDS)))
    found = next(((s, values) for s, values in logged if len(values) >= _enough(view, values)), None)
    if found is None:
        return None
    series, values = found
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
    """Return the deviation of the rewards of a batch where they differ though their mean is one number throughout."""
    deviations, values = run.series.get("reward_std"), finite(series)
    if deviations is None or series.name != "reward_mean" or not len(values) or not constant(values):
        return None
    return deviations if float(np.mean(deviations.values > 0)) > ODD else None


def _enough(view: RunView, values: FloatArray) -> int:
    """Return how many records must agree: fewer where each has many episodes alike, or their value says why.

    0 does, and an episode's limit.
    """
    if "episode_return" not in view.run.series:
        return FEWEST  # a batch of answers is not a mean over many episodes
    if _at_limit(view, values) or _alike_within(view, values):
        return FEWEST_AT_LIMIT
    return FEWEST_OF_ZERO if values[0] == 0 else FEWEST


def _alike_within(view: RunView, values: FloatArray) -> bool:
    """Tell whether the least and the largest of the episodes of each record are its mean."""
    ends = [view.values(f"episode_return_{end}") for end in ("min", "max")]
    return all(end is not None and len(end) == len(values) and bool((end == values).all()) for end in ends)


def _at_limit(view: RunView, values: FloatArray) -> bool:
    lengths = view.values("episode_length")
    return lengths is not None and values[0] != 0 and abs(abs(values[0]) - lengths[-1]) <= SINGLE * lengths[-1]


@statistic(*REWARDS_LOGGED)
def reward_size(view: RunView) -> Fact | None:
    """Return the largest |reward| in the log as it is learned from, of a step where episodes' lengths are logged."""
    found, lengths = reward_of(view), view.values("episode_length")
    if found is None:
        return None
    largest, steps = float(np.abs(found[1]).max()), 1.0 if lengths is None else max(1.0, float(median(lengths)))
    scale = view.given("reward_scale")
    size = largest / steps * (1.0 if scale is None else abs(scale))
    per = "" if steps == 1 else f" per step of episodes of {steps:.3g}"
    by = "" if scale is None else f", scaled by {scale:g}"
    says = (
        f"|{found[0].raw}| is {size:.4g} at most{per}{by}"
        if size
        else f"{found[0].raw} is 0 in all {len(found[1])} records"
    )
    return fact(size, found[0], says)


@statistic(*REWARDS_LOGGED)
def reward_fixed_elsewhere(view: RunView) -> Fact | None:
    """Tell whether every sample is paid one amount that is neither 0 nor the episode's length.

    Episodes that all earn the same may be those of a solved task, or cost what never reaching the goal does.
    """
    spread = view.fact("reward_spread")
    found = reward_of(view)
    if spread is None or found is None:
        return None
    deviations = view.values("reward_std")
    varied_inside = deviations is not None and bool((deviations > 0).any())
    paid = float(found[1][0])
    earned = found[0].name in ("episode_return", "eval_return")
    told = earned or _at_limit(view, found[1]) or varied_inside
    if deviations is None and view.holds("policy_moves"):  # a mean of samples that may differ
        told = told or not has_two_decimals(paid)
    holds = spread.value == 0 and paid != 0 and not told and not settled_at_once(view)
    return condition(holds, found[0], str(spread.says))


@statistic("episode_return", "eval_return")
def return_at_floor(view: RunView) -> Fact | None:
    """Tell whether every episode costs one negative whole number, as one that never reaches the goal does."""
    found, spread = reward_of(view, "episode_return", "eval_return"), view.fact("reward_spread")
    if found is None or spread is None:
        return None
    paid = float(found[1][0])
    holds = spread.value == 0 and paid < 0 and paid.is_integer()
    return condition(holds, found[0], str(spread.says))


@statistic(*REWARDS_LOGGED)
def reward_gone(view: RunView) -> Fact | None:
    """Return how many records at the end pay exactly 0, after rewards that varied and did not fade before.

    The last fifth of what was paid is held against the best tenth, for one episode says little, and against what
    changes from record to record, for costs that were lowered are smaller than they were.
    """
    found = reward_of(view)
    if found is None or len(found[1]) < 2 * GONE:
        return None
    other = np.flatnonzero(found[1])
    tail = len(found[1]) - (int(other[-1]) + 1 if len(other) else 0)
    paid = found[1][: len(found[1]) - tail]
    size = max(GONE, len(paid) // 10)
    blocks = np.abs(paid[len(paid) % size :].reshape(-1, size).mean(axis=1))
    least = blocks.max() / 2 if len(blocks) else 0.0
    if len(blocks) and paid.max() <= 0:
        least = min(least, LEAP * median(np.abs(np.diff(paid[-2 * size :]))))
    lately = bool(len(blocks)) and bool(blocks[-2:].max() >= least)  # a mean of episodes fades
    at_once = np.count_nonzero(paid) >= GONE and not constant(paid) and lately
    at_once = at_once and not (len(paid) < EARLY * len(found[1]) and settled_at_once(view))
    count = tail if at_once else 0
    gone = fact(count, found[0], f"{found[0].raw} is exactly 0 in the last {tail} records")
    at = np.flatnonzero(np.isfinite(found[0].values))[-tail] if count else 0
    return replace(gone, since=int(found[0].axis.steps[at]), source=found[0].source(int(at))) if count else gone


def settled_at_once(view: RunView) -> bool:
    """Tell whether the policy lost most of its entropy in the first tenth: then it may be what earns the same."""
    return (view.value("entropy_first_drop") or 0.0) > SETTLED


#: Of what the best sample earned, a mean that says that next to none earns it.
RARE = 0.01
#: Standard errors by which a reward rises that rises.
RISES = 3.0
#: Rewards of at most so many units of the last printed digit are next to nothing.
VISIBLE = 6


@statistic(*REWARDS_LOGGED)
def reward_zero_share(view: RunView) -> Fact | None:
    """Return the share of records that pay 0, or less than one in a hundred of what the best sample of the run earned.

    0 where the last third has half as many of them as the first. Those at the end of a run that was paid are left out:
    what was earned and lost is not sparse.
    """
    found = reward_of(view)
    if found is None or len(found[1]) < 2 * FEWEST or not found[1].any():
        return None
    best = view.values("reward_max")
    bound = max(RARE * float(best.max()), 0.0) if best is not None and found[1].min() >= 0 else 0.0
    printed = found[0].resolution.absolute
    if printed <= RARE * float(np.abs(found[1]).max()):  # what is printed as 0 is next to nothing
        bound = max(bound, printed)
    if found[0].resolution.least and VISIBLE * printed >= float(np.abs(found[1]).max()) > 0:
        bound = max(bound, printed)  # whoever prints so many digits expects rewards that fill them
    elif found[0].resolution.least and printed > bound:
        return None
    zero = np.abs(found[1]) <= bound  # a reward that is negative at times has a bound of 0
    if (seldom := _seldom_paid(view)) is not None:
        zero |= seldom
    if zero.all():
        return fact(1.0, found[0], f"{found[0].raw} is at most {bound:.3g} in every record")
    third = len(zero) // 3
    fewer = bool(zero[-third:].mean() <= zero[:third].mean() / 2)
    paid = zero[: int(np.flatnonzero(~zero)[-1]) + 1]
    lost = len(paid) >= GONE and paid.mean() < 0.5
    share = 0.0 if fewer else float(paid.mean() if lost else zero.mean())
    least = f"at most {bound:.3g}" if bound > 0 else "exactly 0"
    says = f"{found[0].raw} is {least} in {zero.mean():.0%} of the records"
    return fact(share, found[0], says)


#: Share of episodes below which next to none is paid.
SELDOM = 0.05


def _seldom_paid(view: RunView) -> BoolArray | None:
    """Return in which records next to no episode succeeds, where nothing but success is paid; None where more is."""
    reward, success = reward_of(view), view.run.series.get("success_rate")
    if reward is None or success is None or len(success) != len(reward[1]) or reward[1].min() < 0:
        return None
    paid = reward[1] > 0
    alone = int((~paid).sum()) >= FEWEST and bool(success.values[paid].all())
    return success.values < SELDOM if alone else None


def does_not_rise(view: RunView) -> bool:
    """Tell whether a reward is logged that does not rise by three standard errors, as `reward-rises` asks."""
    rise = view.value("reward_course")
    return rise is not None and rise < RISES


@statistic(*REWARDS_LOGGED)
def reward_course(view: RunView) -> Fact | None:
    """Return the change of the reward from start to end, in standard errors."""
    found = reward_of(view)
    told = None if found is None else course(found[1])
    if found is None or told is None:
        return None
    change = told.change if abs(told.end - told.start) >= _least(found[1]) else 0.0
    return fact(change, found[0], on_average(found[0].raw, told.start, told.end))


def _least(values: FloatArray) -> float:
    """Return the least change of a reward that counts, however steady it is."""
    return OF_SIZE * float(np.abs(values).max())


@statistic(*REWARDS_LOGGED)
def reward_below_start(view: RunView) -> Fact | None:
    """Return the share of the second half's records that pay less than the first tenth did."""
    found = reward_of(view)
    if found is None or len(found[1]) < 6:
        return None
    series, values = found
    begun = float(values[: max(2, len(values) // 10)].mean())
    below = float((values[len(values) // 2 :] < begun - _least(values)).mean())
    says = f"{series.raw} begins at {begun:.4g}, on average, and lies below that in {below:.0%} of the second half"
    return fact(below, series, says)


@statistic("reward_mean+entropy", "episode_return+entropy", "eval_return+entropy")
def falls_as_it_moves(view: RunView) -> Fact | None:
    """Return the share of later records below the start's reward, of a policy that is seen to move by other witnesses.

    None where only the reward tells that anything changes: a reward alone falls for many reasons.
    """
    below, apart = view.fact("reward_below_start"), view.holds("moves_apart_from_ratio")
    usual = view.value("divergence_usual")
    moves = any_known(apart, None if usual is None else usual > MOVING_KL)
    if below is None or moves is None:
        return None
    return replace(below, name="falls_as_it_moves", value=below.value if moves else 0.0)


@statistic(*REWARDS_LOGGED)
def reward_rose_first(view: RunView) -> Fact | None:
    """Return how far the reward, in means of a tenth of the run, rose above its start, over how far it ended below.

    Or over what chance makes of such a mean, nine standard errors of the difference, where that is less.
    """
    found = reward_of(view)
    if found is None or len(found[1]) < 6:
        return None
    series, values = found
    width = max(3, len(values) // 10)
    sums = np.concatenate(([0.0], np.cumsum(values - values[0])))
    means = values[0] + (sums[width:] - sums[:-width]) / width
    begun, best, last = (float(value) for value in (means[0], means.max(), means[-1]))
    if last >= begun:
        return None
    says = f"{series.raw} begins at {begun:.4g}, reaches {best:.4g} and ends at {last:.4g}"
    error = PER_CHANGE * float(np.abs(np.diff(values)).mean()) * math.sqrt(2 / width)
    fall = min(begun - last, BY_CHANCE * error) if error > 0 else begun - last
    return fact((best - begun) / fall, series, says)


@statistic("episode_return+eval_return")
def evaluation_beats_training(view: RunView) -> Fact | None:
    """Tell whether the evaluated policy earns more and more while the training episodes do not follow."""
    trained, tested = view.logged("episode_return"), view.logged("eval_return")
    if trained is None or tested is None:
        return None
    one = course(finite(trained))
    other = course(finite(tested))
    if one is None or other is None:
        return None
    rise = other.end - other.start
    last = float(late(finite(tested), 1).mean())
    holds = other.change > 2 and rise > 0 and abs(one.change) < 3 and last - one.end > rise / 2
    says = f"{tested.raw} goes from {other.start:.4g} to {other.end:.4g}, "
    says += f"{trained.raw} from {one.start:.4g} to {one.end:.4g}"
    return condition(holds, tested, says)


#: Standard errors by which neighbouring means are alike in a reward that wanders and does not only scatter.
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
    """Return the entropy lost or won by a policy that moves, as a share, where the reward does not follow; else 0."""
    found, entropy = reward_of(view), entropy_of(view)
    if found is None or entropy is None or len(found[1]) < 8 or len(entropy) < 8:
        return None
    paid, spent = course(found[1]), course(finite(entropy))
    if paid is None or spent is None:
        return None
    # a reward that wanders far from chance was gained and lost again by something else
    every = (view.values(name) for name in REWARDS)  # what a step earns says little beside an episode's
    rises = any((one := course(values)) is not None and one.change > RISES for values in every if values is not None)
    flat = -3 < paid.change < 2 and abs(spent.change) > 4 and drift(blocks(found[1])) < WANDERS and not rises
    moved = abs(spent.end - spent.start) / max(0.3, abs(spent.start)) if flat else 0.0
    says = f"entropy goes from {spent.start:.3g} to {spent.end:.3g}, "
    says += f"{found[0].raw} from {paid.start:.4g} to {paid.end:.4g}"
    return fact(moved, found[0], says)


@statistic("reward_std", "reward_mean", "episode_return", "eval_return")
def rewards_differ(view: RunView) -> Fact | None:
    """Tell whether samples are paid differently in more than an odd record: in a batch, or from record to record."""
    deviations = view.logged("reward_std")
    if deviations is not None:
        varied = bool((finite(deviations) > 0).mean() > ODD)
        return condition(varied, deviations, f"{deviations.raw} is above 0" if varied else "")
    found = reward_of(view)
    if found is None or view.fact("reward_spread") is None:
        return None
    usual = np.unique(found[1], return_counts=True)[1].max()
    return condition(bool(usual < (1 - ODD) * len(found[1])), None, "")


@statistic("reward_std", "value_loss", "reward_mean", "episode_return", "eval_return")
def signal_present(view: RunView) -> Fact | None:
    """Tell whether there was something to learn from: rewards that differ, or a critic that is trained."""
    differ = view.fact("rewards_differ")
    critic = view.logged("value_loss")
    trained = None if critic is None else bool((finite(critic) > 0).any())
    known = [each for each in (None if differ is None else bool(differ.value), trained) if each is not None]
    says = (
        "rewards differ"
        if differ is not None and differ.value
        else f"{critic.raw} is above 0"
        if trained and critic
        else ""
    )
    return condition(any(known) if known else None, critic, says)
