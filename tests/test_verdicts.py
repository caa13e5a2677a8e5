"""Every combination of what a complaint can come to → verdict and exit code, against an oracle written from the design.

The oracle reads only what the contract speaks of: which leaders there are, whether they are benign, how sure we are,
how severe they are, whether health is level with them, and which questions were answered.
"""

from __future__ import annotations

import itertools
import json

import pytest
from ppo_doctor.ranking import explain

import ppo_doctor
from ppo_doctor.diagnosis import assemble
from ppo_doctor.judgement import FAIL_ON, exit_code
from tests.each import for_each
from tests.synthetic import a_cause, a_finding, a_pack, a_rule, a_series, observe

SEVERITIES = ["critical", "high", "medium", "low", "info"]
CONFIDENCES = ["established", "likely", "suspected"]
LEVELS = ["alone", "level with a fault", "level with a benign cause", "level with healthy"]
COVERAGES = ["complete", "movement", "signal", "numerics"]

#: Two soft symptoms on two links open the complaint and weigh for nobody; `unknown` then stands at -3.
OPENERS = [
    a_rule("soft-a", link="policy", opens="policy-does-not-move"),
    a_rule("soft-b", opens="policy-does-not-move"),
]
PROOF = a_rule("proof", link="update", proof="counter")
SYMPTOM = a_rule("symptom", link="update")
QUESTIONS = {name: a_rule(f"asks-{name}", link="config", answers=name) for name in ("movement", "signal", "numerics")}
RULES = [*OPENERS, PROOF, SYMPTOM, *QUESTIONS.values()]


def scored(confidence, level):
    """Return (finding, weight) that make a cause with prior 0 come out so."""
    if level == "level with healthy":
        return ("proof" if confidence == "established" else "symptom"), 3
    return {"established": ("proof", 40), "likely": ("symptom", 20), "suspected": ("symptom", 9)}[confidence]


def judged(confidence, severity, benign, level, coverage, partner_severity="low"):
    finding, weight = scored(confidence, level)
    causes = [a_cause("subject", {finding: weight}, severity=severity, benign=benign)]
    if level in ("level with a fault", "level with a benign cause"):
        partner_benign = level == "level with a benign cause"
        partner = a_cause("partner", {finding: weight - 2}, severity=partner_severity, benign=partner_benign)
        causes.append(partner)
    findings = [a_finding(rule) for rule in (*OPENERS, PROOF, SYMPTOM)]
    findings += [a_finding(rule, "skipped" if name == coverage else "clear") for name, rule in QUESTIONS.items()]
    return assemble(observe(a_series("entropy", [1.0] * 12)), a_pack(RULES, causes), findings)


def oracle_verdict(leaders, healthy_is_level, complete):
    """`leaders` is a list of (benign, severity, confidence)."""
    faults = [leader for leader in leaders if not leader[0]]
    if faults and (len(faults) < len(leaders) or healthy_is_level):
        return "inconclusive"
    if faults:
        sure = [severity for _, severity, confidence in faults if confidence != "suspected"]
        return "unhealthy" if {"critical", "high"} & set(sure) else "warning"
    if any(confidence == "suspected" for _, _, confidence in leaders):
        return "inconclusive"
    return "healthy" if complete else "inconclusive"


def oracle_code(verdict, leaders, fail_on):
    if fail_on == "never":
        return 0
    if verdict == "inconclusive":
        return 4
    bound = SEVERITIES.index(fail_on)
    sure = [s for benign, s, confidence in leaders if not benign and confidence != "suspected"]
    return 1 if any(SEVERITIES.index(severity) <= bound for severity in sure) else 0


COMBINATIONS = list(itertools.product(CONFIDENCES, SEVERITIES, [False, True], LEVELS, COVERAGES))


def combination_id(combination):
    confidence, severity, benign, level, coverage = combination
    return f"{confidence} {severity} {'benign' if benign else 'fault'} {level}, open: {coverage}"


