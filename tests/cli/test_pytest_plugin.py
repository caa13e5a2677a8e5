"""The pytest plugin and `assert_healthy`, in a pytest of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ppo_doctor.cli.policy import Policy
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.testing import assert_healthy

SAMPLES = Path(__file__).resolve().parents[2] / "sample_logs"


SICK = SAMPLES / "sick" / "lr-zero.canonical"


HEALTHY = SAMPLES / "healthy" / "healthy.sb3"


SHORT = SAMPLES / "broken" / "three-records.canonical"


def run_pytest(folder, *arguments):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "ppo_doctor.cli.pytest_plugin",
        "-p",
        "no:cacheprovider",
        *arguments,
    ]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [str(part) for part in command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_run_is_a_test(tmp_path):
    done = run_pytest(tmp_path, *(word for run in (HEALTHY, SICK, "nowhere") for word in ("--ppo-doctor", run)))
    assert done.returncode == 1
    assert "2 failed, 1 passed" in done.stdout
    assert "no such file or folder" in done.stdout
    assert "Gate failed" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_policy_is_heeded(tmp_path):
    (tmp_path / "mine.toml").write_text('fail-on = "never"', encoding="utf-8")
    assert run_pytest(tmp_path, "--ppo-doctor", SICK, "--ppo-doctor-policy", "mine.toml").returncode == 0


def test_without_the_option_nothing_changes(tmp_path):
    (tmp_path / "test_x.py").write_text("def test_x(): pass\n", encoding="utf-8")
    assert "1 passed" in run_pytest(tmp_path).stdout


def test_the_plugin_is_declared():
    import tomllib

    project = tomllib.loads((SAMPLES.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"ppo-doctor": "ppo_doctor.cli.pytest_plugin"}


def test_assert_healthy_returns_the_diagnosis():
    assert assert_healthy(HEALTHY, policy=Policy()).verdict == "healthy"


@pytest.mark.parametrize(("run", "words"), [(SICK, "Gate failed"), (SHORT, "Gate inconclusive")])
def test_assert_healthy_fails_with_the_report(run, words):
    with pytest.raises(AssertionError, match=words):
        assert_healthy(run, policy=Policy())


def test_assert_healthy_lets_a_wrong_call_through():
    with pytest.raises(DoctorError):
        assert_healthy("nowhere", policy=Policy())
