"""A critic that starts over, advantages that fade at the optimum, losses over more tokens than were written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside, median
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations

#: Records of an untrained critic that are more than an odd one.
COLD = 3


def loss_tokens_per_written(observations: Observations) -> Fact | None:
    """Return the tokens in the loss over those that the policy wrote: mean length × samples × passes over them.

    None where the number of samples or of passes is not known.
    """
    tokens = observations.run.series.get("tokens_in_loss")
    length = beside(tokens, observations.run.series.get("response_length"))
    samples, passes = observations.number("rollout_size"), observations.number("ppo_epochs")
    if tokens is None or length is None or not samples or not passes:
        return None
    if not observations.configured("rollout_size") or not observations.configured("ppo_epochs"):
        return None
    usable = np.isfinite(tokens.values) & np.isfinite(length.values) & (length.values > 0)
    if usable.sum() < COLD:
        return None
    value = median(tokens.values[usable] / (length.values[usable] * samples * passes))
    says = f"{tokens.raw} over {samples:g} completions, {passes:g} passes"
    return Fact(name="loss_tokens_per_written", value=value, how="computed", source=tokens.source(), says=says)
