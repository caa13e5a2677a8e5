"""Signs, in means over whole updates, that another policy drew the samples than the one that is trained."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor import rounding
from ppo_doctor.arrays import finite_of, mean_of, median, same, spearman
from ppo_doctor.derive.identities import clip_fraction_doubted
from ppo_doctor.derive.mismatch import clipped_at_generation
from ppo_doctor.model import Fact, Series

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray

#: Fewest changes from record to record that a correlation is taken of.
FEWEST_CHANGES = 24
#: Fewest updates that a median is taken of.
FEWEST_UPDATES = 16
#: Most records that a correlation is taken of: more would not make it surer.
LONGEST = 4096
#: Less clipping than this is ordinary: where it begins says nothing.
CLIPPED = 0.08
#: One sample in two hundred: a first update without any is not a hundredth of a later one.
ONE_SAMPLE = 0.005
#: Clipped before any step on average in a fifth of a run: more than rounding does, and less than any mismatch.
MISMATCHED = 0.02
#: A policy whose entropy ends below this share of what it began with has become sure of most of what it does.
SURE = 0.25
#: Surrogate gain over the root of the KL of a policy that learns from its own samples; as policy-gains-on-its-samples.
GAINS = 0.13
#: No more surrogate gain over the root of the KL than this, for whitened advantages; records beyond it, by noise.
MOST_GAIN, FEW_BEYOND = 2**0.5, 0.1
#: A KL from this share of its early-stop target on is what the target makes it; as kl-at-early-stop-target.
HELD = 0.5
#: A learning rate that starts below this share of what it is later is warmed up.
WARM = 0.7


def kl_follows_entropy(observations: Observations) -> Fact | None:
    """Return the upper end of the 95 % interval of the rank correlation of KL and entropy, from record to record.

    The KL of a step depends on the step; the distance to another policy grows as this one gets sharper. Fisher's
    z-transform of Spearman's coefficient of the changes, so that slow trends do not matter.
    """
    found = _changes_together(observations)
    if found is None:
        return None
    together, count, kl, says = found
    upper = math.tanh(math.atanh(together) + 1.96 / math.sqrt(count - 3))
    return Fact(name="kl_follows_entropy", value=upper, how="computed", source=kl.source(), says=says)


def kl_against_entropy(observations: Observations) -> Fact | None:
    """Return how surely the KL rises where the entropy falls, from record to record, in standard errors.

    Fisher's z-transform of what kl_follows_entropy correlates, over its standard error; negative where both rise.
    """
    found = _changes_together(observations)
    if found is None:
        return None
    together, count, kl, says = found
    sure = -math.atanh(together) * math.sqrt(count - 3)
    return Fact(
        name="kl_against_entropy", value=sure, how="computed", unit="standard errors", source=kl.source(), says=says
    )


def _changes_together(observations: Observations) -> tuple[float, int, Series, str] | None:
    """Return the rank correlation of the changes of KL and entropy, their number, the KL, and both in words."""
    entropy, kl = (observations.run.series.get(name) for name in ("entropy", "approx_kl"))
    if entropy is None or kl is None:
        return None
    moving = _while_it_moves(*_together(kl, entropy))
    changes: list[FloatArray] = [values[1:] - values[:-1] for values in moving]
    count = len(changes[0])
    if count < FEWEST_UPDATES or any(mean_of(same(values[1:], values[:-1])) > 0.1 for values in moving):
        return None
    together = min(0.999, max(-0.999, spearman(changes[0], changes[1])))
    says = f"changes of {kl.raw} and {entropy.raw} correlate by {together:.2f} over {count} records"
    return together, count, kl, says


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


def _spread(values: FloatArray) -> FloatArray:
    """Return finite values from the third on, spread evenly over the run where there are very many."""
    thin = values[2 :: max(1, len(values) // LONGEST)]
    return finite_of(thin)


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


def kl_after_first(observations: Observations) -> Fact | None:
    """Return how many times larger the KL of an update becomes than in the first two updates.

    The largest of the medians of the run's fifths, from the third record on, over the larger of the first two. The
    first batch is drawn by the very weights that train on it: its KL is that of a step, at a rate that has not been
    warmed up. None for a log that does not begin with the run, for a KL of unknown estimator, which may be one to
    another policy, and where an early stop holds the KL.
    """
    kl, reach = observations.run.series.get("approx_kl"), observations.fact("kl_over_target")
    if kl is None or kl.estimator is None or (reach is not None and float(str(reach.value)) >= HELD):
        return None
    values = finite_of(kl.values)
    if len(values) < FEWEST_CHANGES or not _from_the_start(kl) or _warmed_up(observations):
        return None
    first, later = float(values[:2].max()), max(median(fifth) for fifth in np.array_split(values[2:], 5))
    if first <= kl.resolution.least:
        return None
    says = f"{kl.raw} {first:.3g} in the first updates, {later:.3g} in the fifth of the run with the most"
    return Fact(name="kl_after_first", value=later / first, how="computed", unit="times", source=kl.source(), says=says)


def kl_scatter(observations: Observations) -> Fact | None:
    """Return by how much the logarithm of the KL changes from record to record: the median size, from the third on.

    The KL of a step varies by a factor of two from one to the next, with the gradient that it follows; what noise or
    another set of weights makes of the same samples varies by a tenth or two. None where KL is 0, or held by a target.
    """
    kl, reach = observations.run.series.get("approx_kl"), observations.fact("kl_over_target")
    if kl is None or (reach is not None and float(str(reach.value)) >= HELD):
        return None
    sizes = np.abs(_spread(kl.values))
    if len(sizes) < FEWEST_CHANGES or not (sizes > kl.resolution.least).all():
        return None
    value = median(np.abs(np.diff(np.log(sizes))))
    says = f"{kl.raw} changes by a factor of {math.exp(value):.2f} from record to record"
    return Fact(name="kl_scatter", value=value, how="computed", unit="nats", source=kl.source(), says=says)


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


def reference_kl_asleep(observations: Observations) -> Fact | None:
    """Return in how many records the KL to the reference is exactly 0 before it suddenly is not, while samples clip.

    The policy leaves the reference with its first step, and its samples with it: at first by a little, then by more. A
    KL that is exactly 0 for several updates and then at once a good part of what it becomes was taken on samples of
    the policy that the run began with.
    """
    kl, clipped = (observations.run.series.get(name) for name in ("ref_kl", "clip_fraction"))
    if kl is None or clipped is None or len(kl) < 12 or not np.isfinite(kl.values[: len(kl) // 4]).all():
        return None
    asleep = kl.at(0)
    if (asleep | ~np.isfinite(kl.values)).all():
        return None  # it never wakes: the reference may be the policy itself
    first = int(np.argmin(asleep))
    moved = slice(1, max(first, 2))
    sudden = abs(float(kl.values[first])) > 20 * max(kl.resolution.least, rounding.UNIT)
    records = first if sudden and not clipped.at(0)[moved].all() else 0
    says = f"{kl.raw} is 0 in the first {first} records"
    return Fact(
        name="reference_kl_asleep", value=records, how="computed", unit="records", source=kl.source(), says=says
    )


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


def mean_ratio_above_one(observations: Observations) -> Fact | None:
    """Return the share of records whose mean ratio is above 1, where it is off by more than 0.003; else one half.

    Importance weights scatter around 1. Log-probs that are off by noise of whatever sign lift the mean: E[exp(noise)]
    is above 1 (Jensen).
    """
    ratio, k1 = (observations.run.series.get(name) for name in ("ratio_mean", "approx_kl_k1"))
    kl = observations.run.series.get("approx_kl")
    if ratio is not None:
        source, off = ratio, ratio.values[ratio.values > 0] - 1  # a mean over no sample is 0
    elif kl is not None and k1 is not None and kl.estimator == "k3" and kl.aggregation == k1.aggregation is not None:
        longer, shorter = _together(kl, k1)
        source, off = kl, longer - shorter
    else:
        return None
    off = finite_of(off)
    off = _while_it_moves(off, off)[0]
    if len(off) < 20:
        return None
    share = float(np.mean(off > 0)) if abs(median(off)) > 0.003 else 0.5
    says = f"mean ratio {1 + median(off):.4f}, above 1 in {share:.0%} of {len(off)} records"
    return Fact(name="mean_ratio_above_one", value=share, how="computed", source=source.source(), says=says)


def clipping_trend(observations: Observations) -> Fact | None:
    """Return Spearman's correlation of clip fraction and time from the third update on; 0 where few are clipped."""
    clipped = clipped_at_generation(observations) or _per_update(observations)
    if clipped is None:
        return None
    values = _spread(clipped.values)
    if len(values) < FEWEST_CHANGES:
        return None
    level = median(values)
    trend = spearman(np.arange(len(values), dtype=np.float64), values) if level >= CLIPPED else 0.0
    says = f"{clipped.raw} correlates with time by {trend:.2f}"
    return Fact(name="clipping_trend", value=trend, how="computed", source=clipped.source(), says=says)


