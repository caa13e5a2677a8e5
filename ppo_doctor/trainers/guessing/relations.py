"""Relations between columns that suggest which metrics they are.

The clip fraction rises and falls with the KL, the mean deviation of a ratio with its root, and an explained
variance against the critic's error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import median
from ppo_doctor.trainers.guessing.abbreviations import words_of
from ppo_doctor.trainers.guessing.hints import CLIPPED
from ppo_doctor.trainers.guessing.weights import LEAST_RECORDS, RELATED

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray

#: Rank correlations from which on two columns rise and fall together, and against each other.
TOGETHER, AGAINST = 0.5, -0.35
#: Rank correlations of the changes from record to record, which no common trend explains.
CHANGES_TOGETHER, CLOSELY = 0.4, 0.7
#: The largest coefficient of a KL term beside its KL.
LARGEST_COEFFICIENT = 50.0
#: Slope of one logarithm over another that means "the root of".
ROOT_SLOPE = (0.38, 0.62)
#: The mean deviation of a ratio divided by the root of its KL, which is 1.13 for normal log-ratios, in nats.
DEVIATION_PER_ROOT = (0.4, 2.5)
#: A KL above which its root is no longer the deviation of a ratio.
LARGE_KL = 0.03
#: The least of the largest ratios of a run: its first updates, or its last, hardly move the policy.
NEAR_ONE = 1.3


def related(columns: Mapping[str, FloatArray]) -> dict[tuple[str, str], float]:
    """Return (column, metric) → weight by other columns in nats, of relations whose both sides are in this log."""
    weights: dict[tuple[str, str], float] = {}

    def add(key: str, metric: str, weight: float = RELATED) -> None:
        weights[key, metric] = max(weights.get((key, metric), 0.0), weight)

    ranks = {key: _ranks(values) for key, values in columns.items()}
    statistics = {key for key in columns if any(extends(key, other) for other in columns)}
    places = {key: at for at, key in enumerate(columns)}
    for one, values in columns.items():
        for other, others in columns.items():
            if extends(other, one):
                _add_extended(one, values, other, others, add)
            elif is_kin(one, other) and _is_clipped(others, values, places[one] < places[other]):
                add(one, "grad_norm", 1.4)
                add(other, CLIPPED, 1.4)
            if one == other or one in statistics or other in statistics:
                continue
            rank = _correlation(ranks[one], ranks[other])
            unrelated = TOGETHER > rank > AGAINST
            changes = 0.0 if unrelated else _correlation(np.diff(ranks[one]), np.diff(ranks[other]))
            _add_correlated(one, values, other, others, (rank, changes), add)
            if is_kin(one, other) and _are_bounds_of_ratio(values, others):
                add(one, "ratio_min", 3.0 * RELATED)
                add(other, "ratio_max", 3.0 * RELATED)
    for key, metric in list(weights):
        if metric == "ratio_abs_dev":  # it rises with the clip fraction as a KL does
            weights.pop((key, "approx_kl"), None)
    return weights


def _add_correlated(
    one: str,
    values: FloatArray,
    other: str,
    others: FloatArray,
    correlations: tuple[float, float],
    add: Callable[[str, str, float], None],
) -> None:
    """Add what two columns are by the correlations of their ranks, and of the changes of these."""
    rank, changes = correlations
    share_is_other = (others == 0).any() or np.nanmedian(others) > np.nanmedian(values)
    if changes > CHANGES_TOGETHER and share_is_other and _is_small(values) and _is_share(others):
        add(one, "approx_kl", RELATED)
        add(other, "clip_fraction", RELATED * (1.5 if changes > CLOSELY else 1.0))
    if rank > CLOSELY and changes > CLOSELY and _is_small(values) and _is_root(others, values):
        add(one, "approx_kl", 1.5 * RELATED)
        add(other, "ratio_abs_dev", 1.5 * RELATED)
    if rank > TOGETHER and (_is_share(values) or _is_small(np.abs(values))) and _is_above_one(others):
        add(other, "ratio_max", 1.5 * RELATED)
    if rank < AGAINST and changes < -CHANGES_TOGETHER / 2 and _is_explained_variance(values) and _is_error(others):
        add(one, "explained_variance", 0.8)
        add(other, "value_loss", 0.8)


def _add_extended(
    key: str, values: FloatArray, longer: str, others: FloatArray, add: Callable[[str, str, float], None]
) -> None:
    """Add what a column is whose name another name extends: a return with a statistic, a norm and what was clipped."""
    both = np.isfinite(values) & np.isfinite(others)
    one, other = values[both], others[both]
    if len(one) < LEAST_RECORDS or (one % 1 == 0).all():
        return
    if longer.endswith((" min", " max", " std", " median")):
        add(key, "episode_return", 2.0)
        return
    if (other < 0).any():
        return
    if _is_term(others, values):
        add(key, "ref_kl", 1.5 * RELATED)
        add(longer, "kl_term", 1.5 * RELATED)
    elif _is_clipped(others, values, first=True) and not longer.lower().endswith(("std", "sd", "dev")):
        add(key, "grad_norm", 1.4)
        add(longer, CLIPPED, 1.4)
    else:
        add(key, "episode_return", 2.0)
        add(longer, "reward_std", 1.8)


def is_kin(one: str, other: str) -> bool:
    """Tell whether two names begin with the same word."""
    ours, theirs = words_of(one), words_of(other)
    return one != other and bool(ours and theirs) and ours[0][:1] == theirs[0][:1]


def extends(longer: str, key: str) -> bool:
    """Tell whether a name is another one and more words."""
    return len(longer) > len(key) > 1 and longer.startswith(key) and not longer[len(key)].isalnum()


def is_of_same_norm(key: str, norm: str) -> bool:
    """Tell whether a name extends another one, or begins with the same word behind its groups."""
    return extends(key, norm) or is_kin(key.rpartition("/")[2], norm.rpartition("/")[2])


def _ranks(values: FloatArray) -> FloatArray:
    """Return mean ranks of the finite numbers, NaN elsewhere."""
    out = np.full(len(values), np.nan)
    known = np.isfinite(values)
    if known.any():
        _, place, count = np.unique(values[known], return_inverse=True, return_counts=True)
        last = np.cumsum(count)
        out[known] = (last - (count - 1) / 2.0)[place]
    return out


def _correlation(one: FloatArray, other: FloatArray) -> float:
    both = np.isfinite(one) & np.isfinite(other)
    a, b = one[both], other[both]
    if len(a) < LEAST_RECORDS or a.std() == 0 or b.std() == 0:
        return 0.0
    return float(((a - a.mean()) * (b - b.mean())).mean() / (a.std() * b.std()))


def _measured(values: FloatArray) -> FloatArray:
    """Return the finite numbers of a column, nothing if they are too few or all the same."""
    known = values[np.isfinite(values)]
    return known if len(known) >= LEAST_RECORDS and known.min() < known.max() else known[:0]


def _is_small(values: FloatArray) -> bool:
    """Tell whether a column may be a KL of updates."""
    known = _measured(values)
    return bool(len(known) and (known < 0).mean() < 0.03 and 0 < median(np.abs(known)) < 0.3)


def _is_share(values: FloatArray) -> bool:
    """Tell whether a column may be a clip fraction, perhaps in percent."""
    known = _measured(values)
    return bool(
        len(known)
        and known.min() >= 0
        and (known.max() <= 1 or (3 < known.max() <= 100 and (known == 0).any()))
        and known.min() < 0.3 * median(known) + 1e-9
    )


def _is_explained_variance(values: FloatArray) -> bool:
    known = _measured(values)
    return bool(len(known) and 0.2 < known.max() <= 1.0 and np.ptp(known) > 0.2 and (known == 0).mean() < 0.1)


def _is_error(values: FloatArray) -> bool:
    known = _measured(values)
    return bool(len(known) and known.min() >= 0)


def _is_above_one(values: FloatArray) -> bool:
    """Tell whether a column may be the largest ratio: never below 1, near it at times, and no count."""
    known = _measured(values)
    return bool(len(known) and 1 <= known.min() < NEAR_ONE and (known % 1 != 0).mean() > 0.5)


def _is_clipped(after: FloatArray, before: FloatArray, first: bool) -> bool:
    """Tell whether one column is a norm and the other the same norm after clipping, at least in some minibatches.

    Of two columns that are equal throughout, `first` tells that the norm is logged first.
    """
    both = np.isfinite(after) & np.isfinite(before)
    a, b = after[both], before[both]
    if len(a) < LEAST_RECORDS or not (b > 0).all() or b.std() == 0 or (a < 0).any() or (a > b * 1.01 + 1e-6).any():
        return False
    same = float(np.isclose(a, b, rtol=0.02).mean())
    steady = a.std() < 0.4 * b.std() and a.std() <= 0.15 * a.mean()
    return (same < 1.0 or first) and bool(steady or same > 0.05)


def _are_bounds_of_ratio(least: FloatArray, most: FloatArray) -> bool:
    """Tell whether 1 lies between two columns in every record, as it does between the bounds of ratios."""
    both = np.isfinite(least) & np.isfinite(most)
    a, b = least[both], most[both]
    count = bool((b % 1 == 0).all())
    return bool(len(a) >= LEAST_RECORDS and (a >= 0).all() and (a <= 1).all() and (b >= 1).all() and not count)


def _is_term(part: FloatArray, whole: FloatArray) -> bool:
    """Tell whether one column is a constant coefficient times another that rises and falls: a KL term and its KL."""
    both = np.isfinite(part) & np.isfinite(whole) & (whole > 0)
    a, b = part[both], whole[both]
    if len(a) < LEAST_RECORDS or (a <= 0).any() or not np.any(np.diff(b) > 0) or not np.any(np.diff(b) < 0):
        return False
    share = a / b
    variation, of_whole = float(share.std() / share.mean()), float(b.std() / b.mean())
    return bool(share.max() < LARGEST_COEFFICIENT and variation < min(0.03, 0.1 * of_whole))


def _is_root(root: FloatArray, values: FloatArray) -> bool:
    """Tell whether one column is like the root of another: a small KL is half the variance of the log-ratio."""
    both = (values > 0) & (root > 0)
    if both.sum() < LEAST_RECORDS or median(values[both]) > LARGE_KL:
        return False
    x, y = np.log(values[both]), np.log(root[both])
    if x.std() < 0.1 or not DEVIATION_PER_ROOT[0] < float(np.exp(median(y - x / 2))) < DEVIATION_PER_ROOT[1]:
        return False
    slope = float(((x - x.mean()) * (y - y.mean())).mean() / x.var())
    return ROOT_SLOPE[0] < slope < ROOT_SLOPE[1]
