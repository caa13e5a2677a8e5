"""Know the policy's weights, the optimizers that hold them, and which of them got gradients."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ppo_doctor.record.script.graph import leaves
from ppo_doctor.record.script.places import Stack

Tensor = Any

#: Smallest learning rate that is not 0 up to rounding.
LEAST_RATE = 1e-15


class PolicyWeights:
    """The parameters that the ratio depends on, and what became of them since the last update."""

    def __init__(self) -> None:
        self.weights: dict[int, Tensor] = {}
        #: parameters of the optimizers that have stepped since the last update
        self.held: dict[int, Tensor] = {}
        self._steppers: set[int] = set()
        self._made: dict[int, tuple[weakref.ref[Any], Stack]] = {}
        #: parameter → itself, and how many optimizers there were, and the frames, when it was built
        self._built: dict[int, tuple[weakref.ref[Any], int, Stack]] = {}
        self._held_ever: set[int] = set()
        self._stepped: set[int] = set()
        self._with_gradient: set[int] = set()

    def made(self, optimizer: Any, stack: Stack) -> None:  # noqa: ANN401
        """Remember an optimizer and the line that made it."""
        self._made.pop(id(optimizer), None)
        self._made[id(optimizer)] = (weakref.ref(optimizer), stack)

    def built(self, parameter: Tensor, stack: Stack) -> None:
        """Remember the line that gave a network a parameter, or copied one."""
        self._built[id(parameter)] = weakref.ref(parameter), len(self._made), stack

    def optimizers(self) -> list[tuple[Any, Stack]]:
        """Return the optimizers that are alive, those of the policy last, with the lines that made them."""
        alive = [(each(), stack) for each, stack in self._made.values() if each() is not None]
        return sorted(alive, key=lambda pair: id(pair[0]) in self._steppers)

    def steps(self, optimizer: Any, has_loss: bool) -> bool:  # noqa: ANN401
        """Return whether a step of an optimizer is one of the policy; any is while no optimizer is known to hold it."""
        return id(optimizer) in self._steppers if self._steppers else has_loss

    def steps_first(self, optimizer: Any) -> bool:  # noqa: ANN401
        """Return whether an optimizer steps for the first time."""
        first = id(optimizer) not in self._stepped
        self._stepped.add(id(optimizer))
        return first

    def note_gradients(self, held: Iterable[Tensor]) -> None:
        """Note which parameters have a gradient before a step."""
        self._with_gradient.update(id(p) for p in held if p.grad is not None)

    def entries(self, known: set[int]) -> set[int]:
        """Return which of the parameters that data enter by are the policy's, all of them if none is."""
        return known & self.weights.keys() or known

    def idle(self) -> bool:
        """Return whether no weight of the policy has a gradient, or the optimizers that stepped it are gone."""
        gone = bool(self._steppers) and all(
            key not in self._made or self._made[key][0]() is None for key in self._steppers
        )
        return gone or all(each.grad is None for each in self.weights.values())

    def replaced(self) -> None:
        """Forget a policy that the ratio depends on no longer."""
        self.weights.clear()
        self._steppers.clear()

    def know(self, identities: set[int], known: dict[int, Tensor]) -> None:
        """Add parameters that the ratio depends on."""
        built = {key: each() for key, (each, *_) in self._built.items() if key in identities}
        known = {key: each for key, each in built.items() if each is not None} | known
        self.weights.update({each: known[each] for each in identities if each in known})

    def held_by(self, optimizer: Any, held: Sequence[Tensor]) -> None:  # noqa: ANN401
        """Note whether an optimizer holds a weight of the policy."""
        if any(id(p) in self.weights for p in held):
            self._steppers.add(id(optimizer))
            self._held_ever.update(map(id, held))

    def has_leftover(self) -> bool:
        """Return whether the policy has a gradient that is not 0, by the smallest parameter that an optimizer holds."""
        held = (each for key, each in self.weights.items() if key in self._held_ever)
        smallest = min(held, key=lambda each: each.numel(), default=None)
        return smallest is not None and smallest.grad is not None and bool((smallest.grad != 0).any())

    def nonfinite(self) -> int:
        """Return how many weights of the policy are not finite."""
        return sum(int((~torch.isfinite(each.detach())).sum()) for each in self.weights.values())

    def reached_by(self, loss: Tensor) -> bool:
        """Return whether a loss depends on weights of the policy."""
        return bool(self.weights) and not self.weights.keys().isdisjoint(leaves(loss.grad_fn))

    def matched(self) -> float | None:
        """Return the share of the trained weights that optimizers hold, None if none stepped."""
        policy = [p for p in self.weights.values() if p.requires_grad]
        total = sum(p.numel() for p in policy)
        return sum(p.numel() for p in policy if id(p) in self.held) / total if total and self.held else None

    def ungraded(self, ran: dict[int, Tensor]) -> set[int]:
        """Return the parameters that an optimizer holds and that ran, but got no gradient."""
        return {key for key in ran if key in self.held and key not in self._with_gradient}

    def ungraded_share(self, ran: dict[int, Tensor]) -> float | None:
        """Return the share of the weights that an optimizer holds and that ran, but got no gradient."""
        total = sum(p.numel() for key, p in ran.items() if key in self.held)
        return sum(ran[key].numel() for key in self.ungraded(ran)) / total if total else None

    def orphaned(self) -> Stack:
        """Return the frames that built weights of the policy after an optimizer was made, none if none were."""
        for key, weight in self.weights.items():
            known, optimizers, stack = self._built.get(key, (None, 0, ()))
            if key not in self.held and optimizers and known is not None and known() is weight:
                return stack
        return ()

    def clear(self) -> None:
        """Forget what concerns one update."""
        self._with_gradient.clear()
        self.held.clear()


def rate_of(optimizer: Any) -> float | None:  # noqa: ANN401
    """Return the learning rate of an optimizer's first group that has one, 0 if all are but rounding of a schedule."""
    rates = [float(rate) for group in optimizer.param_groups if (rate := group.get("lr")) is not None]
    return next((rate for rate in rates if abs(rate) >= LEAST_RATE), 0.0) if rates else None


def gradient_norm(parameters: Sequence[Tensor]) -> float | None:
    """Return the norm of the gradients of parameters, None if none has one."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return None
    return float(torch.stack([each.detach().float().norm() for each in gradients]).norm())
