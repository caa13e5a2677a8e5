"""What the entropy of the policy does: spent at once, gone, running up, or held by a bonus."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import median
from ppo_doctor.signals.course import (
    condition,
    course,
    dimensions,
    discrete,
    drift,
    entropy_of,
    fact,
    finite,
    series_of,
    value_of,
    values_of,
)
from ppo_doctor.signals.movement import DRIFTS, FEWEST
from ppo_doctor.signals.rewards import does_not_rise, passes, reward_of

if TYPE_CHECKING:
    from ppo_doctor.model import Fact, FloatArray, Series
    from ppo_doctor.signals.course import Observations

#: Nats for each action dimension by which the entropy of a density runs off.
PER_DIMENSION, MANY_DIMENSIONS = 0.6, 8.0
#: Of the highest entropy: a choice with less is nearly made. Three sound runs of four keep more to the end.
SPENT, FELL = 0.3, 0.25
#: Of the highest entropy: with less every choice is made. Of what is left to earn: what still counts as a gain.
DECIDED, GAINS = 0.05, 0.1
#: Entropy, in nats, of a policy that has something to lose.
ALIVE = 0.1
#: Nats of entropy that a policy does not lose by chance.
FALLEN = 0.5
#: Changes of entropy, over the larger of its start and 0.3 nats: what counts as moving, and what as standing.
MOVED, SWUNG, STOOD, JITTER = 0.02, 0.3, 0.008, 0.03


def _entropy(observations: Observations) -> tuple[Series, FloatArray] | None:
    series = entropy_of(observations)
    if series is None or np.isfinite(series.values).sum() < 3:
        return None
    return series, finite(series)


def entropy_first_drop(observations: Observations) -> Fact | None:
    """Return the share of the first entropy of a choice that is gone within the first tenth of the records."""
    found = _entropy(observations)
    if found is None or found[1][0] < ALIVE / 2 or not discrete(observations):
        return None
    series, values = found
    soon = values[: max(2, len(values) // 10) + 1]
    drop = float((values[0] - soon.min()) / abs(values[0]))
    return fact(
        "entropy_first_drop",
        drop,
        series,
        f"{series.raw} falls from {values[0]:.3g} to {soon.min():.3g} in {len(soon)} records",
    )


def entropy_left(observations: Observations) -> Fact | None:
    """Return the last entropy of a choice over the highest; None where there never was any."""
    found = _entropy(observations)
    if found is None or found[1].max() < ALIVE or not discrete(observations):
        return None
    series, values = found
    return fact(
        "entropy_left",
        values[-1] / values.max(),
        series,
        f"{series.raw} ends at {values[-1]:.3g} of {values.max():.3g}",
    )


def entropy_growth(observations: Observations) -> Fact | None:
    """Return the gain of entropy over what counts as a run-away: 1 nat, or half of the start and 0.3 nats.

    Of a density it is 0.6 nats for each action dimension, a deviation 1.8 times as large; of eight where nobody knows
    how many there are.
    """
    found = _entropy(observations)
    if found is None:
        return None
    series, values = found
    if discrete(observations):
        least = min(1.0, 0.5 * abs(values[0]) + 0.3)
    else:
        least = PER_DIMENSION * (dimensions(series) or MANY_DIMENSIONS)
    growth = float((values[-1] - values[0]) / least)
    return fact("entropy_growth", growth, series, f"{series.raw} goes from {values[0]:.3g} to {values[-1]:.3g}")


def density_fall(observations: Observations) -> Fact | None:
    """Return the nats for each action dimension that a density lost; None of a choice, and of unknown dimensions."""
    found = _entropy(observations)
    count = None if found is None else dimensions(found[0])
    if found is None or count is None or discrete(observations):
        return None
    series, values = found
    fall = float(values[0] - values[-1]) / count
    return fact("density_fall", fall, series, f"{series.raw} goes from {values[0]:.3g} to {values[-1]:.3g}", "nats")


def gain_once_certain(observations: Observations) -> Fact | None:
    """Return what the reward has gained once a choice has lost most of its entropy for good, as a share of its range.

    1 where entropy is not lost, and where the reward fell by a quarter of its range: more than exploration is lacking.
    0 where the choice is made and the reward has not clearly risen.
    """
    found, paid = _entropy(observations), reward_of(observations)
    if found is None or paid is None or found[1].max() < ALIVE or not discrete(observations):
        return None
    (series, values), (reward, earned) = found, paid
    if len(earned) < FEWEST:
        return None
    held = int(np.flatnonzero(values >= SPENT * values.max())[-1]) + 1
    if held == len(values):
        return fact("gain_once_certain", 1.0, series, f"{series.raw} ends at {values[-1]:.3g} of {values.max():.3g}")
    since = int(series.axis.steps[np.isfinite(series.values)][held])
    steps = reward.axis.steps[np.isfinite(reward.values)]
    few = max(2, len(earned) // 20)
    at = min(int(np.searchsorted(steps, since)), len(earned) - few)
    begun, after = median(earned[:few]), median(earned[at:])
    span = float(np.ptp(np.convolve(earned, np.ones(few) / few, "valid")))
    says = f"{series.raw} stays below {SPENT:.0%} of its highest from step {since} on; {reward.raw} began at "
    gain = (after - begun) / span if span else 0.0
    if gain > 0 and values[-1] < DECIDED * values.max() and does_not_rise(observations):
        gain = 0.0
    told = fact("gain_once_certain", gain if gain > -FELL else 1.0, series, f"{says}{begun:.4g}, is {after:.4g}")
    return replace(told, since=since)


def certain_short(observations: Observations) -> Fact | None:
    """Return what a policy that has made up its mind earns of what can be earned, where it earns no more from then on.

    1 where it has not, where it still gains, and where nobody knows how much can be earned.
    """
    found, paid = _entropy(observations), reward_of(observations)
    if found is None or paid is None or found[1].max() < ALIVE or not discrete(observations):
        return None
    (series, values), (reward, earned) = found, paid
    if len(earned) < FEWEST or not passes(reward) or "reward_std" not in observations.run.series:
        return None
    held = int(np.flatnonzero(values >= DECIDED * values.max())[-1]) + 1
    few = max(2, len(earned) // 10)
    if len(values) - held < few * 2:
        return fact("certain_short", 1.0, series, f"{series.raw} ends at {values[-1]:.3g} of {values.max():.3g}")
    place = int(np.flatnonzero(np.isfinite(series.values))[held])
    since = int(series.axis.steps[place])
    at = int(np.searchsorted(reward.axis.steps[np.isfinite(reward.values)], since))
    rest = earned[min(at, len(earned) - 2 * few) :]
    begun, ends = median(rest[: len(rest) // 2]), median(rest[-few:])
    says = f"{series.raw} stays below {DECIDED:.0%} of its highest from step {since} on; {reward.raw} is {ends:.3g}"
    share = ends if ends - begun < GAINS * (1.0 - ends) else 1.0
    return replace(fact("certain_short", share, series, says), since=since, source=series.source(place))


def bonus_of(observations: Observations) -> float | None:
    """Return the coefficient of the entropy bonus: logged, else as the loss holds it, else configured."""
    logged = values_of(observations, "entropy_coef")
    if logged is not None:
        return float(logged[0])
    held = value_of(observations.fact("bonus_in_loss"))
    if held is not None:
        return held
    return observations.number("ent_coef") if observations.configured("ent_coef") else None


def entropy_bonus(observations: Observations) -> Fact | None:
    """Return the coefficient of the entropy bonus.

    Trainers that are not known may subtract what others add: a negative coefficient of theirs rewards certainty where
    entropy is seen to fall, and None tells nothing where it is not.
    """
    bonus = bonus_of(observations)
    series = series_of(observations, "entropy_coef")
    held = observations.fact("bonus_in_loss") if series is None else None
    if held is not None:
        return replace(held, name="entropy_bonus")
    unknown = series is None and observations.run.framework == "canonical"
    if bonus is not None and bonus < 0 and unknown and not _falls(observations):
        return None
    if bonus is None:
        return None
    told = fact("entropy_bonus", bonus, series, f"the entropy coefficient is {bonus:g}")
    setting = observations.run.config.get("ent_coef") if series is None else None
    return told if setting is None else replace(told, source=setting.source)


def _falls(observations: Observations) -> bool:
    """Tell whether the entropy is seen to fall by more than a policy that learns slowly loses."""
    found = _entropy(observations)
    return found is not None and float(found[1][0] - found[1][-1]) > FALLEN


def entropy_held_high(observations: Observations) -> Fact | None:
    """Tell whether the entropy stays at its highest, or runs up; that of a choice also where it rises to its end."""
    found, growth = _entropy(observations), observations.fact("entropy_growth")
    if found is None or growth is None:
        return None
    series, values = found
    top = abs(values.max())
    held = np.ptp(values) < 0.05 * top or (discrete(observations) and values.min() > values[0] - 0.02 * top)
    held &= abs(values[-1] - values.max()) < 0.02 * top
    says = f"{series.raw} ends at {values[-1]:.3g}, its highest being {values.max():.3g}"
    return condition("entropy_held_high", bool(held or float(str(growth.value)) > 1), series, says)


def entropy_moves(observations: Observations) -> Fact | None:
    """Tell whether the entropy leaves where it began, or drifts, by more than states that change explain."""
    series = entropy_of(observations)
    told = None if series is None else course(finite(series))
    if series is None or told is None:
        return None
    scale = max(abs(told.start), 0.3)
    moved = abs(told.end - told.start) > MOVED * scale and abs(told.change) > 4
    swing = float(np.ptp(finite(series)))
    swung = swing > SWUNG * scale or (swing > JITTER * scale and drift(finite(series)) > DRIFTS)
    says = f"{series.raw} goes from {told.start:.4g} to {told.end:.4g}"
    if not (moved or swung) and len(finite(series)) < FEWEST:
        return None  # too few records to say that nothing moves
    return condition("entropy_moves", moved or swung, series, says)


def entropy_stands(observations: Observations) -> Fact | None:
    """Tell whether the entropy stays where it began, up to the jitter of the states that it is averaged over."""
    series = entropy_of(observations)
    told = None if series is None else course(finite(series))
    if series is None or told is None:
        return None
    scale, swing = max(abs(told.start), 0.3), float(np.ptp(finite(series)))
    stands = swing < 0.01 * scale or (abs(told.end - told.start) < STOOD * scale and swing < JITTER * scale)
    lowest, highest = float(finite(series).min()), float(finite(series).max())
    says = f"{series.raw} stays between {lowest:.4g} and {highest:.4g}" if swing else f"{series.raw} stays {lowest:.4g}"
    return condition("entropy_stands", stands, series, says)
