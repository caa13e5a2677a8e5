"""What a shell sees: exit codes, streams, formats and options."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import pytest

from ppo_doctor.checks.run_view import STATISTICS

SAMPLES = Path(__file__).resolve().parent.parent / "sample_logs"
SICK = SAMPLES / "sick" / "lr-zero.canonical" / "run.jsonl"
MEDIUM = SAMPLES / "sick" / "target-kl-stops-early.canonical" / "run.jsonl"
HEALTHY = SAMPLES / "healthy" / "healthy.canonical" / "run.jsonl"
SHORT = SAMPLES / "broken" / "three-records.canonical" / "run.jsonl"
STRANGE = SAMPLES / "broken" / "unknown-keys.canonical" / "run.jsonl"
EMPTY = SAMPLES / "broken" / "empty.canonical" / "run.jsonl"


@pytest.mark.parametrize(
    ("log", "fail_on", "code"),
    [
        (SICK, "never", 0),
        (SICK, "critical", 1),
        (SICK, "low", 1),
        (MEDIUM, "high", 0),
        (MEDIUM, "medium", 1),
        (HEALTHY, "low", 0),
        (SHORT, "never", 0),
        (SHORT, "critical", 4),
        (SHORT, "low", 4),
    ],
    ids=lambda value: value.parent.name if isinstance(value, Path) else str(value),
)
def test_exit_code_follows_fail_on(cli, log, fail_on, code):
    assert cli("analyze", log, "--fail-on", fail_on).code == code


def test_without_fail_on_a_sick_run_exits_with_zero(cli):
    assert cli("analyze", SICK).code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["analyze", SICK, "--no-such-option"],
        ["analyze"],
        ["no-such-command"],
        ["analyze", SICK, "--set", "ppo_epochs"],
        ["analyze", SICK, "--set", "=4"],
        ["analyze", SICK, "--steps", "ten:20"],
        ["analyze", SICK, "--steps", "10"],
        ["analyze", SICK, "--select", "learning-rate-zer"],
        ["analyze", SICK, "--ignore", "nothing-like-it-at-all"],
        ["analyze", SICK, "--format", "yaml"],
        ["analyze", SICK, "--framework", "no-such-framework"],
        ["analyze", SICK, "--fail-on", "info"],
        ["analyze", SICK, "--rules", "/no/such/folder"],
        ["analyze", SICK, "--config", "/no/such/config.json"],
        ["analyze", SICK, "--format", "json="],
        ["explain", "learning-rate-zer"],
    ],
    ids=lambda arguments: " ".join(str(a) for a in arguments if a is not SICK),
)
def test_wrong_usage_exits_with_two(cli, arguments):
    outcome = cli(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.strip()
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("bad", ["{not json", "[1, 2]", '{"a": ', "\xff"], ids=["text", "list", "torn", "binary"])
@pytest.mark.parametrize("suffix", [".json", ".toml"])
def test_an_unreadable_configuration_is_named(cli, tmp_path, bad, suffix):
    file = tmp_path / f"settings{suffix}"
    file.write_bytes(bad.encode("latin-1"))
    outcome = cli("analyze", SICK, "--config", file)
    assert outcome.code == 2
    assert file.name in outcome.err


@pytest.mark.parametrize("source", [Path("nowhere.jsonl"), EMPTY, STRANGE], ids=["missing", "empty", "unknown keys"])
def test_nothing_to_judge_exits_with_three(cli, validate, source):
    outcome = cli("analyze", source, "--format", "json")
    assert outcome.code == 3
    validate(outcome.json)
    assert outcome.json["error"]["code"] == 3
    assert source.name in outcome.json["error"]["message"]
    assert source.name in outcome.err


def test_steps_without_any_record_exit_with_three(cli):
    assert cli("analyze", SICK, "--steps", "900000:900001").code == 3


def test_a_gate_error_is_an_object_too(cli, validate):
    outcome = cli("analyze", SICK, "--steps", "x", "--format", "json")
    assert outcome.code == 2
    validate(outcome.json)


def explode(*_arguments, **_options):
    raise ZeroDivisionError("made to fail")


def test_a_bug_exits_with_70_and_shows_no_traceback(cli, monkeypatch):
    monkeypatch.setattr("ppo_doctor.diagnosis.attempt.diagnose", explode)
    outcome = cli("analyze", SICK)
    assert outcome.code == 70
    assert outcome.out == ""
    assert "ZeroDivisionError" in outcome.err
    assert "Traceback" not in outcome.err


def test_debug_shows_the_traceback_of_a_bug(cli, monkeypatch):
    monkeypatch.setattr("ppo_doctor.diagnosis.attempt.diagnose", explode)
    outcome = cli("analyze", SICK, "--debug")
    assert outcome.code == 70
    assert "Traceback" in outcome.err
    assert "in explode" in outcome.err


@pytest.mark.parametrize("error", [EOFError("cut off"), RecursionError("deep"), MemoryError(), SystemExit("words")])
def test_no_failure_has_the_code_of_a_cause(cli, monkeypatch, error):
    """Libraries end a program in ways of their own: typer with 1 for an EOFError."""

    def fail(*_arguments):
        raise error

    monkeypatch.setattr("ppo_doctor.diagnosis.attempt.diagnose", fail)
    assert cli("analyze", SICK).code == 70


@pytest.mark.parametrize(
    ("function", "rule"),
    [
        ("nonfinite_from", "metric-not-finite"),
        ("ratio_departure", "ratio-identically-one"),
        ("updates_observed", "fewer-updates-than-configured"),
    ],
)
def test_a_rule_that_fails_is_reported_and_counts_as_skipped(cli, monkeypatch, validate, function, rule):
    broken = dataclasses.replace(STATISTICS[function], function=explode)
    monkeypatch.setitem(STATISTICS, function, broken)
    outcome = cli("analyze", HEALTHY, "--format", "json")
    assert outcome.code == 0, outcome.err
    validate(outcome.json)
    finding = next(finding for finding in outcome.json["checks"] if finding["name"] == rule)
    assert finding["answer"] == "errored"
    assert "ZeroDivisionError" in finding["reason"]
    assert outcome.json["coverage"]["errored"] >= 1
    assert outcome.json["verdict"] == "inconclusive"
    assert outcome.json["coverage"]["numerics"] is (rule != "metric-not-finite")
    gate = cli("gate", HEALTHY)
    assert gate.code == 4, gate.out
    assert rule in gate.out


def test_three_records_are_too_few(cli):
    report = cli("analyze", SHORT, "--format", "json").json
    assert report["verdict"] == "inconclusive"
    assert report["causes"] == []


METRICS = {
    "policy_loss": -0.01,
    "value_loss": 0.5,
    "entropy": 1.0,
    "approx_kl": 0.01,
    "clip_fraction": 0.1,
    "grad_norm": 0.5,
    "learning_rate": 3e-4,
    "reward_mean": 1.0,
    "advantages_std": 1.0,
    "explained_variance": 0.5,
}


def write_log(path, broken=()):
    lines = [
        {"step": step}
        | {name: float("nan") if name in broken else v * (1 + step % 7 / 50) for name, v in METRICS.items()}
        | {"reward_mean": 1.0 + step / 20}
        for step in range(1, 41)
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def test_the_same_log_with_finite_numbers_is_healthy(cli, tmp_path):
    assert cli("analyze", write_log(tmp_path / "run.jsonl"), "--format", "json").json["verdict"] == "healthy"


@pytest.mark.parametrize("metric", ["policy_loss", "value_loss", "entropy", "approx_kl", "grad_norm", "learning_rate"])
def test_a_vital_metric_of_nothing_but_nan_is_never_healthy(cli, tmp_path, metric):
    outcome = cli("analyze", write_log(tmp_path / "run.jsonl", [metric]), "--format", "json", "--fail-on", "low")
    assert outcome.json["verdict"] == "unhealthy"
    assert outcome.code == 1
    assert outcome.err == ""


def test_a_log_of_nothing_but_nan_is_never_healthy(cli, tmp_path):
    outcome = cli("analyze", write_log(tmp_path / "run.jsonl", METRICS), "--format", "json", "--fail-on", "low")
    assert outcome.json["verdict"] != "healthy"
    assert outcome.code in (1, 4)


def test_steps_that_no_integer_holds_are_refused_or_renumbered(cli, tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text("".join(f'{{"step": {k}e300, "approx_kl": 0.01}}\n' for k in range(1, 9)), encoding="utf-8")
    outcome = cli("analyze", path, "--format", "json")
    assert outcome.code in (0, 3)
    assert outcome.code == 3 or min(outcome.json["run"]["steps"]) >= 0


def test_a_folder_stands_for_its_log(cli):
    report = cli("analyze", SICK.parent, "--format", "json").json
    assert [Path(source["path"]).name for source in report["run"]["sources"]] == ["run.jsonl"]
    assert report["causes"][0]["id"] == "lr-zero"


def test_a_run_folder_with_its_configuration_is_one_run(cli, validate):
    folder = SAMPLES / "sick" / "lr-zero.sb3"
    report = cli("analyze", folder / "progress.csv", folder / "config.json", "--format", "json").json
    validate(report)
    assert report["run"]["config"]["n_epochs"] == 4


def test_a_glob_stands_for_every_run(cli, validate):
    report = cli("analyze", SAMPLES / "sick" / "lr-zero.*" / "*[!g].[jc]s*", "--format", "json").json
    validate(report)
    assert {d["run"]["framework"] for d in report["diagnoses"]} == {"canonical", "sb3", "trl-grpo"}


def test_several_runs_give_the_worst_code_and_one_diagnosis_each(cli, validate):
    outcome = cli("analyze", HEALTHY, SICK, SHORT, "--format", "json", "--fail-on", "high")
    validate(outcome.json)
    assert [d["verdict"] for d in outcome.json["diagnoses"]] == ["healthy", "unhealthy", "inconclusive"]
    assert outcome.code == 1
    assert cli("analyze", HEALTHY, SHORT, "--fail-on", "high").code == 4
    assert cli("analyze", HEALTHY, HEALTHY, "--fail-on", "high").code == 0


@pytest.mark.parametrize("bad", [EMPTY, STRANGE, Path("nowhere.jsonl")], ids=["empty", "unknown keys", "missing"])
def test_one_unreadable_run_does_not_hide_a_sick_one(cli, bad):
    outcome = cli("analyze", bad, SICK, "--fail-on", "high")
    assert outcome.code == 1
    assert bad.name in outcome.err
    assert "lr-zero" in outcome.out


def test_one_unreadable_run_is_worse_than_an_inconclusive_one(cli):
    assert cli("analyze", EMPTY, SHORT, "--fail-on", "high").code == 3


def test_a_summary_names_every_run(cli):
    out = cli("analyze", HEALTHY, SICK).out
    assert "healthy.canonical" in out
    assert "lr-zero.canonical" in out


def test_empty_stdin_exits_with_three(cli):
    assert cli("analyze", "-", stdin=b"").code == 3


def test_a_folder_may_have_any_name(cli, tmp_path):
    folder = tmp_path / "run [1] *ü 'x'"
    folder.mkdir()
    shutil.copy(SICK, folder / "run.jsonl")
    assert cli("analyze", folder / "run.jsonl", "--format", "json").json["verdict"] == "unhealthy"


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["analyze", "--help"], ["rules", "--help"], ["--version"], ["frameworks"], ["rules", "test"]],
)
def test_harmless_commands_exit_with_zero(cli, arguments):
    outcome = cli(*arguments)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out


@pytest.mark.parametrize("command", ["analyze", "gate"])
def test_a_name_that_is_nearly_right_is_named(cli, command):
    for option, wrong, right in (
        ("--ignore", "metric-not-finit", "metric-not-finite"),
        ("--select", "metric-not-finit", "metric-not-finite"),
        ("--framework", "cleanlr", "cleanrl"),
        ("--framework", "SB3", "sb3"),
    ):
        outcome = cli(command, SICK, option, wrong)
        assert (outcome.code, right in outcome.err) == (2, True), (option, outcome.err)


def test_a_name_that_is_nearly_right_is_explained(cli):
    assert "learning-rate-zero" in cli("explain", "learning-rate-zer").err


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("analyze --format ", {"text", "json", "html", "markdown", "sarif", "junit", "github"}),
        ("gate --fail-on ", {"critical", "high", "medium", "low", "never"}),
        ("analyze --framework trl-", {"trl-ppo", "trl-grpo"}),
        ("explain lr-", {"lr-zero", "lr-too-high"}),
        ("explain approx_", {"approx_kl"}),
        ("explain trl-", {"trl-ppo", "trl-grpo"}),
        ("analyze --ignore metric-not-f", {"metric-not-finite"}),
    ],
)
def test_a_shell_is_offered_values(cli, monkeypatch, words, offered):
    place = {"COMP_WORDS": f"ppo-doctor {words}", "COMP_CWORD": str(len(words.split(" ")))}
    for name, value in (place | {"_PPO_DOCTOR_COMPLETE": "complete_bash"}).items():
        monkeypatch.setenv(name, value)
    # click names the program by its first argument unless `python -m` started a package.
    monkeypatch.setattr(sys.modules["__main__"], "__package__", None)
    outcome = cli()
    assert outcome.code == 0
    assert offered <= set(outcome.out.split())
