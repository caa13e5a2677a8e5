"""What a log shows of its first batch: sampled before any step, it is no consequence of the training."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations


def truncated_before_training(observations: Observations) -> Fact | None:
    """Return the fraction of completions of the first batch that were cut off."""
    return _of_the_first_batch(observations, "truncated_fraction", "truncated_before_training", "of completions")


def _of_the_first_batch(observations: Observations, metric: str, name: str, unit: str) -> Fact | None:
    """Return the first value of a metric; None unless the log holds a record per optimizer step, from the first one on.

    A record of several steps is an average over what training has done already, and so is the first record of a log
    that begins later.
    """
    series = observations.run.series.get(metric)
    updates = observations.fact("updates_observed")
    if series is None or not len(series.values) or updates is None or not float(str(updates.value)) >= 1:
        return None
    first = float(series.values[0])
    if not isfinite(first) or series.axis.steps[0] > 1:
        return None
    says = f"{first:.3g} in the first batch, which was sampled before any step"
    return Fact(name=name, value=first, how="observed", unit=unit, source=series.source(), says=says)
