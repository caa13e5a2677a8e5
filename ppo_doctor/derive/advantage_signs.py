"""Does what updates do show in the reward: distance from the reference without gain, steps of one size for nothing?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.arrays import finite_of, median, quantile
from ppo_doctor.derive.mismatch import of_episodes
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations

#: Records that a statement about a whole run needs.
LEAST = 20
#: Entropy that moves by less than this share of its start stands still.
STILL = 0.05
#: KL below which the number format's noise is of one size as well (nats).
NOISE = 1e-6


def steady_kl_spread(observations: Observations) -> Fact | None:
    """Return the ninth over the first decile of the KL per update, where entropy stands still; 100 where it moves.

    Steps along a gradient grow and shrink with advantages and distance; noise of a fixed size moves the policy by the
    same KL each time, and leads nowhere. None below 1e-6 nats, where number formats do that, and in control tasks: a
    policy that has got as far as it gets, or was resumed there, goes on by steps of one size.
    """
    kl, entropy = observations.run.series.get("approx_kl"), observations.run.series.get("entropy")
    if kl is None or entropy is None or of_episodes(observations):
        return None
    moved, free = (finite_of(s.values) for s in (kl, entropy))
    if len(moved) < LEAST or len(free) < LEAST or median(moved) <= NOISE or not quantile(moved, 0.1) > 0:
        return None
    low, high = quantile(moved, 0.1), quantile(moved, 0.9)
    still = abs(median(free[-(len(free) // 5) :]) - free[0]) <= STILL * abs(free[0])
    says = f"{kl.raw} lies between {low:.3g} and {high:.3g} in four of five records"
    value = high / low if still else 100.0
    return Fact(name="steady_kl_spread", value=value, how="computed", unit="times", source=kl.source(), says=says)
