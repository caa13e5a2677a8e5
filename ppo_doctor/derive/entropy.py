"""Does the policy turn deterministic, or random?"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ppo_doctor.arrays import finite_of, median
from ppo_doctor.signals.course import discrete

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Series

#: Below this entropy at the start (nats) the policy began deterministic, as where one action is rare.
ALIVE = 0.15


def choice_entropy(observations: Observations) -> Series | None:
    """Return the entropy of a choice among actions or tokens, which is 0 where the policy always acts alike.

    None for a density, and where nobody knows which it is: a differential entropy is 0 at a deviation of 0.24, and
    neither its zero nor its ratios mean anything.
    """
    return observations.run.series.get("entropy") if discrete(observations) else None


def entropy_share(observations: Observations) -> Series | None:
    """Return entropy over its level at the start, per record; None where it starts near 0, or is a differential one."""
    entropy = observations.series("choice_entropy")
    if entropy is None or len(entropy) < 12:
        return None
    finite = finite_of(entropy.values)
    if len(finite) < 12:
        return None
    start = median(finite[: max(1, len(finite) // 50)])
    if start < ALIVE:
        return None
    resolution = entropy.resolution.scaled(1 / start)
    return dataclasses.replace(
        entropy,
        name="entropy_share",
        values=entropy.values / start,
        unit="of the start",
        resolution=resolution,
        how="computed",
    )
