"""Relations of epochs, minibatches, groups and log-probs: what changes, and what stays, from row to row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.ingest.naming import role_of
from ppo_doctor.tensors.held import Dump, Told, meanings_of, one_each
from ppo_doctor.tensors.recompute import LEAST_ROWS, centred_by

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


def cells(dump: Dump) -> Told:
    """Epochs go through the same samples again, one after the other, and the minibatches of each follow its order."""
    rows = [name for name in (*dump.open(), *dump.named("update", "step")) if _numbers_rows(dump, name)]
    if not [name for name in dump.named("epoch") if dump.array(name).ndim]:
        again = [name for name in rows if _repeats(dump, dump.array(name))]
        if len(again) != 1:
            return
        yield from ((name, "update" if dump.free("update") else None) for name in dump.named("epoch"))
        yield again[0], "epoch"
    epochs = next(dump.array(name) for name in dump.named("epoch") if dump.array(name).ndim)
    inner = sorted((n for n in rows if _nested(epochs, dump.array(n))), key=lambda n: len(np.unique(dump.array(n))))
    if inner and not _may_group(dump, inner) and not [n for n in dump.named("minibatch") if dump.array(n).ndim]:
        yield from ((name, None) for name in dump.named("minibatch"))
        yield inner[0], "minibatch"


def _may_group(dump: Dump, inner: Sequence[str]) -> bool:
    """Tell whether the only numbers that follow the order of epochs may be the groups, in the order of their rows."""
    rows = one_each(dump)
    return len(inner) == 1 and dump.free("group") and rows is not None and centred_by(rows, dump.array(inner[0]))


def _numbers_rows(dump: Dump, name: str) -> bool:
    return dump.array(name).shape == (dump.head,) and dump.whole(name)


def _repeats(dump: Dump, ids: Floats) -> bool:
    """Tell whether numbers only grow, and the rows of each are the same samples again in another order."""
    _, counts = np.unique(ids, return_counts=True)
    if (np.diff(ids) < 0).any() or len(counts) < 2 or counts.min() < LEAST_ROWS:
        return False
    return any(_again(dump, name, ids) for name in dump.named(*_OF_SAMPLES))


def _again(dump: Dump, name: str, epochs: Floats) -> bool:
    """Tell whether an array holds the same rows, not all alike, in every epoch."""
    values = dump.array(name)
    counts = np.unique(epochs, return_counts=True)[1]
    if values.shape[:1] != epochs.shape or len(set(counts.tolist())) > 1:
        return False
    kept = np.where(dump.mask, values, 0.0) if dump.per_sample(name) else values.reshape(len(epochs), -1)
    keys = kept @ np.arange(1.0, kept.shape[1] + 1)
    parts = np.sort(keys[np.argsort(epochs, kind="stable")].reshape(len(counts), -1), axis=1)
    return len(np.unique(parts[0])) > counts[0] // 2 and np.allclose(parts, parts[0])


#: What stays with a sample through the epochs.
_OF_SAMPLES = ("tokens", "advantages", "returns", "rewards", "old_log_prob", "rollout_log_prob")


def _nested(epochs: Floats, other: Floats) -> bool:
    """Tell whether numbers grow within each epoch, and begin again with the next; several rows have each."""
    if other.shape != epochs.shape or len(np.unique(other)) < 2:
        return False
    ahead = (np.diff(epochs) > 0) | (np.diff(other) >= 0)
    cells, counts = np.unique(np.stack([epochs, other]), axis=1, return_counts=True)
    return bool(ahead.all()) and cells.shape[1] == len(np.unique(epochs)) * len(np.unique(other)) and counts.min() > 1


def log_probs(dump: Dump) -> Told:
    """The new log-probs are those that change from epoch to epoch, where others of the same samples stay.

    What stays, and is near the old ones, is the sampler's. A name that says on which side it is, is believed.
    """
    names = [name for name in dump.roles if "logprob" in meanings_of(name) and dump.per_sample(name)]
    if any("reference" in meanings_of(name) and dump.roles[name] is None for name in names):
        return
    vague = [name for name in names if dump.roles[name] is None or not meanings_of(name) & _SIDES]
    moved = [name for name in names if _moves(dump, name)]
    if len(moved) != 1 or len(names) == 1 or not (moved[0] in vague or dump.roles[moved[0]] == "log_prob"):
        return
    yield from ((name, None) for name in dump.named("log_prob") if name in vague and name not in moved)
    if moved[0] in vague:
        yield moved[0], "log_prob"
    still = sorted(set(dump.open()) & set(names), key=lambda name: (_apart(dump, name, moved[0], 0.1), len(name)))
    said = {name: role_of(name, loosely=True) for name in still}
    for name in sorted(still, key=lambda name: said[name] not in _STILL):
        free = [role for role in _STILL if dump.free(role) and said[name] in (role, *_UNSAID)]
        if free and _apart(dump, name, moved[0]) < _NEAR:
            yield name, free[0]


#: The log-probs of the trainer and of the sampler at the start; names that do not say of which of them they are.
_STILL = ("old_log_prob", "rollout_log_prob")
_UNSAID = (None, "log_prob", "action_log_prob", "policy_log_prob")
#: Meanings that say whose log-probs they are.
_SIDES = frozenset({"new", "next", "old", "before", "after", "engine", "rollout", "behaviour", "sampled", "reference"})
#: Log-probs of one update differ by less than this, over their spread.
_NEAR = 0.2


def _moves(dump: Dump, name: str) -> bool:
    """Tell whether an array's numbers for the same samples change from epoch to epoch."""
    epochs = next((dump.array(each) for each in dump.named("epoch")), np.empty(0))
    return epochs.shape == (dump.head,) and len(np.unique(epochs)) > 1 and not _again(dump, name, epochs)


def _apart(dump: Dump, one: str, other: str, share: float = 1.0) -> float:
    """Return how far two arrays are apart in the mean of the first rows, over the spread of one."""
    rows = slice(math.ceil(share * dump.head))
    first, second, keep = dump.array(one)[rows], dump.array(other)[rows], dump.mask[rows]
    keep &= np.isfinite(first) & np.isfinite(second)
    spread = float(second[keep].std()) if keep.any() else 0.0
    return float(np.abs(first - second)[keep].mean()) / spread if spread > 0 else math.inf


def groups(dump: Dump) -> Told:
    """Rows are grouped by what their advantages are centred in, where each row has one."""
    rows, epochs = one_each(dump), next((dump.array(name) for name in dump.named("epoch")), np.empty(0))
    if rows is None or not dump.free("group"):
        return
    for name in dump.open():
        ids = dump.array(name)
        may_be_minibatch = dump.free("minibatch") and _nested(epochs, ids)
        if ids.shape == rows.shape and dump.whole(name) and not may_be_minibatch and centred_by(rows, ids):
            yield name, "group"
