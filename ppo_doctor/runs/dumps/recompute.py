"""Recompute advantages from rewards, values and groups, and compare them with the stored ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.readers.tensors.tensor import Tensor
    from ppo_doctor.runs.dumps.batches import Batch

    Floats = npt.NDArray[np.float64]

#: Largest number of tokens of a dump that are recomputed, in whole rows from its beginning.
MOST_TOKENS = 1 << 20
#: Fewest rows and groups for a result.
LEAST_ROWS, LEAST_GROUPS = 16, 3
#: Usual discounts, which are tried if the configuration does not give them.
GAMMAS, LAMBDAS = (1.0, 0.999, 0.99, 0.98, 0.95, 0.9), (1.0, 0.98, 0.97, 0.95, 0.92, 0.9)
EPS = 1e-4
#: Groups are scaled if their median deviation is within this of 1.
_SCALED = 0.03
_NAN = math.nan
#: Groups are centred if their mean, in deviations of all advantages, is below this; half precision rounds to 5e-4.
_CENTRED = 5e-3
#: Quantile of groups that must be centred or scaled.
_MOST = 0.5
#: Advantages of a row are equal if they differ by less than this, in deviations of all advantages.
ALIKE = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """The agreement of stored advantages with recomputed ones; NaN for what is unknown.

    `correlation` is the best over the usual ways to compute them; whitening and scale do not change it. `reordered` is
    the largest gap between both after sorting, in deviations: 0 for the same numbers in another order. `std` is the
    deviation of the recomputed advantages. `other_groups` is the best correlation if rows are grouped in another way
    than the dump says. `group_mean` is the largest |mean| of a group, in deviations. `group_bound` is the largest
    |advantage| over (G - 1)/sqrt(G), the maximum for one of G numbers of mean 0 and unit deviation, if groups are
    scaled to that. `odd_group` is the largest |mean| of a group, in deviations, if most groups are centred.
    """

    correlation: float
    reordered: float
    std: float
    other_groups: float = math.nan
    group_mean: float = math.nan
    group_bound: float = math.nan
    odd_group: float = math.nan


def recomputed_advantages(
    batch: Batch,
    rows: npt.NDArray[np.bool_] | None,
    discounts: tuple[float | None, float | None],
    *,
    grouped: bool = True,
) -> Recomputed | None:
    """Return how a dump's advantages agree with its rewards: by groups, else by generalised advantage estimation.

    `rows` marks the rows of one pass over the samples, None means all. `discounts` are gamma and lambda, None if
    unknown; `grouped` says that groups are complete. The result is None if the dump lacks the arrays for it.
    """
    stored = batch.get("advantages")
    if stored is None or not stored.size or len(stored.shape) not in (1, 2):
        return None
    if len(stored.shape) == 1:  # one advantage per completion
        stored = replace(stored, shape=(stored.size, 1), stride=(*stored.stride, 1))
    loaded = _Loaded(stored.shape, rows)
    advantages = loaded(stored)
    mask = batch.get("mask")
    keep = np.ones(advantages.shape, bool)
    if mask is not None and mask.size == stored.size:
        keep = loaded(mask).reshape(advantages.shape) != 0
    advantages, keep, usable = _usable(advantages, keep)
    if len(advantages) < LEAST_ROWS:
        return None
    if _one_each(advantages, keep):
        by_groups = _by_groups(batch, loaded, _firsts(advantages, keep), usable) if grouped else None
        if by_groups is not None:
            return by_groups
    return _by_estimation(batch, loaded, advantages, keep, usable, discounts)


class _Loaded:
    """Reads the examined rows of tensors."""

    def __init__(self, shape: tuple[int, ...], rows: npt.NDArray[np.bool_] | None) -> None:
        self.shape = shape
        self.head = min(shape[0], max(1, MOST_TOKENS // max(shape[1], 1)))
        self.rows = None if rows is None or len(rows) != shape[0] else np.flatnonzero(rows[: self.head])

    def __call__(self, tensor: Tensor | None) -> Floats:
        """Return the examined rows of a tensor, empty if it has another number of rows."""
        if tensor is None or not tensor.size or tensor.shape[0] != self.shape[0]:
            return np.empty(0)
        values = tensor.head(self.head)
        return values if self.rows is None else values[self.rows]


def _usable(advantages: Floats, keep: npt.NDArray[np.bool_]) -> tuple[Floats, Any, Any]:
    """Return advantages and mask of the rows whose kept advantages are finite, and which rows these are."""
    with np.errstate(invalid="ignore"):
        usable = keep.any(axis=1) & np.isfinite(np.where(keep, advantages, 0)).all(axis=1)
    return np.where(keep, advantages, 0.0)[usable], keep[usable], usable


def _one_each(advantages: Floats, keep: npt.NDArray[np.bool_]) -> bool:
    """Return whether every row has the same advantage for all its tokens."""
    low = np.where(keep, advantages, np.inf).min(axis=1)
    high = np.where(keep, advantages, -np.inf).max(axis=1)
    return bool((high - low).max() <= ALIKE * max(float(advantages[keep].std()), 1e-30))


def _firsts(values: Floats, keep: npt.NDArray[np.bool_]) -> Floats:
    """Return the value of each row at its first kept token."""
    first: Floats = values[np.arange(len(values)), keep.argmax(axis=1)]
    return first


def _by_groups(batch: Batch, loaded: _Loaded, stored: Floats, usable: npt.NDArray[np.bool_]) -> Recomputed | None:
    groups = loaded(batch.get("group"))
    if not usable.all() or groups.shape != stored.shape:
        return None
    _, place, counts = np.unique(groups, return_inverse=True, return_counts=True)
    size = int(counts[0])
    if size < 2 or len(counts) < LEAST_GROUPS or (counts != size).any():
        return None
    spread = float(stored.std())
    means = np.bincount(place, weights=stored) / counts
    rewards = loaded(batch.get("rewards"))
    rewards = rewards[:, 0] if rewards.ndim == 2 else rewards
    known = rewards.shape == stored.shape and bool(np.isfinite(rewards).all())
    unknown = Recomputed(correlation=_NAN, reordered=_NAN, std=_NAN)
    return replace(
        _by_rewards(rewards, stored, place, size) if known else unknown,
        group_mean=float(np.abs(means - stored.mean()).max()) / spread if spread > 0 else math.nan,
        group_bound=group_bound(stored, place, size),
        odd_group=odd_group(stored, place, size),
    )


def centred_by(stored: Floats, groups: Floats) -> bool:
    """Return whether advantages have a mean of 0 in most groups in which they vary."""
    _, place, counts = np.unique(groups, return_inverse=True, return_counts=True)
    means = np.bincount(place, weights=stored) / counts
    spreads = np.sqrt(np.bincount(place, weights=(stored - means[place]) ** 2) / counts)
    return _centred(stored, means[spreads > EPS])


def centred_in(stored: Floats, rewards: Floats, groups: Floats) -> bool:
    """Return whether advantages are a multiple of rewards minus their mean in every group in which both vary."""
    if not np.isfinite(rewards).all() or len(np.unique(rewards)) < 2:
        return False
    _, place, counts = np.unique(groups, return_inverse=True, return_counts=True)
    centred = rewards - (np.bincount(place, weights=rewards) / counts)[place]
    squares = [np.bincount(place, weights=one * other) for one, other in ((centred, centred), (stored, stored))]
    products = np.bincount(place, weights=centred * stored)
    varied = (squares[0] > EPS) & (squares[1] > EPS)
    near = products[varied] > (1 - EPS) * np.sqrt(squares[0][varied] * squares[1][varied])
    return int(varied.sum()) >= LEAST_GROUPS and bool(near.all())


def _varied(stored: Floats, place: npt.NDArray[Any], size: int) -> tuple[Floats, Floats]:
    """Return means and sample deviations of the groups in which advantages vary."""
    means = np.bincount(place, weights=stored) / size
    spreads = np.sqrt(np.bincount(place, weights=(stored - means[place]) ** 2) / (size - 1))
    varied = spreads > EPS
    return means[varied], spreads[varied]


def _centred(stored: Floats, means: Floats) -> bool:
    """Return whether most groups are centred; leave-one-out baselines or whitening of the batch leave few that are."""
    return len(means) >= LEAST_GROUPS and float(np.quantile(np.abs(means), _MOST)) < _CENTRED * float(stored.std())


def odd_group(stored: Floats, place: npt.NDArray[Any], size: int) -> float:
    """Return the largest |mean| of a group, in deviations of all advantages, or NaN unless most groups are centred."""
    means, _ = _varied(stored, place, size)
    return float(np.abs(means).max()) / float(stored.std()) if _centred(stored, means) else math.nan


def _by_rewards(rewards: Floats, stored: Floats, place: npt.NDArray[Any], size: int) -> Recomputed:
    best = _best(stored, _group_variants(rewards, place))
    others = [
        _best(stored, _group_variants(rewards, other)).correlation
        for other in _other_groups(len(stored), size)
        if not _same_groups(other, place)
    ]
    known = [value for value in others if not math.isnan(value)]
    return replace(best, other_groups=max(known, default=math.nan))


def group_bound(stored: Floats, place: npt.NDArray[Any], size: int) -> float:
    """Return the largest |advantage| over (G - 1)/sqrt(G) deviations of a group, where G is `size`.

    NaN unless most groups are centred and have the same (sample or population) deviation of about 1.
    """
    means, spreads = _varied(stored, place, size)
    usual = float(np.median(spreads)) if _centred(stored, means) else math.nan
    if not 1 - _SCALED <= usual <= math.sqrt(size / (size - 1)) + _SCALED:
        return math.nan
    if float(np.quantile(np.abs(spreads / usual - 1), _MOST)) > _SCALED:
        return math.nan
    return float(np.abs(stored).max()) / (usual * (size - 1) / math.sqrt(size))


def _other_groups(rows: int, size: int) -> Iterator[Any]:
    """Yield groupings that a mistake may produce: consecutive rows, or rows at equal distances."""
    at = np.arange(rows)
    yield at // size
    yield at % (rows // size)


def _same_groups(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Return whether two numberings divide rows into the same groups."""
    pairs = len(np.unique(np.stack([one, other], axis=1), axis=0))
    return bool(pairs == len(np.unique(one)) == len(np.unique(other)))


