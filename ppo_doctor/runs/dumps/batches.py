"""The tensors of a dump by role, its division into updates, epochs and minibatches, and sums over each minibatch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.run import Note, SourceRef
from ppo_doctor.readers.tensors.naming import without_row
from ppo_doctor.readers.tensors.tensor import Archive, Tensor
from ppo_doctor.runs.dumps.statistics import PIECE, k3_of

if TYPE_CHECKING:
    import numpy.typing as npt

    Ids = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]
    Floats = npt.NDArray[np.float64]

#: Rows of different lengths are joined in memory if they have at most this many elements.
MOST_JOINED = 1 << 26
#: Roles of log-probs, the trained policy's first.
LOG_PROBS = ("log_prob", "old_log_prob", "rollout_log_prob", "ref_log_prob")
#: Roles whose tensors may hold one value per sequence, which then applies to all of its tokens.
SPREAD = ("advantages", "advantages_raw", "mask", "sample_mask", "rewards")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The tensors of one dump by role; `names` maps roles to names in the file.

    Tensors with a value for each sample have the size of the log-probs. `shows_memory` is true if tensors that shared
    memory in the trainer share it in the file, which `torch.save` preserves. `prompt` numbers the prompt of each row
    alike in every update, which `group` need not do.
    """

    tensors: Mapping[str, Tensor]
    names: Mapping[str, str]
    notes: tuple[Note, ...] = ()
    shows_memory: bool = False
    prompt: Tensor | None = None

    def get(self, *roles: str) -> Tensor | None:
        """Return the tensor of the first of some roles that the dump has, or None."""
        return next((self.tensors[role] for role in roles if role in self.tensors), None)


def batch_of(archive: Archive) -> Batch:
    """Return the tensors of a dump by role.

    A second tensor of one role is left out with a note, and so is one whose size does not match the log-probs.

    Raises:
        DoctorError: rows that are too long to be joined.
    """
    grouped: dict[str, dict[str, list[Tensor]]] = {}
    for name, tensor in archive.tensors.items():
        role = archive.roles[name]
        if role is not None:
            stem = without_row(name) if len(tensor.shape) < 2 else name
            grouped.setdefault(role, {}).setdefault(stem, []).append(tensor)
    source = SourceRef(path=archive.path)
    prompt = next((name for name, rows in grouped.get("group", {}).items() if _names_prompt(name, rows)), None)
    notes = [
        Note(text=f"{role}: {', '.join(unused)} not used beside {next(iter(named))}", source=source)
        for role, named in grouped.items()
        if (unused := [name for name in list(named)[1:] if name != prompt])
    ]
    first = {role: next(iter(named.items())) for role, named in grouped.items()}
    lengths = next((tuple(t.size for t in first[r][1]) for r in LOG_PROBS if r in first), ())
    joined = {role: _joined(name, rows) for role, (name, rows) in first.items()}
    fitted, misfits = _fitted(joined, lengths)
    notes += [Note(text=text, source=source) for text in misfits]
    return Batch(
        tensors=fitted,
        names={role: name for role, (name, _) in first.items()},
        notes=tuple(notes),
        shows_memory=archive.container == "pt",
        prompt=grouped["group"][prompt][0] if prompt else None,
    )


def _names_prompt(name: str, rows: list[Tensor]) -> bool:
    return len(rows) == 1 and name.rpartition(".")[2].lower().startswith(("prompt", "problem"))


def _joined(name: str, rows: list[Tensor]) -> Tensor:
    if len(rows) == 1:
        return rows[0]
    if sum(row.size for row in rows) > MOST_JOINED:
        raise DoctorError(
            f"{name} has rows of {sum(row.size for row in rows):,} elements",
            hint="write it as one tensor with a mask, which needs no joining",
        )
    return Tensor.of(name, np.concatenate([row.values() for row in rows]))


