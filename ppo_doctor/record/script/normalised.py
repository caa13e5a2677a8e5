"""Find the line that changed how observations are normalised between a rollout and the training on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo_doctor.record.script.places import Stack

if TYPE_CHECKING:
    from ppo_doctor.record.script.session import Session
    from ppo_doctor.record.script.steps import Inputs, Step

#: Share of the inputs trained on from which on the rollout has seen them.
SEEN = 0.5
#: Largest statistic of normalisation.
LARGEST_STATISTIC = 1 << 12
_ARITHMETIC = frozenset(
    ("sub", "__sub__", "subtract", "div", "__truediv__", "true_divide", "__div__", "mul", "__mul__", "add", "__add__")
)
#: Operations that made a tensor, the last first: name, frames, arguments.
Chain = Sequence[tuple[str, Stack, tuple[Any, ...]]]


def differs(step: Step, entered: Inputs) -> bool:
    """Return whether most inputs of a training pass are none of those of the rollout in the same step."""
    rollout = [each.rows for each in step.inputs if not each.graded and each.weight == entered.weight]
    return bool(rollout) and float(np.isin(entered.rows, np.concatenate(rollout)).mean()) < SEEN


def changed_at(chain: Chain, call: Stack, session: Session) -> Stack:
    """Return the frames that normalised the data of a network call anew, else that made the statistics for it."""
    steps = [each for each in chain if each[0] in _ARITHMETIC]
    if not steps:
        return ()
    stack = steps[0][1]
    path = _leaves(stack, call)
    if path and not any(path[0] in each and each[each.index(path[0]) :] != path for each in session.ring.stacks()):
        return path
    shared = next((frame for frame in stack if frame in call), None)
    for _, _, args in steps:
        for operand in args:
            if not hasattr(operand, "numel") or operand.requires_grad or operand.numel() > LARGEST_STATISTIC:
                continue
            origin = session.ring.origin(operand)
            if origin is not None and shared not in origin.stack:
                return origin.stack
    return stack


def _leaves(stack: Stack, call: Stack) -> Stack:
    """Return the frames from the outermost that is not on the path of a call on, none if no function is in both."""
    apart = [n for n, frame in enumerate(stack) if frame not in call]
    functions = {code for code, _ in call}
    return stack[apart[-1] :] if apart and stack[apart[-1]][0] in functions else ()
