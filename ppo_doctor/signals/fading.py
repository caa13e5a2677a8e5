"""A policy that moved at first and hardly does later, though nothing is said to slow it down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import median
from ppo_doctor.signals.course import fact, finite, series_of, truth_of, value_of
from ppo_doctor.signals.movement import TREND, divergence_of
from ppo_doctor.signals.rewards import MOVING_KL

if TYPE_CHECKING:
    from ppo_doctor.model import Fact, FloatArray
    from ppo_doctor.signals.course import Observations

#: Records of a run that has a beginning and a later half; the share of them that is its beginning.
MANY, BEGINNING = 80, 20
#: Updates that clip next to nothing in so many records do not reach the clip range, and a rate that is left for that.
UNCLIPPED, RATE_LEFT = 0.95, 0.5


def divergence_fades(observations: Observations) -> Fact | None:
    """Return the median |KL| of the first twentieth of records over that of the later half; 1 where it falls by right.

    It does where the first updates were small, where the rate falls, where updates are still clipped later, and
    where the reward rises.
    """
    series = divergence_of(observations)
    size = np.empty(0) if series is None else np.abs(finite(series))
    if series is None or len(size) < MANY or truth_of(observations.fact("several_updates")) is False:
        return None
    early = size[: len(size) // BEGINNING]
    first, later = float(median(early)), float(median(_later(size)))
    if later <= series.resolution.absolute:
        return None
    says = f"{series.raw} is {first:.3g} in the first {len(early)} records and {later:.3g} in the later half"
    excused = first < MOVING_KL or _slowed(observations) or (value_of(observations.fact("reward_trend")) or 0.0) > TREND
    clipped = series_of(observations, "clip_fraction")
    if clipped is not None and (share := float((_later(finite(clipped)) == 0).mean())) < UNCLIPPED:
        excused = True
    elif clipped is not None:
        says += f", in which {clipped.raw} is 0 in {share:.0%} of the records"
    return fact("divergence_fades", 1.0 if excused else first / later, series, f"{says} (medians)", "times")


def _slowed(observations: Observations) -> bool:
    """Tell whether the learning rate of the later half is far below that of the first records."""
    rate = series_of(observations, "learning_rate")
    if rate is None:
        return value_of(observations.fact("decay_share")) is not None
    held = finite(rate)
    return float(median(_later(held))) < RATE_LEFT * float(held.max())


def _later(values: FloatArray) -> FloatArray:
    return values[len(values) // 2 :]
