"""A cause's account: proof, exclusion, requirement, and the sum of the words."""

from __future__ import annotations

import math

import pytest

from ppo_doctor.checks.rulepack import weights_of
from ppo_doctor.diagnosis.problems import account
from tests.synthetic import a_cause, a_finding, a_rule

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
    assert told.score == cause.prior + sum(entry.db for entry in told.ledger)
    assert {entry.finding: entry.status for entry in told.ledger} == {"proof": "fired", "usual": "clear"}
