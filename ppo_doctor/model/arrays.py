"""Statistics of short arrays without numpy's overhead, and without numpy.ma.

A diagnosis computes some two hundred statistics of 500 values each, where np.mean takes 5 µs for a sum of 0.7;
np.unique and np.median import numpy.ma, which takes 6 ms.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ppo_doctor.model.run import SINGLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from ppo_doctor.model.run import BoolArray, FloatArray, IntArray, Series

Number = TypeVar("Number", np.float64, np.int64)


#: Up to this many values a whole sort is quicker than a selection (500: 3 against 6 µs; 100,000: 1.0 against 0.2 ms).
SORTED = 1_000
#: Stretches up to this long are sorted side by side, 24 times the memory of the series, and all of a series up to that
#: long.
SIDE_BY_SIDE, POINTS = 24, 512
#: Of the records of a metric this part, or all but one, hold the metric that was logged beside it: cells get lost.
MOST = 0.9


def median(values: FloatArray | IntArray) -> float:
    """Return the median of a non-empty array without NaN; of an even number the mean of the middle two."""
    middle = len(values) // 2
    low, high = _neighbours(values, middle - 1 + len(values) % 2)
    return low if len(values) % 2 else low / 2 + high / 2


def _neighbours(values: FloatArray | IntArray, low: int) -> tuple[float, float]:
    """Return the value at place `low` of the sorted array and the one after it, which at the end is the same one.

    One place is selected, and the least of what is above it looked for: to select both takes numpy ten times as long.
    """
    ordered = values.copy()
    last = len(ordered) - 1
    if last < SORTED:
        ordered.sort()
        return float(ordered[low]), float(ordered[min(low + 1, last)])
    ordered.partition(low)
    return float(ordered[low]), float(ordered[low + 1 :].min() if low < last else ordered[low])


def mean_of(values: FloatArray | BoolArray) -> float:
    """Return the mean, NaN of none; np.mean of 500 values takes seven times as long."""
    return float(np.add.reduce(values)) / len(values) if len(values) else float("nan")


def variance_of(values: FloatArray, *, ddof: int = 0) -> float:
    """Return the variance of more than `ddof` values by the formula of np.var, in a quarter of its time."""
    centred = values - mean_of(values)
    return float(np.add.reduce(centred * centred)) / (len(values) - ddof)


def scatter_of(values: FloatArray) -> float:
    """Return 1.4826 times the median change from record to record: √2 standard deviations of normal noise on a trend.

    At least two values, without NaN.
    """
    return 1.4826 * median(np.abs(values[1:] - values[:-1]))


def ranks(values: FloatArray) -> FloatArray:
    """Return ranks from 1 of values without NaN; what float32 does not tell apart shares the mean of its ranks."""
    ordered, slack = np.sort(values), SINGLE * np.abs(values)
    with np.errstate(over="ignore"):  # beyond the largest number is infinity, which sorts behind it
        low, high = ordered.searchsorted(values - slack, "left"), ordered.searchsorted(values + slack, "right")
    return (low + high + 1) / 2


def span_medians(values: FloatArray, bounds: IntArray) -> FloatArray:
    """Return the medians of consecutive spans [bounds[i], bounds[i + 1]), none of them empty, of values without NaN.

    One sort for all spans: a call of `median` for each of 200 spans took a fifth of a whole diagnosis.
    """
    sizes = bounds[1:] - bounds[:-1]
    span = np.arange(len(sizes)).repeat(sizes)
    longest = int(sizes.max())
    if longest * len(sizes) <= 4 * len(span):
        return _row_medians(values[bounds[0] : bounds[-1]], span, sizes, longest)
    ordered = values[bounds[0] : bounds[-1]]
    ordered = ordered[np.lexsort((ordered, span))]
    first = bounds[:-1] - bounds[0]
    low, high = ordered[first + (sizes - 1) // 2], ordered[first + sizes // 2]
    return _between(low, high)


def _row_medians(values: FloatArray, span: IntArray, sizes: IntArray, longest: int) -> FloatArray:
    """Return the medians of spans of like length, each a row filled up with infinity: a tenth of the time of a sort."""
    rows = np.full((len(sizes), longest), np.inf)
    rows[span, np.arange(len(values)) - (sizes.cumsum() - sizes).repeat(sizes)] = values
    rows.sort(axis=1)
    which = np.arange(len(sizes))
    return _between(rows[which, (sizes - 1) // 2], rows[which, sizes // 2])


def running_quantiles(values: FloatArray, width: int, share: float) -> FloatArray:
    """Return the quantile of each stretch of `width` records, first to last; at least `width` values without NaN.

    Interpolated as by `quantile`, of which one call for each of 400 stretches took a sixth of a whole diagnosis.
    """
    at = share * (width - 1)
    low = int(at)
    below, above = _running_places(values, width, low, min(low + 1, width - 1))
    return below + (at - low) * (above - below)


def running_medians(values: FloatArray, width: int) -> FloatArray:
    """Return the median of each stretch of `width` records, first to last; at least `width` values without NaN."""
    return _between(*_running_places(values, width, (width - 1) // 2, width // 2))


def _running_places(values: FloatArray, width: int, low: int, high: int) -> tuple[FloatArray, FloatArray]:
    """Return the values at two places of each sorted stretch, the same one twice or one after the other.

    Stretches are sorted side by side where that takes less memory and time than a selection.
    """
    if width <= SIDE_BY_SIDE or len(values) <= POINTS:
        ordered = np.sort(sliding_window_view(values, width), axis=1)
        return ordered[:, low], ordered[:, high]
    below = _running_place(values, width, low)
    return below, below if low == high else _running_place(values, width, high)


def _running_place(values: FloatArray, width: int, place: int) -> FloatArray:
    """Return the value at one place of each sorted stretch, in n·log n steps and memory of n.

    The ranks of all values are read bit by bit from the highest on, as in a wavelet matrix (SPIRE 2012):
    at each bit those of a stretch are parted, without changing their order, and `place` tells on which side it is.
    """
    order = np.argsort(values, kind="stable")
    left = np.empty(len(values), dtype=np.int64)
    left[order] = np.arange(len(values))
    first, among = np.arange(len(values) - width + 1), np.full(len(values) - width + 1, place)
    stop, found = first + width, np.zeros(len(first), dtype=np.int64)
    for bit in reversed(range(len(values).bit_length())):
        small = (left >> bit) & 1 == 0
        before = np.concatenate(([0], np.cumsum(small)))
        begin, end = before[first], before[stop]
        above = among >= end - begin
        found |= above.astype(np.int64) << bit
        among -= np.where(above, end - begin, 0)
        first = np.where(above, before[-1] + first - begin, begin)
        stop = np.where(above, before[-1] + stop - end, end)
        left = np.concatenate((left[small], left[~small]))
    return values[order[found]]


def _between(low: FloatArray, high: FloatArray) -> FloatArray:
    middle: FloatArray = np.where(low == high, low, low / 2 + high / 2)  # no sum that overflows
    return middle


def quantile(values: FloatArray, share: float) -> float:
    """Return a quantile of a non-empty array without NaN, interpolated linearly between neighbours as numpy does."""
    at = share * (len(values) - 1)
    low, high = _neighbours(values, int(at))
    return low + (at - int(at)) * (high - low)


def finite_of(values: FloatArray) -> FloatArray:
    """Return the finite values of an array: itself where all are, which is the usual case; not to be written to."""
    known = np.isfinite(values)
    return values if np.count_nonzero(known) == len(known) else values[known]


def parts(values: FloatArray, count: int) -> list[FloatArray]:
    """Return views of `count` consecutive parts, the first ones longer by one where it does not divide the length."""
    size, longer = divmod(len(values), count)
    bounds = [part * size + min(part, longer) for part in range(count + 1)]
    return [values[first:stop] for first, stop in itertools.pairwise(bounds)]


def finite_parts(values: FloatArray, count: int) -> list[FloatArray]:
    """Return the finite values of each of `count` consecutive parts."""
    return [finite_of(part) for part in parts(values, count)]


def correlation(one: FloatArray, other: FloatArray) -> float:
    """Return Pearson's coefficient of two finite arrays, NaN where one does not vary.

    The formula of np.corrcoef, to the last bit, in a third of its time.
    """
    both = np.array([one, other])
    both -= both.mean(axis=1)[:, None]
    products = both @ both.T * (1 / (len(one) - 1))
    deviations = np.sqrt(products.diagonal())
    value = products[0, 1] / deviations[0] / deviations[1]
    return float(min(max(value, -1.0), 1.0)) if value == value else float("nan")  # noqa: PLR0124 - NaN


def same(one: FloatArray, other: FloatArray | float) -> BoolArray:
    """Tell where measured numbers are equal as far as float32 holds them; NaN equals nothing."""
    with np.errstate(invalid="ignore"):  # infinity is only itself
        near = np.abs(one - other) <= SINGLE * np.maximum(np.abs(one), np.abs(other))
    return np.asarray((one == other) | (near & np.isfinite(one) & np.isfinite(other)))


def finite_median(values: FloatArray) -> float:
    """Return the median of the finite values, NaN if there is none."""
    known = finite_of(values)
    return median(known) if len(known) else float("nan")


def distinct(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Return the sorted distinct values of an array without NaN."""
    ordered = np.sort(values)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))] if len(ordered) else ordered


