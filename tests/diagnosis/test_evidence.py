"""What a finding rests on, as data: the right records, lines and numbers, however the finding is named."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose, load_run
from ppo_doctor.diagnosis.evidence import MOST_FINDINGS, MOST_PLACES, show
from ppo_doctor.model.diagnosis import Diagnosis
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.run import Run
from tests.readers.test_samples import verl

SAMPLES = Path(__file__).resolve().parents[2] / "sample_logs"


@cache
def judged(path: Path) -> tuple[Run, Diagnosis]:
    run = load_run(path)
    return run, diagnose(run, load_pack())


def marked(shown):
    """Return the records of the first finding by their marks."""
    return {row.mark: row for row in shown.rests[0].records.rows if row.mark}


def test_the_records_around_an_onset_are_those_of_the_log():
    path = SAMPLES / "sick" / "nan-inf.sb3" / "progress.csv"
    shown = show("metric-not-finite", *judged(path))
    [rests] = shown.rests
    assert shown.kind == "finding"
    onset = marked(shown)["onset"]
    lines = path.read_text(encoding="utf-8").splitlines()
    header = lines[0].split(",")
    cells = dict(zip(header, lines[onset.source.line - 1].split(","), strict=True))
    key = rests.records.keys[0]
    assert int(cells["time/total_timesteps"]) == onset.step == rests.finding.onset_step
    assert not math.isfinite(float(cells[key]))
    assert not math.isfinite(onset.values[0])
    at = rests.records.rows.index(onset)
    assert all(math.isfinite(row.values[0]) for row in rests.records.rows[:at])
    assert rests.quotes[0].place.line == onset.source.line
    assert rests.quotes[0].excerpt.lines == ((onset.source.line, lines[onset.source.line - 1]),)


def test_the_worst_record_is_the_one_furthest_beyond_the_bound():
    run, diagnosis = judged(SAMPLES / "sick" / "clip-range-too-small.trl-grpo")
    shown = show("clipped-within-tiny-range", run, diagnosis)
    worst = marked(shown)["worst"]
    assert worst.values[0] == max(run.series["clip_fraction"].values)
    [quote] = [quote for quote in shown.rests[0].quotes if quote.place.line == worst.source.line]
    assert any("region_mean" in text for _, text in quote.excerpt.lines)
    assert len(quote.excerpt.lines) == 2  # the first line of the record, and the one with the key


def test_numbers_of_another_sign_than_in_the_log_are_said_to_be():
    shown = show("ratio-flat-while-moving", *judged(SAMPLES / "sick" / "old-policy-aliased.sb3"))
    records = shown.rests[0].records
    assert dict(zip(records.keys, records.made, strict=True))["train/entropy_loss"] == "times -1"
    assert records.made.count("") == len(records.made) - 1


@pytest.mark.parametrize(
    ("name", "kind", "first"),
    [
        ("1", "problem", "ratio-flat-while-moving"),
        ("p1", "problem", "ratio-flat-while-moving"),
        ("old-policy-aliased", "cause", "ratio-flat-while-moving"),
        ("ratio-identically-one", "finding", "ratio-identically-one"),
        ("RAT001", "finding", "ratio-identically-one"),
        ("ratio-id", "finding", "ratio-identically-one"),
        ("lr-z", None, None),
        ("entropy-gone", "finding", "entropy-gone"),
    ],
)
def test_a_finding_has_several_names(name, kind, first):
    run, diagnosis = judged(SAMPLES / "sick" / "old-policy-aliased.sb3")
    if kind is None:
        with pytest.raises(DoctorError):
            show(name, run, diagnosis)
        return
    shown = show(name, run, diagnosis)
    assert (shown.kind, shown.rests[0].finding.rule) == (kind, first)
    assert len(shown.rests) <= MOST_FINDINGS


@pytest.mark.parametrize(("name", "lists"), [("nothing", "old-policy-aliased"), ("99", "1 ("), ("ratio-", "ratio-id")])
def test_an_unknown_or_ambiguous_name_lists_those_of_the_run(name, lists):
    with pytest.raises(DoctorError) as caught:
        show(name, *judged(SAMPLES / "sick" / "old-policy-aliased.sb3"))
    assert caught.value.code == ExitCode.USAGE
    assert lists in caught.value.hint


def test_a_problem_that_no_finding_shows_has_the_records_of_the_reward():
    run, diagnosis = judged(SAMPLES / "sick" / "nan-inf.sb3")
    fall = next(problem for problem in diagnosis.problems if problem.link == "rewards")
    bare = replace(fall, id="p1", findings=(), causes=())
    causes = tuple(replace(cause, problem="") for cause in diagnosis.causes)
    shown = show("1", run, replace(diagnosis, problems=(bare,), causes=causes))
    marks = {row.mark: row.step for row in shown.records.rows if row.mark}
    assert marks["best"] == diagnosis.outcome.best_step
    assert marks["onset"] == diagnosis.outcome.since_step


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("sick/*"))[::4], ids=lambda path: path.name)
def test_evidence_is_bounded_and_every_row_is_in_the_log(path):
    run, diagnosis = judged(path)
    for finding in [finding for finding in diagnosis.findings if finding.status == "fired"]:
        [rests] = show(finding.rule, run, diagnosis).rests
        assert len(rests.quotes) <= MOST_PLACES
        rows = rests.records.rows if rests.records is not None else ()
        assert len(rows) <= 13
        assert [row.step for row in rows] == sorted(row.step for row in rows)
        for row in rows:
            series = run.series[rests.records.metrics[0]]
            assert row.values[0] in series.values[series.axis.steps == row.step] or math.isnan(row.values[0])


def a_run(folder: Path) -> Path:
    """Write a log whose completions grow while the reward does not."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "log.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for step in range(1, 101):
            record = {"step": step, "critic/score/mean": 0.5, "actor/ppo_kl": 0.001, "actor/entropy": 0.5}
            record |= {"response_length/mean": 100 + 9 * step, "response_length/clip_ratio": step / 120}
            file.write(json.dumps({**record, "actor/pg_loss": 0.01, "actor/grad_norm": 1.0}) + "\n")
    return path


