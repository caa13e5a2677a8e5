"""Find sets of weights in checkpoints, compare them, and measure the canonical metrics of weights and optimizers."""

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
#: Prefixes that wrappers add to the names of a model's parameters.
_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "base_model.model.", "actor_module.")
_LORA_B = re.compile(r"lora_(embedding_)?B\b")
_STATE = re.compile(r"(^|\.)optim(izer)?s?(_state(_dict)?)?\.|(^|\.)exp_avg(_sq)?$|(^|\.)momentum_buffer$")
_MOMENT = re.compile(r"\.(exp_avg|momentum_buffer|square_avg)$")
_MASTERS = re.compile(r"master|fp32_(flat|groups|param)|single_partition_of_fp32")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorChange:
    """The difference of one weight tensor between two sets; norms are Euclidean, over finite values.

    `shared` means that both are the same memory. `changed` counts the elements whose bits differ, `norm` is that of the
    first tensor, `delta` that of the difference.
    """

    name: str
    size: int
    shared: bool
    changed: int
    delta: float
    norm: float
    #: both were read and contain neither NaN nor infinity
    finite: bool = False

    @property
    def relative(self) -> float:
        """Return the norm of the change over that of the weights, infinite for a change from 0."""
        if self.norm == 0:
            return 0.0 if self.delta == 0 else math.inf
        return self.delta / self.norm


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The changes of tensors between two sets of weights, and names that only one has or that differ in shape."""

    changes: tuple[TensorChange, ...]
    unmatched: tuple[str, ...]

    @property
    def size(self) -> int:
        """Return the number of parameters in both sets."""
        return sum(change.size for change in self.changes)

    @property
    def shared(self) -> float:
        """Return the share of parameters that are the same memory in both sets."""
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
        """Return the names of tensors that did not change at all."""
        return tuple(change.name for change in self.changes if not change.changed)


def weights_of(tensors: Weights) -> dict[str, Tensor]:
    """Return the non-empty floating-point tensors that do not belong to an optimizer, by names without wrappers."""
    return {
        plain_name(name): tensor
        for name, tensor in tensors.items()
        if _FLOATS.match(tensor.dtype) and tensor.size and not _STATE.search(name)
    }


def plain_name(name: str) -> str:
    """Return a parameter's name without the prefixes of FSDP, DDP, torch.compile and PEFT."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def compare(before: Weights, after: Weights, *, one_file: bool) -> Comparison | None:
    """Return the differences of two sets of weights by name, None if they have no tensor in common.

    `one_file` says that both are in the same file, where equal storages are the same memory. Weights are streamed and
    compared bit by bit if their types are equal, so that a NaN equals itself.
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
    """Return the number of elements that differ in any bit; they are compared as integers, so a NaN equals itself."""
    kind = f"u{one.dtype.itemsize}"
    return int(np.count_nonzero(one.view(kind) != other.view(kind)))


def _square(values: Floats) -> tuple[float, bool]:
    """Return the sum of squares of the finite values, and whether all values are certainly finite."""
    total = products(values, values)
    if math.isfinite(total):
        return total, True
    kept = values[np.isfinite(values)]
    return products(kept, kept), False


def nonfinite_of(weights: Weights) -> dict[str, int]:
    """Return the number of NaN and infinite elements of each tensor that has any."""
    counts = {name: _nonfinite(tensor) for name, tensor in weights.items()}
    return {name: count for name, count in counts.items() if count}


def _nonfinite(tensor: Tensor) -> int:
    count = 0
    for piece in tensor.chunks(PIECE):
        with np.errstate(over="ignore", invalid="ignore"):
            total = float(piece.sum(dtype=np.float64))
        if not math.isfinite(total):  # a finite sum contains no NaN; an infinite one may have overflowed
            count += len(piece) - int(np.count_nonzero(np.isfinite(piece)))
    return count


def zero_adapters(weights: Weights) -> tuple[int, int]:
    """Return how many LoRA B matrices are still exactly 0, their initial value, and how many there are."""
    matrices = [tensor for name, tensor in weights.items() if _LORA_B.search(name)]
    return sum(not any(piece.any() for piece in tensor.chunks(PIECE)) for tensor in matrices), len(matrices)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerState:
    """A saved optimizer: `listed` counts the parameters in its groups, `held` those that have a state.

    `moving` counts states whose first moment is not 0, `fitting` those with the shape of a weight of the model.
    `flattened` says that all states are vectors although weights are not, as in sharded optimizers; `half`, that Adam's
    moments have 16 bits; `masters`, that the file contains float32 copies of the weights.
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
    """Return the state of the optimizer in a file (as torch.optim's state_dict), None without one."""
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
    """Return the number of parameters that the groups list, in one tensor or one by one."""
    whole = sum(tensor.size for name, tensor in tensors.items() if re.search(r"param_groups\.\d+\.params$", name))
    return whole + sum(bool(re.search(r"param_groups\.\d+\.params\.\d+$", name)) for name in (*scalars, *tensors))


