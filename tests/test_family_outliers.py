"""Gaussian policies, and parts of the reward."""

from __future__ import annotations

import json

from ppo_doctor.checks.run_view import RunView
from ppo_doctor.diagnosis.analyze import read_run
from ppo_doctor.runs.reading import Request
from ppo_doctor.testing import case_run
from ppo_doctor.trainers import detection as frameworks


def test_a_differential_entropy_is_no_share_of_anything():
    run_ = case_run({"series": {"entropy": "1.4-0.1x29", "action_std": "1-0.02x29"}})
    assert RunView(run_).series("choice_entropy") is None
    assert RunView(run_).series("entropy_share") is None


def test_parts_of_the_reward_are_bounded_and_named_safely(tmp_path):
    parts = {f"rewards/part{i:02d}\x1b[31m<b>/mean": 0.5 for i in range(100)}
    rows = [
        {"step": i + 1, "reward": 0.1 * (i % 3), "reward_std": 0.1, "loss": 0.0, "kl": 0.0, **parts} for i in range(30)
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    read = read_run(str(log), Request())
    names = [name for name in read.series if name.startswith("reward_component.")]
    assert 0 < len(names) <= 64
    assert all(name.isprintable() and "<" not in name for name in names)
    assert any("parts of the reward" in note.text for note in read.notes)


def test_a_part_is_read_under_its_own_name():
    profile = frameworks.profile("trl-grpo").resolved(["rewards/match/mean", "rewards/match/std", "reward"])
    assert profile.metrics["reward_component.match"].keys == ("rewards/match/mean",)
    assert profile.metrics["reward_component_std.match"].keys == ("rewards/match/std",)
