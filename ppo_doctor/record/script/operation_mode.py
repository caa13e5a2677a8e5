"""Show torch operations to the observer while it observes, and stay out of the way of other modes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from ppo_doctor.record.script.operation_names import IGNORED

#: Reads the attribute `data` of a tensor, which detaches it.
DATA = torch.Tensor.data.__get__  # type: ignore[attr-defined, unused-ignore]


class OperationMode(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
    """Passes each operation with its result to a function while `observing`, and changes neither."""

    def __init__(self, see: Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]) -> None:
        super().__init__()
        self._see = see
        self.observing = False
        #: whether it is to be on the stack of modes, also where `aside` or an operation has taken it off for a while
        self.entered = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        """Run an operation and show it to the observer."""
        result = func(*args, **kwargs) if kwargs else func(*args)
        if self.observing and (getattr(func, "__name__", "") not in IGNORED or func == DATA):
            self._see(func, args, kwargs or {}, result)
        return result

    def observe(self) -> None:
        """See every operation from now on, unless a mode of somebody else would be left by popping this one."""
        stack = _get_current_function_mode_stack()
        default = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
        if self not in stack and all(each is default for each in stack):
            self.__enter__()
            self.entered = True
            stack.append(self)
        self.observing = self in stack

    def rest(self) -> None:
        """See no operations; the mode stays, asleep, while one of somebody else is on top."""
        self.observing = False
        if self._on_top():
            self.__exit__(None, None, None)
            self.entered = False

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Leave this thread's stack of modes for a while, so that torch runs as it does without this one."""
        if not self._on_top():
            yield
            return
        self.__exit__(None, None, None)
        try:
            yield
        finally:
            if self not in _get_current_function_mode_stack():
                self.__enter__()

    def _on_top(self) -> bool:
        stack = _get_current_function_mode_stack()
        return bool(stack) and stack[-1] is self
