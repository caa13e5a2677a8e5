"""The tensors of a dump by role, its updates, and the epochs and minibatches of its samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.run import Note, SourceRef
from ppo_doctor.readers.tensors.naming import without_row
from ppo_doctor.readers.tensors.tensor import Archive, Tensor
from ppo_doctor.runs.dumps.moments import Summary, describe

if TYPE_CHECKING:
    import numpy.typing as npt

    Ids = npt.NDArray[np.int64]

#: Rows of different lengths are joined in memory, up to this many elements.
MOST_JOINED = 1 << 26
#: Tensors of which one value per sequence stands for all of its tokens.
SPREAD = ("advantages", "advantages_raw", "mask", "sample_mask", "rewards")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The tensors of one dump by role; those that go with log-probs have their size. `names` are as in the file.

    `shows_memory` tells that tensors which shared memory in the trainer share it in the file: torch.save keeps that.
    `prompt` tells the prompt of each row by its name: other groups may be numbered anew in every update.
    """

    tensors: Mapping[str, Tensor]
    names: Mapping[str, str]
    notes: tuple[Note, ...] = ()
    shows_memory: bool = False
    prompt: Tensor | None = None

    def get(self, *roles: str) -> Tensor | None:
        """Return the first of some roles that the dump has."""
        return next((self.tensors[known] for known in roles if known in self.tensors), None)


def batch_of(archive: Archive) -> Batch:
    """Return the tensors of a dump by role.

    A second tensor of one role, and one whose size does not go with the log-probs, is left out with a note.

    Raises:
        DoctorError: rows that are too long to be joined.
    """
    grouped: dict[str, dict[str, list[Tensor]]] = {}
    for name, tensor in archive.tensors.items():
        known = archive.roles[name]
        if known is not None:
            stem = without_row(name) if len(tensor.shape) < 2 else name
            grouped.setdefault(known, {}).setdefault(stem, []).append(tensor)
    source = SourceRef(path=archive.path)
    prompt = next((name for name, rows in grouped.get("group", {}).items() if _names_prompt(name, rows)), None)
    notes = [
        Note(text=f"{known}: {', '.join(unused)} not used beside {next(iter(held))}", source=source)
        for known, held in grouped.items()
        if (unused := [name for name in list(held)[1:] if name != prompt])
    ]
    first = {known: next(iter(held.items())) for known, held in grouped.items()}
    lengths = next((tuple(t.size for t in first[r][1]) for r in _LOG_PROBS if r in first), ())
    whole = {known: _joined(name, rows) for known, (name, rows) in first.items()}
    fitted, lost = _fitted(whole, lengths)
    notes += [Note(text=text, source=source) for text in lost]
    return Batch(
        tensors=fitted,
        names={known: name for known, (name, _) in first.items()},
        notes=tuple(notes),
        shows_memory=archive.container == "pt",
        prompt=grouped["group"][prompt][0] if prompt else None,
    )


def _names_prompt(name: str, rows: list[Tensor]) -> bool:
    return len(rows) == 1 and name.rpartition(".")[2].lower().startswith(("prompt", "problem"))


_LOG_PROBS = ("log_prob", "old_log_prob", "rollout_log_prob", "ref_log_prob")


def _joined(name: str, rows: list[Tensor]) -> Tensor:
    if len(rows) == 1:
        return rows[0]
    if sum(row.size for row in rows) > MOST_JOINED:
        raise DoctorError(
            f"{name} has rows of {sum(row.size for row in rows):,} elements",
            hint="write it as one tensor with a mask, which needs no joining",
        )
    return Tensor.of(name, np.concatenate([row.values() for row in rows]))


