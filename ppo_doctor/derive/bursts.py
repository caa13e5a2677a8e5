"""Records that leap away from the level of a series, and come back to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_of
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray

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
    """Return the factors of separate bursts, the largest first: up within a record, and back to the level before."""
    starts = np.flatnonzero((values[:-1] > 0) & (values[1:] > TIMES * values[:-1])) + 1
    back = [int(start) for start in starts if _comes_back(values, int(start))]
    alone = [start for last, start in zip([-APART, *back], back, strict=False) if start - last >= APART]
    return sorted((float(values[start] / values[start - 1]) for start in alone), reverse=True)


def _comes_back(values: FloatArray, start: int) -> bool:
    low = np.flatnonzero(values[start:] < values[start] / TIMES)
    if not len(low):
        return False
    end = start + int(low[0])
    same = values[start - 1] / LEVEL < values[end] < values[start - 1] * LEVEL
    return bool(same and values[start] >= AT_ONCE * values[start:end].max())
