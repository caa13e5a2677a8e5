"""What a log shows of updates that never ran: counters that stay at 0, and losses that are all exactly 0."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import mean_of
from ppo_doctor.signals.course import condition, finite, series_of, truth_of, value_of

if TYPE_CHECKING:
    from ppo_doctor.model import Fact, Series
    from ppo_doctor.signals.course import Observations

#: Metrics that count what an update did in all; those that count it for each batch; what an update logs besides.
TOTALS = ("optimizer_steps_total", "epochs_executed_total")
OF_BATCHES = ("optimizer_steps", "epochs_executed")
OF_UPDATES = ("policy_loss", "loss", "value_loss", "approx_kl")
#: Fewest records that tell, the share of them that has to be 0, and the coarsest print that shows a critic's error.
FEWEST, MOSTLY, FINE = 3, 0.95, 1e-4


def no_step_counted(observations: Observations) -> Fact | None:
    """Tell whether the count of optimizer steps, or of passes, is 0 in every record, though updates are logged.

    A count of the passes up to an early stop begins at 0 (spinningup's StopIter) and tells nothing.
    """
    names = TOTALS if "epochs_are_a_cap" in observations.run.facts else (*TOTALS, *OF_BATCHES)
    counter = next((s for name in names if (s := _held(observations, name)) is not None), None)
    if counter is None or not any(_held(observations, name) for name in OF_UPDATES):
        return None
    values = finite(counter)
    return condition("no_step_counted", not values.any(), counter, f"{counter.raw} is 0 in all {len(values)} records")


def losses_both_zero(observations: Observations) -> Fact | None:
    """Tell whether policy loss and value loss are exactly 0 though rewards differ and the policy does not move.

    A critic's squared error is exactly 0 only where it was not computed.
    """
    policy, critic = value_of(observations.fact("surrogate_zero_share")), _held(observations, "value_loss")
    differ = truth_of(observations.fact("rewards_differ"))
    if policy is None or critic is None or differ is None or observations.kind.samples.value != "episodes":
        return None
    if critic.resolution.absolute > FINE:
        return None
    zeros = mean_of(finite(critic) == 0)
    still = not truth_of(observations.fact("policy_moves"))
    says = f"the policy loss is exactly 0 in {policy:.0%} of the records, {critic.raw} in {zeros:.0%}"
    return condition("losses_both_zero", min(policy, zeros) >= MOSTLY and differ and still, critic, says)


def surrogate_zero_of_updates(observations: Observations) -> Fact | None:
    """Return the share of records in which the policy loss is exactly 0; None where nothing shows that it was computed.

    Without an optimizer step, or beside a critic's error of exactly 0, it says nothing about the advantages.
    """
    if any(truth_of(observations.fact(name)) for name in ("no_step_counted", "losses_both_zero")):
        return None
    share = observations.fact("surrogate_zero_share")
    return share and replace(share, name="surrogate_zero_of_updates")


def _held(observations: Observations, name: str) -> Series | None:
    """Return a metric of at least three finite values."""
    series = series_of(observations, name)
    return series if series is not None and np.isfinite(series.values).sum() >= FEWEST else None
