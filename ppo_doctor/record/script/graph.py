"""Find the importance ratio, its clip and its advantages in the autograd graph of a loss."""

from __future__ import annotations

import collections
import itertools
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
#: Nodes whose results are probabilities.
_PROBABILITIES = ("Exp", "Softmax", "Sigmoid")
#: Nodes that keep what passes through them in sign and meaning.
_THROUGH = (
    *("Transpose", "Permute", "Alias", "Unsqueeze", "Squeeze", "View", "ReshapeAlias", "ToCopy", "Clone", "T"),
    *("UnsafeView", "Expand", "Mul", "Sum", "Div", "Clamp", "Where", "Gather", "MaskedFill", "Mean", "Index", "Select"),
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
    #: whether the ratio is multiplied by something else too
    mixed: bool = False
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
        for node in self.nodes:  # quotients come before the exponentials in them
            values = _ratio_values(node) if node not in found else None
            if values is not None:
                described = self._described(node, values)
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
        return clip_of(saved(node, "_saved_min"), saved(node, "_saved_max"))

    def _described(self, ratio: Node, values: Tensor) -> RatioNodes:
        found = RatioNodes(ratio, values)
        self._sides(found)
        self._climb(found)
        return found

    def _sides(self, found: RatioNodes) -> None:
        """Find the difference of log-probs, or the quotient of probabilities, that makes the ratio."""
        turned = False
        for node in _descent(found.ratio):
            turned ^= kind(node) == "Neg" or _negative(node)
            if kind(node) == "Sub" or _is_quotient(node):
                found.difference = node
                sides = [side for side, _ in node.next_functions[:2]]
                found.both_graded = len(sides) == 2 and None not in sides
                found.sense = -1 if (sides[0] is None) != turned else 1
                return

    def _climb(self, found: RatioNodes) -> None:
        """Find the clamp of the ratio, its product with the advantages, and what is taken of the two products."""
        queue = collections.deque([(found.ratio, 0)])
        seen, products = {found.ratio}, list[tuple[Node, Tensor]]()
        while queue:
            node, depth = queue.popleft()
            for parent in self.parents.get(node, ()):
                if kind(parent) == "Clamp" and self._bounds(parent) is not None and found.clamp is None:
                    found.clamp, found.bounds = parent, self._bounds(parent)
                factor = _factor(parent, node)
                if factor is not None and not (_is_mask(factor) and found.bounds is None):
                    products.append((parent, factor))
                elif kind(parent) in _THROUGH and depth < FARTHEST and parent not in seen:
                    seen.add(parent)
                    queue.append((parent, depth + 1))
        if products:
            # The factor of most products is the advantages; a cost, say, is not multiplied by the clipped ratio too.
            alike = max(([each for each in products if _equal(each[1], one)] for _, one in products), key=len)
            found.product, found.factor = alike[0]
            found.mixed = len(alike) < len(products)
            self._selected(found)

    def _selected(self, found: RatioNodes) -> None:
        """Follow the product to the smaller or larger of two, and to a mask, counting changes of sign."""
        node, flips = found.product, 0
        for _ in range(FARTHEST * 2):
            above = self.parents.get(node, ())
            if not above:
                return
            node = above[0]
            stacked = kind(node) in ("Min", "Max", "Amin", "Amax") and kind(node.next_functions[0][0]) == "Stack"
            if (stacked or kind(node) in ("Minimum", "Maximum")) and found.selection is None:
                found.selection, found.flips = node, flips
            elif kind(node) == "Neg" or _negative(node):
                flips += 1
            elif kind(node) == "Mul" and found.mask is None:
                mask = any_factor(node)
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
    """Return memory and number of values of the data on which a node depends through networks, alone or joined."""
    found: set[tuple[int, int]] = set()
    for node in walked(root, most):
        name = _ENTRIES.get(kind(node))
        data = saved(node, name) if name is not None else None
        if data is None or not hasattr(data, "data_ptr"):
            continue
        if not data.requires_grad or any(
            child is not None and kind(child) == "Cat" for child, _ in node.next_functions
        ):
            found.add((data.data_ptr(), data.numel()))
    return found


def clip_of(low: Any, high: Any) -> tuple[float, float] | None:  # noqa: ANN401
    """Return the bounds of a clamp if they may be the clip range of a ratio; they may be tensors of one number."""
    if not all(isinstance(each, int | float) or getattr(each, "numel", int)() == 1 for each in (low, high)):
        return None
    low, high = (round(float(each), 6 if hasattr(each, "numel") else 12) for each in (low, high))
    return (low, high) if 0 <= min(low, high) <= 1 <= max(low, high) < HIGHEST_CLIP else None


def _descent(node: Node) -> Iterator[Node]:
    """Yield a node and those that it was computed from, up to the first that changes more than sign and scale.

    One exponential is passed, and products of several ratios.
    """
    exponentials = 0
    for _ in range(2 * FARTHEST):
        if node is None:
            return
        yield node
        exponentials += kind(node) == "Exp"
        if exponentials > 1 or kind(node) not in (*_THROUGH, "Exp", "Prod"):
            return
        node = next((child for child, _ in node.next_functions if child is not None), None)


def _below(node: Node) -> Node:
    """Return the difference that an exponential is taken of, None if there is none near."""
    below = itertools.takewhile(lambda each: kind(each) not in ("Exp", "Prod"), _descent(node))
    return next((each for each in below if kind(each) == "Sub"), None)


def _is_quotient(node: Node) -> bool:
    """Return whether a node divides a probability by another, of which at least one has a gradient."""
    if kind(node) != "Div" or len(node.next_functions) < 2 or not is_tensor(saved(node, "_saved_other")):
        return False
    sides = (side for side, _ in node.next_functions[:2])
    return any(kind(each) in _PROBABILITIES for side in sides for each in _descent(side))


def _ratio_values(node: Node) -> Tensor:
    """Return the values of a ratio, None if a node is no exponential of a difference and no quotient."""
    if kind(node) == "Exp":
        return saved(node, "_saved_result") if _below(node.next_functions[0][0]) is not None else None
    if not _is_quotient(node):
        return None
    first, second, *graded = node.metadata.get("operands", (None, None))
    if first is None or (all(graded) and first.shape != second.shape):  # not traced, or normalised to a sum of 1
        return None
    return first / second


def _factor(parent: Node, node: Node) -> Tensor:
    """Return the factor without a gradient by which a product multiplies a node."""
    if kind(parent) != "Mul" or len(parent.next_functions) < 2:
        return None
    place = 0 if parent.next_functions[0][0] is node else 1
    if parent.next_functions[1 - place][0] is not None:
        return None
    factor = saved(parent, "_saved_other" if place == 0 else "_saved_self")
    return factor.detach() if is_tensor(factor) else None


def _equal(first: Tensor, second: Tensor) -> bool:
    """Return whether two factors are the same numbers but for signs."""
    return first is second or (first.shape == second.shape and bool((first.abs() == second.abs()).all()))


def any_factor(node: Node) -> Tensor:
    """Return a factor without a gradient of a product, None if there is none."""
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
    """Return whether a factor is 0 or 1 everywhere, and not 0 everywhere as advantages may be."""
    return bool(((factor == 0) | (factor == 1)).all()) and bool(factor.any())
