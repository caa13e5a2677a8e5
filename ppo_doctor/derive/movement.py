"""How small are the steps: sizes of movement, and what they are measured against."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor import rounding
from ppo_doctor.arrays import finite_of, mean_of, median, variance_of
from ppo_doctor.derive.policy import while_alive
from ppo_doctor.model import Fact, Series, SourceRef

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations

#: Records per quarter below which a drift of entropy cannot be told from noise.
LEAST = 4
#: Lowest learning rates in common use: control (rsl_rl's lower bound), language models (full fine-tuning with RL).
LOWEST_USUAL = {"control": 1e-5, "language": 1e-7}
#: Gains this small are the rounding of a loss at ratio 1.
NO_GAIN = 1e-3
#: Share of records beyond the largest gain that there can be, which fat tails of the ratio explain.
MOST_BEYOND = 0.03
#: Share of updates as long as plain descent makes them, from which on that is no coincidence.
PLAIN_SHARE = 0.9
_EPISODES = ("episode_return", "episode_length", "eval_return", "action_std")
_TEXT = ("response_length", "truncated_fraction", "ref_kl", "frac_reward_zero_std")


def kl_size(observations: Observations) -> Series | None:
    """Return |KL| of the old policy to the new one per record, in nats; else half the variance of the ratio.

    Second order of KL around ratio 1: KL = Var(r)/2 (Schulman 2020, Approximating KL Divergence).
    """
    kl = observations.run.series.get("approx_kl")
    if kl is not None and len(kl):
        return while_alive(
            observations, dataclasses.replace(kl, name="kl_size", values=np.abs(kl.values), how="computed")
        )
    spread = observations.run.series.get("ratio_std")
    if spread is None or not len(spread):
        return None
    printed, least = spread.resolution.absolute, spread.resolution.rounding
    # products, since a float's power raises where a product is infinite
    coarse = dataclasses.replace(spread.resolution, absolute=0.5 * printed * printed, rounding=0.5 * least * least)
    half = 0.5 * np.square(spread.values)
    says = f"half of {spread.raw} squared"
    size = dataclasses.replace(
        spread, name="kl_size", values=half, resolution=coarse, unit="nats", how="computed", says=says
    )
    return while_alive(observations, size)


def late_entropy_drift(observations: Observations) -> Fact | None:
    """Return how far entropy moved between the third and the last quarter of the run, in units of what is noticeable.

    Noticeable are three standard errors (Welch 1947), and half a per cent of the entropy. A policy that has stopped
    moving keeps its entropy up to sampling noise, whatever it did before.
    """
    entropy = observations.run.series.get("entropy")
    if entropy is None:
        return None
    values = finite_of(entropy.values)
    quarter = len(values) // 4
    if quarter < LEAST:
        return None
    third, last = values[-2 * quarter : -quarter], values[-quarter:]
    gap = abs(mean_of(last) - mean_of(third))
    noise = math.sqrt((variance_of(third, ddof=1) + variance_of(last, ddof=1)) / quarter)
    noticeable = max(3 * noise, 0.005 * max(abs(mean_of(third)), 0.1), entropy.resolution.absolute)
    says = f"{entropy.raw} went from {mean_of(third):.4g} to {mean_of(last):.4g} in the second half"
    unit = "noticeable changes"
    return Fact(
        name="late_entropy_drift", value=gap / noticeable, how="computed", unit=unit, source=entropy.source(), says=says
    )


def motion_per_rate(observations: Observations) -> Series | None:
    """Return the norm of the parameter change of an update over the learning rate, per record.

    Adam moves each of N coordinates by up to the learning rate per step, so that a sound update shows 0.05 to 1 times
    the square root of N and more (Kingma and Ba 2015, section 2.1). Plain descent shows the norm of the gradient, which
    no bound on Adam's steps speaks of: None.
    """
    moved, rate = observations.run.series.get("update_norm"), observations.run.series.get("learning_rate")
    if moved is None or rate is None or moved.axis is not rate.axis or _plain_descent(observations, moved, rate):
        return None
    alive = rate.values > 0
    values = np.where(alive, moved.values / np.where(alive, rate.values, 1.0), np.nan)
    motion = dataclasses.replace(moved, name="motion_per_rate", values=values, unit="learning rates", how="computed")
    return while_alive(observations, motion)


def _plain_descent(observations: Observations, moved: Series, rate: Series) -> bool:
    """Return whether updates are as long as learning rate times gradient makes K steps: K times that, or its root."""
    gradient, steps = observations.run.series.get("grad_norm"), observations.fact("updates_known")
    if gradient is None or steps is None or gradient.axis is not moved.axis:
        return False
    known = float(str(steps.value))
    expected = rate.values * gradient.values
    alive = expected > 0
    length = moved.values[alive] / expected[alive]
    within = (length > 0.9 * math.sqrt(known)) & (length < 1.1 * known)
    return bool(alive.any()) and mean_of(within) > PLAIN_SHARE


def rate_over_usual(observations: Observations) -> Fact | None:
    """Return the top of the learning rate over the lowest one in common use: 1e-5 for control, 1e-7 for language.

    The top, since rates are told as what a schedule starts from or warms up to.
    """
    rate = observations.get("series.applied_learning_rate") or observations.get("fact.applied_learning_rate")
    if rate is None:
        return None
    if isinstance(rate, Series):
        known, exact = finite_of(rate.values), rate.resolution.absolute
        if not len(known) or median(known) <= exact:
            return None  # zero, or zero in print
        value = float(known.max())
    else:
        value = float(rate.value) if isinstance(rate.value, int | float) else math.nan
    usual = LOWEST_USUAL[_domain(observations)]
    if not value > 0:
        return None
    says = f"learning rate up to {value:.2g}, lowest usual {usual:g}"
    return Fact(
        name="rate_over_usual", value=value / usual, how="computed", unit="times", source=_source(rate), says=says
    )


def _source(quantity: Series | Fact) -> SourceRef | None:
    return quantity.source() if isinstance(quantity, Series) else quantity.source


def _domain(observations: Observations) -> str:
    held = observations.run.series
    plays = any(name in held for name in _EPISODES)
    return "control" if plays and not any(name in held for name in _TEXT) else "language"


def probe_over_logged(observations: Observations) -> Fact | None:
    """Return the KL of a probe after the update over the logged KL, in units of what K steps away from old give.

    If each step adds the same change, the KL after j steps grows as j squared: the mean over minibatches 0 to K - 1 is
    (K - 1)(2K - 1)/6 where the end is K squared. Diffusive steps give less than 1, an old policy that follows more.
    """
    probe, logged = observations.run.series.get("probe_kl"), observations.run.series.get("approx_kl")
    updates = observations.fact("updates_known")
    if probe is None or logged is None or updates is None or probe.axis is not logged.axis:
        return None
    steps = float(str(updates.value))
    alive = (np.abs(logged.values) > rounding.UNIT) & (probe.values > rounding.UNIT)
    if steps < 2 or alive.sum() < 5 or logged.aggregation not in (None, "", "all minibatches"):
        return None
    coherent = 6 * steps / (2 * steps - 3 + 1 / steps)
    found = median(probe.values[alive] / np.abs(logged.values[alive]))
    says = f"probe KL is {found:.3g} times the logged KL, {coherent:.3g} is usual for {steps:g} steps"
    return Fact(
        name="probe_over_logged", value=found / coherent, how="computed", unit="times", source=probe.source(), says=says
    )


def gain_evidence(observations: Observations) -> Fact | None:
    """Return the mean surrogate gain in standard errors, where loss and KL cover the same window and are whitened.

    A step that follows its advantages makes the surrogate positive on its own samples; a spread of ratios that is
    independent of the advantages leaves a mean of zero. Group losses averaged over tokens carry an offset: None. So
    do losses of which many gain more than the root of twice the KL, the most that the Cauchy-Schwarz inequality allows
    for whitened advantages.
    """
    loss, kl = observations.run.series.get("policy_loss"), observations.series("kl_size")
    if loss is None or kl is None or loss.axis is not kl.axis or observations.run.algorithm != "ppo":
        return None
    if kl.estimator not in (None, "k2", "k3", "exact"):
        return None
    if not _whitened(observations) or loss.aggregation != kl.aggregation:
        return None
    alive = (kl.values > rounding.UNIT) & np.isfinite(loss.values)
    if alive.sum() < 20 or kl.resolution.absolute > rounding.UNIT:
        return None
    gains = -loss.values[alive] / np.sqrt(2 * kl.values[alive])
    if median(np.abs(gains)) < NO_GAIN:
        return None  # the loss of the first pass, at ratio 1: whitened advantages have no mean
    if float(np.mean(np.abs(gains) > 1)) > MOST_BEYOND:
        return None
    z = float(np.mean(gains) / max(float(np.std(gains, ddof=1)) / math.sqrt(len(gains)), 1e-12))
    says = f"mean surrogate gain {mean_of(gains):.3g} over {len(gains)} records"
    return Fact(name="gain_evidence", value=z, how="computed", unit="standard errors", source=loss.source(), says=says)


def _whitened(observations: Observations) -> bool:
    setting = observations.run.config.get("normalize_advantages")
    return "advantages_whitened" in observations.run.facts or bool(setting and setting.value is True)


def advantage_link(observations: Observations) -> Fact | None:
    """Return the mean correlation of log-ratio and advantage on trained samples, in standard errors over records."""
    logged = observations.run.series.get("logratio_advantage_corr")
    if logged is None:
        return None
    values = finite_of(logged.values)
    if len(values) < 20:
        return None
    z = float(np.mean(values) / max(float(np.std(values, ddof=1)) / math.sqrt(len(values)), 1e-12))
    says = f"mean correlation {mean_of(values):.3g} over {len(values)} records"
    return Fact(
        name="advantage_link", value=z, how="computed", unit="standard errors", source=logged.source(), says=says
    )
