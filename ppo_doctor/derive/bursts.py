"""Records that leap away from the level of a series, and come back to it."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_of, median
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import BoolArray, FloatArray, IntArray

#: A burst stands at least this many times above the record before it, and ends where it has fallen by as much.
TIMES = 5.0
#: After a burst the level is what it was, up to this factor; a reference that is replaced starts again at 0 instead.
LEVEL = 5.0
#: What climbs has most of its height ahead where it begins; a burst has reached this share of it.
AT_ONCE = 0.5
#: Bursts closer than these records are one: the batch that brought them is trained on several times.
APART = 8


def reference_kl_burst(observations: Observations) -> Fact | None:
    """Return by which factor k3 to the reference leaps within a record and comes back, in the second largest burst.

    A policy does not leave its reference for a batch and return: a few tokens of that batch lead the exponential of
    k3. The second largest, as one may be an odd batch; 0 where there are fewer. None for other estimators, which have
    no exponential, and below 24 records.
    """
    kl = observations.run.series.get("ref_kl")
    if kl is None or kl.estimator != "k3" or np.isfinite(kl.values).sum() < 24:
        return None
    found = bursts(finite_of(kl.values))
    second = found[1] if len(found) > 1 else 0.0
    says = f"{kl.raw} leaps by more than a factor of {TIMES:g} and back {len(found)} times in {len(kl)} records"
    return Fact(name="reference_kl_burst", value=second, how="observed", unit="times", source=kl.source(), says=says)


def bursts(values: FloatArray) -> list[float]:
    """Return the factors of separate bursts, the largest first: up within a record, and back to the level before.

    A factor is that over the level before, or over the median where that is more: near a reference that was just
    synced any number is many times the one before.
    """
    starts = np.flatnonzero((values[:-1] > 0) & (values[1:] > TIMES * values[:-1])) + 1
    back = starts[_come_back(values, starts)].tolist()
    alone = [start for last, start in zip([-APART, *back], back, strict=False) if start - last >= APART]
    usual = median(values) if len(values) else 0.0
    return sorted((float(values[start] / max(values[start - 1], usual)) for start in alone), reverse=True)


def _come_back(values: FloatArray, starts: IntArray) -> BoolArray:
    """Tell of each start whether values fall from its level to the one before it, and rise no further until then."""
    ends = _first_below(values, starts, values[starts] / TIMES)
    above = _first_below(-values, starts, -values[starts] / AT_ONCE)
    before, there = values[starts - 1], values[np.minimum(ends, len(values) - 1)]
    same = (before / LEVEL < there) & (there < before * LEVEL)
    return np.asarray((ends < len(values)) & same & (above >= ends))


def _first_below(values: FloatArray, starts: IntArray, bounds: FloatArray) -> IntArray:
    """Return, for each start, where the first value from there on lies that is below its bound; else their number.

    From the end on only those are kept that lie below all between: they are in order, and one is found by bisection.
    """
    found = np.full(len(starts), len(values))
    held, stop = values.tolist(), len(values)
    least: list[float] = []
    behind: list[int] = []
    for at in range(len(starts) - 1, -1, -1):
        first = int(starts[at])
        for place in range(stop - 1, first - 1, -1):
            while least and least[-1] >= held[place]:
                least.pop()
                behind.pop()
            least.append(held[place])
            behind.append(place)
        stop = first
        below = bisect_left(least, bounds[at])
        if below:
            found[at] = behind[below - 1]
    return found
