"""Algebra that metrics of the same samples obey, whatever the policies: a violation is a logging error.

Only metrics on one axis with the same averaging window are compared: across windows sound runs violate all of this.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model import EXACT

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Series

#: Room for float32 means over many samples, relative to the larger side.
ROOM = 0.02


def mean_ratio_contradiction(observations: Observations) -> Series | None:
    """Return |(mean ratio - 1) - (k3 - k1)| beyond rounding, over its size; it is 0 over one set of samples.

    Since k3 = r - 1 - log r and k1 = -log r, sample by sample (Schulman 2020, Approximating KL Divergence).
    """
    series = observations.run.series
    ratio, k3, k1 = series.get("ratio_mean"), series.get("approx_kl"), series.get("approx_kl_k1")
    if ratio is None or k3 is None or k1 is None or k3.estimator != "k3":
        return None
    if not _same_window(ratio, k3) or not _same_window(k3, k1):
        return None
    gap = np.abs((ratio.values - 1) - (k3.values - k1.values))
    printed = sum(s.resolution.absolute for s in (ratio, k3, k1))
    size = np.abs(ratio.values - 1) + np.abs(k3.values) + np.abs(k1.values)
    value = np.maximum(0.0, gap - printed - 1e-6) / np.maximum(size, 1e-9)
    return dataclasses.replace(
        k3, name="mean_ratio_contradiction", values=value, resolution=EXACT, how="computed", unit=""
    )


def clip_kl_contradiction(observations: Observations) -> Series | None:
    """Return by how much the clip fraction demands more KL than there is: (needed - k3)/needed, 0 where it fits.

    A share f of samples outside 1 ± ε has mean k3 of at least f·min(k3(1 + ε), k3(1 - ε)), which is 0.0177·f at
    ε = 0.2; with k2 it is 0.0166·f. Both sides have to be counted.
    """
    series = observations.run.series
    kl, clipped = series.get("approx_kl"), series.get("clip_fraction")
    epsilon = _range(observations)
    if kl is None or clipped is None or epsilon is None or not _same_window(kl, clipped):
        return None
    if kl.estimator not in ("k2", "k3") or clipped.estimator != "both sides":
        return None
    needed = np.maximum(0.0, clipped.values - clipped.resolution.absolute) * _least(kl.estimator, epsilon)
    have = np.abs(kl.values) + kl.resolution.absolute + ROOM * needed + 1e-7
    value = np.maximum(0.0, needed - have) / np.maximum(needed, 1e-9)
    return dataclasses.replace(
        kl, name="clip_kl_contradiction", values=value, resolution=EXACT, how="computed", unit=""
    )


def _least(estimator: str, epsilon: float) -> float:
    if estimator == "k2":
        return 0.5 * math.log1p(epsilon) ** 2
    return epsilon - math.log1p(epsilon)


def _range(observations: Observations) -> float | None:
    """Return the smallest clip range in force: logged, else configured."""
    logged = observations.run.series.get("clip_range")
    if logged is not None and len(logged):
        finite = logged.values[np.isfinite(logged.values)]
        return float(finite.min()) if len(finite) and finite.min() > 0 else None
    found = observations.number("clip_range")
    return found if found and observations.configured("clip_range") else None


def negative_estimate(observations: Observations) -> Series | None:
    """Return how far an estimator that is never negative (k2, k3) lies below 0, beyond float noise."""
    for name in ("approx_kl", "ref_kl"):
        kl = observations.run.series.get(name)
        if kl is not None and len(kl) and kl.estimator in ("k2", "k3"):
            values = np.maximum(0.0, -kl.values - kl.resolution.absolute)
            return dataclasses.replace(kl, name="negative_estimate", values=values, resolution=EXACT, how="computed")
    return None


def _same_window(one: Series, other: Series) -> bool:
    return one.axis is other.axis and one.aggregation == other.aggregation
