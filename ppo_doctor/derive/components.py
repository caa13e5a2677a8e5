"""The parts that a reward is the sum of: does one of them stop while the others go on?"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import distinct, finite_median, finite_of, mean_of, median, same
from ppo_doctor.derive.conditions import condition

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import BoolArray, FloatArray, Series

#: What the series of parts are called, the part's name behind it.
PART = "reward_component."
#: Records that tell whether a part pays; that tell whether it stopped; that it has to have varied for before that.
FEWEST, ENOUGH, BEFORE = 8, 20, 5
#: A part that pays its least in more than this share of the records before is one that is seldom earned.
SELDOM = 0.2
#: Share of its level that a part still has in the last records before it stops; a policy that loses it takes longer.
ABRUPT = 0.5


def reward_parts(observations: Observations) -> list[Series]:
    """Return the logged parts of the reward that have enough records, in the order of their names."""
    series = observations.run.series
    return [series[name] for name in sorted(series) if name.startswith(PART) and len(series[name]) >= FEWEST]


def reward_part_stopped(observations: Observations) -> Series | None:
    """Return 1 for each record from which on a part of the reward is one and the same number, or none, and else 0.

    The part varied before, nearly always paid more than that, and fell from one record to the next, while another part
    goes on: a part that is fulfilled, one that is seldom earned, and a policy that loses everything are none of these.
    None where no two parts are logged that varied.
    """
    parts = reward_parts(observations)
    alive = [part for part in parts if len(part) >= ENOUGH and _varies(part.values)]
    if len(alive) < 2:
        return None
    tails = {part.name: _stopped(part.values) for part in alive}
    first = min(alive, key=lambda part: tails[part.name] / len(part))
    at = tails[first.name]
    others = [part for part in alive if part is not first and _together(part, first)]
    goes_on = any(_varies(part.values[at:]) or _kept(part.values, at) for part in others)
    values = (np.arange(len(first)) >= (at if goes_on else len(first))).astype(np.float64)
    return _stuck(first, "reward_part_stopped", values)


def reward_stopped(observations: Observations) -> Series | None:
    """Return 1 for each record from which on the whole reward is one and the same number, its least so far, and else 0.

    As a part that stops: it varied before, nearly always paid more, and fell from one record to the next.
    """
    rewards = [observations.run.series.get(name) for name in ("reward_mean", "episode_return")]
    told = [series for series in rewards if series is not None and len(series) >= ENOUGH and _varies(series.values)]
    if not told:
        return None
    first = min(told, key=lambda series: _stopped(series.values) / len(series))
    values = (np.arange(len(first)) >= _stopped(first.values)).astype(np.float64)
    return _stuck(first, "reward_stopped", values)


def _stuck(part: Series, name: str, values: FloatArray) -> Series:
    return condition(part, name, values, f"{part.raw} stuck at its least, or missing,")


def paying_level(observations: Observations) -> Series | None:
    """Return the reward's level between floor and ceiling, 0 at records where a part of it pays nothing any more.

    A part that is 0 or no number all along, beside parts that pay, pays nothing either.
    """
    level = observations.series("reward_level")
    if level is None:
        return None
    parts = [part for part in reward_parts(observations) if _together(part, level)]
    if not any(np.nan_to_num(part.values).any() for part in parts):
        return dataclasses.replace(level, name="paying_level")
    dead = np.zeros(len(level), dtype=np.bool_)
    for part in parts:
        dead |= _nothing(part.values)
    stopped = observations.series("reward_part_stopped")
    if stopped is not None and _together(stopped, level):
        dead |= stopped.values > 0
    values = np.where(dead, 0.0, level.values)
    says = f"{level.raw}, or a part of it," if dead.any() else ""
    return dataclasses.replace(level, name="paying_level", values=values, says=says)


def _together(one: Series, other: Series) -> bool:
    """Tell whether two series have the same records; a run that was cut has an axis for each."""
    return one.axis is other.axis or np.array_equal(one.axis.steps, other.axis.steps)


def _varies(values: FloatArray) -> bool:
    return len(distinct(finite_of(values))) > 2


def _nothing(values: FloatArray) -> BoolArray:
    """Tell, for each record, whether a part pays nothing in the whole run."""
    return np.full(len(values), not np.nan_to_num(values).any(), dtype=np.bool_)


def _stopped(values: FloatArray) -> int:
    """Return the record from which on a part is constant at its least, or no number; their count where it never is.

    Nothing is what a function pays that fails: of a part that was a cost throughout it is the most, and stops there.
    """
    size = len(values)
    last = values[-1]
    if last == 0 and not (np.nan_to_num(values) > 0).any():
        values = -values
    alike = np.isnan(values) if np.isnan(last) else same(values, last)
    at = int(np.flatnonzero(~alike)[-1]) + 1 if (~alike).any() else 0
    before = values[:at][np.isfinite(values[:at])]
    if len(before) < BEFORE or not _varies(before):
        return size
    least = float(before.min())
    seldom = mean_of(same(before, last)) <= SELDOM
    if np.isfinite(last) and not (seldom and (last <= least or same(values[-1:], least).all())):
        return size
    level = last if np.isfinite(last) else 0.0
    abrupt = median(before[-BEFORE // 2 :]) - level >= ABRUPT * (median(before[-4 * BEFORE :]) - level)
    return at if abrupt else size


def _kept(values: FloatArray, at: int) -> bool:
    """Tell whether a part pays at least half of what it did before a record."""
    before, after = finite_median(values[:at]), finite_median(values[at:])
    return bool(after > 0 and after >= 0.5 * before)
