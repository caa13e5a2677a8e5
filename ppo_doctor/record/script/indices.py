"""Tell the samples of a minibatch apart: by their values, and by the places in the batch they were taken from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ppo_doctor.record.script.places import Stack

Tensor = Any
Array = np.ndarray[Any, np.dtype[Any]]

#: Most coordinates of an input by which samples are told apart, and most samples of one call.
COORDINATES, MOST_ROWS = 64, 1 << 15
_COEFFICIENTS = np.random.default_rng(20171).integers(1, 2**62, COORDINATES, dtype=np.int64) | 1
#: Sums of advantages over a group by their sizes: at most where they are centred, from which on where they are not.
CENTRED, OFF = 1e-4, 0.05
#: Operations that may change the order of values.
_REORDERING = frozenset(("flip", "roll", "sort", "transpose", "permute", "t", "swapaxes", "gather", "take"))
#: Operations that take values from one tensor by another.
_TAKING = frozenset(("__getitem__", "index_select"))


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """An operation: its result, name and line, the tensors and numbers given to it, and the main one of these."""

    result: Tensor
    name: str
    stack: Stack
    args: tuple[Any, ...]
    source: Tensor = None


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """A tensor, and the place in the batch of each of its samples, in the shape of its first dimensions."""

    tensor: Tensor
    places: Array


def taken_from(history: Sequence[Made], data: Tensor, samples: int) -> tuple[Array | None, int, Stack]:
    """Return the place in the batch of each sample of a tensor, the number of places, and the line that took them.

    `history` holds the operations that made the tensor, the last first. The latest of them that took values by whole
    numbers is looked for. It and those after it are repeated with the places. Places are None if they are unknown.
    """
    for depth, made in enumerate(history):
        index = next((each for each in map(_whole_numbers, made.args[1:]) if each is not None), None)
        if made.name not in _TAKING or index is None or made.source is None:
            continue
        size = data.numel() // max(samples, 1)
        batch = _counted(made.source, size)
        found = batch
        for each in reversed(history[: depth + 1]):
            found = _after(each, found, size)
        found = _viewed(found, data, size)
        if batch is not None and found is not None:
            return found.places.reshape(-1), batch.places.size, made.stack
        return index.reshape(-1) if index.size == samples else None, len(made.source), made.stack
    return None, 0, ()


def _counted(batch: Tensor, size: int) -> _Placed | None:
    leading = _leading(tuple(batch.shape), size)
    return None if leading is None else _Placed(batch, np.arange(math.prod(leading), dtype=np.int64).reshape(leading))


def _after(made: Made, found: _Placed | None, size: int) -> _Placed | None:
    """Return the places of an operation's result by those of its input, None if they are unknown."""
    found = _viewed(found, made.source, size)
    leading = _leading(tuple(made.result.shape), size)
    if found is None or leading is None:
        return None
    if _same_memory(found.tensor, made.result):
        return _viewed(found, made.result, size)
    try:
        if made.name == "__getitem__":
            index = (each if (array := _whole_numbers(each)) is None else array for each in made.args[1:])
            places = found.places[tuple(index)]
        elif made.name == "index_select":
            places = np.take(found.places, made.args[2].cpu().numpy(), axis=made.args[1])
        else:
            places = found.places.reshape(leading)
    except (IndexError, ValueError, TypeError):  # it takes parts of samples
        return None
    known = places.shape == leading and made.name not in _REORDERING
    return _Placed(made.result, places) if known else None


def _viewed(found: _Placed | None, view: Tensor, size: int) -> _Placed | None:
    """Return the places of a view of the same memory, by the addresses of samples."""
    leading = _leading(tuple(view.shape), size)
    if found is None or leading is None or not _same_memory(found.tensor, view):
        return None
    held, wanted = _addresses(found.tensor, found.places.shape), _addresses(view, leading).reshape(-1)
    order = np.argsort(held.reshape(-1), kind="stable")
    at = order[np.searchsorted(held.reshape(-1), wanted, sorter=order).clip(max=order.size - 1)]
    if not np.array_equal(held.reshape(-1)[at], wanted):
        return None
    return _Placed(view, found.places.reshape(-1)[at].reshape(leading))


