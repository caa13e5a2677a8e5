"""Does the new policy differ from the old one that the ratio is taken against?"""

from __future__ import annotations

import dataclasses
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor import rounding
from ppo_doctor.arrays import distinct, finite_median, median
from ppo_doctor.arrays import same as same_number
from ppo_doctor.derive.policy import while_alive
from ppo_doctor.model import EXACT, Fact, Resolution, Series

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import BoolArray, FloatArray, IntArray

#: Metrics that are at their identity value exactly when new and old log-probs agree on every sample.
IDENTITIES = (
    ("approx_kl", 0.0),
    ("ratio_std", 0.0),
    ("ratio_max", 1.0),
    ("ratio_min", 1.0),
    ("ratio_mean", 1.0),
    ("approx_kl_k1", 0.0),
)

#: Updates that moved, below which a share of idle ones says nothing.
LEAST_MOVED = 5
#: Nats below which other actions come about once in a thousand samples: the gradient of a log-prob is as small, which
#: the epsilon of an optimizer outweighs, so that ratios stay at 1 although steps are taken.
HARDLY_A_CHOICE = 0.01
#: Means of float32 ratios are good to 1e-7; a thousand times that is no rounding.
OFF_ONE = 1e-4
#: What TRL's PPO logs as the variance of the ratio.
CELLS = "variance of minibatch means"


def ratio_departure(observations: Observations) -> Series | None:
    """Return the largest distance of any ratio metric from its value at identity, per record.

    0, also where rounding alone explains it, means that the new log-probs were compared with themselves, or that
    nothing moved. A mean alone (k1, the ratio's mean) is used only beside another, since it may cancel to its identity.
    A policy that always acts alike has ratio 1 by that, so its records are left out.
    """
    held = [(s, at) for name, at in IDENTITIES if (s := observations.run.series.get(name)) is not None and len(s)]
    if not held or held[0][0].name in ("ratio_mean", "approx_kl_k1"):
        return None
    first = held[0][0]
    together = [(s, at) for s, at in held if s.axis is first.axis]
    values = reduce(np.fmax, (_off(s, at) for s, at in together))  # fmax passes over NaN
    departure = Series(
        name="ratio_departure",
        raw=", ".join(s.raw if at == 0 else f"{s.raw} - 1" for s, at in together),
        axis=first.axis,
        values=values,
        resolution=Resolution(absolute=max(s.resolution.absolute for s, _ in together)),
        how="computed",
    )
    return while_alive(observations, departure)


def _off(series: Series, identity: float) -> FloatArray:
    """Return how far a metric is from its value at identity: 0 where rounding explains it, NaN where it is unknown."""
    off = np.where(series.at(identity), 0.0, np.abs(series.values - identity))
    known = np.isfinite(off)
    return off if known.all() else np.where(known, off, np.nan)


def idle_updates_share(observations: Observations) -> Fact | None:
    """Return the share of updates, between others that moved, after which the ratio is still exactly 1.

    With live advantages and K > 1 one executed step changes log-probs, so such an update executed none. None where
    records are single steps (each batch's first is 1 by construction), where zeros come at an even pace for that
    reason, where they are rounded, where the rest is float noise, which hits 0 by chance, or where nothing in the log
    tells whether there was a signal to follow.
    """
    departure = observations.series("ratio_departure")
    if departure is None or departure.resolution.absolute > 0 or departure.axis.minibatch is not None:
        return None
    signal = _with_signal(observations, departure)
    if signal is None:
        return None
    values = departure.values[np.isfinite(departure.values) & signal]
    moved = np.flatnonzero(values > 0)
    if len(moved) < LEAST_MOVED or median(values[moved]) < rounding.EXTREME:
        return None
    inside = values[moved[0] : moved[-1] + 1]
    idle = np.flatnonzero(inside == 0)
    if len(idle) >= 2 and len(distinct(np.diff(idle))) == 1:
        return None
    says = f"{len(idle)} of {len(inside)} records between the first and the last that moved"
    share = len(idle) / len(inside)
    source = departure.source()
    return Fact(name="idle_updates_share", value=share, how="observed", unit="of updates", source=source, says=says)


def _with_signal(observations: Observations, series: Series) -> BoolArray | None:
    """Return where a record's batch had something to learn from; None where no logged metric tells.

    Without it a ratio of 1 is no wonder: advantages that are all zero, returns that are all equal (explained variance
    is then not defined), or a policy loss of exactly 0, which live advantages never give. Nor is it where the policy
    hardly chooses any more.
    """
    held = [observations.series(name) for name in ("advantage_spread", "explained_variance", "policy_loss")]
    told = [
        np.isfinite(found.values) if found.name == "explained_variance" else ~found.at(0)
        for found in held
        if found is not None and found.axis is series.axis
    ]
    choice = observations.series("choice_entropy")
    if told and choice is not None and choice.axis is series.axis:
        told.append(~(choice.values < HARDLY_A_CHOICE))
    return np.logical_and.reduce(told) if told else None


def ratio_trace(observations: Observations) -> Series | None:
    """Return what the log shows of the ratio: its departure from 1, else the clip fraction."""
    return observations.series("ratio_departure") or observations.run.series.get("clip_fraction")


#: Loss beside which float32 (2^-23 of it) does not hold the thousandths that a step changes.
FLOAT_SHOWS = 1e4
#: Steps of a pass of which more do not count.
MANY_STEPS = 8.0


def loss_change_within_batch(observations: Observations) -> Series | None:
    """Return |loss - loss one pass earlier| over the root of a pass's steps (TRL GRPO, one record per optimizer step).

    With ratio 1 and no KL term the surrogate of a batch does not depend on the weights, so it repeats bitwise. With a
    KL term it does, and a repeat says something else: NaN there.
    """
    change = _change_within_batch(observations, "loss")
    if change is None:
        return None
    loss = observations.run.series["loss"]
    size = np.abs(loss.values[np.searchsorted(loss.axis.steps, change.axis.steps)])
    unknown = size > FLOAT_SHOWS
    if observations.number("kl_coef"):
        unknown |= change.at(0)
    # A pass of several steps moves a loss by more than one step does: by the root of their number, as they differ.
    steps = min(float(_pass_length(observations) or 1), MANY_STEPS) ** 0.5
    return dataclasses.replace(change, values=np.where(unknown, np.nan, change.values / steps))


def gradient_change_within_batch(observations: Observations) -> Series | None:
    """Return |grad_norm - grad_norm one pass earlier| on the same generation batch; 0 means that nothing moved."""
    return _change_within_batch(observations, "grad_norm")


def _change_within_batch(observations: Observations, name: str) -> Series | None:
    series = observations.run.series.get(name)
    lag = _pass_length(observations)
    if series is None or lag is None or not len(series):
        return None
    batch = _batch_of(observations, series)
    alive = _alive(observations, batch)
    size = len(series) - lag
    if size < 1:
        return None
    # A change of 0 needs both values in full; batches without any advantage repeat for another reason.
    same = (batch[lag:] == batch[:-lag]) & (batch[lag:] >= 0) & alive[lag:]
    index = np.flatnonzero(same) + lag
    axis = series.axis.take(index)
    with np.errstate(invalid="ignore"):  # infinite minus infinite is NaN, which no rule compares
        values = np.abs(series.values[index] - series.values[index - lag])
    values[same_number(series.values[index], series.values[index - lag])] = 0.0
    return dataclasses.replace(
        series,
        name=f"{name}_change_within_batch",
        raw=f"change of {series.raw} from pass to pass",
        axis=axis,
        values=values,
        resolution=series.resolution.scaled(2),
        how="computed",
    )


#: Fewest batches of which a share is taken.
FEWEST_BATCHES = 20
#: A change below this part of the typical loss is rounding.
ROUNDING = 1e-5


def batches_that_fall(observations: Observations) -> Fact | None:
    """Return the share of generation batches whose loss is lower on the last pass over them than on the first.

    A step down a gradient lowers the loss of the rows that it was taken on, whatever the advantages are worth. Batches
    whose loss repeats to within rounding count for neither side; None with fewer than twenty others.
    """
    loss, lag = observations.run.series.get("loss"), _pass_length(observations)
    passes = observations.number("ppo_epochs")
    if loss is None or lag is None or not passes:
        return None
    fell = _falls(loss, _batch_of(observations, loss), lag, int(passes) * lag)
    if len(fell) < FEWEST_BATCHES:
        return None
    share = float(np.mean(fell < 0))
    says = f"{loss.raw} is lower on the last pass than on the first in {share:.0%} of {len(fell)} batches"
    return Fact(name="batches_that_fall", value=share, how="computed", source=loss.source(), says=says)


def _falls(loss: Series, batch: IntArray, lag: int, size: int) -> FloatArray:
    """Return last pass minus first, summed over the steps of a pass, for batches that are logged whole."""
    starts = np.flatnonzero(np.diff(batch, prepend=-1) != 0)
    ends = np.append(starts[1:], len(batch))
    whole = starts[(ends - starts == size) & (batch[starts] >= 0)]
    values = loss.values
    changes = np.array([values[s + size - lag : s + size].sum() - values[s : s + lag].sum() for s in whole])
    known = changes[np.isfinite(changes)] if len(changes) else changes
    least = max(ROUNDING * finite_median(np.abs(values)), 2 * lag * loss.resolution.absolute)
    return np.asarray(known[np.abs(known) > least])


def _pass_length(observations: Observations) -> int | None:
    """Return the optimizer steps of one pass over a generation batch; None when passes do not repeat the batch."""
    repeats = observations.run.facts.get("epochs_repeat_batch")
    observed = observations.fact("updates_observed")
    passes = observations.number("ppo_epochs")
    if not isinstance(repeats, Fact) or observed is None or not passes or not observations.configured("ppo_epochs"):
        return None
    steps = float(str(observed.value))
    lag = steps / passes
    return int(lag) if passes > 1 and lag >= 1 and lag == int(lag) else None


def _batch_of(observations: Observations, series: Series) -> IntArray:
    """Return the number of the generation batch that each record belongs to, -1 before the first."""
    generation = observations.run.series["reward_mean"]
    return np.searchsorted(generation.axis.steps, series.axis.steps, side="right").astype(np.int64) - 1


def _alive(observations: Observations, batch: IntArray) -> BoolArray:
    spread = observations.series("advantage_spread")
    if spread is None or not len(spread):
        return np.ones(len(batch), dtype=bool)
    index = np.clip(batch, 0, len(spread) - 1)
    return np.asarray(~spread.at(0)[index])


def ratio_change_over_offset(observations: Observations) -> Series | None:
    """Return by how much the minibatches of an update differ in their mean ratio, over how far it is from 1.

    Every step moves the ratios. Where they are away from 1 and the same on every pass over a batch, no step was taken
    in between: old log-probs are not the policy's, and the policy stands still. NaN where the mean is nearer to 1 than
    float32 means can tell from it.
    """
    mean, spread = (observations.run.series.get(name) for name in ("ratio_mean", "ratio_batch_var"))
    if mean is None or spread is None or mean.axis is not spread.axis or spread.aggregation not in (None, CELLS):
        return None
    off = np.abs(mean.values - 1)
    change = np.sqrt(np.maximum(spread.values, 0) + spread.resolution.absolute)
    told: FloatArray = np.where(off > OFF_ONE + mean.resolution.absolute, change / np.maximum(off, OFF_ONE), np.nan)
    says = f"how far {spread.raw} lets minibatches differ, over how far {mean.raw} is from 1"
    return dataclasses.replace(
        mean, name="ratio_change_over_offset", values=told, unit="", resolution=EXACT, how="computed", says=says
    )
