"""The lab behind the sample logs: its physics hold, and what it trains again is the run that was kept.

Training multiplies rounding errors, and those depend on the processor: what is trained here is held against outcomes
and shapes, never against digits.
"""

from __future__ import annotations

import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

from lab.numpy_lab import FAULTS, catalogue, run, selfcheck, write
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose, read_run
from ppo_doctor.runs.reading import Request

SAMPLES = Path(__file__).resolve().parent.parent.parent / "sample_logs"


def test_every_fault_does_what_it_says():
    """In one dialect; `python -m lab.numpy_lab selfcheck` has all of them."""
    selfcheck.check_physics("trl-grpo", 0, updates=40)


def test_every_check_has_its_fault():
    assert set(selfcheck.CHECKS) <= set(FAULTS)


def test_logs_show_what_was_trained():
    selfcheck.check_batch_invariance()
    selfcheck.check_twins()
    selfcheck.check_written_logs()


INDEX = {log["path"]: log for log in tomllib.loads((SAMPLES / "index.toml").read_text(encoding="utf-8"))["log"]}


@pytest.mark.parametrize(("case", "dialect"), [("lr-zero", "sb3"), ("benign-single-update", "trl-grpo")])
def test_a_sample_log_can_be_made_again(tmp_path, case, dialect):
    entry = catalogue._write_sample(tmp_path, case, dialect)
    listed = {name: tuple(value) if isinstance(value, list) else value for name, value in INDEX[entry.path].items()}
    assert asdict(entry) == listed
    made, kept = tmp_path / entry.path, SAMPLES / entry.path
    assert {file.name for file in made.parent.iterdir()} == {file.name for file in kept.parent.iterdir()}
    again, before = (read_run(str(log), Request()) for log in (made, kept))
    assert {name: len(series) for name, series in again.series.items()} == {
        name: len(series) for name, series in before.series.items()
    }
    settings = [{name: setting.value for name, setting in run.config.items()} for run in (again, before)]
    assert (again.steps, again.framework, settings[0]) == (before.steps, before.framework, settings[1])
    verdicts = [diagnose(run, load_pack()) for run in (again, before)]
    assert len({(found.verdict, *(cause.id for cause in found.causes if cause.leader)) for found in verdicts}) == 1


#: What a fault is called that begins when the run is under way.
ENDS_EARLY = {"lr-zero": "lr-schedule-horizon-wrong"}


@pytest.mark.parametrize(("fault", "dialect"), [("lr-zero", "sb3"), ("adv-exactly-zero", "canonical")])
def test_a_run_that_dies_after_a_third_is_not_healthy(tmp_path, fault, dialect):
    """Severity 2 begins at 30 % of the run, so that 70 % of it are wasted."""
    import ppo_doctor

    log = write(run(fault, dialect=dialect, seed=14, severity=2, updates=40), dialect, tmp_path)
    diagnosis = ppo_doctor.analyze(log)
    # How sure the why is depends on how near the last rewards are to the best seen, which no test should hold.
    assert diagnosis.verdict in ("unhealthy", "warning")
    assert diagnosis.causes[0].id in {fault, ENDS_EARLY.get(fault)}
    assert 0.25 < diagnosis.causes[0].onset_step / diagnosis.run.steps[1] < 0.4
