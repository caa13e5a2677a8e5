"""Samples of older weights, seen in a signed KL to the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_of, mean_of, median
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations

#: Fewest records of a run; fewest of its first third.
FEWEST, EARLY = 20, 10
#: Share of early records below 0: more than half are by chance where a policy stands still.
MOSTLY = 0.7


def reference_kl_sinks(observations: Observations) -> Fact | None:
    """Return by how many standard errors the signed KL to the reference lies below 0 in the first third of the run.

    The policy starts as the reference. Samples that are still the reference's, with log-probs of a policy that has
    left it, make the mean of log π - log ref the negative of KL(ref, π) (Schulman 2020). 0 where the first record,
    which comes before any step, is not much nearer to 0, or fewer than seven in ten of the others are below 0.
    """
    kl = observations.run.series.get("ref_kl")
    if kl is None or kl.estimator not in (None, "k1"):
        return None
    values = finite_of(kl.values)
    if len(values) < FEWEST:
        return None
    early = values[1 : 1 + max(EARLY, len(values) // 3)]
    below = float(np.mean(early < -kl.resolution.absolute))
    error = float(np.std(early, ddof=1)) / float(np.sqrt(len(early)))
    starts = abs(float(values[0])) <= median(np.abs(early)) / 2
    deficit = -mean_of(early) / max(error, 1e-12) if starts and below >= MOSTLY else 0.0
    says = f"{kl.raw} is below 0 in {below:.0%} of the first third, by {max(0.0, deficit):.2g} standard errors"
    source = kl.source()
    return Fact(name="reference_kl_sinks", value=max(0.0, deficit), how="computed", source=source, says=says)
