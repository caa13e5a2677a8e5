"""Stable-Baselines3 itself, with the callback: diagnosed right, and trained the same to the last bit."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("stable_baselines3", reason="the group real-sb3 is not installed")

import torch

import ppo_doctor
from ppo_doctor.record.sb3 import RecorderCallback
from tests.record.loops import check_cause
from tests.record.trainers import sb3

pytestmark = pytest.mark.filterwarnings("default")
UPDATES = 15
CASES = {
    "healthy": sb3.Recipe(),
    "benign-single-update": sb3.Recipe(settings={"n_epochs": 1, "batch_size": 512, "learning_rate": 3e-3}),
    "lr-zero": sb3.Recipe(settings={"learning_rate": 0.0}),
    "old-policy-aliased": sb3.Recipe(trainer=sb3.AliasedOldPolicy),
    "old-policy-aliased in the loss only": sb3.Recipe(trainer=sb3.RatioOnlyAliased),
    "no-grad-path": sb3.Recipe(before=sb3.freeze_actor),
    "optimizer-orphaned-params": sb3.Recipe(before=sb3.replace_actor),
    "epochs-not-executed": sb3.Recipe(trainer=sb3.EpochsIgnored),
}


def train(recipe, callback, updates=UPDATES):
    torch.set_num_threads(1)
    told = {**sb3.CARTPOLE, **recipe.settings}
    model = recipe.trainer("MlpPolicy", recipe._envs(1), seed=1, device="cpu", **told)
    recipe.before(model)
    model.learn(updates * sb3.ENVS * told["n_steps"], callback=callback)
    return model


@pytest.mark.parametrize("case", CASES)
def test_the_cause_is_named_from_what_the_callback_wrote(tmp_path, case):
    train(CASES[case], RecorderCallback(tmp_path / "run.jsonl"))
    check_cause(tmp_path / "run.jsonl", case.split()[0], "likely" if case == "no-grad-path" else "established")


@pytest.mark.parametrize("case", ["healthy", "old-policy-aliased", "no-grad-path"])
def test_training_is_bitwise_the_same_with_and_without(tmp_path, case):
    recorded = train(CASES[case], RecorderCallback(tmp_path / "run.jsonl"), updates=5).policy.state_dict()
    without = train(CASES[case], None, updates=5).policy.state_dict()
    assert all(torch.equal(recorded[name], without[name]) for name in without)
    assert (tmp_path / "run.jsonl").read_text().count("\n") == 6


def test_the_model_is_left_as_it_was(tmp_path):
    model = train(CASES["healthy"], RecorderCallback(tmp_path / "run.jsonl"), updates=2)
    assert "evaluate_actions" not in vars(model.policy)
    assert "get" not in vars(model.rollout_buffer)
    model.save(tmp_path / "model.zip")


def test_a_fault_inside_does_not_stop_training(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("ppo_doctor.record.recorder.measures.row", lambda *_: 1 / 0)
    model = train(CASES["healthy"], RecorderCallback(tmp_path / "run.jsonl"), updates=3)
    assert model.num_timesteps == 3 * sb3.ENVS * 64
    assert capfd.readouterr().err.count("training and recording go on") == 1
    assert "evaluate_actions" not in vars(model.policy)


def test_an_update_that_breaks_is_recorded_up_to_there(tmp_path):
    """A reward that is not a number breaks the weights, and the next pass raises: its record says so."""
    before = {"inside": sb3.BreaksLater}
    with pytest.raises(ValueError, match="Expected parameter"):
        train(sb3.Recipe(**before), RecorderCallback(tmp_path / "run.jsonl"), updates=40)
    last = json.loads((tmp_path / "run.jsonl").read_text().splitlines()[-1])
    assert (last["advantages_raw_std"], last["grad_norm"]) == ("NaN", "NaN")
    assert last["optimizer_steps"] >= 1


def test_continuous_actions_are_probed_too(tmp_path):
    recipe = sb3.Recipe(env="Pendulum-v1", settings={"n_epochs": 2})
    train(recipe, RecorderCallback(tmp_path / "run.jsonl"), updates=3)
    last = json.loads((tmp_path / "run.jsonl").read_text().splitlines()[-1])
    assert 0 < last["probe_kl"] < 1


def test_a_dead_run_is_stopped_and_leaves_its_last_minibatch(tmp_path, capfd):
    callback = RecorderCallback(tmp_path / "run.jsonl", stop_on="critical", dump_when="unhealthy")
    model = train(CASES["lr-zero"], callback, updates=40)
    assert model.num_timesteps < 40 * sb3.ENVS * 64
    assert capfd.readouterr().err.count("training is stopped: critical: The learning rate is exactly 0") == 1
    (dump,) = tmp_path.glob("*.safetensors")
    assert ppo_doctor.load_run(dump).series["ratio_max"].values == pytest.approx([1.0], abs=1e-5)
    assert "evaluate_actions" not in vars(model.policy)


def test_a_sound_run_is_not_stopped_and_trains_the_same(tmp_path):
    callback = RecorderCallback(tmp_path / "run.jsonl", stop_on="low", dump_when="unhealthy")
    judged = train(CASES["healthy"], callback, updates=12)
    assert judged.num_timesteps == 12 * sb3.ENVS * 64
    assert callback.recorder._outlets.online.pace.judgements >= 2
    without = train(CASES["healthy"], None, updates=12).policy.state_dict()
    assert all(torch.equal(weights, without[name]) for name, weights in judged.policy.state_dict().items())
    assert not list(tmp_path.glob("*.safetensors"))