def _addresses(tensor: Tensor, leading: tuple[int, ...]) -> Array:
    address: Array = np.full(leading, tensor.storage_offset(), dtype=np.int64)
    for dim, (length, stride) in enumerate(zip(leading, tensor.stride(), strict=False)):
        shape = [1] * len(leading)
        shape[dim] = length
        address = address + np.arange(length, dtype=np.int64).reshape(shape) * stride
    return address


def _same_memory(first: Tensor, second: Tensor) -> bool:
    return bool(first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr())


def _leading(shape: tuple[int, ...], size: int) -> tuple[int, ...] | None:
    """Return the first dimensions of a shape, those that count samples of a size; None if there are no such."""
    return next((shape[:n] for n in range(len(shape) + 1) if math.prod(shape[n:]) == size), None)


def _whole_numbers(value: object) -> Array | None:
    if isinstance(value, torch.Tensor) and value.dtype == torch.int64 and value.dim():
        return np.array(value.detach().cpu().numpy())
    if isinstance(value, np.ndarray) and value.dtype.kind == "i":
        return value.astype(np.int64)
    return None


def rows_of(data: Tensor, name: str) -> Array:
    """Return one number per sample of an input; equal samples have equal numbers."""
    with torch.no_grad():
        if name == "embedding":
            flat = data.reshape(data.shape[0] if data.dim() > 1 else 1, -1)
        elif name.startswith("conv") and data.dim() > 2:
            flat = data.reshape(data.shape[0], -1)
        else:
            flat = data.reshape(-1, data.shape[-1]) if data.dim() > 1 else data.reshape(1, -1)
        flat = flat[:MOST_ROWS, :: max(1, -(-flat.shape[1] // COORDINATES))].detach().cpu()
        floating = flat.is_floating_point()
        numbers = flat.float().contiguous().numpy().view(np.int32) if floating else flat.numpy()
    rows: Array = (numbers.astype(np.int64) * _COEFFICIENTS[: numbers.shape[1]]).sum(1)
    return rows


def off_prompts(sequences: Array, advantages: Array, computed: Array) -> float | None:
    """Return the share of prompts over whose sequences advantages do not sum to 0, though they do over groups.

    `computed` are the advantages in the order in which they were computed. It is None unless there are about as many
    prompts, told by how sequences begin, as groups.
    """
    size = _group_size(computed)
    prompts = _prompts(sequences, size) if size is not None else None
    if prompts is None or not np.array_equal(np.sort(advantages), np.sort(computed)):
        return None
    sums, sizes = np.bincount(prompts, advantages), np.bincount(prompts, np.abs(advantages))
    return float(np.mean(np.abs(sums[sizes > 0]) > OFF * sizes[sizes > 0]))


def _group_size(values: Array) -> int | None:
    """Return the smallest size of groups of values, side by side or every n-th, that all sum to 0."""
    for size in range(2, len(values) // 2 + 1):
        for groups in (values.reshape(-1, size), values.reshape(size, -1).T) if not len(values) % size else ():
            sizes = np.abs(groups).sum(1)
            if (sizes > 0).sum() > 1 and (np.abs(groups.sum(1)) <= CENTRED * (sizes + sizes.max())).all():
                return size
    return None


def _prompts(sequences: Array, size: int) -> Array | None:
    """Return the number of each sequence's prompt, of which there are nearly as many as groups of a size."""
    groups = len(sequences) // size
    for length in range(sequences.shape[1] - 1, 0, -1):
        prompts, counts = np.unique(sequences[:, :length], axis=0, return_inverse=True, return_counts=True)[1:]
        if len(counts) <= groups / 2:
            return None
        if len(counts) <= groups and not (counts % size).any():
            return np.asarray(prompts.reshape(-1))
    return None
