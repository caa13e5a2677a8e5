"""Measure a policy's weights: gradient norms, executed steps, movement, and shared memory."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ppo_doctor.record import measures
from ppo_doctor.record.measures import Array, Foreign, Tensor
from ppo_doctor.record.values import Parcel


def local(tensor: Tensor) -> Tensor:
    """Return the local part of a tensor that is distributed over ranks, other tensors unchanged."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def arrays_of(model: Foreign) -> list[Any]:
    """Return the weights of a torch model, or those that a function returns for a model of another library."""
    return list(model.parameters() if hasattr(model, "parameters") else model())


def shared_share(policy: Foreign, other: Foreign) -> float | None:
    """Return the share of the policy's trainable weights that share memory with another model."""
    trained = [p for p in arrays_of(policy) if getattr(p, "requires_grad", True)]
    places = _places(arrays_of(other))
    return held_share(trained, (p for p in trained if _places([p]) & places))


def held_share(whole: Iterable[Tensor], part: Iterable[Tensor]) -> float | None:
    """Return the share of weights that are in a part of them, None if there are none."""
    total = sum(_size(p) for p in whole)
    return sum(_size(p) for p in part) / total if total else None


def same_memory(one: Tensor, other: Foreign) -> bool:
    """Return whether two tensors share memory, as a tensor and its detached copy do."""
    return one is other or bool(_places([one]) & _places([other]))


def _size(array: Tensor) -> int:
    return int(array.numel() if hasattr(array, "numel") else array.size)


def _places(arrays: Iterable[Any]) -> set[int]:
    return {_place(array) for array in arrays} - {0}


def _place(array: Tensor) -> int:
    """Return the address of an array's storage, 0 if it is unknown."""
    if hasattr(array, "untyped_storage"):
        return int(local(array).untyped_storage().data_ptr())
    if hasattr(array, "unsafe_buffer_pointer"):
        return int(array.unsafe_buffer_pointer())
    while hasattr(getattr(array, "base", None), "__array_interface__"):
        array = array.base
    interface = getattr(array, "__array_interface__", None)
    return int(interface["data"][0]) if interface else 0


#: One coordinate in this many is watched, but at least LEAST of a tensor.
ONE_IN, LEAST = 100, 4096
SEED = 20171
#: Packages whose optimizers step copies of the parameters by design, so that `matched` has no answer.
_WITH_COPIES = ("deepspeed", "apex", "megatron", "fairscale")
_CHECKPOINTED = "Checkpoint"
_MOST_NODES = 200_000


