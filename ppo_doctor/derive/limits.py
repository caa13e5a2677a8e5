"""What arithmetic allows: advantages within a group, returns of episodes that end, ratios at a framework's clamp."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Series

#: Frameworks clamp log-ratios at 20 (verl, OpenRLHF) or, per sequence, at 10 (verl's GSPO).
CLAMPS = (20.0, 10.0)


def reference_kl_over_target(observations: Observations) -> Series | None:
    """Return the KL to the reference over the target that the configuration sets for it."""
    kl, target = observations.run.series.get("ref_kl"), observations.number("ref_kl_target")
    if kl is None or not len(kl) or not target or target <= 0 or not observations.configured("ref_kl_target"):
        return None
    return dataclasses.replace(
        kl, name="reference_kl_over_target", values=kl.values / target, unit="times the target", how="computed"
    )