def _group_variants(rewards: Floats, place: npt.NDArray[Any]) -> Iterator[Floats]:
    """Yield rewards minus their group's mean, the same over the group's deviation (Shao et al. 2024), and rewards."""
    counts = np.bincount(place)
    centred = rewards - (np.bincount(place, weights=rewards) / counts)[place]
    yield centred
    spread = np.sqrt(np.bincount(place, weights=centred**2) / np.maximum(counts - 1, 1))
    yield centred / (spread[place] + EPS)
    yield rewards


def _by_estimation(
    batch: Batch,
    loaded: _Loaded,
    stored: Floats,
    keep: npt.NDArray[np.bool_],
    usable: npt.NDArray[np.bool_],
    discounts: tuple[float | None, float | None],
) -> Recomputed | None:
    rewards, values = loaded(batch.get("token_rewards")), loaded(batch.get("values"))
    if rewards.shape != (len(usable), stored.shape[1]) or values.shape != rewards.shape:
        return None
    rewards, values = (np.where(keep, array[usable], 0.0) for array in (rewards, values))
    if not (np.isfinite(rewards).all() and np.isfinite(values).all()):
        return None
    gammas = GAMMAS if discounts[0] is None else (discounts[0],)
    lambdas = LAMBDAS if discounts[1] is None else (discounts[1],)
    first = _firsts(stored, keep)
    best, gaps, spreads = math.nan, [], []
    for gamma in gammas:
        for decay in lambdas:
            estimate = estimated(rewards, values, keep, gamma, decay)
            match = correlation(stored[keep], estimate[keep])
            best = match if math.isnan(best) or abs(match) > abs(best) else best
            gaps.append(_reordered(first, _firsts(estimate, keep)))
            spreads.append(float(estimate[keep].std()))
    known = [gap for gap in gaps if not math.isnan(gap)]
    return Recomputed(correlation=best, reordered=min(known, default=math.nan), std=min(spreads))


