"""What the leading faults leave unexplained, the causes that it speaks for, and their places."""

from __future__ import annotations

import pytest

from ppo_doctor.ranking import explain
from ppo_doctor.remainder import in_order
from tests.synthetic import a_cause, a_finding, a_pack, a_rule

#: It opens a complaint by itself; the others open nothing.
STUCK = a_rule("stuck", link="update", opens="policy-does-not-move", opens_alone=True, proof="identity")
SCALE, NOISE = a_rule("scale", link="critic"), a_rule("noise", link="loss")
FROZEN = a_cause("frozen", {"stuck": 40})
CRITIC = ("critic-fails",)


def named(causes, *, fired=(STUCK, SCALE), clear=()):
    findings = [*(a_finding(rule) for rule in fired), *(a_finding(rule, "clear") for rule in clear)]
    pack = a_pack([STUCK, SCALE, NOISE], causes)
    return [cause.id for cause in in_order(explain(pack, findings), findings, pack)]


def test_what_the_leader_leaves_names_a_second_cause_though_it_opens_no_complaint():
    assert named([FROZEN, a_cause("far-off", {"scale": 15}, prior=-10, complaints=CRITIC)]) == ["frozen", "far-off"]


def test_what_the_leader_explains_names_nobody_else():
    leader = a_cause("frozen", {"stuck": 40}, leads_to=("scale",))
    assert named([leader, a_cause("far-off", {"scale": 15}, prior=-10, complaints=CRITIC)]) == ["frozen"]


def test_beside_health_nothing_is_named():
    found = named([FROZEN, a_cause("far-off", {"scale": 15}, prior=-10, complaints=CRITIC)], fired=[SCALE])
    assert found == []


@pytest.mark.parametrize(("prior", "there"), [(-15, True), (-18, True), (-19, False)])
def test_a_cause_that_health_clearly_outweighs_is_not_named(prior, there):
    found = named([FROZEN, a_cause("far-off", {"scale": 15}, prior=prior, complaints=CRITIC)])
    assert ("far-off" in found) is there


def test_what_did_not_fire_needs_no_explanation():
    assert named([FROZEN, a_cause("absent", {"noise": (0, 20)}, complaints=CRITIC)], fired=[STUCK], clear=[NOISE]) == [
        "frozen"
    ]


def test_what_the_leader_makes_fire_speaks_against_nobody():
    leader = a_cause("frozen", {"stuck": 40, "noise": 10})
    second = a_cause("far-off", {"scale": 15, "noise": -30}, prior=-10, complaints=CRITIC)
    assert named([leader, second], fired=[STUCK, SCALE, NOISE]) == ["frozen", "far-off"]
    assert named([FROZEN, second], fired=[STUCK, SCALE, NOISE]) == ["frozen"]


@pytest.mark.parametrize(
    ("weight", "order"), [(16, ["frozen", "far-off", "rival"]), (12, ["frozen", "rival", "far-off"])]
)
def test_what_would_be_likely_alone_stands_before_near_rivals(weight, order):
    rival = a_cause("rival", {"stuck": 30})
    assert named([FROZEN, rival, a_cause("far-off", {"scale": weight}, complaints=CRITIC)]) == order


def test_rivals_far_behind_stand_after_what_explains_the_rest():
    rival = a_cause("rival", {"stuck": 20})
    far_off = a_cause("far-off", {"scale": 5}, complaints=CRITIC)
    assert named([FROZEN, rival, far_off]) == ["frozen", "far-off", "rival"]


def test_causes_that_what_remains_does_not_tell_apart_stand_together():
    twice = [a_cause(name, {"scale": 10}, prior=prior, complaints=CRITIC) for name, prior in (("one", 0), ("two", -2))]
    assert named([FROZEN, *twice, a_cause("other", {"noise": 3}, complaints=CRITIC)], fired=[STUCK, SCALE, NOISE]) == [
        "frozen",
        "one",
        "two",
    ]
