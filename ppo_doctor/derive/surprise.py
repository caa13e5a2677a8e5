"""How surprising its own samples are to a policy: exactly as much as its entropy says, on average."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import median, parts
from ppo_doctor.derive.repeats import beside_each_other
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations

#: Fewest records of a run, and of a stretch; most stretches.
LEAST, STRETCH, MOST_STRETCHES = 20, 10, 6
#: Entropies below this share of the largest are too near to 0 to divide by.
SPENT = 0.1


def surprise_over_entropy(observations: Observations) -> Fact | None:
    """Return by which share of the entropy samples surprise the policy more than its own would, where it is most.

    Over samples of the policy itself the mean of -log π is the entropy. Over samples of another policy it is their
    entropy and the KL to them, so that an older and less certain sampler shows as an excess. The sum over an answer
    (TRL's objective/entropy) over its length is held against the entropy per token, in the median of a sixth of the
    run, or of ten records.
    """
    logged = observations.run.series
    whole, length, entropy = (logged.get(name) for name in ("objective_entropy", "response_length", "entropy"))
    if whole is None or length is None or entropy is None:
        return None
    if not beside_each_other(whole, length) or not beside_each_other(whole, entropy):
        return None
    most = float(np.nanmax(entropy.values, initial=0.0))
    usable = np.isfinite(whole.values) & (length.values > 0) & (entropy.values > SPENT * most)
    if usable.sum() < LEAST:
        return None
    surprise, own = whole.values[usable] / length.values[usable], entropy.values[usable]
    stretches = parts(surprise / own - 1, min(MOST_STRETCHES, len(own) // STRETCH))
    value = max(map(median, stretches))
    says = f"{whole.raw} over {length.raw} is at most {1 + value:.3g} times {entropy.raw}"
    return Fact(name="surprise_over_entropy", value=value, how="computed", source=whole.source(), says=says)
