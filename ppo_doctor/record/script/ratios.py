"""Measure the ratios of a minibatch: their values, the pull of the loss, and where old log-probs come from."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ppo_doctor.record import measures
from ppo_doctor.record.script.graph import (
    LossGraph,
    RatioNodes,
    any_factor,
    cuts,
    kind,
    leaves,
    saved,
    squared,
    stack_of,
)
from ppo_doctor.record.script.operation_names import ADD, DIVIDE, JOIN, MULTIPLY, NEGATE, SUBTRACT
from ppo_doctor.record.script.operations import Operations
from ppo_doctor.record.script.places import Stack
from ppo_doctor.record.script.ring import Ring, numbers_of
from ppo_doctor.record.script.steps import RatioSeen, Step
from ppo_doctor.record.weights import same_memory

if TYPE_CHECKING:
    from ppo_doctor.record.script.session import Session

Tensor = Any

#: Largest |ratio - 1| of a ratio that is 1 up to rounding.
ONE = 1e-6
#: Smallest gain that is none by rounding, and fewest samples whose ratio is clipped that show how it is.
NEXT_TO_NONE, FEWEST_CLIPPED = 1e-4, 4
#: Smallest ratio whose logarithm is taken.
LEAST = 1e-30


def of_graph(graph: LossGraph, fallback: Stack) -> list[RatioSeen]:
    """Return the ratios of a loss, each with a hook that keeps the loss's gradient by it, or its surrogate's."""
    found = []
    for nodes in graph.ratios():
        seen = RatioSeen(nodes)
        seen.place = stack_of(nodes.selection) or stack_of(nodes.product) or stack_of(nodes.ratio) or fallback
        (nodes.product if nodes.mixed else nodes.ratio).register_hook(_keeper(seen))
        found.append(seen)
    return found


def _keeper(seen: RatioSeen) -> Any:  # noqa: ANN401
    def keep(_: object, gradients: tuple[Tensor, ...]) -> None:
        seen.gradient = gradients[0].detach() if gradients[0] is not None else None
        if seen.nodes.mixed and seen.gradient is not None and seen.nodes.factor is not None:
            seen.gradient = seen.gradient * seen.nodes.factor

    return keep


def complete(step: Step, session: Session, *, trace: bool) -> None:
    """Compute the measures of the ratios of the last backward pass."""
    with torch.no_grad():
        for seen in step.ratios:
            if seen.row is None:
                _measure(seen, session, trace=trace)


def _measure(seen: RatioSeen, session: Session, *, trace: bool) -> None:
    nodes = seen.nodes
    ratio = nodes.values.detach().float()
    new, old = _sides_apart(nodes, session.operations)
    if old is not None:
        seen.same_memory = same_memory(new, old)
        if trace:
            seen.origin = session.ring.origin(old)
        seen.detached = session.operations.detached_here(old)
    if trace and any(each.sequences is not None for each in session.step.inputs):
        seen.computed = session.ring.first(nodes.factor)
    chain = session.operations.chain(nodes.factor)
    seen.sign = -1 if sign_changes(chain) % 2 else 1
    seen.made_by = tuple((name, stack) for name, stack, _ in chain)
    seen.column = session.operations.column(chain, nodes.factor)
    advantages = nodes.factor.detach().float() * seen.sign
    if session.operations.odd.is_rounding(nodes.factor):
        advantages = torch.zeros_like(advantages)
    seen.advantages = _per_sample(advantages)
    widened = seen.broadcast = _broadcast(ratio, advantages)
    if 1 < advantages.dim() + 1 <= ratio.dim() and 1 < advantages.numel() < ratio.numel():
        seen.broadcast = ratio.numel() / advantages.numel()  # one per column of the ratio, not one per sample
    if new is not None:
        seen.broadcast = max(seen.broadcast, _broadcast(new, old))
    live = _live(seen, ratio)
    if widened > 1:
        advantages = (
            advantages.reshape(-1)[: ratio.numel()].reshape(ratio.shape)
            if advantages.numel() >= ratio.numel()
            else None
        )
    else:
        advantages = _aligned(advantages, ratio)
    low, high = sorted(nodes.bounds) if nodes.bounds else (0.0, float("inf"))
    bounds = (float(np.log(max(low, LEAST))), float(np.log(high))) if nodes.bounds else None
    logs = ratio.clamp_min(LEAST).log()
    seen.row = measures.row(logs, torch.zeros_like(logs), advantages, live.float(), bounds)
    alive = ratio[live] if bool(live.any()) else ratio
    seen.largest = float((alive - 1).abs().max()) if alive.numel() else None
    seen.pull = _pull(seen, advantages)
    seen.takes_larger = _takes_larger(seen, advantages)
    seen.old_log_probs = _per_sample(old) if old is not None else None
    nodes.values = nodes.factor = nodes.mask = seen.gradient = None  # the update may have many minibatches


def _sides(nodes: RatioNodes) -> tuple[Tensor, Tensor]:
    """Return new and old log-probs (or probabilities) as the script subtracted them, None if they were not traced."""
    operands = nodes.difference.metadata.get("operands") if nodes.difference is not None else None
    if operands is None:
        return None, None
    first, second, first_graded, _ = operands
    return (first, second) if first_graded else (second, first)


def _sides_apart(nodes: RatioNodes, operations: Operations) -> tuple[Tensor, Tensor]:
    """Return new and old log-probs; where these are the new ones without a gradient, look on for others.

    GSPO adds `new - new.detach()`, which is 0 and has a gradient, to the mean of `new - old` without one.
    """
    new, old = _sides(nodes)
    if old is not None and same_memory(new, old):
        known = (metadata["operands"] for metadata, _ in operations.operands if "operands" in metadata)
        pairs = ((first, second) for first, second, graded, _ in known if graded and same_memory(first, new))
        return next((pair for pair in pairs if not same_memory(*pair)), (new, old))
    return new, old


def sign_changes(chain: list[tuple[str, Stack, tuple[Any, ...]]]) -> int:
    """Return how many operations of a chain change the sign, back to the one that computed advantages from others."""
    own = itertools.takewhile(lambda made: not _combines(made[0], made[2]), chain)
    return sum(name in NEGATE or (name in MULTIPLY | DIVIDE and _by_negative(args)) for name, _, args in own)


def _combines(name: str, args: tuple[Any, ...]) -> bool:
    """Return whether an operation adds, subtracts or joins tensors of one size; a mean has another."""
    sizes = [each.numel() for each in args if isinstance(each, torch.Tensor)]
    return name in SUBTRACT | ADD | JOIN and len(sizes) > 1 and sizes[0] == sizes[1]


def _by_negative(args: tuple[Any, ...]) -> bool:
    return any(isinstance(each, int | float) and not isinstance(each, bool) and each < 0 for each in args)


def are_weights(graph: LossGraph, clamps: list[Stack], operations: Operations) -> bool:
    """Return whether a loss multiplies what has a gradient by a clamped ratio that has none, as in CISPO."""
    factors = (any_factor(node) for node in graph.nodes if kind(node) == "Mul") if clamps else ()
    return any(each is not None and not operations.lines_of(each).isdisjoint(clamps) for each in factors)


def _takes_larger(seen: RatioSeen, advantages: Tensor) -> bool | None:
    """Return whether the surrogate has no gradient where it loses, rather than where it gains; None if it has both.

    Where the ratio has gone the way of the advantage far enough, the smaller of two surrogates has none.
    """
    gradient, ratio = seen.gradient, seen.nodes.values.detach().float()
    if gradient is None or advantages is None or not gradient.shape == advantages.shape == ratio.shape:
        return None
    gain = advantages * (ratio - 1)
    clipped = (gradient == 0) & (gain.abs() > NEXT_TO_NONE)
    against = clipped & (gain < 0)
    if int(clipped.sum()) < FEWEST_CLIPPED or 0 < int(against.sum()) < int(clipped.sum()):
        return None
    if not bool(against.any()):
        return False
    least = (ratio[against] - 1).abs().min()
    along = (gain > 0) & ((ratio - 1).abs() > least)
    return True if int(along.sum()) >= FEWEST_CLIPPED and bool((gradient[along] != 0).all()) else None


def _live(seen: RatioSeen, ratio: Tensor) -> Tensor:
    """Return which entries of a ratio are in the loss: those of a mask, else those with a gradient in 2-D."""
    mask = seen.nodes.mask
    if mask is not None and mask.numel() > 1:
        aligned = _aligned(mask, ratio)
        if aligned is not None:
            return aligned > 0
    if ratio.dim() > 1 and seen.gradient is not None and seen.gradient.shape == ratio.shape:
        with_gradient = seen.gradient != 0
        if bool(with_gradient.any()):
            return with_gradient
    return torch.ones_like(ratio, dtype=torch.bool)


def _aligned(values: Tensor, like: Tensor) -> Tensor:
    """Return values in the shape of a ratio, None if they do not fit."""
    if values.numel() == like.numel():
        return values.reshape(like.shape)
    try:
        return values.expand_as(like)
    except RuntimeError:
        if values.dim() == 1 and like.dim() > 1 and values.shape[0] == like.shape[0]:
            return values.reshape(-1, *[1] * (like.dim() - 1)).expand_as(like)
        return None


def _broadcast(ratio: Tensor, advantages: Tensor) -> float:
    """Return the elements of the product per element of its larger factor."""
    try:
        shape = torch.broadcast_shapes(ratio.shape, advantages.shape)
    except RuntimeError:
        return 1.0
    return float(np.prod(shape)) / float(max(ratio.numel(), advantages.numel(), 1))


def _pull(seen: RatioSeen, advantages: Tensor) -> float | None:
    """Return the cosine of the loss's pull on the new log-probs with the advantages, over entries with a gradient."""
    gradient = seen.gradient
    if gradient is None or advantages is None or gradient.shape != advantages.shape:
        return None
    pull = -gradient.float() * seen.nodes.sense
    chosen = (pull != 0) & torch.isfinite(pull) & (advantages != 0)
    pull, advantages = pull[chosen], advantages[chosen]
    size = float(pull.norm() * advantages.norm()) if pull.numel() else 0.0
    return float((pull * advantages).sum()) / size if size > 0 and np.isfinite(size) else None


