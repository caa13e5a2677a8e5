"""What a log shows of its first batch: sampled before any step, it is no consequence of the training."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Series

#: What is within this share of the limit has hit it, all but for a token that ends it.
NEAR = 0.05


def share_cut(observations: Observations) -> Series | None:
    """Return the share of completions that hit the length limit: logged, else the least that their mean length tells.

    Where the mean is d below a limit of L, at most d / (0.05 L) of all are more than a twentieth below it (Markov's
    inequality). None where the mean is beyond the limit by more than the token that ends a completion.
    """
    logged, mean = (observations.run.series.get(name) for name in ("truncated_fraction", "response_length"))
    limit = observations.number("max_response_length")
    if logged is not None and len(logged):
        return replace(logged, name="share_cut")
    if mean is None or not len(mean) or not limit or not observations.configured("max_response_length"):
        return None
    if float(np.nanmax(mean.values)) > limit + 1:
        return None
    values = np.clip(1.0 - (limit - mean.values) / (NEAR * limit), 0.0, 1.0)
    says = f"the share that {mean.raw} next to a limit of {limit:g} tokens makes"
    return replace(mean, name="share_cut", values=values, unit="fraction", how="computed", says=says)


def truncated_before_training(observations: Observations) -> Fact | None:
    """Return the fraction of completions of the first batch that were cut off.

    None unless the log holds a record per optimizer step, from the first one on: a record of several steps is an
    average over what training has done already, and so is the first record of a log that begins later.
    """
    series, updates = observations.series("share_cut"), observations.fact("updates_observed")
    if series is None or not len(series.values) or updates is None or not float(str(updates.value)) >= 1:
        return None
    first = float(series.values[0])
    if not isfinite(first) or series.axis.steps[0] > 1:
        return None
    says = f"{first:.3g} in the first batch, which was sampled before any step"
    return Fact(
        name="truncated_before_training",
        value=first,
        how="observed",
        unit="of completions",
        source=series.source(),
        says=says,
    )
