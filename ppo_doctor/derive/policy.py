"""Does the policy itself move, whatever the ratio says?"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside, finite_of, mean_of, variance_of
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray, Series

#: Records per third below which a drift of entropy cannot be told from noise.
LEAST = 6
#: Records per third from which the calmer third alone tells the noise.
ENOUGH = 10
#: Share of the entropy that counts as one standard error at least: six of them are a tenth of a per cent, which starved
#: steps stay below and learning passes within a few updates (measured in this project's lab).
CREEP = 2e-4
#: Below this entropy (nats) all other choices together have a probability of about a thousandth, and so much at most a
#: step may change the log-prob of nearly every sample: a KL of 5e-7, which is no movement (signals.movement).
DETERMINISTIC = 0.01


def while_alive(observations: Observations, series: Series) -> Series:
    """Return a series of the policy's movement without the records in which the policy always acts alike.

    Nothing is seen to move there, whatever the update does: a ratio of 1 is a theorem, as with one update per batch.
    The update that made the policy deterministic stays.
    """
    entropy = beside(series, observations.run.series.get("entropy"))
    if entropy is None or not len(entropy):
        return series
    known = np.isfinite(entropy.values) & (entropy.values >= 0)
    fixed = known & (entropy.values + entropy.resolution.absolute < DETERMINISTIC)
    if not fixed.any():
        return series
    dead = fixed & np.concatenate(([False], fixed[:-1]))
    return dataclasses.replace(series, values=np.where(dead, np.nan, series.values)) if dead.any() else series


def weight_motion(observations: Observations) -> Series | None:
    """Return the logged size of each update: the parameters' change, else the KL of a probe after the update."""
    motion = observations.run.series.get("update_norm") or observations.run.series.get("probe_kl")
    return motion and while_alive(observations, motion)


def policy_drift(observations: Observations) -> Fact | None:
    """Return how far entropy moved between the first and the last third of the run, in standard errors.

    The entropy of a frozen policy only scatters with its states, so its thirds agree; source: two-sample comparison of
    means with the variance inside the calmer third. A constant entropy is a drift of 0.
    """
    return _drift(observations.run.series.get("entropy"), "policy_drift")


def _drift(series: Series | None, name: str) -> Fact | None:
    values = finite_of(series.values) if series is not None else np.empty(0)
    third = len(values) // 3
    if series is None or third < LEAST:
        return None
    first, last = values[:third], values[-third:]
    z = _standard_errors(first, last, series.resolution.absolute)
    says = f"{series.raw} went from {mean_of(first):.4g} to {mean_of(last):.4g}"
    return Fact(name=name, value=z, how="computed", unit="standard errors", source=series.source(), says=says)


def _standard_errors(first: FloatArray, last: FloatArray, resolution: float) -> float:
    gap = abs(mean_of(last) - mean_of(first))
    noise = sorted((variance_of(first, ddof=1), variance_of(last, ddof=1)))
    # A policy that stands still scatters alike in both thirds; one that collapses within a third does so by its drift.
    pooled = (noise[0] + (noise[0] if len(first) >= ENOUGH else noise[1])) / len(first)
    # Rounding hides scatter below the last digit; a creep that averages make visible is no learning.
    floor = resolution + CREEP * max(abs(mean_of(first)), 1e-3)
    error = math.hypot(math.sqrt(pooled), floor)
    return gap / error if math.isfinite(error) else math.nan  # squares that overflow tell nothing
