"""What float32 arithmetic alone shows where nothing moves: two passes over equal weights differ in the last digit."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor import rounding
from ppo_doctor.arrays import beside
from ppo_doctor.model import EXACT

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray, Series


def kl_over_noise(observations: Observations) -> Series | None:
    """Return |KL| of an update over what float32 rounding alone makes of two equal policies, per record.

    A log-prob of size h, for which entropy stands, carries half a float32 unit of h per rounding, so that log-ratios
    scatter by `rounding.LOG_RATIO`·max(1, h). None for a log that rounds more coarsely than that.
    """
    size = observations.series("kl_size")
    if size is None:
        return None
    floor = rounding.of_kl(size.estimator, rounding.LOG_RATIO * np.maximum(1.0, _log_prob(observations, size)))
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
    entropy = beside(size, observations.run.series.get("entropy"))
    if entropy is None:
        return np.ones(len(size))
    sizes = np.abs(entropy.values)
    known = np.isfinite(sizes)
    return sizes if known.all() else np.where(known, sizes, 1.0)
