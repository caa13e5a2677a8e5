"""Where output goes and what may be in it: files, streams, colour, options that change the judgement."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).resolve().parent.parent.parent / "sample_logs"
SICK = SAMPLES / "sick" / "lr-zero.canonical" / "run.jsonl"
HEALTHY = SAMPLES / "healthy" / "healthy.canonical" / "run.jsonl"
COMMAND = [sys.executable, "-m", "ppo_doctor"]


def test_report_on_stdout_and_nothing_on_stderr(cli):
    run = cli("analyze", SICK, "--fail-on", "high")
    assert (run.code, run.err) == (1, "")
    assert "lr-zero" in run.out


@pytest.mark.parametrize(("argument", "code"), [("nowhere.jsonl", 3), ("--nonsense", 2)])
def test_errors_on_stderr_and_nothing_on_stdout(cli, argument, code):
    run = cli("analyze", argument)
    assert (run.code, run.out) == (code, "")
    assert argument in run.err
    assert "Traceback" not in run.err


def test_stdin_of_the_process():
    command = [*COMMAND, "analyze", "-", "--format", "json"]
    report = json.loads(subprocess.run(command, input=SICK.read_bytes(), capture_output=True, check=True).stdout)
    assert report["causes"][0]["id"] == "lr-zero"
    assert report["run"]["sources"][0]["path"] == "-"


def test_a_reader_that_leaves_is_no_failure():
    """`| head` must not turn a healthy gate red: exit code 1 means a sick run. These are more than a pipe holds."""
    command = [*COMMAND, "analyze", *[str(HEALTHY)] * 40, "--format", "json", "--fail-on", "high"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_an_interrupt_is_no_diagnosis(cli, monkeypatch):
    def interrupt(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("ppo_doctor.diagnosis.attempt.diagnose", interrupt)
    assert cli("analyze", HEALTHY).code == 130


def escapes(text):
    return "\x1b" in text


def test_colour_can_be_forced_and_refused(cli, monkeypatch):
    assert not escapes(cli("analyze", SICK).out)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert escapes(cli("analyze", SICK).out)
    assert not escapes(cli("analyze", SICK, "--no-color").out)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not escapes(cli("analyze", SICK).out)


def test_output_file(cli, validate, tmp_path):
    outcome = cli("analyze", SICK, "--format", "json", "-o", tmp_path / "report.json")
    assert (outcome.code, outcome.out) == (0, "")
    validate(json.loads((tmp_path / "report.json").read_text(encoding="utf-8")))
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_two_formats_at_once(cli, validate, tmp_path):
    file = tmp_path / "report.json"
    outcome = cli("analyze", SICK, "--format", "text", "--format", f"json={file}")
    report = json.loads(file.read_text(encoding="utf-8"))
    validate(report)
    assert report["causes"][0]["title"] in outcome.out


def test_an_error_reaches_the_json_file(cli, validate, tmp_path):
    file = tmp_path / "report.json"
    assert cli("analyze", "nowhere.jsonl", "--format", f"json={file}").code == 3
    validate(json.loads(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize("target", ["folder", "no/such/report.json"])
def test_a_report_that_cannot_be_written_is_named_and_leaves_nothing_behind(cli, tmp_path, target):
    (tmp_path / "folder").mkdir()
    outcome = cli("analyze", SICK, "--format", "json", "-o", tmp_path / target)
    assert outcome.code == 2
    assert target in outcome.err
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


def test_two_reports_do_not_overwrite_each_other(cli, tmp_path):
    outcome = cli("analyze", SICK, "--format", "json", "--format", "text", "-o", tmp_path / "report")
    assert (outcome.code, list(tmp_path.iterdir())) == (2, [])


def test_quiet_says_less_and_all_and_why_say_more(cli):
    plain = cli("analyze", SICK).out
    assert len(cli("analyze", SICK, "--quiet").out) < len(plain)
    everything = cli("analyze", SICK, "--all").out
    assert "Losses and rewards are finite" in everything
    why = cli("analyze", SICK, "--why").out
    cause = cli("analyze", SICK, "--format", "json").json["causes"][0]
    ledger = [*cause["for"], *cause["against"]]
    assert len(ledger) > 2
    assert all(str(abs(entry["db"])) in why for entry in ledger)
    assert len(why) > len(plain)


def test_set_answers_the_question_about_k(cli):
    plain = cli("analyze", SAMPLES / "benign" / "benign-single-update.canonical" / "run.jsonl", "--format", "json").json
    assert plain["run"]["updates_per_batch"]["effective"] == 1
    told = cli("analyze", HEALTHY, "--set", "ppo_epochs=7", "--format", "json").json
    assert told["run"]["config"]["ppo_epochs"] == 7
    assert told["run"]["updates_per_batch"]["configured"] == 28


def test_config_is_read_from_where_it_is_named(cli, tmp_path):
    file = tmp_path / "settings.json"
    file.write_text('{"ppo_epochs": 3, "num_minibatches": 5}', encoding="utf-8")
    report = cli("analyze", HEALTHY, "--config", file, "--format", "json").json
    assert report["run"]["updates_per_batch"]["configured"] == 15


@pytest.mark.parametrize(
    ("steps", "expected"), [("10:20", [10, 20]), (":20", [1, 20]), ("70:", [70, 80]), (":", [1, 80]), ("-5:7", [1, 7])]
)
def test_steps_cut_the_run(cli, steps, expected):
    assert cli("analyze", HEALTHY, "--steps", steps, "--format", "json").json["run"]["steps"] == expected


def test_select_and_ignore_list_what_they_suppress(cli, validate):
    one = cli("analyze", SICK, "--select", "learning-rate-zero", "--format", "json").json
    validate(one)
    assert [finding["name"] for finding in one["checks"]] == ["learning-rate-zero"]
    assert "metric-not-finite" in one["suppressed"]
    rest = cli("analyze", SICK, "--ignore", "LR001", "--format", "json").json
    assert rest["suppressed"] == ["learning-rate-zero"]
    assert "learning-rate-zero" not in {finding["name"] for finding in rest["checks"]}


def test_a_run_that_was_hardly_checked_says_so(cli):
    report = cli("analyze", HEALTHY, "--select", "learning-rate-zero", "--format", "json").json
    assert [report["coverage"][answer] for answer in ("yes", "no", "unknown")] == [0, 1, 0]
    assert len(report["suppressed"]) > 100
    text = cli("analyze", HEALTHY, "--select", "learning-rate-zero").out
    assert f"{len(report['suppressed'])} left out on request" in " ".join(text.split())


def test_framework_overrules_detection(cli):
    report = cli("analyze", HEALTHY, "--framework", "canonical", "--format", "json").json
    assert report["run"]["framework"] == "canonical"
    log = SAMPLES / "healthy" / "healthy.sb3" / "progress.csv"
    other = cli("analyze", log, "--framework", "verl", "--format", "json").json["run"]
    assert other["framework"] == "verl"
    assert any("is read as approx_kl" in note for note in other["notes"])


def test_terminal_codes_in_a_log_stay_in_the_log(cli, tmp_path):
    path = tmp_path / "run.jsonl"
    lines = [{"step": k, "approx_kl": 0.01 * k, "\x1b[31mred\x1b]0;title\x07": k} for k in range(1, 30)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    for arguments in ([], ["--all", "--why"], ["--format", "json"]):
        outcome = cli("analyze", path, *arguments)
        assert outcome.code == 0
        assert not escapes(outcome.out + outcome.err)


def test_several_runs_with_options(cli, validate):
    report = cli("analyze", SICK, HEALTHY, "--steps", "20:60", "--format", "json").json
    validate(report)
    assert [diagnosis["run"]["steps"] for diagnosis in report["diagnoses"]] == [[20, 60], [20, 60]]
