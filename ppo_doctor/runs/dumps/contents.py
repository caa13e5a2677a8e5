"""Infer the roles of arrays from their values if their names leave them open.

Names decide first, then relations within the dump (returns are advantages plus values, groups are centred), then parts
of names if type and shape allow it. A relation that does not hold decides nothing, because it may be the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo_doctor.readers.tensors.naming import roles_of, without_row
from ppo_doctor.runs.dumps.batches import LOG_PROBS
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

#: Roles of counts and numbers, which fractions cannot have.
_COUNTS = frozenset({"epoch", "minibatch", "step", "update", "version", "trained_version", "group"})


def with_roles(archives: Iterable[Archive], overrides: Mapping[str, str] | None = None) -> list[Archive]:
    """Return archives with the roles of their tensors and scalars; archives with the same names share their roles.

    Of these the first, the middle and the last are read; what one leaves open, such as a first minibatch, the others
    decide.
    """
    all_archives = list(archives)
    same_names: dict[frozenset[str], list[Archive]] = {}
    for archive in all_archives:
        same_names.setdefault(_names(archive), []).append(archive)
    agreed = {n: _agreed([alike[0], alike[len(alike) // 2], alike[-1]], overrides) for n, alike in same_names.items()}
    return [replace(archive, roles=agreed[_names(archive)]) for archive in all_archives]


def _names(archive: Archive) -> frozenset[str]:
    return frozenset((*archive.tensors, *archive.scalars))


def _agreed(archives: Sequence[Archive], overrides: Mapping[str, str] | None) -> dict[str, str | None]:
    """Return name → the role that archives agree on, None if they differ."""
    readings = [roles_in(archive, overrides) for archive in {id(each): each for each in archives}.values()]
    roles_by_name = {name: {roles[name] for roles in readings} - {None} for name in readings[0]}
    return {name: roles.pop() if len(roles) == 1 else None for name, roles in roles_by_name.items()}


def roles_in(archive: Archive, overrides: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Return name → role of each tensor and scalar of a dump, None if it is unknown."""
    roles = roles_of([*archive.tensors, *archive.scalars], overrides)
    arrays = {name: role for name, role in roles.items() if without_row(name) == name}
    base = _base(archive, arrays)
    if base is None or len(arrays.keys() & archive.tensors.keys()) > MOST_ARRAYS:
        return roles
    dump = Dump(archive, arrays, base, frozenset((overrides or {}).values()))
    with np.errstate(all="ignore"):  # values in files may be of any size
        for rule in _RULES:
            dump.take(rule(dump))
    return roles | dump.roles


def _base(archive: Archive, roles: Mapping[str, str | None]) -> Tensor | None:
    """Return a tensor with the shape of samples: log-probs if any are known, else advantages, else None."""
    known = {roles.get(name): t for name, t in archive.tensors.items() if t.shape and t.size}
    return next((known[role] for role in (*LOG_PROBS, "advantages", "advantages_raw") if role in known), None)


def _impossible(dump: Dump) -> Assignments:
    """Clear the roles of counts that hold fractions, of values and returns of an integer type, and of extra counters.

    Of several different counters of one role, the one whose name has the fewest other meanings keeps it.
    """
    for name in dump.named(*_COUNTS):
        if dump.array(name).size and not (dump.whole(name) and (dump.roles[name] != "group" or dump.per_row(name))):
            yield name, None
    for name in dump.named("values", "old_values", "returns"):
        if dump.integers(name):
            yield name, None
    for role in ("step", "update", "version", "trained_version"):
        names = sorted(dump.named(role), key=lambda name: len(meanings_of(name)))
        yield from ((name, None) for name in names[1:] if not np.array_equal(dump.array(name), dump.array(names[0])))


def _masks(dump: Dump) -> Assignments:
    """Yield masks: 0 exactly after the end of samples; a wider mask that includes them covers prompts too."""
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
    """Return whether samples end with the marks: a wider mask ends so, or advantages, returns or values are 0 after."""
    if any(np.array_equal(dump.array(name)[:, -kept.shape[1] :] != 0, kept) for name in whole):
        return True
    known = [dump.array(name) for name in dump.named("advantages", "returns", "values") if dump.per_sample(name)]
    return any(not array[~kept].any() and np.count_nonzero(array[kept]) > _MOST * kept.sum() for array in known)


