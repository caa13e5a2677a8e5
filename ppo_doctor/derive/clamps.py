"""Means that a few ratios at a framework's clamp make up: what they add is the same each time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside, mean_of
from ppo_doctor.derive.limits import CLAMPS
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray, Series

#: A mean of ratios or of k3 from which on a few samples make it up: beside them the others, near 1, are rounding.
HEAVY = 100.0
#: A mean k2 (nats) that no trust region allows, while one sample at e^20 in 800 reaches it.
HEAVY_K2 = 0.25
#: How near to whole multiples of one number; how many of them; how many records tell.
FIT, MOST, FEWEST = 0.01, 60, 5
#: Share of a heavy k2 that is left to the other samples: little, and less than nothing by rounding alone.
LEAST_LEFT, MOST_LEFT = -0.01, 0.02


def clamped_share(observations: Observations) -> Fact | None:
    """Return the share of records with a heavy mean that ratios at one clamp c make up; 0 where none is heavy.

    Of N samples m at the clamp add m·(e^c - 1 - c)/N to a mean k3 and m·e^c/N to a mean ratio, so that heavy means are
    whole multiples of one number. They add m·c²/2N to k2 and m·c/N to |k1|, so that k2/|k1| is c/2 but for what the
    others add to k2, and to k1 (Schulman 2020, Approximating KL Divergence, for the estimators).
    """
    series = observations.run.series
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
    return Fact(name="clamped_share", value=value, how="computed", unit="fraction", source=series.source(), says=says)


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
