"""What samples can tell apart: room for other answers, advantages beside returns, spread in groups, terms of a loss."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside, finite_of, median
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray, Series

#: Records that a quotient of two metrics takes to tell something.
LEAST = 6


def raw_advantage_share(observations: Observations) -> Fact | None:
    """Return the deviation of advantages before whitening over that of returns, in the last two thirds.

    With returns = advantage + value this is √(1 - explained variance): what the critic leaves to learn from.
    """
    raw = observations.run.series.get("advantages_raw_std")
    returns = beside(raw, observations.run.series.get("returns_std"))
    if raw is None or returns is None:
        return None
    alive = np.where(returns.values > 0, returns.values, math.nan)
    values = (raw.values / alive)[len(raw) // 3 :]
    return _fact("raw_advantage_share", values, raw, f"{raw.raw} / {returns.raw} over the last two thirds")


def kl_term_share(observations: Observations) -> Fact | None:
    """Return the coefficient of the KL term that the loss shows, over the configured one.

    None where the loss does not show it, or the configuration names none, or another one than a positive.
    """
    shown, configured = observations.fact("kl_in_loss"), _coefficient(observations)
    if shown is None or configured is None or not isinstance(shown.value, float):
        return None
    says = f"{shown.says}, over the configured {configured:g}"
    value = shown.value / configured
    return Fact(
        name="kl_term_share", value=value, how="computed", unit="of the configured", source=shown.source, says=says
    )


def _coefficient(observations: Observations) -> float | None:
    given = [observations.number(name) for name in ("kl_loss_coef", "kl_coef") if observations.configured(name)]
    positive = [number for number in given if number is not None and number > 0]
    return positive[0] if positive else None


def _fact(name: str, values: FloatArray, series: Series, says: str, *, unit: str = "") -> Fact | None:
    known = finite_of(values)
    if len(known) < LEAST:
        return None
    return Fact(name=name, value=median(known), how="computed", unit=unit, source=series.source(), says=says)