#: Smallest share of samples in the loss that are not 0.
_MOST = 0.9


def _tokens(dump: Dump) -> Assignments:
    """Yield tokens: the only integers of many different values that do not count along a row."""
    names = [n for n in dump.open() if dump.array(n).ndim == 2 and dump.whole(n) and not dump.binary(n)]
    tokens = [name for name in names if _many_kinds(dump.array(name))]
    if len(tokens) == 1 and dump.free("tokens") and dump.shape[1] > 1:
        yield tokens[0], "tokens"


def _many_kinds(values: Floats) -> bool:
    steps = np.diff(values, axis=1)
    return bool((steps < 0).any() and (steps > 1).any()) and len(np.unique(values)) > _KINDS


#: Arrays with no more different values than this are marks, such as the type of a step.
_KINDS = 3


def _versions(dump: Dump) -> Assignments:
    """Yield the two versions of the policy: the lower one is the sampler's, unless names say otherwise."""
    names = [n for n in dump.roles if "version" in meanings_of(n) and dump.array(n).size and dump.whole(n)]
    if len(names) != 2 or all(dump.roles[name] and meanings_of(name) & _SIDES for name in names):
        return
    low, high = sorted(names, key=lambda name: float(dump.array(name).max()))
    if dump.array(low).max() < dump.array(high).min():
        yield low, "version"
        yield high, "trained_version"


#: Meanings that say to which policy a version belongs.
_SIDES = frozenset({"new", "learner", "target", "old", "engine", "rollout", "behaviour", "worker", "completion"})


def _advantages(dump: Dump) -> Assignments:
    """Return the advantages by a part of their name, which relations build on."""
    return ((name, role) for name, role in _parts_of_names(dump) if role == "advantages")


def _parts_of_names(dump: Dump) -> Assignments:
    """Yield the roles of arrays by the known words of their names, if values allow them and no other array has them.

    Scalars are left out, because they may be settings.
    """
    candidates: dict[str, list[str]] = {}
    for name in filter(dump.is_array, dump.open()):
        role = "" if role_of(name) else role_of(name, loosely=True) or ""
        free = role == "group" or all(map(dump.free, _PROGRESS if role in _PROGRESS else (role,)))
        if role in _ALLOWED and free and _ALLOWED[role](dump, name):
            candidates.setdefault(role, []).append(name)
    yield from (
        (name, role) for role, names in candidates.items() if len(names) == 1 or role == "group" for name in names
    )


#: Roles of which one is enough to number updates; further counters may count anything.
_PROGRESS = ("step", "update")


def _are_values(dump: Dump, name: str) -> bool:
    return dump.per_sample(name) and not dump.binary(name)


def _are_ids(dump: Dump, name: str) -> bool:
    return dump.per_row(name) and dump.whole(name)


def _are_marks(dump: Dump, name: str) -> bool:
    return dump.array(name).ndim == 2 and dump.binary(name)


def _are_per_row(dump: Dump, name: str) -> bool:
    return dump.per_row(name) and dump.array(name).ndim > 0


#: Role that a part of a name may give → test of values. Only relations decide log-probs and rewards of steps.
_ALLOWED: Mapping[str, Callable[[Dump, str], bool]] = {
    **dict.fromkeys(("advantages", "returns", "values"), _are_values),
    **dict.fromkeys(("mask", "attention_mask"), _are_marks),
    **dict.fromkeys(_COUNTS, _are_ids),
    "tokens": lambda dump, name: dump.array(name).ndim == 2 and dump.whole(name) and not dump.binary(name),
    "rewards": _are_per_row,
}
_RULES: tuple[Callable[[Dump], Any], ...] = (
    *(_impossible, rewards, _masks, _advantages, critic, step_rewards, row_rewards, _tokens, cells, log_probs),
    *(groups, group_rewards),
    *(_versions, _parts_of_names),
)
