"""Scores → probabilities: a softmax with one fitted temperature, under the lab's mix of faults."""

from __future__ import annotations

import math
from collections.abc import Mapping

#: Candidates of every complaint besides its causes.
HEALTHY, UNKNOWN = "healthy", "unknown"


def probabilities(scores: Mapping[str, int], temperature: float) -> dict[str, float]:
    """Return the probability of each candidate of one complaint from its score in decibans.

    p_i ∝ 10^(score_i / (10 T)); a temperature T > 1 pays for evidence that is less independent than the sum of
    weights assumes (Guo et al. 2017, On calibration of modern neural networks).
    """
    best = max(scores.values())
    powers = {name: math.pow(10.0, (score - best) / (10.0 * temperature)) for name, score in scores.items()}
    total = sum(powers.values())
    return {name: power / total for name, power in powers.items()}
