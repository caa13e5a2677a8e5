"""The observer starts, ends once, and belongs to the process that started it."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")

from ppo_doctor.record.script.observer import Observer  # noqa: E402
from ppo_doctor.record.script.options import WatchOptions  # noqa: E402


@pytest.fixture
def observer(tmp_path):
    return Observer(WatchOptions(str(tmp_path / "run.jsonl"), "", str(tmp_path)))


def test_torch_is_as_before_when_it_has_ended(observer):
    before = torch.autograd.backward, torch.nn.Module.load_state_dict, torch.optim.Optimizer.__init__
    observer.start()
    assert not observer.done
    assert torch.autograd.backward is not before[0]
    observer.finish()
    assert observer.done
    assert (torch.autograd.backward, torch.nn.Module.load_state_dict, torch.optim.Optimizer.__init__) == before
    assert not torch.overrides._get_current_function_mode_stack()
    observer.finish()


def test_a_script_without_a_step_leaves_no_file(observer, tmp_path):
    observer.start()
    torch.ones(2).exp()
    observer.finish()
    assert list(tmp_path.iterdir()) == []


def test_an_observer_that_was_never_started_can_end(observer):
    observer.finish()
    assert observer.done


def test_another_process_does_not_end_it(observer, monkeypatch):
    observer.start()
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        observer.finish()
        assert not observer.done
    observer.finish()
    assert observer.done
