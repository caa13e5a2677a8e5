"""Find the line that changed how observations are normalised between a rollout and the training on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo_doctor.record.script.places import Stack, meets

if TYPE_CHECKING:
    from ppo_doctor.record.script.session import Session
    from ppo_doctor.record.script.steps import Inputs, Step

#: Share of the inputs trained on from which on the rollout has seen them.
SEEN = 0.5
_ARITHMETIC = frozenset(
    ("sub", "__sub__", "subtract", "div", "__truediv__", "true_divide", "__div__", "mul", "__mul__", "add", "__add__")
)
#: Operations that made a tensor, the last first: name, frames, arguments.
Chain = Sequence[tuple[str, Stack, tuple[Any, ...]]]


def differs(step: Step, entered: Inputs) -> bool:
    """Return whether most inputs of a training pass are none of those of the rollout in the same step."""
    rollout = [each.rows for each in step.inputs if not each.graded and each.weight == entered.weight]
    return bool(rollout) and float(np.isin(entered.rows, np.concatenate(rollout)).mean()) < SEEN


def changed_at(data: Any, chain: Chain, call: Stack, session: Session) -> Stack:  # noqa: ANN401 - a tensor
    """Return the frames that normalised the data of a network call anew, else that made the statistics for it."""
    steps = [each for each in chain if each[0] in _ARITHMETIC]
    origin = None if steps else session.ring.origin(data)
    stack = steps[0][1] if steps else origin.stack if origin is not None else ()
    if not stack:
        return ()
    known = session.ring.stacks()
    for path in (_leaves(each, call) for each in (*(step[1] for step in steps), stack)):
        if path and all(meets(path, each) == 0 for each in known if path[0] in each):
            return path
    shared = next((frame for frame in stack if frame in call), None)
    for _, _, args in steps:
        for operand in args:
            if not hasattr(operand, "numel") or operand.requires_grad or operand.numel() > data.shape[-1]:
                continue
            origin = session.ring.origin(operand)
            if origin is not None and shared not in origin.stack:
                return origin.stack
    return session.ring.latest(lambda each: _same_class(each, stack)) or stack


def _same_class(stack: Stack, other: Stack) -> bool:
    """Return whether another method of the class that the innermost frame of some is in made a call."""
    if not stack:
        return False
    code, ours = stack[0][0], other[0][0]
    owner, _, name = ours.co_qualname.rpartition(".")
    in_class = code.co_filename == ours.co_filename and code.co_qualname.rpartition(".")[0] == owner
    return bool(owner) and in_class and code.co_name not in (name, "__init__")


def _leaves(stack: Stack, call: Stack) -> Stack:
    """Return the frames from the outermost that is not on the path of a call on, none if no function is in both."""
    functions = {code for code, _ in call}
    apart = [n for n in range(meets(stack, call)) if stack[n][0] in functions]
    return stack[apart[-1] :] if apart else ()
