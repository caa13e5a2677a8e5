"""Does the critic predict returns, and do its targets stay in bounds?"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import median
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import BoolArray, FloatArray, Series

#: Below this share of the run's largest spread of returns, or of its square in the loss, returns count as constant.
ALIVE = 0.1
#: Finite records that a statement about the critic needs.
LEAST = 6


def explained_variance_size(observations: Observations) -> Series | None:
    """Return |explained variance|: near 0 for a critic that says one number for every state."""
    series = observations.run.series.get("explained_variance")
    return series and dataclasses.replace(
        series, name="explained_variance_size", values=np.abs(series.values), how="computed"
    )


def explained_variance_alive(observations: Observations) -> Series | None:
    """Return the explained variance in records whose returns vary; elsewhere NaN.

    It is 1 - Var(R - V)/Var(R), so that constant returns send it to -infinity whatever the critic does. What varies is
    judged by the returns' own spread, else by the value loss, which is at least their variance for a critic below 0.
    """
    series = observations.run.series.get("explained_variance")
    alive = _alive(observations, series) if series is not None else None
    if series is None or alive is None:
        return None
    values = np.where(alive, series.values, np.nan)
    return dataclasses.replace(series, name="explained_variance_alive", values=values, how="computed")


def _alive(observations: Observations, series: Series) -> BoolArray | None:
    spread = observations.run.series.get("returns_std")
    share = ALIVE
    if spread is None:
        spread, share = observations.run.series.get("value_loss"), ALIVE**2
    if spread is None or spread.axis is not series.axis or not np.isfinite(spread.values).any():
        return None
    largest = float(np.nanmax(np.where(np.isfinite(spread.values), spread.values, np.nan)))
    return np.asarray(spread.values >= share * largest) & (largest > 0)


def constant_returns_share(observations: Observations) -> Fact | None:
    """Return the share of records without an explained variance: it is NaN exactly where returns do not vary."""
    series = observations.run.series.get("explained_variance")
    trained = observations.run.series.get("value_loss")
    if series is None or trained is None:
        return None
    held = np.isfinite(series.values[np.isin(series.axis.lines, trained.axis.lines)])
    if trained.axis is not series.axis or not len(held):
        return None
    known = np.isfinite(trained.values)
    if known.sum() < LEAST:
        return None
    share = float((~np.isfinite(series.values[known])).mean())
    says = f"{int((~np.isfinite(series.values[known])).sum())} of {int(known.sum())} records"
    return Fact(
        name="constant_returns_share", value=share, how="observed", unit="of records", source=series.source(), says=says
    )


def value_loss_growth(observations: Observations) -> Series | None:
    """Return the value loss in units of its largest value in the first third of the run (0.01 at least), after it.

    The floor keeps a run that begins without any reward from counting its first reward as growth without bound.
    """
    series = observations.run.series.get("value_loss")
    if series is None:
        return None
    finite = np.flatnonzero(np.isfinite(series.values))
    third = len(finite) // 3
    if third < LEAST // 2:
        return None
    base = max(0.01, float(np.abs(series.values[finite[:third]]).max()))
    values = series.values / base
    values[: finite[third]] = np.nan
    return dataclasses.replace(
        series, name="value_loss_growth", values=values, unit="× its largest early value", how="computed"
    )


def value_loss_overflow(observations: Observations) -> Series | None:
    """Return 1 where the value loss is infinite while the policy loss of the same record is finite, else 0."""
    value, policy = observations.run.series.get("value_loss"), observations.run.series.get("policy_loss")
    if value is None or policy is None or value.axis is not policy.axis or not len(value):
        return None
    alone = (np.isinf(value.values) & np.isfinite(policy.values)).astype(np.float64)
    return dataclasses.replace(value, name="value_loss_overflow", values=alone, unit="", how="computed")


def value_loss_late(observations: Observations) -> Fact | None:
    """Return the median value loss of the later two thirds of the run: about the variance of returns, or half of it."""
    series = observations.run.series.get("value_loss")
    finite: FloatArray = series.values[np.isfinite(series.values)] if series is not None else np.empty(0)
    if series is None or len(finite) < 2 * LEAST:
        return None
    late = finite[len(finite) // 3 :]
    says = f"median of the last {len(late)} records"
    return Fact(name="value_loss_late", value=median(late), how="observed", source=series.source(), says=says)
