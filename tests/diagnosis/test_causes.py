"""Scores of causes: which compete and lead, how sure, in which order."""

from __future__ import annotations

import math

import pytest

from ppo_doctor.diagnosis.causes import CONSIDERED_DB, LEVEL_DB, LIKELY_DB, account, cause_groups, ranked_causes
from ppo_doctor.model.rules import weights_of
from ppo_doctor.model.words import Severity
from tests.synthetic import a_cause, a_finding, a_rule

RULES = [a_rule(name) for name in ("one", "two", "three")]


def found(causes, statuses=("fired", "fired", "fired")):
    findings = [a_finding(rule, status) for rule, status in zip(RULES, statuses, strict=True)]
    return cause_groups(causes, findings)


def order(causes, **others):
    return [cause.id for cause in ranked_causes(found(causes, **others))]


def test_no_cause_no_problem():
    assert found([a_cause("quiet", {"one": CONSIDERED_DB - 1})]) == ()
    assert found([a_cause("silent", {"one": 30})], ("skipped",) * 3) == ()


def test_where_the_run_is_no_sound_one_the_odds_against_one_say_nothing():
    findings = [a_finding(rule, "fired") for rule in RULES]
    unlikely = [a_cause("speaks", {"one": CONSIDERED_DB - 5}), a_cause("other", {"two": CONSIDERED_DB - 5})]
    positive = [a_cause("speaks", {"one": 1}, prior=-20), a_cause("other", {"two": 1}, prior=-20)]
    assert cause_groups(positive, findings) == ()
    (group,) = cause_groups(positive, findings, odd="one")
    assert (group.leader.id, group.leader.confidence) == ("speaks", "suspected")
    assert cause_groups(unlikely, findings, odd="one") == ()  # a check that speaks against them speaks for none


def test_a_high_score_without_anything_that_speaks_for_it_is_none():
    assert found([a_cause("only-silence", {"one": (0, 30)})], ("clear",) * 3) == ()


@pytest.mark.parametrize(
    ("score", "confidence"), [(CONSIDERED_DB + 5, "suspected"), (LIKELY_DB - 1, "suspected"), (LIKELY_DB, "likely")]
)
def test_confidence_by_score(score, confidence):
    assert found([a_cause("it", {"one": score})])[0].leader.confidence == confidence


def test_a_proof_is_established_and_leads_over_what_scores_higher():
    proven = a_cause("proven", {"one": 10}, proof=("one",))
    assert order([a_cause("loud", {"two": 50}), proven]) == ["proven", "loud"]
    assert found([proven])[0].leader.confidence == "established"


def test_what_no_log_can_prove_stays_suspected_and_leads_over_nothing_that_can_be_told():
    never = a_cause("never", {"one": 50}, never_proven=True)
    causes = ranked_causes(found([never, a_cause("told", {"two": 20})]))
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
    assert [cause.problem for cause in ranked_causes(told)] == ["p1", "p2"]


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
    asked = cause_groups([cause], findings)[0].leader.would_change_my_mind
    assert [measure.log for measure in asked] == ["ratio_std", "approx_kl"]


MECHANISM = a_cause("mechanism", {"one": 10}, proof=("one",), link="advantages", complaints=("no-signal",))


ROOTS = [
    a_cause("weak-root", {"two": 10}, root_of=("mechanism",), complaints=("x",)),
    a_cause("strong-root", {"two": 20}, root_of=("mechanism",), complaints=("no-signal",)),
]


def roles(causes):
    return [(cause.id, cause.role, cause.leader) for cause in ranked_causes(found(causes))]


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
    told = ranked_causes(found([MECHANISM, proven]))
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
        (group,) = cause_groups(causes, findings, learned=learned)
        assert group.leader.confidence == sure, (causes, learned)


def test_where_the_reward_rose_other_causes_stay_as_sure():
    cause = a_cause("it", {"one": LIKELY_DB + 3}, link="step", complaints=("steps-too-large",))
    (group,) = cause_groups([cause], [a_finding(RULES[0])], learned=True)
    assert group.leader.confidence == "likely"


