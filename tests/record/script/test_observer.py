"""The observer starts, ends once, and belongs to the process that started it."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")

from ppo_doctor.record.script.observer import Observer  # noqa: E402
from ppo_doctor.record.script.options import WatchOptions  # noqa: E402

from .training import changed, marked_lines, observed, read  # noqa: E402

CATEGORICAL = "torch.distributions.Categorical(validate_args=True, logits="
FAILS = changed(
    ("torch.multinomial(torch.softmax(obs @ weights + bias, -1), 1)[:, 0]", "Net()(obs * (update < 4)).sample()"),
    (
        "critic = ",
        """class Net(torch.nn.Module):
    def forward(self, obs):
        scaled = obs / obs.norm()  # here
        return torch.distributions.Categorical(validate_args=True, logits=scaled @ weights)


critic = """,
    ),
)


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


@pytest.mark.parametrize(("inside", "lines"), [(True, marked_lines(FAILS)), (False, [])])
def test_values_that_end_a_later_rollout_are_written_with_their_line(tmp_path, inside, lines):
    text = FAILS
    if not inside:
        text = text.replace(f"return {CATEGORICAL}scaled @ weights)", "return scaled @ weights")
        text = text.replace("Net()(obs * (update < 4))", f"{CATEGORICAL}Net()(obs * (update < 4)))")
    with pytest.raises(ValueError, match="nan"):
        observed(text, tmp_path, 6)
    seen = read(tmp_path / "run.jsonl", {})
    assert seen.values("log_probs_nonfinite") == [1.0]
    assert [place["line"] for name, place in seen.places.items() if name == "log_probs_nonfinite"] == lines


def test_a_network_that_fails_otherwise_runs_once(tmp_path, capsys):
    text = FAILS.replace("scaled = obs / obs.norm()", "print('ran'); scaled = obs + int('other')")
    with pytest.raises(ValueError, match="other"):
        observed(text, tmp_path, 6)
    assert capsys.readouterr().out == "ran\n"
    assert not (tmp_path / "run.jsonl").exists()


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