def _per_sample(values: Tensor) -> Any:  # noqa: ANN401
    flat = values.detach().float().reshape(-1)
    return flat.cpu().numpy().copy() if 1 < flat.numel() <= 1 << 15 else None


def note_reference(graph: LossGraph, found: list[RatioSeen], step: Step, ring: Ring) -> None:
    """Note how far the log-probs of a reference model, in a KL term, are from the old log-probs at most."""
    for node in graph.divergences([each.nodes for each in found]):
        operands = node.metadata.get("operands")
        for each in found:
            _, old = _sides(each.nodes)
            if operands is None or old is None or operands[2] == operands[3]:
                continue
            reference = operands[1] if operands[2] else operands[0]
            if reference.shape == old.shape and reference.numel():
                gap = float((reference.float() - old.float()).abs().max())
                step.reference_gap = max(gap, step.reference_gap or 0.0)
                step.reference_place = stack_of(node)
                if gap <= ONE and not step.reference_made:
                    origin = ring.origin(reference, latest=True)
                    step.reference_made = origin.stack if origin is not None else ()


def values_of(graph: LossGraph, found: list[RatioSeen], step: Step, ring: Ring | None) -> None:
    """Note value targets, those with a gradient, and squared errors whose sides were broadcast against each other."""
    policy = set().union(*(leaves(each.nodes.ratio) for each in found))
    for error, _, target in graph.squared_differences():
        if found and leaves(error) <= policy:  # of outputs of the policy, as a penalty on its changes
            continue
        step.value_target_graded = True
        step.value_target, step.value_error = stack_of(target) or stack_of(error), stack_of(error)
    for node in graph.nodes:
        sides = _error_sides(node)
        if sides is None:
            continue
        samples = {each.nodes.values.numel() for each in found}
        if {side.numel() for side in sides} == samples and samples and not sides[1].requires_grad:
            step.targets.append(numbers_of(sides[1]).view(np.int32).copy())
            origin = ring.origin(sides[1]) if ring is not None else None
            step.targets_made = origin.last if origin is not None else step.targets_made
            if sides[0].shape == sides[1].shape:
                step.value_errors = _per_sample(sides[1].detach().float() - sides[0].detach().float())
        shapes = [side.shape for side in sides]
        try:
            whole = float(np.prod(torch.broadcast_shapes(*shapes)))
        except RuntimeError:
            continue
        widened = whole / max(*(float(np.prod(shape)) for shape in shapes), 1.0)
        if widened > step.value_broadcast:
            step.value_broadcast, step.value_place = widened, stack_of(node)


