"""Statistics of the entropy (collapse, growth, bonus coefficient) and of growth of the KL to the reference."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.movement import DRIFTS, FEWEST, divergence_of
from ppo_doctor.checks.rewards import does_not_rise, passes, reward_of
from ppo_doctor.checks.series import (
    condition,
    course_of,
    dimensions,
    discrete,
    drift,
    entropy_of,
    fact,
    finite,
)
from ppo_doctor.checks.statistics import ENTROPIES, REWARDS_LOGGED, each_with, statistic
from ppo_doctor.model.arrays import finite_of, median, quantile

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import Fact, FloatArray, Series

#: Gain of a density's entropy (nats per action dimension) that counts as a run-away; dimensions if unknown.
PER_DIMENSION, MANY_DIMENSIONS = 0.6, 8.0
#: Share of the highest entropy below which a choice is nearly made (three sound runs of four keep more to the end), and
#: share of its range by which a reward has to fall to point to another problem.
SPENT, FELL = 0.3, 0.25
#: Share of the highest entropy below which every choice is made, and share of the remaining reward that is a gain.
DECIDED, GAINS = 0.05, 0.1
#: Entropy (nats) that a policy has to reach for its loss to mean anything.
ALIVE = 0.1
#: Loss of entropy (nats) that is no chance.
FALLEN = 0.5
#: Changes of entropy, over the larger of its start and 0.3 nats: means and ranges that count as moving or constant.
MOVED, SWUNG, STOOD, JITTER = 0.02, 0.3, 0.008, 0.03


def _entropy(view: RunView) -> tuple[Series, FloatArray] | None:
    """Return the entropy and its finite values; None if it has fewer than three."""
    series = entropy_of(view)
    return None if series is None or len(finite(series)) < 3 else (series, finite(series))


@statistic(*ENTROPIES)
def entropy_first_drop(view: RunView) -> Fact | None:
    """Return the share of the first entropy of a choice that is lost within the first tenth of the records."""
    entropy = _entropy(view)
    if entropy is None or entropy[1][0] < ALIVE / 2 or not discrete(view):
        return None
    series, values = entropy
    soon = values[: max(2, len(values) // 10) + 1]
    drop = float((values[0] - soon.min()) / abs(values[0]))
    return fact(drop, series, f"{series.raw} falls from {values[0]:.3g} to {soon.min():.3g} in {len(soon)} records")


@statistic(*ENTROPIES)
def entropy_left(view: RunView) -> Fact | None:
    """Return the last entropy of a choice over the highest; None if the highest is near 0."""
    entropy = _entropy(view)
    if entropy is None or entropy[1].max() < ALIVE or not discrete(view):
        return None
    series, values = entropy
    return fact(values[-1] / values.max(), series, f"{series.raw} ends at {values[-1]:.3g} of {values.max():.3g}")


@statistic(*ENTROPIES)
def entropy_growth(view: RunView) -> Fact | None:
    """Return the gain of entropy over the gain that counts as a run-away.

    That is half of the start and 0.3 nats, at most 1 nat. For a density it is 0.6 nats for each action dimension, a
    deviation 1.8 times as large; if the number of dimensions is unknown, eight are assumed.
    """
    entropy = _entropy(view)
    if entropy is None:
        return None
    series, values = entropy
    if discrete(view):
        least = min(1.0, 0.5 * abs(values[0]) + 0.3)
    else:
        least = PER_DIMENSION * (dimensions(series) or MANY_DIMENSIONS)
    growth = float((values[-1] - values[0]) / least)
    return fact(growth, series, f"{series.raw} goes from {values[0]:.3g} to {values[-1]:.3g}")


@statistic(*ENTROPIES)
def density_fall(view: RunView) -> Fact | None:
    """Return the loss of a density's entropy in nats per action dimension; None if dimensions are unknown."""
    entropy = _entropy(view)
    count = None if entropy is None else dimensions(entropy[0])
    if entropy is None or count is None or discrete(view):
        return None
    series, values = entropy
    fall = float(values[0] - values[-1]) / count
    return fact(fall, series, f"{series.raw} goes from {values[0]:.3g} to {values[-1]:.3g}", "nats")