class Weights:
    """Watches the trainable parameters of a torch model and the steps of its optimizer, without changing them."""

    def __init__(self, model: Foreign, optimizer: Foreign) -> None:
        self.on = False
        self.executed = 0
        self.model = model
        self.optimizer = getattr(optimizer, "optimizer", optimizer)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.owners: tuple[int, ...] | None = None
        self._norms: dict[int, Any] = {}
        self._step_norms: list[Any] = []
        self._before: list[Any] = []
        self._samples = [sample(p, place) for place, p in enumerate(self.parameters)]
        self._hooks = [p.register_post_accumulate_grad_hook(self._on(n)) for n, p in enumerate(self.parameters)]
        self._hooks += [self.optimizer.register_step_pre_hook(self._before_step)] if self.optimizer else []
        self._hooks += [self.optimizer.register_step_post_hook(self._after_step)] if self.optimizer else []

    def close(self) -> None:
        """Remove all hooks."""
        for hook in self._hooks:
            hook.remove()

    def start(self) -> None:
        """Remember the watched coordinates."""
        self.on, self.executed = True, 0
        self._norms.clear()
        self._step_norms.clear()
        self._before = [self._watched(n) for n in range(len(self.parameters))]

    def own(self, log_prob: Tensor) -> None:
        """Determine once which parameters the log-probs depend on, which are the policy's."""
        if self.owners is None:
            self.owners = _reached(log_prob, self.parameters)

    def discard_step(self) -> None:
        """Discard the gradient norms of a step that was not executed."""
        self._norms.clear()

    def finish(self, parcel: Parcel, loss_scale: Tensor = None) -> None:
        """Add the norms of the executed steps and the movement of every tensor."""
        self.on = False
        for norm in self._step_norms:
            parcel.add("grad_norm", norm / loss_scale if loss_scale is not None else norm)
        for place, before in enumerate(self._before):
            parcel.add("moved", moved(before, self._watched(place), self.parameters[place].numel()))
        self._before = []

    def movement(self, rows: Array) -> dict[str, float]:
        """Return norm and share of the change of the policy's parameters, from the rows of `finish`."""
        chosen = range(len(self.parameters)) if self.owners is None else self.owners
        return of_weights(rows, list(chosen))

    def matched(self) -> float | None:
        """Return the share of the policy's parameters in the optimizer, None if unknown or if it steps copies."""
        chosen = range(len(self.parameters)) if self.owners is None else self.owners
        if not chosen or self.optimizer is None or type(self.optimizer).__module__.startswith(_WITH_COPIES):
            return None
        held = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        policy = [self.parameters[n] for n in chosen]
        return held_share(policy, (p for p in policy if id(p) in held))

    def learning_rate(self) -> Tensor:
        """Return the learning rate of the first group."""
        return self.optimizer.param_groups[0].get("lr") if self.optimizer else None

    def _on(self, place: int) -> Tensor:
        def note(parameter: Tensor) -> None:
            if self.on and self._measured():
                self._norms[place] = local(parameter.grad).detach().norm(dtype=_float32())

        return note

    def _measured(self) -> bool:
        """Return whether the gradient of the next step is measured: steps 1, 2, 4, 8 … of an update.

        A norm reads every gradient again, which would take 1 % of a small policy's update if done in all steps.
        """
        return (self.executed + 1) & self.executed == 0

    def _before_step(self, *_: object) -> None:
        if not self.on or not self._measured():
            return
        chosen = self._norms if self.owners is None else [n for n in self.owners if n in self._norms]
        norms = [self._norms[n] for n in chosen]
        torch = sys.modules["torch"]
        self._step_norms.append(torch.stack([n.to(norms[0].device) for n in norms]).norm() if norms else 0.0)
        self._norms.clear()

    def _after_step(self, *_: object) -> None:
        self.executed += self.on

    def _watched(self, place: int) -> Tensor:
        flat = local(self.parameters[place]).detach().reshape(-1)
        chosen = self._samples[place]
        return flat.clone() if chosen is None else flat.index_select(0, chosen)


def _float32() -> Tensor:
    return sys.modules["torch"].float32


