"""Follow values through the torch operations of a script while an update is observed."""

from __future__ import annotations

import collections
import math
import sys
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch._C._functorch import peek_interpreter_stack

from ppo_doctor.record.script import normalised
from ppo_doctor.record.script.graph import MOST_NODES, clip_of, leaves
from ppo_doctor.record.script.indices import Made, rows_of, taken_from
from ppo_doctor.record.script.odd_values import OddValues, bytes_of, flat, readable, without_graph
from ppo_doctor.record.script.operation_mode import DATA
from ppo_doctor.record.script.operation_names import (
    CASTING,
    CLAMP,
    DETACH,
    DIVIDE,
    INDEXING,
    JOINING,
    KEEP_FINITE,
    MEANS,
    MODES,
    MULTIPLY,
    NETWORK,
    NORMALISED,
    NOT_KEPT,
    PARTING,
    SAMPLING,
    SCALE,
    SHAPING,
    SUBTRACT,
)
from ppo_doctor.record.script.places import DEEP, Stack, meets
from ppo_doctor.record.script.ring import LARGEST, numbers_of
from ppo_doctor.record.script.steps import Inputs

if TYPE_CHECKING:
    from ppo_doctor.record.script.session import Session

Tensor = Any

#: Largest input of a layer that is remembered while it is unknown by which layer data enter.
MOST_UNKNOWN = 1 << 16
#: Into how many parts the memory is divided: the latest values, the steps to a minibatch, the sides of differences.
SHARES = 4
#: Digits after the point by which divisors are compared.
DIGITS = 9
#: Lines of a step that normalise logits that are kept.
MOST_SCORED = 64
#: Logits from which on a class is excluded.
EXCLUDED = -1e4
#: Entries after which dead references are dropped.
MOST_KNOWN = 20_000
SHORT = (torch.bfloat16, torch.float16)