@statistic(*each_with(ENTROPIES, REWARDS_LOGGED))
def gain_once_certain(view: RunView) -> Fact | None:
    """Return the gain of reward after a choice has lost most of its entropy for good, as a share of the reward's range.

    1 if entropy is not lost, or if the reward fell by a quarter of its range: then more than exploration is lacking. 0
    if the choice is made and the reward has not clearly risen.
    """
    entropy, rewards = _entropy(view), reward_of(view)
    if entropy is None or rewards is None or entropy[1].max() < ALIVE or not discrete(view):
        return None
    (series, values), (reward, earned) = entropy, rewards
    if len(earned) < FEWEST:
        return None
    certain_from = int(np.flatnonzero(values >= SPENT * values.max())[-1]) + 1
    if certain_from == len(values):
        return fact(1.0, series, f"{series.raw} ends at {values[-1]:.3g} of {values.max():.3g}")
    since = int(series.axis.steps[np.isfinite(series.values)][certain_from])
    steps = reward.axis.steps[np.isfinite(reward.values)]
    few = max(2, len(earned) // 20)
    at = min(int(np.searchsorted(steps, since)), len(earned) - few)
    first, after = median(earned[:few]), median(earned[at:])
    span = float(np.ptp(np.convolve(earned, np.ones(few) / few, "valid")))
    says = f"{series.raw} stays below {SPENT:.0%} of its highest from step {since} on; {reward.raw} began at "
    gain = (after - first) / span if span else 0.0
    if gain > 0 and values[-1] < DECIDED * values.max() and does_not_rise(view):
        gain = 0.0
    gained = fact(gain if gain > -FELL else 1.0, series, f"{says}{first:.4g}, is {after:.4g}")
    return replace(gained, since=since)


@statistic(
    *("entropy+reward_mean+reward_std", "entropy_loss+reward_mean+reward_std", "action_std+reward_mean+reward_std")
)
def certain_short(view: RunView) -> Fact | None:
    """Return the pass rate of a policy that has become deterministic, if it no longer improves; else 1.

    1 also if the policy has not been deterministic for long enough. None if rewards cannot be a pass rate.
    """
    entropy, rewards = _entropy(view), reward_of(view)
    if entropy is None or rewards is None or entropy[1].max() < ALIVE or not discrete(view):
        return None
    (series, values), (reward, earned) = entropy, rewards
    if len(earned) < FEWEST or not passes(reward) or "reward_std" not in view.run.series:
        return None
    certain_from = int(np.flatnonzero(values >= DECIDED * values.max())[-1]) + 1
    few = max(2, len(earned) // 10)
    if len(values) - certain_from < few * 2:
        return fact(1.0, series, f"{series.raw} ends at {values[-1]:.3g} of {values.max():.3g}")
    place = int(np.flatnonzero(np.isfinite(series.values))[certain_from])
    since = int(series.axis.steps[place])
    at = int(np.searchsorted(reward.axis.steps[np.isfinite(reward.values)], since))
    rest = earned[min(at, len(earned) - 2 * few) :]
    first, ends = median(rest[: len(rest) // 2]), median(rest[-few:])
    says = f"{series.raw} stays below {DECIDED:.0%} of its highest from step {since} on; {reward.raw} is {ends:.3g}"
    share = ends if ends - first < GAINS * (1.0 - ends) else 1.0
    return fact(share, series, says, at=place, since=since)


def bonus_of(view: RunView) -> float | None:
    """Return the coefficient of the entropy bonus: logged, else as the loss contains it, else configured."""
    logged = view.values("entropy_coef")
    if logged is not None:
        return float(logged[0])
    in_loss = view.value("bonus_in_loss")
    return view.given("ent_coef") if in_loss is None else in_loss


@statistic("entropy_coef", "ent_coef", "loss+policy_loss+entropy")
def entropy_bonus(view: RunView) -> Fact | None:
    """Return the coefficient of the entropy bonus.

    An unknown trainer may subtract the term that others add. Its negative coefficient counts as a reward for certainty
    only if the entropy falls; otherwise the result is None.
    """
    bonus = bonus_of(view)
    series = view.logged("entropy_coef")
    in_loss = view.fact("bonus_in_loss") if series is None else None
    if in_loss is not None:
        return replace(in_loss, name="entropy_bonus")
    unknown = series is None and view.run.framework == "canonical"
    if bonus is not None and bonus < 0 and unknown and not _falls(view):
        return None
    if bonus is None:
        return None
    coefficient = fact(bonus, series, f"the entropy coefficient is {bonus:g}")
    setting = view.run.config.get("ent_coef") if series is None else None
    return coefficient if setting is None else replace(coefficient, source=setting.source)


def _falls(view: RunView) -> bool:
    """Return whether the entropy falls by more than chance."""
    entropy = _entropy(view)
    return entropy is not None and float(entropy[1][0] - entropy[1][-1]) > FALLEN


@statistic(*ENTROPIES)
def entropy_held_high(view: RunView) -> Fact | None:
    """Return whether the entropy stays at its highest, or runs away; for a choice also whether it rises to its end."""
    entropy, growth = _entropy(view), view.value("entropy_growth")
    if entropy is None or growth is None:
        return None
    series, values = entropy
    top = abs(values.max())
    high = np.ptp(values) < 0.05 * top or (discrete(view) and values.min() > values[0] - 0.02 * top)
    high &= abs(values[-1] - values.max()) < 0.02 * top
    says = f"{series.raw} ends at {values[-1]:.3g}, its highest being {values.max():.3g}"
    return condition(bool(high or growth > 1), series, says)


@statistic(*ENTROPIES)
def entropy_moves(view: RunView) -> Fact | None:
    """Return whether the entropy leaves its start, or drifts, by more than changing states explain."""
    series = entropy_of(view)
    trend = None if series is None else course_of(series)
    if series is None or trend is None:
        return None
    scale = max(abs(trend.start), 0.3)
    moved = abs(trend.end - trend.start) > MOVED * scale and abs(trend.change) > 4
    swing = float(np.ptp(finite(series)))
    swung = swing > SWUNG * scale or (swing > JITTER * scale and drift(finite(series)) > DRIFTS)
    says = f"{series.raw} goes from {trend.start:.4g} to {trend.end:.4g}"
    if not (moved or swung) and len(finite(series)) < FEWEST:
        return None  # too few records to show that nothing moves
    return condition(moved or swung, series, says)


@statistic(*ENTROPIES)
def entropy_stands(view: RunView) -> Fact | None:
    """Return whether the entropy stays at its start, up to the jitter of the states that it is averaged over."""
    series = entropy_of(view)
    trend = None if series is None else course_of(series)
    if series is None or trend is None:
        return None
    scale, swing = max(abs(trend.start), 0.3), float(np.ptp(finite(series)))
    constant = swing < 0.01 * scale or (abs(trend.end - trend.start) < STOOD * scale and swing < JITTER * scale)
    lowest, highest = float(finite(series).min()), float(finite(series).max())
    says = f"{series.raw} stays between {lowest:.4g} and {highest:.4g}" if swing else f"{series.raw} stays {lowest:.4g}"
    return condition(constant, series, says)


#: Entropy (nats) at the start below which the policy began deterministic, for instance if one action is rare.
ENTROPY_ALIVE = 0.15


@statistic("entropy")
def choice_entropy(view: RunView) -> Series | None:
    """Return the entropy of a choice among actions or tokens, which is 0 for a deterministic policy.

    None for a density, or if the kind is unknown: a differential entropy is 0 at a deviation of 0.24, so neither its
    zero nor its ratios mean anything.
    """
    return view.run.series.get("entropy") if discrete(view) else None


@statistic("entropy")
def entropy_share(view: RunView) -> Series | None:
    """Return the entropy of a choice over its level at the start, per record; None if it starts near 0."""
    entropy = view.series("choice_entropy")
    if entropy is None or len(entropy) < 12:
        return None
    finite = finite_of(entropy.values)
    if len(finite) < 12:
        return None
    start = median(finite[: max(1, len(finite) // 50)])
    if start < ENTROPY_ALIVE:
        return None
    resolution = entropy.resolution.scaled(1 / start)
    return dataclasses.replace(
        entropy,
        name="entropy_share",
        values=entropy.values / start,
        unit="of the start",
        resolution=resolution,
        how="computed",
    )


#: Fewest updates after which an unpenalised policy is farther away than after its first ones.
MANY = 30
#: KL to the reference (nats) below which its trend is rounding.
SEEN = 1e-4
#: Quantile that represents the largest values of a scattered series.
LARGEST = 0.9
#: Most choices whose uniform entropy differs visibly from that of one choice more, and largest distance from it.
CHOICES, UNIFORM = 20, 0.01
#: Share of its size by which the entropy of a choice varies at least; that of a fixed deviation does not.
VARIES = 1e-3
#: Largest share of the uniform entropy that a held policy has lost, and least KL (nats) of all its updates.
HELD_SPENT, TRAVELLED = 0.04, 0.05


@statistic("ref_kl")
def reference_growth(view: RunView) -> Fact | None:
    """Return the KL to the reference in the later half of a run over that in its first quarter.

    Without a KL penalty, n updates of equal size move the policy n times as far if they point the same way, and √n
    times if they are random; the KL grows with the square of the distance. The first sixteenth is left out, as the
    learning rate may still be warming up.
    """
    series, size = view.logged("ref_kl"), _apart(view)
    if series is None or len(size) < MANY:
        return None
    count = len(size)
    first, later = float(median(size[count // 16 : count // 4])), float(median(size[count // 2 :]))
    if first < SEEN:
        return None
    says = f"{series.raw} is {first:.3g} in the first quarter and {later:.3g} in the later half"
    return fact(later / first, series, says, "times")


@statistic("ref_kl")
def reference_largest(view: RunView) -> Fact | None:
    """Return the ninth decile of the KL to the reference, per token or summed, as it is logged."""
    series, size = view.logged("ref_kl"), _apart(view)
    if series is None or len(size) < MANY:
        return None
    most = float(quantile(size, LARGEST))
    return fact(most, series, f"{series.raw} is {most:.3g} in its ninth decile", "nats")


def _apart(view: RunView) -> FloatArray:
    """Return the finite |KL| to the reference."""
    series = view.logged("ref_kl")
    return np.empty(0) if series is None else np.abs(finite(series))


@statistic("entropy+approx_kl")
def entropy_pull(view: RunView) -> Fact | None:
    """Return the nats that a policy lost of its uniform entropy over the KL of all its updates; 1 if it lost many.

    The lost entropy is the distance from the uniform policy. Updates that agree add up to more than their KL, and
    random ones to as much. Less means that something pulls the policy back.
    """
    entropy, kl = entropy_of(view), divergence_of(view)
    kind = view.kind.facet("actions").value
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
    if lost > HELD_SPENT * uniform or travelled < TRAVELLED:
        return fact(1.0, entropy, says)
    text = f"{says}; the KL of all updates is {travelled:.2g}"
    return fact(max(lost, 0.0) / travelled, entropy, text)
