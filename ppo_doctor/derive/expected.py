"""What the configuration makes expected: no ratio in the loss, an empty mask, a warm-up, a schedule, few digits."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import distinct, finite_median, finite_of, median
from ppo_doctor.model import CONDITION, Fact, Series

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray, SourceRef

#: Losses whose ratio is 1 by definition, or for which the trainer logs a constant (verl core_algos.py: gpg).
WITHOUT_RATIO = ("reinforce", "reinforce++", "vanilla_pg", "pg", "gpg", "policy_gradient", "a2c")
#: Numbers that a movement would show in; they are what a coarse print hides.
SMALL_NUMBERS = ("learning_rate", "approx_kl", "grad_norm", "policy_loss")
#: KL of sampler to trainer by half precision alone (huggingface/trl issue 6789), and below which both are one engine.
HALF_PRECISION_KL, EXACT_ENGINES = 1.5e-3, 1e-4
#: Methods whose advantages have unit spread within a group.
GROUPED = ("grpo", "rloo")


def loss_without_ratio(observations: Observations) -> Fact | None:
    """Return 1 where the loss has no ratio, by the framework or by the configured loss, 0 where a loss is named."""
    framework = observations.run.facts.get("no_ratio")
    forced = observations.run.config.get("force_on_policy_ratio")
    if framework is not None:
        return Fact(
            name="loss_without_ratio", value=1.0, how="default", unit=CONDITION, says="this trainer's loss has no ratio"
        )
    if forced is not None and forced.value is True:
        return Fact(
            name="loss_without_ratio",
            value=1.0,
            how=forced.how,
            unit=CONDITION,
            source=forced.source,
            says=f"{forced.key} is on",
        )
    named = observations.run.config.get("loss_type")
    if named is None or named.how == "default":
        return None
    value = float(str(named.value).lower() in WITHOUT_RATIO)
    says = f"{named.key} = {named.value}"
    return Fact(name="loss_without_ratio", value=value, how=named.how, unit=CONDITION, source=named.source, says=says)


def loss_tokens(observations: Observations) -> Series | None:
    """Return what is left in the loss: unmasked tokens, else the share of completions that masking leaves."""
    counted = observations.run.series.get("tokens_in_loss")
    if counted is not None and len(counted):
        return dataclasses.replace(counted, name="loss_tokens", how="computed")
    masked = observations.run.config.get("mask_truncated")
    truncated = observations.run.series.get("truncated_fraction")
    if masked is None or masked.value is not True or truncated is None:
        return None
    values = 1.0 - truncated.values
    unit, says = "of completions", f"1 - {truncated.raw}"
    return dataclasses.replace(truncated, name="loss_tokens", values=values, unit=unit, how="computed", says=says)


def warmup_left(observations: Observations) -> Fact | None:
    """Return the configured critic warm-up over the updates that the log covers; from 1 on the actor never trained."""
    warmup = observations.number("critic_warmup")
    longest = max(observations.run.series.values(), key=len, default=None)
    if not warmup or longest is None or not len(longest) or not observations.configured("critic_warmup"):
        return None
    # A log may count environment steps; where it counts updates too, those are what a warm-up is told in.
    updates = longest.axis.update
    covered = float(longest.axis.steps[-1] if updates is None else updates[-1])
    setting = observations.run.config["critic_warmup"]
    says = f"{setting.key} = {warmup:g}, and the log ends at update {covered:g}"
    value = warmup / max(covered, 1.0)
    return Fact(name="warmup_left", value=value, how=setting.how, source=setting.source, says=says)


def rate_left(observations: Observations) -> Fact | None:
    """Return the last learning rate over its peak where it falls without a jump in the second half, else 1."""
    rate = observations.run.series.get("learning_rate")
    if rate is None or np.isfinite(rate.values).sum() < 5:
        return None
    values = finite_of(rate.values)
    peak = float(values.max())
    if not peak > 0:
        return None
    half = values[len(values) // 2 :]
    falls = bool((np.diff(half) <= 1e-12 * peak).all()) and _gradual(half, peak)
    says = f"{rate.raw} falls from {peak:.3g} to {values[-1]:.3g}"
    left = float(values[-1]) / peak if falls else 1.0
    return Fact(name="rate_left", value=left, how="observed", unit="of the peak", source=rate.source(), says=says)


def _gradual(half: FloatArray, peak: float) -> bool:
    """A schedule takes many records; a drop in one is none."""
    return bool(len(distinct(half)) > len(half) // 2 and np.abs(np.diff(half)).max(initial=0.0) < 0.3 * peak)


def printed_zeros(observations: Observations) -> Fact | None:
    """Return how many small numbers are 0 in almost every record of a log that prints too few digits to show them."""
    held = [series for name in SMALL_NUMBERS if (series := observations.run.series.get(name)) is not None]
    held = [series for series in held if np.isfinite(series.values).sum() >= 3]
    if not held:
        return None
    zeros = [s for s in held if s.resolution.absolute > 0 and np.mean(finite_of(s.values) == 0) >= 0.95]
    says = ", ".join(f"{s.raw} to ±{s.resolution.absolute:.0e}" for s in zeros) or "no small number prints as 0"
    source = zeros[0].source() if zeros else None
    return Fact(name="printed_zeros", value=float(len(zeros)), how="observed", unit="metrics", source=source, says=says)


def reward_tilt(observations: Observations) -> Fact | None:
    """Return the spread of the reward over the KL coefficient, in nats: how far reward can pull the policy away.

    The penalised optimum is the reference times exp(reward/coefficient) (Ziegler et al. 2019, section 2), so that a
    spread s can move log-probs by about s/coefficient. Group and whitened advantages have spread 1.
    """
    coefficient, source = _coefficient(observations)
    if coefficient is None or not coefficient > 0:
        return None
    spread = _reward_spread(observations)
    if spread is None or not spread > 0:
        return None
    says = f"reward spread {spread:.3g} over a KL coefficient of {coefficient:.3g}"
    return Fact(name="reward_tilt", value=spread / coefficient, how="computed", unit="nats", source=source, says=says)


def _coefficient(observations: Observations) -> tuple[float | None, SourceRef | None]:
    """Return the KL coefficient, logged or else configured, and where it stands."""
    logged = observations.run.series.get("kl_coef")
    if logged is not None and len(logged):
        return finite_median(logged.values), logged.source()
    setting = observations.run.config.get("kl_coef")
    if setting is None or setting.how == "default":
        return None, None
    return observations.number("kl_coef"), setting.source


def _reward_spread(observations: Observations) -> float | None:
    if observations.run.algorithm in GROUPED:
        return 1.0
    logged = observations.run.series.get("reward_std")
    if logged is not None and len(logged):
        return finite_median(logged.values)
    means, size = observations.run.series.get("reward_mean"), observations.number("rollout_size")
    if means is None or size is None or not size > 0 or np.isfinite(means.values).sum() < 10:
        return None
    # The mean of a batch of n scatters by spread/sqrt(n); differences leave out the trend.
    steps = np.diff(finite_of(means.values))
    return float(np.std(steps)) * math.sqrt(size / 2)


def coefficient_growth(observations: Observations) -> Fact | None:
    """Return the largest over the first KL coefficient, 1 where it later comes back by half; infinity is growth."""
    logged = observations.run.series.get("kl_coef")
    if logged is None or len(logged) < 5:
        return None
    values = np.nan_to_num(logged.values, nan=0.0, posinf=1e300)
    start = float(values[values > 0][0]) if (values > 0).any() else 0.0
    if not start > 0:
        return None
    grown = float(values.max()) / start if values[-1] > 0.5 * values.max() else 1.0
    says = f"{logged.raw} went from {start:.3g} to {values[-1]:.3g}"
    return Fact(
        name="coefficient_growth",
        value=min(grown, 1e300),
        how="observed",
        unit="times",
        source=logged.source(),
        says=says,
    )


def timing_epochs(observations: Observations) -> Fact | None:
    """Return epochs by the clock over configured epochs, where both passes ran on one engine; good to ±40 %.

    A forward and backward pass costs three to four forward passes: epochs = T_update / (3.5 · T_old_log_prob).
    """
    update = observations.run.series.get("time_update")
    forward = observations.run.series.get("time_old_log_prob")
    wanted = observations.number("ppo_epochs")
    if update is None or forward is None or "timing_ratio" not in observations.run.facts:
        return None
    if not wanted or wanted < 2 or not observations.configured("ppo_epochs"):
        return None
    spent, passed = finite_median(update.values), finite_median(forward.values)
    if not (spent > 0 and passed > 0):
        return None
    value = spent / (3.5 * passed)
    says = f"{spent:.3g} s of updates over {passed:.3g} s of old log-probs are {value:.2g} of {wanted:g} epochs"
    return Fact(name="timing_epochs", value=value / wanted, how="computed", source=update.source(), says=says)


def sampler_drift(observations: Observations) -> Fact | None:
    """Return the median |KL| of sampler to trainer in that half of the run where it is larger, in nats.

    A sampler that lags behind drifts more and more, but less where the learning rate falls to nothing.
    """
    drift = observations.run.series.get("rollout_kl")
    if drift is None or np.isfinite(drift.values).sum() < 6:
        return None
    values = np.abs(finite_of(drift.values))
    early, late = median(values[: len(values) // 2]), median(values[len(values) // 2 :])
    says = f"median |{drift.raw}| {early:.3g} in the first half, {late:.3g} in the second"
    return Fact(
        name="sampler_drift", value=max(early, late), how="observed", unit="nats", source=drift.source(), says=says
    )


def _engines_differ_by(observations: Observations) -> float:
    """Return the KL that two engines have at the same weights: that of the first record where it is next to nothing."""
    drift = observations.run.series.get("rollout_kl")
    first = math.inf if drift is None else abs(float(drift.values[0]))
    return EXACT_ENGINES if first < EXACT_ENGINES else HALF_PRECISION_KL


def drift_over_ratio(observations: Observations) -> Fact | None:
    """Return the KL of sampler to trainer over the KL that the ratio sees, floored at what engines differ by.

    That is the noise of half precision, but where the first record, of the weights that both begin with, shows less.
    """
    drift, seen = observations.fact("sampler_drift"), observations.series("kl_size")
    if drift is None or seen is None or np.isfinite(seen.values).sum() < 6:
        return None
    floor = max(finite_median(seen.values), _engines_differ_by(observations))
    value = float(str(drift.value)) / floor
    return Fact(
        name="drift_over_ratio", value=value, how="computed", unit="times", source=drift.source, says=drift.says
    )
