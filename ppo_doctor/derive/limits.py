"""What arithmetic allows: advantages within a group, returns of episodes that end, ratios at a framework's clamp."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_of, median, quantile
from ppo_doctor.derive.conditions import condition
from ppo_doctor.derive.onset import collapse_step
from ppo_doctor.derive.repeats import beside_each_other
from ppo_doctor.model import EXACT, Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import BoolArray, FloatArray, Series

#: Frameworks clamp log-ratios at 20 (verl, OpenRLHF) or, per sequence, at 10 (verl's GSPO).
CLAMPS = (20.0, 10.0)
#: How close to the clamp a float32 exponential lands, in nats.
CLOSE = 1e-3
#: Records that a median of a run needs.
LEAST = 12
#: How many times larger returns have to come out if advantages leak over the ends of episodes, to be worth a look.
VISIBLE = 3.0
#: Longest episodes, in horizons 1/(1 - γ), whose ends a sum of discounted rewards still shows.
REACH = 2.0
#: Episodes that are shorter than this share of what most were leave a critic that remembers longer ones.
SHRUNK = 0.25
#: Targets may be above those of a task without end by this factor, for noise; records that have to be of use.
ENDLESS, MOST = 1.25, 0.7
#: More records than this share at the longest are a time limit.
AT_LIMIT = 0.2


def group_bound_excess(observations: Observations) -> Series | None:
    """Return the largest |advantage| over what one group allows: sqrt(G - 1) for G rewards scaled to unit deviation.

    With the sample's deviation it is (G - 1)/sqrt(G), which is less. None where the size of a group is not configured,
    and where rewards are not scaled within groups.
    """
    size = observations.number("num_generations")
    if (
        observations.run.algorithm != "grpo"
        or size is None
        or size < 2
        or not observations.configured("num_generations")
    ):
        return None
    scaled = observations.setting("scale_rewards")
    if scaled is not None and str(scaled.value).lower() not in ("true", "group"):
        return None
    estimator = observations.setting("advantage_estimator")
    if estimator is not None and str(estimator.value).lower() not in ("grpo", "group_norm"):
        return None
    found = _largest(observations)
    if found is None:
        return None
    series, values = found
    return dataclasses.replace(
        series, name="group_bound_excess", values=values / math.sqrt(size - 1), unit="times the bound", how="computed"
    )


def _largest(observations: Observations) -> tuple[Series, FloatArray] | None:
    logged = observations.run.series
    whole, low, high = logged.get("advantages_abs_max"), logged.get("advantages_min"), logged.get("advantages_max")
    if whole is not None:
        return whole, whole.values
    if low is None or high is None or not beside_each_other(low, high):
        return None
    return high, np.maximum(np.abs(low.values), np.abs(high.values))


def returns_over_endless(observations: Observations) -> Fact | None:
    """Return the critic's targets over those of a task without end, in the median of the later half.

    What pays r per step for ever is worth r/(1 - γ). Over episodes of mean length L the mean discounted sum of what is
    still to come is about r/(1/L + 1 - γ), less where lengths hardly vary. None where that is no third of the endless
    one, where rewards of both signs cancel, and where lengths stand at a limit: a sound trainer that bootstraps over it
    asks for what an endless task pays.
    """
    series, gamma = observations.run.series, observations.number("gamma")
    names = ("returns_mean", "reward_mean", "episode_length")
    returns, reward, length = (series.get(name) for name in names)
    if returns is None or reward is None or length is None or gamma is None or not 0 < gamma < 1:
        return None
    told = observations.configured("gamma") and _known(length).any()
    if not told or not beside_each_other(returns, reward) or len(returns) < LEAST:
        return None
    steps = np.interp(returns.axis.steps, length.axis.steps[_known(length)], length.values[_known(length)])
    endless = reward.values / (1 - gamma)
    visible = (1 + 1 / (np.maximum(steps, 1) * (1 - gamma)) >= VISIBLE) & (np.abs(endless) > 0)
    usable = visible & np.isfinite(returns.values) & ~_cancels(observations, reward)
    later = usable & (np.arange(len(returns)) >= len(returns) // 2)
    if later.sum() < LEAST // 2 or at_a_limit(steps[later], AT_LIMIT):
        return None
    value = median(returns.values[later] / endless[later])
    says = f"{returns.raw} over what a step pays for ever at gamma {gamma:g}; episodes have {median(steps[later]):.3g}"
    source = returns.source()
    return Fact(name="returns_over_endless", value=value, how="computed", unit="times", source=source, says=says)


def episodes_asked_for(observations: Observations) -> Fact | None:
    """Return how long episodes would have to be for the critic's targets, over their logged length, in the later half.

    Over geometric lengths of mean M targets average r/(1/M + 1 - γ), and M is solved for. 1 is what is logged; a mean
    of lengths with a coefficient of variation c gives (1 + c²)/2, and a reward at the end alone 3.2 at most, as only
    records with lengths up to 2/(1 - γ) count. None where most records are of no use: where lengths stand at a limit,
    which may be bootstrapped, where rewards cancel, where episodes became a quarter as long or the reward collapsed,
    since the critic remembers what was, and where targets are beyond those without end, which no leak explains.
    """
    series, gamma = observations.run.series, observations.number("gamma")
    returns, reward, length = (series.get(name) for name in ("returns_mean", "reward_mean", "episode_length"))
    if returns is None or reward is None or length is None or gamma is None or not 0 < gamma < 1:
        return None
    told = observations.configured("gamma") and _known(length).any() and len(returns) >= LEAST
    if not told or not beside_each_other(returns, reward) or collapse_step(observations) is not None:
        return None
    steps = np.interp(returns.axis.steps, length.axis.steps[_known(length)], length.values[_known(length)])
    paid = np.where(reward.values > 0, returns.values / np.maximum(reward.values, 1e-300), math.nan)
    usable = (steps * (1 - gamma) <= REACH) & (steps >= SHRUNK * quantile(steps, 0.9))
    usable &= (paid > 0) & (paid * (1 - gamma) <= ENDLESS) & ~_cancels(observations, reward)
    later = usable & (np.arange(len(returns)) >= len(returns) // 2)
    if later.sum() < MOST * (len(returns) // 2) or at_a_limit(steps[later], AT_LIMIT):
        return None
    value = median(1 / np.maximum(1 / paid[later] - (1 - gamma), 1e-6) / steps[later])
    says = f"{returns.raw} at gamma {gamma:g} takes episodes {value:.3g} times as long as they are"
    says = f"{says}: {median(steps[later]):.3g}"
    return Fact(
        name="episodes_asked_for", value=value, how="computed", unit="times", source=returns.source(), says=says
    )


def at_a_limit(lengths: FloatArray, most: float) -> bool:
    """Tell whether more than a share of lengths stand at the longest, as with a time limit."""
    return bool((lengths >= 0.99 * lengths.max()).mean() > most)


def _known(series: Series) -> BoolArray:
    return np.asarray(np.isfinite(series.values))


def _cancels(observations: Observations, reward: Series) -> BoolArray:
    spread = observations.run.series.get("reward_std")
    if spread is None or not beside_each_other(spread, reward):
        return np.asarray(np.abs(reward.values) <= 0)
    return np.asarray(np.abs(reward.values) < 0.2 * spread.values)


def ratio_at_clamp(observations: Observations) -> Series | None:
    """Return 1 where the largest ratio is exp of a clamp that frameworks have, else 0; NaN below e⁹."""
    largest = observations.run.series.get("ratio_max")
    if largest is None or not len(largest):
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        nats = np.log(largest.values)
    hit = np.minimum.reduce([np.abs(nats - clamp) for clamp in CLAMPS]) < CLOSE
    values = np.where(np.isfinite(nats), hit.astype(np.float64), np.nan)
    says = f"{largest.raw} at a clamp ({' or '.join(f'e^{clamp:g}' for clamp in CLAMPS)})"
    return condition(dataclasses.replace(largest, resolution=EXACT), "ratio_at_clamp", values, says)


def loss_size(observations: Observations) -> Series | None:
    """Return |loss| of a trainer without a critic: ratio times advantage, of a few units with ratios near 1."""
    loss = observations.run.series.get("loss")
    if observations.run.algorithm != "grpo" or loss is None or not len(loss) or "value_loss" in observations.run.series:
        return None
    return dataclasses.replace(loss, name="loss_size", values=np.abs(loss.values), how="computed", says=f"|{loss.raw}|")


def reference_kl_worst(observations: Observations) -> Fact | None:
    """Return the largest k3 to the reference, in nats.

    k3 = exp(δ) - δ - 1 with δ = log reference - log policy grows exponentially where the reference gives far more than
    the policy. Where the policy gives more it grows like -δ only, which log-probs bound.
    """
    kl = _k3(observations)
    if kl is None:
        return None
    worst = int(np.nanargmax(np.where(np.isfinite(kl.values), kl.values, -np.inf)))
    says = f"largest of {len(kl)} records"
    return Fact(
        name="reference_kl_worst",
        value=float(kl.values[worst]),
        how="observed",
        unit="nats",
        source=kl.source(worst),
        says=says,
    )


def reference_kl_spread(observations: Observations) -> Fact | None:
    """Return how many times its median the k3 to the reference reaches; a median below 0.01 nats counts as that."""
    kl = _k3(observations)
    if kl is None:
        return None
    values = finite_of(kl.values)
    usual, worst = max(median(values), 0.01), float(values.max())
    says = f"{kl.raw} reaches {worst:.3g} nats, usually {median(values):.2g}"
    return Fact(
        name="reference_kl_spread", value=worst / usual, how="computed", unit="medians", source=kl.source(), says=says
    )


def _k3(observations: Observations) -> Series | None:
    kl = observations.run.series.get("ref_kl")
    if kl is None or kl.estimator != "k3" or np.isfinite(kl.values).sum() < LEAST:
        return None
    return kl


def reference_kl_over_target(observations: Observations) -> Series | None:
    """Return the KL to the reference over the target that the configuration sets for it."""
    kl, target = observations.run.series.get("ref_kl"), observations.number("ref_kl_target")
    if kl is None or not len(kl) or not target or target <= 0 or not observations.configured("ref_kl_target"):
        return None
    return dataclasses.replace(
        kl, name="reference_kl_over_target", values=kl.values / target, unit="times the target", how="computed"
    )


def value_steps_needed(observations: Observations) -> Fact | None:
    """Return how many updates the critic needs to cross its usual error when each may move it by the value clip range.

    The error is the square root of the value loss in the later two thirds (where the loss is half the square it comes
    out smaller by a third at most).
    """
    late, width = observations.fact("value_loss_late"), observations.number("clip_range_vf")
    if late is None or not isinstance(late.value, float) or not width or width <= 0 or late.value < 0:
        return None
    if not observations.configured("clip_range_vf"):
        return None
    value = math.sqrt(late.value) / width
    says = f"error of about {math.sqrt(late.value):.3g}, value clip range {width:g}"
    return Fact(name="value_steps_needed", value=value, how="computed", unit="updates", source=late.source, says=says)
