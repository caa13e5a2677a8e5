"""Signs, in means over whole updates, that another policy drew the samples than the one that is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_of, median
from ppo_doctor.derive.identities import clip_fraction_doubted
from ppo_doctor.derive.mismatch import clipped_at_generation
from ppo_doctor.model import Fact, Series

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray

#: Fewest updates that a median is taken of.
FEWEST_UPDATES = 16
#: Most records that a correlation is taken of: more would not make it surer.
LONGEST = 4096
#: Less clipping than this is ordinary: where it begins says nothing.
CLIPPED = 0.08
#: One sample in two hundred: a first update without any is not a hundredth of a later one.
ONE_SAMPLE = 0.005
#: Surrogate gain over the root of the KL of a policy that learns from its own samples.
GAINS = 0.13
#: No more surrogate gain over the root of the KL than this, for whitened advantages; records beyond it, by noise.
MOST_GAIN, FEW_BEYOND = 2**0.5, 0.1
#: A KL from this share of its early-stop target on is what the target makes it; as kl-at-early-stop-target.
HELD = 0.5
#: A learning rate that starts below this share of what it is later is warmed up.
WARM = 0.7


def kl_of_entropy_lost(observations: Observations) -> Fact | None:
    """Return the median KL of an update over the entropy that the policy has lost by then, both in nats.

    To the policy that a run began with, the KL is about the entropy lost since (exactly, from the uniform policy), and
    to one of several updates ago a good part of it. One update of a run that learns is a small part of all it learnt.
    None where an early stop holds the KL near its target, whatever the policy did.
    """
    entropy, kl = (observations.run.series.get(name) for name in ("entropy", "approx_kl"))
    if entropy is None or kl is None:
        return None
    reach = observations.fact("kl_over_target")
    distances, left = _while_it_moves(*_together(kl, entropy))
    if len(distances) < FEWEST_UPDATES or (reach is not None and float(str(reach.value)) >= HELD):
        return None
    lost = np.maximum(left.max() - left[2:], 1e-12)
    share = median(distances[2:] / lost)
    says = f"{kl.raw} over what {entropy.raw} fell since its height is {share:.2g}"
    return Fact(name="kl_of_entropy_lost", value=share, how="computed", source=kl.source(), says=says)


def _together(one: Series, other: Series) -> tuple[FloatArray, FloatArray]:
    """Return the values of two series at the last steps that both have, where both are finite."""
    pair = one.settled, other.settled
    if one.axis is not other.axis:
        left, right = (np.isin(s.axis.steps, t.axis.steps) for s, t in ((one, other), (other, one)))
        pair = one.values[left], other.values[right]
    if len(pair[0]) != len(pair[1]):  # a step that one of them holds twice
        return pair[0][:0], pair[1][:0]
    pair = pair[0][-LONGEST:], pair[1][-LONGEST:]
    finite = np.isfinite(pair[0]) & np.isfinite(pair[1])
    return pair[0][finite], pair[1][finite]


def _while_it_moves(moved: FloatArray, beside: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return both up to the last record in which the policy moved at all: what has stopped for good has no course."""
    last = len(np.trim_zeros(moved, "b"))
    return (moved[:last], beside[:last]) if last else (moved, beside)


def clipping_after_first(observations: Observations) -> Fact | None:
    """Return how many times more samples are clipped soon after the first update than in it; 0 where few are clipped.

    Only the first update is sure to be made on samples of the policy that it starts from. None for a log that does not
    begin with the run, or whose learning rate is warmed up.
    """
    clipped = clipped_at_generation(observations) or _per_update(observations)
    if clipped is None or len(clipped) < 12 or not _from_the_start(clipped) or _warmed_up(observations):
        return None
    values = finite_of(clipped.values)
    soon = values[2 : max(9, len(values) // 3)]
    if not len(values):
        return None
    first, later = float(values[0]), median(soon) if len(soon) else 0.0
    times = later / (first + ONE_SAMPLE) if later >= CLIPPED and not _learns_late(observations) else 0.0
    says = f"{clipped.raw} {first:.3g} in the first update, {later:.3g} soon after"
    return Fact(
        name="clipping_after_first", value=times, how="computed", unit="times", source=clipped.source(), says=says
    )


def _learns_late(observations: Observations) -> bool:
    """Tell whether answers are paid as a whole and the policy gains on them: rare rewards make first steps small."""
    gain, completions = observations.fact("gain_per_root_kl"), observations.fact("completions")
    if gain is None or completions is None:
        return False
    return bool(completions.value) and float(str(gain.value)) > GAINS


def _per_update(observations: Observations) -> Series | None:
    """Return the clip fraction where a record is an update, not one step of several, and nothing refutes it.

    None for one of unknown estimator: nobody says then what a record is.
    """
    clipped = observations.run.series.get("clip_fraction")
    if "generation_marker" in observations.run.facts or clip_fraction_doubted(observations):
        return None
    return clipped if clipped is not None and clipped.estimator else None


def _from_the_start(series: Series) -> bool:
    return int(series.axis.steps[0]) <= 2 * int(median(np.diff(series.axis.steps)))


def _warmed_up(observations: Observations) -> bool:
    rate = observations.run.series.get("learning_rate")
    if rate is None or len(rate) < 9:
        return "warmup_steps" in observations.run.config
    return bool(rate.values[0] < WARM * median(rate.values[1 : max(9, len(rate) // 3)]))


def gain_per_root_kl(observations: Observations) -> Fact | None:
    """Return the median surrogate gain over the root of the KL of the same update.

    A policy that is better than the one that sampled gains on its samples, in proportion to how far it went; ratios to
    log-probs that are not those of the samples gain nothing, and the clip makes them lose. Takes advantages of unit
    scale and mean 0: the loss is in their unit, and at ratio 1 minus their mean. None where more than a few records
    gain more than the root of twice the KL, the most that the Cauchy-Schwarz inequality leaves to such advantages.
    """
    loss, kl = (observations.run.series.get(name) for name in ("policy_loss", "approx_kl"))
    if loss is None or kl is None or kl.estimator == "k1":
        return None
    losses, distances = _together(loss, kl)
    moved = distances[2:] > 1e-6
    if moved.sum() < 12:
        return None
    gains = -losses[2:][moved] / np.sqrt(distances[2:][moved])
    if float(np.mean(np.abs(gains) > MOST_GAIN)) > FEW_BEYOND:
        return None
    value = median(gains)
    says = f"-{loss.raw} over the root of {kl.raw} is {value:.2f}"
    return Fact(name="gain_per_root_kl", value=value, how="computed", source=loss.source(), says=says)
