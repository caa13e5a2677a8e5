"""Other settings over the same records give what `--set` gives when it reads the log again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.cli.analyze import cases_of
from ppo_doctor.cli.interactive.subjects import Session
from ppo_doctor.diagnosis.analyze import diagnose, read_run
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.request import Request
from ppo_doctor.report import render
from ppo_doctor.runs.config_runs import settable, supposed
from tests.cli.interactive.stage import Screen, drive

LOGS = (
    "sick/old-policy-aliased.sb3/progress.csv",
    "sick/clip-range-too-small.trl-grpo/trainer_state.json",
    "sick/old-policy-aliased.cleanrl/metrics.jsonl",
    "sick/target-kl-stops-early.canonical/run.jsonl",
    "healthy/healthy.trl-ppo/trainer_state.json",
)


SETTINGS = ({"clip_range": 0.31}, {"target_kl": 0.001}, {"ppo_epochs": 1}, {"learning_rate": 0.0, "ppo_epochs": 7})


def judged(diagnosis):
    """Return what a diagnosis says, without where settings come from."""
    causes = [(c.id, c.confidence, c.score_db, c.leader) for c in diagnosis.causes]
    findings = [(f.rule, f.status, f.onset_step) for f in diagnosis.findings]
    return diagnosis.verdict, causes, findings, diagnosis.run.updates_per_batch.effective


@pytest.fixture(scope="module")
def pack():
    return load_pack()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("log", LOGS)
def test_supposing_is_setting_without_reading_again(log, settings, samples, pack):
    path = str(samples / log)
    run = read_run(path, Request())
    if not set(settings) <= set(settable(run)):
        pytest.skip("this framework has no such setting")
    again = read_run(path, Request(settings=settings))
    assert judged(diagnose(supposed(run, settings), pack)) == judged(diagnose(again, pack))


def test_some_supposition_changes_a_verdict(samples, pack):
    """The equality above would hold of a function that ignores its settings, if no setting ever mattered."""
    run = read_run(str(samples / "healthy/healthy.canonical/run.jsonl"), Request())
    before = judged(diagnose(run, pack))
    assert judged(diagnose(supposed(run, {"ppo_epochs": 16}), pack)) != before


def test_k_can_be_supposed_where_the_log_does_not_show_it(samples, pack):
    run = read_run(str(samples / "sick/old-policy-aliased.cleanrl/metrics.jsonl"), Request())
    blind = replace(run, facts={}, config={}, series={n: s for n, s in run.series.items() if "steps" not in n})
    one = diagnose(supposed(blind, {"K": 1}), pack)
    four = diagnose(supposed(blind, {"K": 4}), pack)
    assert one.run.updates_per_batch.configured == 1
    assert four.run.updates_per_batch.configured == 4
    assert any("hypothetical: K = 1" in note for note in one.run.notes)


def test_nothing_supposed_is_the_run_itself(samples):
    run = read_run(str(samples / LOGS[0]), Request())
    assert supposed(run, {}) is run


@pytest.mark.parametrize("overrides", [{"no_such": 1}, {"K": 0}, {"K": "four"}, {"K": True}, {"K": -2}, {"K": None}])
def test_what_cannot_be_supposed_is_refused_with_a_reason(overrides, samples):
    run = read_run(str(samples / LOGS[0]), Request())
    with pytest.raises(DoctorError):
        supposed(run, overrides)


def test_a_refused_supposition_leaves_what_was_supposed_before(samples, pack):
    run = read_run(str(samples / LOGS[0]), Request())
    case = cases_of([(run, diagnose(run, pack))], Request(), pack)[0]
    session = Session(cases=(case,))
    session.suppose("clip_range", 0.3)
    shown = session.diagnosis
    with pytest.raises(DoctorError):
        session.suppose("K", "many")
    assert session.overrides == {"clip_range": 0.3}
    assert session.diagnosis is shown
    session.reset()
    assert session.diagnosis is case.diagnosis


def test_a_refusal_is_told_on_the_screen(samples, pack):
    run = read_run(str(samples / LOGS[0]), Request())

    async def script(screen: Screen) -> None:
        await screen.app.suppose("K", "many")
        await screen.wait_for(lambda: "K = many" in screen.text())
        assert screen.app.session.overrides == {}

    drive(script, cases_of([(run, diagnose(run, pack))], Request(), pack))


def test_the_report_and_json_come_from_the_same_diagnosis(samples, cli, tmp_path):
    """What `--format json` prints, what the report exports, and what it shows: one diagnosis."""
    path = samples / "sick/old-policy-aliased.sb3/progress.csv"
    printed = cli("analyze", path, "--format", "json").out
    request, pack = Request(), load_pack()
    run = read_run(str(path), request)
    cases = cases_of([(run, diagnose(run, pack, request))], request, pack)

    async def script(screen: Screen) -> None:
        for format in ("json", "text", "html"):
            screen.app.export(format, tmp_path / f"report.{format}")
        diagnosis = screen.app.session.diagnosis
        leading = [cause.title for cause in diagnosis.causes if cause.leader]
        assert all(title in " ".join(screen.page.split()) for title in leading)

    app = drive(script, cases)
    assert (tmp_path / "report.json").read_text(encoding="utf-8") == printed
    assert render(app.session.diagnosis, app.session.run, app.options, "json") == printed
