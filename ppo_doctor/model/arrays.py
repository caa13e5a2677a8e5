"""Statistics of short arrays with little overhead, and the effect of float32 rounding on metrics.

A diagnosis computes some two hundred statistics of 500 values each, for which np.mean takes 5 µs although the sum takes
only 0.7. np.unique and np.median import numpy.ma, which takes 6 ms.
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


#: Entropy of a normal distribution of variance 1, in nats.
GAUSSIAN_ENTROPY = 0.5 * math.log(2 * math.pi * math.e)
#: Up to this many values, sorting is faster than selecting (500: 3 against 6 µs; 100,000: 1.0 against 0.2 ms).
SORTED = 1_000
#: Stretches are sorted as rows of a matrix if they have at most `SIDE_BY_SIDE` values, which takes as many times the
#: memory of the series, or if the series has at most `POINTS` values.
SIDE_BY_SIDE, POINTS = 24, 512
#: Two metrics belong to the same records if this share of them, or all but one, have both; cells may be lost.
MOST = 0.9


def median(values: FloatArray | IntArray) -> float:
    """Return the median of a non-empty array without NaN, for an even number of values the mean of the middle two."""
    middle = len(values) // 2
    low, high = _neighbours(values, middle - 1 + len(values) % 2)
    return low if len(values) % 2 else low / 2 + high / 2


def _neighbours(values: FloatArray | IntArray, low: int) -> tuple[float, float]:
    """Return the value at index `low` of the sorted array and the next one, or the last value twice.

    One value is selected, and the next is the least of those above it; to select both takes numpy ten times as long.
    """
    ordered = values.copy()
    last = len(ordered) - 1
    if last < SORTED:
        ordered.sort()
        return float(ordered[low]), float(ordered[min(low + 1, last)])
    ordered.partition(low)
    return float(ordered[low]), float(ordered[low + 1 :].min() if low < last else ordered[low])


def mean_of(values: FloatArray | BoolArray) -> float:
    """Return the mean, NaN for an empty array; np.mean of 500 values takes seven times as long."""
    return float(np.add.reduce(values)) / len(values) if len(values) else float("nan")


def variance_of(values: FloatArray, *, ddof: int = 0) -> float:
    """Return the variance of more than `ddof` values like np.var, in a quarter of its time."""
    centred = values - mean_of(values)
    return float(np.add.reduce(centred * centred)) / (len(values) - ddof)


def scatter_of(values: FloatArray) -> float:
    """Return 1.4826 times the median absolute change between successive values.

    This is √2 standard deviations for normal noise on a trend. There must be at least two values and no NaN.
    """
    return 1.4826 * median(np.abs(values[1:] - values[:-1]))


def ranks(values: FloatArray) -> FloatArray:
    """Return ranks from 1 of values without NaN; values that are equal in float32 get the mean of their ranks."""
    ordered, slack = np.sort(values), SINGLE * np.abs(values)
    with np.errstate(over="ignore"):  # an overflow gives infinity, which sorts last
        low, high = ordered.searchsorted(values - slack, "left"), ordered.searchsorted(values + slack, "right")
    return (low + high + 1) / 2


def span_medians(values: FloatArray, bounds: IntArray) -> FloatArray:
    """Return the medians of the spans [bounds[i], bounds[i + 1]) of values without NaN; no span may be empty.

    All spans are sorted at once, because calling `median` for each of 200 spans takes a fifth of a whole diagnosis.
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
    """Return the medians of spans of similar length, as rows padded with infinity; ten times as fast as one sort."""
    rows = np.full((len(sizes), longest), np.inf)
    rows[span, np.arange(len(values)) - (sizes.cumsum() - sizes).repeat(sizes)] = values
    rows.sort(axis=1)
    which = np.arange(len(sizes))
    return _between(rows[which, (sizes - 1) // 2], rows[which, sizes // 2])


def running_quantiles(values: FloatArray, width: int, share: float) -> FloatArray:
    """Return the quantile of each stretch of `width` values; there must be at least `width` values and no NaN.

    It is interpolated as by `quantile`, of which a call for each of 400 stretches takes a sixth of a whole diagnosis.
    """
    at = share * (width - 1)
    low = int(at)
    below, above = _running_places(values, width, low, min(low + 1, width - 1))
    return below + (at - low) * (above - below)


def running_medians(values: FloatArray, width: int) -> FloatArray:
    """Return the median of each stretch of `width` values; there must be at least `width` values and no NaN."""
    return _between(*_running_places(values, width, (width - 1) // 2, width // 2))


def _running_places(values: FloatArray, width: int, low: int, high: int) -> tuple[FloatArray, FloatArray]:
    """Return the values at two indices of each sorted stretch, which are equal or successive.

    Stretches are sorted as rows of a matrix if that is faster than a selection and takes little memory.
    """
    if width <= SIDE_BY_SIDE or len(values) <= POINTS:
        ordered = np.sort(sliding_window_view(values, width), axis=1)
        return ordered[:, low], ordered[:, high]
    below = _running_place(values, width, low)
    return below, below if low == high else _running_place(values, width, high)


def _running_place(values: FloatArray, width: int, place: int) -> FloatArray:
    """Return the value at index `place` of each sorted stretch, in O(n log n) time and O(n) memory.

    This is a wavelet matrix (SPIRE 2012) of the ranks of all values. At each bit, from the highest on, the ranks of a
    stretch are partitioned stably, and the number with a 0 decides on which side the value is.
    """
    order = np.argsort(values, kind="stable")
    left = np.empty(len(values), dtype=np.int64)
    left[order] = np.arange(len(values))
    first, among = np.arange(len(values) - width + 1), np.full(len(values) - width + 1, place)
    stop, rank = first + width, np.zeros(len(first), dtype=np.int64)
    for bit in reversed(range(len(values).bit_length())):
        small = (left >> bit) & 1 == 0
        before = np.concatenate(([0], np.cumsum(small)))
        begin, end = before[first], before[stop]
        above = among >= end - begin
        rank |= above.astype(np.int64) << bit
        among -= np.where(above, end - begin, 0)
        first = np.where(above, before[-1] + first - begin, begin)
        stop = np.where(above, before[-1] + stop - end, end)
        left = np.concatenate((left[small], left[~small]))
    return values[order[rank]]


def _between(low: FloatArray, high: FloatArray) -> FloatArray:
    middle: FloatArray = np.where(low == high, low, low / 2 + high / 2)  # low + high might overflow
    return middle


def quantile(values: FloatArray, share: float) -> float:
    """Return a quantile of a non-empty array without NaN, with the linear interpolation of numpy."""
    at = share * (len(values) - 1)
    low, high = _neighbours(values, int(at))
    return low + (at - int(at)) * (high - low)


def finite_of(values: FloatArray) -> FloatArray:
    """Return the finite values of an array; if all are finite, the array itself, so do not write to the result."""
    known = np.isfinite(values)
    return values if np.count_nonzero(known) == len(known) else values[known]


def parts(values: FloatArray, count: int) -> list[FloatArray]:
    """Return views of `count` consecutive parts, the first ones longer by one if the length is not divisible."""
    size, longer = divmod(len(values), count)
    bounds = [part * size + min(part, longer) for part in range(count + 1)]
    return [values[first:stop] for first, stop in itertools.pairwise(bounds)]


def finite_parts(values: FloatArray, count: int) -> list[FloatArray]:
    """Return the finite values of each of `count` consecutive parts."""
    return [finite_of(part) for part in parts(values, count)]


def correlation(one: FloatArray, other: FloatArray) -> float:
    """Return Pearson's correlation coefficient of two finite arrays, NaN if one is constant.

    The result equals that of np.corrcoef to the last bit, in a third of the time.
    """
    both = np.array([one, other])
    both -= both.mean(axis=1)[:, None]
    products = both @ both.T * (1 / (len(one) - 1))
    deviations = np.sqrt(products.diagonal())
    value = products[0, 1] / deviations[0] / deviations[1]
    return float(min(max(value, -1.0), 1.0)) if value == value else float("nan")  # noqa: PLR0124 - NaN


def same(one: FloatArray, other: FloatArray | float) -> BoolArray:
    """Return where numbers are equal within the resolution of float32; NaN equals nothing."""
    with np.errstate(invalid="ignore"):  # infinity equals only itself
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
    """Yield each distinct value of an array without NaN in ascending order, with its indices."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    for group in np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1):
        if len(group):
            yield values[group[0]], group


def together(columns: Sequence[FloatArray], by: str) -> FloatArray:
    """Return the element-wise "mean", "max" or "min" of columns of equal length, ignoring NaN unless all are NaN."""
    every = np.array(columns, dtype=np.float64)
    if by != "mean":
        bound: FloatArray = (np.fmax if by == "max" else np.fmin).reduce(every)
        return bound
    known = ~np.isnan(every)
    whole = np.where(known, every, 0.0).sum(axis=0)
    mean: FloatArray = np.divide(whole, known.sum(axis=0), out=np.full(len(whole), np.nan), where=known.any(axis=0))
    return mean


def beside(series: Series | None, other: Series | None) -> Series | None:
    """Return another metric at the records of a series, NaN where it was not logged.

    None if the two do not belong to the same records, up to a few lost cells (see `MOST`), or if either is None.
    """
    if series is None or other is None or series.axis is other.axis:
        return other if series is not None else None
    places, other_places = series.axis.places, other.axis.places
    if series.axis.path != other.axis.path or not len(other_places):
        return None
    order = np.argsort(other_places, kind="stable")
    at = order[np.minimum(np.searchsorted(other_places, places, sorter=order), len(other_places) - 1)]
    known = other_places[at] == places
    if np.count_nonzero(known) < max(1.0, min(MOST * len(places), len(places) - 1)):
        return None
    return replace(other, axis=series.axis, values=np.where(known, other.values[at], np.nan))


def has_two_decimals(value: float) -> bool:
    """Return whether a number has at most two decimals, as settings have; means of many values have more."""
    return abs(value * 100 - round(value * 100)) < 1e-6 * max(1.0, abs(value))


Scatter = TypeVar("Scatter", float, "FloatArray")

#: Half the spacing of float32 numbers at 1, which is the largest error of one correctly rounded operation near 1.
UNIT = 2.0**-24
#: The number of roundings in a difference of two log-probs: the logit and its normaliser, in two passes.
ROUNDINGS = 4
#: The error of the log-ratio of log-probs of up to 1 nat, the size of means over samples.
LOG_RATIO = ROUNDINGS * UNIT
#: The error of the most extreme of many samples, whose log-prob may be up to 16 nats.
EXTREME = 16 * LOG_RATIO
#: The error of the summed log-prob of a whole answer, 32 to 64 nats, where the spacing of float32 numbers is 2^-18.
SUMMED = 2.0**-18
#: The error of the difference between a reward of order 1 and the mean of rewards that all equal it.
CENTRED = 4 * UNIT
#: The error of a share of samples, which is a mean of zeros and ones.
SHARE = 4 * UNIT

_KL = frozenset(("approx_kl", "approx_kl_k1", "approx_kl_k2", "ref_kl", "rollout_kl"))
#: Metrics that are 0, or 1 for a ratio, if the policies are equal → the error that rounding adds.
_ROUNDING = MappingProxyType(
    dict.fromkeys(("ratio_mean", "ratio_std", "ratio_abs_dev", "rollout_ratio_mean", "rollout_logp_diff"), LOG_RATIO)
    | dict.fromkeys(("ratio_min", "ratio_max", "approx_kl_max", "rollout_ratio_min", "rollout_ratio_max"), EXTREME)
    | dict.fromkeys(("batch_start_ratio_dev", "epoch_start_ratio_dev", "within_epoch_ratio_dev"), EXTREME)
    | {"rollout_logp_diff_max": EXTREME}
    | dict.fromkeys(("clip_fraction", "clip_fraction_low", "clip_fraction_high", "clip_fraction_dual"), SHARE)
    | dict.fromkeys(("advantages_std", "advantages_min", "advantages_max", "advantages_abs_max"), CENTRED)
    | dict.fromkeys(("clip_fraction_positive", "clip_fraction_negative", "frac_reward_zero_std"), SHARE)
)
#: KL estimators for which rounding may give values below 0 as well as above; the squares of k2 are never negative.
_SIGNED = frozenset(("k1", "k3", "exact"))
#: The majority of small values above 0, in standard errors, that rounding does not explain.
SURE = 3.0


def rounding_of_kl(estimator: str | None, log_ratio: Scatter) -> Scatter:
    """Return the largest KL estimate in nats for log-ratios d of at most `log_ratio`, which rounding alone may cause.

    For the estimators of Schulman 2020 (Approximating KL Divergence) it is d for k1, d²/2 for k2, and UNIT + d²/2 for
    k3, because the ratio in (r - 1) - log r is rounded near 1.
    """
    if estimator in ("k1", "exact"):
        return log_ratio
    return log_ratio**2 / 2 + (UNIT if estimator == "k3" else 0.0)


def rounding_of(name: str, estimator: str | None, aggregation: str | None, values: FloatArray) -> float:
    """Return how far rounding alone may move a metric from its value for equal policies; 0 if the metric has none.

    A true KL is positive. If rounding could make an estimate negative, but it is positive in a large majority of
    records, the policy moves, however small the KL is; then the result is 0.
    """
    if name not in _KL:
        return _ROUNDING.get(name, 0.0)
    most = rounding_of_kl(estimator, SUMMED if aggregation == "sum over tokens" else LOG_RATIO)
    return 0.0 if estimator in _SIGNED and _moves(values[np.abs(values) <= most]) else most


def _moves(small: FloatArray) -> bool:
    above = int(np.count_nonzero(small > 0))
    return 2 * above - len(small) >= SURE * math.sqrt(len(small)) > 0
