"""TRL's experimental PPOTrainer (1.9 to 1.12) with the callback: diagnosed right, and trained bitwise the same."""

from __future__ import annotations

import dataclasses
import json
import os

import numpy as np
import pytest

pytest.importorskip("trl.experimental.ppo", reason="the group real-trl is not installed, or its TRL has no PPOTrainer")

import torch

from ppo_doctor.record.trl_ppo import WRAPPED, PpoRecorder
from tests.record.loops import check_cause
from tests.record.trainers import trl_ppo

pytestmark = pytest.mark.filterwarnings("default")
os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
CASES = {
    "healthy": trl_ppo.Recipe(),
    "benign-single-update": trl_ppo.Recipe(settings={"num_ppo_epochs": 1, "learning_rate": 6e-3}),
    "lr-zero": trl_ppo.Recipe(settings={"learning_rate": 0.0}),
    "old-policy-aliased": trl_ppo.Recipe(trainer=trl_ppo.AliasedOldPolicy),
    "optimizer-orphaned-params": trl_ppo.Recipe(optimizer=trl_ppo.optimizer_of_copy),
    "no-grad-path": trl_ppo.Recipe(trainer=trl_ppo.DetachedLogProbs),
}


def train(recipe, folder, monkeypatch, *, batches=14, record=True):
    monkeypatch.setattr(trl_ppo, "BATCHES", batches)
    np.random.seed(3)  # it orders the minibatches, and the trainer does not seed it
    made = []

    def before(trainer):
        recipe.before(trainer)
        made.append(trainer)
        if record:
            PpoRecorder.attach(trainer, folder / "run.jsonl")

    dataclasses.replace(recipe, before=before).train(folder, 3)
    return made[0]


@pytest.mark.parametrize("case", CASES)
def test_the_cause_is_named_from_what_the_callback_wrote(tmp_path, monkeypatch, case):
    train(CASES[case], tmp_path, monkeypatch)
    check_cause(tmp_path / "run.jsonl", case, "likely" if case == "no-grad-path" else "established")


def test_training_is_bitwise_the_same_with_and_without(tmp_path, monkeypatch):
    weights = []
    for record in (True, False):
        folder = tmp_path / str(record)
        folder.mkdir()
        trainer = train(CASES["healthy"], folder, monkeypatch, batches=3, record=record)
        weights.append(trainer.model.state_dict())
        assert type(trainer).train.__globals__[WRAPPED].__name__ == WRAPPED
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    lines = (tmp_path / "True" / "run.jsonl").read_text().splitlines()
    assert [json.loads(line)["optimizer_steps"] for line in lines[1:]] == [4, 4, 4]
    assert [json.loads(line)["batch_start_ratio_dev"] < 1e-4 for line in lines[1:]] == [True] * 3
