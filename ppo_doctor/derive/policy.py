"""Does the policy itself move, whatever the ratio says?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray, Series

#: Records per third below which a drift of entropy cannot be told from noise.
LEAST = 6


def weight_motion(observations: Observations) -> Series | None:
    """Return the logged size of each update: the parameters' change, else the KL of a probe after the update."""
    return observations.run.series.get("update_norm") or observations.run.series.get("probe_kl")


def policy_drift(observations: Observations) -> Fact | None:
    """Return how far entropy moved between the first and the last third of the run, in standard errors.

    The entropy of a frozen policy only scatters with its states, so its thirds agree; source: two-sample comparison of
    means with the pooled variance inside the thirds. A constant entropy is a drift of 0.
    """
    entropy = observations.run.series.get("entropy")
    if entropy is None:
        return None
    values = entropy.values[np.isfinite(entropy.values)]
    third = len(values) // 3
    if third < LEAST:
        return None
    first, last = values[:third], values[-third:]
    z = _standard_errors(first, last, entropy.resolution.absolute)
    says = f"{entropy.raw} went from {np.mean(first):.4g} to {np.mean(last):.4g}"
    return Fact(
        name="policy_drift", value=z, how="computed", unit="standard errors", source=entropy.source(), says=says
    )


def _standard_errors(first: FloatArray, last: FloatArray, resolution: float) -> float:
    gap = abs(float(np.mean(last) - np.mean(first)))
    pooled = (float(np.var(first, ddof=1)) + float(np.var(last, ddof=1))) / len(first)
    # Rounding hides scatter below the last digit; float noise of a frozen policy is no drift.
    floor = resolution + 1e-6 * max(abs(float(np.mean(first))), 1e-3)
    return gap / math.sqrt(pooled + floor**2)
