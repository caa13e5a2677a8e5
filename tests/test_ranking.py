"""How findings weigh for causes: caps, levels, confidence, complaints, and an account that a person can add up."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.accounts import account
from ppo_doctor.errors import DoctorError
from ppo_doctor.model import LINKS, Finding, Severity
from ppo_doctor.ranking import explain, open_complaints
from ppo_doctor.rulepack import PRIORS, check_references
from tests.synthetic import a_cause, a_finding, a_pack, a_rule

MOVES = "policy-does-not-move"


def opener(name="opener", link="ratio", **fields):
    """Return a proof that opens the complaint alone."""
    return a_rule(name, link=link, opens=MOVES, opens_alone=True, **({"proof": "identity"} | fields))


def soft(name, link):
    return a_rule(name, link=link, opens=MOVES)


def explained(rules, causes, findings=None):
    (explanation,) = explain(a_pack(rules, causes), findings or [a_finding(rule) for rule in rules])
    return explanation


def by_id(explanation):
    return {cause.id: cause for cause in explanation.causes}


def score(cause, *findings):
    return account(cause, {finding.rule: finding for finding in findings}).score


# Accounts


def test_correlated_findings_count_once_per_link():
    rules = [a_rule(f"r{i}", link="ratio") for i in range(4)]
    cause = a_cause("c", {"r0": 10, "r1": 12, "r2": 9, "r3": 11}, prior=-10)
    found = account(cause, {rule.name: a_finding(rule) for rule in rules})
    assert found.score == -10 + 12
    assert [(entry.finding, entry.counted) for entry in found.ledger if entry.counted] == [("r1", True)]
    assert len(found.ledger) == 4


def test_a_link_counts_its_strongest_for_and_its_strongest_against():
    rules = [a_rule(f"r{i}", link="ratio") for i in range(4)]
    cause = a_cause("c", {"r0": 10, "r1": -7, "r2": 4, "r3": -9})
    assert score(cause, *map(a_finding, rules)) == 10 - 9


def test_links_add_up():
    rules = [a_rule(f"r-{link}", link=link) for link in LINKS]
    assert score(a_cause("c", {rule.name: 2 for rule in rules}), *map(a_finding, rules)) == 2 * len(LINKS)


@pytest.mark.parametrize(("status", "expected"), [("fired", 20), ("clear", -8), ("skipped", 0), ("errored", 0)])
def test_what_could_not_look_weighs_nothing(status, expected):
    assert score(a_cause("c", {"r": (20, -8)}), a_finding(a_rule("r"), status)) == expected


def test_findings_that_a_cause_does_not_mention_weigh_nothing():
    assert score(a_cause("c", {"r": 5}, prior=-15), a_finding(a_rule("other"))) == -15


def test_priors_are_those_of_the_design():
    assert dict(PRIORS) == {"common": -10, "occasional": -15, "rare": -22}


WEIGHTS = st.integers(-60, 60)
ENTRIES = st.lists(
    st.tuples(st.sampled_from(LINKS), WEIGHTS, WEIGHTS, st.sampled_from(["fired", "clear", "skipped", "errored"])),
    max_size=12,
)


@given(entries=ENTRIES, prior=st.integers(-30, 0))
def test_a_ledger_adds_up_to_its_score(entries, prior):
    rules = [a_rule(f"r{i}", link=link) for i, (link, *_) in enumerate(entries)]
    findings = {rule.name: a_finding(rule, entry[3]) for rule, entry in zip(rules, entries, strict=True)}
    cause = a_cause("c", {f"r{i}": (fired, clear) for i, (_, fired, clear, _) in enumerate(entries)}, prior=prior)
    found = account(cause, findings)
    assert found.score == prior + sum(entry.db for entry in found.ledger if entry.counted)
    expected = prior
    for link in LINKS:
        weights = [f if s == "fired" else c for at, f, c, s in entries if at == link and s in ("fired", "clear")]
        expected += max([0, *weights]) + min([0, *weights])
    assert found.score == expected


@given(data=st.data(), entries=ENTRIES)
def test_order_does_not_matter(data, entries):
    rules = [opener(), *(a_rule(f"r{i}", link=link) for i, (link, *_) in enumerate(entries))]
    findings = [a_finding(rules[0]), *(a_finding(r, e[3]) for r, e in zip(rules[1:], entries, strict=True))]
    weights = {f"r{i}": (fired, clear) for i, (_, fired, clear, _) in enumerate(entries)}
    causes = [a_cause("a", {"opener": 30} | weights), a_cause("b", {"opener": 30}), a_cause("c", {"opener": 28})]
    seed = data.draw(st.integers(0, 2**32))
    shuffled = random.Random(seed)
    once = explained(rules, causes, findings)
    for things in (rules, causes, findings):
        shuffled.shuffle(things)
    assert explained(rules, causes, findings) == once


# Level, likely, established


@pytest.mark.parametrize(("gap", "level"), [(0, True), (3, True), (4, False)])
def test_level_within_three_decibans(gap, level):
    found = by_id(explained([opener()], [a_cause("a", {"opener": 40}), a_cause("b", {"opener": 40 - gap})]))
    assert found["b"].leader is level
    assert found["a"].level_with == (("b",) if level else ())
    assert found["b"].level_with == (("a",) if level else ())


@pytest.mark.parametrize(("behind", "level"), [(12, True), (13, False)])
def test_twins_are_level_until_a_proof_tells_them_apart(behind, level):
    """Twins weigh alike in logs; what tensors prove may put one clearly behind. Any other cause is behind at 4."""
    twins = [a_cause("a", {"opener": 40}, twins=("b",)), a_cause("b", {"opener": 40 - behind}, twins=("a",))]
    found = by_id(explained([opener()], [*twins, a_cause("c", {"opener": 36})]))
    assert (found["a"].level_with, found["b"].level_with) == ((("b",), ("a",)) if level else ((), ()))
    assert not found["c"].leader


def test_the_rarer_twin_is_named_second():
    rarer = a_cause("a", {"opener": 40}, twins=("b",), rarer_twin=True)
    assert explained([opener()], [rarer, a_cause("b", {"opener": 40}, twins=("a",))]).leader == "b"


def test_level_causes_ask_for_the_same_measurements():
    causes = [a_cause(n, {"opener": 40}, measure=[(f"log {n}", "it tells")]) for n in "ab"]
    found = by_id(explained([opener()], causes))
    assert found["a"].would_change_my_mind == found["b"].would_change_my_mind
    assert {m.log for m in found["a"].would_change_my_mind} == {"log a", "log b"}


def test_every_level_cause_is_in_the_list():
    causes = [a_cause(f"c{i}", {"opener": 40}) for i in range(8)]
    found = by_id(explained([opener()], causes))
    assert {other for cause in found.values() for other in cause.level_with} <= found.keys()


def test_a_twin_is_in_the_list_behind_many_others():
    others = [a_cause(f"c{i}", {"opener": 35}) for i in range(6)]
    twins = [a_cause("a", {"opener": 40}, twins=("z",)), a_cause("z", {"opener": 30}, twins=("a",))]
    found = by_id(explained([opener()], [*others, *twins]))
    assert {other for cause in found.values() for other in cause.level_with} <= found.keys()


@pytest.mark.parametrize(
    ("rival", "confidence"), [(27, "likely"), (28, "suspected"), (36, "suspected"), (37, "likely")]
)
def test_likely_takes_thirteen_decibans_over_every_rival_that_is_not_level(rival, confidence):
    """At 36 of 40 the rival is close but not level; at 37 it is level, and no longer a rival."""
    rules = [soft("s1", "loss"), soft("s2", "ratio")]
    found = by_id(explained(rules, [a_cause("a", {"s1": 40}), a_cause("b", {"s1": rival})]))
    assert found["a"].confidence == confidence


@pytest.mark.parametrize(("weight", "confidence"), [(17, "suspected"), (18, "established")])
def test_unknown_is_a_rival(weight, confidence):
    assert by_id(explained([opener()], [a_cause("a", {"opener": weight})]))["a"].confidence == confidence


@pytest.mark.parametrize("proof", ["identity", "counter", "tensor", None])
def test_a_proof_establishes(proof):
    rules = [soft("s1", "loss"), soft("s2", "ratio"), a_rule("evidence", link="update", proof=proof)]
    found = by_id(explained(rules, [a_cause("a", {"evidence": 20})]))
    assert found["a"].confidence == ("established" if proof else "likely")


def test_a_proof_against_or_uncounted_establishes_nothing():
    proof = a_rule("p", link="update", proof="identity")
    rules = [soft("s1", "loss"), soft("s2", "ratio"), proof, a_rule("stronger", link="update")]
    causes = [a_cause("a", {"p": 9, "stronger": 20})]
    assert by_id(explained(rules, causes))["a"].confidence == "likely"
    assert by_id(explained(rules, [a_cause("a", {"p": -5, "s1": 20})]))["a"].confidence == "likely"


def test_a_proof_that_is_clear_establishes_nothing():
    rules = [soft("s1", "loss"), soft("s2", "ratio"), a_rule("p", link="update", proof="identity")]
    findings = [a_finding(rules[0]), a_finding(rules[1]), a_finding(rules[2], "clear")]
    assert by_id(explained(rules, [a_cause("a", {"p": (0, 20)})], findings))["a"].confidence == "likely"


def test_each_level_cause_stands_on_its_own_proof():
    rules = [soft("s1", "loss"), soft("s2", "ratio"), a_rule("p", link="update", proof="identity")]
    found = by_id(explained(rules, [a_cause("proven", {"p": 20}), a_cause("not-proven", {"s1": 19})]))
    assert (found["proven"].confidence, found["not-proven"].confidence) == ("established", "likely")


@pytest.mark.parametrize("first", ["a", "b"])
def test_what_logs_cannot_prove_is_never_more_than_suspected(first):
    weights = {"a": 40, "b": 40} | {first: 41}
    causes = [a_cause("a", {"opener": weights["a"]}, never_proven=True), a_cause("b", {"opener": weights["b"]})]
    found = by_id(explained([opener()], causes))
    assert found["a"].confidence == "suspected"
    assert explained([opener()], causes[:1]).verdict == "warning"


def test_who_does_not_lead_is_suspected():
    found = by_id(explained([opener()], [a_cause("a", {"opener": 40}), a_cause("b", {"opener": 20})]))
    assert (found["b"].leader, found["b"].confidence) == (False, "suspected")


# Complaints


def opened(*rules, statuses=None):
    findings = [a_finding(rule, status) for rule, status in zip(rules, statuses or ["fired"] * len(rules), strict=True)]
    return [complaint for complaint, _ in open_complaints(a_pack(rules, []), findings)]


def test_a_soft_symptom_alone_opens_nothing():
    assert opened(soft("a", "loss")) == []


def test_two_soft_symptoms_on_one_link_open_nothing():
    assert opened(soft("a", "loss"), soft("b", "loss")) == []


def test_two_soft_symptoms_on_two_links_open():
    assert opened(soft("a", "loss"), soft("b", "ratio")) == [MOVES]


def test_soft_symptoms_of_two_complaints_open_neither():
    assert opened(soft("a", "loss"), a_rule("b", link="ratio", opens="no-signal")) == []


def test_a_proof_opens_alone():
    assert opened(opener()) == [MOVES]


@pytest.mark.parametrize("status", ["clear", "skipped", "errored"])
def test_only_what_fired_opens(status):
    assert opened(opener(), soft("b", "loss"), statuses=[status, "fired"]) == []


def test_a_rule_that_opens_nothing_opens_nothing():
    assert opened(a_rule("quiet", proof="identity"), soft("a", "loss")) == []


def test_severity_comes_before_onset_and_onset_before_the_rest():
    rules = {n: opener(n, severity=s) for n, s in (("late", "high"), ("early", "high"), ("worst", "critical"))}
    rules = {n: a_rule(n, severity=str(r.severity), opens=f"complaint-{n}", opens_alone=True) for n, r in rules.items()}
    onsets = {"late": 50, "early": 3, "worst": 90}
    findings = [a_finding(rule, onset=onsets[name]) for name, rule in rules.items()]
    order = [complaint for complaint, _ in open_complaints(a_pack(rules.values(), []), findings)]
    assert order == ["complaint-worst", "complaint-early", "complaint-late"]


def two(later_weight, *, first_benign=False, second_weight=30, openers=1):
    """Return two complaints: the leader of the first weighs `later_weight` with each opener of the second."""
    first = a_rule("o1", severity="critical", opens="one", opens_alone=True, proof="identity", link="loss")
    links = ("ratio", "update")
    later = [a_rule(f"o2{i}", opens="two", opens_alone=True, proof="identity", link=links[i]) for i in range(openers)]
    weights = {"o1": 40} | {rule.name: w for rule, w in zip(later, later_weight, strict=True)}
    causes = [
        a_cause("early", weights, complaints=["one"], benign=first_benign),
        a_cause("late", {rule.name: second_weight for rule in later}, complaints=["two"]),
    ]
    return explain(a_pack([first, *later], causes), [a_finding(rule) for rule in (first, *later)])


@pytest.mark.parametrize(("weight", "folds"), [(5, True), (20, True), (4, False), (0, False), (-9, False)])
def test_a_complaint_that_an_earlier_leader_explains_folds_into_it(weight, folds):
    one, other = two([weight])
    assert (one.complaint, other.complaint) == ("one", "two")
    assert other.folded_into == ("early" if folds else None)
    assert bool(other.causes) is not folds
    assert other.verdict == ("healthy" if folds else "unhealthy")


def test_all_openers_have_to_be_explained():
    assert two([9, 9], openers=2)[1].folded_into == "early"
    assert two([9, 4], openers=2)[1].folded_into is None


def test_nothing_folds_into_a_benign_cause():
    assert two([9], first_benign=True)[1].folded_into is None


# What would change its mind


def test_the_heaviest_question_that_was_not_answered_is_asked():
    silent = [a_rule("light", link="loss"), a_rule("heavy", link="update")]
    rules = [opener(), *silent]
    cause = a_cause("a", {"opener": 40, "light": 8, "heavy": (3, -30)})
    asks = {"light": "entropy", "heavy": "update_norm"}
    skipped = [a_finding(rule, "skipped", missing=[asks[rule.name]]) for rule in silent]
    found = by_id(explained(rules, [cause], [a_finding(rules[0]), *skipped]))
    assert [m.log for m in found["a"].would_change_my_mind] == ["update_norm", "entropy"]
    assert all(m.because for m in found["a"].would_change_my_mind)


def test_what_was_answered_is_not_asked_again():
    rules = [opener(), a_rule("other", link="loss")]
    found = by_id(explained(rules, [a_cause("a", {"opener": 40, "other": 9})]))
    assert found["a"].would_change_my_mind == ()


def test_the_onset_of_a_cause_is_that_of_what_speaks_for_it():
    rules = [opener("p"), a_rule("q", link="loss"), a_rule("against", link="update")]
    findings = [a_finding(rules[0], onset=30), a_finding(rules[1], onset=12), a_finding(rules[2], onset=1)]
    found = by_id(explained(rules, [a_cause("a", {"p": 40, "q": 5, "against": -5})], findings))
    assert found["a"].onset_step == 12


# What a finding owes


def test_fired_needs_evidence():
    with pytest.raises(ValueError, match="evidence"):
        Finding(rule="r", code="R", title="t", link="ratio", status="fired", severity=Severity.LOW)


@pytest.mark.parametrize("status", ["skipped", "errored"])
@pytest.mark.parametrize("reason", [None, ""])
def test_not_looking_needs_a_reason(status, reason):
    with pytest.raises(ValueError, match="reason"):
        Finding(rule="r", code="R", title="t", link="ratio", status=status, severity=Severity.LOW, reason=reason)


@pytest.mark.parametrize(
    ("proof", "weight", "allowed"), [(None, 20, 1), (None, -21, 0), ("identity", 60, 1), ("counter", 61, 0)]
)
def test_only_a_proof_may_weigh_more_than_twenty(proof, weight, allowed):
    pack = a_pack([a_rule("r", proof=proof)], [a_cause("c", {"r": (0, weight)})])
    if allowed:
        check_references(pack)
    else:
        with pytest.raises(DoctorError):
            check_references(pack)


# Probabilities


def test_probabilities_are_a_softmax_of_scores_with_health_and_the_unknown():
    rules = [opener("still", link="ratio")]
    causes = [a_cause("one", {"still": 40}, prior=-10), a_cause("two", {"still": 30}, prior=-10)]
    pack = replace(a_pack(rules, causes), temperature=2.0)
    (explanation,) = explain(pack, [a_finding(rule) for rule in rules])
    powers = {name: 10 ** (score / 20) for name, score in {"one": 30, "two": 20, "healthy": 0, "unknown": 5}.items()}
    expected = {name: power / sum(powers.values()) for name, power in powers.items()}
    assert {c.id: c.probability for c in explanation.causes} == pytest.approx({n: expected[n] for n in ("one", "two")})


def test_without_a_fitted_temperature_there_are_no_probabilities():
    explanation = explained([opener()], [a_cause("one", {"opener": 40})])
    assert [cause.probability for cause in explanation.causes] == [None]
