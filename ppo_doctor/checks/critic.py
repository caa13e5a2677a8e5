"""Statistics of the critic: value loss, explained variance, value clipping, and its share of the gradient."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ppo_doctor.checks.rewards import does_not_rise, reward_of
from ppo_doctor.checks.series import (
    any_known,
    both,
    condition,
    constant,
    course,
    fact,
    finite,
    late,
    on_average,
    paired,
)
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model.arrays import beside, finite_median, finite_of, median, quantile
from ppo_doctor.model.run import Fact

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import BoolArray, FloatArray, Series

#: Fewest records of a metric whose median is used.
MANY = 8
#: Value losses that leave the policy no step of the common gradient bound, and whose roots no critic reaches.
LARGE, OUT_OF_REACH = 1e4, 1e5
#: KL of an update (nats) that is a twentieth of a usual one.
NEXT_TO_NO_KL = 5e-4
#: Explained variance below which a critic explains nothing.
EXPLAINS = 0.05
#: Gradient norm of which usual bounds leave less than a hundredth, and share of the value loss that is left.
SWAMPED, HALF_LEFT = 100.0, 0.5
#: Fewest records in which an explained variance repeats, coarsest resolution, and value up to which it varies.
LASTS, FINE, FAR_FROM_ONE = 20, 1e-3, 0.95
#: Share left of a value loss that does not fall, and multiple of the squared returns above which it has other causes.
STAYS, BEYOND = 0.7, 100


@statistic("value_loss")
def value_loss_left(view: RunView) -> Fact | None:
    """Return the late value loss over the first; 1 if the change is within its scatter."""
    series = view.logged("value_loss")
    trend = None if series is None else course(np.log(np.maximum(finite(series), 1e-30)))
    if series is None or trend is None:
        return None
    clear = abs(trend.change) > 2
    left = float(np.exp(trend.end - trend.start)) if clear else 1.0
    return fact(
        left,
        series,
        on_average(series.raw, float(np.exp(trend.start)), float(np.exp(trend.end)))
        + ("" if clear else ", within its scatter"),
    )


@statistic("explained_variance")
def explained_at_end(view: RunView) -> Fact | None:
    """Return the median explained variance of the last quarter."""
    series = view.logged("explained_variance")
    if series is None or len(series) < 3:
        return None
    level = float(median(late(finite(series))))
    return fact(level, series, f"{series.raw} is {level:.3g} at the end")


@statistic("values_mean+value_loss")
def values_beside_error(view: RunView) -> Fact | None:
    """Return the mean prediction's size over the root of the value loss, in medians of the later half."""
    values, losses = view.values("values_mean"), view.values("value_loss")
    if values is None or losses is None or min(len(values), len(losses)) < MANY:
        return None
    size = float(median(np.abs(values[len(values) // 2 :])))
    error = float(np.sqrt(median(np.abs(losses[len(losses) // 2 :]))))
    if error == 0:
        return None
    says = f"predictions of {size:.3g} beside an error of {error:.3g}"
    return fact(size / error, view.logged("values_mean"), says)


#: Explained variance at the end above which the critic explains something.
EXPLAINS_SOME = 0.1


@statistic("value_loss", "explained_variance")
def critic_learns(view: RunView) -> Fact | None:
    """Return whether the value loss clearly falls, or the explained variance clearly rises."""
    left, level = view.value("value_loss_left"), view.value("explained_at_end")
    explained = view.values("explained_variance")
    first = 0.0 if explained is None else float(median(explained[:3]))
    rises = None if level is None else level > 0.3 and level > first + 0.1
    falls = None if left is None else left < 0.6
    if falls and level is not None and level < EXPLAINS_SOME and not rises:
        return None  # the value loss may fall because returns became smaller
    holds = any_known(falls, rises)
    says = view.says("value_loss_left", "explained_at_end")
    return condition(holds, view.logged("value_loss"), says)


@statistic("explained_variance+value_loss")
def explained_repeats(view: RunView) -> Fact | None:
    """Return whether the explained variance is one number to the last bit although the value loss changes.

    A repeat from some record on counts if the reward is constant too, and if the number is far from 1, near which it
    hardly varies.
    """
    series, losses = view.logged("explained_variance"), view.logged("value_loss")
    if series is None or np.isfinite(series.values).sum() < 4:
        return None
    values = finite(series)
    moving = None if losses is None else not constant(finite(losses))
    holds, says = both(constant(values) and abs(values[0]) > 1e-9, moving), "in every record"
    lasts = int(np.argmax(values[::-1] != values[-1]))  # 0 if all are one number
    rewards = reward_of(view)
    enough = max(LASTS, len(values) // 3)
    if lasts >= enough and series.resolution.absolute < FINE and 0 < abs(values[-1]) < FAR_FROM_ONE and rewards:
        moving = None if losses is None else not constant(finite(losses)[-enough:])
        holds, says = both(constant(rewards[1][-enough:]), moving), f"in the last {lasts} records"
    return condition(holds, series, f"{series.raw} is {values[-1]:.6g} {says}")


@statistic("value_loss+value_loss_unclipped")
def value_loss_kept(view: RunView) -> Fact | None:
    """Return the share of the value loss that is left by value clipping."""
    clipped, whole = view.logged("value_loss"), view.logged("value_loss_unclipped")
    if clipped is None or whole is None:
        return None
    clipped_losses, unclipped = paired(clipped, whole)
    if not len(clipped_losses):
        return None
    share = float(median(clipped_losses / np.maximum(unclipped, 1e-30)))
    return fact(share, clipped, f"{clipped.raw} is {share:.2g} of the loss before clipping")


@statistic("clip_range_vf+episode_return")
def value_clip_over_returns(view: RunView) -> Fact | None:
    """Return the value clip range over the largest |return|."""
    logged = view.values("clip_range_vf")
    size = view.given("clip_range_vf") if logged is None else float(median(logged))
    returns = view.values("episode_return", "returns_mean", "reward_mean")
    if size is None or returns is None or np.abs(returns).max() == 0:
        return None
    over = size / float(np.abs(returns).max())
    return fact(
        over,
        view.logged("value_loss"),
        f"values may move by {size:g} beside returns of {np.abs(returns).max():.3g}",
    )


@statistic("value_loss")
def critic_drowns_policy(view: RunView) -> Fact | None:
    """Return whether the value loss is so large that the policy gets no step or gain, or that the critic cannot learn.

    Policy and critic share the bound of the gradient norm, so a value loss above 1e4 may leave the policy next to
    nothing. A network whose outputs begin near 1 and whose weights move by the learning rate per step cannot reach
    errors of several hundreds, so a value loss above 1e5 may never fall. A loss far beyond the squared returns has
    another cause.
    """
    losses, usual = view.logged("value_loss"), view.value("divergence_usual")
    frozen = view.holds("policy_stands") if usual is None else usual < 5e-6
    left = view.value("value_loss_left")
    if losses is None or (frozen is None and left is None):
        return None
    size = float(finite_median(losses.values))
    context = "beside a policy that stands still" if usual is None else f"at a KL of {usual:.2g}"
    norms = view.values("grad_norm")
    norm = 0.0 if norms is None else float(median(norms))
    stays = left is not None and left > HALF_LEFT
    small = usual is not None and usual < NEXT_TO_NO_KL and norm > 10 * SWAMPED
    swamped = size > LARGE and norm > SWAMPED and (stays or small or does_not_rise(view))
    if swamped:
        which = "a reward that does not rise"
        which = f"{left:.2g} of the first is left" if stays else f"a KL of {usual:.2g}" if small else which
        context = f"at a gradient norm of {norm:.3g}, and {which}"
    beyond = (view.value("value_loss_over_returns") or 0.0) > BEYOND
    drowns = swamped or (size > LARGE and frozen is True)
    explained = view.value("explained_at_end")
    unexplaining = explained is not None and abs(explained) < EXPLAINS
    hopeless = size > OUT_OF_REACH and left is not None and (left > STAYS or unexplaining) and not beyond
    says = f"{losses.raw} is {size:.3g} {context if drowns or left is None else f'and {left:.2g} of the first is left'}"
    return condition(drowns or hopeless, losses, says)


@statistic("value_clip_fraction")
def values_clipped_usually(view: RunView) -> Fact | None:
    """Return the median share of value predictions that are clipped."""
    clipped = view.logged("value_clip_fraction")
    if clipped is None or len(finite(clipped)) < MANY:
        return None
    part = float(median(finite(clipped)))
    return fact(part, clipped, f"{clipped.raw} is {part:.3g} in the median")


@statistic("value_loss+reward_mean", "value_loss+episode_return", "value_loss+eval_return")
def value_loss_over_returns(view: RunView) -> Fact | None:
    """Return the median value loss of the later half over the square of the largest |return|, reward or deviation.

    None if all of these are 0, or in fewer than eight records, as the error of an untrained critic means nothing.
    """
    loss = view.logged("value_loss")
    rewards = ("episode_return", "eval_return", "reward_mean", "reward_total", "reward_std")
    largest_sizes = [np.abs(values).max() for name in rewards if (values := view.values(name)) is not None]
    largest = float(max(largest_sizes, default=0.0))
    if loss is None or not largest or len(finite(loss)) < MANY:
        return None
    size = float(median(np.abs(finite(loss)[len(finite(loss)) // 2 :])))
    says = f"{loss.raw} is {size:.3g} in the median, the largest return {largest:.3g}"
    return fact(size / largest / largest, loss, says, "times the squared return")


#: Share of the largest spread of returns (its square for the value loss) below which returns count as constant.
ALIVE = 0.1
#: Rewards, and share of the range by which a reward changes from one record to the next if it varies.
REWARDS, STILL = ("episode_return", "reward_mean"), 1e-3
#: Fewest finite records of a statistic of the critic.
LEAST = 6
#: Optimizer steps below which an explained variance near 0 is normal. Measured in this project's lab with one step per
#: batch: after 60 steps it is 0.05 at a sound learning rate, and 0.9 at four times that rate.
FEWEST_STEPS = 100
#: Estimator with a mean square error over a variance (trl 0.11), which includes a constant error of the critic.
WITH_BIAS = "with bias"
#: Changes from record to record by which the mean of the returns has to move for a critic to be seen to follow.
MOVED = 3.0


@statistic("explained_variance")
def explained_variance_trained(view: RunView) -> Series | None:
    """Return the explained variance where it measures what the critic learned: above 0, or where returns vary.

    None if the logged number includes the critic's bias, or if the whole log has fewer than 100 optimizer steps, as
    with one per batch: a sound critic starts at 0 and needs that many.
    """
    series = view.run.series.get("explained_variance")
    if series is None or series.estimator == WITH_BIAS or hardly_trained(view, series):
        return None
    alive = _alive(view, series)
    values = series.values if alive is None else np.where(alive | (series.values > 0), series.values, np.nan)
    return dataclasses.replace(series, name="explained_variance_trained", values=values, how="computed")


def hardly_trained(view: RunView, series: Series) -> bool:
    """Return whether a log with the records of `series` has fewer than 100 optimizer steps."""
    updates = view.value("updates_known")
    return updates is not None and updates * len(series) < FEWEST_STEPS


@statistic(
    *(
        "explained_variance+value_loss",
        "explained_variance+returns_std",
        "explained_variance+episode_return",
        "explained_variance+reward_mean",
    )
)
def explained_variance_alive(view: RunView) -> Series | None:
    """Return the explained variance in records whose returns vary; elsewhere NaN.

    It is 1 - Var(R - V)/Var(R), so that constant returns send it to -infinity whatever the critic does. Whether returns
    vary is judged by their own spread, else by the value loss, which is at least their variance for a critic below 0,
    else by whether the reward changes from record to record.

    A constant error of the critic is taken out if the logged number includes it. If the spread of values is logged, the
    number is at most 1 - (sd V/sd R - 1)², since Var(R - V) is at least (sd R - sd V)².
    """
    series = view.run.series.get("explained_variance")
    alive = _alive(view, series) if series is not None else None
    if series is None or alive is None:
        return None
    values = np.where(alive, np.minimum(series.values + _bias(view, series), _at_most(view, series)), np.nan)
    return dataclasses.replace(series, name="explained_variance_alive", values=values, how="computed")


def _bias(view: RunView, series: Series) -> FloatArray:
    """Return the share of the logged number that is a constant error of the critic: its square over the variance."""
    returns, values = (_beside(view, series, f"{name}_mean") for name in ("returns", "values"))
    spread = _spread(view, series, "returns")
    if series.estimator != WITH_BIAS or returns is None or values is None or spread is None:
        return np.zeros(len(series))
    return np.asarray(((returns - values) / np.where(spread > 0, spread, np.nan)) ** 2)


def _at_most(view: RunView, series: Series) -> FloatArray:
    """Return the upper bound of explained variance by the spreads of values and returns; infinite if there is none."""
    returns, values = _spread(view, series, "returns"), _spread(view, series, "values")
    if returns is None or values is None:
        return np.full(len(series), np.inf)
    factor = values / np.where(returns > 0, returns, np.nan)
    return np.where(factor > 1, 1 - (factor - 1) ** 2, np.inf)


def _spread(view: RunView, series: Series, name: str) -> FloatArray | None:
    """Return the logged standard deviation of returns or values, per record of a series."""
    logged = _beside(view, series, f"{name}_std")
    variance = _beside(view, series, f"{name}_var")
    return logged if logged is not None or variance is None else np.sqrt(np.maximum(variance, 0))


def _beside(view: RunView, series: Series, name: str) -> FloatArray | None:
    """Return the values of another metric at the records of a series."""
    other = beside(series, view.run.series.get(name))
    return None if other is None else other.values


def _alive(view: RunView, series: Series) -> BoolArray | None:
    """Return in which records the returns vary; None if nothing shows it."""
    name, share = ("returns_std", ALIVE) if "returns_std" in view.run.series else ("value_loss", ALIVE**2)
    spread = _beside(view, series, name)
    if spread is None or not np.isfinite(spread).any():
        return _reward_changes(view, series)
    largest = float(np.nanmax(np.where(np.isfinite(spread), spread, np.nan)))
    return np.asarray(spread >= share * largest) & (largest > 0)


def _reward_changes(view: RunView, series: Series) -> BoolArray | None:
    """Return in which records the reward differs from that of the record before or after; None without one."""
    rewards = next((p for name in REWARDS if (p := _beside(view, series, name)) is not None), None)
    if rewards is None or not np.isfinite(rewards).any():
        return None
    known = np.where(np.isfinite(rewards), rewards, np.nan)
    step = np.abs(np.diff(known)) > STILL * (np.nanmax(known) - np.nanmin(known))
    return np.concatenate(([False], step)) | np.concatenate((step, [False]))


#: Fewest records of a run, and number of records right before a leap.
VALUE_LOSSES_LEAST, BEFORE = 20, 8
#: Share of a leap that is left at most at the end, if the critic learned the new values.
LEFT = 0.5


@statistic("value_clip_fraction")
def clipped_values_leap(view: RunView) -> Fact | None:
    """Return by how much the share of clipped predictions leapt between two records, if it went back later.

    The leap is over the largest of the eight records before it; at the end at most half of what it reached is left.
    """
    clipped = view.run.series.get("value_clip_fraction")
    values = finite_of(clipped.values) if clipped is not None else np.empty(0)
    if clipped is None or len(values) < VALUE_LOSSES_LEAST:
        return None
    end = median(values[-BEFORE:])
    largest_before = sliding_window_view(values[:-1], BEFORE).max(axis=1)[:-BEFORE]
    here = values[BEFORE:-BEFORE]
    leaps = np.where(end <= LEFT * here, here - largest_before, 0.0)
    at = BEFORE + int(np.argmax(leaps))
    leap = float(leaps[at - BEFORE])
    says = f"record {at + 1} of {len(values)}: {values[at]:.3g}; {end:.3g} at the end"
    return fact(max(0.0, leap), clipped, says, at=at)


@statistic("values_mean+returns_mean")
def value_mean_slope(view: RunView) -> Fact | None:
    """Return how far the critic's mean follows the mean of its targets: the slope of least squares over records.

    1 for a critic that follows, 0 for a frozen one. None if the targets' mean moves by less than three times its change
    from record to record.
    """
    returns = view.run.series.get("returns_mean")
    values = beside(returns, view.run.series.get("values_mean"))
    if returns is None or values is None:
        return None
    usable = np.isfinite(returns.values) & np.isfinite(values.values)
    targets, means = returns.values[usable], values.values[usable]
    if len(targets) < VALUE_LOSSES_LEAST:
        return None
    moved = quantile(targets, 0.9) - quantile(targets, 0.1)
    if not moved > MOVED * median(np.abs(np.diff(targets))):
        return None
    off = targets - targets.mean()
    value = float((off * (means - means.mean())).sum() / (off**2).sum())
    says = f"{values.raw} by {returns.raw}, {len(targets)} records"
    return fact(value, values, says)


@statistic("explained_variance")
def explained_variance_best(view: RunView) -> Fact | None:
    """Return the explained variance that the best tenth of the records reaches.

    None if the logged number includes the critic's bias, and below 100 optimizer steps.
    """
    series = view.run.series.get("explained_variance")
    values = finite_of(series.values) if series is not None else np.empty(0)
    if (
        series is None
        or len(values) < VALUE_LOSSES_LEAST
        or series.estimator == WITH_BIAS
        or hardly_trained(view, series)
    ):
        return None
    value = quantile(values, 0.9)
    if not math.isfinite(value):
        return None
    says = f"ninth decile of {len(values)} records"
    return fact(value, series, says)


@statistic("advantages_raw_std+returns_std")
def raw_advantage_share(view: RunView) -> Fact | None:
    """Return the deviation of advantages before whitening over that of returns, in the last two thirds.

    With returns = advantage + value this is √(1 - explained variance): the part of returns that the critic leaves.
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