def _fitted(joined: Mapping[str, Tensor], lengths: tuple[int, ...]) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors, spread to the shape of the log-probs where possible, and a text for each misfit."""
    base = next((joined[role] for role in LOG_PROBS if role in joined), None)
    fitted, misfits = dict(joined), []
    for role, tensor in joined.items():
        if base is None or role not in (*LOG_PROBS, *SPREAD, "entropy", "kept_mass") or tensor.size == base.size:
            continue
        spread = _per_token(tensor, base, lengths) if role in SPREAD else None
        if spread is not None:
            fitted[role] = spread
        elif role != "rewards":
            del fitted[role]
            misfits.append(f"{role}: shape {tensor.shape} does not go with log-probs of {base.shape}, and is not used")
    return fitted, misfits


def _per_token(tensor: Tensor, base: Tensor, lengths: tuple[int, ...]) -> Tensor | None:
    """Return one value per sequence as one per token; without copying if all sequences have the same length."""
    if len(lengths) > 1 and tensor.size == len(lengths):
        return Tensor.of(tensor.name, np.repeat(tensor.values(), lengths))
    if len(base.shape) == 2 and tensor.size == base.shape[0] and tensor.shape[0] == base.shape[0]:
        return replace(tensor, shape=base.shape, stride=(tensor.stride[0], 0))
    return None


_OF_SAMPLES = ("log_prob", "old_log_prob", "rollout_log_prob", "advantages")
_PROGRESS = ("update", "step")
MOST_UPDATES = 1 << 12
#: The epochs and minibatches of more rows than this are not read.
MOST_ROWS = 1 << 26


def updates_of(archive: Archive) -> list[Archive]:
    """Return one archive of views for each update in a dump; a dump of a single update is returned unchanged.

    The dump holds several if it has a number (`update`, `global_step`) for each row or each entry of a leading axis.

    Raises:
        DoctorError: there are more than `MOST_UPDATES` updates, or the rows of one are not adjacent.
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
    """Return the update of each row, or None unless there are several updates."""
    for role in _PROGRESS:
        for name, tensor in archive.tensors.items():
            if archive.roles[name] == role and tensor.shape == (rows,) and 1 < rows <= MOST_ROWS:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """The epoch and the minibatch of each row, or of the whole dump: arrays of shape [rows], or [1]."""

    epochs: Ids
    minibatches: Ids

    @property
    def first(self) -> Bools:
        """Return which rows the policy was trained on before any optimizer step of this update."""
        return np.asarray((self.epochs == 0) & (self.minibatches == 0))

    @property
    def first_epoch(self) -> Bools:
        """Return which rows belong to the first epoch in the dump."""
        return np.asarray(self.epochs == self.epochs.min())

    @property
    def starts(self) -> Bools:
        """Return which rows are the first minibatch of an epoch."""
        return np.asarray((self.epochs >= 0) & (self.minibatches == 0))


def cells_of(batch: Batch, rows: int, scalars: Mapping[str, int]) -> Cells | None:
    """Return epoch and minibatch of a dump's rows, from tensors of one number per row or from single numbers.

    Epochs and minibatches that are counted from 1 are shifted to 0 if the dump holds several of them. None if either is
    unknown.
    """
    known: dict[str, Ids] = {}
    for name in ("epoch", "minibatch"):
        tensor = batch.get(name)
        if tensor is not None and tensor.size in (1, rows) and tensor.size <= MOST_ROWS:
            values = tensor.values()
            if not np.isfinite(values).all():
                return None
            ids = values.astype(np.int64)
            known[name] = ids - ids.min() if len(ids) > 1 and ids.min() == 1 and ids.max() > 1 else ids
        elif name in scalars:
            known[name] = np.array([scalars[name]], np.int64)
    return Cells(epochs=known["epoch"], minibatches=known["minibatch"]) if len(known) == 2 else None


def chosen(base: Tensor, rows: Bools, mask: Tensor | None) -> Tensor | None:
    """Return a mask of the size of `base` for some of its rows, within another mask; None if it selects nothing.

    `rows` has shape [rows], or [1] for all rows.
    """
    if not rows.any():
        return None
    if len(rows) == 1 or rows.all():
        ones = replace(Tensor.of("rows", np.ones(1, bool)), shape=base.shape, stride=(0,) * len(base.shape))
        return ones if mask is None else mask
    spread = spread_rows(rows, base)
    if mask is None:
        return spread
    pairs = zip(mask.chunks(), spread.chunks(), strict=True)
    kept = np.concatenate([(one != 0) & (other != 0) for one, other in pairs])
    return Tensor.of("rows", kept.reshape(base.shape)) if kept.any() else None


