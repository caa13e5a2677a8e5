"""Which checkpoint a run that fell or broke goes back to, and that one that never learned has none."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from ppo_doctor.diagnosis.analyze import analyze

RECORDS = 120


def run_with(folder: Path, rewards: list[float], **columns: list[float]) -> Path:
    """Write a log of TRL with these rewards, one record in ten steps, and a checkpoint in every hundred."""
    history = []
    for at, reward in enumerate(rewards):
        record = {"reward": reward, "reward_std": 0.1, "kl": 0.01, "loss": 0.1, "grad_norm": 0.5, "entropy": 0.5}
        record |= {"completions/mean_length": 100.0 + at % 7, "frac_reward_zero_std": 0.1, "learning_rate": 1e-6}
        history.append({**record, **{key: values[at] for key, values in columns.items()}, "step": 10 * at + 10})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}), encoding="utf-8")
    for step in range(100, 10 * len(rewards) + 1, 100):
        (folder / f"checkpoint-{step}").mkdir()
        (folder / f"checkpoint-{step}" / "model.safetensors").write_bytes(b"x")
    return folder / "trainer_state.json"


def wave(at: int) -> float:
    return 0.01 * math.sin(at)


def rising(count: int = RECORDS) -> list[float]:
    return [0.1 + 0.7 * min(1.0, at / 50) + wave(at) for at in range(count)]


def test_a_run_that_broke_goes_back_to_the_last_checkpoint_before(tmp_path):
    norms = [0.5] * 73 + [math.nan] * (RECORDS - 73)
    found = analyze(run_with(tmp_path, rising(), grad_norm=norms)).checkpoint
    assert found is not None
    assert (Path(found.path).name, found.step, found.last) == ("checkpoint-700", 700, True)
    assert found.reward == pytest.approx(0.8, abs=0.02)


def test_a_checkpoint_after_the_last_sound_record_does_not_count(tmp_path):
    norms = [0.5] * 69 + [math.nan] * (RECORDS - 69)  # the record of step 700 is the first that is not finite
    found = analyze(run_with(tmp_path, rising(), grad_norm=norms)).checkpoint
    assert found is not None
    assert found.step == 600


def test_a_run_that_fell_goes_back_to_where_the_reward_was_good(tmp_path):
    rewards = [*rising(80), *(max(0.05, 0.8 - 0.05 * at) + wave(at) for at in range(60))]
    diagnosis = analyze(run_with(tmp_path, rewards))
    assert diagnosis.outcome.what in ("fell", "lost")
    found = diagnosis.checkpoint
    assert found is not None
    assert found.step == 800
    assert found.reward is not None
    assert found.reward > 0.7


def test_a_later_checkpoint_with_a_lower_reward_is_passed_over(tmp_path):
    rewards = [*rising(70), *(0.8 - 0.006 * at + wave(at) for at in range(100)), *([0.05] * 40)]
    diagnosis = analyze(run_with(tmp_path, rewards))
    found = diagnosis.checkpoint
    assert found is not None
    assert not found.last
    assert 700 <= found.step <= 900
    assert found.reward is not None
    assert found.reward > 0.7


@pytest.mark.parametrize("rewards", [[0.0] * RECORDS, rising()], ids=["never earned", "learned"])
def test_a_run_that_did_not_fall_has_none(tmp_path, rewards):
    assert analyze(run_with(tmp_path, rewards)).checkpoint is None


def test_without_a_checkpoint_before_there_is_none(tmp_path):
    norms = [0.5] * 5 + [math.nan] * (RECORDS - 5)
    assert analyze(run_with(tmp_path, rising(), grad_norm=norms)).checkpoint is None


def test_reports_name_it_in_one_line(tmp_path, cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    path = run_with(tmp_path, rising(), grad_norm=[0.5] * 73 + [math.nan] * (RECORDS - 73))
    text = cli("analyze", path).out
    [line] = [line for line in text.splitlines() if "checkpoint-700" in line]
    assert "step 700" in line
    assert len(line) <= 80
    report = cli("analyze", path, "--format", "json").json
    assert report["checkpoint"]["step"] == 700
    assert "checkpoint-700" in cli("analyze", path, "--format", "markdown").out
