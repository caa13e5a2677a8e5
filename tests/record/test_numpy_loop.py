"""A plain loop in NumPy is diagnosed as what it is, however little it tells."""

from __future__ import annotations

import pytest

import ppo_doctor
from tests.record.numpy_loop import train

#: What no log without the learning rate tells apart.
STANDING = {"lr-zero", "no-grad-path", "optimizer-orphaned-params"}


@pytest.mark.parametrize("watched", [True, False])
def test_advantages_that_reach_the_loss_are_not_called_zero(tmp_path, watched):
    train(tmp_path / "run.jsonl", 0.0, watched=watched, updates=40)
    run, diagnosis = ppo_doctor.load_run(tmp_path / "run.jsonl"), ppo_doctor.analyze(tmp_path / "run.jsonl")
    assert run.series["advantages_std"].values == pytest.approx(1, abs=1e-6)
    assert diagnosis.verdict == "unhealthy"
    assert "adv-exactly-zero" not in {cause.id for cause in diagnosis.causes}
    leaders = {cause.id: cause.confidence for cause in diagnosis.causes if cause.leader}
    assert leaders.keys() <= STANDING
    assert leaders.get("lr-zero") == ("likely" if watched else None)
    assert "established" not in leaders.values()


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("how", [{"learning_rate": 0.0}, {"lr": 0}, {"config": {"learning_rate": 0.0}}], ids=str)
def test_a_learning_rate_of_zero_that_is_told_is_the_cause(tmp_path, watched, how):
    """Whether weights are given or not: without them, and without the rate, a log shows only that nothing moves."""
    train(tmp_path / "run.jsonl", 0.0, watched=watched, updates=25, **how)
    leaders = [
        (cause.id, cause.confidence) for cause in ppo_doctor.analyze(tmp_path / "run.jsonl").causes if cause.leader
    ]
    assert leaders == [("lr-zero", "established")]


@pytest.mark.parametrize("rate", [0.03, 0.07])
def test_a_run_that_learns_with_small_updates_is_healthy_at_any_rate(tmp_path, rate):
    train(tmp_path / "run.jsonl", rate, learning_rate=rate)
    run, diagnosis = ppo_doctor.load_run(tmp_path / "run.jsonl"), ppo_doctor.analyze(tmp_path / "run.jsonl")
    assert run.series["approx_kl"].values.max() <= 0.008
    assert run.series["reward_mean"].values[-1] > 0.75
    assert diagnosis.verdict == "healthy"
    assert [cause.id for cause in diagnosis.causes if not cause.benign] == []


def test_a_rate_that_takes_updates_far_is_too_high(tmp_path):
    train(tmp_path / "run.jsonl", 10.0, learning_rate=10.0)
    diagnosis = ppo_doctor.analyze(tmp_path / "run.jsonl")
    assert diagnosis.causes[0].id == "lr-too-high"
