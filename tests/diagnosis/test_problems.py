"""Problems: which causes compete, who leads, how sure, and in which order all of them are printed."""

from __future__ import annotations

import pytest

from ppo_doctor.diagnosis.problems import LEVEL_DB, LIKELY_DB, SPEAKS_DB, in_order, problems
from ppo_doctor.model.words import Severity
from tests.synthetic import a_cause, a_finding, a_rule

RULES = [a_rule(name) for name in ("one", "two", "three")]


def found(causes, statuses=("fired", "fired", "fired")):
    findings = [a_finding(rule, status) for rule, status in zip(RULES, statuses, strict=True)]
    return problems(causes, findings)


def order(causes, **others):
    return [cause.id for cause in in_order(found(causes, **others))]


def test_no_cause_no_problem():
    assert found([a_cause("quiet", {"one": SPEAKS_DB - 1})]) == ()
    assert found([a_cause("silent", {"one": 30})], ("skipped",) * 3) == ()


def test_where_the_run_is_no_sound_one_the_odds_against_one_say_nothing():
    findings = [a_finding(rule, "fired") for rule in RULES]
    unlikely = [a_cause("speaks", {"one": SPEAKS_DB - 5}), a_cause("other", {"two": SPEAKS_DB - 5})]
    positive = [a_cause("speaks", {"one": 1}, prior=-20), a_cause("other", {"two": 1}, prior=-20)]
    assert problems(positive, findings) == ()
    (group,) = problems(positive, findings, odd="one")
    assert (group.leader.id, group.leader.confidence) == ("speaks", "suspected")
    assert problems(unlikely, findings, odd="one") == ()  # a check that speaks against them speaks for none


def test_a_high_score_without_anything_that_speaks_for_it_is_none():
    assert found([a_cause("only-silence", {"one": (0, 30)})], ("clear",) * 3) == ()


@pytest.mark.parametrize(
    ("score", "confidence"), [(SPEAKS_DB + 5, "suspected"), (LIKELY_DB - 1, "suspected"), (LIKELY_DB, "likely")]
)
def test_confidence_by_score(score, confidence):
    assert found([a_cause("it", {"one": score})])[0].leader.confidence == confidence


def test_a_proof_is_established_and_leads_over_what_scores_higher():
    proven = a_cause("proven", {"one": 10}, proof=("one",))
    assert order([a_cause("loud", {"two": 50}), proven]) == ["proven", "loud"]
    assert found([proven])[0].leader.confidence == "established"


def test_what_no_log_can_prove_stays_suspected_and_leads_over_nothing_that_can_be_told():
    never = a_cause("never", {"one": 50}, never_proven=True)
    causes = in_order(found([never, a_cause("told", {"two": 20})]))
    assert [(c.id, c.confidence) for c in causes] == [("told", "likely"), ("never", "suspected")]


def test_near_scores_are_level_and_far_ones_are_not():
    near = found([a_cause("a", {"one": 20}), a_cause("b", {"one": 20 - LEVEL_DB})])[0].causes
    assert [cause.level_with for cause in near] == [("b",), ("a",)]
    far = found([a_cause("a", {"one": 20}), a_cause("b", {"one": 19 - LEVEL_DB})])[0].causes
    assert [(cause.level_with, cause.leader) for cause in far] == [((), True), ((), False)]


def test_a_declared_twin_is_level_however_far():
    twins = [a_cause("a", {"one": 30}, twins=("b",)), a_cause("b", {"one": 12})]
    assert [cause.level_with for cause in found(twins)[0].causes] == [("b",), ("a",)]


def test_causes_of_other_complaints_are_problems_of_their_own():
    other = a_cause("other", {"two": 30}, complaints=("steps-too-large",))
    told = found([a_cause("it", {"one": 20}), other])
    assert [group.complaint for group in told] == ["steps-too-large", "policy-does-not-move"]
    assert [cause.problem for cause in in_order(told)] == ["p1", "p2"]


def test_every_leader_comes_before_any_rival():
    causes = [
        a_cause("first", {"one": 40}),
        a_cause("rival", {"one": 35}),
        a_cause("second", {"two": 20}, complaints=("steps-too-large",)),
    ]
    assert order(causes) == ["first", "second", "rival"]


def test_a_harmless_explanation_comes_last():
    benign = a_cause("benign", {"one": 40}, benign=True, severity="info", proof=("one",), complaints=("x",))
    assert order([benign, a_cause("fault", {"two": 9})]) == ["fault", "benign"]


@pytest.mark.parametrize(
    ("severity", "score", "benign", "verdict"),
    [
        ("critical", 30, False, "unhealthy"),
        ("high", 30, False, "unhealthy"),
        ("medium", 30, False, "warning"),
        ("critical", LIKELY_DB - 1, False, "warning"),
        ("info", 30, True, "healthy"),
    ],
)
def test_what_a_problem_makes_of_the_run(severity, score, benign, verdict):
    assert found([a_cause("it", {"one": score}, severity=severity, benign=benign)])[0].verdict == verdict