def by_value(values: npt.NDArray[Number]) -> Iterator[tuple[Number, IntArray]]:
    """Yield each distinct value, without NaN, with the places where it stands, in order."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    for group in np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1):
        if len(group):
            yield values[group[0]], group


def together(columns: Sequence[FloatArray], by: str) -> FloatArray:
    """Return columns of one length as one, by their "mean", "max" or "min"; NaN only where all of them are."""
    every = np.array(columns, dtype=np.float64)
    if by != "mean":
        bound: FloatArray = (np.fmax if by == "max" else np.fmin).reduce(every)
        return bound
    known = ~np.isnan(every)
    whole = np.where(known, every, 0.0).sum(axis=0)
    mean: FloatArray = np.divide(whole, known.sum(axis=0), out=np.full(len(whole), np.nan), where=known.any(axis=0))
    return mean


def beside(series: Series | None, other: Series | None) -> Series | None:
    """Return another metric at the records of a series, NaN where it has none of its own; None where it mostly has not.

    Where a cell was lost, two metrics of the same records share one record less, and are of the same records still.
    """
    if series is None or other is None or series.axis is other.axis:
        return other if series is not None else None
    ours, theirs = series.axis.places, other.axis.places
    if series.axis.path != other.axis.path or not len(theirs):
        return None
    order = np.argsort(theirs, kind="stable")
    at = order[np.minimum(np.searchsorted(theirs, ours, sorter=order), len(theirs) - 1)]
    known = theirs[at] == ours
    if np.count_nonzero(known) < max(1.0, min(MOST * len(ours), len(ours) - 1)):
        return None
    return replace(other, axis=series.axis, values=np.where(known, other.values[at], np.nan))


def has_two_decimals(value: float) -> bool:
    """Tell whether a number has two decimals at most, as what a person sets has; a mean of many has more."""
    return abs(value * 100 - round(value * 100)) < 1e-6 * max(1.0, abs(value))


Scatter = TypeVar("Scatter", float, "FloatArray")

#: Half the spacing of float32 numbers at 1: the error of one correctly rounded operation on a number of that size.
UNIT = 2.0**-24
#: Roundings on the way to the difference of two log-probs: the last logit and its normaliser, in two passes.
ROUNDINGS = 4
#: What they make of the log-ratio of log-probs of up to 1 nat, as means over samples have.
LOG_RATIO = ROUNDINGS * UNIT
#: Of many samples the one that is farthest off has a log-prob of several nats: those up to 16 are held to 16 units.
EXTREME = 16 * LOG_RATIO
#: The log-probs of a whole answer add up to 32 to 64 nats, where float32 numbers are 2^-18 apart.
SUMMED = 2.0**-18
#: What is left of a reward of order 1 from which the mean of as many equal ones is taken.
CENTRED = 4 * UNIT
#: Shares of samples are means of zeros and ones.
SHARE = 4 * UNIT

_KL = frozenset(("approx_kl", "approx_kl_k1", "approx_kl_k2", "ref_kl", "rollout_kl"))
#: Quantities whose value at identity is 0, or 1 for a ratio, and what rounding makes of it.
_ROUNDING = MappingProxyType(
    dict.fromkeys(("ratio_mean", "ratio_std", "ratio_abs_dev", "rollout_ratio_mean", "rollout_logp_diff"), LOG_RATIO)
    | dict.fromkeys(("ratio_min", "ratio_max", "approx_kl_max", "rollout_ratio_min", "rollout_ratio_max"), EXTREME)
    | dict.fromkeys(("batch_start_ratio_dev", "epoch_start_ratio_dev", "within_epoch_ratio_dev"), EXTREME)
    | {"rollout_logp_diff_max": EXTREME}
    | dict.fromkeys(("clip_fraction", "clip_fraction_low", "clip_fraction_high", "clip_fraction_dual"), SHARE)
    | dict.fromkeys(("advantages_std", "advantages_min", "advantages_max", "advantages_abs_max"), CENTRED)
    | dict.fromkeys(("clip_fraction_positive", "clip_fraction_negative", "frac_reward_zero_std"), SHARE)
)
#: Estimates that rounding takes below 0 as well as above; half a square stays above.
_SIGNED = frozenset(("k1", "k3", "exact"))
#: Standard errors by which more of the smallest values have to be above 0 than at it or below to be no rounding.
SURE = 3.0


def of_kl(estimator: str | None, log_ratio: Scatter) -> Scatter:
    """Return what log-ratios that scatter by `log_ratio` around 0 make of a KL estimate, in nats.

    The estimators of Schulman 2020 (Approximating KL Divergence): k1 up to d, k2 d²/2, and k3 up to UNIT + d²/2, since
    (r - 1) - log r is a difference of numbers whose ratio was rounded next to 1.
    """
    if estimator in ("k1", "exact"):
        return log_ratio
    return log_ratio**2 / 2 + (UNIT if estimator == "k3" else 0.0)


def of(name: str, estimator: str | None, aggregation: str | None, values: FloatArray) -> float:
    """Return how far from its value at identity a metric may be by rounding alone; 0 for those that have none.

    A KL is positive. One that rounding might take below 0, and that yet is above it in far more records than not, shows
    movement, however small: means over many samples are finer than their terms.
    """
    if name not in _KL:
        return _ROUNDING.get(name, 0.0)
    most = of_kl(estimator, SUMMED if aggregation == "sum over tokens" else LOG_RATIO)
    return 0.0 if estimator in _SIGNED and _moves(values[np.abs(values) <= most]) else most


def _moves(small: FloatArray) -> bool:
    above = int(np.count_nonzero(small > 0))
    return 2 * above - len(small) >= SURE * math.sqrt(len(small)) > 0
