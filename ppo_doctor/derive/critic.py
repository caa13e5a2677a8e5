"""Does the critic predict returns, and do its targets stay in bounds?"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import BoolArray, FloatArray, Series

#: Below this share of the run's largest spread of returns, or of its square in the loss, returns count as constant.
ALIVE = 0.1
#: What pays, and the share of its range by which a reward that changes does so from record to record.
REWARDS, STILL = ("episode_return", "reward_mean"), 1e-3
#: Finite records that a statement about the critic needs.
LEAST = 6
#: Optimizer steps below which explained variance near 0 is a beginner's. Measured in this project's lab, one step per
#: batch: 60 steps at a sound learning rate leave it at 0.05, 60 at four times that rate reach 0.9.
FEWEST_STEPS = 100
#: An estimator: a mean square error over a variance, as trl 0.11 has it: a constant error of the critic counts.
WITH_BIAS = "with bias"
#: The mean of the returns has to move by this many scatters before a critic can be said not to follow it.
MOVED = 3.0


def explained_variance_trained(observations: Observations) -> Series | None:
    """Return the explained variance where it measures what the critic learnt: above 0, and where returns vary.

    None where the logged number counts the critic's bias: it says nothing of the rest then; and where the whole log
    holds fewer than 100 optimizer steps, as with one per batch: a sound critic starts at 0 and needs that many.
    """
    series = observations.run.series.get("explained_variance")
    if series is None or series.estimator == WITH_BIAS or hardly_trained(observations, series):
        return None
    alive = _alive(observations, series)
    values = series.values if alive is None else np.where(alive | (series.values > 0), series.values, np.nan)
    return dataclasses.replace(series, name="explained_variance_trained", values=values, how="computed")


def hardly_trained(observations: Observations, series: Series) -> bool:
    """Tell whether a log whose records are those of a series holds fewer than 100 optimizer steps."""
    updates = observations.fact("updates_known")
    return updates is not None and float(str(updates.value)) * len(series) < FEWEST_STEPS


def explained_variance_alive(observations: Observations) -> Series | None:
    """Return the explained variance in records whose returns vary; elsewhere NaN.

    It is 1 - Var(R - V)/Var(R), so that constant returns send it to -infinity whatever the critic does. What varies is
    judged by the returns' own spread, else by the value loss, which is at least their variance for a critic below 0,
    else by whether the reward changes from record to record.
    A critic's constant error is taken out where the logged number counts it. Where the spread of the values that
    advantages were taken against is logged, the number is at most 1 - (sd V/sd R - 1)², since Var(R - V) is at least
    (sd R - sd V)².
    """
    series = observations.run.series.get("explained_variance")
    alive = _alive(observations, series) if series is not None else None
    if series is None or alive is None:
        return None
    values = np.where(
        alive, np.minimum(series.values + _bias(observations, series), _at_most(observations, series)), np.nan
    )
    return dataclasses.replace(series, name="explained_variance_alive", values=values, how="computed")


def _bias(observations: Observations, series: Series) -> FloatArray:
    """Return what a constant error of the critic takes from the logged number: its square over the variance."""
    returns, values = (_beside(observations, series, f"{name}_mean") for name in ("returns", "values"))
    spread = _spread(observations, series, "returns")
    if series.estimator != WITH_BIAS or returns is None or values is None or spread is None:
        return np.zeros(len(series))
    return np.asarray(((returns - values) / np.where(spread > 0, spread, np.nan)) ** 2)


def _at_most(observations: Observations, series: Series) -> FloatArray:
    returns, values = _spread(observations, series, "returns"), _spread(observations, series, "values")
    if returns is None or values is None:
        return np.full(len(series), np.inf)
    times = values / np.where(returns > 0, returns, np.nan)
    return np.where(times > 1, 1 - (times - 1) ** 2, np.inf)


def _spread(observations: Observations, series: Series, name: str) -> FloatArray | None:
    """Return the logged standard deviation of returns or values, per record of a series."""
    logged = _beside(observations, series, f"{name}_std")
    variance = _beside(observations, series, f"{name}_var")
    return logged if logged is not None or variance is None else np.sqrt(np.maximum(variance, 0))


def _beside(observations: Observations, series: Series, name: str) -> FloatArray | None:
    """Return the values of another metric at the records of a series."""
    other = beside(series, observations.run.series.get(name))
    return None if other is None else other.values


def _alive(observations: Observations, series: Series) -> BoolArray | None:
    name, share = ("returns_std", ALIVE) if "returns_std" in observations.run.series else ("value_loss", ALIVE**2)
    spread = _beside(observations, series, name)
    if spread is None or not np.isfinite(spread).any():
        return _reward_changes(observations, series)
    largest = float(np.nanmax(np.where(np.isfinite(spread), spread, np.nan)))
    return np.asarray(spread >= share * largest) & (largest > 0)


def _reward_changes(observations: Observations, series: Series) -> BoolArray | None:
    """Tell in which records the reward differs from that of the record before or after; None without a reward."""
    paid = next((p for name in REWARDS if (p := _beside(observations, series, name)) is not None), None)
    if paid is None or not np.isfinite(paid).any():
        return None
    known = np.where(np.isfinite(paid), paid, np.nan)
    step = np.abs(np.diff(known)) > STILL * (np.nanmax(known) - np.nanmin(known))
    return np.concatenate(([False], step)) | np.concatenate((step, [False]))