def spread_rows(values: npt.NDArray[Any], base: Tensor) -> Tensor:
    """Return one value per row as one per element of `base`, without copying."""
    inner = tuple(0 for _ in base.shape[1:])
    return replace(Tensor.of("rows", values), shape=base.shape, stride=(1, *inner))


Cell = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSums:
    """Sums over the samples of one minibatch of one epoch; log-ratios are new less old log-probs, in nats.

    `samples` counts finite log-ratios, `k3` is the sum of r - 1 - log r over them, `low` and `high` are their extremes.
    `old_count`, `old_mean` and `old_squares` are count, mean and sum of squared deviations of finite old log-probs.
    """

    samples: int
    k3: float
    low: float = 0.0
    high: float = 0.0
    old_count: int = 0
    old_mean: float = 0.0
    old_squares: float = 0.0

    @property
    def kl(self) -> float:
        """Return the mean of k3, NaN without samples."""
        return self.k3 / self.samples if self.samples else math.nan

    @property
    def old_std(self) -> float:
        """Return the standard deviation of the old log-probs, 0 without any."""
        return math.sqrt(self.old_squares / max(self.old_count, 1))


def sums_by_cell(new: Tensor | None, old: Tensor | None, cells: Cells, mask: Tensor | None) -> dict[Cell, CellSums]:
    """Return the sums of each (epoch, minibatch) of a dump, in one pass; without `new`, only those of `old`.

    `new`, `old` and `mask` have one size; their first axis is the rows of `cells`. Memory is bounded by the number of
    rows and minibatches.
    """
    if old is None or not old.size or any(t is not None and t.size != old.size for t in (new, mask)):
        return {}
    rows = old.shape[0] if old.shape else 1
    pairs = np.stack([np.broadcast_to(ids, rows) for ids in (cells.epochs, cells.minibatches)])
    names, place = np.unique(pairs, axis=1, return_inverse=True)
    sums = _CellSums(names.shape[1])
    width = old.size // rows
    step = max(1, PIECE // width)
    streams = [tensor.chunks(step * width) for tensor in (old, new or old, mask or old)]
    with np.errstate(over="ignore", invalid="ignore"):
        for at, (o, n, marks) in enumerate(zip(*streams, strict=True)):
            keep = np.ones(len(o), bool) if mask is None else marks != 0
            numbers = n.reshape(-1, width), o.reshape(-1, width)
            sums.add(*numbers, keep.reshape(-1, width), place.reshape(-1)[at * step :])
    return {(int(epoch), int(number)): sums.of(at) for at, (epoch, number) in enumerate(names.T.tolist())}


class _CellSums:
    """Running sums of all minibatches: arrays of shape [minibatches]."""

    def __init__(self, count: int) -> None:
        self.samples, self.k3, self.old_count, self.old, self.squares = np.zeros((5, count))
        self.low, self.high = np.full(count, np.inf), np.full(count, -np.inf)
        self.shift: float | None = None

    def add(self, new: npt.NDArray[Any], old: npt.NDArray[Any], keep: Bools, place: Ids) -> None:
        """Add rows, given as arrays of shape [rows, width]; `place` begins with the minibatch of each of them."""
        place = place[: len(old)]
        d = np.subtract(new, old, dtype=np.float64)
        usable = keep & np.isfinite(d)
        zeroed = np.where(usable, d, 0.0)
        self._count(self.samples, place, usable)
        self._count(self.k3, place, k3_of(zeroed, np.exp(zeroed)))
        np.minimum.at(self.low, place, np.where(usable, d, np.inf).min(axis=1))
        np.maximum.at(self.high, place, np.where(usable, d, -np.inf).max(axis=1))
        usable = keep & np.isfinite(old)
        if self.shift is None and usable.any():  # near the mean, so that squares keep their digits
            self.shift = float(old[usable].mean(dtype=np.float64))
        shifted = np.where(usable, np.subtract(old, self.shift or 0.0, dtype=np.float64), 0.0)
        self._count(self.old_count, place, usable)
        self._count(self.old, place, shifted)
        self._count(self.squares, place, shifted * shifted)

    def _count(self, sums: Floats, place: Ids, values: npt.NDArray[Any]) -> None:
        sums += np.bincount(place, weights=values.sum(axis=1), minlength=len(sums))

    def of(self, at: int) -> CellSums:
        """Return the sums of one minibatch."""
        count = int(self.old_count[at])
        offset = self.old[at] / max(count, 1)
        return CellSums(
            samples=int(self.samples[at]),
            k3=float(self.k3[at]),
            low=float(self.low[at]),
            high=float(self.high[at]),
            old_count=count,
            old_mean=float((self.shift or 0.0) + offset),
            old_squares=max(0.0, float(self.squares[at] - count * offset * offset)),
        )


def pooled(parts: Iterable[CellSums]) -> CellSums:
    """Return the sums over several minibatches, or over parts of one."""
    each = list(parts)
    count = sum(part.old_count for part in each)
    mean = math.fsum(part.old_mean * (part.old_count / max(count, 1)) for part in each)
    return CellSums(
        samples=sum(part.samples for part in each),
        k3=math.fsum(part.k3 for part in each),
        low=min((part.low for part in each), default=math.inf),
        high=max((part.high for part in each), default=-math.inf),
        old_count=count,
        old_mean=mean,
        old_squares=math.fsum(part.old_squares + part.old_count * (part.old_mean - mean) ** 2 for part in each),
    )


#: A KL below this (nats) is what rounding to float32 makes of equal log-probs.
LEAST_KL = 1e-8
#: Fewer minibatches than this show no trend.
LEAST_CELLS = 6
#: Means of the same float32 numbers summed in another order agree to this, relative to their deviation.
SAME = 1e-9


def through_epochs(files: Iterable[Mapping[Cell, CellSums]]) -> dict[str, float]:
    """Return what the minibatches of one update show together; `files` are the sums of each file of the update.

    `old_log_prob_drift` is the largest change of the mean of the old log-probs from the first epoch to another one over
    as many samples, in deviations: 0 for the same samples in any order. `kl_first_epoch_share` is the KL of the first
    epoch over that of the last: small if optimizer steps cause it, 1 if noise does or the old policy is synced at every
    epoch. `kl_step_corr` correlates the root of a minibatch's KL, which grows with the distance moved, with the number
    of steps before it. Metrics that cannot be computed, or mean nothing because the policy did not move, are left out.
    """
    parts: dict[Cell, list[CellSums]] = {}
    for sums in files:
        for cell, part in sums.items():
            parts.setdefault(cell, []).append(part)
    cells = {cell: pooled(parts[cell]) for cell in sorted(parts)}
    epochs = [pooled(cells[at] for at in cells if at[0] == e) for e in sorted({epoch for epoch, _ in cells})]
    return _drift(epochs) | _kl_growth([cell for cell in cells.values() if cell.samples], epochs)


def _drift(epochs: list[CellSums]) -> dict[str, float]:
    alike = [epoch for epoch in epochs if epoch.old_count and epoch.old_count == epochs[0].old_count]
    if len(alike) < 2 or not 0 < alike[0].old_std < math.inf:
        return {}
    most = max(abs(epoch.old_mean - alike[0].old_mean) for epoch in alike[1:]) / alike[0].old_std
    return {"old_log_prob_drift": 0.0 if most < SAME else most}


def _kl_growth(cells: list[CellSums], epochs: list[CellSums]) -> dict[str, float]:
    found: dict[str, float] = {}
    epochs = [epoch for epoch in epochs if epoch.samples]
    if len(epochs) > 1 and math.isfinite(epochs[0].kl) and LEAST_KL < epochs[-1].kl < math.inf:
        found["kl_first_epoch_share"] = epochs[0].kl / epochs[-1].kl
    roots = np.sqrt([max(0.0, cell.kl) for cell in cells])
    if len(roots) >= LEAST_CELLS and np.isfinite(roots).all() and roots.max() ** 2 > LEAST_KL and np.ptp(roots) > 0:
        found["kl_step_corr"] = float(np.corrcoef(roots, np.arange(len(roots)))[0, 1])
    return found
