"""How far from 0 or 1 float32 arithmetic leaves a number that is 0 or 1: what lies within is equality.

A trainer computes in float32, in an order that differs from processor to processor. A KL or a ratio is taken of the
difference of two log-probs, so that its error is that of the log-probs, however small the number itself.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from ppo_doctor.model import FloatArray

Scatter = TypeVar("Scatter", float, "FloatArray")

#: Half the spacing of float32 numbers at 1: the error of one correctly rounded operation on a number of that size.
UNIT = 2.0**-24
#: Roundings on the way to the difference of two log-probs: the last logit and its normaliser, in two passes.
ROUNDINGS = 4
#: What they make of the log-ratio of log-probs of up to 1 nat, as means over samples have.
LOG_RATIO = ROUNDINGS * UNIT
#: Of many samples the one that is farthest off has a log-prob of several nats: those up to 16 are held to 16 units.
EXTREME = 16 * LOG_RATIO
#: The log-probs of a whole answer add up to 32 to 64 nats, where float32 numbers are 2^-18 apart.
SUMMED = 2.0**-18
#: What is left of a reward of order 1 from which the mean of as many equal ones is taken.
CENTRED = 4 * UNIT
#: Shares of samples are means of zeros and ones.
SHARE = 4 * UNIT

_KL = frozenset(("approx_kl", "approx_kl_k1", "approx_kl_k2", "ref_kl", "rollout_kl"))
#: Quantities whose value at identity is 0, or 1 for a ratio, and what rounding makes of it.
_ROUNDING = MappingProxyType(
    dict.fromkeys(("ratio_mean", "ratio_std", "ratio_abs_dev", "rollout_ratio_mean", "rollout_logp_diff"), LOG_RATIO)
    | dict.fromkeys(("ratio_min", "ratio_max", "approx_kl_max", "rollout_ratio_min", "rollout_ratio_max"), EXTREME)
    | dict.fromkeys(("batch_start_ratio_dev", "epoch_start_ratio_dev", "within_epoch_ratio_dev"), EXTREME)
    | {"rollout_logp_diff_max": EXTREME}
    | dict.fromkeys(("clip_fraction", "clip_fraction_low", "clip_fraction_high", "clip_fraction_dual"), SHARE)
    | dict.fromkeys(("advantages_std", "advantages_min", "advantages_max", "advantages_abs_max"), CENTRED)
    | dict.fromkeys(("clip_fraction_positive", "clip_fraction_negative", "frac_reward_zero_std"), SHARE)
)
#: Estimates that rounding takes below 0 as well as above; half a square stays above.
_SIGNED = frozenset(("k1", "k3", "exact"))
#: Standard errors by which more of the smallest values have to be above 0 than at it or below to be no rounding.
SURE = 3.0


def of_kl(estimator: str | None, log_ratio: Scatter) -> Scatter:
    """Return what log-ratios that scatter by `log_ratio` around 0 make of a KL estimate, in nats.

    The estimators of Schulman 2020 (Approximating KL Divergence): k1 up to d, k2 d²/2, and k3 up to UNIT + d²/2, since
    (r - 1) - log r is a difference of numbers whose ratio was rounded next to 1.
    """
    if estimator in ("k1", "exact"):
        return log_ratio
    return log_ratio**2 / 2 + (UNIT if estimator == "k3" else 0.0)


def of(name: str, estimator: str | None, aggregation: str | None, values: FloatArray) -> float:
    """Return how far from its value at identity a metric may be by rounding alone; 0 for those that have none.

    A KL is positive. One that rounding might take below 0, and that yet is above it in far more records than not, shows
    movement, however small: means over many samples are finer than their terms.
    """
    if name not in _KL:
        return _ROUNDING.get(name, 0.0)
    most = of_kl(estimator, SUMMED if aggregation == "sum over tokens" else LOG_RATIO)
    return 0.0 if estimator in _SIGNED and _moves(values[np.abs(values) <= most]) else most


def _moves(small: FloatArray) -> bool:
    above = int(np.count_nonzero(small > 0))
    return 2 * above - len(small) >= SURE * math.sqrt(len(small)) > 0