def _learning_rate(scalars: Mapping[str, ConfigValue]) -> float | None:
    """Return the largest learning rate of the parameter groups."""
    values = [value for name, value in scalars.items() if re.search(r"param_groups\.\d+\.lr$", name)]
    rates = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return max(rates, default=None)


def swallowed(weights: Weights, step: float) -> float | None:
    """Return the share of 16-bit weights that a step of this size leaves unchanged, None without such weights.

    A weight of magnitude in [2^e, 2^(e+1)) has neighbours at a distance of 2^(e-m) for m bits of mantissa, and a step
    below half of that is rounded away. Weights of exactly 0 are left out, because any step changes them.
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
    """Return half of the distance of each number to its larger neighbour."""
    bits, least = (7, -126) if dtype == "bfloat16" else (10, -14)
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, least)
    half: AnyArray = np.ldexp(np.float64(0.5), exponent - bits)
    return half


Kind = Literal["policy", "old", "reference"]

_WORDS: Mapping[Kind, frozenset[str]] = {
    "old": frozenset({"old", "prev", "previous", "behavior", "behaviour", "behav"}),
    "reference": frozenset({"ref", "reference", "base", "initial", "init", "sft"}),
}
#: Two sets of weights belong to the same model if they share this fraction of the smaller one's names.
ALIKE = 0.5
MOST_NAMED = 5
#: Arrays of NumPy files are weights only if one of them has such a name; trainers save weights in other containers.
_PARAMETER = re.compile(r"weight|bias|kernel|lora|embed|log_std|param", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSet:
    """The weights of one model in one file, by names without their common prefix."""

    kind: Kind
    title: str
    archive: Archive
    weights: Mapping[str, Tensor]


def measure(archives: Sequence[Archive], learning_rate: float | None = None) -> list[Measured]:
    """Return a record of metrics for each policy in checkpoints, in the order of the numbers in their names.

    Each policy is compared with the old policy and the reference if there are any, and with the policy before it.
    `learning_rate` is that of the configuration, for files without one.

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
        records.append(_record(policy, [*_counterparts(policy, others), *before], learning_rate))
    return records


def _counterparts(policy: WeightSet, others: Sequence[WeightSet]) -> list[WeightSet]:
    """Return the old policy and the reference of a policy: those in its own file, else those in other files."""
    own = {other.kind for other in others if other.archive is policy.archive}
    return [other for other in others if other.archive is policy.archive or other.kind not in own]


def _in_order(sets: list[WeightSet]) -> list[WeightSet]:
    """Return sets in the order of the numbers in their names, or in the given order if some have none."""
    steps = [number_in(one.archive.path) for one in sets]
    if any(step is None for step in steps):
        return sets
    return [one for _, one in sorted(zip(steps, sets, strict=True), key=lambda pair: pair[0] or 0)]


