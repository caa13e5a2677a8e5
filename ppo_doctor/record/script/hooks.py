"""Install hooks of torch around backward passes, optimizer steps and clipping, and remove them again."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import _pop_mode_temporarily

if TYPE_CHECKING:
    from ppo_doctor.record.script.session import Session


#: Modules whose fused path in evaluation rounds otherwise than the one that they take under a mode.
_FUSED = (torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer, torch.nn.TransformerEncoder)


class Hooks:
    """Replaces functions of torch by ones that call the session, and puts the originals back."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._replaced: list[tuple[Any, str, Any]] = []
        self._handles: list[Any] = []

    def install(self) -> None:
        """Install all hooks."""
        session = self._session
        self._around(torch.autograd, "backward", before=_backward(session), after=lambda *_: session.after_backward())
        for module in (torch.nn.utils, torch.nn.utils.clip_grad):
            for name in ("clip_grad_norm_", "clip_grad_value_"):
                self._around(module, name, after=_clipped(session))
        self._around(torch.nn.Module, "load_state_dict", after=_event(session, "load_state_dict"))
        self._around(Optimizer, "__init__", after=_created(session.optimizer_created))
        self._around(LRScheduler, "__init__", after=_created(session.scheduler_created))
        self._around(torch, "compile", before=lambda *_: session.compiles())
        self._around(torch.nn.Module, "compile", before=lambda *_: session.compiles())
        for module in _FUSED:
            self._beside_mode(module)
        self._handles = [
            register_optimizer_step_pre_hook(lambda optimizer, *_: session.call(session.before_step, optimizer)),
            register_optimizer_step_post_hook(lambda optimizer, *_: session.call(session.after_step, optimizer)),
        ]

    def _beside_mode(self, module: Any) -> None:  # noqa: ANN401 - a class
        """Leave the mode while a module may take its fused path, which it does not under a mode."""
        original, session = module.forward, self._session

        @functools.wraps(original)
        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if self.training or torch.is_grad_enabled() or not session.on_top():
                return original(self, *args, **kwargs)
            with _pop_mode_temporarily():
                return original(self, *args, **kwargs)

        module.forward = forward
        self._replaced.append((module, "forward", (forward, original)))

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
    ) -> None:
        original = owner.__dict__.get(name)
        if original is None:
            return
        session = self._session

        @functools.wraps(original)
        def ours(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            frame = sys._getframe(1)
            if before is not None:
                session.call(before, frame, args, kwargs, None)
            result = original(*args, **kwargs)
            if after is not None:
                session.call(after, frame, args, kwargs, result)
            return result

        setattr(owner, name, ours)
        self._replaced.append((owner, name, (ours, original)))


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


def _created(note: Callable[[Any, FrameType], None]) -> Callable[..., None]:
    def after(frame: FrameType, args: tuple[Any, ...], *_: object) -> None:
        note(args[0], frame)

    return after