def clip_high_share(observations: Observations) -> Fact | None:
    """Return the share of clipped samples that lie above the range, where a twelfth of all samples is clipped.

    Counted by frameworks for the side that stops the gradient: above for good samples, below for bad ones.
    """
    low, high = (observations.run.series.get(f"clip_fraction_{side}") for side in ("low", "high"))
    if low is None or high is None:
        return None
    below, above = (values[2:] for values in _together(low, high))
    if len(below) < 12 or float(np.mean(below + above)) < CLIPPED / 2:
        return None
    share = float(above.sum() / (below + above).sum())
    says = f"{share:.0%} of what is clipped lies above the range ({high.raw})"
    return Fact(name="clip_high_share", value=share, how="computed", source=high.source(), says=says)


def kl_trend(observations: Observations) -> Fact | None:
    """Return Spearman's correlation of the KL of an update with time, from the third update on."""
    kl = observations.run.series.get("approx_kl")
    if kl is None:
        return None
    finite = finite_of(kl.settled)
    values = _spread(_while_it_moves(finite, finite)[0])
    if len(values) < FEWEST_CHANGES:
        return None
    trend = spearman(np.arange(len(values), dtype=np.float64), values)
    says = f"{kl.raw} correlates with time by {trend:.2f}"
    return Fact(name="kl_trend", value=trend, how="computed", source=kl.source(), says=says)


