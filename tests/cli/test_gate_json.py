"""What gate and compare print as JSON: the gate's ruling and the comparison, held to the published schema."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

SAMPLES = Path(__file__).resolve().parents[2] / "sample_logs"
SICK = SAMPLES / "sick" / "lr-zero.canonical" / "run.jsonl"
HEALTHY = SAMPLES / "healthy" / "healthy.sb3"
SHORT = SAMPLES / "broken" / "three-records.canonical" / "run.jsonl"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Work where no policy of this repository is near."""
    monkeypatch.chdir(tmp_path)


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


def test_a_baseline_with_what_is_known(gate, cli, tmp_path):
    ruled = gate(SICK, "", "--baseline", baseline(cli, SICK, tmp_path / "main.json"))
    assert ruled["passed"]
    assert ruled["baseline"]["known"] == ["lr-zero"]
    assert (ruled["baseline"]["new"], ruled["baseline"]["worse"], ruled["baseline"]["fixed"]) == ([], [], [])


def test_a_baseline_with_what_is_fixed(gate, cli, tmp_path):
    ruled = gate(HEALTHY, "", "--baseline", baseline(cli, SICK, tmp_path / "main.json"))
    assert ruled["baseline"]["fixed"] == ["lr-zero"]
    assert ruled["baseline"]["known"] == []


def test_a_baseline_with_what_is_new(gate, cli, tmp_path):
    ruled = gate(SICK, "", "--baseline", baseline(cli, HEALTHY, tmp_path / "main.json"))
    assert ruled["baseline"]["new"] == ["lr-zero"]
    assert ruled["result"] == "failed"


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


def test_what_is_left_out(gate):
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
    assert not report["comparison"]["different"]


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
    from ppo_doctor.report.gate import as_json
    from ppo_doctor.report.json_report import dump

    spent = BudgetValue(metric="approx_kl", statistic="last", op="<", bound=1.0, value=float("nan"), runs=1)
    item = GateItem(kind="budget", name="approx_kl.last < 1", outcome="failed", message="…", budget=spent)
    result = GateResult(code=ExitCode.SICK, items=(item,))
    assert json.loads(dump(as_json(replace(result, runs=("a",)))))["budgets"][0]["value"] is None
