"""The commands that CI runs: gate, compare and check-config, as a shell sees them."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.report.golden import check_golden

SAMPLES = Path(__file__).resolve().parents[2] / "sample_logs"
SICK = SAMPLES / "sick" / "lr-zero.canonical" / "run.jsonl"
HEALTHY = SAMPLES / "healthy" / "healthy.sb3"
SHORT = SAMPLES / "broken" / "three-records.canonical" / "run.jsonl"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Work where no policy of this repository is near."""
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("log", "code"), [(SICK, 1), (HEALTHY, 0), (SHORT, 4), (Path("none"), 3)])
def test_exit_codes(cli, log, code):
    assert cli("gate", log).code == code


def test_golden(cli, root, monkeypatch):
    monkeypatch.chdir(root)
    monkeypatch.setenv("COLUMNS", "100")
    check_golden("gate.txt", cli("gate", SICK.relative_to(root)).out)


@pytest.mark.parametrize("fault", ["lr-zero", "adv-exactly-zero", "old-policy-aliased", "epochs-not-executed"])
def test_twenty_updates_are_judged(cli, fault):
    assert cli("gate", SAMPLES / "sick" / f"{fault}.canonical", "--steps", "1:20").code == 1


@pytest.mark.parametrize("fault", ["lr-zero", "old-policy-aliased"])
def test_five_updates_are_judged(cli, fault):
    assert cli("gate", SAMPLES / "sick" / f"{fault}.canonical", "--steps", "1:5").code == 1


@pytest.mark.parametrize("updates", [5, 20])
def test_numbers_that_break_are_judged_early(cli, tmp_path, updates):
    log = tmp_path / "run.jsonl"
    bad = ({"step": n, "policy_loss": 0.1 if n < 2 else None, "grad_norm": 1.0 + n} for n in range(updates))
    log.write_text("\n".join(json.dumps(line) for line in bad).replace("null", "NaN"), encoding="utf-8")
    assert cli("gate", log).code == 1


def test_the_nearest_policy_is_used(cli, tmp_path):
    (tmp_path / "ppo-doctor.toml").write_text('budgets = ["explained_variance.last > 2"]', encoding="utf-8")
    outcome = cli("gate", HEALTHY)
    assert outcome.code == 1
    assert "budget explained_variance.last > 2 is broken" in outcome.out


def test_an_allowed_cause(cli, tmp_path):
    allow = '[[allow]]\ncause = "lr-zero"\nreason = "frozen"\nexpires = {}\n'
    policy = tmp_path / "policy.toml"
    policy.write_text(allow.format("2999-01-01"), encoding="utf-8")
    assert "allowed until 2999-01-01: frozen" in cli("gate", SICK, "--policy", policy).out
    policy.write_text(allow.format("2001-01-01"), encoding="utf-8")
    outcome = cli("gate", SICK, "--policy", policy)
    assert outcome.code == 1
    assert "which has passed" in outcome.out


def test_what_is_left_out_is_counted_and_listed(cli):
    outcome = cli("gate", SICK, "--ignore", "learning-rate-zero")
    assert "1 by select or ignore: learning-rate-zero" in outcome.out


def test_a_threshold_changes_the_finding(cli, tmp_path):
    config = {"ppo_epochs": 4, "target_kl": 0.0015}
    lines = [{"ppo_doctor": 1, "config": config}, *({"step": n, "approx_kl": 0.01 + n / 1e5} for n in range(20))]
    log = tmp_path / "run.jsonl"
    log.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    rule = "target-kl-below-any-step"
    policy = tmp_path / "p.toml"
    policy.write_text(f"[thresholds.{rule}]\ntarget = 0.001\n", encoding="utf-8")

    def status(*more):
        found = cli("gate", log, "--format", "json", "--all", *more).json["checks"]
        return next(finding["answer"] for finding in found if finding["name"] == rule)

    assert (status(), status("--policy", policy)) == ("yes", "no")


def test_a_baseline_of_the_same_run_passes(cli, tmp_path):
    main = tmp_path / "main.json"
    assert cli("analyze", SICK, "--format", "json", "-o", main).code == 0
    outcome = cli("gate", SICK, "--baseline", main)
    assert outcome.code == 0
    assert "as in the baseline" in outcome.out
    assert "fixed:" in cli("gate", HEALTHY, "--baseline", main).out


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema_version": "1"}', '{"schema_version": "9", "run": {}}', '{"loss": 1}']
)
def test_a_baseline_that_is_none_is_refused(cli, tmp_path, text):
    main = tmp_path / "main.json"
    main.write_text(text, encoding="utf-8")
    outcome = cli("gate", HEALTHY, "--baseline", main)
    assert outcome.code == 2
    assert "main.json" in outcome.err


def test_an_error_report_is_no_baseline(cli, tmp_path):
    main = tmp_path / "main.json"
    text = {"schema_version": "1", "error": {"code": 3, "message": "empty", "hint": ""}}
    main.write_text(json.dumps(text), encoding="utf-8")
    assert "empty" in cli("gate", HEALTHY, "--baseline", main).err


