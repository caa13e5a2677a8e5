"""Statistics of the ratio of new to old policy: distance from 1, per minibatch and pass, over float32 noise, clamps."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ppo_doctor.checks.policy import while_alive
from ppo_doctor.checks.series import fact
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model import arrays
from ppo_doctor.model.arrays import beside, finite_of, mean_of, median
from ppo_doctor.model.arrays import same as same_number
from ppo_doctor.model.run import EXACT, Fact, Resolution, Series

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import Axis, BoolArray, FloatArray, IntArray

#: Share of its choices that a policy may have changed over the run behind the digits that are printed.
HIDDEN = 0.01
#: Logarithm of the choices that a policy has at most where an entropy is compared with the share that changed.
MOST_CHOICES = 4.0
#: Metrics that are at their identity value exactly when new and old log-probs agree on every sample.
IDENTITIES = (
    ("approx_kl", 0.0),
    ("ratio_std", 0.0),
    ("ratio_abs_dev", 0.0),
    ("ratio_max", 1.0),
    ("ratio_min", 1.0),
    ("ratio_mean", 1.0),
    ("approx_kl_k1", 0.0),
)


@statistic("approx_kl", "ratio_std", "ratio_abs_dev", "ratio_max", "ratio_mean")
def ratio_departure(view: RunView) -> Series | None:
    """Return the largest distance of any ratio metric from its value at identity, per record.

    0, also where rounding alone explains it, means that the new log-probs were compared with themselves, or that
    nothing moved. A mean alone (k1, the ratio's mean) is used only beside another, since it may cancel to its identity.
    A policy that always acts alike has ratio 1 by that, so its records are left out.
    """
    held = [(s, at) for name, at in IDENTITIES if (s := view.run.series.get(name)) is not None and len(s)]
    if not held or held[0][0].name in ("ratio_mean", "approx_kl_k1"):
        return None
    first = held[0][0]
    together = [(here, at) for s, at in held if (here := beside(first, s)) is not None]
    values = reduce(np.fmax, (_off(s, at) for s, at in together))  # fmax passes over NaN
    departure = Series(
        name="ratio_departure",
        raw=", ".join(s.raw if at == 0 else f"{s.raw} - 1" for s, at in together),
        axis=first.axis,
        values=values,
        resolution=_resolution(view, [s for s, _ in together]),
        how="computed",
    )
    return while_alive(view, departure)


def _resolution(view: RunView, held: list[Series]) -> Resolution:
    """Return how exactly a distance from identity is known: exactly, where no print could hide what the policy moved.

    An update changes at most √(KL/2) of the choices (Pinsker), and half as much as its ratios deviate. A share T of
    the choices that changed changes an entropy by T ln(n) - T ln(T) - (1 - T) ln(1 - T) at most (Fannes, Audenaert).
    """
    moved = view.fact("moves_apart_from_ratio")
    hidden = (
        len(s) * (math.sqrt(s.resolution.absolute / 2) if s.name == "approx_kl" else s.resolution.absolute / 2)
        for s in held
    )
    share = min(hidden)
    if moved is not None and moved.value == 1 and (share < HIDDEN or _entropy_within(share) < _entropy_moved(view)):
        return EXACT
    return Resolution(absolute=max(s.resolution.absolute for s in held))


def _entropy_within(share: float) -> float:
    """Return by how much an entropy can differ at most where so much of the choices changed, in nats."""
    if share >= 0.5:
        return math.inf
    rest = -share * math.log(share) - (1 - share) * math.log(1 - share) if share > 0 else 0.0
    return share * MOST_CHOICES + rest


def _entropy_moved(view: RunView) -> float:
    """Return how far apart the entropies of the first and the last quarter lie, in nats."""
    entropy = view.run.series.get("entropy")
    known = finite_of(entropy.values) if entropy is not None else np.zeros(0)
    part = len(known) // 4
    return abs(median(known[:part]) - median(known[-part:])) if part else 0.0


def _off(series: Series, identity: float) -> FloatArray:
    """Return how far a metric is from its value at identity: 0 where rounding explains it, NaN where it is unknown."""
    off = np.where(series.at(identity), 0.0, np.abs(series.values - identity))
    known = np.isfinite(off)
    return off if known.all() else np.where(known, off, np.nan)


@statistic("approx_kl", "ratio_std", "clip_fraction")
def ratio_trace(view: RunView) -> Series | None:
    """Return what the log shows of the ratio: its departure from 1, else the clip fraction."""
    return view.series("ratio_departure") or view.run.series.get("clip_fraction")


#: Loss beside which float32 (2^-23 of it) does not hold the thousandths that a step changes.
FLOAT_SHOWS = 1e4
#: Steps of a pass of which more do not count.
MANY_STEPS = 8.0


@statistic("loss+reward_mean")
def loss_change_within_batch(view: RunView) -> Series | None:
    """Return |loss - loss one pass earlier| over the root of a pass's steps (TRL GRPO, one record per optimizer step).

    With ratio 1 and no KL term the surrogate of a batch does not depend on the weights, so it repeats bitwise. With a
    KL term it does, and a repeat says something else: NaN there.
    """
    change = _change_within_batch(view, "loss")
    if change is None:
        return None
    loss = view.run.series["loss"]
    size = np.abs(loss.values[np.searchsorted(loss.axis.steps, change.axis.steps)])
    unknown = size > FLOAT_SHOWS
    if view.number("kl_coef"):
        unknown |= change.at(0)
    # A pass of several steps moves a loss by more than one step does: by the root of their number, as they differ.
    steps = min(float(_pass_length(view) or 1), MANY_STEPS) ** 0.5
    return dataclasses.replace(change, values=np.where(unknown, np.nan, change.values / steps))


def _change_within_batch(view: RunView, name: str) -> Series | None:
    series = view.run.series.get(name)
    lag = _pass_length(view)
    if series is None or lag is None or not len(series):
        return None
    batch = _batch_of(view, series)
    alive = _alive(view, batch)
    size = len(series) - lag
    if size < 1:
        return None
    # A change of 0 needs both values in full; batches without any advantage repeat for another reason.
    same = (batch[lag:] == batch[:-lag]) & (batch[lag:] >= 0) & alive[lag:]
    index = np.flatnonzero(same) + lag
    axis = series.axis.take(index)
    with np.errstate(invalid="ignore"):  # infinite minus infinite is NaN, which no rule compares
        values = np.abs(series.values[index] - series.values[index - lag])
    values[same_number(series.values[index], series.values[index - lag])] = 0.0
    return dataclasses.replace(
        series,
        name=f"{name}_change_within_batch",
        raw=f"change of {series.raw} from pass to pass",
        axis=axis,
        values=values,
        resolution=series.resolution.scaled(2),
        how="computed",
    )


def _pass_length(view: RunView) -> int | None:
    """Return the optimizer steps of one pass over a generation batch; None when passes do not repeat the batch."""
    repeats = view.run.facts.get("epochs_repeat_batch")
    steps = view.value("updates_observed")
    passes = view.given("ppo_epochs")
    if repeats is None or steps is None or not passes:
        return None
    lag = steps / passes
    return int(lag) if passes > 1 and lag >= 1 and lag.is_integer() else None


def _batch_of(view: RunView, series: Series) -> IntArray:
    """Return the number of the generation batch that each record belongs to, -1 before the first."""
    generation = view.run.series["reward_mean"]
    return np.searchsorted(generation.axis.steps, series.axis.steps, side="right").astype(np.int64) - 1


def _alive(view: RunView, batch: IntArray) -> BoolArray:
    spread = view.series("advantage_spread")
    if spread is None or not len(spread):
        return np.ones(len(batch), dtype=bool)
    index = np.clip(batch, 0, len(spread) - 1)
    return np.asarray(~spread.at(0)[index])


#: Times that a variance is too small: above 1 it refutes; 4 leave a factor of 2 in the mean for padding and rounding.
REFUTES = 4
#: Mean distances of a Gaussian in its deviation, and, at least, in the largest of a minibatch.
DEVIATION, LARGEST = (np.pi / 2) ** 0.5, 3.0


class _Places(NamedTuple):
    """Which records begin a batch, which a later epoch of it, and which come behind the first of any epoch."""

    batch: BoolArray
    epoch: BoolArray
    within: BoolArray


@statistic("batch_start_ratio_dev", "first_ratio_dev", "ratio_mean+ratio_batch_var")
def batch_start_ratio_dev(view: RunView) -> Series | None:
    """Return the largest |ratio - 1| at the first minibatch of each batch, else the ratio's spread there.

    A mean distance that is logged of that minibatch is a third of it, or less. Of a log that only tells the mean ratio
    and the variance of its means over minibatches it is |mean - 1| where that variance is too small for the first of
    them to have been at 1, and else unknown.
    """
    found = _where("batch", _departure(view), "batch_start_ratio_dev")
    if found is None and (mean := _logged_mean(view)) is not None:
        return replace(mean, name="batch_start_ratio_dev", values=LARGEST * mean.values, how="computed")
    off, times = view.series("mean_ratio_off"), view.series("first_cell_off")
    times = beside(off, times)
    if found is not None or off is None or times is None:
        return found
    return replace(off, name="batch_start_ratio_dev", values=np.where(times.values > REFUTES, off.values, np.nan))


@statistic("epoch_start_ratio_dev")
def epoch_start_ratio_dev(view: RunView) -> Series | None:
    """Return the largest |ratio - 1| at the first minibatch of each epoch after the first, else its spread."""
    return _where("epoch", _departure(view), "epoch_start_ratio_dev")


@statistic("within_epoch_ratio_dev")
def within_epoch_ratio_dev(view: RunView) -> Series | None:
    """Return the largest |ratio - 1| behind the first minibatch of any epoch, else its spread."""
    return _where("within", _departure(view), "within_epoch_ratio_dev")


@statistic("passes_logratio_std", "first_ratio_dev")
def passes_logratio_std(view: RunView) -> Series | None:
    """Return the spread of the log-ratio (nats) at the first minibatch of each batch: that of the ratio, nearly."""
    mean = _logged_mean(view)
    if mean is not None:
        return replace(mean, name="passes_logratio_std", values=DEVIATION * mean.values, how="computed")
    return _where("batch", _spread(view), "passes_logratio_std")


def _logged_mean(view: RunView) -> Series | None:
    """Return the mean distance of the ratio from 1 at first minibatches, where a log holds it."""
    mean = view.run.series.get("first_ratio_dev")
    return None if mean is None else while_alive(view, mean)


def _spread(view: RunView) -> Series | None:
    """Return the ratio's standard deviation; to the second order that is the root of twice the KL."""
    kl, spread = view.series("kl_size"), view.run.series.get("ratio_std")
    if spread is not None and len(spread):
        return while_alive(view, replace(spread, values=np.abs(spread.settled)))
    if kl is None:
        return None
    coarse = Resolution(absolute=(2 * kl.resolution.absolute) ** 0.5)
    return replace(kl, values=np.sqrt(2 * np.abs(kl.settled)), resolution=coarse, says=f"root of twice {kl.raw}")


def _departure(view: RunView) -> Series | None:
    """Return the ratio's distance from 1 by its extremes, and by its spread, which may be printed more finely."""
    spread, high = _spread(view), view.run.series.get("ratio_max")
    low = beside(high, view.run.series.get("ratio_min"))
    if high is None or low is None or not len(high):
        return spread
    held = [replace(one, values=np.where(one.at(1), 0.0, np.abs(one.values - 1))) for one in (high, low)] + [
        one for one in (beside(high, spread),) if one is not None
    ]
    finest = Resolution(absolute=min(one.resolution.absolute for one in held))
    values = np.fmax.reduce([one.values for one in held])
    return while_alive(view, replace(high, values=values, resolution=finest))


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


@statistic("approx_kl", "ratio_std")
def kl_over_noise(view: RunView) -> Series | None:
    """Return |KL| of an update over what float32 rounding alone makes of two equal policies, per record.

    A log-prob of size h, for which entropy stands, carries half a float32 unit of h per rounding, so that log-ratios
    scatter by `arrays.LOG_RATIO`·max(1, h). None for a log that rounds more coarsely than that.
    """
    size = view.series("kl_size")
    if size is None:
        return None
    floor = arrays.rounding_of_kl(size.estimator, arrays.LOG_RATIO * np.maximum(1.0, _log_prob(view, size)))
    if size.resolution.absolute > float(floor.min()):
        return None
    raw = f"{size.says or size.raw} over float32 rounding"
    return dataclasses.replace(
        size,
        name="kl_over_noise",
        raw=raw,
        values=size.values / floor,
        resolution=EXACT,
        unit="",
        how="computed",
        says="",
    )


def _log_prob(view: RunView, size: Series) -> FloatArray:
    """Return the size of a log-prob per record: the policy's entropy where it is logged, else 1 nat."""
    entropy = beside(size, view.run.series.get("entropy"))
    if entropy is None:
        return np.ones(len(size))
    sizes = np.abs(entropy.values)
    known = np.isfinite(sizes)
    return sizes if known.all() else np.where(known, sizes, 1.0)


#: Frameworks clamp log-ratios at 20 (verl, OpenRLHF) or, per sequence, at 10 (verl's GSPO).
CLAMPS = (20.0, 10.0)


@statistic("ref_kl+ref_kl_target")
def reference_kl_over_target(view: RunView) -> Series | None:
    """Return the KL to the reference over the target that the configuration sets for it."""
    kl, target = view.run.series.get("ref_kl"), view.given("ref_kl_target")
    if kl is None or not len(kl) or not target or target <= 0:
        return None
    return dataclasses.replace(
        kl, name="reference_kl_over_target", values=kl.values / target, unit="times the target", how="computed"
    )


#: A mean of ratios or of k3 from which on a few samples make it up: beside them the others, near 1, are rounding.
HEAVY = 100.0
#: A mean k2 (nats) that no trust region allows, while one sample at e^20 in 800 reaches it.
HEAVY_K2 = 0.25
#: How near to whole multiples of one number; how many of them; how many records tell.
FIT, MOST, FEWEST = 0.01, 60, 5
#: Share of a heavy k2 that is left to the other samples: little, and less than nothing by rounding alone.
LEAST_LEFT, MOST_LEFT = -0.01, 0.02


@statistic("ratio_mean", "approx_kl", "approx_kl+approx_kl_k1")
def clamped_share(view: RunView) -> Fact | None:
    """Return the share of records with a heavy mean that ratios at one clamp c make up; 0 where none is heavy.

    Of N samples m at the clamp add m·(e^c - 1 - c)/N to a mean k3 and m·e^c/N to a mean ratio, so that heavy means are
    whole multiples of one number. They add m·c²/2N to k2 and m·c/N to |k1|, so that k2/|k1| is c/2 but for what the
    others add to k2, and to k1 (Schulman 2020, Approximating KL Divergence, for the estimators).
    """
    series = view.run.series
    kl, ratio = series.get("approx_kl"), series.get("ratio_mean")
    k1 = beside(kl, series.get("approx_kl_k1"))
    if ratio is not None and len(ratio):
        return _fact(ratio, _counted(ratio.values - 1))
    if kl is None or not len(kl) or kl.reference not in (None, "old policy"):
        return None
    if kl.estimator == "k3":
        return _fact(kl, _counted(kl.values))
    if kl.estimator == "k2" and k1 is not None and kl.shares_window(k1):
        return _fact(kl, _proportional(kl.values, k1.values))
    return None


def _fact(series: Series, fits: FloatArray) -> Fact:
    heavy = len(fits)
    value = mean_of(fits) if heavy >= FEWEST else 0.0
    says = f"{heavy} of {len(series)} records of {series.raw} are heavy, and {value:.0%} of them are what a clamp adds"
    return fact(value, series, says, "fraction")


def _counted(values: FloatArray) -> FloatArray:
    """Tell of each heavy value whether it is a whole multiple of the one number that suits most of them."""
    heavy = values[np.isfinite(values) & (values > HEAVY)]
    if len(heavy) < FEWEST:
        return np.zeros(len(heavy))
    return max((_multiples(heavy, heavy.min() / parts) for parts in (1, 2, 3)), key=np.sum)


def _multiples(values: FloatArray, unit: float) -> FloatArray:
    times = values / unit
    fits: FloatArray = ((np.abs(times - np.round(times)) < FIT) & (times < MOST)).astype(np.float64)
    return fits


def _proportional(k2: FloatArray, k1: FloatArray) -> FloatArray:
    """Tell of each heavy k2 whether samples at the usual clamp, at ratios above 1, leave next to nothing to the others.

    The others add the same o to both, as after any small step: k2 = p·c²/2 + o and k1 = o - p·c, for a share p at the
    clamp, so that o = (k2 + k1·c/2)/(1 + c/2).
    """
    heavy = np.isfinite(k1) & np.isfinite(k2) & (k2 > HEAVY_K2)
    half = CLAMPS[0] / 2
    left = (k2[heavy] + half * k1[heavy]) / ((1 + half) * k2[heavy])
    fits: FloatArray = ((left > LEAST_LEFT) & (left < MOST_LEFT)).astype(np.float64)
    return fits
