"""Sets of weights in a file, their differences, and the canonical metrics of these."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from ppo_doctor.model.run import Note, SourceRef
from ppo_doctor.readers.tensors.tensor import same_memory, widen
from ppo_doctor.runs.dumps.dump_run import Measured, number_in
from ppo_doctor.runs.dumps.statistics import products

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.readers.tensors.tensor import AnyArray, Archive, Tensor

    Floats = npt.NDArray[np.float64]

Weights = Mapping[str, "Tensor"]

#: Elements compared at a time.
PIECE = 1 << 15
_FLOATS = re.compile(r"b?float\d")
#: Prefixes that wrappers put before the names of a model's parameters.
_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "base_model.model.", "actor_module.")
_LORA_B = re.compile(r"lora_(embedding_)?B\b")
_STATE = re.compile(r"(^|\.)optim(izer)?s?(_state(_dict)?)?\.|(^|\.)exp_avg(_sq)?$|(^|\.)momentum_buffer$")
_MOMENT = re.compile(r"\.(exp_avg|momentum_buffer|square_avg)$")
_MASTERS = re.compile(r"master|fp32_(flat|groups|param)|single_partition_of_fp32")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorChange:
    """How one weight tensor differs between two sets; norms are Euclidean, over finite values.

    `changed` counts elements whose bits differ, `norm` is that of the first, `delta` that of the difference.
    """

    name: str
    size: int
    shared: bool
    changed: int
    delta: float
    norm: float
    #: surely no NaN or infinity in either; what is shared was not looked at
    finite: bool = False

    @property
    def relative(self) -> float:
        """Return the norm of the change over that of the weights; infinite for a change from 0."""
        if self.norm == 0:
            return 0.0 if self.delta == 0 else math.inf
        return self.delta / self.norm


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sets of weights, tensor by tensor, and the names that only one of them has, or has in another shape."""

    changes: tuple[TensorChange, ...]
    unmatched: tuple[str, ...]

    @property
    def size(self) -> int:
        """Return the number of parameters that both have."""
        return sum(change.size for change in self.changes)

    @property
    def shared(self) -> float:
        """Return the share of parameters that are one and the same memory."""
        return sum(change.size for change in self.changes if change.shared) / self.size

    @property
    def changed(self) -> float:
        """Return the share of parameters that differ in any bit."""
        return sum(change.changed for change in self.changes) / self.size

    @property
    def delta(self) -> float:
        """Return the norm of the whole change."""
        return math.sqrt(math.fsum(change.delta**2 for change in self.changes))

    @property
    def frozen(self) -> tuple[str, ...]:
        """Return the tensors that did not change at all."""
        return tuple(change.name for change in self.changes if not change.changed)


def weights_of(tensors: Weights) -> dict[str, Tensor]:
    """Return the tensors that are weights: of floating point, not empty, and no optimizer's; names without wrappers."""
    return {
        plain_name(name): tensor
        for name, tensor in tensors.items()
        if _FLOATS.match(tensor.dtype) and tensor.size and not _STATE.search(name)
    }


