"""What the tensors of a dump are, by the names that trainers give them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.ingest.naming import parse, role_of
from ppo_doctor.ingest.vocabulary import ARRAYS


def role(name: str, overrides: Mapping[str, str] | None = None) -> str | None:
    """Return what a tensor is by its name in the file, or None.

    Numbers behind a dotted name are rows: "batch.old_log_probs.3" is old_log_prob.
    `overrides` maps roles to names as given with `--map role=name`; a role that is given has no other tensor.
    """
    path = without_row(name)
    given = overrides or {}
    for known, chosen in given.items():
        if chosen in (name, path):
            return known
    found = role_of(path)
    if found in ("log_prob", "rollout_log_prob") and "buffer" in path.lower():
        found = "old_log_prob"  # a rollout buffer holds what the policy said when it acted
    return None if found in given else found


#: Role → the one that the same plain name has where the dump says of another array that it is the newer one, and the
#: words that say so.
_BESIDE = {
    "log_prob": ("old_log_prob", frozenset({"new"})),
    "values": ("old_values", frozenset({"new"})),
    "advantages": ("advantages_raw", frozenset({"after", "norm"})),
}


def roles_of(names: Iterable[str], overrides: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Return name → what each tensor of a dump is, None for what is not understood.

    Beside `new_logp` a plain `logp` is that of the rollout, and beside `adv_norm` a plain `adv` is the raw one.
    """
    found = {name: role(name, overrides) for name in names}
    for known, (other, newer) in _BESIDE.items():
        held = [name for name, each in found.items() if each == known]
        told = {name for name in held if parse(name).concepts & newer}
        if told and other not in found.values():
            found |= {name: other for name in held if name not in told}
    return found


def without_row(name: str) -> str:
    """Return a name without the number of the row that it ends in, if it does."""
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


def roles() -> tuple[str, ...]:
    """Return every role that a tensor can have."""
    return tuple(ARRAYS)
