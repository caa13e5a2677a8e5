"""Algebra that metrics of the same samples obey, whatever the policies: a violation is a logging error.

Only metrics that are declared to be of the same window are compared: across windows sound runs violate all of this, and
nobody knows over which minibatches an unknown trainer averages.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor import rounding
from ppo_doctor.arrays import beside, finite_of
from ppo_doctor.derive.counters import told
from ppo_doctor.model import EXACT

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Series

#: Room for float32 means over many samples, relative to the larger side.
ROOM = 0.02
#: Gauss's inequality says nothing of a share below this that matters; and no more than this much is asked of the rest.
LEAST_SHARE, LEAST_REST = 0.3, 0.1


def clip_kl_contradiction(observations: Observations) -> Series | None:
    """Return by how much the clip fraction demands more KL than there is: (needed - k3)/needed, 0 where it fits.

    A share f of samples outside 1 ± ε has mean k3 of at least f·min(k3(1 + ε), k3(1 - ε)), which is 0.0177·f at
    ε = 0.2; with k2 it is 0.0166·f. Both sides have to be counted. A share f of all minibatches is one of at least
    1 - n·(1 - f) in any n-th part of them, such as the last epoch.
    """
    series = observations.run.series
    kl, epsilon = series.get("approx_kl"), _range(observations)
    clipped = beside(kl, series.get("clip_fraction"))
    if kl is None or clipped is None or epsilon is None:
        return None
    parts = _parts(observations, clipped, kl)
    if kl.estimator not in ("k2", "k3") or clipped.estimator != "both sides" or parts is None:
        return None
    share = 1 - (1 - clipped.values + clipped.resolution.absolute) * parts
    needed = np.maximum(0.0, share) * _least(kl.estimator, epsilon)
    have = np.abs(kl.values) + kl.resolution.absolute + ROOM * needed + rounding.UNIT
    value = np.maximum(0.0, needed - have) / np.maximum(needed, 1e-9)
    says = f"what {kl.raw} lacks for {clipped.raw}"
    return dataclasses.replace(
        kl,
        name="clip_kl_contradiction",
        values=value,
        resolution=EXACT,
        how="computed",
        unit="of what is needed",
        says=says,
    )


def _parts(observations: Observations, whole: Series, part: Series) -> float | None:
    """Return how many times the window of one metric holds that of another; None where it does not, or nobody knows.

    Of work that was counted, else configured: an early stop leaves fewer parts, each of which holds more of what was
    counted. What only a default says proves nothing.
    """
    if whole.shares_window(part):
        return 1.0
    if whole.aggregation != "all minibatches":
        return None
    if part.aggregation == "last epoch":
        epochs = told(observations).get("ppo_epochs")
        return float(str(epochs.value)) if epochs is not None and epochs.how != "default" else None
    updates = observations.fact("updates_known")
    return float(str(updates.value)) if part.aggregation == "last minibatch" and updates is not None else None


def clip_over_spread(observations: Observations) -> Series | None:
    """Return the KL that the clip fraction asks of log-ratios that scatter around 0 in one hump, over the KL there is.

    Gauss's inequality (1823): of one hump with deviation σ at most 1 - k/(√3 σ) lies beyond ±k. A share f beyond the
    clip range thus asks for a mean square, twice the KL, of k²/3(1 - f)²; 0 for small shares, of which it says little.
    A mixture of such humps, as over epochs or tokens, is one too.
    """
    series = observations.run.series
    kl, epsilon = series.get("approx_kl"), _range(observations)
    clipped = beside(kl, series.get("clip_fraction"))
    if kl is None or clipped is None or epsilon is None:
        return None
    if kl.estimator not in ("k2", "k3") or clipped.estimator != "both sides" or not kl.shares_window(clipped):
        return None
    share = clipped.values - clipped.resolution.absolute
    asked = math.log1p(epsilon) ** 2 / (6 * np.maximum(1 - share, LEAST_REST) ** 2)
    have = np.abs(kl.values) + kl.resolution.absolute + rounding.UNIT
    return dataclasses.replace(
        kl,
        name="clip_over_spread",
        values=np.where(share >= LEAST_SHARE, asked, 0.0) / have,
        resolution=EXACT,
        how="computed",
        unit="times the KL there is",
        says=f"KL that {clipped.raw} asks for over {kl.raw}",
    )


def _least(estimator: str, epsilon: float) -> float:
    if estimator == "k2":
        return 0.5 * math.log1p(epsilon) ** 2
    return epsilon - math.log1p(epsilon)


def _range(observations: Observations) -> float | None:
    """Return the smallest clip range in force: logged, else configured."""
    logged = observations.run.series.get("clip_range")
    if logged is not None and len(logged):
        finite = finite_of(logged.values)
        return float(finite.min()) if len(finite) and finite.min() > 0 else None
    found = observations.number("clip_range")
    return found if found and observations.configured("clip_range") else None
