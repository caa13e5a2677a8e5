"""Install hooks of torch around backward passes, optimizer steps and clipping, and remove them again."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.jit._builtins import _register_builtin
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ppo_doctor.record.script.built import SCHEDULED

if TYPE_CHECKING:
    from ppo_doctor.record.script.session import Session


class Hooks:
    """Replaces functions of torch by ones that call the session, and puts the originals back."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._replaced: list[tuple[Any, str, Any]] = []
        self._handles: list[Any] = []

    def install(self) -> None:
        """Install all hooks."""
        session = self._session
        after = _ignoring(session.after_backward)
        self._around(torch.autograd, "backward", before=_backward(session), after=after, aside=True)
        for module in (torch.nn.utils, torch.nn.utils.clip_grad):
            for name in ("clip_grad_norm_", "clip_grad_value_"):
                self._around(module, name, after=_clipped(session))
        self._around(torch.nn.Module, "load_state_dict", after=_event(session, "load_state_dict"))
        self._around(torch.nn.Module, "register_parameter", after=_registered(session))
        self._around(torch.nn.Parameter, "__deepcopy__", after=_copied(session))
        self._around(Optimizer, "__init__", after=_created(session.optimizer_created))
        self._around(LRScheduler, "__init__", after=_created(session.schedules.created))
        for schedule in (LRScheduler, *LRScheduler.__subclasses__()):
            self._around(schedule, "step", after=_event(session, SCHEDULED))
        self._around(_DropoutNd, "__init__", after=_created(session.layers.dropout_created))
        self._around(_NormBase, "__init__", after=_created(session.layers.norm_created))
        self._replace(torch.nn.Module, "train", lambda original: _train(session, original))
        self._replace(torch, "compile", lambda original: _compile(session, original))
        self._replace(torch.overrides, "has_torch_function", lambda original: _has_torch_function(session, original))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=session.forked)
        self._handles = [
            register_optimizer_step_pre_hook(lambda optimizer, *_: session.call(session.before_step, optimizer)),
            register_optimizer_step_post_hook(lambda optimizer, *_: session.call(session.after_step, optimizer)),
        ]

    def remove(self) -> None:
        """Put the original functions back, unless somebody else replaced ours since."""
        for owner, name, (ours, original) in reversed(self._replaced):
            if owner.__dict__.get(name) is ours:
                setattr(owner, name, original)
        for handle in self._handles:
            handle.remove()
        self._replaced, self._handles = [], []

    def _around(
        self,
        owner: Any,  # noqa: ANN401 - a module or a class
        name: str,
        *,
        before: Callable[..., None] | None = None,
        after: Callable[..., None] | None = None,
        aside: bool = False,
    ) -> None:
        session = self._session

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)
            def ours(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
                frame = sys._getframe(1)
                if before is not None:
                    session.call(before, frame, args, kwargs, None)
                with session.mode.aside() if aside else contextlib.nullcontext():
                    result = original(*args, **kwargs)
                if after is not None:
                    session.call(after, frame, args, kwargs, result)
                return result

            return ours

        self._replace(owner, name, make)

    def _replace(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:  # noqa: ANN401
        original = owner.__dict__.get(name)
        if original is None:
            return
        ours = make(original)
        setattr(owner, name, ours)
        self._replaced.append((owner, name, (ours, original)))


def _ignoring(action: Callable[[], None]) -> Callable[..., None]:
    return lambda *_: action()


def _compile(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `torch.compile` with results that run without the mode, which would break their graphs."""

    def outside(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            with session.mode.aside():
                return function(*args, **kwargs)

        return run

    @functools.wraps(original)
    def ours(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        result = original(*args, **kwargs)
        if type(result).__name__ == "OptimizedModule":
            result.forward = outside(result.forward)
        elif not isinstance(result, torch.nn.Module) and not any(result is each for each in args):
            result = outside(result)
        return result

    return ours


def _has_torch_function(session: Session, original: Callable[..., bool]) -> Callable[..., bool]:
    """Return the function by which attention layers choose a faster, differently rounded way, blind to the mode."""

    def ours(tensors: Any) -> bool:  # noqa: ANN401
        if torch.compiler.is_compiling():  # the compiler knows this function by its address
            return bool(torch.overrides.has_torch_function_variadic(*tensors))
        if not session.mode.observing:
            return original(tensors)
        with session.mode.aside():
            return original(tensors)

    _register_builtin(ours, "aten::has_torch_function")
    return ours


def _backward(session: Session) -> Callable[..., None]:
    def before(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any], _: object) -> None:
        tensors = args[0] if args else kwargs.get("tensors")
        session.before_backward([tensors] if isinstance(tensors, torch.Tensor) else list(tensors or ()), frame)

    return before


def _clipped(session: Session) -> Callable[..., None]:
    def after(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any], result: object) -> None:
        bound = args[1] if len(args) > 1 else kwargs.get("max_norm", kwargs.get("clip_value"))
        session.clipped(bound, result, frame)

    return after


def _event(session: Session, name: str) -> Callable[..., None]:
    def after(frame: FrameType, *_: object) -> None:
        session.event(name, frame)

    return after


def _registered(session: Session) -> Callable[..., None]:
    def after(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any], _: object) -> None:
        session.built(args[2] if len(args) > 2 else kwargs.get("param"), frame)

    return after


def _copied(session: Session) -> Callable[..., None]:
    return lambda frame, _, __, copy: session.built(copy, frame)


def _train(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `Module.train` that tells of calls from outside torch, which calls it for each part of a module again."""
    torchs = torch.nn.Module.train.__code__.co_filename

    @functools.wraps(original)
    def ours(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        result = original(*args, **kwargs)
        frame = sys._getframe(1)
        if frame.f_code.co_filename != torchs and getattr(result, "training", False):
            session.call(session.layers.set_to_training, result, frame)
        return result

    return ours


def _created(note: Callable[[Any, FrameType], None]) -> Callable[..., None]:
    def after(frame: FrameType, args: tuple[Any, ...], *_: object) -> None:
        note(args[0], frame)

    return after
