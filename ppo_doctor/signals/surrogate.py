"""What the surrogate says: its size, zeros, the side it lies on, and losses that come again within a generation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside, median, quantile
from ppo_doctor.signals.course import fact, finite, generation_starts, series_of, value_of, zero_share
from ppo_doctor.signals.movement import DRIFTS

if TYPE_CHECKING:
    from ppo_doctor.model import Fact
    from ppo_doctor.signals.course import Observations


def surrogate_high(observations: Observations) -> Fact | None:
    """Return the 90th percentile of the absolute policy loss."""
    series = series_of(observations, "policy_loss")
    if series is None:
        return None
    high = float(quantile(np.abs(finite(series)), 0.9))
    return fact("surrogate_high", high, series, f"|{series.raw}| is {high:.3g} in its 90th percentile")


def surrogate_zero_share(observations: Observations) -> Fact | None:
    """Return the share of records in which the policy loss is exactly 0."""
    series = series_of(observations, "policy_loss")
    zeros = zero_share(series, fewest=3)
    if series is None or zeros is None:
        return None
    return fact("surrogate_zero_share", zeros, series, f"{series.raw} is exactly 0 in {zeros:.0%} of the records")


def losses_repeat(observations: Observations) -> Fact | None:
    """Return the share of further steps on a generation that log the loss of the step before, as at a ratio of 1.

    Steps are counted and not generations: where the mark of one is lost, two of them are taken for one.
    """
    loss = observations.run.series.get("loss")
    begins = generation_starts(observations, loss)
    if loss is None or begins is None:
        return None
    apart = np.abs(np.diff(loss.values))[~begins[1:]]
    if len(known := apart[np.isfinite(apart)]) < 3:
        return None
    alike = float(np.mean(known <= 1e-6))
    text = f"{loss.raw} is that of the step before in {alike:.0%} of the further steps on a generation"
    return fact("losses_repeat", alike, loss, text)


def surrogate_above_zero(observations: Observations) -> Fact | None:
    """Return the share of records with a positive loss, half where chance makes it, of a loss that is no offset.

    A surrogate gain is at most √(2·KL) times the deviation of the advantages (Cauchy and Schwarz): a policy loss far
    above that is the mean of the minibatch's advantages and tells nothing. Nor does one that is never negative where no
    KL is logged: some trainers log its absolute value.
    """
    loss = observations.run.series.get("policy_loss")
    kl = beside(loss, observations.run.series.get("approx_kl"))
    if loss is None or not np.isfinite(loss.values).any():
        return None
    high = value_of(observations.fact("divergence_high"))
    if (high is None and bool(np.nanmin(loss.values) >= 0)) or (high is not None and high < 1e-6):
        return None
    if kl is not None:
        root = np.sqrt(2 * np.abs(kl.values))
        known = np.isfinite(loss.values) & np.isfinite(root) & (root > 1e-3)
        if known.sum() >= 3 and float(median(np.abs(loss.values[known] / root[known]))) >= 1.5:
            return fact("surrogate_above_zero", 0.0, loss, f"{loss.raw} is offset beyond what its KL allows")
    share, by_chance = float((finite(loss) > 0).mean()), 0.5 + DRIFTS / (2 * math.sqrt(len(finite(loss))))
    above = share if share > by_chance else min(share, 0.5)
    return fact("surrogate_above_zero", above, loss, f"{loss.raw} is above 0 in {share:.0%} of the records")
