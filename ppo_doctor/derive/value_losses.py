"""What a value loss, or the share of clipped predictions, tells of a critic whose explained variance is not logged."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ppo_doctor.arrays import beside, finite_of, median, quantile
from ppo_doctor.derive.critic import MOVED, WITH_BIAS, hardly_trained
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations

#: Records that a statement about a whole run needs, and those right before a leap.
LEAST, BEFORE = 20, 8
#: Of what a leap reached, at most this is left at the end where the critic learned anew.
LEFT = 0.5


def clipped_values_leap(observations: Observations) -> Fact | None:
    """Return by how much the share of clipped predictions leapt from one record to the next, where it later went back.

    The leap is over the largest of the eight records before it; at the end at most half of what it reached is left.
    """
    clipped = observations.run.series.get("value_clip_fraction")
    values = finite_of(clipped.values) if clipped is not None else np.empty(0)
    if clipped is None or len(values) < LEAST:
        return None
    end = median(values[-BEFORE:])
    largest_before = sliding_window_view(values[:-1], BEFORE).max(axis=1)[:-BEFORE]
    here = values[BEFORE:-BEFORE]
    leaps = np.where(end <= LEFT * here, here - largest_before, 0.0)
    at = BEFORE + int(np.argmax(leaps))
    leap = float(leaps[at - BEFORE])
    says = f"record {at + 1} of {len(values)}: {values[at]:.3g}; {end:.3g} at the end"
    source = clipped.source(at)
    return Fact(name="clipped_values_leap", value=max(0.0, leap), how="computed", source=source, says=says)


def value_mean_slope(observations: Observations) -> Fact | None:
    """Return how far the critic's mean goes with the mean of its targets: the slope of least squares over records.

    1 for a critic that follows, 0 for one that is frozen. None where the targets' mean moves by less than three times
    what it changes by from record to record.
    """
    returns = observations.run.series.get("returns_mean")
    values = beside(returns, observations.run.series.get("values_mean"))
    if returns is None or values is None:
        return None
    usable = np.isfinite(returns.values) & np.isfinite(values.values)
    targets, said = returns.values[usable], values.values[usable]
    if len(targets) < LEAST:
        return None
    moved = quantile(targets, 0.9) - quantile(targets, 0.1)
    if not moved > MOVED * median(np.abs(np.diff(targets))):
        return None
    off = targets - targets.mean()
    value = float((off * (said - said.mean())).sum() / (off**2).sum())
    says = f"{values.raw} by {returns.raw}, {len(targets)} records"
    return Fact(name="value_mean_slope", value=value, how="computed", source=values.source(), says=says)


def explained_variance_best(observations: Observations) -> Fact | None:
    """Return the explained variance that the best tenth of the records reaches.

    None where the logged number counts the critic's bias, and below 100 optimizer steps.
    """
    series = observations.run.series.get("explained_variance")
    values = finite_of(series.values) if series is not None else np.empty(0)
    if series is None or len(values) < LEAST or series.estimator == WITH_BIAS or hardly_trained(observations, series):
        return None
    value = quantile(values, 0.9)
    if not math.isfinite(value):
        return None
    says = f"ninth decile of {len(values)} records"
    return Fact(name="explained_variance_best", value=value, how="computed", source=series.source(), says=says)
