"""Gaussian policies, outliers, parts of the reward, and harmless numerics: lab faults through the judge."""

from __future__ import annotations

import json

import pytest

from ppo_doctor import frameworks
from ppo_doctor.derive import Observations
from ppo_doctor.pipeline import Request, read_run
from ppo_doctor.rulepack import load_pack
from ppo_doctor.testing import case_run

from .lab.judge import Judged, judge
from .lab.presets import dialect_task
from .lab.train import run

PACK = load_pack()


def judged(fault: str, dialect: str, severity: int = 2, **overrides) -> Judged:
    record = run(fault, task=dialect_task(dialect), seed=0, severity=severity, updates=60, dialect=dialect, **overrides)
    return Judged(name=fault, dialect=dialect, cause=fault, twins=(), diagnosis=judge(record, dialect, PACK))


@pytest.mark.parametrize(
    ("fault", "dialect", "cause"),
    [
        ("action-std-pathology", "sb3", "action-std-pathology"),
        ("action-std-vanishes", "canonical", "action-std-pathology"),
        ("negative-adv-ratio-explosion", "trl-ppo", "negative-adv-ratio-explosion"),
        ("grad-norm-spike", "trl-grpo", "grad-norm-spike"),
        ("reward-part-broken", "trl-grpo", "reward-pipeline-broken"),
    ],
)
def test_a_fault_leads(fault, dialect, cause):
    assert cause in judged(fault, dialect).leaders


@pytest.mark.parametrize(
    ("fault", "dialect", "overrides"),
    [
        ("healthy", "sb3", {"continuous": True, "log_std_init": -1.2}),
        ("healthy", "canonical", {"continuous": True, "log_std_init": -2.5, "learning_rate": 3e-4}),
        ("benign-reward-parts", "trl-grpo", {}),
        ("dtype-noise-floor", "canonical", {}),
        ("log-rounding", "cleanrl", {}),
    ],
)
def test_what_is_harmless_raises_no_alarm(fault, dialect, overrides):
    assert not judged(fault, dialect, **overrides).alarms


def test_a_differential_entropy_is_no_share_of_anything():
    run_ = case_run({"series": {"entropy": "1.4-0.1x29", "action_std": "1-0.02x29"}})
    assert Observations(run_).series("choice_entropy") is None
    assert Observations(run_).series("entropy_share") is None


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
