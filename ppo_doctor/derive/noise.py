"""What float32 arithmetic alone shows where nothing moves: two passes over equal weights differ in the last digit."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model import EXACT

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray, Series

#: Half the spacing of float32 numbers at 1: the error of one correctly rounded operation on a number of that size.
UNIT = 2.0**-24
#: Roundings on the way to the difference of two log-probs: the last logit and its normaliser, in two passes.
ROUNDINGS = 4


def kl_over_noise(observations: Observations) -> Series | None:
    """Return |KL| of an update over what float32 rounding alone makes of two equal policies, per record.

    A log-prob of size h, for which entropy stands, carries UNIT·h per rounding, so that log-ratios scatter by d =
    4·UNIT·max(1, h). The estimators of Schulman 2020 (Approximating KL Divergence) make of that: k1 up to d, k2 d²/2,
    and k3 up to UNIT + d²/2, since (r - 1) - log r is a difference of numbers whose ratio was rounded next to 1. None
    for a log that rounds more coarsely than that.
    """
    size = observations.series("kl_size")
    if size is None:
        return None
    scatter = ROUNDINGS * UNIT * np.maximum(1.0, _log_prob(observations, size))
    floor = {"k3": UNIT + scatter**2 / 2, "k1": scatter, "exact": scatter}.get(size.estimator or "", scatter**2 / 2)
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


def _log_prob(observations: Observations, size: Series) -> FloatArray:
    """Return the size of a log-prob per record: the policy's entropy where it is logged, else 1 nat."""
    entropy = observations.run.series.get("entropy")
    if entropy is None or entropy.axis is not size.axis:
        return np.ones(len(size))
    sizes = np.abs(entropy.values)
    known = np.isfinite(sizes)
    return sizes if known.all() else np.where(known, sizes, 1.0)
