"""From checkpoints to canonical metrics: which sets of weights there are, what they are to each other, what differs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ppo_doctor.model import Note, SourceRef
from ppo_doctor.tensors.checkpoints import (
    Comparison,
    OptimizerState,
    compare,
    nonfinite_of,
    optimizer_state,
    swallowed,
    weights_of,
    zero_adapters,
)
from ppo_doctor.tensors.measured import Measured, number_in

if TYPE_CHECKING:
    from ppo_doctor.tensors.tensor import Archive, Tensor

Kind = Literal["policy", "old", "reference"]

_WORDS: Mapping[Kind, frozenset[str]] = {
    "old": frozenset({"old", "prev", "previous", "behavior", "behaviour", "behav"}),
    "reference": frozenset({"ref", "reference", "base", "initial", "init", "sft"}),
}
#: Two sets of weights belong to each other when they have this share of the smaller one's names in common.
ALIKE = 0.5
MOST_NAMED = 5
#: Arrays of a NumPy file are weights only if some name says so; the other containers are what trainers save weights in.
_PARAMETER = re.compile(r"weight|bias|kernel|lora|embed|log_std|param", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSet:
    """The weights of one model in one file, under names without their common prefix."""

    kind: Kind
    title: str
    archive: Archive
    weights: Mapping[str, Tensor]


def measure(archives: Sequence[Archive], learning_rate: float | None = None) -> list[Measured]:
    """Return what checkpoints say, one record for each policy in them, in the order of their numbers.

    Each policy is held against the old policy and the reference if there are any, and against the policy before it.
    `learning_rate` is that of the configuration, for files that do not hold it.

    Raises:
        DoctorError: their data cannot be read.
    """
    sets = [one for archive in archives for one in weight_sets(archive)]
    policies = [one for one in sets if one.kind == "policy"] or sets[:1]
    others = [one for one in sets if one.kind != "policy" and one not in policies]
    policies = _in_order(policies)
    records: list[Measured] = []
    for at, policy in enumerate(policies):
        before = [policies[at - 1]] if at else []
        records.append(_record(policy, [*_beside(policy, others), *before], learning_rate))
    return records


def _beside(policy: WeightSet, others: Sequence[WeightSet]) -> list[WeightSet]:
    """Return the old policy and the reference of a policy: those in its own file, else those that were given."""
    own = {other.kind for other in others if other.archive is policy.archive}
    return [other for other in others if other.archive is policy.archive or other.kind not in own]


def _in_order(sets: list[WeightSet]) -> list[WeightSet]:
    """Return snapshots by the numbers in their names, or as given where some have none."""
    steps = [number_in(one.archive.path) for one in sets]
    if any(step is None for step in steps):
        return sets
    return [one for _, one in sorted(zip(steps, sets, strict=True), key=lambda pair: pair[0] or 0)]


def weight_sets(archive: Archive) -> list[WeightSet]:
    """Return the models in one file: several if top-level names say old or reference, else one."""
    weights = weights_of(archive.tensors)
    if archive.container not in ("pt", "safetensors") and not any(map(_PARAMETER.search, weights)):
        return []
    below: dict[str, dict[str, Tensor]] = {}
    for name, tensor in weights.items():
        first, _, rest = name.partition(".")
        below.setdefault(first, {})[rest or first] = tensor
    marked = [first for first in below if kind_of(first) != "policy"]
    own = [first for first in below if any(_alike(below[first], below[other]) for other in marked)]
    if marked and len(own) > 1:
        return [_set(archive, kind_of(first), f"{archive.path}:{first}", below[first]) for first in own]
    whole = next(iter(below.values())) if len(below) == 1 else weights
    return [_set(archive, kind_of(Path(archive.path).stem), archive.path, whole)] if whole else []


def _set(archive: Archive, kind: Kind, title: str, weights: Mapping[str, Tensor]) -> WeightSet:
    return WeightSet(kind=kind, title=title, archive=archive, weights=weights)


def kind_of(name: str) -> Kind:
    """Return what a model is by a name: old policy, reference, or else the policy."""
    words = set(re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()))
    return next((kind for kind, telling in _WORDS.items() if words & telling), "policy")


def _alike(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one is other or len(set(one) & set(other)) >= ALIKE * min(len(one), len(other))


def _record(policy: WeightSet, others: Sequence[WeightSet], learning_rate: float | None) -> Measured:
    values: dict[str, float] = {}
    notes = list(policy.archive.notes)
    raw: dict[str, str] = {}
    whole: set[str] = set()
    for other in others:
        found = compare(other.weights, policy.weights, one_file=other.archive is policy.archive)
        if found is None:
            notes.append(_note(policy, f"has no weight in common with {other.title}"))
            continue
        whole |= {change.name for change in found.changes if change.finite}
        told = dict(_against(other.kind, found, known=_shows_sharing(policy, other)))
        values |= told
        raw |= dict.fromkeys(told, f"{policy.title} against {other.title}")
        notes += [_note(policy, text) for text in _words(found, other)]
    alone = dict(_alone(policy, whole, learning_rate))
    values, raw = alone | values, dict.fromkeys(alone, policy.title) | raw
    return Measured(
        path=policy.archive.path,
        container=policy.archive.container,
        step=number_in(policy.archive.path),
        values={name: value for name, value in values.items() if not math.isnan(value)},
        raw=raw,
        notes=tuple(notes),
    )


def _note(policy: WeightSet, text: str) -> Note:
    return Note(text=text, source=SourceRef(path=policy.title))


def _shows_sharing(policy: WeightSet, other: WeightSet) -> bool:
    """Tell whether the two would share memory in the file if they did: other formats, and two files, hold copies."""
    return other.archive is policy.archive and policy.archive.container == "pt"


def _against(kind: Kind, found: Comparison, *, known: bool) -> Iterator[tuple[str, float]]:
    if kind == "policy":
        yield "snapshot_changed", found.changed
    elif kind == "old":
        if known:
            yield "old_policy_shared", found.shared
        if found.shared < 1:
            yield "old_policy_changed", found.changed
    else:
        if known:
            yield "reference_shared", found.shared
        yield "reference_changed", found.changed


def _words(found: Comparison, other: WeightSet) -> Iterator[str]:
    """Tell in words what one number does not hold: which tensors stood still, how far the others went."""
    still, count = found.frozen, len(found.changes)
    if 0 < len(still) < count:
        more = f" and {len(still) - MOST_NAMED} more" if len(still) > MOST_NAMED else ""
        yield (
            f"{len(still)} of {count} tensors are those of {other.title}, bit for bit: "
            f"{', '.join(still[:MOST_NAMED])}{more}"
        )
    if found.delta > 0:
        most = max(found.changes, key=lambda change: change.relative)
        yield (
            f"the norm of the change from {other.title} is {found.delta:.3g}, {found.changed:.1%} of the weights "
            f"differ, and {most.name} changed most: {most.relative:.2g} of its norm"
        )
    if found.unmatched:
        yield f"{len(found.unmatched)} tensors have no counterpart in {other.title}, such as {found.unmatched[0]}"


def _alone(policy: WeightSet, whole: set[str], learning_rate: float | None) -> Iterator[tuple[str, float]]:
    """Yield what one checkpoint says by itself; tensors that are known to be `whole` are not read again for NaN."""
    broken = nonfinite_of({name: tensor for name, tensor in policy.weights.items() if name not in whole})
    yield "weights_nonfinite", float(sum(broken.values()))
    zero, adapters = zero_adapters(policy.weights)
    if adapters:
        yield "adapters_zero", zero / adapters
    state = optimizer_state(policy.archive.tensors, policy.archive.scalars, policy.weights)
    if state is not None:
        yield from _optimizer(state, policy, learning_rate)


def _optimizer(state: OptimizerState, policy: WeightSet, learning_rate: float | None) -> Iterator[tuple[str, float]]:
    """Yield what the optimizer's state says; half precision is judged only where its moments prove it.

    Weights in 16 bits beside float32 moments may be copies of float32 masters, which take up any step.
    """
    if state.listed:
        yield "optimizer_state_share", state.held / state.listed
    if state.held:
        yield "optimizer_moving", state.moving / state.held
    if state.held and not state.flattened:
        yield "optimizer_state_fitting", state.fitting / state.held
    if state.learning_rate is not None:
        yield "learning_rate", state.learning_rate
    rate = state.learning_rate if state.learning_rate is not None else learning_rate
    if state.half and not state.masters and rate:
        lost = swallowed(policy.weights, rate)
        if lost is not None:
            yield "swallowed_fraction", lost
