"""How much of a reward's spread are the prompts, and how much the answers to one prompt?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside, finite_parts, median
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Series

#: What the deviations of a reward's parts are called, the part's name behind it.
PART = "reward_component_std."
#: Records that a quotient of two metrics takes to tell something.
LEAST = 6


def answers_share(observations: Observations) -> Fact | None:
    """Return the deviation of rewards within groups over that of all rewards of the batch: the largest third's median.

    The variance of a batch is that within its groups and that between them: a share s leaves 1 - s² to the prompts.
    It shrinks in sound runs as well while answers become alike, hence the largest. A reward of one part is that part,
    whose deviation trainers take over the whole batch. None where it has several.
    """
    within = observations.run.series.get("reward_group_std")
    whole = beside(within, _of_the_only_part(observations))
    if within is None or whole is None:
        return None
    shares = within.values / np.where(whole.values > 0, whole.values, math.nan)
    thirds = finite_parts(shares, 3)
    if min(len(part) for part in thirds) < LEAST:
        return None
    levels = [median(part) for part in thirds]
    says = f"{within.raw} / {whole.raw} by thirds of the run: {', '.join(f'{level:.3g}' for level in levels)}"
    return Fact(name="answers_share", value=max(levels), how="computed", source=within.source(), says=says)


def _of_the_only_part(observations: Observations) -> Series | None:
    parts = [series for name, series in observations.run.series.items() if name.startswith(PART)]
    return parts[0] if len(parts) == 1 else None
