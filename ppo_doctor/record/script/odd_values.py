"""Note odd values among the results of operations: not finite, or nothing after their mean was subtracted."""

from __future__ import annotations

import collections
import math
import re
import traceback
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ppo_doctor.record.script.operation_names import DIVIDE, INDEXING, MULTIPLY, NEGATE, SUBTRACT, VIEWS
from ppo_doctor.record.script.places import Stack

if TYPE_CHECKING:
    from ppo_doctor.record.script.steps import Step

Tensor = Any

#: Means that are kept.
MOST_MEANS = 16
#: Units of the last place by which values may differ from their mean if it was only rounded.
ROUNDED = 8
#: Operations that leave rounding errors what they are.
_KEEPING = VIEWS | INDEXING | DIVIDE | MULTIPLY | NEGATE

#: What torch says of a distribution whose parameters are no numbers.
_NO_DISTRIBUTION = re.compile(r"(?is)invalid values.*\bnan\b|probability tensor contains")


class OddValues:
    """Where values first were no numbers or infinite, and where all values were equal to their mean."""

    def __init__(self) -> None:
        #: where the first value that is not a number came from, and the infinite ones of which it is made
        self.not_finite: Stack = ()
        self.infinite: Stack = ()
        #: the first operation on values that are no numbers and were not seen before, from outside torch or a gradient
        self.arrived: Stack = ()
        #: the count of optimizer steps at which either was seen, -1 if neither was
        self.step = -1
        #: whether it is the standard deviation of a single value
        self.of_one = False
        #: memory of infinite values of this step → where they came from
        self._infinite: dict[int, Stack] = {}
        self._means: collections.deque[Tensor] = collections.deque(maxlen=MOST_MEANS)
        #: what was left of values that equal their mean up to rounding, and what was made of it
        self._rounding: dict[int, weakref.ref[Any]] = {}

    def new_step(self) -> None:
        """Forget the values of one training pass."""
        self._infinite.clear()
        self._means.clear()

    def see_mean(self, name: str, args: tuple[Any, ...], result: Tensor, stack: Stack, step: Step) -> None:
        """Note a mean, or a difference of values and their mean that is 0 for all of them, or lost in rounding."""
        if name not in SUBTRACT:
            if name != "repeat_interleave" or self._is_mean(args[0]):
                self._means.append(result)
            return
        pair = args[:2]
        if len(pair) < 2 or not isinstance(pair[0], torch.Tensor) or not self._is_mean(pair[1]) or result.numel() < 2:
            return
        least = ROUNDED * torch.finfo(result.dtype).eps * pair[0].abs()
        if bool((result.abs() <= least).all()):
            self._rounding[id(result)] = weakref.ref(result)
            if not step.zeroed:
                step.zeroed, step.zeroed_alone = stack, pair[0].numel() == pair[1].numel()

    def _is_mean(self, value: Any) -> bool:  # noqa: ANN401
        """Return whether a value is one of the latest means."""
        pointer = value.data_ptr() if isinstance(value, torch.Tensor) and readable(value) else 0
        return any(each.data_ptr() == pointer for each in self._means)

    def see_rounding(self, name: str, args: tuple[Any, ...], result: Tensor) -> None:
        """Note what is made of values that only rounding errors are left of."""
        if not self._rounding or result.requires_grad:
            return
        self._rounding = {key: ref for key, ref in self._rounding.items() if ref() is not None}
        if name in _KEEPING and any(id(each) in self._rounding for each in flat(args)):
            self._rounding[id(result)] = weakref.ref(result)

    def is_rounding(self, value: Tensor) -> bool:
        """Return whether only rounding errors are left of a value."""
        kept = (ref() for ref in self._rounding.values())
        return any(
            each is not None and each.data_ptr() == value.data_ptr() and each.numel() == value.numel() for each in kept
        )

    def see_not_finite(
        self, name: str, args: tuple[Any, ...], result: Tensor, total: float, stack: Stack, step: int
    ) -> None:
        """Note a result whose sum is not finite, which may also be so where infinities meet."""
        inputs = [each for each in flat(args) if isinstance(each, torch.Tensor) and readable(each)]
        source = self._source(inputs)
        if not math.isnan(total) or not has_nan(result):
            self._infinite[result.data_ptr()] = source or stack
        elif any(map(has_nan, inputs)):
            self.arrived = self.arrived or stack
            self.step = step if self.step < 0 else self.step
        else:
            self.not_finite, self.infinite, self.step = stack, source, step
            finite = all(bool(torch.isfinite(each.detach()).all()) for each in inputs)
            self.of_one = name in ("std", "var") and finite

    def see_gradients(self, weights: Sequence[Tensor], step: Step) -> None:
        """Note an operation with an infinite derivative if gradients are the first to be no numbers."""
        if step.steep and not self.not_finite and any(p.grad is not None and has_nan(p.grad) for p in weights):
            self.not_finite = step.steep

    @property
    def any_infinite(self) -> bool:
        """Return whether this step has infinite values, and no result yet that is not a number."""
        return bool(self._infinite) and not self.not_finite

    def see_passed_on(self, args: tuple[Any, ...], result: Tensor) -> None:
        """Note infinite values that an operation passes on."""
        source = self._source([each for each in flat(args) if isinstance(each, torch.Tensor) and readable(each)])
        if source:
            self._infinite.setdefault(result.data_ptr(), source)

    def _source(self, inputs: list[Tensor]) -> Stack:
        return next((self._infinite[p] for each in inputs if (p := each.data_ptr()) in self._infinite), ())


def of_no_numbers(error: BaseException | None) -> bool:
    """Return whether an error is that of a distribution whose parameters are no numbers."""
    return isinstance(error, Exception) and _NO_DISTRIBUTION.search(str(error)) is not None


def failed_call(error: BaseException) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
    """Return the outermost call of a network that an error left, in one process, with its arguments."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_name == "_call_impl")
    calls = [each for frame in frames if {"self", "args", "kwargs"} <= (each := frame.f_locals).keys()]
    if not calls or (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    return calls[0]["self"], calls[0]["args"], calls[0]["kwargs"]


def flat(values: Any) -> list[Any]:  # noqa: ANN401
    """Return values with those in lists and tuples among them."""
    found: list[Any] = []
    for each in values:
        found.extend(each if isinstance(each, list | tuple) else (each,))
    return found


def readable(tensor: Tensor) -> bool:
    """Return whether a tensor has values in memory, one for each element."""
    plain = tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_meta
    return plain and type(tensor) in (torch.Tensor, torch.nn.Parameter)


def has_nan(value: Tensor) -> bool:
    """Return whether a readable tensor holds a value that is not a number."""
    return value.is_floating_point() and bool(torch.isnan(value.detach()).any())


def without_graph(value: Any) -> Any:  # noqa: ANN401
    """Return a value, or a tensor with the same memory that keeps no graph alive but still requires a gradient."""
    if isinstance(value, torch.Tensor) and value.grad_fn is not None:
        return value.detach().requires_grad_()
    return value


def bytes_of(value: Any) -> int:  # noqa: ANN401
    """Return the size of the memory that a tensor keeps alive, 0 for other values."""
    if isinstance(value, torch.Tensor) and readable(value):
        return int((value._base if value._is_view() else value).nbytes)
    return 0
