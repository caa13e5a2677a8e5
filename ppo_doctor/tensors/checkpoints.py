"""What two sets of weights say about each other, and one about itself: shared memory, equality, movement, numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.tensors.dtypes import widen
from ppo_doctor.tensors.moments import Widened, products

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.model import ConfigValue
    from ppo_doctor.tensors.dtypes import AnyArray
    from ppo_doctor.tensors.tensor import Tensor

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


def same_memory(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors of one file are the same elements of one storage."""
    here = (one.storage, one.offset, one.stride, one.shape, one.dtype)
    return here == (other.storage, other.offset, other.stride, other.shape, other.dtype)


def _change(name: str, before: Tensor, after: Tensor, one_file: bool) -> TensorChange:
    if one_file and same_memory(before, after):
        return TensorChange(name=name, size=before.size, shared=True, changed=0, delta=0.0, norm=math.nan)
    alike, rooms = before.dtype == after.dtype, (Widened(), Widened())
    changed, delta, norm, finite = 0, 0.0, 0.0, True
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        for one, other in zip(before.bits(PIECE), after.bits(PIECE), strict=True):
            differing = _differing(one, other) if alike else None
            old = rooms[0](widen(one, before.dtype))
            square, whole = _square(old)
            norm, finite = norm + square, finite and whole
            if differing == 0:
                continue
            new = rooms[1](widen(other, after.dtype))
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
        fitting=_fitting([tensor.shape for tensor in owners.values()], shapes),
        flattened=all(len(tensor.shape) < 2 for tensor in owners.values()) and any(len(s) > 1 for s in shapes),
        half=bool(adam) and all(tensor.dtype in ("bfloat16", "float16") for tensor in adam),
        masters=any(_MASTERS.search(name) for name in tensors),
        learning_rate=_learning_rate(scalars),
    )


def _listed(tensors: Weights, scalars: Mapping[str, ConfigValue]) -> int:
    """Return how many parameters the groups list, as a list of numbers or one by one."""
    whole = sum(tensor.size for name, tensor in tensors.items() if re.search(r"param_groups\.\d+\.params$", name))
    return whole + sum(bool(re.search(r"param_groups\.\d+\.params\.\d+$", name)) for name in (*scalars, *tensors))


def _fitting(held: Sequence[tuple[int, ...]], wanted: Iterable[tuple[int, ...]]) -> int:
    free: dict[tuple[int, ...], int] = {}
    for shape in wanted:
        free[shape] = free.get(shape, 0) + 1
    count = 0
    for shape in held:
        if free.get(shape, 0):
            free[shape] -= 1
            count += 1
    return count


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
