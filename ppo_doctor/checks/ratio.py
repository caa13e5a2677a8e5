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

#: Share of its choices that a policy may have changed during the run without a trace in the printed digits.
HIDDEN = 0.01
#: Logarithm of the most choices that a policy is assumed to have in the bound on its entropy.
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

    A distance of 0, also one within rounding, means that the new log-probs were compared with themselves, or that
    nothing moved. A mean (k1, the mean ratio) counts only together with another metric, since it may cancel to its
    identity. Records of a deterministic policy are left out, because its ratio is always 1.
    """
    identities = [(s, at) for name, at in IDENTITIES if (s := view.run.series.get(name)) is not None and len(s)]
    if not identities or identities[0][0].name in ("ratio_mean", "approx_kl_k1"):
        return None
    first = identities[0][0]
    aligned = [(here, at) for s, at in identities if (here := beside(first, s)) is not None]
    values = reduce(np.fmax, (_off(s, at) for s, at in aligned))  # fmax passes over NaN
    departure = Series(
        name="ratio_departure",
        raw=", ".join(s.raw if at == 0 else f"{s.raw} - 1" for s, at in aligned),
        axis=first.axis,
        values=values,
        resolution=_resolution(view, [s for s, _ in aligned]),
        how="computed",
    )
    return while_alive(view, departure)


@statistic("repeated_ratio_dev+update_norm")
def trained_ratio_dev(view: RunView) -> Series | None:
    """Return the largest |ratio - 1| on samples that an earlier step trained on, of updates in which steps move it.

    Those are updates that moved the weights and whose advantages, if they were seen, are not all 0.
    """
    series = view.run.series.get("repeated_ratio_dev")
    moved = beside(series, view.run.series.get("update_norm"))
    if series is None or moved is None:
        return None
    advantages = beside(series, view.run.series.get("advantages_abs_max"))
    taught = np.ones(len(series), dtype=bool) if advantages is None else ~(advantages.values == 0)
    values = np.where(taught & (moved.values > 0), series.values, np.nan)
    return replace(series, name="trained_ratio_dev", values=values, says=series.raw)


def _resolution(view: RunView, logged: list[Series]) -> Resolution:
    """Return the resolution of a distance from identity: exact if the digits cannot hide what the policy moved.

    An update changes at most √(KL/2) of the choices (Pinsker), and at most half the deviation of its ratios. A share T
    of changed choices changes an entropy by at most T ln(n) - T ln(T) - (1 - T) ln(1 - T) (Fannes, Audenaert).
    """
    moved = view.fact("moves_apart_from_ratio")
    hidden = (
        len(s) * (math.sqrt(s.resolution.absolute / 2) if s.name == "approx_kl" else s.resolution.absolute / 2)
        for s in logged
    )
    share = min(hidden)
    if moved is not None and moved.value == 1 and (share < HIDDEN or _entropy_within(share) < _entropy_moved(view)):
        return EXACT
    return Resolution(absolute=max(s.resolution.absolute for s in logged))


def _entropy_within(share: float) -> float:
    """Return the largest possible change of an entropy, in nats, for a share of changed choices."""
    if share >= 0.5:
        return math.inf
    rest = -share * math.log(share) - (1 - share) * math.log(1 - share) if share > 0 else 0.0
    return share * MOST_CHOICES + rest


def _entropy_moved(view: RunView) -> float:
    """Return the difference of the median entropies of the first and the last quarter, in nats."""
    entropy = view.run.series.get("entropy")
    known = finite_of(entropy.values) if entropy is not None else np.zeros(0)
    part = len(known) // 4
    return abs(median(known[:part]) - median(known[-part:])) if part else 0.0


def _off(series: Series, identity: float) -> FloatArray:
    """Return how far a metric is from its value at identity: 0 within rounding, NaN if unknown."""
    off = np.where(series.at(identity), 0.0, np.abs(series.values - identity))
    known = np.isfinite(off)
    return off if known.all() else np.where(known, off, np.nan)


@statistic("approx_kl", "ratio_std", "clip_fraction")
def ratio_trace(view: RunView) -> Series | None:
    """Return what the log shows of the ratio: its departure from 1, else the clip fraction."""
    return view.series("ratio_departure") or view.run.series.get("clip_fraction")


#: Loss above which float32 (2^-23 of it) does not resolve the thousandths by which a step changes it.
FLOAT_SHOWS = 1e4
#: Most steps of a pass that are counted.
MANY_STEPS = 8.0


@statistic("loss+reward_mean")
def loss_change_within_batch(view: RunView) -> Series | None:
    """Return |loss - loss one pass earlier| over the root of a pass's steps (TRL GRPO, a record per optimizer step).

    With ratio 1 and no KL term the surrogate of a batch does not depend on the weights, so the loss repeats bitwise. A
    KL term depends on them, so a repeat has another reason there, and is NaN.
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
    """Return the change of a metric from one pass over a batch to the next; None if passes do not repeat batches."""
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
    """Return which records belong to a batch whose advantages are not all 0."""
    spread = view.series("advantage_spread")
    if spread is None or not len(spread):
        return np.ones(len(batch), dtype=bool)
    index = np.clip(batch, 0, len(spread) - 1)
    return np.asarray(~spread.at(0)[index])


