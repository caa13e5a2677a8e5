"""Hooks call the session around functions of torch, and leave torch as it was."""

from __future__ import annotations

import contextlib

import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")

from torch.optim.lr_scheduler import LambdaLR, LRScheduler  # noqa: E402
from torch.optim.optimizer import (  # noqa: E402
    Optimizer,
    _global_optimizer_post_hooks,
    _global_optimizer_pre_hooks,
)

from ppo_doctor.record.script.hooks import Hooks  # noqa: E402

OWNERS = (torch, torch.autograd, torch.nn.Module, torch.nn.utils, torch.nn.utils.clip_grad, Optimizer, LRScheduler)


class Recorder:
    """Takes the place of a session and keeps the names of what it was told, with arguments that are no frames."""

    observing = False

    def __init__(self):
        self.calls = []
        self.mode = self.schedules = self.layers = self

    def aside(self):
        return contextlib.nullcontext()

    def call(self, action, *args):
        action(*args)

    def __getattr__(self, name):
        return lambda *args: self.calls.append((name, args))

    def names(self):
        return [name for name, _ in self.calls]


@pytest.fixture
def recorder():
    recorder = Recorder()
    hooks = Hooks(recorder)
    hooks.install()
    yield recorder
    hooks.remove()


def functions():
    """Return everything that hooks could have replaced."""
    named = {(owner.__name__, name): id(value) for owner in OWNERS for name, value in vars(owner).items()}
    return named, len(_global_optimizer_pre_hooks), len(_global_optimizer_post_hooks)


def test_every_hook_is_removed():
    before = functions()
    hooks = Hooks(Recorder())
    hooks.install()
    assert functions() != before
    hooks.remove()
    assert functions() == before


def test_a_function_that_somebody_else_replaced_since_is_left_alone(monkeypatch):
    hooks = Hooks(Recorder())
    hooks.install()
    theirs = lambda *_: None  # noqa: E731
    original = hooks._replaced[0][2][1]
    monkeypatch.setattr(torch.autograd, "backward", theirs)
    hooks.remove()
    assert torch.autograd.backward is theirs
    torch.autograd.backward = original
    monkeypatch.undo()
    torch.autograd.backward = original


def test_a_training_step_is_told_in_order(recorder):
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    LambdaLR(optimizer, lambda _: 1.0)
    recorder.calls.clear()
    loss = net(torch.ones(1, 2)).sum()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    torch.nn.utils.clip_grad_value_(net.parameters(), clip_value=0.25)
    optimizer.step()
    net.load_state_dict(net.state_dict())
    names = ["before_backward", "after_backward", "clipped", "clipped", "before_step", "after_step", "event"]
    assert recorder.names() == names
    told = dict(recorder.calls[:1] + recorder.calls[4:])
    assert told["before_backward"][0] == [loss]
    assert told["before_backward"][1].f_code.co_name == "backward"
    assert recorder.calls[2][1][:2] == (0.5, norm)
    assert recorder.calls[3][1][0] == 0.25
    assert told["before_step"] == told["after_step"] == (optimizer,)
    assert told["event"][0] == "load_state_dict"


def test_backward_of_several_tensors_and_by_name_is_told(recorder):
    losses = [torch.ones(1, requires_grad=True).sum() for _ in range(2)]
    torch.autograd.backward(tensors=losses)
    assert recorder.calls[0][1][0] == losses


def test_optimizers_and_schedulers_are_told(recorder):
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])
    scheduler = LambdaLR(optimizer, lambda _: 1.0)
    created = dict(recorder.calls)
    assert created["optimizer_created"][0] is optimizer
    assert created["optimizer_created"][1].f_code.co_name == "__init__"
    assert created["created"][0] is scheduler


@pytest.mark.parametrize("make", [lambda f: torch.compile(f, backend="eager"), torch.compile(backend="eager")])
@pytest.mark.usefixtures("recorder")
def test_compiled_functions_run_as_without_hooks(make):
    assert make(lambda x: x + 1)(torch.ones(2)).tolist() == [2, 2]
