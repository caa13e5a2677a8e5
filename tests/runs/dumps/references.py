"""Plain references of extended precision for the statistics of samples and weights.

References are whole-array expressions in `longdouble`, after the differences and exponentials of float64.
"""

# ruff: noqa: ARG005 - references of one table take the same columns, whether they need them or not

from __future__ import annotations

import math

import numpy as np

from ppo_doctor.readers.tensors.tensor import Tensor
from ppo_doctor.runs.dumps import statistics
from ppo_doctor.runs.dumps.passes import MOVED
from ppo_doctor.runs.dumps.statistics import QUANTILES

LONG = np.longdouble
CLIP, DUAL = (0.2, 0.28), 3.0
#: Beyond this, and below its inverse, squares leave float64, and what rests on them may be infinite or untold.
ROOT = 1e150


def tensor(values, dtype=np.float64, name="t"):
    return Tensor.of(name, np.asarray(values, dtype=dtype))


def agree(ours, plain, scale=0.0):
    """Agree to 1e-9 relative, and 1e-13 of the `scale` of what cancels."""
    plain = float(plain)
    if math.isnan(plain):
        return math.isnan(ours)
    if 0 < abs(plain) < 1 / ROOT:
        return abs(ours) < 1 / ROOT + 1e-13 * float(scale)
    if abs(plain) > ROOT or scale > ROOT:
        return not math.isfinite(ours) or abs(ours - plain) <= 1e-9 * abs(plain) or scale > ROOT
    return abs(ours - plain) <= 1e-9 * abs(plain) + 1e-13 * float(scale)


def mean(values):
    return LONG(values).sum() / LONG(len(values)) if len(values) else LONG(math.nan)


def std(values):
    values = LONG(values)
    return np.sqrt(mean((values - mean(values)) ** 2)) if len(values) else LONG(math.nan)


def covariance(one, other):
    return mean((LONG(one) - mean(one)) * (LONG(other) - mean(other)))


def correlation(one, other):
    size = std(one) * std(other)
    return covariance(one, other) / size if size > 0 else LONG(math.nan)


def quantile(values, q):
    ranked = np.sort(values)
    at = q * (len(ranked) - 1)
    low = int(at)
    return ranked[low] + (ranked[min(low + 1, len(ranked) - 1)] - ranked[low]) * (at - low)


# Summaries of one column

SUMMARY = {
    "count": lambda v: (np.isfinite(v).sum(), 0),
    "mean": lambda v: (mean(kept(v)), mean(abs(kept(v)))),
    "std": lambda v: (std(kept(v)), 0),
    "low": lambda v: (kept(v).min() if len(kept(v)) else math.nan, 0),
    "high": lambda v: (kept(v).max() if len(kept(v)) else math.nan, 0),
}


def kept(values):
    return values[np.isfinite(values)]


def check_summary(ours, values, skip=()):
    for name, reference in SUMMARY.items():
        if name not in skip:
            plain, scale = reference(values)
            assert agree(getattr(ours, name), plain, scale), (name, getattr(ours, name), plain)


# The ratio: of new and old log-probs and advantages, all finite


def k3(d):
    d = LONG(d)
    return np.where(abs(d) < 1e-4, d**2 / 2 + d**3 / 6 + d**4 / 24 + d**5 / 120, np.expm1(d) - d)


def share(found):
    return LONG(found.sum()) / len(found)


def ess(r):
    scale = LONG(r).max()
    return (LONG(r) / scale).sum() ** 2 / ((LONG(r) / scale) ** 2).sum() / len(r)


def deviations(r):
    off, error = abs(mean(r) - 1), std(r) / np.sqrt(LONG(len(r)))
    return off / error if error > 0 else (0.0 if off == 0 else math.inf)


RATIO = {
    "samples": lambda n, o, a: (len(n), 0),
    "nonfinite": lambda n, o, a: (0, 0),
    "one_share": lambda n, o, a: (share(n - o == 0), 0),
    "distinct": lambda n, o, a: (len(set((n - o).tolist())), 0),
    "k1": lambda n, o, a: (-mean(n - o), mean(abs(n - o))),
    "k2": lambda n, o, a: (mean(LONG(n - o) ** 2) / 2, 0),
    "k3": lambda n, o, a: (mean(k3(n - o)), 0),
    "ess": lambda n, o, a: (ess(np.exp(n - o)), 0),
    "clipped_low": lambda n, o, a: (share(np.exp(n - o) < 1 - CLIP[0]), 0),
    "clipped_high": lambda n, o, a: (share(np.exp(n - o) > 1 + CLIP[1]), 0),
    "effective_low": lambda n, o, a: (share((np.exp(n - o) < 1 - CLIP[0]) & (a < 0)), 0),
    "effective_high": lambda n, o, a: (share((np.exp(n - o) > 1 + CLIP[1]) & (a > 0)), 0),
    "dual": lambda n, o, a: (share((np.exp(n - o) > DUAL) & (a < 0)), 0),
    "gain": lambda n, o, a: (
        mean((LONG(np.exp(n - o)) - 1) * LONG(a)),
        (mean(abs(LONG(np.exp(n - o)))) + 1) * mean(abs(LONG(a))) + std(np.exp(n - o)) * std(a),
    ),
    "advantage_corr": lambda n, o, a: (correlation(n - o, a) if min(np.ptp(n - o), np.ptp(a)) > 0 else math.nan, 1),
}
#: The ratio is a Summary, quantiles are checked one by one, and deviations to the digits that they have.
NESTED = {"ratio", "quantiles", "deviations"}