def test_answers_beside_the_log_are_shown_where_a_finding_rests_on_samples(tmp_path):
    run, diagnosis = judged(a_run(tmp_path))
    for step in (1, 50, 100):
        verl(tmp_path / "rollout", step, [("x" * step, 0.1), ("paid", 1.0)])
    shown = show("completions-grow-into-limit", run, diagnosis)
    assert shown.answers.longest[0].length == 100
    assert shown.answers.highest[0].answer == "paid"
    assert show("zero-in-print-only", run, diagnosis).answers is None


def test_answers_can_be_named(tmp_path):
    run, diagnosis = judged(a_run(tmp_path / "run"))
    table = verl(tmp_path / "elsewhere", 3, [("a", 1.0)])
    assert show("completions-grow-into-limit", run, diagnosis).answers is None
    for given in (table, table.parent):
        assert show("completions-grow-into-limit", run, diagnosis, samples=[given]).answers.rows == 1
    with pytest.raises(DoctorError, match="no table of answers"):
        show("completions-grow-into-limit", run, diagnosis, samples=[tmp_path / "gone"])


def test_tables_outside_of_the_allowed_folders_are_not_read(tmp_path):
    run, diagnosis = judged(a_run(tmp_path / "root" / "run"))
    hidden = verl(tmp_path / "elsewhere", 3, [("secret", 1.0)])
    verl(tmp_path / "root" / "run" / "rollout", 2, [("mine", 1.0)])
    (tmp_path / "root" / "run" / "rollout" / "3.jsonl").symlink_to(hidden)
    name = "completions-grow-into-limit"
    allowed = show(name, run, diagnosis, within=[tmp_path / "root"]).answers
    assert [sample.answer for sample in allowed.highest] == ["mine"]
    assert show(name, run, diagnosis).answers.rows == 2
    assert show(name, run, diagnosis, samples=[hidden], within=[tmp_path / "root"]).answers is None


def test_a_line_of_many_records_is_not_quoted(tmp_path):
    history = [{"step": n, "reward": 0.1 * n, "reward_std": 0.1, "kl": 0.0, "learning_rate": 0.0} for n in range(1, 60)]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": history}), encoding="utf-8")
    [rests] = show("rate-always-zero", *judged(path)).rests
    assert all(quote.excerpt.lines == () and quote.excerpt.because for quote in rests.quotes)
