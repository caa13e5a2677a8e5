"""How large are the steps that an update takes, in KL, clipped samples, gradient and loss?"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor import rounding
from ppo_doctor.arrays import finite_median, finite_of, mean_of, median, scatter_of
from ppo_doctor.derive.clipping import bound_of_range
from ppo_doctor.derive.counters import shows_each_step
from ppo_doctor.derive.identities import clip_fraction_doubted
from ppo_doctor.derive.onset import reward_series, spikes, thinned
from ppo_doctor.derive.policy import while_alive
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import BoolArray, FloatArray, Series

#: The log-ratio grows linearly over the passes, so its KL grows with the square, and a mean over all passes is a third
#: of the last one.
MEAN_TO_LAST = 3.0
#: Most updates before a policy that always acts alike, and fewest records of a run, of which one says that it died.
ALIVE, LONG_AFTER = 4, 20
#: A gradient norm this many times the median is a spike (for one in a hundred records it is common).
SPIKE = 10.0
#: KL between two passes over the same weights: bf16 gives 1.5e-3 nats (huggingface/trl issue 6789), float32 1e-8.
HALF_NOISE, FLOAT_NOISE = 5e-3, 1e-6
#: An early stop binds where the median KL is at this share of its target and more.
BINDING = 0.5
#: Updates that tell how large the first steps are.
FIRST, FEWEST = 5, 2
#: Records on either side of a spike that tell what it did.
SIDE = 5
#: Isolated records are spikes only as long as they are rare.
RARE = 0.15
#: Fewest records with a KL of which a clip fraction is judged without the others.
FEWEST_MEASURED = 12
#: Most samples leave a narrower clip range in sound training.
NARROW = 0.05


def update_kl(observations: Observations) -> Series | None:
    """Return the KL from the old policy to the new one at the end of an update, per record, in nats.

    A mean over all minibatches is multiplied by 3 (KL grows with the square of the pass). None where the KL is against
    another policy, or where nobody says which part of the update it is taken over. Updates of a policy that always acts
    alike are left out: their KL is 0 however far the weights go.
    """
    kl = observations.run.series.get("approx_kl")
    if kl is None or not len(kl) or kl.reference not in (None, "old policy"):
        return None
    factor = MEAN_TO_LAST if (kl.aggregation or "").startswith("all minibatches") else 1.0
    values = np.abs(kl.values) if kl.estimator == "k1" else kl.values
    size = dataclasses.replace(
        kl,
        name="update_kl",
        values=factor * values,
        resolution=kl.resolution.scaled(factor),
        how="computed",
        aggregation="last epoch",
        says="" if factor == 1 else f"{factor:g} × {kl.raw}",
    )
    return while_alive(observations, size)


def first_updates_kl(observations: Observations) -> Fact | None:
    """Return the median KL of the first five updates, in nats: steps that are too large are so from the start.

    Two are enough, and one where the policy is deterministic from the second record on.
    """
    size = observations.series("update_kl")
    values = finite_of(size.values) if size is not None else np.empty(0)
    if size is None or not len(values) or (len(values) < FEWEST and len(size) < FIRST):
        return None
    value = median(values[:FIRST])
    says = f"median {size.raw} of the first {len(values[:FIRST])} updates"
    return Fact(name="first_updates_kl", value=value, how="computed", unit="nats", source=size.source(), says=says)


def lethal_update_kl(observations: Observations) -> Fact | None:
    """Return the largest KL of an update, in nats, where the policy always acts alike after the first few of a run.

    None where more than four updates found a policy that still chose: other quantities speak of those.
    """
    size = observations.series("update_kl")
    values = size.values[np.isfinite(size.values)] if size is not None else np.empty(0)
    if size is None or not 1 <= len(values) <= ALIVE or len(size) < LONG_AFTER:
        return None
    says = f"{size.raw} of the {len(values)} updates before the policy always acts alike"
    source = size.source()
    return Fact(
        name="lethal_update_kl", value=float(values.max()), how="computed", unit="nats", source=source, says=says
    )


def clipped_share(observations: Observations) -> Series | None:
    """Return the share of samples that left a usual clip range, both sides counted, per record.

    A count of one side only (where the clip cuts the gradient) is about half of both and is doubled. None for ranges
    below 0.05, which most samples leave in sound training, and for a clip fraction that the KL beside it rules out.
    """
    clipped = observations.run.series.get("clip_fraction")
    if clipped is None or not len(clipped) or clip_fraction_doubted(observations):
        return None
    range_, kl = observations.fact("implied_clip_range"), observations.run.series.get("approx_kl")
    if range_ is not None and float(str(range_.value)) < NARROW:
        return None
    # of a KL that nobody declares it is not said that the range is narrow, nor that it is not
    if range_ is None and kl is not None and (bound := bound_of_range(clipped, kl)) and bound[0] < NARROW:
        return None
    doubled = 2.0 if clipped.estimator == "effective" else 1.0
    values = np.where(_measured(observations, clipped), _while_range_is_usual(observations, clipped), np.nan)
    resolution = clipped.resolution.scaled(doubled)
    return dataclasses.replace(
        clipped, name="clipped_share", values=np.minimum(1.0, doubled * values), resolution=resolution, how="computed"
    )


def _measured(observations: Observations, clipped: Series) -> BoolArray:
    """Tell where a clip fraction is one of ratios: no ratio lies outside a range once it is NaN, or all stand at 1.

    Records whose KL is not finite, and those from which on it is exactly 0 for good, if that leaves enough of the run.
    """
    kl = observations.run.series.get("approx_kl")
    every = np.ones(len(clipped), dtype=np.bool_)
    if kl is None or kl.axis is not clipped.axis:
        return every
    finite = np.isfinite(kl.values)
    told: BoolArray = finite & (np.arange(len(kl)) < len(np.trim_zeros(finite & ~kl.at(0), "b")))
    return told if told.sum() >= max(FEWEST_MEASURED, len(told) // 4) else every


def first_update_clipped(observations: Observations) -> Fact | None:
    """Return the mean share of samples outside the clip range in the first update of a run.

    Where a record is one optimizer step, that of the first batch. None for a log that begins late.
    """
    share = observations.series("clipped_share")
    if share is None or len(share) < LONG_AFTER:
        return None
    if int(share.axis.steps[0]) > 2 * int(median(np.diff(share.axis.steps))):
        return None
    values = finite_of(share.values[: _records_of_a_batch(observations, share)])
    if not len(values):
        return None
    says, value = f"{share.raw} in the first update", mean_of(values)
    return Fact(name="first_update_clipped", value=value, how="computed", source=share.source(), says=says)


def _records_of_a_batch(observations: Observations, share: Series) -> int:
    """Return how many records one batch takes where each is a step, some of which may have been left out; else 1."""
    marker = observations.run.facts.get("generation_marker")
    updates = observations.fact("updates_observed")
    if marker is None:
        return 1
    if updates is not None:
        return max(1, round(float(str(updates.value))))
    generation = observations.run.series.get(str(marker.value))
    if generation is None or len(generation) < 3:
        return 1
    return max(1, round(median(np.diff(generation.axis.steps)) / max(1.0, median(np.diff(share.axis.steps)))))


def _while_range_is_usual(observations: Observations, clipped: Series) -> FloatArray:
    """A range that decays to 0 clips nearly everything at the end of a sound run."""
    logged = observations.run.series.get("clip_range")
    if logged is None or logged.axis is not clipped.axis:
        return clipped.values
    return np.where(logged.values >= 0.05, clipped.values, np.nan)


def gradient_spikes(observations: Observations) -> Fact | None:
    """Return how often the gradient norm leaps above ten times its median for a single record.

    None where it never does in the steps that are logged, and others are not.
    """
    grad = observations.run.series.get("grad_norm")
    if grad is None:
        return None
    values = grad.values[np.isfinite(grad.values) & (grad.values > 0)]
    if len(values) < 12:
        return None
    alone = spikes(values, SPIKE)
    rare = len(alone) <= RARE * len(values)
    if not len(alone) and not shows_each_step(observations, grad):
        return None
    largest = float(values[alone.astype(np.int64)].max() / median(values)) if len(alone) and rare else 0.0
    says = f"{len(alone)} of {len(values)} records stand alone above {SPIKE:g} medians, the largest at {largest:.3g}"
    return Fact(name="gradient_spikes", value=largest, how="computed", unit="medians", source=grad.source(), says=says)


def spike_aftermath(observations: Observations) -> Fact | None:
    """Return by how many scatters the reward lies lower after a gradient spike than before it, at the worst.

    Medians of five records on either side of each isolated spike; scatter from the differences of neighbours.
    """
    grad, reward = observations.run.series.get("grad_norm"), reward_series(observations)
    if grad is None or reward is None or np.isfinite(grad.values).sum() < 12:
        return None
    keep = np.isfinite(grad.values) & (grad.values > 0)
    alone = spikes(grad.values[keep], SPIKE).astype(np.int64)
    steps, values = thinned(reward)
    scatter = scatter_of(values) / np.sqrt(2)
    rare = alone if len(alone) <= RARE * keep.sum() else alone[:0]
    if not len(alone) and not shows_each_step(observations, grad):
        return None
    falls = [_fall(steps, values, float(grad.axis.steps[keep][at])) for at in rare]
    worst = max((fall for fall in falls if np.isfinite(fall)), default=0.0)
    value = max(0.0, worst) / max(scatter, 1e-9 * max(1.0, float(np.abs(values).max())))
    says = f"{reward.raw} lies {max(0.0, worst):.3g} lower after a spike of {grad.raw}, its scatter is {scatter:.2g}"
    return Fact(name="spike_aftermath", value=value, how="computed", unit="scatters", source=reward.source(), says=says)


def _fall(steps: FloatArray, values: FloatArray, at: float) -> float:
    """Return how much lower the five records after a step are than the five up to it."""
    cut = int(np.searchsorted(steps, at, "right"))
    before, after = values[max(0, cut - SIDE) : cut], values[cut : cut + SIDE]
    return median(before) - median(after) if len(before) == SIDE == len(after) else float("nan")


def gradient_growth(observations: Observations) -> Fact | None:
    """Return the median gradient norm of the last tenth over that of the first half: whether it runs off for good."""
    grad = observations.run.series.get("grad_norm")
    return None if grad is None else growth(grad, "gradient_growth")


def growth(series: Series, name: str) -> Fact | None:
    """Return the median of a series' last tenth over that of its first half; None with fewer than 20 records."""
    values = finite_of(series.values)
    if len(values) < 20:
        return None
    early, late = median(values[: len(values) // 2]), median(values[-(len(values) // 10) :])
    if not early > 0:
        return None
    says = f"{series.raw} went from {early:.3g} (first half) to {late:.3g} (last tenth)"
    return Fact(name=name, value=late / early, how="computed", unit="times", source=series.source(), says=says)


def loss_leap(observations: Observations) -> Fact | None:
    """Return the largest policy loss in units of its scatter: a surrogate that nothing bounds.

    Whitened advantages keep a sound surrogate within a few tenths; only ratios far above 1 with negative advantages,
    which the clip lets through, make it large.
    """
    loss = observations.run.series.get("policy_loss") or _loss_alone(observations)
    if loss is None:
        return None
    values = finite_of(loss.values)
    if len(values) < 12:
        return None
    middle = median(values)
    scatter = 1.4826 * median(np.abs(values - middle))
    top = int(np.argmax(values))
    leap = (float(values[top]) - middle) / max(scatter, 1e-2)
    says = f"largest {loss.raw} {values[top]:.3g}, usually {middle:.3g} ± {scatter:.2g}"
    return Fact(name="loss_leap", value=leap, how="computed", unit="scatters", source=loss.source(), says=says)


def _loss_alone(observations: Observations) -> Series | None:
    """Return the loss of a group method without a KL term: it is the policy loss."""
    series = observations.run.series
    alone = observations.run.algorithm == "grpo" and observations.number("kl_coef") == 0
    return series.get("loss") if alone and "ref_kl" not in series and "value_loss" not in series else None


def kl_before_over_after(observations: Observations) -> Fact | None:
    """Return the mean KL over an update's minibatches against the KL after its last step (a probe).

    A sound update begins at KL 0 and grows, so its mean is about a third of the last; samples that the policy did not
    draw are as far away at the start as at the end, so the two agree.
    """
    during, after = observations.run.series.get("approx_kl"), observations.run.series.get("probe_kl")
    if during is None or after is None or during.axis is not after.axis or during.aggregation == "last minibatch":
        return None
    usable = np.isfinite(during.values) & np.isfinite(after.values) & (after.values > rounding.UNIT)
    if usable.sum() < 8:
        return None
    value = median(during.values[usable] / after.values[usable])
    says = f"median of {during.raw}/{after.raw} over {int(usable.sum())} updates"
    return Fact(
        name="kl_before_over_after", value=value, how="computed", unit="times", source=during.source(), says=says
    )


def kl_per_squared_rate(observations: Observations) -> Fact | None:
    """Return how much more KL an update keeps at a small learning rate than (lr·K)² allows, as a ratio.

    KL is proportional to (lr·K)²: where a schedule takes the learning rate to a fifth or less, KL has to fall below a
    tenth. The median KL of those records over the median at more than half of the largest rate; None without them, and
    where a controller moves the rate, or an early stop ends the passes, to hold the KL. 0 for a KL that half precision
    explains.
    """
    kl, rate = observations.series("update_kl"), observations.run.series.get("learning_rate")
    if kl is None or rate is None or len(rate) < 20 or not _only_falls(rate) or _stopped_at_target(observations):
        return None
    at = np.interp(kl.axis.steps, rate.axis.steps, np.nan_to_num(rate.values))
    low, high = kl.values[(at <= 0.15 * at.max()) & (at > 0)], kl.values[at > 0.5 * at.max()]
    base, rest = finite_median(high), finite_median(low)
    if np.isfinite(low).sum() < 4 or not base > 1e-6 or not np.isfinite(rest):
        return None
    says = f"{kl.raw} is {rest:.2g} at under 15 % of the learning rate, {base:.2g} at more than half of it"
    value = rest / base if rest > _floor(observations) else 0.0
    return Fact(name="kl_per_squared_rate", value=value, how="computed", unit="times", source=kl.source(), says=says)


def _stopped_at_target(observations: Observations) -> bool:
    """Tell whether an early stop binds: the median KL is at half of its target and more."""
    reach = observations.fact("kl_over_target")
    return reach is not None and float(str(reach.value)) >= BINDING


def _only_falls(rate: Series) -> bool:
    """Tell whether a learning rate rises to one peak and falls from there, as under a schedule."""
    values = finite_of(rate.values)
    if len(values) < 2:
        return False
    change, peak = np.diff(values), int(np.argmax(values))
    slack = 1e-9 * float(values[peak])
    return bool((change[:peak] >= -slack).all() and (change[peak:] <= slack).all())


def _floor(observations: Observations) -> float:
    """Return the KL (nats) that arithmetic explains: of half precision for language models, of float32 for control."""
    steps = observations.fact("completions")
    return FLOAT_NOISE if steps is not None and steps.value == 0 else HALF_NOISE