def _fitted(whole: Mapping[str, Tensor], lengths: tuple[int, ...]) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors in the shape of the log-probs where they go with them, and what does not fit."""
    base = next((whole[known] for known in _LOG_PROBS if known in whole), None)
    if base is None:
        return dict(whole), []
    fitted, lost = dict(whole), []
    for known, tensor in whole.items():
        if known not in (*_LOG_PROBS, *SPREAD, "entropy", "kept_mass") or tensor.size == base.size:
            continue
        spread = _per_token(tensor, base, lengths) if known in SPREAD else None
        if spread is not None:
            fitted[known] = spread
        elif known != "rewards":
            del fitted[known]
            lost.append(f"{known}: shape {tensor.shape} does not go with log-probs of {base.shape}, and is not used")
    return fitted, lost


def _per_token(tensor: Tensor, base: Tensor, lengths: tuple[int, ...]) -> Tensor | None:
    """Return one value per sequence as one per token, without copying where tokens have a common length."""
    if len(lengths) > 1 and tensor.size == len(lengths):
        values = tensor.values()
        return Tensor.of(tensor.name, np.repeat(values, lengths))
    if len(base.shape) == 2 and tensor.size == base.shape[0] and tensor.shape[0] == base.shape[0]:
        return replace(tensor, shape=base.shape, stride=(tensor.stride[0], 0))
    return None


_OF_SAMPLES = ("log_prob", "old_log_prob", "rollout_log_prob", "advantages")
_PROGRESS = ("update", "step")
MOST_UPDATES = 1 << 12


def updates_of(archive: Archive) -> list[Archive]:
    """Return a dump as one archive for each update in it, as views; one of a single update as it is.

    Updates are told by a number for each row (`update`, `global_step`), or for each entry of a leading axis.

    Raises:
        DoctorError: there are more updates than a dump has, or those of one lie apart.
    """
    rows = next((t.shape[0] for t in _samples(archive)), 0)
    numbers = _updates(archive, rows)
    if numbers is None:
        return [archive]
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    if len(starts) > MOST_UPDATES or len(np.unique(numbers)) < len(starts):
        hint = "write one file for each update, or the rows of an update one after the other"
        raise DoctorError(f"{archive.path}: rows of {len(starts):,} updates are mixed or too many", hint=hint)
    ends = [*starts[1:].tolist(), rows]
    return [_part(archive, int(numbers[start]), (int(start), end)) for start, end in zip(starts, ends, strict=True)]


def _samples(archive: Archive) -> list[Tensor]:
    return [t for name, t in archive.tensors.items() if archive.roles[name] in _OF_SAMPLES and t.shape]


def _updates(archive: Archive, rows: int) -> Ids | None:
    """Return the update of each row where there are several."""
    for known in _PROGRESS:
        for name, tensor in archive.tensors.items():
            if archive.roles[name] == known and tensor.shape == (rows,) and 1 < rows <= MOST_ROWS:
                values = tensor.values()
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
        if archive.roles[name] in _PROGRESS:
            continue
        yield name, _rows_from(tensor, rows, squeezed=deep) if tensor.shape[:1] == (whole,) else tensor


def _rows_from(tensor: Tensor, rows: tuple[int, int], *, squeezed: bool) -> Tensor:
    start, stop = rows
    offset = tensor.offset + start * tensor.stride[0]
    if squeezed and stop - start == 1:
        return replace(tensor, shape=tensor.shape[1:], stride=tensor.stride[1:], offset=offset)
    return replace(tensor, shape=(stop - start, *tensor.shape[1:]), offset=offset)


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
    found: dict[str, Ids] = {}
    for name in ("epoch", "minibatch"):
        tensor = batch.get(name)
        if tensor is not None and tensor.size in (1, rows) and tensor.size <= MOST_ROWS:
            values = tensor.values()
            if not np.isfinite(values).all():
                return None
            ids = values.astype(np.int64)
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
    whole = spread_rows(rows, base)
    if mask is None:
        return whole
    kept = np.concatenate([piece != 0 for piece in mask.chunks()])
    kept &= np.concatenate([piece != 0 for piece in whole.chunks()])
    return Tensor.of("rows", kept.reshape(base.shape)) if kept.any() else None


def _whole(base: Tensor) -> Tensor:
    one = Tensor.of("rows", np.ones(1, bool))
    return replace(one, shape=base.shape, stride=tuple(0 for _ in base.shape))


def spread_rows(values: npt.NDArray[Any], base: Tensor) -> Tensor:
    """Return one value per row as one per element, without copying."""
    inner = tuple(0 for _ in base.shape[1:])
    return replace(Tensor.of("rows", values), shape=base.shape, stride=(1, *inner))


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
