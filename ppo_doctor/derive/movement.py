"""How small are the steps: sizes of movement, and what they are measured against."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_of, mean_of, median
from ppo_doctor.derive.policy import while_alive
from ppo_doctor.model import Fact, Series, SourceRef

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations

#: Lowest learning rates in common use: control (rsl_rl's lower bound), language models (full fine-tuning with RL).
LOWEST_USUAL = {"control": 1e-5, "language": 1e-7}


def kl_size(observations: Observations) -> Series | None:
    """Return |KL| of the old policy to the new one per record, in nats; else half the variance of the ratio.

    Second order of KL around ratio 1: KL = Var(r)/2 (Schulman 2020, Approximating KL Divergence).
    """
    kl = observations.run.series.get("approx_kl")
    if kl is not None and len(kl):
        return while_alive(
            observations, dataclasses.replace(kl, name="kl_size", values=np.abs(kl.values), how="computed")
        )
    spread = observations.run.series.get("ratio_std")
    if spread is None or not len(spread):
        return None
    printed, least = spread.resolution.absolute, spread.resolution.rounding
    # products, since a float's power raises where a product is infinite
    coarse = dataclasses.replace(spread.resolution, absolute=0.5 * printed * printed, rounding=0.5 * least * least)
    half = 0.5 * np.square(spread.values)
    says = f"half of {spread.raw} squared"
    size = dataclasses.replace(
        spread, name="kl_size", values=half, resolution=coarse, unit="nats", how="computed", says=says
    )
    return while_alive(observations, size)


def rate_over_usual(observations: Observations) -> Fact | None:
    """Return the top of the learning rate over the lowest one in common use: 1e-5 for control, 1e-7 for language.

    The top, since rates are told as what a schedule starts from or warms up to.
    """
    rate = observations.get("series.applied_learning_rate") or observations.get("fact.applied_learning_rate")
    if rate is None:
        return None
    if isinstance(rate, Series):
        known, exact = finite_of(rate.values), rate.resolution.absolute
        if not len(known) or median(known) <= exact:
            return None  # zero, or zero in print
        if len(known) > 1 and bool((np.diff(known) > 0).all()):
            return None  # still warming up: nobody knows to what
        value = float(known.max())
    else:
        value = float(rate.value) if isinstance(rate.value, int | float) else math.nan
    usual = LOWEST_USUAL["control" if observations.kind.samples.value == "episodes" else "language"]
    if not value > 0:
        return None
    says = f"learning rate up to {value:.2g}, lowest usual {usual:g}"
    return Fact(
        name="rate_over_usual", value=value / usual, how="computed", unit="times", source=_source(rate), says=says
    )


def _source(quantity: Series | Fact) -> SourceRef | None:
    return quantity.source() if isinstance(quantity, Series) else quantity.source


def advantage_link(observations: Observations) -> Fact | None:
    """Return the mean correlation of log-ratio and advantage on trained samples, in standard errors over records."""
    logged = observations.run.series.get("logratio_advantage_corr")
    if logged is None:
        return None
    values = finite_of(logged.values)
    if len(values) < 20:
        return None
    z = float(np.mean(values) / max(float(np.std(values, ddof=1)) / math.sqrt(len(values)), 1e-12))
    says = f"mean correlation {mean_of(values):.3g} over {len(values)} records"
    return Fact(
        name="advantage_link", value=z, how="computed", unit="standard errors", source=logged.source(), says=says
    )
