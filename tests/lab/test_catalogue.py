"""Faults of the rest of the catalogue: short runs name their cause, and say nothing of it where nothing is wrong."""

from __future__ import annotations

import dataclasses
import json

import numpy as np

import ppo_doctor
from lab.numpy_lab import FAULTS, run, write
from lab.numpy_lab.presets import dialect_task
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.diagnosis.analyze import diagnose, read_run
from ppo_doctor.runs.cleaning import since
from ppo_doctor.runs.reading import Request
from ppo_doctor.testing import case_run

PACK = load_pack()


def judged(fault, dialect, folder, *, updates, severity=3):
    record = run(fault, task=dialect_task(dialect), dialect=dialect, seed=1, severity=severity, updates=updates)
    return diagnose(read_run(str(write(record, dialect, folder)), Request(debug=True)), PACK)


def test_a_judge_who_disagrees_cannot_tell_a_gamed_reward_from_a_learnt_prompt(tmp_path):
    log = tmp_path / "run.jsonl"
    heights = [0.1 + 0.05 * min(i, 20) - 0.03 * max(i - 20, 0) for i in range(60)]
    rows = [
        {"step": i, "reward_mean": 0.1 + 0.01 * i, "eval_return": heights[i], "response_length": 200 + i % 7}
        for i in range(60)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    told = ppo_doctor.analyze(log)
    first = told.causes[0]
    assert (told.problems[0].state, first.confidence) == ("course", "suspected")
    assert {first.id, *first.level_with} >= {"reward-hacking", "generalisation-gap"}


def test_a_cause_is_spoken_of_once(tmp_path):
    found = judged("healthy", "canonical", tmp_path, updates=20, severity=2)
    listed = [cause.id for cause in found.not_ruled_out]
    assert len(listed) == len(set(listed))


def test_repeats_are_found_in_the_later_part_of_a_run_too():
    case = {"series": {"returns_mean": "0.1+0.13x19 2.71x19", "response_length": "51.3+0.7x19 60.25x19"}}
    whole = case_run(case)
    assert np.nansum(RunView(whole).series("batch_repeats").values) == 19
    assert np.nansum(RunView(since(whole, 22)).series("batch_repeats").values) == 17


def test_printed_numbers_repeat_without_meaning_it():
    case = {"series": {"explained_variance": "0.31x29"}, "resolution": {"explained_variance": 0.005}}
    assert RunView(case_run(case)).series("batch_repeats") is None


def test_faults_of_the_catalogue_have_causes():
    named = {fault.cause for fault in FAULTS.values()} - {"healthy"}
    assert named <= {cause.id for cause in PACK.causes} | {cause.id for cause in PACK.unjudged}


def test_a_loss_too_large_for_float32_says_nothing_about_repeats():
    run_ = case_run(
        {
            "framework": "trl-grpo",
            "config": {"num_iterations": 4, "gradient_accumulation_steps": 1, "steps_per_generation": 1, "beta": 0.0},
            "series": {"loss": "2400000x39", "reward_mean": "1 _ _ _ " * 10},
        }
    )
    change = RunView(run_).series("loss_change_within_batch")
    assert change is None or not np.isfinite(change.values).any()
    usual = dataclasses.replace(
        run_, series={**run_.series, "loss": dataclasses.replace(run_.series["loss"], values=np.full(40, 0.1))}
    )
    found = RunView(usual).series("loss_change_within_batch")
    assert found is not None
    assert (found.values == 0).all()
