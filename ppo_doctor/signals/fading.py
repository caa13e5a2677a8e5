"""What fades or breaks off late: a policy that hardly moves any more, a reward that drops in the last records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import median
from ppo_doctor.signals.course import fact, finite, series_of, truth_of, value_of
from ppo_doctor.signals.movement import TREND, divergence_of
from ppo_doctor.signals.rewards import MOVING_KL, reward_of

if TYPE_CHECKING:
    from ppo_doctor.model import Fact, FloatArray
    from ppo_doctor.signals.course import Observations

#: Records of a run that has a beginning and a later half; the share of them that is its beginning.
MANY, BEGINNING = 80, 20
#: Records of a run whose end is looked at, of such an end, and the parts of a run that it may be; how often a record of
#: the end is below one of those before.
FEWEST, LEAST_END, ENDS, NEARLY_ALL = 60, 10, (60, 30, 20), 0.9
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


def drop_at_end(observations: Observations) -> Fact | None:
    """Return how much of the range of the reward's medians is lost between the last records and those before; else 0.

    It is where nearly each of the last is below nearly each of those before. Ends of several lengths are tried.
    """
    found = reward_of(observations)
    if found is None or len(found[1]) < FEWEST:
        return None
    series, values = found
    ends = sorted({max(LEAST_END, len(values) // part) for part in ENDS})
    lost = [(_share_lost(values, size), size) for size in ends if 4 * size <= len(values)]
    share, size = max(lost, default=(0.0, LEAST_END))
    before, end = float(median(values[-3 * size : -size])), float(median(values[-size:]))
    says = f"{series.raw} is {end:.4g} in the last {size} records and {before:.4g} in as many twice before (medians)"
    told = fact("drop_at_end", share, series, says)
    at = int(np.flatnonzero(np.isfinite(series.values))[-size])
    return replace(told, since=int(series.axis.steps[at]), source=series.source(at)) if share else told


def _share_lost(values: FloatArray, size: int) -> float:
    end, before = values[-size:], values[-3 * size : -size]
    below = len(before) - np.searchsorted(np.sort(before), end, side="right")  # of those before, that each is below
    if below.mean() < NEARLY_ALL * len(before):
        return 0.0
    blocks = np.median(values[len(values) % size :].reshape(-1, size), axis=1)
    return float((median(before) - median(end)) / max(np.ptp(blocks), 1e-12))


def _slowed(observations: Observations) -> bool:
    """Tell whether the learning rate of the later half is far below that of the first records."""
    rate = series_of(observations, "learning_rate")
    if rate is None:
        return value_of(observations.fact("decay_share")) is not None
    held = finite(rate)
    return float(median(_later(held))) < RATE_LEFT * float(held.max())


def _later(values: FloatArray) -> FloatArray:
    return values[len(values) // 2 :]
