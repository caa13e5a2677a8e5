"""Samples of older weights, seen in a signed KL to the reference."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_of, median
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray

#: Fewest records of a run; fewest from its start.
FEWEST, EARLY = 20, 8
#: Share of early records below 0: more than half are by chance where a policy stands still.
MOSTLY = 0.7
#: Each stretch is this much longer than the one before.
LONGER = 1.25


def reference_kl_sinks(observations: Observations) -> Fact | None:
    """Return by how many standard errors the signed KL to the reference lies below 0 from the start of the run on.

    The policy starts as the reference. Samples that are still the reference's, with log-probs of a policy that has
    left it, make the mean of log π - log ref the negative of a KL (Schulman 2020), until newer samples come. The
    largest over stretches that begin with the second record, of eight records to a third of the run. 0 where the
    first, which comes before any step, is not much nearer to 0, or fewer than seven in ten of the others are below 0.
    """
    kl = observations.run.series.get("ref_kl")
    if kl is None or kl.estimator not in (None, "k1"):
        return None
    values = finite_of(kl.values)
    if len(values) < FEWEST:
        return None
    early = values[1 : 1 + max(EARLY, len(values) // 3)]
    deficit = max(_deficit(float(values[0]), early[:size], kl.resolution.absolute) for size in _sizes(len(early)))
    says = f"{kl.raw} is below 0 early on, by {deficit:.2g} standard errors"
    return Fact(name="reference_kl_sinks", value=deficit, how="computed", source=kl.source(), says=says)


def _sizes(longest: int) -> list[int]:
    count = max(0, math.floor(math.log(longest / EARLY, LONGER)))
    return [*(round(EARLY * LONGER**power) for power in range(count + 1)), longest]


def _deficit(first: float, early: FloatArray, resolution: float) -> float:
    if float(np.mean(early < -resolution)) < MOSTLY or abs(first) > median(np.abs(early)) / 2:
        return 0.0
    error = float(np.std(early, ddof=1)) / float(np.sqrt(len(early)))
    return max(0.0, -float(np.mean(early)) / max(error, 1e-12))
