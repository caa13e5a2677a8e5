"""The lab behind the sample logs: its physics hold, and what it trains again is the run that was kept.

Training multiplies rounding errors, and those depend on the processor: what is trained here is held against outcomes
and shapes, never against digits.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import tomllib
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import ppo_doctor
from lab import reports
from lab.ablation import PARTS, RULES
from lab.numpy_lab import FAULTS, catalogue, run, selfcheck, write
from lab.numpy_lab.presets import dialect_task
from lab.scripts import answers, is_table, names_in, table
from ppo_doctor.checks.cases import case_run
from ppo_doctor.checks.rulepack import build, load_pack
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.diagnosis.analyze import diagnose, read_run
from ppo_doctor.model.request import Request
from ppo_doctor.model.toml_files import parse_folder
from ppo_doctor.runs.log_runs import since

SAMPLES = Path(__file__).resolve().parent.parent.parent / "sample_logs"


def test_every_fault_does_what_it_says():
    """In one dialect; `python -m lab.numpy_lab selfcheck` has all of them."""
    selfcheck.check_physics("trl-grpo", 0, updates=25)


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
    log = write(run(fault, dialect=dialect, seed=14, severity=2, updates=40), dialect, tmp_path)
    diagnosis = ppo_doctor.analyze(log)
    # How sure the why is depends on how near the last rewards are to the best seen, which no test should hold.
    assert diagnosis.verdict in ("unhealthy", "warning")
    assert diagnosis.causes[0].id in {fault, ENDS_EARLY.get(fault)}
    assert 0.25 < diagnosis.causes[0].onset_step / diagnosis.run.steps[1] < 0.4


@pytest.fixture(scope="module")
def whole():
    """Return what all rules and causes build."""
    return parse_folder(RULES, build)


@pytest.mark.parametrize("part", [name for name in PARTS if name != "nothing"])
def test_a_part_is_gone_and_the_rest_still_builds(part, whole, tmp_path):
    rules = Path(shutil.copytree(RULES, tmp_path / "rules"))
    PARTS[part](rules)
    assert parse_folder(rules, build) != whole


def test_a_report_within_its_lines_whose_action_tells_the_value(monkeypatch, capsys, samples):
    monkeypatch.setattr(reports, "given", lambda: [[str(samples / "sick/lr-zero.sb3")]])
    reports.main()
    told = capsys.readouterr().out
    assert "unhealthy: 1 reports" in told
    assert "over their limit: 0" in told
    assert "is held: 1, with its value 1" in told


def test_every_sample_is_given_once():
    named = [files[-1] for files in reports.given()]
    assert len([name for name in named if "old-policy-aliased.sb3" in name]) == 1


ROWS = """script_id,name,canonical,unit_or_sign,context
a,policy_loss,policy_loss,,
a,value_loss,value_loss,,
a,cf%,clip_frac,percent,
a,kl,approx_kl,,
a,ent,entropy,,
a,zz,other,,
a,vloss,value_loss,,
b,loss,policy_loss,,
b,kl,ref_kl,,
b,approx_kl,approx_kl,,
b,mystery,entropy,,
"""


@pytest.fixture
def names(tmp_path):
    path = tmp_path / "names.csv"
    path.write_text(ROWS, encoding="utf-8")
    return path


def test_each_name_is_answered(names):
    held = list(names_in(names))
    told = {(name.script, name.key): answer for name, answer in zip(held, answers(held), strict=True)}
    assert told["a", "policy_loss"] == ("right", "right")
    assert told["a", "cf%"] == ("missed", "right")
    assert told["a", "vloss"] == ("again", "again")
    assert told["a", "zz"] == ("", "")
    assert told["b", "loss"][1] == "vaguer"
    assert told["b", "kl"][1] in ("wrong", "missed")
    assert told["b", "mystery"] == ("missed", "missed")


def test_a_table_is_told_in_two_lines_and_its_errors(names):
    lines = list(table(names))
    assert lines[0] == "names.csv: 2 scripts, 11 names"
    assert [line.split(":")[0].strip() for line in lines[1:3]] == ["by name", "with company"]


def test_a_table_of_scripts_is_told_from_one_of_frameworks(names, tmp_path):
    other = tmp_path / "frameworks.csv"
    other.write_text("framework,native_key,canonical\n", encoding="utf-8")
    assert is_table(names)
    assert not is_table(other)


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