#: Factor by which a variance has to be too small: 1 in theory; 4 leaves a factor of 2 in the mean for padding.
REFUTES = 4
#: Deviation of a Gaussian, and least largest distance of a minibatch, in mean distances.
DEVIATION, LARGEST = (np.pi / 2) ** 0.5, 3.0


class _Places(NamedTuple):
    """Masks of the records that begin a batch or a later epoch of it, and that follow the first of any epoch."""

    batch: BoolArray
    epoch: BoolArray
    within: BoolArray


@statistic("batch_start_ratio_dev", "first_ratio_dev", "ratio_mean+ratio_batch_var")
def batch_start_ratio_dev(view: RunView) -> Series | None:
    """Return the largest |ratio - 1| at the first minibatch of each batch, else the ratio's spread there.

    A mean distance that is logged for that minibatch is taken three times, as the least that its largest can be. If the
    log has only the mean ratio and the variance of its means over minibatches, the result is |mean - 1| where that
    variance is too small for a first minibatch at ratio 1, and NaN elsewhere.
    """
    direct = _where("batch", _departure(view), "batch_start_ratio_dev")
    if direct is None and (mean := _logged_mean(view)) is not None:
        return replace(mean, name="batch_start_ratio_dev", values=LARGEST * mean.values, how="computed")
    off, factors = view.series("mean_ratio_off"), view.series("first_cell_off")
    factors = beside(off, factors)
    if direct is not None or off is None or factors is None:
        return direct
    return replace(off, name="batch_start_ratio_dev", values=np.where(factors.values > REFUTES, off.values, np.nan))


@statistic("epoch_start_ratio_dev")
def epoch_start_ratio_dev(view: RunView) -> Series | None:
    """Return the largest |ratio - 1| at the first minibatch of each epoch after the first, else its spread."""
    return _where("epoch", _departure(view), "epoch_start_ratio_dev")


@statistic("within_epoch_ratio_dev")
def within_epoch_ratio_dev(view: RunView) -> Series | None:
    """Return the largest |ratio - 1| after the first minibatch of any epoch, else its spread."""
    return _where("within", _departure(view), "within_epoch_ratio_dev")


@statistic("passes_logratio_std", "first_ratio_dev")
def passes_logratio_std(view: RunView) -> Series | None:
    """Return the spread of the log-ratio (nats) at the first minibatch of each batch, by that of the ratio."""
    mean = _logged_mean(view)
    if mean is not None:
        return replace(mean, name="passes_logratio_std", values=DEVIATION * mean.values, how="computed")
    return _where("batch", _spread(view), "passes_logratio_std")


def _logged_mean(view: RunView) -> Series | None:
    """Return the mean distance of the ratio from 1 at first minibatches; None if it is not logged."""
    mean = view.run.series.get("first_ratio_dev")
    return None if mean is None else while_alive(view, mean)


def _spread(view: RunView) -> Series | None:
    """Return the ratio's standard deviation, or to second order the root of twice the KL; None if neither is logged."""
    kl, spread = view.series("kl_size"), view.run.series.get("ratio_std")
    if spread is not None and len(spread):
        return while_alive(view, replace(spread, values=np.abs(spread.settled)))
    if kl is None:
        return None
    coarse = Resolution(absolute=(2 * kl.resolution.absolute) ** 0.5)
    return replace(kl, values=np.sqrt(2 * np.abs(kl.settled)), resolution=coarse, says=f"root of twice {kl.raw}")


