"""Infer the roles of arrays whose names leave them open from what they hold.

Names come first. Then relations within the dump decide (returns are advantages plus values, groups are centred), then
parts of names, if type and shape allow. A relation that does not hold decides nothing, because it may be the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo_doctor.readers.tensors.naming import roles_of, without_row
from ppo_doctor.runs.dumps.relations import (
    MOST_ARRAYS,
    Assignments,
    Dump,
    cells,
    critic,
    group_rewards,
    groups,
    log_probs,
    meanings_of,
    rewards,
    row_rewards,
    step_rewards,
)
from ppo_doctor.trainers.names import role_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.readers.tensors.tensor import Archive, Tensor

    Floats = npt.NDArray[np.float64]
    Bools = npt.NDArray[np.bool_]

_LOG_PROBS = ("log_prob", "old_log_prob", "rollout_log_prob", "ref_log_prob")
#: Numbers that count something: what holds fractions is none of them.
_COUNTS = frozenset({"epoch", "minibatch", "step", "update", "version", "trained_version", "group"})


def with_roles(archives: Iterable[Archive], overrides: Mapping[str, str] | None = None) -> list[Archive]:
    """Return archives with what each of their tensors and single numbers is; those of the same names have one reading.

    The first file, the last and one between them are read: what one leaves open, such as that of a first minibatch, is
    as the others have it.
    """
    held = list(archives)
    alike: dict[frozenset[str], list[Archive]] = {}
    for archive in held:
        alike.setdefault(_names(archive), []).append(archive)
    agreed = {names: _agreed([ones[0], ones[len(ones) // 2], ones[-1]], overrides) for names, ones in alike.items()}
    return [replace(archive, roles=agreed[_names(archive)]) for archive in held]


def _names(archive: Archive) -> frozenset[str]:
    return frozenset((*archive.tensors, *archive.scalars))


def _agreed(archives: Sequence[Archive], overrides: Mapping[str, str] | None) -> dict[str, str | None]:
    """Return name → the one role that archives have for it, None where they differ."""
    readings = [roles_in(archive, overrides) for archive in {id(each): each for each in archives}.values()]
    told = {name: {roles[name] for roles in readings} - {None} for name in readings[0]}
    return {name: held.pop() if len(held) == 1 else None for name, held in told.items()}


def roles_in(archive: Archive, overrides: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Return name → what each tensor and each single number of a dump is, None for what is not understood."""
    roles = roles_of([*archive.tensors, *archive.scalars], overrides)
    arrays = {name: role for name, role in roles.items() if without_row(name) == name}
    base = _base(archive, arrays)
    if base is None or len(arrays.keys() & archive.tensors.keys()) > MOST_ARRAYS:
        return roles
    dump = Dump(archive, arrays, base, frozenset((overrides or {}).values()))
    with np.errstate(all="ignore"):  # numbers of files may be of any size
        for rule in _RULES:
            dump.take(rule(dump))
    return roles | dump.roles


def _base(archive: Archive, roles: Mapping[str, str | None]) -> Tensor | None:
    """Return the tensor whose shape is that of samples: of log-probs if any is known, else of advantages."""
    known = {roles.get(name): t for name, t in archive.tensors.items() if t.shape and t.size}
    return next((known[role] for role in (*_LOG_PROBS, "advantages", "advantages_raw") if role in known), None)


def _impossible(dump: Dump) -> Assignments:
    """Take back what counts by its name and holds fractions, and values that are of a type of whole numbers.

    Of several counters of one thing the one that says least beside it is meant.
    """
    for name in dump.named(*_COUNTS):
        if dump.array(name).size and not (dump.whole(name) and (dump.roles[name] != "group" or dump.per_row(name))):
            yield name, None
    for name in dump.named("values", "old_values", "returns"):
        if dump.integers(name):
            yield name, None
    for role in ("step", "update", "version", "trained_version"):
        held = sorted(dump.named(role), key=lambda name: len(meanings_of(name)))
        yield from ((name, None) for name in held[1:] if not np.array_equal(dump.array(name), dump.array(held[0])))


def _masks(dump: Dump) -> Assignments:
    """What is 0 just where the arrays of samples end is their mask; one that goes on before them covers the prompt."""
    width = dump.shape[1]
    long = [n for n in dump.named("mask") if dump.array(n).shape[1:] > (width,) and dump.binary(n)]
    yield from ((name, None) for name in long)
    names = [name for name in dump.open() if dump.array(name).ndim == 2 and dump.binary(name)]
    whole = [n for n in (*names, *dump.named("attention_mask")) if dump.array(n).shape[1:] > (width,)]
    samples = [name for name in names if dump.per_sample(name) and _right_padded(dump.array(name))]
    ends = [name for name in samples if _ends(dump, dump.array(name) != 0, whole)]
    if dump.free("mask") and len(ends) == 1:
        yield ends[0], "mask"
    over = [name for name in whole if (dump.array(name)[:, -width:] >= dump.mask).all() and not dump.free("mask")]
    if len(over) == 1 and dump.free("attention_mask"):
        yield over[0], "attention_mask"


