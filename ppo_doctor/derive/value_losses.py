"""What a value loss, or the share of clipped predictions, tells of a critic whose explained variance is not logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ppo_doctor.arrays import finite_of, median
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations

#: Records that a statement about a whole run needs, and those right before a leap.
LEAST, BEFORE = 20, 8
#: Of what a leap reached, at most this is left at the end where the critic learned anew.
LEFT = 0.5


def clipped_values_leap(observations: Observations) -> Fact | None:
    """Return by how much the share of clipped predictions leapt from one record to the next, where it later went back.

    The leap is over the largest of the eight records before it; at the end at most half of what it reached is left.
    """
    clipped = observations.run.series.get("value_clip_fraction")
    values = finite_of(clipped.values) if clipped is not None else np.empty(0)
    if clipped is None or len(values) < LEAST:
        return None
    end = median(values[-BEFORE:])
    largest_before = sliding_window_view(values[:-1], BEFORE).max(axis=1)[:-BEFORE]
    here = values[BEFORE:-BEFORE]
    leaps = np.where(end <= LEFT * here, here - largest_before, 0.0)
    at = BEFORE + int(np.argmax(leaps))
    leap = float(leaps[at - BEFORE])
    says = f"record {at + 1} of {len(values)}: {values[at]:.3g}; {end:.3g} at the end"
    source = clipped.source(at)
    return Fact(name="clipped_values_leap", value=max(0.0, leap), how="computed", source=source, says=says)