def sample(parameter: Tensor, place: int) -> Tensor:
    """Return the coordinates to watch, drawn from a separate generator; None for all of a small tensor."""
    torch = sys.modules["torch"]
    size = local(parameter).numel()
    wanted = max(LEAST, size // ONE_IN)
    if size <= wanted:
        return None
    own = torch.Generator().manual_seed(SEED + place)
    return torch.randint(size, (wanted,), generator=own).to(parameter.device)


def moved(before: Tensor, after: Tensor, size: int) -> Tensor:
    """Return [squared change, changed weights, weights] of a tensor, scaled up from the watched coordinates."""
    torch = sys.modules["torch"]
    scale = size / max(before.numel(), 1)
    change = (after.float() - before.float()).square().sum() * scale
    changed = (after != before).float().sum() * scale
    return torch.stack([change, changed, torch.full_like(change, float(size))])


def _reached(log_prob: Tensor, parameters: list[Any]) -> tuple[int, ...] | None:
    """Return the parameters in the graph of log-probs, None if it hides them (checkpointing, sharding)."""
    if not getattr(log_prob, "requires_grad", False):
        return ()
    seen: set[Any] = set()
    waiting = [log_prob.grad_fn]
    leaves: set[int] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if _CHECKPOINTED in type(node).__name__ or len(seen) > _MOST_NODES:
            return None
        seen.add(node)
        leaves.add(id(getattr(node, "variable", None)))
        waiting.extend(parent for parent, _ in node.next_functions)
    return tuple(n for n, p in enumerate(parameters) if id(p) in leaves) or None


Arrays = Callable[[], Iterable[Any]]


class ArrayWeights:
    """Compares a policy's arrays before and after an update; the loop reports steps and gradients.

    Args:
        model: a function that returns the policy's current arrays, always in the same order.
        optimizer: a function that returns the arrays that the optimizer steps, or None.
    """

    def __init__(self, model: Arrays, optimizer: Arrays | None = None) -> None:
        self.model, self._held = model, optimizer
        self.parameters: list[Any] = []
        self.optimizer = None
        self.executed = 0
        self._before: list[Any] = []

    def close(self) -> None:
        """Do nothing, because there are no hooks."""

    def start(self) -> None:
        """Remember the watched coordinates."""
        self._before = [_watched_of(array, place) for place, array in enumerate(self.model())]

    def own(self, log_prob: Tensor) -> None:
        """Do nothing, because all arrays are the policy's."""

    def discard_step(self) -> None:
        """Do nothing, because no gradients are kept."""

    def finish(self, parcel: Parcel, loss_scale: Tensor = None) -> None:  # noqa: ARG002 - the loop reports unscaled gradients
        """Add the movement of every array."""
        before, self._before = self._before, []
        now = list(self.model()) if before else []
        moved = [
            _moved_arrays(old, _watched_of(new, n), new.size)
            for n, (old, new) in enumerate(zip(before, now, strict=True))
        ]
        for row in moved:
            parcel.add("moved", row)

    def movement(self, rows: Array) -> dict[str, float]:
        """Return norm and share of the change, from the rows of `finish`."""
        return of_weights(rows, range(len(rows)))

    def matched(self) -> float | None:
        """Return the share of the policy's arrays that the optimizer steps, compared by identity, None if unknown."""
        if self._held is None:
            return None
        held = {id(array) for array in self._held()}
        policy = list(self.model())
        return held_share(policy, (array for array in policy if id(array) in held))

    def learning_rate(self) -> None:
        """Return None, because the loop reports it."""


def _watched_of(array: Tensor, place: int) -> Tensor:
    """Return a copy of the watched coordinates, which are all of a small array."""
    flat = array.reshape(-1)
    wanted = max(LEAST, array.size // ONE_IN)
    if array.size <= wanted:
        return flat.copy()
    return flat[np.random.default_rng(SEED + place).integers(array.size, size=wanted)]


def _moved_arrays(before: Tensor, after: Tensor, size: int) -> Tensor:
    """Return [squared change, changed weights, weights] of an array, scaled up from the watched coordinates."""
    xp = measures.namespace(after)
    scale = size / max(before.size, 1)
    change = after.astype(xp.float32) - before.astype(xp.float32)
    changed = xp.sum(xp.where(after != before, 1.0, 0.0)) * scale
    return xp.stack([xp.sum(change**2) * scale, changed, xp.asarray(float(size))])


def of_weights(rows: Array, chosen: Sequence[int]) -> dict[str, float]:
    """Return the norm of the change and the share of changed weights over the chosen parameter tensors.

    `rows` has shape [tensors, 3]: estimated sum of squared changes, estimated changed weights, weights.
    """
    tensors = rows[list(chosen)] if len(chosen) else np.zeros((0, 3))
    size = float(np.sum(tensors[:, 2]))
    changed = {"changed_fraction": float(np.sum(tensors[:, 1])) / size} if size else {}
    return {"update_norm": math.sqrt(float(np.sum(tensors[:, 0])))} | changed
