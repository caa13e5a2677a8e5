"""What holds the policy where it began: a penalty on the KL to the reference, or a bonus on the entropy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import median, quantile
from ppo_doctor.signals.course import entropy_of, fact, finite, series_of
from ppo_doctor.signals.movement import divergence_of

if TYPE_CHECKING:
    from ppo_doctor.model import Fact, FloatArray
    from ppo_doctor.signals.course import Observations

#: Updates after which a policy that nothing holds has left the distance of its first ones.
MANY = 30
#: KL to the reference, in nats, below which its course is that of rounding.
SEEN = 1e-4
#: The share of records that holds the largest of a scattered series.
LARGEST = 0.9
#: Choices whose uniform entropy can be told from that of one choice more, and how near to it an entropy begins.
CHOICES, UNIFORM = 20, 0.01
#: Share of its size by which the entropy of a choice varies from batch to batch; a fixed deviation's does not.
VARIES = 1e-3
#: Share of the uniform entropy that a policy which is held has lost, and nats of all updates together that show it.
SPENT, TRAVELLED = 0.04, 0.05


def reference_growth(observations: Observations) -> Fact | None:
    """Return the KL to the reference in the later half of a run over that in its first quarter.

    Updates of one size take a policy that nothing holds as many times further as there are of them where they agree,
    and the root of that where they do not; the KL grows with the square of the distance. The first sixteenth is left
    out: rates are still warming up there.
    """
    series, size = series_of(observations, "ref_kl"), _apart(observations)
    if series is None or len(size) < MANY:
        return None
    count = len(size)
    first, later = float(median(size[count // 16 : count // 4])), float(median(size[count // 2 :]))
    if first < SEEN:
        return None
    says = f"{series.raw} is {first:.3g} in the first quarter and {later:.3g} in the later half"
    return fact("reference_growth", later / first, series, says, "times")


def reference_largest(observations: Observations) -> Fact | None:
    """Return the ninth decile of the KL to the reference, per token or summed, as it is logged."""
    series, size = series_of(observations, "ref_kl"), _apart(observations)
    if series is None or len(size) < MANY:
        return None
    most = float(quantile(size, LARGEST))
    return fact("reference_largest", most, series, f"{series.raw} is {most:.3g} in its ninth decile", "nats")


def _apart(observations: Observations) -> FloatArray:
    series = series_of(observations, "ref_kl")
    return np.empty(0) if series is None else np.abs(finite(series))


def entropy_pull(observations: Observations) -> Fact | None:
    """Return the nats that a policy lost of its uniform entropy over the KL of all its updates; 1 where it lost many.

    The distance from the uniform policy is the entropy that is gone. Updates that agree add up to more than their KL,
    and those of noise to as much: less is left where something pulls the policy back.
    """
    entropy, kl = entropy_of(observations), divergence_of(observations)
    kind = observations.kind.facet("actions").value
    if entropy is None or kl is None or kind == "continuous":
        return None
    values, steps = finite(entropy), np.abs(finite(kl))
    if len(values) < MANY or len(steps) < MANY or (kind is None and np.ptp(values) < VARIES * values.max()):
        return None
    uniform = math.log(max(2, round(math.exp(min(float(values.max()), 10.0)))))
    if uniform > math.log(CHOICES) + UNIFORM or abs(uniform - float(values.max())) > UNIFORM * uniform:
        return None
    lost, travelled = uniform - float(median(values[-len(values) // 10 :])), float(steps.sum())
    says = f"{entropy.raw} ends {max(lost, 0.0):.2g} below {uniform:.4g}, that of equal choices"
    if lost > SPENT * uniform or travelled < TRAVELLED:
        return fact("entropy_pull", 1.0, entropy, says)
    text = f"{says}; the KL of all updates is {travelled:.2g}"
    return fact("entropy_pull", max(lost, 0.0) / travelled, entropy, text)
