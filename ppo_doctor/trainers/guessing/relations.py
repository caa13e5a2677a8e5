"""Relations between columns that suggest which metrics they are.

The share of clipped samples rises and falls with the KL, the mean deviation of a ratio with its root, an explained
variance against the critic's error, a loss with the KL that it contains; a mean is between its minimum and its maximum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.trainers.guessing.abbreviations import words_of
from ppo_doctor.trainers.guessing.hints import CLIPPED
from ppo_doctor.trainers.guessing.value_forms import LEAST
from ppo_doctor.trainers.units import THOUSANDTH

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray

#: Rank correlation from which on two columns go together, and against each other.
TOGETHER, ALWAYS, AGAINST = 0.5, 0.98, -0.35
#: The same of what they change by from record to record, which no common course explains.
AT_ONCE, CLOSELY = 0.4, 0.7
#: What a known relation of two columns weighs for both.
RELATED = 1.2
#: Coefficients of a KL term: as usual, and as they come where two columns have one name.
USUAL_SHARE, STRONG = 0.5, 50.0
#: What one quantity is in another unit: itself, nats in bits.
UNITS, SAME_UNIT = (1.0, 0.6931, 1.4427), 0.02
#: Slopes of a logarithm over another that say "the root of".
ROOT = (0.38, 0.62)
#: The mean deviation over the root of a KL, which is 1.13 for normal log-ratios, in nats.
FACTOR = (0.4, 2.5)
#: A KL above which its root is no longer a ratio's deviation, and an error's may be an advantage's.
LARGE = 0.03
#: The least of the largest ratios of a run: its first updates, or its last, hardly move.
NEAR_ONE = 1.3
#: The same where signed estimates of a KL leave only its size to compare.
NEARLY = (0.8, 1.6)


def related(columns: Mapping[str, FloatArray]) -> dict[tuple[str, str], float]:
    """Return (column, metric) → what other columns say for it, by relations of which both sides show in this log."""
    found: dict[tuple[str, str], float] = {}

    def say(key: str, metric: str, weight: float = RELATED) -> None:
        found[key, metric] = max(found.get((key, metric), 0.0), weight)

    ranks = {key: _ranks(values) for key, values in columns.items()}
    of_others = {key for key in columns if any(extends(key, other) for other in columns)}
    places = {key: at for at, key in enumerate(columns)}
    for one, values in columns.items():
        for other, beside in columns.items():
            if extends(other, one):
                _by_name_beside(one, values, other, beside, say)
            elif is_kin(one, other) and _is_cut_short(beside, values, places[one] < places[other]):
                say(one, "grad_norm", 1.4)
                say(other, CLIPPED, 1.4)
            if one == other or one in of_others or other in of_others:
                continue
            rank = _correlation(ranks[one], ranks[other])
            apart = TOGETHER > rank > AGAINST
            at_once = 0.0 if apart else _correlation(np.diff(ranks[one]), np.diff(ranks[other]))
            _by_course(one, values, other, beside, (rank, at_once), say)
            _by_definition(one, values, other, beside, say)
    for key, metric in list(found):  # what moves with a distance from the start need not be the KL of an update
        if metric == "policy_loss":
            found.pop((key, "approx_kl"), None)
            found.pop((key, "clip_fraction"), None)
        if metric == "ref_kl":
            found.pop((key, "clip_fraction"), None)
        if metric == "ratio_abs_dev":
            found.pop((key, "approx_kl"), None)
    return found


def _by_course(
    one: str,
    values: FloatArray,
    other: str,
    beside: FloatArray,
    together: tuple[float, float],
    say: Callable[[str, str, float], None],
) -> None:
    """Say what two columns are that go `together`: in their ranks, and in what these change by at once."""
    rank, at_once = together
    if at_once > AT_ONCE and _is_share(beside) and not _is_small(values) and _is_small(values * THOUSANDTH):
        say(one, "approx_kl", RELATED)
    if at_once > AT_ONCE and _is_small(values) and _is_share(beside) and _is_below(values, beside):
        say(one, "approx_kl", RELATED)
        say(other, "clip_fraction", RELATED * (1.5 if at_once > CLOSELY else 1.0))
    if rank > CLOSELY and at_once > CLOSELY and _is_small(values) and _is_root(beside, values):
        say(one, "approx_kl", 1.5 * RELATED)
        say(other, "ratio_abs_dev", 1.5 * RELATED)
    elif at_once > AT_ONCE - 0.05 and _is_small(np.abs(values)) and _is_of_size(beside, values):
        say(other, "ratio_abs_dev", 1.5 * RELATED)
    if rank > TOGETHER and (_is_share(values) or _is_small(np.abs(values))) and _is_above_one(beside):
        say(other, "ratio_max", 1.5 * RELATED)
    if rank > ALWAYS and at_once > AT_ONCE and _is_calm(values) and _is_calm(beside):
        say(one if _stands_below(values, beside) else other, "action_std", RELATED)
        say(other if _stands_below(values, beside) else one, "entropy", RELATED)
    if rank < AGAINST and at_once < -AT_ONCE / 2 and _is_explained(values) and _is_error(beside):
        say(one, "explained_variance", 0.8)
        say(other, "value_loss", 0.8)
    # a loss holds it, times a coefficient
    held = at_once > AT_ONCE and (_is_signed(beside) or _is_part(beside, values))
    if rank > TOGETHER and held and _is_distance(values):
        say(one, "ref_kl", 0.6)
        say(other, "policy_loss", 2.0 * RELATED)


def _by_definition(
    key: str, values: FloatArray, other: str, beside: FloatArray, say: Callable[[str, str, float], None]
) -> None:
    """Say what a deviation is beside its entropy, and a norm beside what clipping leaves of it."""
    if _is_logarithm(beside, values):
        say(key, "action_std", 1.5 * RELATED)
        say(other, "entropy", 1.5 * RELATED)
    if _is_cut(beside, values):
        say(key, "grad_norm", RELATED)
        say(other, CLIPPED, RELATED)
    if is_kin(key, other) and _is_around_one(values, beside):
        say(key, "ratio_min", 3.0 * RELATED)
        say(other, "ratio_max", 3.0 * RELATED)
    if _is_share_of(beside, values, STRONG if is_kin(key, other) else USUAL_SHARE):
        say(key, "ref_kl", 1.5 * RELATED)
        say(other, "kl_term", 1.5 * RELATED)


def _by_name_beside(
    key: str, values: FloatArray, longer: str, beside: FloatArray, say: Callable[[str, str, float], None]
) -> None:
    """Say what a column is whose name another one goes on: a mean with its bounds or its spread, a norm as clipped."""
    both = np.isfinite(values) & np.isfinite(beside)
    one, other = values[both], beside[both]
    if len(one) < LEAST or (one % 1 == 0).all():
        return
    if longer.endswith((" min", " max", " std", " median")):
        say(key, "episode_return", 2.0)
        return
    if (other < 0).any():
        return
    if _is_share_of(beside, values, STRONG):
        say(key, "ref_kl", 1.5 * RELATED)
        say(longer, "kl_term", 1.5 * RELATED)
    elif _is_cut_short(beside, values, first=True) and not longer.lower().endswith(("std", "sd", "dev")):
        say(key, "grad_norm", 1.4)
        say(longer, CLIPPED, 1.4)
    else:
        say(key, "episode_return", 2.0)
        say(longer, "reward_std", 1.8)


def is_kin(one: str, other: str) -> bool:
    """Tell whether two names begin with the same word."""
    ours, theirs = words_of(one), words_of(other)
    return one != other and bool(ours and theirs) and ours[0][:1] == theirs[0][:1]


def extends(longer: str, key: str) -> bool:
    """Tell whether a name is another one and more words."""
    return len(longer) > len(key) > 1 and longer.startswith(key) and not longer[len(key)].isalnum()


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
    if len(a) < LEAST or a.std() == 0 or b.std() == 0:
        return 0.0
    return float(((a - a.mean()) * (b - b.mean())).mean() / (a.std() * b.std()))


def _finite(values: FloatArray) -> FloatArray:
    return values[np.isfinite(values)]


def _is_small(values: FloatArray) -> bool:
    known = _finite(values)
    return bool(
        len(known) >= LEAST and (known < 0).mean() < 0.03 and 0 < np.median(np.abs(known)) < 0.3 and not _stands(known)
    )


def _is_share(values: FloatArray) -> bool:
    known = _finite(values)
    return bool(
        len(known) >= LEAST
        and known.min() >= 0
        and (known.max() <= 1 or (3 < known.max() <= 100 and (known == 0).any()))
        and known.min() < 0.3 * np.median(known) + 1e-9
        and not _stands(known)
    )


def _is_below(values: FloatArray, share: FloatArray) -> bool:
    """Tell of two small columns that go together whether the second is the share: 0 in places, or the larger."""
    return bool((share == 0).any() or np.nanmedian(share) > np.nanmedian(values))


def _is_explained(values: FloatArray) -> bool:
    known = _finite(values)
    return bool(len(known) >= LEAST and 0.2 < known.max() <= 1.0 and np.ptp(known) > 0.2 and (known == 0).mean() < 0.1)


def _is_distance(values: FloatArray) -> bool:
    """Tell whether a column is like a KL to where training began: never negative, and growing from little."""
    known = _finite(values)
    return bool(len(known) >= LEAST and known.min() >= 0 and 0.3 * known.max() > known[0] and known[-1] > 2 * known[0])


def _is_part(part: FloatArray, whole: FloatArray) -> bool:
    """Tell whether one column is nearly a number below 1 times the other, which is 0 in the first record alone."""
    both = (whole > 0) & np.isfinite(part)
    if both.sum() < LEAST or whole[0] != 0:
        return False
    low, middle, high = np.quantile(part[both] / whole[both], [0.1, 0.5, 0.9])
    return bool(0 < middle < 1 and high - low < 0.3 * middle)


def _is_above_one(values: FloatArray) -> bool:
    """Tell whether a column is never below 1, next to it in places, and no count."""
    known = _finite(values)
    return bool(len(known) >= LEAST and 1 <= known.min() < NEAR_ONE and (known % 1 != 0).mean() > 0.5)


def _is_signed(values: FloatArray) -> bool:
    known = _finite(values)
    return bool(len(known) >= LEAST and known.min() < 0 < known.max())


def _is_error(values: FloatArray) -> bool:
    known = _finite(values)
    return bool(len(known) >= LEAST and known.min() >= 0 and not _stands(known))


def _stands(known: FloatArray) -> bool:
    return bool(known.min() == known.max())


def _is_logarithm(entropy: FloatArray, deviation: FloatArray) -> bool:
    """Tell whether one column is a constant and the logarithm of the other, once for each action of a Gaussian."""
    both = (deviation > 0) & np.isfinite(deviation) & np.isfinite(entropy)
    if both.sum() < LEAST:
        return False
    x, y = np.log(deviation[both]), entropy[both]
    if x.std() < 1e-3 or y.std() < 1e-3:
        return False
    slope = float(((x - x.mean()) * (y - y.mean())).mean() / x.var())
    rest = y - y.mean() - slope * (x - x.mean())
    return slope > 0.9 and float(rest.std()) < 0.1 * float(y.std())


def _is_cut(after: FloatArray, before: FloatArray) -> bool:
    """Tell whether one column is the other, but for a bound above which it never is: a norm as it is clipped."""
    both = np.isfinite(after) & np.isfinite(before)
    a, b = after[both], before[both]
    if len(a) < LEAST or not (b > 0).all() or b.std() == 0 or not (a <= b * 1.0001).all():
        return False
    same = np.isclose(a, b, rtol=1e-4)
    cut = a[~same]
    return bool(len(cut) and same.mean() > 0.05 and cut.std() <= 1e-3 * cut.mean())


def _is_calm(values: FloatArray) -> bool:
    """Tell whether a column moves little from record to record, and moves in all."""
    known = _finite(values)
    return bool(len(known) >= LEAST and known.std() > 0 and np.square(np.diff(known)).mean() < 0.1 * known.var())


def _stands_below(one: FloatArray, other: FloatArray) -> bool:
    """Tell whether a column is positive, and changes less than another in all: a deviation beside its entropy."""
    return bool(np.nanmin(one) > 0 and (np.nanmin(other) < 0 or np.nanmean(one) <= np.nanmean(other)))


def _is_of_size(root: FloatArray, values: FloatArray) -> bool:
    """Tell whether one column is never negative and has the size of the root of another, nearer to 0."""
    a, b = _finite(root), np.abs(_finite(values))
    if len(a) < LEAST or (a < 0).any() or not b.any():
        return False
    size = float(np.median(b))
    return bool(0 < size < LARGE and NEARLY[0] < float(np.median(a)) / math.sqrt(size) < NEARLY[1])


def _is_cut_short(after: FloatArray, before: FloatArray, first: bool) -> bool:
    """Tell whether one column is a norm and the other what clipping leaves of it, if only in some minibatches.

    Of two that are the same throughout the one that stands `first` is before clipping.
    """
    both = np.isfinite(after) & np.isfinite(before)
    a, b = after[both], before[both]
    if len(a) < LEAST or not (b > 0).all() or b.std() == 0 or (a < 0).any() or not (a <= b * 1.01 + 1e-6).all():
        return False
    same = float(np.isclose(a, b, rtol=0.02).mean())
    steady = a.std() < 0.4 * b.std() and a.std() <= 0.15 * a.mean()
    return (same < 1.0 or first) and bool(steady or same > 0.05)


def _is_around_one(least: FloatArray, most: FloatArray) -> bool:
    """Tell whether 1 lies between two columns in every record, as it does between the bounds of ratios."""
    known = np.isfinite(least) & np.isfinite(most)
    a, b = least[known], most[known]
    whole = (b % 1 == 0).all()  # a count
    return bool(len(a) >= LEAST and (a >= 0).all() and (a <= 1).all() and (b >= 1).all() and not whole)


def _is_share_of(part: FloatArray, whole: FloatArray, most: float) -> bool:
    """Tell whether one column is a coefficient times another, which is measured: a KL and its term of the loss."""
    both = np.isfinite(part) & np.isfinite(whole) & (whole > 0)
    a, b = part[both], whole[both]
    if len(a) < LEAST or (a <= 0).any() or not np.any(np.diff(b) > 0) or not np.any(np.diff(b) < 0):
        return False
    share = a / b
    alike, apart = float(share.std() / share.mean()), float(b.std() / b.mean())
    same = any(abs(float(share.mean()) / unit - 1) < SAME_UNIT for unit in UNITS)
    return bool(share.max() < most and alike < min(0.03, 0.1 * apart) and not same)


def _is_root(root: FloatArray, values: FloatArray) -> bool:
    """Tell whether one column is as the root of another: a small KL is half the variance of a ratio's logarithm."""
    both = (values > 0) & (root > 0)
    if both.sum() < LEAST or float(np.median(values[both])) > LARGE:
        return False
    x, y = np.log(values[both]), np.log(root[both])
    if x.std() < 0.1 or not FACTOR[0] < float(np.exp(np.median(y - x / 2))) < FACTOR[1]:
        return False
    slope = float(((x - x.mean()) * (y - y.mean())).mean() / x.var())
    return ROOT[0] < slope < ROOT[1]


def of_one_norm(key: str, norm: str) -> bool:
    """Tell whether a name is another one and more words, or begins with the same one behind its groups."""
    return extends(key, norm) or is_kin(key.rpartition("/")[2], norm.rpartition("/")[2])