def test_a_grave_finding_without_a_cause_brings_in_the_one_that_it_is_usual_for():
    grave = a_finding(a_rule("grave", severity=Severity.MEDIUM), "fired")
    other = a_finding(a_rule("other", severity=Severity.LOW), "clear")
    usual = a_cause("usual", {"grave": 6}, prior=-14)
    (group,) = cause_groups([usual, a_cause("rarer", {"grave": 3}, prior=-10)], [grave, other])
    assert [(cause.id, cause.confidence) for cause in group.causes] == [("usual", "suspected")]
    assert cause_groups([a_cause("refuted", {"grave": 6, "other": (0, -8)}, prior=-4)], [grave, other]) == ()
    mild = a_finding(a_rule("grave", severity=Severity.LOW), "fired")
    assert cause_groups([usual], [mild, other]) == ()


def test_beside_a_likely_fault_no_finding_brings_in_a_cause():
    findings = [a_finding(a_rule(name, severity=Severity.MEDIUM), "fired") for name in ("one", "grave")]
    likely, usual = a_cause("likely", {"one": LIKELY_DB}), a_cause("usual", {"grave": 6}, prior=-14)
    assert [cause.id for group in cause_groups([likely, usual], findings) for cause in group.causes] == ["likely"]


RULE = {name: a_rule(name) for name in ("proof", "usual", "required", "excluding")}


def findings(**statuses):
    return {name: a_finding(RULE[name], status) for name, status in statuses.items()}


def a_cause_in_words(rates=None, prior=-10, **words):
    raw = {word: [name] for word, name in words.items()}
    weights = weights_of(raw, rates or {})
    proof, needs = tuple(raw.get("proof", ())), tuple(raw.get("needs", ()))
    cause = a_cause("cause", prior=prior, proof=proof, needs=needs)
    return type(cause)(**{**{f: getattr(cause, f) for f in cause.__dataclass_fields__}, "weights": weights})


def test_a_word_weighs_what_it_says_against_the_rate_of_sound_runs():
    cause = a_cause_in_words({"usual": 0.05}, usual="usual")
    assert account(cause, findings(usual="fired")).score == -10 + round(10 * math.log10(0.75 / 0.05))
    assert account(cause, findings(usual="clear")).score == -10 + round(10 * math.log10(0.25 / 0.95))
    assert account(cause, findings(usual="skipped")).score == -10


def test_a_check_that_sound_runs_often_answer_with_yes_speaks_for_nothing():
    cause = a_cause_in_words({"usual": 0.75}, usual="usual")
    assert not account(cause, findings(usual="fired")).support


@pytest.mark.parametrize(
    ("words", "statuses"),
    [
        ({"excludes": "excluding"}, {"excluding": "fired"}),
        ({"requires": "required"}, {"required": "clear"}),
        ({"needs": "usual"}, {"usual": "clear"}),
        ({"needs": "usual"}, {"usual": "skipped"}),
    ],
)
def test_what_rules_a_cause_out(words, statuses):
    cause = a_cause_in_words(proof="proof", usual="usual", **words)
    assert account(cause, findings(proof="fired", **statuses)) is None


@pytest.mark.parametrize(
    ("words", "statuses"),
    [({"excludes": "excluding"}, {"excluding": "clear"}), ({"requires": "required"}, {"required": "skipped"})],
)
def test_what_does_not(words, statuses):
    cause = a_cause_in_words(proof="proof", **words)
    assert account(cause, findings(proof="fired", **statuses)).proven


def test_what_nothing_else_explains_its_own_cause_does_whatever_rules_that_out():
    cause = a_cause_in_words(proof="proof", excludes="excluding")
    answers = findings(proof="fired", excluding="fired")
    assert account(cause, answers, odd="proof").proven
    assert account(cause, answers, odd="usual") is None
    assert account(cause, findings(proof="clear", excluding="fired"), odd="proof") is None


def test_a_proof_proves_unless_the_cause_never_can_be():
    cause = a_cause_in_words(proof="proof")
    assert account(cause, findings(proof="fired")).proven
    assert not account(cause, findings(proof="clear")).proven
    never = a_cause("never", {"proof": 35}, proof=("proof",), never_proven=True)
    assert not account(never, findings(proof="fired")).proven


def test_the_ledger_adds_up_to_the_score():
    cause = a_cause_in_words(proof="proof", usual="usual")
    told = account(cause, findings(proof="fired", usual="clear"))
    assert told.score == cause.prior + sum(entry.db for entry in told.lines)
    assert {entry.finding.rule: entry.finding.status for entry in told.lines} == {"proof": "fired", "usual": "clear"}
