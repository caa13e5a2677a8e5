"""The mode shows operations while it observes, and leaves results and the modes of others alone."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")
from torch.overrides import _get_current_function_mode_stack  # noqa: E402

from ppo_doctor.record.script.operation_mode import OperationMode  # noqa: E402


@pytest.fixture
def shown():
    return []


@pytest.fixture
def mode(shown):
    mode = OperationMode(lambda function, *_: shown.append(function.__name__))
    mode.observe()
    yield mode
    mode.rest()
    assert not _get_current_function_mode_stack()


def test_operations_are_shown_and_return_what_they_return_without(mode, shown):
    def draw():
        torch.manual_seed(0)
        return torch.randn(3, 4).exp().split(1)

    seen = draw()
    assert {"randn", "exp", "split"} <= set(shown)
    mode.rest()
    shown.clear()
    assert all(torch.equal(one, other) for one, other in zip(draw(), seen, strict=True))
    assert not shown


def test_nothing_is_shown_while_it_is_aside(mode, shown):
    with mode.aside():
        torch.ones(2).exp()
        with mode.aside():
            assert not _get_current_function_mode_stack()
    assert not shown
    torch.ones(2).exp()
    assert "exp" in shown


def test_it_sleeps_under_a_mode_of_somebody_else_and_is_not_put_on_top_of_one(mode, shown):
    with torch.device("cpu"):
        mode.rest()
        assert mode.entered
        shown.clear()
        torch.ones(2).exp()
    assert not shown
    mode.rest()
    assert not mode.entered
    with torch.overrides.TorchFunctionMode():
        mode.observe()
        assert not mode.observing
