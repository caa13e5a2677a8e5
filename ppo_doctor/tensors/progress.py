"""How KL grows from minibatch to minibatch of an update: steps move a policy away, noise is there from the start."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.tensors.statistics import SMALL, k3_series

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.tensors.cells import Cells
    from ppo_doctor.tensors.tensor import Tensor

    Floats = npt.NDArray[np.float64]

#: Elements that are looked at at a time.
PIECE = 1 << 16
#: A KL below this (nats) is what float32 makes of equal log-probs.
LEAST_KL = 1e-8
#: Fewer minibatches do not tell a trend.
LEAST_CELLS = 6


@dataclass(frozen=True, slots=True)
class Kl:
    """Samples of one minibatch of one epoch, and their sum of k3 in nats."""

    count: int
    total: float

    @property
    def mean(self) -> float:
        """Return the mean KL, NaN without samples."""
        return self.total / self.count if self.count else math.nan


Cell = tuple[int, int]


def kl_by_cell(new: Tensor, old: Tensor, cells: Cells, mask: Tensor | None) -> dict[Cell, Kl]:
    """Return the KL of each (epoch, minibatch) of a dump, in one pass; pairs that are not finite are left out.

    `new`, `old` and `mask` have one size, their first axis is the rows that `cells` tells.
    """
    if not new.size or new.size != old.size or (mask is not None and mask.size != new.size):
        return {}
    rows = new.shape[0] if new.shape else 1
    totals, counts = _by_row(new, old, mask, rows)
    epochs, minibatches = (np.broadcast_to(ids, rows) for ids in (cells.epochs, cells.minibatches))
    pairs, place = np.unique(np.stack([epochs, minibatches]), axis=1, return_inverse=True)
    place = place.reshape(-1)
    sums = np.bincount(place, weights=totals, minlength=pairs.shape[1])
    sizes = np.bincount(place, weights=counts, minlength=pairs.shape[1])
    return {
        (int(epoch), int(minibatch)): Kl(int(size), float(total))
        for epoch, minibatch, size, total in zip(*pairs.tolist(), sizes.tolist(), sums.tolist(), strict=True)
        if size
    }


def _by_row(new: Tensor, old: Tensor, mask: Tensor | None, rows: int) -> tuple[Floats, Floats]:
    """Return the sum of k3 over each row, and how many of its samples are counted."""
    width = new.size // rows
    step = max(1, PIECE // width)
    totals, counts = np.zeros(rows), np.zeros(rows)
    kept = None if mask is None else mask.chunks(step * width)
    with np.errstate(over="ignore", invalid="ignore"):
        for at, (n, o) in enumerate(zip(new.chunks(step * width), old.chunks(step * width), strict=True)):
            d = n.astype(np.float64) - o
            usable = np.isfinite(d)
            if kept is not None:
                usable &= next(kept) != 0
            values = k3_of(np.where(usable, d, 0.0)).reshape(-1, width)
            here = slice(at * step, at * step + len(values))
            totals[here] = values.sum(axis=1)
            counts[here] = usable.reshape(-1, width).sum(axis=1)
    return totals, counts


def k3_of(d: Floats) -> Floats:
    """Return r - 1 - log r of log-ratios, one by one (Schulman 2020)."""
    return np.where(np.abs(d) < SMALL, k3_series(d), np.exp(d) - 1 - d)


def joined(parts: Iterable[Mapping[Cell, Kl]]) -> dict[Cell, Kl]:
    """Return the minibatches of several files of one update."""
    found: dict[Cell, Kl] = {}
    for part in parts:
        for cell, kl in part.items():
            before = found.get(cell, Kl(0, 0.0))
            found[cell] = Kl(before.count + kl.count, before.total + kl.total)
    return found


def growth(cells: Mapping[Cell, Kl]) -> dict[str, float]:
    """Return how KL grows through an update.

    `kl_first_epoch_share` is the KL of the first epoch over that of the last: optimizer steps make it small. A policy
    that is synced at every epoch, or noise, has 1. `kl_step_corr` is the correlation of the root of a minibatch's KL,
    which grows with the way gone, with the number of steps before it. Both are left out where nothing moves.
    """
    found: dict[str, float] = {}
    epochs = sorted({epoch for epoch, _ in cells})
    if len(epochs) > 1:
        first, last = (_pooled(cells, epoch) for epoch in (epochs[0], epochs[-1]))
        if math.isfinite(first) and LEAST_KL < last < math.inf:
            found["kl_first_epoch_share"] = first / last
    roots = np.sqrt([max(0.0, cells[cell].mean) for cell in sorted(cells)])
    if len(roots) >= LEAST_CELLS and np.isfinite(roots).all() and roots.max() ** 2 > LEAST_KL and np.ptp(roots) > 0:
        found["kl_step_corr"] = float(np.corrcoef(roots, np.arange(len(roots)))[0, 1])
    return found


def _pooled(cells: Mapping[Cell, Kl], epoch: int) -> float:
    held = [kl for (at, _), kl in cells.items() if at == epoch]
    return Kl(sum(kl.count for kl in held), math.fsum(kl.total for kl in held)).mean
