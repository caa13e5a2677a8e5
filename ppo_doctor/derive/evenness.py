"""How far apart can two nearly even policies be?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import median
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Series

#: Choices among more than this many are not told from their entropy: the logarithms of neighbours are too close.
MOST_CHOICES = 20
#: A policy is even where its entropy is within this share of ln n; n is known where the highest is within the other.
EVEN, SURELY_EVEN = 0.04, 0.02
LEAST_RECORDS = 3
#: What single precision adds to a mean of logarithms.
PRINTED = 1e-5


def divergence_over_evenness(observations: Observations) -> Fact | None:
    """Return the KL between policies, over ln n - entropy, where the choice among n actions is nearly even; medians.

    To second order ln n - H is half the variance of log p around its mean, and the KL of two nearly even policies half
    the variance of what their log p differ by: (√a + √b)² at most, with a and b what they lack. That is 4 times of it
    where they are equally even, 9 times where one is the other at a temperature of 0.25. Where no KL is logged, the
    share of samples outside 1 ± ε has at least a KL of share · ε² / 2.
    None where no record is even, and where n is not known: n > 20, an entropy off ln n throughout, or one above ln n,
    which no choice among n has (a Gaussian's passes any value).
    """
    entropy, apart = observations.series("choice_entropy"), _divergence(observations)
    if entropy is None or apart is None or apart[0].axis is not entropy.axis:
        return None
    known = np.isfinite(entropy.values) & np.isfinite(apart[1])
    if np.count_nonzero(known) < LEAST_RECORDS:
        return None
    values, divergence = entropy.values[known], apart[1][known]
    choices = round(math.exp(min(float(values.max()), 10.0)))
    highest = math.log(max(choices, 1))
    over = float(values.max()) - highest
    if not 2 <= choices <= MOST_CHOICES or not -SURELY_EVEN * highest <= over <= entropy.resolution.absolute + PRINTED:
        return None
    gap = np.maximum(highest - values, 0) + entropy.resolution.absolute + 1e-5 * highest
    even = gap < EVEN * highest
    if np.count_nonzero(even) < LEAST_RECORDS:
        return None
    value = median(divergence[even] / gap[even])
    says = (
        f"{apart[0].raw} is {value:.2g} times ln {choices} - {entropy.raw} in the {np.count_nonzero(even)} even records"
    )
    return Fact(name="divergence_over_evenness", value=value, how="computed", source=apart[0].source(), says=says)


def _divergence(observations: Observations) -> tuple[Series, np.ndarray] | None:
    """Return what tells of the KL of each record, and a lower bound of it."""
    kl = observations.series("update_kl")
    if kl is not None:
        return kl, kl.values
    clipped, bound = observations.series("clipped_share"), observations.fact("implied_clip_range")
    if clipped is None or bound is None:
        return None
    epsilon = float(str(bound.value))
    return clipped, clipped.values * (epsilon * epsilon) / 2
