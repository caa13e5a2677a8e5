"""Several updates in one file: rows that say which update they are of, or a leading axis of updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.errors import DoctorError
from ppo_doctor.tensors.naming import roles_of
from ppo_doctor.tensors.tensor import Archive, Tensor

if TYPE_CHECKING:
    import numpy.typing as npt

    Ids = npt.NDArray[np.int64]

_LOG_PROBS = ("log_prob", "old_log_prob", "rollout_log_prob", "advantages")
_NUMBERS = ("update", "step")
MOST_ROWS, MOST_UPDATES = 1 << 26, 1 << 12


def updates_of(archive: Archive, overrides: Mapping[str, str] | None = None) -> list[Archive]:
    """Return a dump as one archive for each update in it, as views; one of a single update as it is.

    Updates are told by a number for each row (`update`, `global_step`), or for each entry of a leading axis.

    Raises:
        DoctorError: there are more updates than a dump has, or those of one lie apart.
    """
    roles = roles_of(archive.tensors, overrides)
    rows = next((t.shape[0] for name, t in archive.tensors.items() if roles[name] in _LOG_PROBS and t.shape), 0)
    numbers = _numbers(archive, roles, rows)
    if numbers is None:
        return [archive]
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    if len(starts) > MOST_UPDATES or len(np.unique(numbers)) < len(starts):
        hint = "write one file for each update, or the rows of an update one after the other"
        raise DoctorError(f"{archive.path}: rows of {len(starts):,} updates are mixed or too many", hint=hint)
    ends = [*starts[1:].tolist(), rows]
    return [
        _part(archive, roles, int(numbers[start]), (int(start), end)) for start, end in zip(starts, ends, strict=True)
    ]


def _numbers(archive: Archive, roles: Mapping[str, str | None], rows: int) -> Ids | None:
    """Return the update of each row where there are several."""
    for known in _NUMBERS:
        for name, tensor in archive.tensors.items():
            if roles[name] == known and tensor.shape == (rows,) and 1 < rows <= MOST_ROWS:
                values = np.concatenate([piece.astype(np.float64) for piece in tensor.chunks()])
                if np.isfinite(values).all() and len(np.unique(values)) > 1:
                    return values.astype(np.int64)
    return None


def _part(archive: Archive, roles: Mapping[str, str | None], number: int, rows: tuple[int, int]) -> Archive:
    return replace(archive, tensors=dict(_cut(archive, roles, rows)), scalars={**archive.scalars, "step": number})


def _cut(archive: Archive, roles: Mapping[str, str | None], rows: tuple[int, int]) -> Iterator[tuple[str, Tensor]]:
    whole = next(t.shape[0] for name, t in archive.tensors.items() if roles[name] in _LOG_PROBS and t.shape)
    deep = any(len(t.shape) == 3 for name, t in archive.tensors.items() if roles[name] in _LOG_PROBS)
    for name, tensor in archive.tensors.items():
        if roles[name] in _NUMBERS:
            continue
        yield name, _rows(tensor, rows, squeezed=deep) if tensor.shape[:1] == (whole,) else tensor


def _rows(tensor: Tensor, rows: tuple[int, int], *, squeezed: bool) -> Tensor:
    start, stop = rows
    offset = tensor.offset + start * tensor.stride[0]
    if squeezed and stop - start == 1:
        return replace(tensor, shape=tensor.shape[1:], stride=tensor.stride[1:], offset=offset)
    return replace(tensor, shape=(stop - start, *tensor.shape[1:]), offset=offset)
