"""Compare log-probs of equal tokens: at other offsets, after equal prefixes, in several epochs or updates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.readers.tensors.tensor import Tensor
    from ppo_doctor.runs.dumps.batches import Batch, Cells

    Floats = npt.NDArray[np.float64]

#: Largest number of elements that are read from the beginning of an array.
HEAD = 1 << 18
#: Fewest pairs for a correlation; its standard error is then at most 0.071.
LEAST_PAIRS = 200
#: Offsets that are tried: neighbouring tokens, and usual numbers of environments with alternating rows.
OFFSETS = (1, 2, 3, 4, 8, 16, 32, 64, 128)


def shift_gain(new: Tensor, old: Tensor, mask: Tensor | None = None) -> float | None:
    """Return how much larger the correlation of new and old log-probs is at another offset.

    The gain is at most 0 if they agree best without an offset. None for fewer than LEAST_PAIRS pairs, or if one is
    constant. At offset k, new[i] is paired with old[i + k].
    """
    columns = _beginning(new), _beginning(old), None if mask is None else _beginning(mask) != 0
    here = _correlation_at(*columns, 0)
    if math.isnan(here):
        return None
    length = new.shape[-1] if len(new.shape) > 1 else new.size
    offsets = [k for size in OFFSETS if size < length for k in (size, -size)]
    shifted = [value for k in offsets if not math.isnan(value := _correlation_at(*columns, k))]
    return max(shifted) - here if shifted else None


def _beginning(tensor: Tensor) -> Floats:
    return next(tensor.chunks(HEAD), np.empty(0)).astype(np.float64)


def _correlation_at(new: Floats, old: Floats, keep: npt.NDArray[np.bool_] | None, offset: int) -> float:
    size = len(new) - abs(offset)
    if size < LEAST_PAIRS:
        return math.nan
    at, to = max(0, -offset), max(0, offset)
    one, other = new[at : at + size], old[to : to + size]
    usable = np.isfinite(one) & np.isfinite(other)
    if keep is not None:
        usable &= keep[at : at + size] & keep[to : to + size]
    one, other = one[usable], other[usable]
    if len(one) < LEAST_PAIRS or np.ptp(one) == 0 or np.ptp(other) == 0:
        return math.nan
    return float(np.corrcoef(one, other)[0, 1])


#: Fewest repeated tokens for a variance.
LEAST_REPEATED = 16
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def repeat_share(one: Tensor, other: Tensor, tokens: Tensor, group: Tensor, mask: Tensor | None = None) -> float | None:
    """Return the variance of d = one - other among equal tokens after equal prefixes, over that of all such tokens.

    A difference in weights, temperature or position is the same for the same token in the same place, which gives 0.
    Noise of each forward pass, such as dropout, differs and gives 1. `one`, `other` and `tokens` have shape
    [rows, time], `group` has the prompt of each row. None if too few tokens repeat, or d is constant.
    """
    if len(one.shape) != 2 or tokens.shape != one.shape or group.size != one.shape[0]:
        return None
    rows = min(one.shape[0], max(1, HEAD // max(one.shape[1], 1)))
    x, y = one.head(rows), other.head(rows)
    keep = np.isfinite(x) & np.isfinite(y)
    if mask is not None:
        keep &= mask.head(rows) != 0
    places = prefixes(tokens.head(rows), group.head(rows))
    with np.errstate(invalid="ignore"):
        return _within((x - y)[keep], places[keep])


def prefixes(tokens: Floats, group: Floats) -> npt.NDArray[Any]:
    """Return a hash for each token that is equal for equal tokens after equal prefixes in one group."""
    hashes = np.empty(tokens.shape, np.uint64)
    state = _mixed(group.astype(np.int64).view(np.uint64))
    for at in range(tokens.shape[1]):
        state = _mixed(state ^ tokens[:, at].astype(np.int64).view(np.uint64))
        hashes[:, at] = state
    return hashes


def _mixed(state: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Mix the bits of 64-bit numbers one to one, so that small numbers do not cancel each other (SplitMix64)."""
    with np.errstate(over="ignore"):
        state = state + _FACTOR
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(state ^ (state >> np.uint64(31)))


def _within(d: Floats, prefixes: npt.NDArray[Any]) -> float | None:
    """Return the variance of d among equal prefixes over its variance among all repeated ones, None if unknown."""
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


#: Largest number of elements that are followed through epochs.
MOST_FOLLOWED = 1 << 19
#: Changes of a smaller deviation (nats) are rounding.
ROUNDING = 1e-5