@for_each(COMBINATIONS, combination_id)
def test_verdict_and_exit_code(combination):
    confidence, severity, benign, level, coverage = combination
    healthy_is_level = level == "level with healthy"
    # Nothing within 3 dB of health is 13 dB above it: such a leader can only be suspected.
    actual = "suspected" if healthy_is_level else confidence
    leaders = [(benign, severity, actual)]
    if level in ("level with a fault", "level with a benign cause"):
        leaders.append((level == "level with a benign cause", "low", actual))
    diagnosis = judged(*combination)
    verdict = oracle_verdict(leaders, healthy_is_level, coverage == "complete")
    assert [cause.confidence for cause in diagnosis.causes if cause.id == "subject"] == [actual]
    assert {cause.id for cause in diagnosis.causes if cause.leader} == {"subject", "partner"} & {
        cause.id for cause in diagnosis.causes
    }
    assert diagnosis.verdict == verdict
    codes = {fail_on: int(exit_code(diagnosis, fail_on)) for fail_on in FAIL_ON}
    assert codes == {fail_on: oracle_code(verdict, leaders, fail_on) for fail_on in FAIL_ON}


@pytest.mark.parametrize("coverage", COVERAGES)
def test_without_any_complaint_only_full_coverage_is_healthy(coverage):
    findings = [a_finding(rule, "clear") for rule in (*OPENERS, PROOF, SYMPTOM)]
    findings += [a_finding(rule, "errored" if name == coverage else "clear") for name, rule in QUESTIONS.items()]
    diagnosis = assemble(observe(a_series("entropy", [1.0] * 12)), a_pack(RULES, []), findings)
    assert diagnosis.verdict == ("healthy" if coverage == "complete" else "inconclusive")
    assert getattr(diagnosis.coverage, coverage, True) is (coverage == "complete")
    assert exit_code(diagnosis, "low") == (0 if coverage == "complete" else 4)
    assert exit_code(diagnosis) == 0


@pytest.mark.parametrize("records", [1, 5, 11, 12, 13])
def test_a_question_takes_twelve_updates(records):
    findings = [a_finding(rule, "clear") for rule in QUESTIONS.values()]
    diagnosis = assemble(observe(a_series("entropy", [1.0] * records)), a_pack(QUESTIONS.values(), []), findings)
    assert diagnosis.verdict == ("healthy" if records >= 12 else "inconclusive")


def test_a_question_takes_twelve_finite_updates():
    nan = float("nan")
    series = a_series("entropy", [*[1.0] * 11, nan, nan, nan])
    rules = [a_rule(f"asks-{q}", answers=q, needs=("series.entropy",)) for q in QUESTIONS]
    diagnosis = assemble(observe(series), a_pack(rules, []), [a_finding(rule, "clear") for rule in rules])
    assert diagnosis.verdict == "inconclusive"


@pytest.mark.parametrize(("status", "answered"), [("fired", True), ("clear", False)])
def test_a_rule_may_answer_by_firing_only(status, answered):
    rule = a_rule("drifts", answers="movement", answers_when="fired")
    diagnosis = assemble(observe(a_series("entropy", [1.0] * 12)), a_pack([rule], []), [a_finding(rule, status)])
    assert diagnosis.coverage.movement is answered


def test_an_errored_rule_counts_as_skipped():
    rule = QUESTIONS["signal"]
    diagnosis = assemble(observe(a_series("entropy", [1.0] * 12)), a_pack([rule], []), [a_finding(rule, "errored")])
    assert diagnosis.coverage.signal is False
    assert (diagnosis.coverage.evaluated, diagnosis.coverage.errored) == (0, 1)


def test_a_severe_leader_counts_though_a_milder_one_scores_higher():
    """Level is level: with a medium cause two decibans ahead of a critical one, the run is unhealthy."""
    diagnosis = judged("established", "medium", False, "level with a fault", "complete", partner_severity="critical")
    assert {cause.id for cause in diagnosis.causes if cause.leader} == {"subject", "partner"}
    assert diagnosis.verdict == "unhealthy"
    assert exit_code(diagnosis, "critical") == 1


