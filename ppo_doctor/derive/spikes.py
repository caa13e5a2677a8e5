"""What a gradient spike leaves behind in the optimizer."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from ppo_doctor.derive.optimizer import ZERO_IS_OFF
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations

#: What a configuration calls a clip that is off.
OFF = ("none", "null", "inf")


def unclipped_cliff(observations: Observations) -> Fact | None:
    """Return the sharpest lasting fall of the updates' KL where the configuration says that no gradient is clipped.

    None where gradients are clipped, or where nothing says so: then a fall has other reasons.
    """
    limit, fall = _clip(observations), observations.fact("movement_cliff")
    if fall is None or limit is None or math.isfinite(limit):
        return None
    return dataclasses.replace(fall, name="unclipped_cliff", says=f"{fall.says}; no gradient is clipped")


def _clip(observations: Observations) -> float | None:
    """Return the norm that gradients are clipped at, infinite where the configuration says that none is."""
    setting = observations.run.config.get("max_grad_norm")
    if setting is None or "grad_norm_after_clipping" in observations.run.facts:
        return None
    limit = observations.number("max_grad_norm")
    if limit is None:
        return math.inf if str(setting.value).lower() in OFF else None
    return math.inf if limit == 0 and observations.run.framework.startswith(ZERO_IS_OFF) else limit
