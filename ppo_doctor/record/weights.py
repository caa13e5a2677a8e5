"""What becomes of a torch policy's weights: gradients before clipping, executed steps, movement, and who owns what."""

from __future__ import annotations

import sys
from typing import Any

from ppo_doctor.record.kinds import Array, Foreign, Tensor
from ppo_doctor.record.memory import held_share, local
from ppo_doctor.record.tally import of_weights
from ppo_doctor.record.transfer import Parcel

#: One coordinate in so many is watched, and never fewer than LEAST of a tensor.
ONE_IN, LEAST = 100, 4096
SEED = 20171
#: Optimizers that step copies of the parameters by design: whether they hold the policy's is not ours to say.
_WITH_COPIES = ("deepspeed", "apex", "megatron", "fairscale")
_CHECKPOINTED = "Checkpoint"
_MOST_NODES = 200_000


class Weights:
    """Watches the trainable parameters of one model and the steps of one optimizer; changes neither."""

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
        self._samples = [_sample(p, place) for place, p in enumerate(self.parameters)]
        self._hooks = [p.register_post_accumulate_grad_hook(self._on(n)) for n, p in enumerate(self.parameters)]
        self._hooks += [self.optimizer.register_step_pre_hook(self._before_step)] if self.optimizer else []
        self._hooks += [self.optimizer.register_step_post_hook(self._after_step)] if self.optimizer else []

    def close(self) -> None:
        """Take every hook away."""
        for hook in self._hooks:
            hook.remove()

    def start(self) -> None:
        """Remember the watched coordinates."""
        self.on, self.executed = True, 0
        self._norms.clear()
        self._step_norms.clear()
        self._before = [self._watched(n) for n in range(len(self.parameters))]

    def own(self, log_prob: Tensor) -> None:
        """Find out, once, which parameters the log-probs depend on: those are the policy's."""
        if self.owners is None:
            self.owners = _reached(log_prob, self.parameters)

    def discard_step(self) -> None:
        """Forget the gradients of a step that was not executed."""
        self._norms.clear()

    def finish(self, parcel: Parcel, loss_scale: Tensor = None) -> None:
        """Add the norms of the executed steps and the movement of every tensor."""
        self.on = False
        for norm in self._step_norms:
            parcel.add("grad_norm", norm / loss_scale if loss_scale is not None else norm)
        for place, before in enumerate(self._before):
            parcel.add("moved", _moved(before, self._watched(place), self.parameters[place].numel()))
        self._before = []

    def movement(self, rows: Array) -> dict[str, float]:
        """Return norm and share of the change of the policy's parameters, from the rows of `finish`."""
        chosen = range(len(self.parameters)) if self.owners is None else self.owners
        return of_weights(rows, list(chosen))

    def matched(self) -> float | None:
        """Return the share of the policy's parameters that the optimizer holds; None where that says nothing."""
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
        """Return whether the coming step's gradient is measured: steps 1, 2, 4, 8 … of an update.

        A norm reads every gradient once more; over all steps that alone would be a per cent of a small policy's update.
        """
        coming = self.executed + 1
        return coming & self.executed == 0

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


def _sample(parameter: Tensor, place: int) -> Tensor:
    """Return the fixed coordinates to watch, from a generator of our own; None for all of a small tensor."""
    torch = sys.modules["torch"]
    size = local(parameter).numel()
    wanted = max(LEAST, size // ONE_IN)
    if size <= wanted:
        return None
    own = torch.Generator().manual_seed(SEED + place)
    return torch.randint(size, (wanted,), generator=own).to(parameter.device)


def _moved(before: Tensor, after: Tensor, size: int) -> Tensor:
    """Return [squared change, changed weights, weights] of a tensor, scaled up from the watched coordinates."""
    torch = sys.modules["torch"]
    scale = size / max(before.numel(), 1)
    change = (after.float() - before.float()).square().sum() * scale
    changed = (after != before).float().sum() * scale
    return torch.stack([change, changed, torch.full_like(change, float(size))])


def _reached(log_prob: Tensor, parameters: list[Any]) -> tuple[int, ...] | None:
    """Return which parameters the log-probs' graph ends in; None where it hides them (checkpointing, sharding)."""
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
