"""CleanRL's `ppo.py` itself, where it is at hand, with the page's diff: diagnosed right, trained bitwise alike."""

from __future__ import annotations

import contextlib
import io
import sys
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")
pytest.importorskip("gymnasium", reason="the group real-sb3 is not installed")

from tests.record.loops import check_cause  # noqa: E402
from tests.record.recipes import diff_of, real  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")
FILE = "cleanrl/ppo.py"
SOURCE = real(FILE)
#: Edits that people make, and what they break.
CASES: dict[str, dict[str, str]] = {
    "healthy": {},
    "lr-zero": {"lr=args.learning_rate": "lr=0.0", 'optimizer.param_groups[0]["lr"] = lrnow': "pass"},
    "old-policy-aliased": {"newlogprob - b_logprobs[mb_inds]": "newlogprob - newlogprob.detach()"},
    "optimizer-orphaned-params": {"optim.Adam(agent.": "optim.Adam(__import__('copy').deepcopy(agent)."},
    "no-grad-path": {"logits = self.actor(x)": "logits = self.actor(x).detach()"},
    "epochs-not-executed": {"if args.target_kl is not None and approx_kl > args.target_kl:": "if True:"},
}


class Writer:
    """A TensorBoard writer that writes nothing."""

    def __init__(self, *_: object) -> None:
        pass

    def add_scalar(self, *_: object) -> None:
        pass

    add_text = add_scalar
    close = add_scalar


def train(folder: Any, monkeypatch: Any, edits: dict[str, str], *, record: bool = True, iterations: int = 40) -> Any:
    """Run the script; return the agent's weights."""
    if SOURCE is None:
        pytest.skip(f"{FILE} is not at hand")
    torch.set_num_threads(1)
    text = diff_of(FILE).apply(SOURCE)[0] if record else SOURCE
    for found, instead in edits.items():
        assert text.count(found) == 1
        text = text.replace(found, instead)
    told = {"total_timesteps": iterations * 512, "cuda": False, "seed": 3, "learning_rate": 1e-3}
    tyro, board = ModuleType("tyro"), ModuleType("torch.utils.tensorboard")
    tyro.cli = lambda kind: kind(**told)  # type: ignore[attr-defined]
    board.SummaryWriter = Writer  # type: ignore[attr-defined]
    script = ModuleType("__main__")
    script.__file__ = FILE
    for name, module in (("tyro", tyro), ("torch.utils.tensorboard", board), ("__main__", script)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(text, FILE, "exec"), vars(script))  # noqa: S102 - CleanRL's own script
    return vars(script)["agent"].state_dict()


@pytest.mark.parametrize("case", CASES)
def test_the_cause_is_named_from_what_the_diff_wrote(tmp_path, monkeypatch, case):
    train(tmp_path, monkeypatch, CASES[case])
    check_cause(tmp_path / "run.jsonl", case)


def test_training_is_bitwise_the_same_with_and_without(tmp_path, monkeypatch):
    recorded, without = (train(tmp_path, monkeypatch, {}, record=on, iterations=4) for on in (True, False))
    assert all(torch.equal(recorded[name], without[name]) for name in without)
    assert (tmp_path / "run.jsonl").read_text().count("\n") == 5