def plain_name(name: str) -> str:
    """Return a parameter's name without what FSDP, DDP, torch.compile and PEFT put before it."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def compare(before: Weights, after: Weights, *, one_file: bool) -> Comparison | None:
    """Compare two sets of weights by name; None where they have no tensor in common.

    `one_file` tells that storages of both are named by the same file, so that equal ones are one memory. Both are
    streamed; bits decide what changed, so a NaN equals itself.
    """
    common = [n for n, tensor in before.items() if n in after and after[n].shape == tensor.shape]
    if not common:
        return None
    rest = tuple(sorted((set(before) | set(after)) - set(common)))
    changes = tuple(_change(name, before[name], after[name], one_file) for name in common)
    return Comparison(changes=changes, unmatched=rest)


def _change(name: str, before: Tensor, after: Tensor, one_file: bool) -> TensorChange:
    if one_file and same_memory(before, after):
        return TensorChange(name=name, size=before.size, shared=True, changed=0, delta=0.0, norm=math.nan)
    alike = before.dtype == after.dtype
    rooms = np.empty((2, min(PIECE, before.size)))  # fresh memory for each piece costs as much as the arithmetic
    changed, delta, norm, finite = 0, 0.0, 0.0, True
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        for one, other in zip(before.bits(PIECE), after.bits(PIECE), strict=True):
            differing = _differing(one, other) if alike else None
            old, new = rooms[:, : len(one)]
            np.copyto(old, widen(one, before.dtype))
            square, whole = _square(old)
            norm, finite = norm + square, finite and whole
            if differing == 0:
                continue
            np.copyto(new, widen(other, after.dtype))
            changed += int(np.count_nonzero(old != new)) if differing is None else differing
            square, whole = _square(np.subtract(new, old, out=new))
            delta, finite = delta + square, finite and whole
    roots = math.sqrt(delta), math.sqrt(norm)
    return TensorChange(
        name=name, size=before.size, shared=False, changed=changed, delta=roots[0], norm=roots[1], finite=finite
    )


def _differing(one: AnyArray, other: AnyArray) -> int:
    """Return how many elements differ in any bit: seen as whole numbers, so that a NaN equals itself."""
    kind = f"u{one.dtype.itemsize}"
    return int(np.count_nonzero(one.view(kind) != other.view(kind)))


def _square(values: Floats) -> tuple[float, bool]:
    """Return the sum of squares of the finite values, and whether it is sure that all are finite."""
    total = products(values, values)
    if math.isfinite(total):
        return total, True
    kept = values[np.isfinite(values)]
    return products(kept, kept), False


def nonfinite_of(weights: Weights) -> dict[str, int]:
    """Return the number of NaN and infinite elements of each tensor that has any."""
    found = {name: _nonfinite(tensor) for name, tensor in weights.items()}
    return {name: count for name, count in found.items() if count}


def _nonfinite(tensor: Tensor) -> int:
    count = 0
    for piece in tensor.chunks(PIECE):
        with np.errstate(over="ignore", invalid="ignore"):
            total = float(piece.sum(dtype=np.float64))
        if not math.isfinite(total):  # a finite sum has no NaN in it; an infinite one may be an overflow
            count += len(piece) - int(np.count_nonzero(np.isfinite(piece)))
    return count


def zero_adapters(weights: Weights) -> tuple[int, int]:
    """Return how many LoRA B matrices are exactly 0, as they start, and how many there are."""
    matrices = [tensor for name, tensor in weights.items() if _LORA_B.search(name)]
    return sum(not any(piece.any() for piece in tensor.chunks(PIECE)) for tensor in matrices), len(matrices)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerState:
    """What a saved optimizer holds: parameters listed in its groups, those with a state, and how many fit a weight.

    `moving` counts states with a first moment other than 0, `fitting` those whose shape some weight of the model has;
    `flattened` tells that all states are vectors and weights are not, as sharded optimizers keep them; `half`, that
    Adam's moments are kept in 16 bits; `masters`, that float32 copies of the weights are in the file.
    """

    listed: int
    held: int
    moving: int
    fitting: int
    flattened: bool
    half: bool
    masters: bool
    learning_rate: float | None


def optimizer_state(tensors: Weights, scalars: Mapping[str, ConfigValue], weights: Weights) -> OptimizerState | None:
    """Return what a file says of the optimizer (the layout of torch.optim's state_dict), None without one."""
    moments = {name: tensor for name, tensor in tensors.items() if _MOMENT.search(name)}
    listed = _listed(tensors, scalars)
    if not moments and not listed:
        return None
    adam = [tensor for name, tensor in moments.items() if name.endswith(".exp_avg")]
    owners = {name.rpartition(".")[0]: tensor for name, tensor in moments.items()}
    shapes = [tensor.shape for tensor in weights.values()]
    return OptimizerState(
        listed=listed,
        held=len(owners),
        moving=sum(any(piece.any() for piece in tensor.chunks(PIECE)) for tensor in owners.values()),
        fitting=sum((Counter(tensor.shape for tensor in owners.values()) & Counter(shapes)).values()),
        flattened=all(len(tensor.shape) < 2 for tensor in owners.values()) and any(len(s) > 1 for s in shapes),
        half=bool(adam) and all(tensor.dtype in ("bfloat16", "float16") for tensor in adam),
        masters=any(_MASTERS.search(name) for name in tensors),
        learning_rate=_learning_rate(scalars),
    )


def _listed(tensors: Weights, scalars: Mapping[str, ConfigValue]) -> int:
    """Return how many parameters the groups list, as a list of numbers or one by one."""
    whole = sum(tensor.size for name, tensor in tensors.items() if re.search(r"param_groups\.\d+\.params$", name))
    return whole + sum(bool(re.search(r"param_groups\.\d+\.params\.\d+$", name)) for name in (*scalars, *tensors))


def _learning_rate(scalars: Mapping[str, ConfigValue]) -> float | None:
    rates = [value for name, value in scalars.items() if re.search(r"param_groups\.\d+\.lr$", name)]
    found = [float(rate) for rate in rates if isinstance(rate, int | float) and not isinstance(rate, bool)]
    return max(found, default=None)


def swallowed(weights: Weights, step: float) -> float | None:
    """Return the share of 16-bit weights that a step of this size leaves as they are; None without such weights.

    A weight of magnitude in [2^e, 2^(e+1)) has neighbours 2^(e-m) away, m bits of mantissa; a step below half of that
    rounds to nothing. Weights of exactly 0 take up any step, and are left out.
    """
    lost = total = 0
    for tensor in weights.values():
        if tensor.dtype not in ("bfloat16", "float16"):
            continue
        for magnitude in _magnitudes(tensor):
            total += len(magnitude)
            lost += int(np.count_nonzero(_half_ulp(magnitude, tensor.dtype) > step))
    return lost / total if total else None


def _magnitudes(tensor: Tensor) -> Iterator[AnyArray]:
    for piece in tensor.chunks(PIECE):
        sizes = np.abs(piece)
        yield sizes[np.isfinite(sizes) & (sizes > 0)]


def _half_ulp(magnitude: AnyArray, dtype: str) -> AnyArray:
    bits, least = (7, -126) if dtype == "bfloat16" else (10, -14)
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, least)
    half: AnyArray = np.ldexp(np.float64(0.5), exponent - bits)
    return half


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
