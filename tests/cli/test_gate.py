"""The commands that CI runs: gate, compare and check-config, and what they print as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
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


def test_golden(cli, root, monkeypatch):
    monkeypatch.chdir(root)
    monkeypatch.setenv("COLUMNS", "100")
    check_golden("gate.txt", cli("gate", SICK.relative_to(root)).out)


@pytest.mark.parametrize(
    ("fault", "updates"),
    [("lr-zero", 5), ("old-policy-aliased", 5), ("adv-exactly-zero", 20), ("epochs-not-executed", 20)],
)
def test_a_few_updates_are_judged(cli, fault, updates):
    assert cli("gate", SAMPLES / "sick" / f"{fault}.canonical", "--steps", f"1:{updates}").code == 1


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


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "no report of ppo-doctor"),
        ('{"schema_version": "1"}', "no report of ppo-doctor"),
        ('{"schema_version": "9", "run": {}}', "schema 9"),
        ('{"loss": 1}', "no report of ppo-doctor"),
        ('{"schema_version": "1", "error": {"code": 3, "message": "empty", "hint": ""}}', "empty"),
    ],
)
def test_a_file_that_is_no_baseline_is_refused(cli, tmp_path, text, reason):
    main = tmp_path / "main.json"
    main.write_text(text, encoding="utf-8")
    outcome = cli("gate", HEALTHY, "--baseline", main)
    assert outcome.code == 2
    assert f"main.json: cannot read: {reason}" in outcome.err or f"main.json: {reason}" in outcome.err


def test_all_formats_in_one_pass(cli, tmp_path):
    names = {"json": "r.json", "markdown": "r.md", "sarif": "r.sarif", "junit": "r.xml", "github": "r.txt"}
    formats = [part for name, file in names.items() for part in ("--format", f"{name}={tmp_path / file}")]
    outcome = cli("gate", SICK, "--format", "text", *formats)
    assert outcome.code == 1
    assert "Gate failed" in outcome.out
    assert all((tmp_path / file).stat().st_size for file in names.values())
    assert int(ET.parse(tmp_path / "r.xml").getroot().get("failures")) > 0  # noqa: S314 - our own output


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


@pytest.fixture
def gate(cli, validate, tmp_path):
    """Return the gate object for a policy; the report is held to the schema."""

    def call(source, policy="", *more):
        path = tmp_path / "policy.toml"
        path.write_text(policy, encoding="utf-8")
        outcome = cli("gate", source, "--policy", path, "--format", "json", *more)
        validate(outcome.json)
        ruled = outcome.json["gate"]
        assert ruled["code"] == outcome.code
        assert f"Gate {ruled['result']}" in outcome.err, "without a text report the result is printed on stderr"
        assert ruled["policy"] == str(path)
        return ruled

    return call


@pytest.mark.parametrize(
    ("source", "result", "code"), [(HEALTHY, "passed", 0), (SICK, "failed", 1), (SHORT, "inconclusive", 4)]
)
def test_what_the_gate_ruled(gate, source, result, code):
    ruled = gate(source)
    assert (ruled["result"], ruled["code"], ruled["passed"]) == (result, code, code == 0)
    assert bool(ruled["reasons"]) is (code != 0)
    assert ruled["baseline"] is None


def test_analyze_rules_on_nothing(cli):
    assert "gate" not in cli("analyze", SICK, "--format", "json").json


ALLOW = '[[allow]]\ncause = "{}"\nreason = "frozen on purpose"\nexpires = {}\n'


@pytest.mark.parametrize(
    ("cause", "until", "expired", "used", "passed"),
    [
        ("lr-zero", "2999-01-01", False, True, True),
        ("lr-zero", "2001-01-01", True, True, False),
        ("nan-inf", "2999-01-01", False, False, False),
    ],
)
def test_allowances(gate, cause, until, expired, used, passed):
    ruled = gate(SICK, ALLOW.format(cause, until))
    told = {"cause": cause, "reason": "frozen on purpose", "expires": until, "expired": expired, "used": used}
    assert ruled["allowances"] == [told]
    assert ruled["passed"] is passed


@pytest.mark.parametrize(
    ("budget", "outcome", "runs"),
    [("approx_kl.p95 < 1", "passed", 1), ("approx_kl.p95 > 1", "failed", 1), ("rollout_kl.max < 1", "open", 0)],
)
def test_budgets_with_their_values(gate, budget, outcome, runs):
    [told] = gate(HEALTHY, f'budgets = ["{budget}"]')["budgets"]
    assert (told["budget"], told["outcome"], told["runs"]) == (budget, outcome, runs)
    assert (told["value"] is None) is (outcome == "open")
    if runs:
        assert 0 < told["value"] < 1


def baseline(cli, source, path):
    assert cli("analyze", source, "--format", "json", "-o", path).code == 0
    return path


@pytest.mark.parametrize(
    ("before", "now", "state", "passed"),
    [(SICK, SICK, "known", True), (SICK, HEALTHY, "fixed", True), (HEALTHY, SICK, "new", False)],
)
def test_a_cause_is_known_fixed_or_new(gate, cli, tmp_path, before, now, state, passed):
    ruled = gate(now, "", "--baseline", baseline(cli, before, tmp_path / "main.json"))
    assert ruled["passed"] is passed
    states = {name: ruled["baseline"][name] for name in ("new", "worse", "known", "fixed")}
    assert states == {"new": [], "worse": [], "known": [], "fixed": [], state: ["lr-zero"]}


def test_a_baseline_with_what_is_worse(gate, cli, tmp_path):
    main = baseline(cli, SICK, tmp_path / "main.json")
    report = json.loads(main.read_text(encoding="utf-8"))
    for cause in report["causes"]:
        cause["confidence"] = "suspected"
    main.write_text(json.dumps(report), encoding="utf-8")
    ruled = gate(SICK, "", "--baseline", main)
    assert [entry["cause"] for entry in ruled["baseline"]["worse"]] == ["lr-zero"]
    assert ruled["result"] == "failed"


def test_a_baseline_without_this_run(gate, cli, tmp_path):
    main = tmp_path / "main.json"
    assert cli("analyze", HEALTHY, SHORT, "--format", "json", "-o", main).code == 0
    ruled = gate(SICK, "", "--baseline", main)
    assert (ruled["baseline"]["holds_run"], ruled["baseline"]["new"]) == (False, [])
    assert ruled["notes"]


def test_rules_that_are_ignored_are_listed(gate):
    assert gate(SICK, 'ignore = ["learning-rate-zero"]')["suppressed"] == ["learning-rate-zero"]


def test_required_questions(gate):
    ruled = gate(SHORT, 'require = ["movement"]\nfail-on = "never"')
    assert (ruled["require"], ruled["fail_on"], ruled["result"]) == (["movement"], "never", "inconclusive")


def test_several_runs_carry_a_ruling_each(cli, validate):
    report = cli("gate", SICK, HEALTHY, "--format", "json").json
    validate(report)
    assert [diagnosis["gate"]["passed"] for diagnosis in report["diagnoses"]] == [False, True]
    assert [len(diagnosis["gate"]["runs"]) for diagnosis in report["diagnoses"]] == [1, 1]


def test_a_group_carries_one_ruling(cli, validate, tmp_path):
    for seed in range(3):
        (tmp_path / f"{seed}.jsonl").write_bytes(SICK.read_bytes())
    report = cli("gate", *sorted(tmp_path.glob("*.jsonl")), "--group", "--format", "json").json
    validate(report)
    assert [len(diagnosis["gate"]["runs"]) for diagnosis in report["diagnoses"]] == [3, 3, 3]


def test_the_report_of_a_gate_is_a_baseline(gate, cli, tmp_path):
    cli("gate", SICK, "--format", f"json={tmp_path / 'main.json'}")
    assert gate(SICK, "", "--baseline", tmp_path / "main.json")["passed"]


@pytest.mark.parametrize("group", [[], ["--group"]])
def test_a_comparison_of_runs(cli, validate, group):
    report = cli("compare", HEALTHY, SICK, "--format", "json", *group).json
    validate(report)
    assert report["comparison"]["different"]
    assert [report["comparison"][side]["runs"] for side in "ab"] == [1, 1]
    assert report["comparison"]["b"]["causes"] == {"lr-zero": 1}


def test_a_comparison_of_a_run_with_itself(cli, validate):
    report = cli("compare", HEALTHY, HEALTHY, "--format", "json").json
    validate(report)
    found = report["comparison"]
    assert not found["different"]
    assert (found["differences"], found["divergences"], found["explanations"]) == ([], [], [])


def test_a_comparison_with_a_report(cli, validate, tmp_path):
    report = cli("compare", baseline(cli, SICK, tmp_path / "a.json"), HEALTHY, "--format", "json").json
    validate(report)
    assert report["comparison"]["divergences"] is None
    assert report["comparison"]["different"]


def test_a_comparison_where_numbers_break(cli, validate, tmp_path):
    for name, loss in (("a", "NaN"), ("b", "0.1")):
        lines = [f'{{"step": {n}, "policy_loss": {loss if n > 9 else 0.1}, "approx_kl": 0.01}}' for n in range(20)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    report = cli("compare", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--format", "json").json
    validate(report)
    [parted] = [row for row in report["comparison"]["divergences"] if row["metric"] == "policy_loss"]
    assert (parted["step"], parted["a"], parted["b"]) == (10, None, 0.1)


def test_a_comparison_that_fails_is_an_object_too(cli, validate, tmp_path):
    outcome = cli("compare", HEALTHY, tmp_path / "none", "--format", "json")
    validate(outcome.json)
    assert (outcome.code, outcome.json["error"]["code"]) == (3, 3)


def test_the_schema_refuses_a_ruling_that_contradicts_itself(cli, validate):
    report = cli("gate", SICK, "--format", "json").json
    for wrong in ({"passed": True}, {"result": "passed"}, {"reasons": []}):
        with pytest.raises(AssertionError):
            validate(report | {"gate": report["gate"] | wrong})


def test_a_value_that_is_not_finite_is_null():
    from ppo_doctor.diagnosis.gate_result import BudgetValue, GateItem, GateResult
    from ppo_doctor.model.errors import ExitCode
    from ppo_doctor.report.json_report import dump, gate_payload

    spent = BudgetValue(metric="approx_kl", statistic="last", op="<", bound=1.0, value=float("nan"), runs=1)
    item = GateItem(kind="budget", name="approx_kl.last < 1", outcome="failed", message="…", budget=spent)
    result = GateResult(code=ExitCode.SICK, items=(item,))
    assert json.loads(dump(gate_payload(replace(result, runs=("a",)))))["budgets"][0]["value"] is None