def test_a_fault_level_with_a_harmless_explanation_settles_nothing():
    causes = [a_cause("fault", {"one": 30}), a_cause("benign", {"one": 30}, benign=True, severity="info")]
    assert found(causes)[0].verdict == "inconclusive"


def test_what_would_settle_it_is_asked_for():
    cause = a_cause("it", {"one": 20, "two": 30}, measure=[("ratio_std", "it separates them")])
    findings = [
        a_finding(RULES[0]),
        a_finding(RULES[1], "skipped", missing=("approx_kl",)),
        a_finding(RULES[2], "clear"),
    ]
    asked = problems([cause], findings)[0].leader.would_change_my_mind
    assert [measure.log for measure in asked] == ["ratio_std", "approx_kl"]


MECHANISM = a_cause("mechanism", {"one": 10}, proof=("one",), link="advantages", complaints=("no-signal",))
ROOTS = [
    a_cause("weak-root", {"two": 10}, root_of=("mechanism",), complaints=("x",)),
    a_cause("strong-root", {"two": 20}, root_of=("mechanism",), complaints=("no-signal",)),
]


def roles(causes):
    return [(cause.id, cause.role, cause.leader) for cause in in_order(found(causes))]


def test_a_proven_mechanism_stands_before_its_roots_and_they_before_other_problems():
    loud = a_cause("loud", {"three": 50}, complaints=("y",))
    assert roles([*ROOTS, loud, MECHANISM]) == [
        ("mechanism", "mechanism", True),
        ("strong-root", "root", False),
        ("weak-root", "root", False),
        ("loud", "mechanism", True),
    ]


def test_a_proven_root_leads_and_the_mechanism_is_its_consequence():
    proven = a_cause("proven", {"two": 5}, proof=("two",), root_of=("mechanism",), complaints=("x",))
    assert roles([MECHANISM, proven]) == [("proven", "root", True), ("mechanism", "mechanism", False)]
    told = in_order(found([MECHANISM, proven]))
    assert [cause.confidence for cause in told] == ["established", "established"]
    assert found([MECHANISM, proven])[0].link == "advantages"


def test_what_is_not_proven_has_rivals_and_no_roots():
    doubtful = a_cause("mechanism", {"one": 10}, complaints=("no-signal",))
    assert roles([doubtful, ROOTS[1]]) == [("strong-root", "mechanism", True), ("mechanism", "alternative", False)]


@pytest.mark.parametrize("about", [{"link": "critic"}, {"complaints": ("policy-does-not-move",)}])
def test_where_the_reward_rose_what_it_contradicts_is_a_suspicion_unless_it_is_proven(about):
    about = {"complaints": ("critic-fails",)} | about
    findings = [a_finding(RULES[0])]
    likely = a_cause("it", {"one": LIKELY_DB + 3}, severity="high", **about)
    proven = a_cause("proven", {"one": 5}, proof=("one",), severity="high", **about)
    for causes, learned, sure in (
        ([likely], False, "likely"),
        ([likely], True, "suspected"),
        ([proven], True, "established"),
    ):
        (group,) = problems(causes, findings, learned=learned)
        assert group.leader.confidence == sure, (causes, learned)


def test_where_the_reward_rose_other_causes_stay_as_sure():
    cause = a_cause("it", {"one": LIKELY_DB + 3}, link="step", complaints=("steps-too-large",))
    (group,) = problems([cause], [a_finding(RULES[0])], learned=True)
    assert group.leader.confidence == "likely"


def test_a_grave_finding_without_a_cause_brings_in_the_one_that_it_is_usual_for():
    grave = a_finding(a_rule("grave", severity=Severity.MEDIUM), "fired")
    other = a_finding(a_rule("other", severity=Severity.LOW), "clear")
    usual = a_cause("usual", {"grave": 6}, prior=-14)
    (group,) = problems([usual, a_cause("rarer", {"grave": 3}, prior=-10)], [grave, other])
    assert [(cause.id, cause.confidence) for cause in group.causes] == [("usual", "suspected")]
    assert problems([a_cause("refuted", {"grave": 6, "other": (0, -8)}, prior=-4)], [grave, other]) == ()
    mild = a_finding(a_rule("grave", severity=Severity.LOW), "fired")
    assert problems([usual], [mild, other]) == ()


def test_beside_a_likely_fault_no_finding_brings_in_a_cause():
    findings = [a_finding(a_rule(name, severity=Severity.MEDIUM), "fired") for name in ("one", "grave")]
    likely, usual = a_cause("likely", {"one": LIKELY_DB}), a_cause("usual", {"grave": 6}, prior=-14)
    assert [cause.id for group in problems([likely, usual], findings) for cause in group.causes] == ["likely"]
