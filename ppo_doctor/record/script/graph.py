"""Find the importance ratio, its clip and its advantages in the autograd graph of a loss."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ppo_doctor.record.script.places import Stack

#: A node of the autograd graph.
Node = Any
Tensor = Any

#: Most nodes of a loss that are looked at, and how far from the ratio its factor and its clip may be.
MOST_NODES, FARTHEST = 4000, 8
#: Most nodes of a whole graph, networks included.
MOST_WALKED = 200_000
#: The bounds of a clamp that may be the clip range of a ratio.
HIGHEST_CLIP = 100.0
#: Nodes of a network, where the search for ratios ends.
_NETWORK = (
    *("Addmm", "NativeLayerNorm", "Embedding", "Tanh", "Relu", "Bmm", "Mm", "Convolution", "Mkldnn", "NativeBatchNorm"),
    *("Gelu", "Silu", "Elu", "LeakyRelu", "ScaledDotProduct", "Softmax", "LogSoftmax", "Logsumexp", "FusedRms"),
)
#: Nodes that give what passes through them another shape or format.
_SHAPES = (
    *("Transpose", "Permute", "Alias", "Unsqueeze", "Squeeze", "View", "ReshapeAlias", "ToCopy", "Clone", "T"),
    *("UnsafeView",),
)
#: Nodes that keep what passes through them in sign and meaning.
_THROUGH = (
    *_SHAPES,
    *("Expand", "Mul", "Sum", "Div", "Clamp", "Where", "Gather", "MaskedFill", "Mean", "Index", "Select"),
    *("NanToNum", "Copy", "ClampMin", "ClampMax", "Neg", "Slice", "Unbind", "Split", "Stack", "Cat", "Add"),
)


def kind(node: Node) -> str:
    """Return the operation of a node: "Mul" for MulBackward0."""
    return str(node.name()).partition("Backward")[0]


def saved(node: Node, name: str) -> Any:  # noqa: ANN401 - a tensor or a number
    """Return what a node saved for its backward pass, None if nothing or freed."""
    try:
        return getattr(node, name)
    except (AttributeError, RuntimeError):
        return None


def squared(node: Node) -> Node:
    """Return the difference that a node squares, as a power or as a product with itself, None if it does neither."""
    inputs = [child for child, _ in node.next_functions]
    square = kind(node) == "Pow" or (kind(node) == "Mul" and len(inputs) == 2 and inputs[0] is inputs[1])
    return inputs[0] if square and inputs[0] is not None and kind(inputs[0]) == "Sub" else None


def stack_of(node: Node) -> Stack:
    """Return the frames that made a node, none if it was not traced."""
    stack = node.metadata.get("stack", ()) if node is not None else ()
    return stack if isinstance(stack, tuple) else ()


def is_tensor(value: object) -> bool:
    """Return whether a value is a tensor with at least one dimension."""
    return hasattr(value, "dim") and value.dim() > 0


@dataclass(frozen=True, slots=True, eq=False)
class NodeSeen:
    """What is kept of a node of a graph that was let go."""

    operation: str
    metadata: dict[str, Stack]
    next_functions: tuple[tuple[NodeSeen | None, int], ...] = ()

    def name(self) -> str:
        """Return the name of the operation."""
        return self.operation


def _kept(node: Node, depth: int = 1) -> NodeSeen | None:
    if node is None:
        return None
    below = tuple((_kept(child, depth - 1), n) for child, n in node.next_functions) if depth else ()
    return NodeSeen(node.name(), {"stack": stack_of(node)}, below)


@dataclass(slots=True, eq=False)
class RatioNodes:
    """The nodes of one ratio in a loss, and what they saved.

    `sense` is 1 if the ratio rises with the new log-probs, -1 if it is old over new. `flips` counts changes of sign
    between the ratio's product with the advantages and the smaller or larger that is taken of it.
    """

    ratio: Node
    values: Tensor
    difference: Node = None
    sense: int = 1
    both_graded: bool = False
    clamp: Node = None
    bounds: tuple[float, float] | None = None
    product: Node = None
    factor: Tensor = None
    selection: Node = None
    flips: int = 0
    mask: Tensor = None
    #: the sum of the surrogate and other parts of the loss, in another line
    joined: Node = None

    def release(self) -> None:
        """Let go of the graph and of its values, and keep what names operations and lines."""
        self.values = self.factor = self.mask = None
        for name in ("ratio", "difference", "clamp", "product", "selection", "joined"):
            setattr(self, name, _kept(getattr(self, name)))


@dataclass(slots=True, eq=False)
class LossGraph:
    """The part of a loss's graph above its networks."""

    parents: dict[Node, list[Node]]
    nodes: list[Node]
    compiled: bool

    def ratios(self) -> list[RatioNodes]:
        """Return the importance ratios of the loss, each once."""
        found: dict[Node, RatioNodes] = {}
        for node in self.nodes:
            if kind(node) == "Clamp" and self._bounds(node) is not None:
                ratio = node.next_functions[0][0]
                if ratio is not None and ratio not in found:
                    found[ratio] = self._described(ratio, saved(node, "_saved_self"))
        for node in self.nodes:
            if kind(node) == "Exp" and node not in found and _below(node.next_functions[0][0]) is not None:
                described = self._described(node, saved(node, "_saved_result"))
                covered = any(described.product is each.product for each in found.values())
                if described.product is not None and not covered and not _is_mask(described.factor):
                    found[node] = described
        return [each for each in found.values() if each.values is not None and each.product is not None]

    def divergences(self, ratios: list[RatioNodes]) -> list[Node]:
        """Return the differences of log-probs that exponentials other than the ratios are taken of, as in a KL."""
        known = [each.difference for each in ratios]
        below = [_below(node.next_functions[0][0]) for node in self.nodes if kind(node) == "Exp"]
        return [node for node in below if node is not None and node not in known]

    def squared_differences(self) -> list[tuple[Node, Node, Node]]:
        """Return (error, prediction, target) nodes of squared errors of which both sides have a gradient."""
        found = []
        for node in self.nodes:
            if kind(node) in ("MseLoss", "SmoothL1Loss", "HuberLoss"):
                sides = [side for side, _ in node.next_functions[:2]]
                found.append((node, *sides))
            elif (inner := squared(node)) is not None:
                found.append((inner, *[side for side, _ in inner.next_functions[:2]]))
        return [each for each in found if len(each) == 3 and None not in each]

    @staticmethod
    def _bounds(node: Node) -> tuple[float, float] | None:
        low, high = saved(node, "_saved_min"), saved(node, "_saved_max")
        if not isinstance(low, int | float) or not isinstance(high, int | float):
            return None
        around = min(low, high) <= 1 <= max(low, high) and min(low, high) >= 0 and max(low, high) < HIGHEST_CLIP
        return (float(low), float(high)) if around else None

    def _described(self, ratio: Node, values: Tensor) -> RatioNodes:
        found = RatioNodes(ratio, values)
        self._sides(found)
        self._climb(found)
        return found

    def _sides(self, found: RatioNodes) -> None:
        """Find the difference of log-probs, or the quotient of probabilities, that makes the ratio."""
        ratio = _reshaped(found.ratio)
        difference = (
            ratio if kind(ratio) == "Div" else _below(ratio.next_functions[0][0] if ratio.next_functions else None)
        )
        if difference is None:
            return
        found.difference = difference
        sides = [side for side, _ in difference.next_functions[:2]]
        if len(sides) == 2:
            found.both_graded = None not in sides
            found.sense = -1 if sides[0] is None else 1

    def _climb(self, found: RatioNodes) -> None:
        """Find the clamp of the ratio, its product with the advantages, and what is taken of the two products."""
        queue = collections.deque([(found.ratio, 0)])
        seen = {found.ratio}
        while queue:
            node, depth = queue.popleft()
            for parent in self.parents.get(node, ()):
                if kind(parent) == "Clamp" and self._bounds(parent) is not None and found.clamp is None:
                    found.clamp, found.bounds = parent, self._bounds(parent)
                factor = _factor(parent, node) if found.product is None else None
                if factor is not None and not (_is_mask(factor) and found.bounds is None and bool((factor > 0).any())):
                    found.product, found.factor = parent, factor
                    self._selected(found)
                elif kind(parent) in _THROUGH and depth < FARTHEST and parent not in seen:
                    seen.add(parent)
                    queue.append((parent, depth + 1))

    def _selected(self, found: RatioNodes) -> None:
        """Follow the product to the smaller or larger of two, and to a mask, counting changes of sign."""
        node, flips = found.product, 0
        for _ in range(FARTHEST * 2):
            above = self.parents.get(node, ())
            if not above:
                return
            node = above[0]
            if kind(node) in ("Minimum", "Maximum") and found.selection is None:
                found.selection, found.flips = node, flips
            elif kind(node) == "Neg" or _negative(node):
                flips += 1
            elif kind(node) == "Mul" and found.mask is None:
                mask = _any_factor(node)
                found.mask = mask if mask is not None and _is_mask(mask) and mask.numel() > 1 else None
            elif kind(node) in ("Add", "Sub") and stack_of(node)[:1] != stack_of(found.product)[:1]:
                found.joined = found.joined or node


