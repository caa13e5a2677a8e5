"""What the configuration makes expected: no ratio in the loss, an empty mask, a warm-up, a schedule, few digits."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import distinct, finite_of
from ppo_doctor.model import CONDITION, Fact, Series

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray

#: Losses whose ratio is 1 by definition, or for which the trainer logs a constant (verl core_algos.py: gpg).
WITHOUT_RATIO = ("reinforce", "reinforce++", "vanilla_pg", "pg", "gpg", "policy_gradient", "a2c")
#: Numbers that a movement would show in; they are what a coarse print hides.
SMALL_NUMBERS = ("learning_rate", "approx_kl", "grad_norm", "policy_loss")


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
