"""Compare log-probs of equal tokens: at other offsets, after equal prefixes, in other epochs or updates."""

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

#: Elements at the head of a dump that are looked at.
HEAD = 1 << 18
#: Fewer pairs do not tell a correlation: its standard error would be above 0.071.
LEAST_PAIRS = 200
#: Offsets: neighbouring tokens, and usual numbers of environments whose rows alternate.
OFFSETS = (1, 2, 3, 4, 8, 16, 32, 64, 128)


def shift_gain(new: Tensor, old: Tensor, mask: Tensor | None = None) -> float | None:
    """Return by how much the correlation of new and old log-probs is larger at another offset.

    At most 0 where they agree best as they are. None for fewer than LEAST_PAIRS pairs, or where one does not vary.
    Offset k means that new[i] goes with old[i + k].
    """
    columns = _beginning(new), _beginning(old), None if mask is None else _beginning(mask) != 0
    here = _correlation_at(*columns, 0)
    if math.isnan(here):
        return None
    length = new.shape[-1] if len(new.shape) > 1 else new.size
    offsets = [k for size in OFFSETS if size < length for k in (size, -size)]
    there = [found for k in offsets if not math.isnan(found := _correlation_at(*columns, k))]
    return max(there) - here if there else None


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
    x, y = one.head(rows), other.head(rows)
    keep = np.isfinite(x) & np.isfinite(y)
    if mask is not None:
        keep &= mask.head(rows) != 0
    places = prefixes(tokens.head(rows), group.head(rows))
    with np.errstate(invalid="ignore"):
        return _within((x - y)[keep], places[keep])


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


#: Elements at the head of a dump that are looked at.
MOST_FOLLOWED = 1 << 19
#: Changes below this (nats) are rounding.
ROUNDING = 1e-5


def change_correlation(new: Tensor, old: Tensor, cells: Cells, mask: Tensor | None = None) -> float | None:
    """Return the correlation of the changes of new log-probs, token by token, from one epoch to the next two.

    A policy that moves on repeats the sign of its changes; noise that every pass draws anew takes the last one back:
    -0.5. Samples are known again by their old log-probs, which are the same bits in every epoch. `new` and `old` have
    shape [rows, time]. None for fewer than three epochs, or pairs than LEAST_PAIRS.
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
    return _of_changes(np.concatenate(earlier), np.concatenate(later)) if earlier else None


def _numbered_rows(old: Floats) -> npt.NDArray[np.int64]:
    """Return a number per row that is equal for rows of the same bits."""
    whole = np.ascontiguousarray(old).view(np.dtype((np.void, old.dtype.itemsize * old.shape[1]))).ravel()
    return np.asarray(np.unique(whole, return_inverse=True)[1], np.int64)


def _by_sample(known: npt.NDArray[np.int64], inside: npt.NDArray[np.bool_]) -> dict[int, int]:
    """Return sample → row for the samples that stand once among some rows."""
    rows = np.flatnonzero(inside)
    samples, first, counts = np.unique(known[rows], return_index=True, return_counts=True)
    alone = counts == 1
    return dict(zip(samples[alone].tolist(), rows[first[alone]].tolist(), strict=True))


def _of_changes(one: Floats, other: Floats) -> float | None:
    if len(one) < LEAST_PAIRS or max(float(np.std(one)), float(np.std(other))) < ROUNDING:
        return None
    size = math.sqrt(float(np.dot(one, one)) * float(np.dot(other, other)))
    return float(np.dot(one, other)) / size if size > 0 else None


#: Fewer tokens that two updates have in common do not tell a change.
LEAST_COMMON = 8
#: Tokens of an update that are kept.
MOST_KEPT = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SamplerLogProbs:
    """The sampler's log-probs of tokens: `keys` are equal for equal tokens after equal prefixes, `values` in nats."""

    keys: npt.NDArray[np.uint64]
    values: npt.NDArray[np.float64]


def sampler_log_probs(batch: Batch, cells: Cells | None, mask: Tensor | None) -> SamplerLogProbs | None:
    """Return the sampler's log-probs in the first epoch by prompt and tokens; None where the dump lacks any of these.

    The old log-probs are the sampler's where no others are there.
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
    """Return one number per row for prompts that are told by one, or by their tokens."""
    if prompt.ndim == 1:
        return prompt
    flat = prompt.reshape(len(prompt), -1)
    return (prefixes(flat, np.zeros(len(flat)))[:, -1] >> np.uint64(12)).astype(np.float64)  # which it holds exactly


def _bounded(keys: npt.NDArray[np.uint64], values: npt.NDArray[np.float64]) -> SamplerLogProbs:
    """Keep each key once; those with the smallest keys, so that two updates keep the same ones."""
    kept, first = np.unique(keys, return_index=True)
    return SamplerLogProbs(keys=kept[:MOST_KEPT], values=values[first[:MOST_KEPT]])


def joined_updates(parts: Sequence[SamplerLogProbs]) -> SamplerLogProbs:
    """Return the sampler's log-probs in several files of one update."""
    return _bounded(np.concatenate([part.keys for part in parts]), np.concatenate([part.values for part in parts]))


def rms_change(earlier: SamplerLogProbs, later: SamplerLogProbs) -> float:
    """Return the root mean square of the change of log-probs of common tokens, in nats; NaN where they are few."""
    _, at, there = np.intersect1d(earlier.keys, later.keys, assume_unique=True, return_indices=True)
    if len(at) < LEAST_COMMON:
        return math.nan
    return float(np.sqrt(np.mean((later.values[there] - earlier.values[at]) ** 2)))