def _right_padded(marks: Floats) -> bool:
    return bool((marks[:, :-1] >= marks[:, 1:]).all()) and not marks.all()


def _ends(dump: Dump, kept: Bools, whole: Sequence[str]) -> bool:
    """Tell whether samples end where marks say: those of prompt and completion do, or advantages are 0 behind."""
    if any(np.array_equal(dump.array(name)[:, -kept.shape[1] :] != 0, kept) for name in whole):
        return True
    known = [dump.array(name) for name in dump.named("advantages", "returns", "values") if dump.per_sample(name)]
    return any(not array[~kept].any() and np.count_nonzero(array[kept]) > _MOST * kept.sum() for array in known)


#: The share of samples in the loss that have a signal.
_MOST = 0.9


def _tokens(dump: Dump) -> Assignments:
    """Whole numbers of many kinds that do not count along a row are tokens."""
    names = [n for n in dump.open() if dump.array(n).ndim == 2 and dump.whole(n) and not dump.binary(n)]
    held = [name for name in names if _of_many_kinds(dump.array(name))]
    if len(held) == 1 and dump.free("tokens") and dump.shape[1] > 1:
        yield held[0], "tokens"


def _of_many_kinds(values: Floats) -> bool:
    steps = np.diff(values, axis=1)
    return bool((steps < 0).any() and (steps > 1).any()) and len(np.unique(values)) > _KINDS


#: Fewer kinds are marks: of a step's type, of a segment.
_KINDS = 3


def _versions(dump: Dump) -> Assignments:
    """A policy samples before it is trained: of two versions the lower one is the sampler's, unless names tell."""
    names = [n for n in dump.roles if "version" in meanings_of(n) and dump.array(n).size and dump.whole(n)]
    if len(names) != 2 or all(dump.roles[name] and meanings_of(name) & _SIDES for name in names):
        return
    low, high = sorted(names, key=lambda name: float(dump.array(name).max()))
    if dump.array(low).max() < dump.array(high).min():
        yield low, "version"
        yield high, "trained_version"


#: Meanings that say whose version it is.
_SIDES = frozenset({"new", "learner", "target", "old", "engine", "rollout", "behaviour", "worker", "completion"})


def _advantages(dump: Dump) -> Assignments:
    """Return the advantages that a part of a name tells of, which relations begin with."""
    return ((name, role) for name, role in _parts_of_names(dump) if role == "advantages")


def _parts_of_names(dump: Dump) -> Assignments:
    """A name with words that nobody knows is what the others say if its numbers may be that, and nothing else is.

    A single number outside of arrays may be a setting.
    """
    meant: dict[str, list[str]] = {}
    for name in filter(dump.is_array, dump.open()):
        role = "" if role_of(name) else role_of(name, loosely=True) or ""
        free = role == "group" or all(map(dump.free, _PROGRESS if role in _PROGRESS else (role,)))
        if role in _ALLOWED and free and _ALLOWED[role](dump, name):
            meant.setdefault(role, []).append(name)
    yield from ((name, role) for role, names in meant.items() if len(names) == 1 or role == "group" for name in names)


#: One of these tells which update a dump is of; what counts beside it may count anything.
_PROGRESS = ("step", "update")


def _are_values(dump: Dump, name: str) -> bool:
    return dump.per_sample(name) and not dump.binary(name)


def _are_ids(dump: Dump, name: str) -> bool:
    return dump.per_row(name) and dump.whole(name)


def _are_marks(dump: Dump, name: str) -> bool:
    return dump.array(name).ndim == 2 and dump.binary(name)


def _are_of_rows(dump: Dump, name: str) -> bool:
    return dump.per_row(name) and dump.array(name).ndim > 0


#: What a part of a name may say → what the numbers must be. Log-probs and rewards of steps are told by relations alone.
_ALLOWED: Mapping[str, Callable[[Dump, str], bool]] = {
    **dict.fromkeys(("advantages", "returns", "values"), _are_values),
    **dict.fromkeys(("mask", "attention_mask"), _are_marks),
    **dict.fromkeys(_COUNTS, _are_ids),
    "tokens": lambda dump, name: dump.array(name).ndim == 2 and dump.whole(name) and not dump.binary(name),
    "rewards": _are_of_rows,
}
_RULES: tuple[Callable[[Dump], Any], ...] = (
    *(_impossible, rewards, _masks, _advantages, critic, step_rewards, row_rewards, _tokens, cells, log_probs),
    *(groups, group_rewards),
    *(_versions, _parts_of_names),
)
