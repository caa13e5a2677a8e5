"""Tokens that were sampled after the same prefix more than once: noise tells them apart, other weights do not."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.tensors.tensor import Tensor

    Floats = npt.NDArray[np.float64]

#: Elements at the head of a dump that are looked at.
HEAD = 1 << 18
#: Fewer repeated tokens than this do not tell a variance.
LEAST_REPEATED = 16
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def repeat_share(one: Tensor, other: Tensor, tokens: Tensor, group: Tensor, mask: Tensor | None = None) -> float | None:
    """Return the variance of d = one - other among equal tokens after equal prefixes, over its variance among them all.

    A difference of weights, temperature or position gives the same d to the same token in the same place: 0. Noise
    of every pass, as of dropout, gives each its own: 1. `one`, `other` and `tokens` have shape [rows, time], `group`
    is the prompt of each row. None where too few tokens repeat, or d does not vary.
    """
    if len(one.shape) != 2 or tokens.shape != one.shape or group.size != one.shape[0]:
        return None
    rows = min(one.shape[0], max(1, HEAD // max(one.shape[1], 1)))
    x, y = head(one, rows), head(other, rows)
    keep = np.isfinite(x) & np.isfinite(y)
    if mask is not None:
        keep &= head(mask, rows) != 0
    places = prefixes(head(tokens, rows), head(group, rows))
    with np.errstate(invalid="ignore"):
        return _within((x - y)[keep], places[keep])


def head(tensor: Tensor, rows: int) -> Floats:
    """Return the first rows of a tensor of shape [rows, time], or [rows], as float64."""
    inner = math.prod(tensor.shape[1:])
    first = next(chain(tensor.chunks(rows * inner), [np.empty(0)])) if inner else np.empty(0)
    return first.astype(np.float64).reshape(-1, *tensor.shape[1:])


def prefixes(tokens: Floats, group: Floats) -> npt.NDArray[Any]:
    """Return for each token a number that is equal for equal tokens after equal prefixes in one group."""
    found = np.empty(tokens.shape, np.uint64)
    state = _mixed(group.astype(np.int64).view(np.uint64))
    for at in range(tokens.shape[1]):
        state = _mixed(state ^ tokens[:, at].astype(np.int64).view(np.uint64))
        found[:, at] = state
    return found


def _mixed(state: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Spread the bits of 64-bit numbers one to one, so that small numbers do not cancel each other (SplitMix64)."""
    with np.errstate(over="ignore"):
        state = state + _FACTOR
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(state ^ (state >> np.uint64(31)))


def _within(d: Floats, prefixes: npt.NDArray[Any]) -> float | None:
    _, place, counts = np.unique(prefixes, return_inverse=True, return_counts=True)
    repeated = counts[place] > 1
    d, place = d[repeated], place[repeated]
    if len(d) < LEAST_REPEATED:
        return None
    spread = float(np.var(d))
    if not spread > 0:
        return None
    sums = np.bincount(place, weights=d, minlength=len(counts))
    means = sums / np.maximum(np.bincount(place, minlength=len(counts)), 1)
    kinds = int(np.count_nonzero(counts > 1))
    freedom = len(d) - kinds
    return float(np.sum((d - means[place]) ** 2) / freedom / spread) if freedom > 0 else None