def check_ratio(n, o, a, got):
    d = n - o
    r = np.exp(d)
    moderate = std(r) < ROOT
    known = {
        "ess": statistics.SMALLEST_SQUARED < mean(r) < ROOT and moderate,
        "gain": moderate,
        "advantage_corr": not any(0 < np.ptp(column) < statistics.SMALLEST_SQUARED for column in (d, a)),
    }
    for name, reference in RATIO.items():
        if known.get(name, True):
            plain, scale = reference(n, o, a)
            assert agree(getattr(got, name), plain, scale), (name, getattr(got, name), plain)
    if not np.isfinite(r).all():
        assert got.ratio.high == got.ratio.mean == got.ratio.std == math.inf
        return
    check_summary(got.ratio, r, skip=() if moderate else ("std",))
    if moderate:
        off = mean(r) - 1
        assert agree(got.deviations, deviations(r), abs((off + 1e-3) / (std(r) or 1)) * math.sqrt(len(r)) * 1e3)
    for q in QUANTILES:
        assert agree(got.quantiles[q], np.exp(quantile(d, q)), math.exp(min(700, quantile(d, q))) * abs(d).max())


# Two passes at the same weights: x, y, padding, place


def slope(one, other):
    return (covariance(one, other) / std(other) ** 2, std(one) / std(other)) if np.ptp(other) > 0 else (math.nan, 0)


def least_padded(x, y, p):
    """Return the mean |d| without padding over that of all; with none of it, that of a line, and its standard error."""
    size = abs(x - y)
    if not np.ptp(p) > 0 or not mean(size) > 0:
        return math.nan, 0
    if (p == 0).any():
        return mean(size[p == 0]) / mean(size), 0
    levels = np.unique(p)
    if len(levels) < 4 or levels[0] > levels[-1] / 2:
        return math.nan, 0
    means = np.array([mean(size[p == level]) for level in levels], LONG)
    weights = np.array([share(p == level) for level in levels], LONG)
    design = np.stack([np.ones(len(levels)), levels], axis=1).astype(LONG)
    scatter = design.T @ (weights[:, None] * design)
    inverse = np.array([[scatter[1, 1], -scatter[0, 1]], [-scatter[0, 1], scatter[0, 0]]]) / (
        scatter[0, 0] * scatter[1, 1] - scatter[0, 1] ** 2
    )
    height, slope = inverse @ design.T @ (weights * means)
    rest = (weights * (means - height - slope * levels) ** 2).sum() / (len(levels) - 2)
    return (height + np.sqrt(rest * inverse[0, 0])) / mean(size), 1e3


PASSES = {
    "samples": lambda x, y, p: (len(x), 0),
    "std": lambda x, y, p: (std(x - y), 0),
    "correlation": lambda x, y, p: (correlation(x, y) if min(np.ptp(x), np.ptp(y)) > 0 else math.nan, 1),
    "slope": lambda x, y, p: slope(x, y),
    "slope_back": lambda x, y, p: slope(y, x),
    "above": lambda x, y, p: (share(x - y > MOVED), 0),
    "below": lambda x, y, p: (share(x - y < -MOVED), 0),
    "rising": lambda x, y, p: ((x > y).sum() / LONG((x != y).sum()) if (x != y).any() else math.nan, 0),
    "rounding": lambda x, y, p: (np.sqrt((mean(LONG(x) ** 2) + mean(LONG(y) ** 2)) * LONG(2.0**-50) / 3), 0),
    "padding": lambda x, y, p: (
        correlation(abs(x - y), p) if min(np.ptp(abs(x - y)), np.ptp(p)) > 0 else math.nan,
        1,
    ),
    "position": lambda x, y, p: (
        correlation(abs(x - y), np.arange(len(x))) if len(x) > 1 and np.ptp(abs(x - y)) > 0 else math.nan,
        1,
    ),
    "least_padded": least_padded,
}


def finite_square(values):
    return np.sqrt((LONG(values[np.isfinite(values)]) ** 2).sum())


CHANGE = {
    "changed": lambda b, a: (b.view(np.uint32) != a.view(np.uint32)).sum(),
    "delta": lambda b, a: finite_square(a.astype(np.float64) - b),
    "norm": lambda b, a: finite_square(b.astype(np.float64)),
    "finite": lambda b, a: np.isfinite(b).all() and np.isfinite(a).all(),
}
