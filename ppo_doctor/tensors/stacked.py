"""Several updates in one file: rows that say which update they are of, or a leading axis of updates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.errors import DoctorError
from ppo_doctor.tensors.tensor import Archive, Tensor

if TYPE_CHECKING:
    import numpy.typing as npt

    Ids = npt.NDArray[np.int64]

_LOG_PROBS = ("log_prob", "old_log_prob", "rollout_log_prob", "advantages")
_NUMBERS = ("update", "step")
MOST_ROWS, MOST_UPDATES = 1 << 26, 1 << 12


def updates_of(archive: Archive) -> list[Archive]:
    """Return a dump as one archive for each update in it, as views; one of a single update as it is.

    Updates are told by a number for each row (`update`, `global_step`), or for each entry of a leading axis.

    Raises:
        DoctorError: there are more updates than a dump has, or those of one lie apart.
    """
    rows = next((t.shape[0] for t in _samples(archive)), 0)
    numbers = _numbers(archive, rows)
    if numbers is None:
        return [archive]
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    if len(starts) > MOST_UPDATES or len(np.unique(numbers)) < len(starts):
        hint = "write one file for each update, or the rows of an update one after the other"
        raise DoctorError(f"{archive.path}: rows of {len(starts):,} updates are mixed or too many", hint=hint)
    ends = [*starts[1:].tolist(), rows]
    return [_part(archive, int(numbers[start]), (int(start), end)) for start, end in zip(starts, ends, strict=True)]


def _samples(archive: Archive) -> list[Tensor]:
    return [t for name, t in archive.tensors.items() if archive.roles[name] in _LOG_PROBS and t.shape]


def _numbers(archive: Archive, rows: int) -> Ids | None:
    """Return the update of each row where there are several."""
    for known in _NUMBERS:
        for name, tensor in archive.tensors.items():
            if archive.roles[name] == known and tensor.shape == (rows,) and 1 < rows <= MOST_ROWS:
                values = np.concatenate([piece.astype(np.float64) for piece in tensor.chunks()])
                if np.isfinite(values).all() and len(np.unique(values)) > 1:
                    return values.astype(np.int64)
    return None


def _part(archive: Archive, number: int, rows: tuple[int, int]) -> Archive:
    scalars, roles = {**archive.scalars, "step": number}, {**archive.roles, "step": "step"}
    return replace(archive, tensors=dict(_cut(archive, rows)), scalars=scalars, roles=roles)


def _cut(archive: Archive, rows: tuple[int, int]) -> Iterator[tuple[str, Tensor]]:
    samples = _samples(archive)
    whole, deep = samples[0].shape[0], any(len(t.shape) == 3 for t in samples)
    for name, tensor in archive.tensors.items():
        if archive.roles[name] in _NUMBERS:
            continue
        yield name, _rows(tensor, rows, squeezed=deep) if tensor.shape[:1] == (whole,) else tensor


def _rows(tensor: Tensor, rows: tuple[int, int], *, squeezed: bool) -> Tensor:
    start, stop = rows
    offset = tensor.offset + start * tensor.stride[0]
    if squeezed and stop - start == 1:
        return replace(tensor, shape=tensor.shape[1:], stride=tensor.stride[1:], offset=offset)
    return replace(tensor, shape=(stop - start, *tensor.shape[1:]), offset=offset)
