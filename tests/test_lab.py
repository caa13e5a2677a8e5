"""The lab behind the sample logs: its physics hold, and it writes the same files every time."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.lab import FAULTS, catalogue, run, selfcheck, write

SAMPLES = Path(__file__).resolve().parent.parent / "sample_logs"


@pytest.mark.parametrize("dialect", ["sb3", "trl-grpo"])
def test_every_fault_does_what_it_says(dialect):
    selfcheck.check_physics(dialect, seed=0)


def test_every_check_has_its_fault_and_other_faults_change_something():
    assert set(selfcheck.CHECKS) <= set(FAULTS)
    selfcheck.check_switches("trl-grpo", seed=0)


def test_logs_show_what_was_trained():
    selfcheck.check_batch_invariance()
    selfcheck.check_twins()
    selfcheck.check_written_logs()


@pytest.mark.parametrize(("case", "dialect"), [("lr-zero", "sb3"), ("benign-single-update", "trl-grpo")])
def test_a_sample_log_can_be_made_again(tmp_path, case, dialect):
    entry = catalogue._write_sample(tmp_path, case, dialect)
    made = (tmp_path / entry.path).parent
    kept = (SAMPLES / entry.path).parent
    assert {file.name for file in made.iterdir()} == {file.name for file in kept.iterdir()}
    for file in made.iterdir():
        assert file.read_bytes() == (kept / file.name).read_bytes(), file.name
    shutil.rmtree(made)


@pytest.mark.parametrize("dialect", ["canonical", "sb3"])
@pytest.mark.parametrize("fault", ["lr-zero", "adv-exactly-zero"])
def test_a_run_that_dies_after_a_third_is_not_healthy(tmp_path, fault, dialect):
    """Severity 2 begins at 30 % of the run, so that 70 % of it are wasted."""
    import ppo_doctor

    log = write(run(fault, dialect=dialect, seed=14, severity=2, updates=40), dialect, tmp_path)
    diagnosis = ppo_doctor.analyze(log)
    assert diagnosis.verdict == "unhealthy"
    assert [cause.id for cause in diagnosis.causes][:1] == [fault]
    assert 0.25 < diagnosis.causes[0].onset_step / diagnosis.run.steps[1] < 0.4
