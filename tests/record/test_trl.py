"""TRL's GRPOTrainer itself, with the callback: diagnosed right, and trained the same to the last bit."""

from __future__ import annotations

import dataclasses
import json
import os

import pytest

pytest.importorskip("trl", reason="the group real-trl is not installed")

import torch

import ppo_doctor
from ppo_doctor.record.trl import GrpoRecorder
from tests.record.trainers import grpo

pytestmark = pytest.mark.filterwarnings("default")
os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
GENERATIONS = 14
CASES = {
    "healthy": grpo.Recipe(),
    "benign-single-update": grpo.Recipe(settings={"num_iterations": 1, "learning_rate": 1e-2}),
    "lr-zero": grpo.Recipe(settings={"learning_rate": 0.0}),
    "old-policy-aliased": grpo.Recipe(trainer=grpo.AliasedOldPolicy),
    "optimizer-orphaned-params": grpo.Recipe(optimizer=grpo.optimizer_of_copy),
    "adv-exactly-zero": grpo.Recipe(reward=grpo.constant_reward),
}


def train(recipe, folder, monkeypatch, *, generations, record=True, **options):
    monkeypatch.setattr(grpo, "GENERATIONS", generations)
    made = []

    def before(trainer):
        recipe.before(trainer)
        made.append(trainer)
        if record:
            GrpoRecorder.attach(trainer, folder / "run.jsonl", **options)

    dataclasses.replace(recipe, before=before).train(folder, 3)
    return made[0]


@pytest.mark.parametrize("case", CASES)
def test_the_cause_is_named_from_what_the_callback_wrote(tmp_path, monkeypatch, case):
    train(CASES[case], tmp_path, monkeypatch, generations=GENERATIONS)
    diagnosis = ppo_doctor.analyze(tmp_path / "run.jsonl")
    faults = [cause for cause in diagnosis.causes if not cause.benign]
    if case in ("healthy", "benign-single-update"):
        # Its completions really grow into the limit, which is no fault of the update.
        assert not {cause.id for cause in faults} & CASES.keys()
    else:
        # A reward of 0 throughout comes first, and the advantages of 0 that follow from it beside it.
        assert (case, "established") in [(fault.id, fault.confidence) for fault in faults[:2]]


def test_training_is_bitwise_the_same_with_and_without(tmp_path, monkeypatch):
    weights = []
    for record in (True, False):
        folder = tmp_path / str(record)
        folder.mkdir()
        trainer = train(grpo.Recipe(), folder, monkeypatch, generations=3, record=record)
        weights.append(trainer.model.state_dict())
        assert not {"_compute_loss", "_get_per_token_logps_and_entropies"} & set(vars(trainer))
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    lines = (tmp_path / "True" / "run.jsonl").read_text().splitlines()
    assert [json.loads(line)["optimizer_steps"] for line in lines[1:]] == [4, 4, 4]


def test_a_dead_run_is_stopped_and_leaves_its_last_minibatch(tmp_path, monkeypatch, capfd):
    told = {"stop_on": "critical", "dump_when": "unhealthy"}
    trainer = train(CASES["lr-zero"], tmp_path, monkeypatch, generations=30, **told)
    assert trainer.state.global_step < trainer.state.max_steps
    assert capfd.readouterr().err.count("training is stopped: critical: The learning rate is exactly 0") == 1
    (dump,) = tmp_path.glob("*.safetensors")
    assert ppo_doctor.load_run(dump).series["ratio_max"].values == pytest.approx([1.0], abs=1e-5)
