"""What arithmetic allows: advantages within a group, returns of episodes that end, ratios at a framework's clamp."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.derive.conditions import condition
from ppo_doctor.model import EXACT

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Series

#: Frameworks clamp log-ratios at 20 (verl, OpenRLHF) or, per sequence, at 10 (verl's GSPO).
CLAMPS = (20.0, 10.0)
#: How close to the clamp a float32 exponential lands, in nats.
CLOSE = 1e-3


def ratio_at_clamp(observations: Observations) -> Series | None:
    """Return 1 where the largest ratio is exp of a clamp that frameworks have, else 0; NaN below e⁹."""
    largest = observations.run.series.get("ratio_max")
    if largest is None or not len(largest):
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        nats = np.log(largest.values)
    hit = np.minimum.reduce([np.abs(nats - clamp) for clamp in CLAMPS]) < CLOSE
    values = np.where(np.isfinite(nats), hit.astype(np.float64), np.nan)
    says = f"{largest.raw} at a clamp ({' or '.join(f'e^{clamp:g}' for clamp in CLAMPS)})"
    return condition(dataclasses.replace(largest, resolution=EXACT), "ratio_at_clamp", values, says)


def reference_kl_over_target(observations: Observations) -> Series | None:
    """Return the KL to the reference over the target that the configuration sets for it."""
    kl, target = observations.run.series.get("ref_kl"), observations.number("ref_kl_target")
    if kl is None or not len(kl) or not target or target <= 0 or not observations.configured("ref_kl_target"):
        return None
    return dataclasses.replace(
        kl, name="reference_kl_over_target", values=kl.values / target, unit="times the target", how="computed"
    )
