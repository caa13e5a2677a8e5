"""Do the ends of episodes reach the critic's targets? Where each step pays the same, targets differ by them alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import correlation, deviation_of, mean_of, median
from ppo_doctor.derive.repeats import beside_each_other
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray

#: Records that tell how a critic began, and the fewest of a run.
FIRST, LEAST = 3, 24
#: An explained variance this close to 0 at the start is that of a critic that knows nothing.
IGNORANT = 0.3
#: Episodes pay by the step where what they earn and how long they last correlate by this,
PAID_BY_STEP = 0.9
#: and end at different times where lengths scatter by this part of their mean.
UNEVEN = 0.1
#: Where lengths are means over many episodes (a hundred at most in the trainers we know) these scatter a tenth of it.
UNEVEN_MEANS = 0.01
#: The longest episodes, in discount horizons and in rollouts, and the share of their first length that they keep.
HORIZONS, ROLLOUTS, KEPT = 3.0, 0.2, 0.8


def returns_spread(observations: Observations) -> Fact | None:
    """Return the variance of the targets in the last third over the mean square of the first ones.

    The first is value loss over 1 - EV; the second is the loss of a critic that says next to nothing. Where each step
    pays the same and episodes last up to three discount horizons, returns-to-go 1 - gamma^(T - t) have at least 0.12 of
    their mean square as variance (0.25 for short episodes). None where steps are not seen to pay alike, episodes do not
    differ in length, have become shorter or are longer than a fifth of the rollout, or the critic knew something; where
    the late loss is exactly 0, which is the error of no critic.
    """
    loss, explained = (observations.run.series.get(name) for name in ("value_loss", "explained_variance"))
    if loss is None or explained is None or not beside_each_other(loss, explained) or not _ends_tell(observations):
        return None
    known = np.isfinite(loss.values) & np.isfinite(explained.values) & (explained.values < 1)
    errors, foreseen = loss.values[known], explained.values[known]
    if len(errors) < LEAST or abs(median(foreseen[:FIRST])) > IGNORANT:
        return None
    third = len(errors) // 3
    before, late = median(errors[:FIRST]), median(errors[-third:] / (1 - foreseen[-third:]))
    if not before > 0 or not late > 0:
        return None
    says = f"{loss.raw} began at {before:.3g}; over 1 - {explained.raw} it is {late:.3g} in the last third"
    return Fact(name="returns_spread", value=late / before, how="computed", source=loss.source(), says=says)


def _ends_tell(observations: Observations) -> bool:
    """Tell whether steps pay alike, and episodes end at different times, within horizon and rollout."""
    lengths, earned = (observations.run.series.get(name) for name in ("episode_length", "episode_return"))
    gamma, steps = observations.number("gamma"), observations.fact("rollout_steps_seen")
    if lengths is None or earned is None or not beside_each_other(lengths, earned):
        return False
    if gamma is None or not observations.configured("gamma") or not 0 < gamma < 1 or steps is None:
        return False
    known = np.isfinite(lengths.values) & np.isfinite(earned.values)
    lasted, paid = lengths.values[known], earned.values[known]
    if len(lasted) < LEAST:
        return False
    most = min(HORIZONS / (1 - gamma), ROLLOUTS * float(str(steps.value)))
    least = KEPT * mean_of(lasted[: max(FIRST, len(lasted) // 20)])
    third = len(lasted) // 3
    return least <= mean_of(lasted[-third:]) <= most and _told_by_length(lasted[-third:], paid[-third:])


def _told_by_length(lasted: FloatArray, paid: FloatArray) -> bool:
    means = median(np.abs(lasted - np.round(lasted))) > 0
    uneven = deviation_of(lasted) >= (UNEVEN_MEANS if means else UNEVEN) * mean_of(lasted)
    return uneven and paid_by_step(lasted, paid)


def paid_by_step(lasted: FloatArray, paid: FloatArray) -> bool:
    """Tell whether returns go with lengths, as they do where lasting is what is paid for."""
    differ = deviation_of(lasted) > 0 and deviation_of(paid) > 0
    return differ and correlation(lasted, paid) >= PAID_BY_STEP
