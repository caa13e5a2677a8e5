"""The same tokens in several epochs: a policy that learns moves on, noise moves to and fro."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.tensors.cells import Cells
    from ppo_doctor.tensors.tensor import Tensor

    Floats = npt.NDArray[np.float64]

#: Elements at the head of a dump that are looked at.
HEAD = 1 << 19
#: Fewer pairs of successive changes do not tell a correlation.
LEAST_PAIRS = 200
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
    rows = min(new.shape[0], max(1, HEAD // max(new.shape[1], 1)))
    n, o = _head(new, rows), _head(old, rows)
    keep = np.isfinite(n) & np.isfinite(o) if mask is None else (_head(mask, rows) != 0) & np.isfinite(n)
    known = _known(np.where(keep, o, 0.0))
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
    return _correlation(np.concatenate(earlier), np.concatenate(later)) if earlier else None


def _head(tensor: Tensor, rows: int) -> Floats:
    first = next(chain(tensor.chunks(rows * tensor.shape[1]), [np.empty(0)]))
    return first.astype(np.float64).reshape(-1, tensor.shape[1])


def _known(old: Floats) -> npt.NDArray[np.int64]:
    """Return a number per row that is equal for rows of the same bits."""
    whole = np.ascontiguousarray(old).view(np.dtype((np.void, old.dtype.itemsize * old.shape[1]))).ravel()
    return np.asarray(np.unique(whole, return_inverse=True)[1], np.int64)


def _by_sample(known: npt.NDArray[np.int64], inside: npt.NDArray[np.bool_]) -> dict[int, int]:
    """Return sample → row for the samples that stand once among some rows."""
    rows = np.flatnonzero(inside)
    samples, first, counts = np.unique(known[rows], return_index=True, return_counts=True)
    alone = counts == 1
    return dict(zip(samples[alone].tolist(), rows[first[alone]].tolist(), strict=True))


def _correlation(one: Floats, other: Floats) -> float | None:
    if len(one) < LEAST_PAIRS or max(float(np.std(one)), float(np.std(other))) < ROUNDING:
        return None
    size = math.sqrt(float(np.dot(one, one)) * float(np.dot(other, other)))
    return float(np.dot(one, other)) / size if size > 0 else None
