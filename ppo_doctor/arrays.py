"""Order statistics without numpy.ma: np.unique and np.median import it, which costs 6 ms at start."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.model import FloatArray, IntArray

Number = TypeVar("Number", np.float64, np.int64)


def median(values: FloatArray | IntArray) -> float:
    """Return the median of a non-empty array without NaN; of an even number the mean of the middle two."""
    middle = len(values) // 2
    if len(values) % 2:
        return float(np.partition(values, middle)[middle])
    pair = np.partition(values, [middle - 1, middle])
    return float(pair[middle - 1]) / 2 + float(pair[middle]) / 2


def ranks(values: FloatArray) -> FloatArray:
    """Return ranks from 1 of values without NaN, ties sharing the mean of theirs."""
    ordered = np.sort(values)
    low, high = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    return (low + high + 1) / 2


def spearman(one: FloatArray, other: FloatArray) -> float:
    """Return Spearman's rank correlation of two arrays of one length without NaN; 0 where one of them is constant."""
    if one.min() == one.max() or other.min() == other.max():
        return 0.0
    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


def span_medians(values: FloatArray, bounds: IntArray) -> FloatArray:
    """Return the medians of consecutive spans [bounds[i], bounds[i + 1]), none of them empty, of values without NaN.

    One sort for all spans: a call of `median` for each of 200 spans took a fifth of a whole diagnosis.
    """
    sizes = np.diff(bounds)
    span = np.repeat(np.arange(len(sizes)), sizes)
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
    rows[span, np.arange(len(values)) - np.repeat(np.cumsum(sizes) - sizes, sizes)] = values
    rows.sort(axis=1)
    which = np.arange(len(sizes))
    return _between(rows[which, (sizes - 1) // 2], rows[which, sizes // 2])


def running_medians(values: FloatArray, width: int) -> FloatArray:
    """Return the median of each stretch of `width` records, first to last; at least `width` values without NaN."""
    ordered = np.sort(sliding_window_view(values, width), axis=1)
    low, high = ordered[:, (width - 1) // 2], ordered[:, width // 2]
    return _between(low, high)


def _between(low: FloatArray, high: FloatArray) -> FloatArray:
    middle: FloatArray = np.where(low == high, low, low / 2 + high / 2)  # no sum that overflows
    return middle


def quantile(values: FloatArray, share: float) -> float:
    """Return a quantile of a non-empty array without NaN, interpolated linearly between neighbours as numpy does."""
    ordered = np.sort(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low]) + (at - low) * (float(ordered[high]) - float(ordered[low]))


def finite_median(values: FloatArray) -> float:
    """Return the median of the finite values, NaN if there is none."""
    finite = values[np.isfinite(values)]
    return median(finite) if len(finite) else float("nan")


def distinct(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Return the sorted distinct values of an array without NaN."""
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered
