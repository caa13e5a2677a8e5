"""Does the new policy differ from the old one that the ratio is taken against?"""

from __future__ import annotations

import dataclasses
import math
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside, finite_of, median
from ppo_doctor.arrays import same as same_number
from ppo_doctor.derive.policy import while_alive
from ppo_doctor.model import EXACT, Fact, Resolution, Series

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import BoolArray, FloatArray, IntArray

#: Share of its choices that a policy may have changed over the run behind the digits that are printed.
HIDDEN = 0.01
#: Logarithm of the choices that a policy has at most where an entropy is compared with the share that changed.
MOST_CHOICES = 4.0
#: Metrics that are at their identity value exactly when new and old log-probs agree on every sample.
IDENTITIES = (
    ("approx_kl", 0.0),
    ("ratio_std", 0.0),
    ("ratio_abs_dev", 0.0),
    ("ratio_max", 1.0),
    ("ratio_min", 1.0),
    ("ratio_mean", 1.0),
    ("approx_kl_k1", 0.0),
)


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
    together = [(here, at) for s, at in held if (here := beside(first, s)) is not None]
    values = reduce(np.fmax, (_off(s, at) for s, at in together))  # fmax passes over NaN
    departure = Series(
        name="ratio_departure",
        raw=", ".join(s.raw if at == 0 else f"{s.raw} - 1" for s, at in together),
        axis=first.axis,
        values=values,
        resolution=_resolution(observations, [s for s, _ in together]),
        how="computed",
    )
    return while_alive(observations, departure)


def _resolution(observations: Observations, held: list[Series]) -> Resolution:
    """Return how exactly a distance from identity is known: exactly, where no print could hide what the policy moved.

    An update changes at most √(KL/2) of the choices (Pinsker), and half as much as its ratios deviate. A share T of
    the choices that changed changes an entropy by T ln(n) - T ln(T) - (1 - T) ln(1 - T) at most (Fannes, Audenaert).
    """
    moved = observations.fact("moves_apart_from_ratio")
    hidden = (
        len(s) * (math.sqrt(s.resolution.absolute / 2) if s.name == "approx_kl" else s.resolution.absolute / 2)
        for s in held
    )
    share = min(hidden)
    if (
        moved is not None
        and moved.value == 1
        and (share < HIDDEN or _entropy_within(share) < _entropy_moved(observations))
    ):
        return EXACT
    return Resolution(absolute=max(s.resolution.absolute for s in held))


def _entropy_within(share: float) -> float:
    """Return by how much an entropy can differ at most where so much of the choices changed, in nats."""
    if share >= 0.5:
        return math.inf
    rest = -share * math.log(share) - (1 - share) * math.log(1 - share) if share > 0 else 0.0
    return share * MOST_CHOICES + rest


def _entropy_moved(observations: Observations) -> float:
    """Return how far apart the entropies of the first and the last quarter lie, in nats."""
    entropy = observations.run.series.get("entropy")
    known = finite_of(entropy.values) if entropy is not None else np.zeros(0)
    part = len(known) // 4
    return abs(median(known[:part]) - median(known[-part:])) if part else 0.0


def _off(series: Series, identity: float) -> FloatArray:
    """Return how far a metric is from its value at identity: 0 where rounding explains it, NaN where it is unknown."""
    off = np.where(series.at(identity), 0.0, np.abs(series.values - identity))
    known = np.isfinite(off)
    return off if known.all() else np.where(known, off, np.nan)


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


def _pass_length(observations: Observations) -> int | None:
    """Return the optimizer steps of one pass over a generation batch; None when passes do not repeat the batch."""
    repeats = observations.run.facts.get("epochs_repeat_batch")
    observed = observations.fact("updates_observed")
    passes = observations.number("ppo_epochs")
    if not isinstance(repeats, Fact) or observed is None or not passes or not observations.configured("ppo_epochs"):
        return None
    steps = float(str(observed.value))
    lag = steps / passes
    return int(lag) if passes > 1 and lag >= 1 and lag.is_integer() else None


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