def settled(*causes, findings=None, rules=RULES):
    fired = findings if findings is not None else [a_finding(rule) for rule in (*OPENERS, PROOF, SYMPTOM)]
    (explanation,) = explain(a_pack(rules, causes), fired)
    return explanation


@pytest.mark.parametrize(
    ("score", "verdict"), [(13, "unhealthy"), (12, "warning"), (4, "warning"), (3, "inconclusive"), (0, "inconclusive")]
)
def test_a_fault_against_health(score, verdict):
    assert settled(a_cause("fault", {"symptom": score})).verdict == verdict


@pytest.mark.parametrize(("score", "verdict"), [(-1, "inconclusive"), (-3, "inconclusive"), (-4, "healthy")])
def test_health_ahead_of_a_fault_by_three_decibans_or_fewer_is_level(score, verdict):
    assert settled(a_cause("fault", {"symptom": score})).verdict == verdict


def test_health_ahead_closes_the_complaint():
    explanation = settled(a_cause("fault", {"symptom": -20}))
    assert (explanation.leader, explanation.causes, explanation.verdict) == ("healthy", (), "healthy")


def test_unknown_ahead_of_everything_is_a_warning():
    opener = a_rule("identity", proof="identity", opens="policy-does-not-move", opens_alone=True)
    explanation = settled(a_cause("fault", {"identity": 4}), rules=[opener], findings=[a_finding(opener)])
    assert (explanation.leader, explanation.causes, explanation.verdict) == ("unknown", (), "warning")


def test_unknown_without_any_candidate_is_a_warning_and_fails_no_gate():
    opener = a_rule("identity", proof="identity", opens="policy-does-not-move", opens_alone=True)
    diagnosis = assemble(observe(a_series("entropy", [1.0] * 12)), a_pack([opener], []), [a_finding(opener)])
    assert diagnosis.verdict == "warning"
    assert exit_code(diagnosis, "low") == 0


@pytest.mark.parametrize(("soft", "leader"), [(2, "healthy"), (3, "unknown")])
def test_unknown_gains_with_each_opener(soft, leader):
    rules = [
        a_rule(f"s{i}", link=link, opens="no-signal")
        for i, link in zip(range(soft), ("loss", "ratio", "update"), strict=False)
    ]
    explanation = settled(rules=rules, findings=[a_finding(rule) for rule in rules])
    assert explanation.leader == leader


def test_a_proof_of_no_severity_is_no_stronger_than_a_symptom():
    opener = a_rule("theorem", proof="identity", severity="info", opens="no-signal", opens_alone=True)
    assert settled(rules=[opener], findings=[a_finding(opener)]).leader == "healthy"


def two_complaints(first, second, verdicts=("one", "two")):
    rules = [
        a_rule(f"opens-{c}", opens=c, opens_alone=True, proof="identity", link=link)
        for c, link in zip(verdicts, ("loss", "ratio"), strict=True)
    ]
    causes = [
        a_cause(f"of-{c}", {f"opens-{c}": w}, complaints=[c], severity=s)
        for c, (w, s) in zip(verdicts, (first, second), strict=True)
    ]
    return assemble(
        observe(a_series("entropy", [1.0] * 12)), a_pack(rules, causes), [a_finding(rule) for rule in rules]
    )


def test_the_worst_complaint_wins():
    assert two_complaints((40, "medium"), (40, "high")).verdict == "unhealthy"
    assert two_complaints((40, "medium"), (3, "high")).verdict == "warning"


def test_a_positive_finding_beats_thin_coverage():
    diagnosis = two_complaints((40, "high"), (40, "low"))
    assert not diagnosis.coverage.complete
    assert diagnosis.verdict == "unhealthy"