def change_correlation(new: Tensor, old: Tensor, cells: Cells, mask: Tensor | None = None) -> float | None:
    """Return the correlation between successive changes of new log-probs, token by token, over three epochs each.

    A policy that keeps moving repeats the sign of its changes; independent noise of each forward pass gives -0.5.
    Samples are identified by their old log-probs, which are bitwise equal in every epoch. `new` and `old` have shape
    [rows, time]. None for fewer than three epochs or fewer than LEAST_PAIRS pairs.
    """
    epochs = np.unique(cells.epochs)
    if len(new.shape) != 2 or len(cells.epochs) != new.shape[0] or len(epochs) < 3:
        return None
    rows = min(new.shape[0], max(1, MOST_FOLLOWED // max(new.shape[1], 1)))
    n, o = new.head(rows), old.head(rows)
    keep = np.isfinite(n) & np.isfinite(o) if mask is None else (mask.head(rows) != 0) & np.isfinite(n)
    known = _numbered_rows(np.where(keep, o, 0.0))
    placed = [_by_sample(known, cells.epochs[:rows] == epoch) for epoch in epochs]
    earlier, later = [], []
    for first, second, third in zip(placed, placed[1:], placed[2:], strict=False):
        both = np.array(sorted(set(first) & set(second) & set(third)), np.int64)
        if not len(both):
            continue
        a, b, c = (np.array([place[int(sample)] for sample in both]) for place in (first, second, third))
        inside = keep[a] & keep[b] & keep[c]
        earlier.append((n[b] - n[a])[inside])
        later.append((n[c] - n[b])[inside])
    return _uncentred_correlation(np.concatenate(earlier), np.concatenate(later)) if earlier else None


def _numbered_rows(old: Floats) -> npt.NDArray[np.int64]:
    """Return a number for each row that is equal for rows of the same bits."""
    whole = np.ascontiguousarray(old).view(np.dtype((np.void, old.dtype.itemsize * old.shape[1]))).ravel()
    return np.asarray(np.unique(whole, return_inverse=True)[1], np.int64)


def _by_sample(known: npt.NDArray[np.int64], inside: npt.NDArray[np.bool_]) -> dict[int, int]:
    """Return sample → row for the samples that occur exactly once among the rows inside."""
    rows = np.flatnonzero(inside)
    samples, first, counts = np.unique(known[rows], return_index=True, return_counts=True)
    alone = counts == 1
    return dict(zip(samples[alone].tolist(), rows[first[alone]].tolist(), strict=True))


def _uncentred_correlation(one: Floats, other: Floats) -> float | None:
    """Return the cosine of two columns of changes, None for few of them or for mere rounding."""
    if len(one) < LEAST_PAIRS or max(float(np.std(one)), float(np.std(other))) < ROUNDING:
        return None
    size = math.sqrt(float(np.dot(one, one)) * float(np.dot(other, other)))
    return float(np.dot(one, other)) / size if size > 0 else None


#: Fewest common tokens of two updates for a change.
LEAST_COMMON = 8
#: Largest number of tokens of an update that are kept.
MOST_KEPT = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SamplerLogProbs:
    """Log-probs of the sampler: `keys` are equal for equal tokens after equal prefixes, `values` are in nats."""

    keys: npt.NDArray[np.uint64]
    values: npt.NDArray[np.float64]


def sampler_log_probs(batch: Batch, cells: Cells | None, mask: Tensor | None) -> SamplerLogProbs | None:
    """Return the sampler's log-probs in the first epoch by prompt and tokens, None if the dump lacks any of these.

    Without log-probs of the sampler, the old log-probs are used.
    """
    sampler, tokens, prompt = batch.get("rollout_log_prob", "old_log_prob"), batch.get("tokens"), batch.prompt
    if sampler is None or tokens is None or prompt is None or len(sampler.shape) != 2 or not sampler.shape[1]:
        return None
    if tokens.shape != sampler.shape or not prompt.shape or prompt.shape[0] != sampler.shape[0]:
        return None
    rows = min(sampler.shape[0], max(1, HEAD // max(sampler.shape[1], math.prod(prompt.shape[1:]))))
    values = sampler.head(rows)
    keep = np.isfinite(values)
    if mask is not None and mask.shape == sampler.shape:
        keep &= mask.head(rows) != 0
    if cells is not None and len(cells.epochs) == sampler.shape[0]:
        keep &= (cells.epochs[:rows] == cells.epochs.min())[:, None]
    keys = prefixes(tokens.head(rows), _numbered(prompt.head(rows)))
    return _bounded(keys[keep], values[keep])


def _numbered(prompt: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return one number per row for prompts that are given as a number or as tokens."""
    if prompt.ndim == 1:
        return prompt
    flat = prompt.reshape(len(prompt), -1)
    return (prefixes(flat, np.zeros(len(flat)))[:, -1] >> np.uint64(12)).astype(
        np.float64
    )  # 52 bits, which float64 represents exactly


def _bounded(keys: npt.NDArray[np.uint64], values: npt.NDArray[np.float64]) -> SamplerLogProbs:
    """Return at most MOST_KEPT log-probs, one for each key; the smallest keys, so that all updates keep the same."""
    kept, first = np.unique(keys, return_index=True)
    return SamplerLogProbs(keys=kept[:MOST_KEPT], values=values[first[:MOST_KEPT]])


def joined_updates(parts: Sequence[SamplerLogProbs]) -> SamplerLogProbs:
    """Return the sampler's log-probs of several files of one update together."""
    return _bounded(np.concatenate([part.keys for part in parts]), np.concatenate([part.values for part in parts]))


def rms_change(earlier: SamplerLogProbs, later: SamplerLogProbs) -> float:
    """Return the root mean square change of log-probs of common tokens, in nats; NaN if fewer than LEAST_COMMON."""
    _, at, there = np.intersect1d(earlier.keys, later.keys, assume_unique=True, return_indices=True)
    if len(at) < LEAST_COMMON:
        return math.nan
    return float(np.sqrt(np.mean((later.values[there] - earlier.values[at]) ** 2)))
