"""Whose memory is whose: of torch, NumPy and JAX."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ppo_doctor.record.kinds import Foreign, Tensor


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor that is spread over ranks."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def arrays_of(model: Foreign) -> list[Any]:
    """Return the weights of a torch model, or what a function returns that stands for another library's model."""
    return list(model.parameters() if hasattr(model, "parameters") else model())


def shared_share(policy: Foreign, other: Foreign) -> float | None:
    """Return the share of the policy's trainable weights that stand in the memory of another model."""
    trained = [p for p in arrays_of(policy) if getattr(p, "requires_grad", True)]
    places = _places(arrays_of(other))
    return held_share(trained, (p for p in trained if _places([p]) & places))


def held_share(wanted: Iterable[Tensor], found: Iterable[Tensor]) -> float | None:
    """Return the share of weights that were found; None where there are none."""
    total = sum(_size(p) for p in wanted)
    return sum(_size(p) for p in found) / total if total else None


def same_memory(one: Tensor, other: Foreign) -> bool:
    """Return whether two tensors stand in the same memory, as a tensor and its detached self do."""
    return one is other or bool(_places([one]) & _places([other]))


def _size(array: Tensor) -> int:
    return int(array.numel() if hasattr(array, "numel") else array.size)


def _places(arrays: Iterable[Any]) -> set[int]:
    return {_place(array) for array in arrays} - {0}


def _place(array: Tensor) -> int:
    """Return the address of an array's storage; 0 where it has none that can be told."""
    if hasattr(array, "untyped_storage"):
        return int(local(array).untyped_storage().data_ptr())
    if hasattr(array, "unsafe_buffer_pointer"):
        return int(array.unsafe_buffer_pointer())
    while hasattr(getattr(array, "base", None), "__array_interface__"):
        array = array.base
    interface = getattr(array, "__array_interface__", None)
    return int(interface["data"][0]) if interface else 0
