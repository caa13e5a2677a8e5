"""Versions of a framework whose keys are alike are told apart by their values, where those can tell."""

from __future__ import annotations

import math

import pytest

from ppo_doctor.diagnosis.analyze import read_runs
from ppo_doctor.runs.reading import Request


def progress(tmp_path, kls):
    rows = ["time/total_timesteps,train/approx_kl,train/clip_fraction,train/entropy_loss,train/policy_gradient_loss"]
    rows += [f"{2048 * n},{kl!r},0.1,{-1 + 0.01 * n!r},-0.01" for n, kl in enumerate(kls, start=1)]
    path = tmp_path / "progress.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(("low", "estimator"), [(-0.004, "k1"), (-1e-8, "k3"), (0.001, "k3")])
def test_old_stable_baselines3_logs_a_signed_estimate(tmp_path, low, estimator):
    path = progress(tmp_path, [low if n % 4 == 0 else 0.01 + 0.001 * math.sin(n) for n in range(40)])
    (run,) = read_runs(str(path), Request())
    assert run.series["approx_kl"].estimator == estimator
    assert any("k1" in str(note) for note in run.notes) is (estimator == "k1")


def test_a_signed_estimate_is_no_logging_bug(tmp_path, cli):
    path = progress(tmp_path, [-0.004 if n % 4 == 0 else 0.01 for n in range(40)])
    report = cli("analyze", path, "--format", "json").json
    assert "metric-logging-bug" not in {cause["id"] for cause in report["causes"]}
