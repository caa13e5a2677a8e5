"""The rule pack: every rule's own cases, and that the pack hangs together."""

from __future__ import annotations

import csv
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from ppo_doctor.checks.rulepack import load_pack, prose
from ppo_doctor.checks.statistics import STATISTICS
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.words import LINKS, PRIORS, QUESTIONS
from ppo_doctor.testing import KINDS, parse_series, run_case

ROOT = Path(__file__).resolve().parent.parent.parent
RULES = ROOT / "rules"
NOT_RULES = {"chain.toml", "complaints.toml", "rates.toml", "unjudged.toml"}
RULE_FILES = sorted(p for p in RULES.glob("*/*.toml") if p.parent.name != "causes")
CAUSE_FILES = sorted(RULES.glob("causes/*.toml"))
PACK = load_pack()
CASES = [(rule, case) for rule in PACK.rules for case in prose(rule.path)["case"]]
HEADINGS = ("what", "why", "look_alikes", "blind_spots", "next_steps", "references")


@cache
def raw(path):
    return tomllib.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("rule", "case"), CASES, ids=[f"{rule.name}/{case['name']}" for rule, case in CASES])
def test_a_case_is_judged_as_it_says(rule, case):
    assert run_case(rule, case).problems == ()


# Files


def test_the_pack_holds_every_file():
    assert {Path(rule.path) for rule in PACK.rules} == set(RULE_FILES)
    assert {Path(cause.path) for cause in PACK.causes} == set(CAUSE_FILES)


def test_rules_are_data():
    strangers = [path.name for path in RULES.rglob("*") if path.is_file() and path.suffix != ".toml"]
    assert strangers == []
    assert {path.name for path in RULES.glob("*.toml")} == NOT_RULES


def test_names_are_unique():
    names = [*(rule.name for rule in PACK.rules), *(cause.id for cause in PACK.causes), *METRICS]
    assert len(names) == len(set(names))
    codes = [rule.code for rule in PACK.rules]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[A-Z]{2,4}\d{3}", code) for code in codes)


# Rules


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.stem)
def test_a_file_of_a_rule(path):
    file = raw(path)
    assert file["name"] == path.stem
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", path.stem)
    assert_cases_of_every_kind(file["case"])
    assert_documented(file["doc"])
    assert_thresholds_are_used_and_have_sources(file)


def assert_cases_of_every_kind(cases):
    assert {case["kind"] for case in cases} == set(KINDS)
    assert len({case["name"] for case in cases}) == len(cases)
    expected = {
        "positive": {"fired"},
        "near-miss": {"clear", "skipped"},
        "missing": {"skipped"},
        "benign": {"clear", "skipped"},
    }
    assert [case["name"] for case in cases if case["expect"]["status"] not in expected[case["kind"]]] == []


def assert_documented(doc):
    assert set(doc) == set(HEADINGS)
    for heading in HEADINGS:
        lines = [doc[heading]] if isinstance(doc[heading], str) else doc[heading]
        assert lines, heading
        assert all(line.strip() for line in lines), heading


def assert_thresholds_are_used_and_have_sources(file):
    params = file.get("params", {})
    values = [value for clause in file["when"] for value in clause.values()]
    assert {value.removeprefix("@") for value in values if str(value).startswith("@")} == set(params)
    for name, param in params.items():
        assert set(param) == {"value", "unit", "source"}, name
        assert param["unit"].strip(), name
        assert param["source"].strip(), name


@pytest.mark.parametrize("rule", PACK.rules, ids=lambda rule: rule.name)
def test_a_rule_reads_what_exists(rule):
    from ppo_doctor.trainers.settings import SETTINGS

    known = {"series": {*METRICS, *STATISTICS}, "fact": set(STATISTICS), "config": set(SETTINGS)}
    for clause in rule.when:
        kind, _, name = clause.quantity.partition(".")
        assert name in known[kind], clause.quantity
    assert rule.link in LINKS
    assert rule.answers in (None, *QUESTIONS)
    assert rule.title != rule.pass_title


def test_every_question_can_be_answered():
    assert {rule.answers for rule in PACK.rules} - {None} == set(QUESTIONS)


# Causes