def estimated(rewards: Floats, values: Floats, keep: npt.NDArray[np.bool_], gamma: float, decay: float) -> Floats:
    """Return generalised advantage estimates (Schulman et al. 2015) of rows that end with their last kept token.

    All arrays have shape [rows, time]; tokens that are not kept are skipped and get 0.
    """
    estimates = np.zeros_like(rewards)
    following, running = np.zeros(len(rewards)), np.zeros(len(rewards))
    for at in range(rewards.shape[1] - 1, -1, -1):
        here = keep[:, at]
        delta = rewards[:, at] + gamma * following - values[:, at]
        running = np.where(here, delta + gamma * decay * running, running)
        following = np.where(here, values[:, at], following)
        estimates[:, at] = np.where(here, running, 0.0)
    return estimates


def _best(stored: Floats, variants: Iterable[Floats]) -> Recomputed:
    """Return the agreement with the variant that correlates best; `std` is that of the first variant."""
    recomputed = list(variants)
    pairs = [(correlation(stored, one), _reordered(stored, one)) for one in recomputed]
    std = float(recomputed[0].std())
    known = [pair for pair in pairs if not math.isnan(pair[0])]
    if not known:
        return Recomputed(correlation=math.nan, reordered=math.nan, std=std)
    # Another variant than the one that correlates best by chance may have the same numbers in another order.
    gaps = [gap for _, gap in known if not math.isnan(gap)]
    best = max(known, key=lambda pair: abs(pair[0]))[0]
    return Recomputed(correlation=best, reordered=min(gaps, default=math.nan), std=std)


def correlation(one: Floats, other: Floats) -> float:
    """Return the correlation of two columns, NaN if one of them is constant."""
    one, other = one - one.mean(), other - other.mean()
    size = math.sqrt(float(np.dot(one, one))) * math.sqrt(float(np.dot(other, other)))
    return float(np.dot(one, other)) / size if size > 0 else math.nan


def _reordered(one: Floats, other: Floats) -> float:
    """Return the largest gap between two columns after sorting, both scaled to mean 0 and deviation 1."""
    if not (one.std() > 0 and other.std() > 0):
        return math.nan
    ranked = [np.sort((values - values.mean()) / values.std()) for values in (one, other)]
    return float(np.abs(ranked[0] - ranked[1]).max())