def loss_graph(loss: Tensor) -> LossGraph | None:
    """Return the graph of a loss down to its networks, None if it has none."""
    root = getattr(loss, "grad_fn", None)
    if root is None:
        return None
    parents: dict[Node, list[Node]] = collections.defaultdict(list)
    queue, nodes, compiled = collections.deque([root]), [root], False
    seen = {root}
    while queue and len(nodes) < MOST_NODES:
        node = queue.popleft()
        operation = kind(node)
        compiled = compiled or operation == "CompiledFunction"
        if operation in _NETWORK:
            continue
        for child, _ in node.next_functions:
            if child is None:
                continue
            parents[child].append(node)
            if child not in seen:
                seen.add(child)
                nodes.append(child)
                queue.append(child)
    return LossGraph(parents, nodes, compiled)


def walked(root: Node, most: int = MOST_WALKED) -> Iterator[Node]:
    """Iterate over a node and those it depends on, networks included."""
    seen, waiting = {root}, [root]
    while waiting and len(seen) < most:
        node = waiting.pop()
        yield node
        for child, _ in node.next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                waiting.append(child)


def leaves(root: Node, most: int = MOST_WALKED) -> set[int]:
    """Return the identities of the parameters that a node depends on."""
    variables = (getattr(node, "variable", None) for node in walked(root, most))
    return {id(each) for each in variables if each is not None}


