"""Does the policy turn deterministic, or random?"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_of, median, parts
from ppo_doctor.derive.onset import thinned
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Series

#: Below this entropy at the start (nats) the policy began deterministic, as where one action is rare.
ALIVE = 0.15
#: Below this share of its start, in the median of the first half, entropy was gone early: as entropy-vanishes-early.
GONE = 0.13


def choice_entropy(observations: Observations) -> Series | None:
    """Return the entropy of a choice among actions or tokens, which is 0 where the policy always acts alike.

    None for a Gaussian policy that its logged deviation or a negative entropy shows: a differential entropy is 0 at a
    deviation of 0.24, and neither its zero nor its ratios mean anything. Where settings alone show it, that it never
    falls, or runs up, says as much of a Gaussian.
    """
    entropy, spread = observations.run.series.get("entropy"), observations.run.series.get("action_std")
    if entropy is None or (spread is not None and np.isfinite(spread.values).any()):
        return None
    finite = finite_of(entropy.values)
    return None if len(finite) and float(finite.min()) < -1e-6 else entropy


def entropy_share(observations: Observations) -> Series | None:
    """Return entropy over its level at the start, per record; None where it starts near 0, or is a differential one."""
    entropy = observations.series("choice_entropy")
    if entropy is None or len(entropy) < 12:
        return None
    finite = finite_of(entropy.values)
    if len(finite) < 12:
        return None
    start = median(finite[: max(1, len(finite) // 50)])
    if start < ALIVE:
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


def early_entropy_share(observations: Observations) -> Fact | None:
    """Return the median of the entropy's share of its start between a twentieth and a tenth of the run."""
    share = observations.series("entropy_share")
    values = finite_of(share.values) if share is not None else np.empty(0)
    tenth = len(values) // 10
    if share is None or tenth < 3:
        return None
    value = median(values[tenth // 2 : tenth])
    says = f"{share.raw} had {value:.2g} of its start left in records {tenth // 2} to {tenth}"
    return Fact(
        name="early_entropy_share", value=value, how="computed", unit="of the start", source=share.source(), says=says
    )


def entropy_rise(observations: Observations) -> Fact | None:
    """Return the largest later entropy over an earlier one, medians of tenths; 0 where it rose by less than 0.5 nats.

    Exploration returns by a few tenths in sound runs; a policy that runs off gains nats. None for a
    differential entropy.
    """
    entropy = observations.series("choice_entropy")
    if entropy is None:
        return None
    values = finite_of(entropy.values)
    if len(values) < 20:
        return None
    tenths = np.array([median(part) for part in parts(values, 10)])
    lowest = np.minimum.accumulate(tenths)
    at = int(np.argmax(tenths - lowest))
    says = f"{entropy.raw} went from {lowest[at]:.3g} to {tenths[at]:.3g} (medians of tenths)"
    value = float(tenths[at]) / max(float(lowest[at]), 0.05) if tenths[at] - lowest[at] >= 0.5 else 0.0
    return Fact(name="entropy_rise", value=value, how="computed", unit="times", source=entropy.source(), says=says)


def entropy_over_start(observations: Observations) -> Fact | None:
    """Return the median entropy of the last tenth over that of the start, where samples are steps of episodes.

    An untrained choice among actions has nearly the largest entropy there is; only a Gaussian's can multiply. None for
    completions, whose policy begins trained, and where entropy begins near 0 or is known to be a differential one.
    """
    share, completions = observations.series("entropy_share"), observations.fact("completions")
    if share is None or completions is None or completions.value != 0 or len(share) < 20:
        return None
    value = median(finite_of(share.values)[-(len(share) // 10) :])
    says = f"{share.raw} ends at {value:.3g} times its start"
    return Fact(name="entropy_over_start", value=value, how="computed", unit="times", source=share.source(), says=says)


def solved_level(observations: Observations) -> Fact | None:
    """Return how much of the largest possible reward completions earn at the end, for rewards within 0 and 1.

    None for other scales: what is good cannot be told from an unknown scale.
    """
    reward = observations.run.series.get("reward_mean")
    if reward is None or "frac_reward_zero_std" not in observations.run.series:
        return None
    _, values = thinned(reward)
    if len(values) < 12 or float(values.min()) < 0 or float(values.max()) > 1:
        return None
    level = median(values[-(len(values) // 3) :])
    says = f"{reward.raw} {level:.3g} of at most 1 over the last third"
    return Fact(name="solved_level", value=level, how="computed", source=reward.source(), says=says)


def answer_length_spread(observations: Observations) -> Series | None:
    """Return the longest minus the shortest completion per record, in tokens; None where answers are mostly cut off."""
    run = observations.run
    low, high = run.series.get("response_length_min"), run.series.get("response_length_max")
    if low is None or high is None or low.axis is not high.axis:
        return _mean_length_off(observations)
    cut = run.series.get("truncated_fraction")
    late = cut.values[len(cut) // 2 :] if cut is not None else np.empty(0)
    if (finite_of(late) > 0.5).any():
        return None
    spread, says = high.values - low.values, f"{high.raw} - {low.raw}"
    return dataclasses.replace(high, name="answer_length_spread", values=spread, how="computed", says=says)


def _mean_length_off(observations: Observations) -> Series | None:
    """Return how far each record's mean length is from the whole number next to the last third's median.

    The mean of many lengths is the same whole number time after time where all of them are. None at the longest of the
    run, which may be the limit.
    """
    mean = observations.run.series.get("response_length")
    values = finite_of(mean.values) if mean is not None else np.empty(0)
    if mean is None or len(values) < 12:
        return None
    settled = float(round(median(values[-(len(values) // 3) :])))
    if settled >= 0.9 * values.max():
        return None
    off, says = np.abs(mean.values - settled), f"|{mean.raw} - {settled:g}|"
    return dataclasses.replace(mean, name="answer_length_spread", values=off, how="computed", says=says)


def gain_without_entropy(observations: Observations) -> Fact | None:
    """Return the gain of the reward (in standard errors) of a run whose entropy was gone in its first half."""
    share, gain = observations.series("entropy_share"), observations.fact("reward_gain")
    if share is None or gain is None:
        return None
    early = share.values[: len(share) // 2]
    early = finite_of(early)
    if not len(early) or median(early) >= GONE:
        return None
    return dataclasses.replace(gain, name="gain_without_entropy")


def differential_entropy_fall(observations: Observations) -> Fact | None:
    """Return by how many nats the entropy of a density has fallen at the end of the run; None where it never is one.

    The entropy of actions that are chosen is never below 0; that of a Gaussian falls by a nat, in each dimension, where
    its deviation falls to a third.
    """
    entropy = observations.run.series.get("entropy")
    if entropy is None:
        return None
    values = finite_of(entropy.values)
    if len(values) < 12 or float(values.min()) >= 0:
        return None
    end = median(values[-max(3, len(values) // 10) :])
    says = f"{entropy.raw} went from {values[0]:.3g} to {end:.3g}"
    fall = float(values[0]) - end
    return Fact(
        name="differential_entropy_fall", value=fall, how="computed", unit="nats", source=entropy.source(), says=says
    )
