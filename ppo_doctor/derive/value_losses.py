"""What a value loss, or the share of clipped predictions, tells of a critic whose explained variance is not logged."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ppo_doctor.arrays import correlation, finite_of, median, quantile
from ppo_doctor.derive.critic import MOVED, WITH_BIAS, hardly_trained
from ppo_doctor.derive.repeats import beside_each_other
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations

#: Records that a statement about a whole run needs, and those right before a leap.
LEAST, BEFORE = 20, 8
#: Records that tell where a value loss begins.
FIRST = 5
#: A value loss that is a multiple of the reward's square has grown by this before its correlation says anything.
GROWN = 3.0
#: A value loss that never fell reaches at most this many times the median of its later half.
STEADY = 1.3
#: What has come back is at most this many times what it was; records that have to follow a leap.
BACK, LASTS = 3.0, 4
#: A critic is told by the best of so many parts of a run, each of at least so many records.
PARTS, IN_PART = 5, 4
#: Below this share of a squared value the error of a critic may be that of returns that hardly vary.
VARIES = 0.01
#: Of what a leap reached, at most this is left at the end where the critic learned anew.
LEFT = 0.5


def value_loss_follow(observations: Observations) -> Fact | None:
    """Return the correlation of value loss and mean reward, the lesser of levels and of changes between records.

    A critic that says one number has an error of E[(R - c)²], which goes with the reward from batch to batch; one that
    learns takes most of it away. 0 where the loss did not grow to three times its start.
    """
    loss, paid = observations.run.series.get("value_loss"), observations.run.series.get("reward_mean")
    if loss is None or paid is None or not beside_each_other(loss, paid):
        return None
    usable = np.isfinite(loss.values) & np.isfinite(paid.values)
    lost, earned = loss.values[usable], paid.values[usable]
    if len(lost) < LEAST or not np.diff(lost).std() > 0 or not np.diff(earned).std() > 0:
        return None
    fifth = len(lost) // 5
    grown = median(lost[-fifth:]) >= GROWN * median(lost[:fifth])
    value = min(correlation(lost, earned), correlation(np.diff(lost), np.diff(earned))) if grown else 0.0
    says = f"{loss.raw} went from {median(lost[:fifth]):.3g} to {median(lost[-fifth:]):.3g} with {paid.raw}"
    return Fact(name="value_loss_follow", value=value, how="computed", source=loss.source(), says=says)


def critic_spread_share(observations: Observations) -> Fact | None:
    """Return the spread of value predictions against spread and error, std² / (std² + loss), at the best of five times.

    A critic with explained variance e spreads by e times the variance of its targets and errs by the rest: the share is
    e, or less where its mean is off as well. Records whose error is small against the values themselves do not count:
    there returns hardly vary.
    """
    spread, loss = (observations.run.series.get(name) for name in ("values_std", "value_loss"))
    level = observations.run.series.get("values_mean")
    if spread is None or loss is None or level is None or spread.axis is not loss.axis or level.axis is not loss.axis:
        return None
    told = spread.values**2
    counted = np.isfinite(told + loss.values + level.values) & (loss.values > VARIES * (level.values**2 + told))
    parts = np.array_split((told / (told + loss.values))[counted], PARTS)
    if min(map(len, parts)) < IN_PART:
        return None
    levels = [median(part) for part in parts]
    says = f"{spread.raw} beside {loss.raw}, share of the variance by fifths: {', '.join(f'{x:.3g}' for x in levels)}"
    return Fact(name="critic_spread_share", value=max(levels), how="computed", source=spread.source(), says=says)


def value_loss_floor(observations: Observations) -> Fact | None:
    """Return the least value loss of the later half over where the run began (median of five records), if it is steady.

    A critic that learns has less error at some time than an untrained one, or than it had before. 0 where any record
    exceeds 1.3 times the median of the later half. None below 100 optimizer steps.
    """
    loss = observations.run.series.get("value_loss")
    values = finite_of(loss.values) if loss is not None else np.empty(0)
    if loss is None or len(values) < LEAST + LEAST // 2 or hardly_trained(observations, loss):
        return None
    start, later = median(values[:FIRST]), values[len(values) // 2 :]
    if not start > 0:
        return None
    steady = values.max() <= STEADY * median(later)
    says = f"{loss.raw} began at {start:.3g}; the later half lies between {later.min():.3g} and {later.max():.3g}"
    value = float(later.min()) / start if steady else 0.0
    return Fact(
        name="value_loss_floor", value=value, how="computed", unit="of its start", source=loss.source(), says=says
    )


def clipped_values_leap(observations: Observations) -> Fact | None:
    """Return by how much the share of clipped predictions leapt from one record to the next, where it later went back.

    The leap is over the largest of the eight records before it; at the end at most half of what it reached is left.
    """
    clipped = observations.run.series.get("value_clip_fraction")
    values = finite_of(clipped.values) if clipped is not None else np.empty(0)
    if clipped is None or len(values) < LEAST:
        return None
    end = median(values[-BEFORE:])
    largest_before = sliding_window_view(values[:-1], BEFORE).max(axis=1)[:-BEFORE]
    here = values[BEFORE:-BEFORE]
    leaps = np.where(end <= LEFT * here, here - largest_before, 0.0)
    at = BEFORE + int(np.argmax(leaps))
    leap = float(leaps[at - BEFORE])
    says = f"record {at + 1} of {len(values)}: {values[at]:.3g}; {end:.3g} at the end"
    source = clipped.source(at)
    return Fact(name="clipped_values_leap", value=max(0.0, leap), how="computed", source=source, says=says)


def value_mean_slope(observations: Observations) -> Fact | None:
    """Return how far the critic's mean goes with the mean of its targets: the slope of least squares over records.

    1 for a critic that follows, 0 for one that is frozen. None where the targets' mean moves by less than three times
    what it changes by from record to record.
    """
    returns, values = observations.run.series.get("returns_mean"), observations.run.series.get("values_mean")
    if returns is None or values is None or not beside_each_other(returns, values):
        return None
    usable = np.isfinite(returns.values) & np.isfinite(values.values)
    targets, said = returns.values[usable], values.values[usable]
    if len(targets) < LEAST:
        return None
    moved = quantile(targets, 0.9) - quantile(targets, 0.1)
    if not moved > MOVED * median(np.abs(np.diff(targets))):
        return None
    off = targets - targets.mean()
    value = float((off * (said - said.mean())).sum() / (off**2).sum())
    says = f"{values.raw} by {returns.raw}, {len(targets)} records"
    return Fact(name="value_mean_slope", value=value, how="computed", source=values.source(), says=says)


def explained_variance_best(observations: Observations) -> Fact | None:
    """Return the explained variance that the best tenth of the records reaches.

    None where the logged number counts the critic's bias, and below 100 optimizer steps.
    """
    series = observations.run.series.get("explained_variance")
    values = finite_of(series.values) if series is not None else np.empty(0)
    if series is None or len(values) < LEAST or series.estimator == WITH_BIAS or hardly_trained(observations, series):
        return None
    value = quantile(values, 0.9)
    if not math.isfinite(value):
        return None
    says = f"ninth decile of {len(values)} records"
    return Fact(name="explained_variance_best", value=value, how="computed", source=series.source(), says=says)


def value_loss_leap(observations: Observations) -> Fact | None:
    """Return how many times above all eight records before two records in a row lie, at most, and come back; 0: none.

    It came back where the median of the last fifth is at most three times the largest of those eight.
    """
    loss = observations.run.series.get("value_loss")
    values = loss.values[np.isfinite(loss.values)] if loss is not None else np.empty(0)
    if loss is None or len(values) < LEAST:
        return None
    before = sliding_window_view(values, BEFORE).max(axis=1)[: -2 - LASTS]
    both = np.minimum(values[BEFORE:], np.append(values[BEFORE + 1 :], 0.0))[: len(before)]
    later = median(values[-max(FIRST, len(values) // 5) :])
    counts = (before > 0) & (later <= BACK * before)
    leaps = np.where(counts, both / np.where(before > 0, before, 1.0), 0.0)
    at = int(np.argmax(leaps))
    says = f"record {at + BEFORE + 1} of {len(values)}: {leaps[at]:.3g} times the largest of the {BEFORE} before"
    says = f"{says}; {later:.3g} at the end"
    return Fact(
        name="value_loss_leap", value=float(leaps[at]), how="computed", unit="times", source=loss.source(), says=says
    )