def weight_sets(archive: Archive) -> list[WeightSet]:
    """Return the models in one file: several if a top-level name means an old policy or a reference, else one."""
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
    """Return the kind of a model by its name: an old policy, a reference, or else the policy."""
    words = set(re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()))
    return next((kind for kind, known in _WORDS.items() if words & known), "policy")


def _alike(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one is other or len(set(one) & set(other)) >= ALIKE * min(len(one), len(other))


def _record(policy: WeightSet, others: Sequence[WeightSet], learning_rate: float | None) -> Measured:
    values: dict[str, float] = {}
    notes = list(policy.archive.notes)
    raw: dict[str, str] = {}
    whole: set[str] = set()
    for other in others:
        comparison = compare(other.weights, policy.weights, one_file=other.archive is policy.archive)
        if comparison is None:
            notes.append(_note(policy, f"has no weight in common with {other.title}"))
            continue
        whole |= {change.name for change in comparison.changes if change.finite}
        metrics = dict(_against(other.kind, comparison, known=_shows_sharing(policy, other)))
        values |= metrics
        raw |= dict.fromkeys(metrics, f"{policy.title} against {other.title}")
        notes += [_note(policy, text) for text in _sentences(comparison, other)]
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
    """Return whether the file would show shared memory; other formats, and two files, contain copies."""
    return other.archive is policy.archive and policy.archive.container == "pt"


def _against(kind: Kind, comparison: Comparison, *, known: bool) -> Iterator[tuple[str, float]]:
    if kind == "policy":
        yield "snapshot_changed", comparison.changed
    elif kind == "old":
        if known:
            yield "old_policy_shared", comparison.shared
        if comparison.shared < 1:
            yield "old_policy_changed", comparison.changed
    else:
        if known:
            yield "reference_shared", comparison.shared
        yield "reference_changed", comparison.changed


def _sentences(comparison: Comparison, other: WeightSet) -> Iterator[str]:
    """Yield sentences for notes: which tensors did not change, and how much the others did."""
    still, count = comparison.frozen, len(comparison.changes)
    if 0 < len(still) < count:
        more = f" and {len(still) - MOST_NAMED} more" if len(still) > MOST_NAMED else ""
        yield (
            f"{len(still)} of {count} tensors are those of {other.title}, bit for bit: "
            f"{', '.join(still[:MOST_NAMED])}{more}"
        )
    if comparison.delta > 0:
        most = max(comparison.changes, key=lambda change: change.relative)
        yield (
            f"the norm of the change from {other.title} is {comparison.delta:.3g}, {comparison.changed:.1%} of the "
            f"weights differ, and {most.name} changed most: {most.relative:.2g} of its norm"
        )
    if comparison.unmatched:
        first = comparison.unmatched[0]
        yield f"{len(comparison.unmatched)} tensors have no counterpart in {other.title}, such as {first}"


def _alone(policy: WeightSet, whole: set[str], learning_rate: float | None) -> Iterator[tuple[str, float]]:
    """Yield the metrics of one policy by itself; `whole` are tensors known to be finite, which are not read again."""
    broken = nonfinite_of({name: tensor for name, tensor in policy.weights.items() if name not in whole})
    yield "weights_nonfinite", float(sum(broken.values()))
    zero, adapters = zero_adapters(policy.weights)
    if adapters:
        yield "adapters_zero", zero / adapters
    state = optimizer_state(policy.archive.tensors, policy.archive.scalars, policy.weights)
    if state is not None:
        yield from _optimizer(state, policy, learning_rate)


def _optimizer(state: OptimizerState, policy: WeightSet, learning_rate: float | None) -> Iterator[tuple[str, float]]:
    """Yield the metrics of an optimizer's state; lost steps only if its moments show training in half precision.

    16-bit weights with float32 moments may be copies of float32 masters, which lose no step.
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
