"""The tensors of a dump by what they are: rows joined, advantages of sequences spread over their tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.errors import DoctorError
from ppo_doctor.model import Note, SourceRef
from ppo_doctor.tensors.naming import without_row
from ppo_doctor.tensors.tensor import Tensor

if TYPE_CHECKING:
    from ppo_doctor.tensors.tensor import Archive

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
    pieces = [piece.astype(np.float64) for row in rows for piece in row.chunks()]
    return Tensor.of(name, np.concatenate(pieces) if pieces else np.empty(0))


def _fitted(whole: Mapping[str, Tensor], lengths: tuple[int, ...]) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors in the shape of the log-probs where they go with them, and what does not fit."""
    base = next((whole[known] for known in _LOG_PROBS if known in whole), None)
    if base is None:
        return dict(whole), []
    fitted, lost = dict(whole), []
    for known, tensor in whole.items():
        if known not in (*_LOG_PROBS, *SPREAD, "entropy", "kept_mass") or tensor.size == base.size:
            continue
        spread = _spread(tensor, base, lengths) if known in SPREAD else None
        if spread is not None:
            fitted[known] = spread
        elif known != "rewards":
            del fitted[known]
            lost.append(f"{known}: shape {tensor.shape} does not go with log-probs of {base.shape}, and is not used")
    return fitted, lost


def _spread(tensor: Tensor, base: Tensor, lengths: tuple[int, ...]) -> Tensor | None:
    """Return one value per sequence as one per token, without copying where tokens have a common length."""
    if len(lengths) > 1 and tensor.size == len(lengths):
        values = np.concatenate([piece.astype(np.float64) for piece in tensor.chunks()])
        return Tensor.of(tensor.name, np.repeat(values, lengths))
    if len(base.shape) == 2 and tensor.size == base.shape[0] and tensor.shape[0] == base.shape[0]:
        return replace(tensor, shape=base.shape, stride=(tensor.stride[0], 0))
    return None