def note_cut(graph: LossGraph, found: list[RatioSeen], step: Step, operations: Operations) -> None:
    """Note weights that the value loss trains and that the ratio would depend on, had nothing been detached."""
    for each in found:
        lines = cuts(each.nodes.ratio)
        if not lines or step.cut_at:
            continue
        reached, samples = leaves(each.nodes.ratio), each.nodes.values.numel()
        errors = ((node, _error_sides(node)) for node in graph.nodes)
        values = [node for node, sides in errors if sides and max(side.numel() for side in sides) == samples]
        valued = set().union(*map(leaves, values))
        for line in lines:
            lost = (operations.detached[line] & valued) - reached
            sizes = {key: operations.ran[key].numel() for key in reached | lost if key in operations.ran}
            if any(key in sizes for key in lost):
                step.cut, step.cut_at = sum(sizes.get(key, 0) for key in lost) / sum(sizes.values()), line


def _error_sides(node: Any) -> tuple[Tensor, Tensor] | None:  # noqa: ANN401
    """Return prediction and target of a squared error, None if a node is none or its sides are unknown."""
    if kind(node) in ("MseLoss", "SmoothL1Loss", "HuberLoss"):
        sides = saved(node, "_saved_self"), saved(node, "_saved_target")
        if None in sides:
            return None
        return sides if sides[0].requires_grad or not sides[1].requires_grad else sides[::-1]
    error = squared(node)
    operands = error.metadata.get("operands") if error is not None else None
    return None if operands is None else operands[:2] if operands[2] else operands[1::-1]


#: Operations with an infinite derivative at 0, and the saved value that is 0 there.
_STEEP = {"Sqrt": "_saved_result", "Log": "_saved_self", "LinalgVectorNorm": "_saved_result", "Std": "_saved_result"}
_STEEP |= {"Norm": "_saved_result", "Rsqrt": "_saved_result", "Reciprocal": "_saved_self"}


def steep(graph: LossGraph) -> Stack:
    """Return the line of an operation whose derivative is infinite at one of its values, none if there is none."""
    for node in graph.nodes:
        name = _STEEP.get(kind(node))
        value = saved(node, name) if name is not None else None
        if value is not None and hasattr(value, "numel") and bool((value.detach() == 0).any()):
            return stack_of(node)
    return ()