def test_a_cause_that_leads_two_complaints_keeps_its_better_place():
    """Suspected for one complaint, established for the other: one verdict, one exit code, and they agree."""
    rules = [
        a_rule(f"opens-{c}", opens=c, opens_alone=True, proof="identity", link=link)
        for c, link in (("one", "loss"), ("two", "ratio"))
    ]
    both = a_cause("both", {"opens-one": 20, "opens-two": 4}, complaints=["one", "two"])
    rival = a_cause("rival", {"opens-one": 18 - 2}, complaints=["one"])
    diagnosis = assemble(
        observe(a_series("entropy", [1.0] * 12)), a_pack(rules, [both, rival]), [a_finding(r) for r in rules]
    )
    assert diagnosis.verdict == "unhealthy"
    assert [cause.confidence for cause in diagnosis.causes if cause.id == "both"] == ["established"]
    assert exit_code(diagnosis, "high") == 1


def test_the_first_of_each_complaint_comes_before_causes_that_are_level_with_one():
    """A reader with two complaints is served by both leaders first, even if one of them is only suspected."""
    proof = a_rule("off", opens="ratio-wrong-at-start", opens_alone=True, proof="identity", link="ratio")
    flat = a_rule("flat", opens="critic-fails", opens_alone=True, proof="measured", link="critic")
    causes = [
        *(a_cause(name, {"off": 40}, complaints=["ratio-wrong-at-start"]) for name in ("one", "other", "third")),
        a_cause("critic", {"flat": 10}, complaints=["critic-fails"]),
    ]
    diagnosis = assemble(
        observe(a_series("entropy", [1.0] * 12)), a_pack([proof, flat], causes), [a_finding(proof), a_finding(flat)]
    )
    assert [cause.id for cause in diagnosis.causes] == ["one", "critic", "other", "third"]


@pytest.mark.parametrize(("slope", "named"), [(-0.02, True), (0.05, False)])
def test_a_healthy_verdict_names_what_was_seen_without_a_cause(slope, named, tmp_path):
    """A reward that sinks while everything else is sound has no cause that the log shows, and is said all the same."""
    wobble = [0.0, 0.7, -0.4, 0.2, -0.6, 0.5, -0.1]
    rows = [
        {
            "step": i + 1,
            "approx_kl": 0.01 + 0.001 * wobble[i % 7],
            "clip_fraction": 0.1,
            "optimizer_steps": 16,
            "entropy": 1 - 0.004 * i,
            "policy_loss": -0.01 + 0.001 * wobble[i % 5],
            "episode_return": 10 + slope * i + 0.1 * wobble[(3 * i) % 7],
        }
        for i in range(60)
    ]
    log = tmp_path / "run.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    diagnosis = ppo_doctor.analyze(log)
    seen = [f.title for f in diagnosis.findings if f.status == "fired" and f.rule == "reward-never-rises"]
    assert diagnosis.verdict == "healthy"
    assert bool(seen) is named
    assert all(title in diagnosis.verdict_because for title in seen)


@pytest.mark.parametrize("bears", [{"answers": "movement"}, {"opens": "policy-does-not-move"}, {"weighed": True}, {}])
def test_a_check_that_failed_keeps_a_run_from_health_where_it_bears_on_the_verdict(bears):
    """All three questions are answered by other checks, and nothing was found."""
    weighed = bears.pop("weighed", False)
    broken = a_rule("broken", link="ratio", **bears)
    causes = [a_cause("subject", {"broken": 10})] if weighed else []
    pack = a_pack([*QUESTIONS.values(), broken], causes)
    findings = [a_finding(rule, "clear") for rule in QUESTIONS.values()] + [a_finding(broken, "errored")]
    diagnosis = assemble(observe(a_series("entropy", [1.0] * 12)), pack, findings)
    concerned = bool(bears) or weighed
    assert diagnosis.verdict == ("inconclusive" if concerned else "healthy")
    assert ("broken" in diagnosis.verdict_because) == concerned
    assert dict(diagnosis.coverage.failed) == ({"broken": "not logged"} if concerned else {})
