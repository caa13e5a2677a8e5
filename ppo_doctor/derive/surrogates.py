"""What the sign of the policy loss says: whether ratios follow the advantages, and whether a batch was seen again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor import rounding
from ppo_doctor.arrays import median, same, spearman
from ppo_doctor.derive.expected import GROUPED
from ppo_doctor.derive.mismatch import of_completions
from ppo_doctor.derive.sampling import LONGEST
from ppo_doctor.model import Fact, Series

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray

#: Fewest optimizer steps, and fewest updates, of which a share is taken.
FEWEST_STEPS, FEWEST_UPDATES = 60, 30
#: Fewest updates of which a sign test says something.
FEWEST_LOSSES = 30
#: Where more samples than this are clipped, the clip takes gains away.
HARDLY_CLIPPED = 0.02


def losses_above_zero(observations: Observations) -> Fact | None:
    """Return the share of optimizer steps with a policy loss above 0, for groups and without a KL term in the loss.

    The minimum in PPO's loss can only take from the surrogate. Ratios that know nothing of the advantages gain nothing
    by themselves, so that the loss is above 0 in the mean (Jensen's inequality); steps that follow their advantages
    make it negative. Records with a loss of exactly 0 count for neither side.
    """
    loss = _group_loss(observations)
    if loss is None:
        return None
    values = loss.values[np.isfinite(loss.values) & (loss.values != 0)]
    if len(values) < FEWEST_STEPS:
        return None
    share = float(np.mean(values > 0))
    says = f"{loss.raw} is above 0 in {share:.0%} of {len(values)} records"
    return Fact(name="losses_above_zero", value=share, how="observed", source=loss.source(), says=says)


def loss_below_zero(observations: Observations) -> Fact | None:
    """Return by how many standard errors more updates end with a policy loss below 0 than above.

    Advantages without a mean leave a loss of 0 at a ratio of 1, and each step that follows them takes it below. What
    moves the ratio at random gains as often as it loses. A sign test, over records with a loss that is not exactly 0.
    """
    loss = observations.run.series.get("policy_loss")
    if loss is None or observations.run.algorithm != "ppo":
        return None
    values = loss.values[np.isfinite(loss.values) & (loss.values != 0)]
    if len(values) < FEWEST_LOSSES:
        return None
    below = int(np.sum(values < 0))
    sure = (2 * below - len(values)) / math.sqrt(len(values))
    says = f"{loss.raw} is below 0 in {below} of {len(values)} records"
    return Fact(
        name="loss_below_zero", value=sure, how="computed", unit="standard errors", source=loss.source(), says=says
    )


def loss_trend(observations: Observations) -> Fact | None:
    """Return Spearman's correlation of time and the policy loss of groups, without a KL term in the loss."""
    loss = _group_loss(observations)
    if loss is None:
        return None
    values = _spread(loss.values)
    if len(values) < FEWEST_STEPS or same(values, values[0]).all():
        return None
    trend = spearman(np.arange(len(values), dtype=np.float64), values)
    says = f"{loss.raw} correlates with time by {trend:.2f}"
    return Fact(name="loss_trend", value=trend, how="computed", source=loss.source(), says=says)


def _group_loss(observations: Observations) -> Series | None:
    run = observations.run
    if run.algorithm not in GROUPED:
        return None
    if "policy_loss" in run.series:
        return run.series["policy_loss"]
    # The whole loss holds the KL term, which is above 0 whatever the ratios do.
    return None if "ref_kl" in run.series or observations.number("kl_coef") else run.series.get("loss")


def _spread(values: FloatArray) -> FloatArray:
    finite = values[np.isfinite(values)]
    return finite[:: max(1, len(finite) // LONGEST)]


def passes_without_gain(observations: Observations) -> Fact | None:
    """Return the share of updates whose policy loss, a mean over all passes over a batch of answers, is above 0.

    From the second pass on a sample is one that was trained on: whitened advantages have no mean, so that the mean over
    several passes is below 0. The first pass alone scatters around 0. None without several configured passes, where a
    KL target may stop them, where more than a few samples are clipped, and where the policy stands still.
    """
    loss, kl, clipped = (observations.run.series.get(name) for name in ("policy_loss", "approx_kl", "clip_fraction"))
    wanted = observations.number("ppo_epochs")
    if loss is None or kl is None or clipped is None or not wanted or wanted < 2:
        return None
    if loss.aggregation != "all minibatches" or "advantages_whitened" not in observations.run.facts:
        return None
    if _may_stop_early(observations) or not observations.configured("ppo_epochs") or not of_completions(observations):
        return None
    values = loss.values[np.isfinite(loss.values)]
    if (
        len(values) < FEWEST_UPDATES
        or median(np.abs(kl.values)) <= rounding.UNIT
        or median(clipped.values) > HARDLY_CLIPPED
    ):
        return None
    share = float(np.mean(values > 0))
    says = f"{loss.raw}, a mean over all passes, is above 0 in {share:.0%} of {len(values)} updates"
    return Fact(name="passes_without_gain", value=share, how="observed", source=loss.source(), says=says)


def _may_stop_early(observations: Observations) -> bool:
    stops = observations.run.config.get("early_stopping")
    return bool(observations.number("target_kl")) and (stops is None or stops.value is not False)
