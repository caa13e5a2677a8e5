"""Several faults in one run: what a leader leaves unexplained, what came later, and what was there before the break."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ppo_doctor.accounts import candidates
from ppo_doctor.complaints import Explanation
from ppo_doctor.earlier import break_step, joined
from ppo_doctor.model import Finding, Rule
from ppo_doctor.ranking import explain
from tests.synthetic import a_cause, a_finding, a_pack, a_rule

MOVES = "policy-does-not-move"


def proof(name: str, link: str, opens: str = MOVES) -> Rule:
    return a_rule(name, link=link, opens=opens, opens_alone=True, proof="identity")


def since(rule: Rule, onset: int, last: int = 100) -> Finding:
    """Return a finding that lasts from a step to the end of the run."""
    found = a_finding(rule, onset=onset)
    return replace(found, evidence=tuple(replace(part, steps=(onset, last)) for part in found.evidence))


def leaders(rules, causes, findings=None):
    return [e.leader for e in explain(a_pack(rules, causes), findings or [a_finding(rule) for rule in rules])]


CLIPPED, NO_GRADIENT = proof("clipped", "ratio"), proof("no-gradient", "gradient")
NOTHING_EARNED = a_cause("nothing-earned", {"no-gradient": 40})
NARROW = a_cause("narrow", {"clipped": 40, "no-gradient": -30})


def test_two_faults_may_open_one_complaint():
    assert leaders([CLIPPED, NO_GRADIENT], [NOTHING_EARNED, NARROW]) == ["nothing-earned", "narrow"]


def test_what_the_leader_explains_opens_nothing_besides():
    both = a_cause("both", {"clipped": 30, "no-gradient": 30})
    assert leaders([CLIPPED, NO_GRADIENT], [both, NARROW]) == ["both"]


def test_a_rival_that_explains_what_the_leader_does_is_no_second_fault():
    rival = a_cause("rival", {"no-gradient": 20, "clipped": 15})
    assert leaders([CLIPPED, NO_GRADIENT], [replace(NOTHING_EARNED, prior=10), rival]) == ["nothing-earned"]


def test_a_second_fault_has_to_be_sure():
    faint = a_cause("faint", {"clipped": 12})
    assert leaders([CLIPPED, NO_GRADIENT], [NOTHING_EARNED, faint]) == ["nothing-earned"]


@pytest.mark.parametrize(("clipped_since", "found"), [(1, True), (40, True), (90, False)])
def test_what_began_clearly_after_the_first_fault_may_be_its_consequence(clipped_since, found):
    told = [since(CLIPPED, clipped_since), since(NO_GRADIENT, 45)]
    assert ("narrow" in leaders([CLIPPED, NO_GRADIENT], [NOTHING_EARNED, NARROW], told)) is found


def test_a_symptom_that_opens_nothing_alone_makes_nothing_unknown_of_what_is_known():
    cut = a_rule("cut", link="rollout", opens=MOVES, opens_alone=True, proof="measured")
    odd = a_rule("odd", link="policy", opens=MOVES)
    limit = a_cause("limit", {"cut": 15}, prior=-14)
    assert leaders([cut, odd], [limit], [a_finding(cut)]) == ["limit"]
    assert leaders([cut, odd], [limit], [a_finding(cut), a_finding(odd)]) == ["limit"]


@pytest.mark.parametrize(("began", "score"), [(60, 20), (3, -20), (1, -20)])
def test_a_proof_of_something_later_speaks_against_nothing_earlier(began, score):
    critic, stopped = proof("critic-off", "critic", "critic-fails"), proof("stopped", "update")
    pack = a_pack(
        [critic, stopped], [a_cause("noise", {"critic-off": 20, "stopped": -40}, complaints=["critic-fails"])]
    )
    found = {rule.name: finding for rule, finding in ((critic, since(critic, 1)), (stopped, since(stopped, began)))}
    assert candidates(pack, "critic-fails", found, [found["critic-off"]])[0].score == score


@pytest.mark.parametrize(("proven_since", "folds"), [(1, False), (70, True)])
def test_a_suspected_leader_makes_no_consequence_of_what_was_proven_before(proven_since, folds):
    degenerate = a_rule("degenerate", link="policy", severity="critical", opens="degenerates", opens_alone=True)
    still = proof("still", "update")
    causes = [
        a_cause("guess", {"degenerate": 4, "still": 6}, complaints=["degenerates"]),
        a_cause("no-steps", {"still": 40}),
    ]
    told = [since(degenerate, 70), since(still, proven_since)]
    first, second = explain(a_pack([degenerate, still], causes), told)
    assert first.leader == "guess"
    assert (second.folded_into == "guess") is folds


CRITIC, BROKEN = proof("critic-flat", "critic", "critic-fails"), proof("nan", "numerics", "numbers-break")
PACK = a_pack(
    [CRITIC, BROKEN],
    [
        a_cause("frozen", {"critic-flat": 30}, complaints=["critic-fails"]),
        a_cause("nan-inf", {"nan": 40}, complaints=["numbers-break"]),
    ],
)
WHOLE = explain(PACK, [since(BROKEN, 60)])
EARLIER = explain(PACK, [since(CRITIC, 1, 59)])


def test_what_was_wrong_before_the_break_is_told_with_its_end():
    told = joined(WHOLE, EARLIER, 60, PACK)
    assert [(e.leader, e.until_step) for e in told] == [("nan-inf", None), ("frozen", 60)]


def test_what_the_whole_run_shows_as_surely_stays():
    whole = explain(PACK, [since(BROKEN, 60), since(CRITIC, 1)])
    assert joined(whole, EARLIER, 60, PACK) == tuple(whole)


def test_what_the_whole_run_closed_or_folded_yields_to_what_was_there_before():
    closed = Explanation(
        complaint="critic-fails", openers=(since(CRITIC, 1),), leader="healthy", causes=(), verdict="healthy"
    )
    for entry in (closed, replace(closed, leader="frozen", folded_into="nan-inf")):
        assert [e.leader for e in joined((*WHOLE, entry), EARLIER, 60, PACK)] == ["nan-inf", "frozen"]


@pytest.mark.parametrize(
    ("found", "collapse", "step"),
    [(WHOLE, None, 60), (WHOLE, 40, 40), (EARLIER, 50, 50), (EARLIER, None, None), ((), 40, None)],
)
def test_a_run_breaks_where_numbers_do_or_the_reward_is_lost(found, collapse, step):
    assert break_step(found, collapse) == step


RATIO = "ratio-wrong-at-start"
OFF, STILL, SLOW = proof("ratio-off", "ratio", RATIO), proof("entropy-still", "policy"), proof("rate-tiny", "update")
NOISE = a_cause("noise", {"ratio-off": 50, "entropy-still": 10}, complaints=(RATIO,))


def judged_beside_noise(*causes):
    found = [a_finding(rule) for rule in (OFF, STILL, SLOW)]
    return {e.complaint: e for e in explain(a_pack([OFF, STILL, SLOW], [NOISE, *causes]), found)}[MOVES]


def test_what_a_known_fault_makes_fire_speaks_against_no_cause_of_another_complaint():
    slow = a_cause("slow", {"rate-tiny": 35, "ratio-off": -40})
    assert judged_beside_noise(slow).leader == "slow"


def test_what_a_known_fault_makes_fire_speaks_for_no_cause_of_another_complaint():
    slow, still = a_cause("slow", {"rate-tiny": 35}), a_cause("still", {"entropy-still": 40, "ratio-off": 5})
    assert judged_beside_noise(slow, still).leader == "slow"


def test_a_complaint_that_health_closed_is_not_opened_by_excuses_alone():
    quiet = a_rule("quiet", link="rewards", opens="no-signal", opens_alone=True)
    faint = a_cause("faint", {"quiet": 12, "ratio-off": -30}, complaints=("no-signal",))
    found = [a_finding(OFF), a_finding(quiet)]
    told = {e.complaint: e for e in explain(a_pack([OFF, quiet], [NOISE, faint]), found)}
    assert not told["no-signal"].names_a_fault