def _departure(view: RunView) -> Series | None:
    """Return the ratio's distance from 1 by its extremes and its spread, which may be printed more finely."""
    spread, high = _spread(view), view.run.series.get("ratio_max")
    low = beside(high, view.run.series.get("ratio_min"))
    if high is None or low is None or not len(high):
        return spread
    distances = [replace(one, values=np.where(one.at(1), 0.0, np.abs(one.values - 1))) for one in (high, low)] + [
        one for one in (beside(high, spread),) if one is not None
    ]
    finest = Resolution(absolute=min(one.resolution.absolute for one in distances))
    values = np.fmax.reduce([one.values for one in distances])
    return while_alive(view, replace(high, values=values, resolution=finest))


def _where(place: str, series: Series | None, name: str) -> Series | None:
    """Return the records of a series at one of `_Places`; None if there are none or minibatches are not numbered."""
    places = _places(series.axis) if series is not None else None
    rows = np.flatnonzero(getattr(places, place)) if places is not None else np.zeros(0, dtype=np.int64)
    if series is None or not len(rows):
        return None
    return replace(series, name=name, values=series.values[rows], axis=series.axis.take(rows), how="computed")


def _places(axis: Axis) -> _Places | None:
    """Return the places of the records of an update of several; a batch without its first record has no start."""
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

    Each rounding of a log-prob of size h, estimated by the entropy, is half a float32 unit of h, so that log-ratios
    scatter by `arrays.LOG_RATIO`·max(1, h). None if the log rounds more coarsely than that.
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
    """Return the KL to the reference over the configured target."""
    kl, target = view.run.series.get("ref_kl"), view.given("ref_kl_target")
    if kl is None or not len(kl) or not target or target <= 0:
        return None
    return dataclasses.replace(
        kl, name="reference_kl_over_target", values=kl.values / target, unit="times the target", how="computed"
    )


#: Mean ratio or k3 above which a few samples make up the mean, and the others are negligible.
HEAVY = 100.0
#: Mean k2 (nats) that no trust region allows, but that one sample in 800 at a ratio of e^20 reaches.
HEAVY_K2 = 0.25
#: Largest distance from a whole multiple, largest multiple, and fewest heavy records.
FIT, MOST, FEWEST = 0.01, 60, 5
#: Bounds of the share of a heavy k2 that is left to the other samples; rounding can make it negative.
LEAST_LEFT, MOST_LEFT = -0.01, 0.02


@statistic("ratio_mean", "approx_kl", "approx_kl+approx_kl_k1")
def clamped_share(view: RunView) -> Fact | None:
    """Return the share of records with a heavy mean that ratios at one clamp c explain; 0 if too few are heavy.

    Of N samples m at the clamp add m·(e^c - 1 - c)/N to a mean k3 and m·e^c/N to a mean ratio, so that heavy means are
    whole multiples of one number. They add m·c²/2N to k2 and m·c/N to |k1|, so that k2/|k1| is c/2, apart from what the
    others add to both (Schulman 2020, Approximating KL Divergence, for the estimators).
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
    """Return, for each heavy value, 1 if it is a whole multiple of the number that fits most of them, else 0."""
    heavy = values[np.isfinite(values) & (values > HEAVY)]
    if len(heavy) < FEWEST:
        return np.zeros(len(heavy))
    return max((_multiples(heavy, heavy.min() / parts) for parts in (1, 2, 3)), key=np.sum)


def _multiples(values: FloatArray, unit: float) -> FloatArray:
    """Return, for each value, 1 if it is a whole multiple of `unit`, else 0."""
    times = values / unit
    fits: FloatArray = ((np.abs(times - np.round(times)) < FIT) & (times < MOST)).astype(np.float64)
    return fits


def _proportional(k2: FloatArray, k1: FloatArray) -> FloatArray:
    """Return, for each heavy k2, 1 if samples at the usual clamp leave next to nothing to the others, else 0.

    The clamped ratios are above 1. The others add the same o to both, as after any small step: k2 = p·c²/2 + o and k1 =
    o - p·c, for a share p at the clamp, so that o = (k2 + k1·c/2)/(1 + c/2).
    """
    heavy = np.isfinite(k1) & np.isfinite(k2) & (k2 > HEAVY_K2)
    half = CLAMPS[0] / 2
    left = (k2[heavy] + half * k1[heavy]) / ((1 + half) * k2[heavy])
    fits: FloatArray = ((left > LEAST_LEFT) & (left < MOST_LEFT)).astype(np.float64)
    return fits