class Operations:
    """Follows values through the operations of a script: what comes from a network, what enters one, what is new."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._network: dict[int, weakref.ref[Any]] = {}
        #: results without a gradient in the present training pass, with their inputs and lines
        self._made: dict[tuple[int, int], tuple[Tensor, str, Stack, tuple[Any, ...]]] = {}
        #: metadata of the nodes that know their operands, and the bytes of these
        self.operands: collections.deque[tuple[dict[str, Any], int]] = collections.deque()
        self._made_bytes = self._operands_bytes = 0
        self._budget = session.options.memory // SHARES
        #: memory of columns → the line that made them columns
        self._columns: dict[int, Stack] = {}
        #: frozen parameter → the line that froze it
        self.frozen_by: dict[int, Stack] = {}
        #: the latest line that unfroze a parameter
        self.thawed_at: Stack = ()
        #: a trained layer that gets its data from layers that run without gradients
        self.fed_at: Stack = ()
        #: line that detaches a tensor → the parameters that this cuts off
        self.detached: dict[Stack, set[int]] = {}
        #: results of this training pass that depend on something detached, with the line that detached it
        self._cut: dict[int, tuple[weakref.ref[Any], Stack]] = {}
        self.cast_at: Stack = ()
        #: parameters that ran with gradients on: identity → parameter
        self.ran: dict[int, Tensor] = {}
        #: parameters that ran at all
        self.ran_ever: dict[int, Tensor] = {}
        #: frozen parameters between the data and a trained layer
        self.frozen: dict[int, Tensor] = {}
        #: parameters that data enter by, known from the first training pass on
        self.entries: set[int] = set()
        self.odd = OddValues()
        #: the latest logits that were divided by a number
        self._scaled: weakref.ref[Any] | None = None
        #: the latest features that data were joined to, and these data
        self._joined: tuple[weakref.ref[Any], Tensor] | None = None

    def new_step(self) -> None:
        """Forget what concerns one training pass only."""
        self._made.clear()
        self._cut.clear()
        self.odd.new_step()
        for metadata, _ in self.operands:
            metadata.pop("operands", None)
        self.operands.clear()
        self._made_bytes = self._operands_bytes = 0
        if len(self._network) > MOST_KNOWN:
            self._network = {key: ref for key, ref in self._network.items() if ref() is not None}

    def see(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:  # noqa: ANN401
        """Note one operation."""
        name = "detach" if func == DATA else getattr(func, "__name__", "")
        if peek_interpreter_stack() is not None:
            return
        if name == "__set__":
            self._property(func, args)
            return
        tensor = result if isinstance(result, torch.Tensor) else _first(result)
        if tensor is None:
            return
        graded = torch.is_grad_enabled()
        fed = self._is_fed(args)
        if name in NETWORK:
            self._enters(name, args, kwargs, graded)
        elif name in SAMPLING and (fed or not graded):
            self._sampled()
        elif fed and name in SCALE:
            self._divided(name, args, tensor, graded)
        elif name in MODES:
            self._mode_of(name, args, kwargs, graded)
        elif name in NORMALISED and args and isinstance(args[0], torch.Tensor) and args[0].dim():
            self._normalised(args[0], graded)
        if args and isinstance(args[0], torch.nn.Parameter):
            self._parameter(name, args, kwargs, tensor)
        if args and _is_column(tensor) and not tensor.requires_grad:
            self._shaped(name, args, tensor)
        if fed:
            self._remember(name, args, kwargs, result)
        if tensor.is_floating_point() and readable(tensor) and tensor.numel():
            self._value(name, args, kwargs, result, graded)

    def _sampled(self) -> None:
        step = self._session.step
        step.sampled_at = step.sampled_at or self._stack()
        step.sampled = True

    def _shaped(self, name: str, args: tuple[Any, ...], tensor: Tensor) -> None:
        """Remember the line that gave data the shape of a column, and forget what was at its memory before."""
        if not _is_column(args[0]):
            if len(self._columns) > MOST_KNOWN:
                self._columns.clear()
            self._columns[tensor.data_ptr()] = self._stack() if name in SHAPING else ()
        elif tensor.data_ptr() != args[0].data_ptr():
            self._columns.pop(tensor.data_ptr(), None)

    def _parameter(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> None:
        """Note what happens to a parameter: frozen, or cast to a short format."""
        if name == "requires_grad_":
            self._frozen(args[0], kwargs.get("requires_grad", args[1] if len(args) > 1 else True))
        elif name in CASTING and result.dtype in SHORT:
            self._cast()

    def _frozen(self, parameter: Tensor, trained: object) -> None:
        """Note the line that froze or unfroze a parameter."""
        if trained is False and id(parameter) not in self.frozen_by:
            self.frozen_by[id(parameter)] = self._session.places.stack(sys._getframe(3))
        elif trained is True and id(parameter) in self.frozen_by:
            del self.frozen_by[id(parameter)]
            self.thawed_at = self._session.places.stack(sys._getframe(3))

    def from_network(self, tensor: Tensor) -> bool:
        """Return whether a tensor was computed from parameters, not from stored data."""
        if tensor.requires_grad:
            return True
        known = self._network.get(id(tensor))
        return known is not None and known() is tensor

    def chain(self, tensor: Tensor) -> list[tuple[str, Stack, tuple[Any, ...]]]:
        """Return the operations of this training pass that made a tensor from stored data, the last first."""
        return [(made.name, made.stack, made.args) for made in self.history(tensor)]

    def history(self, tensor: Tensor) -> list[Made]:
        """Return what is known of the operations that made a tensor from stored data, the last first."""
        found: list[Made] = []
        for _ in range(32):
            made = self._made.get((tensor.data_ptr(), tensor.numel()))
            if made is None or (found and made[0] is found[-1].result):  # a view of what it was made from
                break
            result, name, stack, args = made
            tensors = [each for each in args if isinstance(each, torch.Tensor) and each.is_floating_point()]
            if not tensors:
                found.append(Made(result, name, stack, args))
                break
            tensor = tensors[0] if name in NETWORK else max(tensors, key=lambda each: each.numel())
            found.append(Made(result, name, stack, args, tensor))
        return found

    def lines_of(self, tensor: Tensor) -> set[Stack]:
        """Return the lines of this training pass that made a tensor, or anything that it was made from."""
        waiting, found = [tensor], dict[int, Stack]()
        while waiting:
            made = self._made.get(((each := waiting.pop()).data_ptr(), each.numel()))
            if made is not None and id(made) not in found:
                found[id(made)] = made[2]
                waiting += [each for each in made[3] if isinstance(each, torch.Tensor)]
        return set(found.values())

    def detached_here(self, tensor: Tensor) -> Stack:
        """Return the line of this training pass that detached a tensor, none if it was made in another way."""
        made = self._made.get((tensor.data_ptr(), tensor.numel()))
        return made[2] if made is not None and made[1] in DETACH and made[3][0].requires_grad else ()

    def column(self, chain: list[tuple[str, Stack, tuple[Any, ...]]], factor: Tensor) -> Stack:
        """Return the line that gave a factor, or what it was made from, the shape of a column."""
        tensors = [factor, *(each for _, _, args in chain for each in args if isinstance(each, torch.Tensor))]
        known = (self._columns.get(each.data_ptr()) for each in reversed(tensors) if _is_column(each))
        return next((stack for stack in known if stack), ())

    def _stack(self) -> Stack:
        return self._session.places.stack(sys._getframe(2))

    def _is_fed(self, args: tuple[Any, ...]) -> bool:
        for each in args:
            if isinstance(each, torch.Tensor):
                if self.from_network(each):
                    return True
            elif isinstance(each, list | tuple):
                for inner in each:
                    if isinstance(inner, torch.Tensor) and self.from_network(inner):
                        return True
        return False

    def _is_log_prob(self, value: object) -> bool:
        """Return whether a value may be log-probs: it comes from a network and has one number per sample or token."""
        return isinstance(value, torch.Tensor) and value.numel() > 1 and self.from_network(value)

    def _remember(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:  # noqa: ANN401
        """Remember that results come from a network, and the data that are beside its features in them."""
        if name in JOINING:
            self._joins(args, kwargs, result)
        for each in result if isinstance(result, list | tuple) else (result,):
            if isinstance(each, torch.Tensor) and not each.requires_grad and each.is_floating_point():
                self._network[id(each)] = weakref.ref(each)

    def _enters(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], graded: bool) -> None:
        """Note the parameters of a network operation, and the data if they come from outside."""
        weights = [each for each in flat((*args[1:], *kwargs.values())) if isinstance(each, torch.Tensor)]
        parameters = [
            each for each in weights if isinstance(each, torch.nn.Parameter) or (each.requires_grad and each.is_leaf)
        ]
        self.ran_ever.update((id(each), each) for each in parameters)
        if graded:
            self.ran.update((id(each), each) for each in parameters)
        data = args[0] if args else kwargs.get("input")
        if not parameters or not isinstance(data, torch.Tensor) or data.dim() == 0 or not readable(data):
            return
        weight, tokens = id(parameters[0]), not data.is_floating_point()
        graded = graded and parameters[0].requires_grad  # of frozen layers, a pass is one without gradients
        memory, joined = (data.data_ptr(), data.numel()), self._joined
        if joined is not None and joined[0]() is data:
            data = joined[1]
        if data.requires_grad and torch.is_grad_enabled():
            return
        if graded:
            if self._from_network_without_gradient(data):
                return
            if self.from_network(data):
                self.fed_at = self.fed_at or self._session.places.stack(sys._getframe(3))
            self.entries.add(weight)
        elif weight not in self.entries and self.from_network(data) and (self.entries or data.numel() > MOST_UNKNOWN):
            return
        stack = self._session.places.stack(sys._getframe(3))
        rows = rows_of(data, name)
        history = self.history(data) if graded else []
        chosen, batch, taken = taken_from(history, data, len(rows))
        taken = taken or (indexed([(each.name, each.stack) for each in history]) or stack if graded else ())
        width = int(data.shape[-1]) if data.dim() > 1 or not tokens else 1
        inputs = Inputs(weight, rows, graded, stack, tokens, width, memory, taken, chosen, batch)
        if graded and tokens and data.dim() > 1 and data.numel() <= LARGEST:
            inputs.sequences = data.reshape(len(rows), -1).cpu().numpy().copy()
        step = self._session.step
        if graded and not tokens and not step.normalised_at and normalised.differs(step, inputs):
            step.normalised_at = normalised.changed_at(
                data, [(each.name, each.stack, each.args) for each in history], stack, self._session
            )
        step.inputs.append(inputs)

    def _joins(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> None:
        """Remember the data that enter a network beside features of it."""
        parts = args[0] if args else kwargs.get("tensors", ())
        data = [each for each in parts if readable(each) and each.is_floating_point() and not self.from_network(each)]
        if data and data[0].dim() and data[0].shape[-1] < result.shape[-1]:
            self._joined = weakref.ref(result), max(data, key=lambda each: each.numel())

    def _from_network_without_gradient(self, data: Tensor) -> bool:
        """Return whether data of a trained layer come from layers that are frozen or detached in this pass."""
        for name, _, args in self.chain(data):
            if name in NETWORK:
                frozen = [each for each in args if isinstance(each, torch.nn.Parameter) and not each.requires_grad]
                self.frozen.update((id(each), each) for each in frozen)
                return bool(frozen)
            if name in DETACH and isinstance(args[0], torch.Tensor) and args[0].requires_grad:
                return True
        return False

    def _mode_of(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], graded: bool) -> None:
        """Note whether dropout or batch normalisation is in training mode."""
        step = self._session.step
        if name == "batch_norm":
            step.batch_norm[graded].add(bool(kwargs.get("training", args[5] if len(args) > 5 else False)))
            return
        rate = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        if kwargs.get("training", args[2] if len(args) > 2 else True) and rate:
            step.dropout[graded] += 1
            step.dropout_rates.add(rate)
            if graded and not step.dropout_place:
                step.dropout_place = self._session.places.stack(sys._getframe(2), DEEP)

    def _normalised(self, logits: Tensor, graded: bool) -> None:
        """Note where a training pass normalises logits, and where another one does with divided ones."""
        step, size = self._session.step, logits.shape[-1]
        masked = step.masked[graded]
        if not masked.get(size) and logits.is_cpu and 0 < logits.numel() <= MOST_UNKNOWN:
            masked[size] = self._stack() if float(logits.detach().amin()) <= EXCLUDED else ()
        if graded:
            step.logits = logits.shape[-1]
            if len(step.scored) < MOST_SCORED:
                step.scored.append((step.logits, self._stack()))
        elif self._scaled is not None and len(step.scaled) < MOST_SCORED:
            scaled = self._scaled()
            if scaled is not None and (scaled is logits._base or scaled.data_ptr() == logits.data_ptr()):
                step.scaled.update(self._stack())

    def _divided(self, name: str, args: tuple[Any, ...], result: Tensor, graded: bool) -> None:
        """Note a division of logits by a number, or a product with its inverse, as a temperature does."""
        if len(args) < 2 or not isinstance(args[0], torch.Tensor) or args[0].dim() == 0:
            return
        divisor = args[1]
        if isinstance(divisor, torch.Tensor) and divisor.dim() == 0 and not divisor.requires_grad:
            divisor = float(divisor)
        if isinstance(divisor, int | float) and not isinstance(divisor, bool) and divisor not in (0, 1):
            divisor = round(1 / divisor if name in MULTIPLY else float(divisor), DIGITS)
            self._session.step.divisors[graded].setdefault((args[0].shape[-1], divisor), self._stack())
            self._scaled = weakref.ref(result)

    def frozen_share(self) -> float | None:
        """Return the share of the weights in the policy's forward passes that require no gradient."""
        total = sum(each.numel() for each in self.ran.values() if each.requires_grad)
        still = sum(each.numel() for each in self.frozen.values())
        return still / (total + still) if total and "peft" not in sys.modules else None

    def cut_off(self, ungraded: set[int]) -> Stack:
        """Return the line that froze or detached some parameters, none if there was none."""
        frozen = next((self.frozen_by[key] for key in ungraded if key in self.frozen_by), ())
        return frozen or next((stack for stack, cut in self.detached.items() if cut & ungraded), ())

    def _property(self, func: Any, args: tuple[Any, ...]) -> None:  # noqa: ANN401
        if func == torch.Tensor.requires_grad.__set__ and len(args) > 1:  # type: ignore[attr-defined, unused-ignore]
            self._frozen(args[0], args[1])
        elif func == torch.Tensor.data.__set__ and isinstance(args[0], torch.nn.Parameter) and args[1].dtype in SHORT:  # type: ignore[attr-defined, unused-ignore]
            self._cast()

    def _cast(self) -> None:
        """Note the line that gave a parameter a short format, preferably one of the user."""
        if self._session.places.own(self.cast_at) is None:
            self.cast_at = self._session.places.stack(sys._getframe(3))

    def _value(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, graded: bool) -> None:  # noqa: ANN401
        """Note a floating-point result: where it was computed, and whether it is the first that is not a number."""
        tensor = result if isinstance(result, torch.Tensor) else result[0]
        kept = name not in NOT_KEPT and tensor.numel() <= LARGEST
        stack = self._session.places.stack(sys._getframe(2)) if graded or kept else ()
        node = tensor.grad_fn if graded and tensor.requires_grad else None
        if node is not None:
            node.metadata.setdefault("stack", stack)
            if self._cut and (cut := self._cut_from(args)):
                node.metadata["cut"] = cut
            if name in SUBTRACT or name in DIVIDE:
                self._operands(name, args, node)
            elif name in CLAMP:
                self._clamped(args, kwargs, node, stack)
        elif graded and not tensor.requires_grad:
            self._without_gradient(name, args, kwargs, tensor, stack)
            for part in result[1:] if name in PARTING else ():
                self._keep(name, args, part, stack)
        if kept and tensor.is_cpu and not tensor.requires_grad and (name in MEANS or name in SUBTRACT):
            self.odd.see_mean(name, args, tensor, stack, self._session.step)
            if len(args) > 1 and all(map(self._is_log_prob, args[:2])):
                self._session.step.compared(stack, equal=not tensor.any())
        self.odd.see_rounding(name, args, tensor)
        numbers = None
        if kept:
            numbers = numbers_of(tensor)
            self._session.ring.add(numbers, stack, self._session.steps, tensor.requires_grad)
        if not self.odd.not_finite and name not in KEEP_FINITE and tensor.is_cpu:
            # Cheap, and not finite if a value is not.
            total = float(tensor.detach().sum() if numbers is None else np.dot(numbers, numbers))
            if not math.isfinite(total):
                stack = stack or self._session.places.stack(sys._getframe(2))
                self.odd.see_not_finite(name, args, tensor, total, stack, self._session.steps)
        elif self.odd.any_infinite:
            self.odd.see_passed_on(args, tensor)

    def _operands(self, name: str, args: tuple[Any, ...], node: Any) -> None:  # noqa: ANN401
        if len(args) < 2 or not all(isinstance(each, torch.Tensor) for each in args[:2]):
            return
        first, second = args[:2]
        if name in ("__rsub__", "rsub", "__rtruediv__"):
            first, second = second, first
        if first.is_floating_point() and second.is_floating_point() and second.dim() and first.dim():
            node.metadata["operands"] = (first.detach(), second.detach(), first.requires_grad, second.requires_grad)
            size = bytes_of(first) + bytes_of(second)
            self.operands.append((node.metadata, size))
            self._operands_bytes += size
            while self._operands_bytes > self._budget and self.operands:
                metadata, size = self.operands.popleft()
                metadata.pop("operands", None)
                self._operands_bytes -= size

    def _cut_from(self, args: tuple[Any, ...]) -> Stack:
        """Return the line that detached what one of some values depends on, none if there is none."""
        known = (self._cut.get(id(each)) for each in flat(args) if isinstance(each, torch.Tensor))
        return next((cut[1] for cut in known if cut is not None and cut[0]() is not None), ())

    def _clamped(self, args: tuple[Any, ...], kwargs: dict[str, Any], node: Any, stack: Stack) -> None:  # noqa: ANN401
        if _clips_a_ratio(args, kwargs):
            self._session.step.clamps.append((node, stack))

    def _without_gradient(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], tensor: Tensor, stack: Stack
    ) -> None:
        if name in CLAMP and tensor.dim() and _clips_a_ratio(args, kwargs):
            step = self._session.step
            step.dead_clamps.append(stack)
            step.dead_made = step.dead_made or self._made_before(args[0], stack)
        if name in DETACH and isinstance(args[0], torch.Tensor) and args[0].grad_fn is not None:
            if stack not in self.detached:
                self.detached[stack] = leaves(args[0].grad_fn, MOST_NODES)
            self._cut[id(tensor)] = weakref.ref(tensor), stack
        self._keep(name, args, tensor, stack)

    def _made_before(self, ratio: Tensor, stack: Stack) -> Stack:
        """Return the frames that last computed a side of a ratio, the one nearer to the line that uses it."""
        sides = next((each.args[:2] for each in self.history(ratio) if each.name in SUBTRACT | DIVIDE), ())
        found = (self._session.ring.origin(each, latest=True) for each in sides if isinstance(each, torch.Tensor))
        stacks = [each.stack for each in found if each is not None]
        return max(stacks, key=lambda each: len(each) - meets(each, stack), default=())

    def _keep(self, name: str, args: tuple[Any, ...], tensor: Tensor, stack: Stack) -> None:
        """Remember what made a tensor, so that it can be followed back to stored data."""
        if self._cut and (cut := self._cut_from(args)):
            self._cut.setdefault(id(tensor), (weakref.ref(tensor), cut))
        key = tensor.data_ptr(), tensor.numel()
        if tensor.numel() <= LARGEST and key not in self._made:
            inputs = tuple(map(without_graph, flat(args)))
            self._made[key] = (tensor, name, stack, inputs)
            self._made_bytes += sum(map(bytes_of, (tensor, *inputs)))
            while self._made_bytes > self._budget:  # the oldest go
                oldest, _, _, others = self._made.pop(next(iter(self._made)))
                self._made_bytes -= sum(map(bytes_of, (oldest, *others)))


def indexed(chain: Sequence[tuple[str, Stack]]) -> Stack:
    """Return the line of the last operation of a chain that chose samples, none if there is none."""
    return next((stack for name, stack in chain if name in INDEXING), ())


def _clips_a_ratio(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    bounds = [*args[1:3], *(kwargs[name] for name in ("min", "max") if name in kwargs)]
    numbers = clip_of(*bounds) if len(bounds) == 2 else None
    return numbers is not None and min(numbers) > 0 and max(numbers) < 10


def _is_column(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 2 and value.shape[1] == 1


def _first(result: Any) -> Tensor:  # noqa: ANN401
    if isinstance(result, list | tuple) and result and isinstance(result[0], torch.Tensor):
        return result[0]
    return None
