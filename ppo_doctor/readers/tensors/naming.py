"""The roles of the tensors of a dump, by the names that trainers give them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.trainers.names import parse, role_of
from ppo_doctor.trainers.phrases import ARRAYS


def role(name: str, overrides: Mapping[str, str] | None = None) -> str | None:
    """Return the role of a tensor by its name alone, or None; `roles_of` uses all names of a dump."""
    return roles_of([name], overrides)[name]


#: Role → the one that the same plain name has where the dump says of another array that it is the newer one, for
#: versions the rollout's, or for rewards that of the whole, and the words that say so.
_BESIDE = {
    "log_prob": ("old_log_prob", frozenset({"new", "next", "learner"})),
    "values": ("old_values", frozenset({"new"})),
    "advantages": ("advantages_raw", frozenset({"after", "norm"})),
    "rewards": ("token_rewards", frozenset({"episode", "sequence", "total", "last", "score", "scores"})),
    "epoch": ("update", frozenset({"minibatch", "update"})),
    "minibatch": ("update", frozenset({"minibatch"})),
    "version": ("trained_version", frozenset({"rollout", "engine", "behaviour", "completion", "worker", "old"})),
}
#: What a name leaves open, in the order in which a dump settles it → the role that another array must have, if any, and
#: the roles of which the first that is free is meant. What was sampled with is the old policy unless another is.
_SETTLED = (
    ("action_log_prob", "log_prob", ("old_log_prob",)),
    ("sampled_log_prob", None, ("old_log_prob", "rollout_log_prob")),
    ("behaviour_log_prob", None, ("old_log_prob", "rollout_log_prob")),
    ("policy_log_prob", "log_prob", ("old_log_prob", "rollout_log_prob")),
    ("policy_log_prob", None, ("log_prob",)),
    ("action_log_prob", "old_log_prob", ("log_prob",)),
)


def roles_of(names: Iterable[str], overrides: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Return name → role for each tensor of a dump, None for a name that is not understood.

    Numbers after a dotted name are rows: "batch.old_log_probs.3" is old_log_prob. If a dump also has `new_logp`, `logp`
    is that of the old policy; if it also has `adv_norm`, `adv` is the raw one. `overrides` maps roles to names as given
    with `--map role=name`; no other tensor has such a role.
    """
    given = overrides or {}
    chosen = {name: known for known, name in given.items()}
    found = {name: chosen.get(name, chosen.get(without_row(name))) for name in names}
    bare = _without_affix(list(map(without_row, found)))
    names_of = {name: (bare[without_row(name)], without_row(name)) for name, known in found.items() if known is None}
    left = {name: next(filter(None, map(role_of, spelled)), None) for name, spelled in names_of.items()}
    found |= {name: known if known not in given else None for name, known in left.items()}
    for known, (other, newer) in _BESIDE.items():
        held = [name for name, each in found.items() if each == known]
        told = {name for name in held if newer & _words(name, held)}
        if told and other not in found.values():
            found |= {name: other for name in held if name not in told}
    for left_open, company, wanted in _SETTLED:
        taken = {*found.values(), *given}
        free = next((known for known in wanted if known not in taken), None)
        if company is None or company in taken:
            found |= {name: free for name, each in found.items() if each == left_open}
    return {name: known if known in ARRAYS else None for name, known in found.items()}


def _words(name: str, held: Sequence[str]) -> frozenset[str]:
    """Return the meanings and the words of a name, without the groups that all names in `held` share."""
    shared = frozenset.intersection(*(parse(each).groups for each in held)) if len(held) > 1 else frozenset()
    said = parse(name)
    return said.concepts | (said.groups - shared) | frozenset(re.findall(r"[a-z]+", name.lower()))


#: From this many names on, a word at the beginning or end of all of them belongs to the dump, and to none of them.
MANY_ALIKE = 5
_FIRST, _LAST = re.compile(r"^([A-Za-z]+)[_./]"), re.compile(r"[_./]([A-Za-z]+)$")


def _without_affix(names: Sequence[str]) -> dict[str, str]:
    """Return name → the name without the first or last word that all names of a dump share, such as "adv_t" → "adv"."""
    short = {name: name for name in names}
    for affix in (_FIRST, _LAST):
        shared = {found and found[1] for found in map(affix.search, short.values())}
        if len(short) >= MANY_ALIKE and len(shared) == 1 and None not in shared:
            short = {name: affix.sub("", bare) for name, bare in short.items()}
    return short


def without_row(name: str) -> str:
    """Return a name without the number of a row at its end."""
    return re.sub(r"(\.\d+)+$", "", name)


def parse_overrides(given: Iterable[str]) -> Mapping[str, str]:
    """Return role → name from words of the form role=name; raises DoctorError for another form or an unknown role."""
    overrides: dict[str, str] = {}
    for word in given:
        known, equals, name = word.partition("=")
        if not equals or not name or known not in ARRAYS:
            raise DoctorError(
                f"--map {word} is not of the form role=name",
                hint=f"roles are {', '.join(sorted(ARRAYS))}",
                code=ExitCode.USAGE,
            )
        overrides[known] = name
    return overrides