@pytest.mark.parametrize("cause", PACK.causes, ids=lambda cause: cause.id)
def test_a_cause_weighs_rules_and_says_what_to_do(cause):
    assert raw(Path(cause.path))["id"] == Path(cause.path).stem == cause.id
    rules = {rule.name for rule in PACK.rules}
    findings = [weight.finding for weight in cause.weights]
    assert set(findings) <= rules
    assert len(findings) == len(set(findings)), "a rule weighs twice"
    assert all(weight.source.strip() for weight in cause.weights)
    assert all(weight.fired or weight.clear for weight in cause.weights), "a weight of nothing"
    assert cause.says.strip()
    assert any(remedy.framework is None for remedy in cause.remedies), "nothing to do for an unknown framework"
    assert cause.measure
    assert cause.link in LINKS


@pytest.mark.parametrize("cause", [cause for cause in PACK.causes if cause.twins], ids=lambda cause: cause.id)
def test_twins_are_mutual_and_weigh_alike_in_logs(cause):
    """Only tensors may tell twins apart."""
    tensors = {rule.name for rule in PACK.rules if rule.proof == "tensor"}

    def weights(of):
        return {(w.finding, w.fired, w.clear) for w in of.weights if w.finding not in tensors}

    for name in cause.twins:
        twin = PACK.cause(name)
        assert cause.id in twin.twins
        assert weights(twin) == weights(cause)
        assert (twin.prior, twin.severity, twin.complaints) == (cause.prior, cause.severity, cause.complaints)


def test_remedies_name_frameworks_that_exist():
    from ppo_doctor.trainers.detection import profiles

    named = {remedy.framework for cause in PACK.causes for remedy in cause.remedies if remedy.framework}
    assert named <= set(profiles())


def test_links_and_complaints_are_the_closed_lists():
    complaints = {complaint.id for complaint in PACK.complaints}
    assert complaints == {
        *("policy-does-not-move", "no-signal", "steps-too-large", "ratio-wrong-at-start", "critic-fails"),
        *("policy-degenerates", "numbers-break", "proxy-diverges", "config-contradicts", "small-steps-are-right"),
    }
    assert {name for cause in PACK.causes for name in cause.complaints} <= complaints
    assert (
        *("rollout", "rewards", "returns", "advantages", "loss", "gradient", "step", "weights", "policy", "ratio"),
        *("critic", "reference", "numerics", "configuration"),
    ) == LINKS


def table_of_causes():
    path = ROOT.parent / "shared" / "causes.csv"
    if not path.is_file():
        pytest.skip("the table of causes is not beside this checkout")
    with path.open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


@pytest.mark.parametrize("cause", PACK.causes, ids=lambda cause: cause.id)
def test_a_cause_is_that_of_the_table(cause):
    row = table_of_causes()[cause.id]
    assert (cause.family, str(cause.severity), cause.prior) == (row["family"], row["severity"], PRIORS[row["prior"]])
    assert cause.benign is (row["benign"] == "yes")


def test_what_logs_cannot_show_is_in_the_table_and_in_no_rule():
    unjudged = {cause.id for cause in PACK.unjudged}
    assert unjudged <= table_of_causes().keys()
    provable = {cause.id for cause in PACK.causes if not cause.never_proven}
    assert unjudged & provable == set()


# Series notation


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("0.5", [0.5]),
        ("1x2", [1, 1, 1]),
        ("0.02+0.03x2", [0.02, 0.05, 0.08]),
        ("1-0.5x2", [1, 0.5, 0]),
        ("1 _ -2", [1, None, -2]),
        ("1e-5x1", [1e-5, 1e-5]),
        ("1e-3+1e-3x1", [0.001, 0.002]),
        ("inf -inf", [float("inf"), float("-inf")]),
        ("", []),
    ],
)
def test_notation(text, points):
    assert parse_series(text) == points


@pytest.mark.parametrize("text", ["x9", "1x", "1+", "one", "1,2", "1x-2", "1x2x3"])
def test_notation_refuses_the_rest(text):
    from ppo_doctor.model.errors import DoctorError

    with pytest.raises(DoctorError):
        parse_series(text)


@pytest.mark.parametrize(("metric", "wants_steps"), [("approx_kl", True), ("response_length", False)])
def test_a_language_run_is_not_asked_for_steps_of_an_environment(metric, wants_steps):
    case = {"name": "x", "kind": "missing", "series": {metric: "100x19"}, "expect": {"status": "skipped"}}
    asked = {name for rule in PACK.rules for name in run_case(rule, case).finding.missing}
    assert ("env_steps" in asked) == wants_steps
    assert "entropy" in asked
