"""The package of real trainers without any trainer: truth, edits, grading; one run where a trainer is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import run, write
from tests.lab.real.board import Judged, judge, matrix, missed, summary
from tests.lab.real.cases import Plan, chosen, made, make
from tests.lab.real.edits import edited


class Trainer:
    def step(self) -> int:
        rate = 3
        return 2 * rate


def lab_run(fault: str):
    def train(folder: Path, seed: int) -> Path:
        return write(run(fault, task="control", dialect="sb3", seed=seed, updates=40), "sb3", folder)

    return train


def crash(folder: Path, _seed: int) -> Path:
    (folder / "progress.csv").write_text("train/approx_kl,train/n_updates\n0.1,4\n")
    raise ValueError("Expected parameter logits to be finite\nmore")


def plan(fault: str, train=None) -> Plan:
    return Plan(
        dialect="sb3", fault=fault, cause=fault, variant="a b", seed=1, made="by hand", train=train or lab_run(fault)
    )


def test_a_changed_line_changes_what_the_method_does():
    assert edited(Trainer.step, {"rate = 3": "rate = 5"})(Trainer()) == 10
    assert Trainer().step() == 6


@pytest.mark.parametrize("old", ["rate = 4", "rate"])
def test_a_line_that_is_not_there_once_is_refused(old):
    with pytest.raises(ValueError, match="not once"):
        edited(Trainer.step, {old: "rate = 5"})


def test_a_run_is_made_once_and_read_back(tmp_path):
    first = make(tmp_path, plan("lr-zero"), "a trainer")
    stamp = first.log.stat().st_mtime_ns
    assert make(tmp_path, plan("lr-zero"), "a trainer") == first
    assert made(tmp_path) == [first]
    assert first.log.stat().st_mtime_ns == stamp
    assert (first.fault, first.ended) == ("lr-zero", "finished")


def test_a_crash_keeps_what_was_logged(tmp_path):
    kept = make(tmp_path, plan("nan-inf", crash), "a trainer")
    assert kept.ended == "ValueError: Expected parameter logits to be finite"
    assert kept.log.name == "progress.csv"


def test_a_crash_without_a_log_is_no_run(tmp_path):
    def fail(_folder: Path, _seed: int) -> Path:
        raise ValueError("no such setting")

    with pytest.raises(ValueError, match="no such setting"):
        make(tmp_path, plan("nan-inf", fail), "a trainer")
    assert made(tmp_path) == []


def test_grades_tell_a_named_fault_a_missed_one_and_a_sound_run(tmp_path):
    named = judge(make(tmp_path, plan("lr-zero"), "t"))
    other = judge(make(tmp_path, plan("nan-inf", lab_run("healthy")), "t"))
    sound = judge(make(tmp_path, plan("healthy"), "t"))
    assert (named.grade, other.grade, sound.grade) == ("first", "silent", "calm")
    told = summary([named, other, sound])
    assert "2 faulty runs: 1 named" in told
    assert "1 sound runs: 0 false alarms" in told
    assert "| lr-zero | 1 first |" in matrix([named, other, sound])
    assert [line.split()[2] for line in missed([named, other, sound]).splitlines()] == ["nan-inf"]


def test_an_alarm_on_a_sound_run_is_counted(tmp_path):
    alarmed: Judged = judge(make(tmp_path, plan("healthy", lab_run("lr-zero")), "t"))
    assert alarmed.grade == "wrong"
    assert "1 sound runs: 1 false alarms" in summary([alarmed])


def test_plans_are_chosen_by_fault_and_trainer():
    plans = [plan("lr-zero"), plan("healthy")]
    assert [p.fault for p in chosen(plans, (), ())] == ["lr-zero", "healthy"]
    assert [p.fault for p in chosen(plans, ("sb3",), ("healthy",))] == ["healthy"]
    assert not list(chosen(plans, ("trl-ppo",), ()))


@pytest.mark.skipif(not importlib.util.find_spec("stable_baselines3"), reason="the group real-sb3 is not installed")
def test_the_real_trainer_is_diagnosed(tmp_path):
    command = [sys.executable, "-m", "tests.lab.real", str(tmp_path), "--dialect", "sb3", "--fault", "lr-zero"]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[1])
    (only,) = made(tmp_path)
    assert judge(only).grade == "first"
