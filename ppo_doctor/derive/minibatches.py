"""The ratio by its place in an update, where a log has a record for each minibatch and numbers them.

Before the first step on a batch the policy in the loss is the policy that acted, so the ratio is 1 there whatever the
learning rate; at the start of a later epoch it is what the epochs before have left.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ppo_doctor.arrays import beside
from ppo_doctor.derive.policy import while_alive
from ppo_doctor.model import Resolution, Series

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Axis, BoolArray, IntArray


#: Times that a variance is too small: above 1 it refutes; 4 leave a factor of 2 in the mean for padding and rounding.
REFUTES = 4
#: Mean distances of a Gaussian in its deviation, and, at least, in the largest of a minibatch.
DEVIATION, LARGEST = (np.pi / 2) ** 0.5, 3.0


class _Places(NamedTuple):
    """Which records begin a batch, which a later epoch of it, and which come behind the first of any epoch."""

    batch: BoolArray
    epoch: BoolArray
    within: BoolArray


def batch_start_ratio_dev(observations: Observations) -> Series | None:
    """Return the largest |ratio - 1| at the first minibatch of each batch, else the ratio's spread there.

    A mean distance that is logged of that minibatch is a third of it, or less. Of a log that only tells the mean ratio
    and the variance of its means over minibatches it is |mean - 1| where that variance is too small for the first of
    them to have been at 1, and else unknown.
    """
    found = _where("batch", _departure(observations), "batch_start_ratio_dev")
    if found is None and (mean := _logged_mean(observations)) is not None:
        return replace(mean, name="batch_start_ratio_dev", values=LARGEST * mean.values, how="computed")
    off, times = observations.series("mean_ratio_off"), observations.series("first_cell_off")
    times = beside(off, times)
    if found is not None or off is None or times is None:
        return found
    return replace(off, name="batch_start_ratio_dev", values=np.where(times.values > REFUTES, off.values, np.nan))


def epoch_start_ratio_dev(observations: Observations) -> Series | None:
    """Return the largest |ratio - 1| at the first minibatch of each epoch after the first, else its spread."""
    return _where("epoch", _departure(observations), "epoch_start_ratio_dev")


def within_epoch_ratio_dev(observations: Observations) -> Series | None:
    """Return the largest |ratio - 1| behind the first minibatch of any epoch, else its spread."""
    return _where("within", _departure(observations), "within_epoch_ratio_dev")


def passes_logratio_std(observations: Observations) -> Series | None:
    """Return the spread of the log-ratio (nats) at the first minibatch of each batch: that of the ratio, nearly."""
    mean = _logged_mean(observations)
    if mean is not None:
        return replace(mean, name="passes_logratio_std", values=DEVIATION * mean.values, how="computed")
    return _where("batch", _spread(observations), "passes_logratio_std")


def _logged_mean(observations: Observations) -> Series | None:
    """Return the mean distance of the ratio from 1 at first minibatches, where a log holds it."""
    mean = observations.run.series.get("first_ratio_dev")
    return None if mean is None else while_alive(observations, mean)


def _spread(observations: Observations) -> Series | None:
    """Return the ratio's standard deviation; to the second order that is the root of twice the KL."""
    kl, spread = observations.series("kl_size"), observations.run.series.get("ratio_std")
    if spread is not None and len(spread):
        return while_alive(observations, replace(spread, values=np.abs(spread.settled)))
    if kl is None:
        return None
    coarse = Resolution(absolute=(2 * kl.resolution.absolute) ** 0.5)
    return replace(kl, values=np.sqrt(2 * np.abs(kl.settled)), resolution=coarse, says=f"root of twice {kl.raw}")


def _departure(observations: Observations) -> Series | None:
    """Return the ratio's distance from 1 by its extremes, and by its spread, which may be printed more finely."""
    spread, high = _spread(observations), observations.run.series.get("ratio_max")
    low = beside(high, observations.run.series.get("ratio_min"))
    if high is None or low is None or not len(high):
        return spread
    held = [replace(one, values=np.where(one.at(1), 0.0, np.abs(one.values - 1))) for one in (high, low)] + [
        one for one in (beside(high, spread),) if one is not None
    ]
    finest = Resolution(absolute=min(one.resolution.absolute for one in held))
    values = np.fmax.reduce([one.values for one in held])
    return while_alive(observations, replace(high, values=values, resolution=finest))


def _where(place: str, series: Series | None, name: str) -> Series | None:
    """Return the records of a series that stand at a place of the update; None where the log does not tell it."""
    places = _places(series.axis) if series is not None else None
    rows = np.flatnonzero(getattr(places, place)) if places is not None else np.zeros(0, dtype=np.int64)
    if series is None or not len(rows):
        return None
    return replace(series, name=name, values=series.values[rows], axis=series.axis.take(rows), how="computed")


def _places(axis: Axis) -> _Places | None:
    """Return the places of the records of an update that has several; a batch that lacks its start has none."""
    if axis.update is None or axis.minibatch is None or not len(axis):
        return None
    opens = _changes(axis.update)
    if len(axis) < 2 * opens.sum():
        return None
    first = axis.minibatch == axis.minibatch.min()
    turns = opens if axis.epoch is None else opens | _changes(axis.epoch)
    within = ~turns & ~first if axis.epoch is not None else np.zeros(len(axis), dtype=bool)
    return _Places(batch=opens & first, epoch=turns & ~opens & first, within=within)


def _changes(numbers: IntArray) -> BoolArray:
    return np.concatenate(([True], numbers[1:] != numbers[:-1]))