def cuts(root: Node) -> set[Stack]:
    """Return the lines that detached what a node depends on."""
    return {node.metadata["cut"] for node in walked(root) if "cut" in node.metadata}


#: Operations by which data enter a network, and the data that they save.
_ENTRIES = {"Addmm": "_saved_mat1", "Mm": "_saved_self", "Convolution": "_saved_input", "Embedding": "_saved_indices"}


def entries(root: Node, most: int = MOST_WALKED) -> set[tuple[int, int]]:
    """Return memory and number of values of the data without a gradient on which a node depends through networks."""
    found: set[tuple[int, int]] = set()
    for node in walked(root, most):
        name = _ENTRIES.get(kind(node))
        data = saved(node, name) if name is not None else None
        if data is not None and hasattr(data, "data_ptr") and not data.requires_grad:
            found.add((data.data_ptr(), data.numel()))
    return found


def _reshaped(node: Node) -> Node:
    """Return the node whose result others up to this one only gave another shape or format."""
    for _ in range(FARTHEST):
        if kind(node) not in _SHAPES or node.next_functions[0][0] is None:
            break
        node = node.next_functions[0][0]
    return node


def _below(node: Node) -> Node:
    """Return the difference that an exponential is taken of, None if there is none near."""
    for _ in range(FARTHEST):
        if node is None:
            return None
        if kind(node) == "Sub":
            return node
        if kind(node) not in _THROUGH:
            return None
        node = next((child for child, _ in node.next_functions if child is not None), None)
    return None


def _factor(parent: Node, node: Node) -> Tensor:
    """Return the factor without a gradient by which a product multiplies a node."""
    if kind(parent) != "Mul" or len(parent.next_functions) < 2:
        return None
    place = 0 if parent.next_functions[0][0] is node else 1
    if parent.next_functions[1 - place][0] is not None:
        return None
    factor = saved(parent, "_saved_other" if place == 0 else "_saved_self")
    return factor.detach() if is_tensor(factor) else None


def _any_factor(node: Node) -> Tensor:
    for name in ("_saved_other", "_saved_self"):
        factor = saved(node, name)
        if is_tensor(factor) and not factor.requires_grad:
            return factor.detach()
    return None


def _negative(node: Node) -> bool:
    """Return whether a node multiplies or divides by a negative number."""
    other = saved(node, "_saved_other") if kind(node) in ("Mul", "Div") else None
    if other is not None and hasattr(other, "dim") and other.dim() == 0 and not other.requires_grad:
        return bool(other < 0)
    return False


def _is_mask(factor: Tensor) -> bool:
    return bool(((factor == 0) | (factor == 1)).all())
