"""Does the critic learn, and is it let?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_median, median
from ppo_doctor.signals.course import (
    any_known,
    both,
    condition,
    constant,
    course,
    fact,
    finite,
    given,
    late,
    on_average,
    paired,
    series_of,
    told_of,
    truth_of,
    value_of,
    values_of,
)
from ppo_doctor.signals.rewards import does_not_rise, reward_of

if TYPE_CHECKING:
    from ppo_doctor.model import Fact
    from ppo_doctor.signals.course import Observations

#: Records of which a usual number is told.
MANY = 8
#: Value losses beside which the policy gets no step, and whose roots no critic reaches.
LARGE, OUT_OF_REACH = 1e4, 1e5
#: KL of an update that is a twentieth of a usual one, in nats.
NEXT_TO_NO_KL = 5e-4
#: Explained variance of a critic that explains nothing.
EXPLAINS = 0.05
#: A gradient norm of which no usual bound leaves a hundredth.
SWAMPED, HALF_LEFT = 100.0, 0.5
#: Records, at least, in which an explained variance repeats, in how fine a print, and up to where it varies.
LASTS, FINE, FAR_FROM_ONE = 20, 1e-3, 0.95
#: What is left of a value loss that does not fall, and times the squared returns beyond which it is not the rewards'.
STAYS, BEYOND = 0.7, 100


def value_loss_left(observations: Observations) -> Fact | None:
    """Return the late value loss over the first; 1 where the change is within its scatter."""
    series = series_of(observations, "value_loss")
    told = None if series is None else course(np.log(np.maximum(finite(series), 1e-30)))
    if series is None or told is None:
        return None
    clear = abs(told.change) > 2
    left = float(np.exp(told.end - told.start)) if clear else 1.0
    return fact(
        "value_loss_left",
        left,
        series,
        on_average(series.raw, float(np.exp(told.start)), float(np.exp(told.end)))
        + ("" if clear else ", within its scatter"),
    )


def explained_at_end(observations: Observations) -> Fact | None:
    """Return the median explained variance of the last quarter."""
    series = series_of(observations, "explained_variance")
    if series is None or len(series) < 3:
        return None
    level = float(median(late(finite(series))))
    return fact("explained_at_end", level, series, f"{series.raw} is {level:.3g} at the end")


def values_beside_error(observations: Observations) -> Fact | None:
    """Return the size of the mean prediction over the root of the value loss, in the medians of the later half."""
    values, losses = values_of(observations, "values_mean"), values_of(observations, "value_loss")
    if values is None or losses is None or min(len(values), len(losses)) < MANY:
        return None
    size = float(median(np.abs(values[len(values) // 2 :])))
    error = float(np.sqrt(median(np.abs(losses[len(losses) // 2 :]))))
    if error == 0:
        return None
    says = f"predictions of {size:.3g} beside an error of {error:.3g}"
    return fact("values_beside_error", size / error, series_of(observations, "values_mean"), says)


#: A critic whose explained variance ends below this has not shown that it explains anything.
EXPLAINS_SOME = 0.1


def critic_learns(observations: Observations) -> Fact | None:
    """Tell whether the value loss clearly falls, or the explained variance clearly rises."""
    left, level = value_of(observations.fact("value_loss_left")), value_of(observations.fact("explained_at_end"))
    explained = values_of(observations, "explained_variance")
    begun = 0.0 if explained is None else float(median(explained[:3]))
    rises = None if level is None else level > 0.3 and level > begun + 0.1
    falls = None if left is None else left < 0.6
    if falls and level is not None and level < EXPLAINS_SOME and not rises:
        return None  # returns may have become smaller
    holds = any_known(falls, rises)
    says = told_of(observations, "value_loss_left", "explained_at_end")
    return condition("critic_learns", holds, series_of(observations, "value_loss"), says)


def explained_repeats(observations: Observations) -> Fact | None:
    """Tell whether the explained variance is one number to the last bit though the value loss changes.

    One that is so from some record on counts where the reward stands as well, and where it is far from 1, near which
    it hardly varies.
    """
    series, losses = series_of(observations, "explained_variance"), series_of(observations, "value_loss")
    if series is None or np.isfinite(series.values).sum() < 4:
        return None
    values = finite(series)
    moving = None if losses is None else not constant(finite(losses))
    holds, says = both(constant(values) and abs(values[0]) > 1e-9, moving), "in every record"
    lasts = int(np.argmax(values[::-1] != values[-1]))  # 0 where all are one number
    rewards = reward_of(observations)
    enough = max(LASTS, len(values) // 3)
    if lasts >= enough and series.resolution.absolute < FINE and 0 < abs(values[-1]) < FAR_FROM_ONE and rewards:
        moving = None if losses is None else not constant(finite(losses)[-enough:])
        holds, says = both(constant(rewards[1][-enough:]), moving), f"in the last {lasts} records"
    return condition("explained_repeats", holds, series, f"{series.raw} is {values[-1]:.6g} {says}")


def value_loss_kept(observations: Observations) -> Fact | None:
    """Return what value clipping leaves of the value loss."""
    clipped, whole = series_of(observations, "value_loss"), series_of(observations, "value_loss_unclipped")
    if clipped is None or whole is None:
        return None
    left, all_of_it = paired(clipped, whole)
    if not len(left):
        return None
    kept = float(median(left / np.maximum(all_of_it, 1e-30)))
    return fact("value_loss_kept", kept, clipped, f"{clipped.raw} is {kept:.2g} of the loss before clipping")


def value_clip_over_returns(observations: Observations) -> Fact | None:
    """Return the value clip range over the largest |return|."""
    logged = values_of(observations, "clip_range_vf")
    size = given(observations, "clip_range_vf") if logged is None else float(median(logged))
    returns = values_of(observations, "episode_return", "returns_mean", "reward_mean")
    if size is None or returns is None or np.abs(returns).max() == 0:
        return None
    over = size / float(np.abs(returns).max())
    return fact(
        "value_clip_over_returns",
        over,
        series_of(observations, "value_loss"),
        f"values may move by {size:g} beside returns of {np.abs(returns).max():.3g}",
    )


def critic_drowns_policy(observations: Observations) -> Fact | None:
    """Tell whether a value loss above 1e4 leaves the policy no step or no gain, or one above 1e5 the critic no hope.

    Policy and critic share the bound of the gradient norm. Errors in the thousands are out of reach for a network
    whose outputs begin at 1 and whose weights move by the learning rate per step: such a loss does not fall. Far beyond
    the squared returns they are not the rewards'.
    """
    losses, usual = series_of(observations, "value_loss"), value_of(observations.fact("divergence_usual"))
    stands = truth_of(observations.fact("policy_stands")) if usual is None else usual < 5e-6
    left = value_of(observations.fact("value_loss_left"))
    if losses is None or (stands is None and left is None):
        return None
    size = float(finite_median(losses.values))
    beside = "beside a policy that stands still" if usual is None else f"at a KL of {usual:.2g}"
    norms = values_of(observations, "grad_norm")
    norm = 0.0 if norms is None else float(median(norms))
    stays = left is not None and left > HALF_LEFT
    small = usual is not None and usual < NEXT_TO_NO_KL and norm > 10 * SWAMPED
    swamped = size > LARGE and norm > SWAMPED and (stays or small or does_not_rise(observations))
    if swamped:
        which = "a reward that does not rise"
        which = f"{left:.2g} of the first is left" if stays else f"a KL of {usual:.2g}" if small else which
        beside = f"at a gradient norm of {norm:.3g}, and {which}"
    beyond = (value_of(observations.fact("value_loss_over_returns")) or 0.0) > BEYOND
    drowns = swamped or (size > LARGE and stands is True)
    explained = value_of(observations.fact("explained_at_end"))
    none = explained is not None and abs(explained) < EXPLAINS
    hopeless = size > OUT_OF_REACH and left is not None and (left > STAYS or none) and not beyond
    says = f"{losses.raw} is {size:.3g} {beside if drowns or left is None else f'and {left:.2g} of the first is left'}"
    return condition("critic_drowns_policy", drowns or hopeless, losses, says)


def values_clipped_usually(observations: Observations) -> Fact | None:
    """Return the median share of value predictions that are clipped."""
    clipped = series_of(observations, "value_clip_fraction")
    if clipped is None or len(finite(clipped)) < MANY:
        return None
    part = float(median(finite(clipped)))
    return fact("values_clipped_usually", part, clipped, f"{clipped.raw} is {part:.3g} in the median")


def value_loss_over_returns(observations: Observations) -> Fact | None:
    """Return the median value loss of the later half over the square of the largest |return|, reward or deviation.

    None where all of these are 0, and of few records: an untrained critic may be off by anything.
    """
    loss = series_of(observations, "value_loss")
    paid = ("episode_return", "eval_return", "reward_mean", "reward_total", "reward_std")
    held = [np.abs(values).max() for name in paid if (values := values_of(observations, name)) is not None]
    largest = float(max(held, default=0.0))
    if loss is None or not largest or len(finite(loss)) < MANY:
        return None
    size = float(median(np.abs(finite(loss)[len(finite(loss)) // 2 :])))
    says = f"{loss.raw} is {size:.3g} in the median, the largest return {largest:.3g}"
    return fact("value_loss_over_returns", size / largest / largest, loss, says, "times the squared return")
