"""Epochs and minibatches of the samples of a dump: which came before any step, which begin an epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo_doctor.tensors.moments import Summary, describe
from ppo_doctor.tensors.tensor import Tensor

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.tensors.batches import Batch

    Ids = npt.NDArray[np.int64]

#: More rows than this are not told apart by epoch.
MOST_ROWS = 1 << 26
MOST_EPOCHS = 64
#: Means of the same float32 numbers that were summed in another order agree to this, relative to their deviation.
SAME = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """The epoch and the minibatch of each row, or of the whole dump: arrays of shape [rows], or [1]."""

    epochs: Ids
    minibatches: Ids

    @property
    def first(self) -> npt.NDArray[np.bool_]:
        """Return which rows were trained on before any optimizer step of this update."""
        return np.asarray((self.epochs == 0) & (self.minibatches == 0))

    @property
    def count(self) -> int:
        """Return how many minibatches of epochs there are."""
        pairs = np.broadcast_arrays(self.epochs, self.minibatches)
        return len(np.unique(pairs[0] * (int(self.minibatches.max(initial=0)) + 1) + pairs[1]))

    @property
    def within(self) -> npt.NDArray[np.bool_]:
        """Return which rows come after the first minibatch of their epoch."""
        return np.asarray(self.minibatches > 0)

    @property
    def later_starts(self) -> npt.NDArray[np.bool_]:
        """Return which rows are the first minibatch of a later epoch."""
        return np.asarray((self.epochs > 0) & (self.minibatches == 0))


def cells_of(batch: Batch, rows: int, scalars: dict[str, int]) -> Cells | None:
    """Return epoch and minibatch of a dump's rows, from tensors of one number per row or from single numbers.

    Epochs and minibatches that count from 1 are taken back to 0 where the dump holds several of them. None where
    either is unknown.
    """
    found = {}
    for name in ("epoch", "minibatch"):
        tensor = batch.get(name)
        if tensor is not None and tensor.size in (1, rows) and tensor.size <= MOST_ROWS:
            ids = np.concatenate([piece.astype(np.float64) for piece in tensor.chunks()])
            if not np.isfinite(ids).all():
                return None
            ids = ids.astype(np.int64)
            found[name] = ids - ids.min() if len(ids) > 1 and ids.min() == 1 and ids.max() > 1 else ids
        elif name in scalars:
            found[name] = np.array([scalars[name]], np.int64)
    if len(found) < 2:
        return None
    return Cells(epochs=found["epoch"], minibatches=found["minibatch"])


def chosen(base: Tensor, rows: npt.NDArray[np.bool_], mask: Tensor | None) -> Tensor | None:
    """Return a mask of the size of `base` for some of its rows, within another mask; None where it leaves nothing."""
    if not rows.any():
        return None
    if len(rows) == 1 or rows.all():
        return mask if mask is not None else _whole(base)
    whole = _spread(rows, base)
    if mask is None:
        return whole
    kept = np.concatenate([piece != 0 for piece in mask.chunks()])
    kept &= np.concatenate([piece != 0 for piece in whole.chunks()])
    return Tensor.of("rows", kept.reshape(base.shape)) if kept.any() else None


def _whole(base: Tensor) -> Tensor:
    one = Tensor.of("rows", np.ones(1, bool))
    return replace(one, shape=base.shape, stride=tuple(0 for _ in base.shape))


def _spread(values: npt.NDArray[Any], base: Tensor) -> Tensor:
    """Return one value per row as one per element, without copying."""
    inner = tuple(0 for _ in base.shape[1:])
    return replace(Tensor.of("rows", values), shape=base.shape, stride=(1, *inner))


def spread_rows(values: npt.NDArray[Any], base: Tensor) -> Tensor:
    """Return one value per row of a tensor of shape [rows, time] as one per element."""
    return _spread(values, base)


def places(base: Tensor) -> Tensor:
    """Return the place of each element of a tensor of shape [rows, time] in its row."""
    line = Tensor.of("places", np.arange(base.shape[1], dtype=np.float32))
    return replace(line, shape=base.shape, stride=(0, 1))


def per_epoch(tensor: Tensor, cells: Cells, mask: Tensor | None) -> Iterator[tuple[int, Summary]]:
    """Yield the epochs of a dump, each with the summary of the tensor's values in it."""
    for epoch in np.unique(cells.epochs)[:MOST_EPOCHS]:
        keep = chosen(tensor, cells.epochs == epoch, mask)
        if keep is not None:
            yield int(epoch), describe(tensor, keep)


def drift(epochs: Sequence[Summary]) -> float:
    """Return the largest change of the mean between epochs over the same number of values, in deviations of the first.

    0 where the values are those of the first epoch, whatever their order; NaN for a single epoch, or other samples.
    """
    alike = [one for one in epochs if one.count and one.count == epochs[0].count]
    if len(alike) < 2 or not alike[0].std > 0:
        return math.nan
    most = max(abs(one.mean - alike[0].mean) for one in alike[1:]) / alike[0].std
    return 0.0 if most < SAME else most