def test_all_formats_in_one_pass(cli, tmp_path):
    names = {"json": "r.json", "markdown": "r.md", "sarif": "r.sarif", "junit": "r.xml", "github": "r.txt"}
    formats = [part for name, file in names.items() for part in ("--format", f"{name}={tmp_path / file}")]
    outcome = cli("gate", SICK, "--format", "text", *formats)
    assert outcome.code == 1
    assert "Gate failed" in outcome.out
    assert all((tmp_path / file).stat().st_size for file in names.values())
    assert int(ET.parse(tmp_path / "r.xml").getroot().get("failures")) > 0  # noqa: S314 - our own output


def test_without_text_the_ruling_goes_to_stderr(cli):
    outcome = cli("gate", SICK, "--format", "json")
    assert outcome.json["verdict"] == "unhealthy"
    assert "Gate failed" in outcome.err


def test_under_github_actions(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    lines = cli("gate", SICK).out.splitlines()
    assert lines[0].startswith("::stop-commands::")
    token = lines[0].rpartition("::")[2]
    assert f"::{token}::" in lines
    assert any(line.startswith("::error ") for line in lines[lines.index(f"::{token}::") :])
    assert "lr-zero" in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_an_error_is_a_document_too(cli, tmp_path):
    assert cli("gate", tmp_path / "none", "--format", f"junit={tmp_path / 'r.xml'}").code == 3
    assert ET.parse(tmp_path / "r.xml").getroot().get("errors") == "1"  # noqa: S314 - our own output


def seeds(folder, rates):
    for seed, rate in enumerate(rates):
        lines = [{"ppo_doctor": 1, "config": {"seed": seed, "learning_rate": rate, "ppo_epochs": 4}}]
        lines += [
            {"step": n, "approx_kl": 0.01 * (1 + (n * 7 + seed * 3) % 5 / 10) * (rate > 0), "learning_rate": rate}
            for n in range(40)
        ]
        path = folder / f"seed{seed}.jsonl"
        path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
        yield path


def test_seeds_are_grouped(cli, tmp_path):
    outcome = cli("gate", *seeds(tmp_path, [0.0, 0.0, 0.0]), "--group")
    assert outcome.code == 1
    assert "in 3 of 3 runs" in outcome.out


def test_compare_names_the_setting_that_explains(cli, tmp_path):
    outcome = cli("compare", *seeds(tmp_path, [3e-4, 0.0]), "--format", "json")
    found = outcome.json["comparison"]
    assert [row["key"] for row in found["differences"]] == ["learning_rate"]
    assert {row["metric"] for row in found["divergences"]} >= {"approx_kl", "learning_rate"}
    assert found["explanations"][0]["key"] == "learning_rate"


def test_compare_of_a_run_with_itself(cli):
    found = cli("compare", HEALTHY, HEALTHY, "--format", "json").json["comparison"]
    assert (found["differences"], found["divergences"], found["explanations"]) == ([], [], [])


def test_compare_of_groups(cli, tmp_path):
    found = cli("compare", *seeds(tmp_path, [3e-4, 3e-4, 0.0, 0.0]), "--group", "--format", "json").json["comparison"]
    assert [len(found[side]["verdicts"]) for side in "ab"] == [2, 2]
    assert [row["key"] for row in found["differences"]] == ["learning_rate"]


def test_compare_takes_reports(cli, tmp_path):
    cli("analyze", SICK, "--format", "json", "-o", tmp_path / "a.json")
    outcome = cli("compare", tmp_path / "a.json", HEALTHY)
    assert outcome.code == 0
    assert "A  UNHEALTHY  The learning rate is exactly 0" in outcome.out
    assert "a report holds no series" in outcome.out


@pytest.mark.parametrize("sources", [[HEALTHY], [HEALTHY, SICK, SHORT]])
def test_compare_needs_two(cli, sources):
    assert cli("compare", *sources).code == 2


def test_a_configuration_is_checked(cli, tmp_path):
    bad = tmp_path / "config.yaml"
    bad.write_text("ppo_epochs: 4\ntarget_kl: 0.0001\n", encoding="utf-8")
    outcome = cli("check-config", bad)
    assert outcome.code == 1
    assert "target-kl-below-any-step" in outcome.out
    assert cli("check-config", bad, "--fail-on", "high").code == 0
    good = tmp_path / "good.yaml"
    good.write_text("ppo_epochs: 4\ntarget_kl: 0.02\n", encoding="utf-8")
    outcome = cli("check-config", good)
    assert outcome.code == 0
    assert {"ppo_epochs", "target_kl"} <= set(outcome.out.replace(",", " ").split()), "it says what it checked"
    strange = tmp_path / "strange.json"
    strange.write_text('{"colour": "blue"}', encoding="utf-8")
    assert cli("check-config", strange).code == 0