def clipped_at_first(observations: Observations) -> Fact | None:
    """Return what is clipped of the first batch before any step, over the fifth of the run where most is.

    None where hardly anything is clipped before any step in any fifth: there nothing differs that could have a course.
    """
    clipped, fifths = _clipped_by_fifths(observations)
    if clipped is None:
        return None
    here = float(clipped.values[np.isfinite(clipped.values)][0])
    says = f"{here:.3g} of the first batch is clipped before any step, {max(fifths):.3g} of the fifth with the most"
    source = clipped.source()
    return Fact(name="clipped_at_first", value=here / max(fifths), how="computed", source=source, says=says)


def clipped_at_last(observations: Observations) -> Fact | None:
    """Return what is clipped before any step in the last fifth of the run, over the fifth where most is.

    None as for the first batch, and where the entropy does not fall: a mismatch has no reason to pass by itself then.
    """
    clipped, fifths = _clipped_by_fifths(observations)
    entropy = observations.run.series.get("entropy")
    values = entropy.values[np.isfinite(entropy.values)] if entropy is not None else np.empty(0)
    if clipped is None or len(values) < FEWEST_CHANGES:
        return None
    last = float(np.mean(np.array_split(values, 5)[-1]))
    if values[0] <= 0 or last > SURE * values[0]:
        return None
    says = (
        f"{fifths[-1]:.3g} of the last fifth is clipped before any step, {max(fifths):.3g} of the fifth with the most; "
        f"entropy {values[0]:.3g} to {last:.3g}"
    )
    source = clipped.source()
    return Fact(name="clipped_at_last", value=fifths[-1] / max(fifths), how="computed", source=source, says=says)


def _clipped_by_fifths(observations: Observations) -> tuple[Series | None, list[float]]:
    """Return the clip fraction at generation with its means over fifths of the run; None where next to nothing is."""
    clipped = clipped_at_generation(observations)
    values = clipped.values[np.isfinite(clipped.values)] if clipped is not None else np.empty(0)
    if clipped is None or len(values) < FEWEST_CHANGES:
        return None, []
    fifths = [float(np.mean(fifth)) for fifth in np.array_split(values, 5)]
    return (clipped, fifths) if max(fifths) >= MISMATCHED else (None, [])
