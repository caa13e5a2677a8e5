"""The verdict by the table of docs/diagnosis.md, and five diagnoses redone by that page."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path

import pytest

from ppo_doctor import analyze
from ppo_doctor.diagnosis.causes import SELDOM, cause_groups, unexplained
from ppo_doctor.diagnosis.problems import problems, verdict
from ppo_doctor.model.diagnosis import ChainLink, Coverage, Outcome
from tests.synthetic import a_cause, a_finding, a_pack, a_rule

SYMPTOM, GRAVE = a_rule("symptom"), a_rule("grave", severity="critical")


LIGHT, SLIGHT = a_rule("light", severity="medium"), a_rule("slight", severity="low")


RULES = [SYMPTOM, GRAVE, LIGHT, SLIGHT]


COMPLETE = {"movement": True, "signal": True, "numerics": True}


LIKELY, SUSPECTED = 30, 5


def said(causes=(), fired=(), became="learned", coverage=COMPLETE, failed=None, dead=(), since=None, leans=False):
    findings = [a_finding(rule, "fired" if rule.name in fired else "clear", onset=since) for rule in RULES]
    covered = Coverage(**coverage, evaluated=2, clear=2, fired=0, skipped=0, errored=0, failed=failed or {})
    links = [ChainLink(link=name, state="dead", witness="it is 0 (run.jsonl:1)") for name in dead]
    outcome = Outcome(what=became, start=1.0, best=2.0, end=1.0, leans=leans)
    told = problems(cause_groups(causes, findings, learned=outcome.clear), findings, outcome, links)
    return verdict(told, outcome, covered, links, (0, 1000))


@pytest.mark.parametrize("became", ["learned", "levelled_off", "at_ceiling"])
def test_a_reward_that_rose_and_nothing_found_is_healthy(became):
    assert said(became=became)[0] == "healthy"


@pytest.mark.parametrize("became", ["flat", "never_earned", "too_short", "not_logged"])
def test_nothing_found_without_a_reward_that_rose_is_inconclusive(became):
    assert said(became=became)[0] == "inconclusive"


@pytest.mark.parametrize("question", sorted(COMPLETE))
def test_what_was_not_asked_is_told_where_the_reward_does_not_show_that_the_policy_learns(question):
    coverage = COMPLETE | {question: False}
    assert said(coverage=coverage)[0] == "healthy"  # the reward rose: the policy moves, by a signal
    verdict_, because, _ = said(became="flat", coverage=coverage)
    assert verdict_ == "inconclusive"
    assert because != said(became="flat")[1]


@pytest.mark.parametrize("became", ["lost", "fell"])
def test_a_reward_that_was_lost_or_fell_is_unhealthy(became):
    assert said(became=became)[0] == "unhealthy"


def test_a_critical_finding_is_unhealthy_unless_the_reward_rose_and_its_cause_is_only_suspected():
    assert said(fired=("grave",))[0] == "unhealthy"
    for score, became, expected in (
        (LIKELY, "flat", "unhealthy"),
        (LIKELY, "learned", "unhealthy"),
        (SUSPECTED, "flat", "unhealthy"),
        (SUSPECTED, "learned", "warning"),
    ):
        cause = a_cause("it", {"grave": score}, severity="critical", complaints=("numbers-break",))
        assert said([cause], fired=("grave",), became=became)[0] == expected


@pytest.mark.parametrize(
    ("severity", "score", "expected"),
    [
        ("critical", LIKELY, "unhealthy"),
        ("high", LIKELY, "unhealthy"),
        ("medium", LIKELY, "warning"),
        ("critical", SUSPECTED, "warning"),
    ],
)
def test_a_cause_that_is_sure_and_grave_is_unhealthy(severity, score, expected):
    cause = a_cause("it", {"light": score}, severity=severity, link="numerics", complaints=("numbers-break",))
    assert said([cause], fired=("light",))[0] == expected


@pytest.mark.parametrize(("fired", "expected"), [("symptom", "warning"), ("light", "warning"), ("slight", "healthy")])
def test_any_other_finding_of_medium_severity_or_more_is_a_warning(fired, expected):
    assert said(fired=(fired,))[0] == expected


def test_the_verdict_says_the_title_of_the_first_problem():
    assert said(fired=("light", "symptom"))[1] == a_finding(SYMPTOM).title


def test_a_suspicion_moves_no_verdict():
    cause = a_cause("it", {"slight": SUSPECTED}, severity="critical")
    assert said([cause], fired=("slight",))[0] == "healthy"
    assert said([cause], fired=("slight",), became="flat")[0] == "inconclusive"


def test_a_harmless_explanation_level_with_a_fault_is_inconclusive():
    causes = [a_cause("fault", {"light": LIKELY}), a_cause("benign", {"light": LIKELY}, benign=True, severity="info")]
    assert said(causes, fired=("light",))[0] == "inconclusive"


def test_what_a_harmless_cause_accounts_for_is_no_finding():
    harmless = a_cause("benign", {"light": LIKELY}, benign=True, severity="info", proof=("light",))
    assert said([harmless], fired=("light",))[0] == "healthy"


def test_a_check_that_failed_to_run_keeps_it_from_healthy():
    verdict_, because, _ = said(failed={"symptom": "ZeroDivisionError"})
    assert verdict_ == "inconclusive"
    assert "symptom" in because


@pytest.mark.parametrize(
    ("link", "became", "expected"),
    [
        ("policy", "flat", "unhealthy"),
        ("policy", "learned", "inconclusive"),
        ("critic", "flat", "inconclusive"),
        ("ratio", "flat", "inconclusive"),
    ],
)
def test_a_run_with_a_dead_link_is_never_healthy(link, became, expected):
    verdict_, because, _ = said(dead=(link,), became=became)
    assert verdict_ == expected
    assert f"{link}: it is 0 (run.jsonl:1)" in because


def test_a_dead_path_is_unhealthy_however_unsure_the_cause():
    doubtful = a_cause("it", {"light": 8}, severity="critical", link="numerics")
    assert said([doubtful], fired=("light",), became="flat")[0] == "warning"
    assert said([doubtful], fired=("light",), became="flat", dead=("step",))[0] == "unhealthy"
    assert said([doubtful], fired=("light",), became="flat", dead=("ratio",))[0] == "warning"


@pytest.mark.parametrize(
    ("severity", "since", "expected"),
    [
        ("high", 10, "warning"),
        ("critical", 500, "warning"),
        ("critical", None, "warning"),
        ("critical", 10, "unhealthy"),
    ],
)
def test_where_the_reward_rose_a_link_that_stands_still_is_a_warning_unless_it_is_so_from_the_start(
    severity, since, expected
):
    still = a_cause("it", {"symptom": 1}, proof=("symptom",), severity=severity, link="policy")
    assert said([still], fired=("symptom",), became="flat", since=since)[0] == "unhealthy"
    assert said([still], fired=("symptom",), became="learned", since=since)[0] == expected


def test_a_rise_through_wide_scatter_is_healthy_by_itself_and_excuses_nothing():
    assert said(became="learned", leans=True)[0] == "healthy"
    assert said(became="learned", leans=True, dead=("step",))[0] == "unhealthy"
    still = a_cause("it", {"symptom": 1}, proof=("symptom",), severity="high", link="policy")
    assert said([still], fired=("symptom",), became="learned", since=10, leans=True)[0] == "unhealthy"


@pytest.mark.parametrize(("rate", "expected"), [(SELDOM / 2, "symptom"), (SELDOM * 2, None), (None, None)])
def test_what_sound_runs_hardly_ever_show_asks_for_a_cause(rate, expected):
    findings = [a_finding(rule, "fired") for rule in (SYMPTOM, LIGHT)]
    rates = {} if rate is None else {"symptom": rate, "light": rate}
    cause = a_cause("it", {"symptom": LIKELY})
    found = unexplained(findings, a_pack(RULES, [cause], rates), ())
    assert (found.rule if found else None) == expected
    assert unexplained(findings, a_pack(RULES, [cause], rates), cause_groups([cause], findings)) is None


ROOT = Path(__file__).resolve().parents[2]


RATES = tomllib.loads((ROOT / "rules" / "rates.toml").read_text(encoding="utf-8"))["rates"]


CAUSES = [
    tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "rules" / "causes").glob("*.toml"))
]


BENIGN = {cause["id"]: cause["benign"] for cause in CAUSES}


PRIOR = {"common": -10, "occasional": -12, "rare": -14}


RUNS = [
    *("sick/lr-zero.sb3", "sick/adv-exactly-zero.canonical", "sick/clip-range-too-small.trl-grpo"),
    *("sick/old-policy-aliased.cleanrl", "healthy/healthy.sb3"),
]


def rate(check):
    counts = RATES.get(check, (0, 0))  # those of the lab's runs, then those of published ones
    yes, of = sum(counts[::2]), sum(counts[1::2])
    return max(0.005, (yes + 0.2) / (of + 10))


def weight(cause, check, answer):
    """Return what an answer weighs, or None where it puts the cause out."""
    if (answer == "yes" and check in cause.get("excludes", [])) or (
        answer == "no" and check in cause.get("requires", [])
    ):
        return None
    if answer == "yes" and check in cause.get("proof", []):
        return 35
    usual = [*cause.get("usual", []), *cause.get("requires", [])]
    for word, often, checks in (("usual", 0.75, usual), ("sometimes", 0.3, cause.get("sometimes", []))):
        if check in checks:
            if answer == "yes":
                return round(10 * math.log10(often / rate(check)))
            if answer == "no" and word == "usual":
                return round(10 * math.log10((1 - often) / (1 - rate(check))))
    return 0


def account(cause, answers, no_proofs=frozenset()):
    """Return (proven, score), or None where the cause is not spoken of."""
    needs = cause.get("needs", [])
    if needs and not any(answers.get(name) == "yes" for name in (*needs, *cause.get("proof", []))):
        return None
    weights = [weight(cause, check, answer) for check, answer in answers.items()]
    if None in weights:
        return None
    shown = [name for name in cause.get("proof", []) if answers.get(name) == "yes" and name not in no_proofs]
    proven = bool(shown) and not cause.get("never_proven")
    score = PRIOR[cause["prior"]] + sum(weights)
    least = 2 if cause.get("never_proven") else -2
    speaks = any(w > 0 and answers[check] == "yes" for check, w in zip(answers, weights, strict=True))
    return (proven, score) if speaks and (proven or score >= least) else None


@pytest.mark.parametrize("name", RUNS)
def test_the_page_is_enough_to_redo_a_diagnosis(name, cli, samples):
    outcome = cli("analyze", samples / name, "--all", "--format", "json")
    report = json.loads(outcome.out)
    answers = {f["name"]: f["answer"] for f in report["checks"]}
    believed = report["run"]["updates_per_batch"]["how"] == "configured"
    rest = {f["name"] for f in report["checks"] for e in f["evidence"] if e["metric"] == "several_updates"}
    told = {cause["id"]: account(cause, answers, rest if believed else set()) for cause in CAUSES}
    spoken = {name: result for name, result in told.items() if result is not None}
    for cause in report["causes"]:
        assert spoken[cause["id"]][1] == cause["score_db"], cause["id"]
    if not spoken:
        assert report["causes"] == []
        return
    harmful = {name: spoken[name] for name in spoken if not BENIGN[name]} or spoken  # what is harmless comes last
    proven = [name for name, (proof, _) in harmful.items() if proof]
    confident = proven or [name for name, (_, score) in harmful.items() if score >= 9]
    if confident:
        assert report["causes"][0]["id"] in confident
        assert (report["causes"][0]["confidence"] == "established") is bool(proven)


def test_a_headline_says_that_the_entropy_ended_as_no_number(tmp_path):
    log = tmp_path / "run.jsonl"
    rows = [{"step": n, "entropy": 0.7 if n < 30 else math.nan, "episode_return": float(n)} for n in range(40)]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "entropy 0.7 → NaN" in analyze(log).headline
