"""Causes that are probably there besides the leading ones: their odds, their places, and what they never change."""

from __future__ import annotations

import pytest

from ppo_doctor.companions import LEAST_DB, MOST, RAISED_DB, in_order
from ppo_doctor.ranking import explain
from ppo_doctor.rulepack import load_pack
from tests.lab.faults import FAULTS
from tests.synthetic import a_cause, a_finding, a_fit, a_pack, a_rule

#: It opens a complaint by itself; the others open nothing.
STUCK = a_rule("stuck", link="update", opens="policy-does-not-move", opens_alone=True, proof="identity")
SCALE, NOISE = a_rule("scale", link="critic"), a_rule("noise", link="loss")
FROZEN = a_cause("frozen", {"stuck": 40})
CRITIC = ("critic-fails",)
FAR_OFF = a_cause("far-off", {"scale": 15}, prior=-10, complaints=CRITIC)


def ranked(causes, fits=(), *, fired=(STUCK, SCALE), clear=(), rules=(STUCK, SCALE, NOISE)):
    findings = [*(a_finding(rule) for rule in fired), *(a_finding(rule, "clear") for rule in clear)]
    pack = a_pack(rules, causes, fits)
    return in_order(explain(pack, findings), findings, pack)


def named(causes, fits=(), **others):
    return [cause.id for cause in ranked(causes, fits, **others)]


def test_what_is_probable_is_named_besides_though_its_complaint_is_not_open():
    assert named([FROZEN, FAR_OFF], [a_fit("far-off", -20, {"scale": (15, 0)})]) == ["frozen", "far-off"]


def test_a_cause_without_fitted_weights_is_not_named_besides():
    assert named([FROZEN, FAR_OFF]) == ["frozen"]


@pytest.mark.parametrize(("base", "there"), [(LEAST_DB - 14, True), (LEAST_DB - 15, False)])
def test_the_odds_have_to_be_better_than_1_to_20(base, there):
    assert ("far-off" in named([FROZEN, FAR_OFF], [a_fit("far-off", base, {"scale": (15, 0)})])) is there


def test_where_no_fault_leads_nothing_is_named():
    assert named([FROZEN, FAR_OFF], [a_fit("far-off", 0, {"scale": (15, 0)})], fired=[SCALE]) == []


def test_what_is_clear_speaks_as_well_and_what_was_skipped_does_not():
    fits = [a_fit("far-off", -20, {"scale": (0, -15), "noise": (0, 14)})]
    assert named([FROZEN, FAR_OFF], fits, fired=[STUCK], clear=[NOISE]) == ["frozen", "far-off"]
    assert named([FROZEN, FAR_OFF], fits, fired=[STUCK], clear=[NOISE, SCALE]) == ["frozen"]
    assert named([FROZEN, FAR_OFF], fits, fired=[STUCK]) == ["frozen"]


@pytest.mark.parametrize(("raised", "there"), [(RAISED_DB, True), (RAISED_DB - 1, False)])
def test_what_is_only_common_is_not_named_for_that(raised, there):
    assert ("far-off" in named([FROZEN, FAR_OFF], [a_fit("far-off", 0, {"scale": (raised, 0)})])) is there


def test_a_companion_has_an_account_that_adds_up_to_its_odds():
    companion = ranked([FROZEN, FAR_OFF], [a_fit("far-off", -20, {"scale": (15, 0), "noise": (3, -5)})], clear=[NOISE])[
        1
    ]
    assert companion.companion
    assert not companion.leader
    assert companion.confidence == "suspected"
    assert companion.prior_db + sum(line.db for line in companion.ledger) == companion.score_db == -10
    assert companion.probability == pytest.approx(1 / 11)


def test_the_most_probable_comes_first_and_two_are_named_at_most():
    causes = [a_cause(name, {"scale": 5}, complaints=CRITIC) for name in ("one", "two", "three")]
    fits = [a_fit(name, base, {"scale": (10, 0)}) for name, base in (("one", -13), ("two", -7), ("three", -10))]
    assert named([FROZEN, *causes], fits) == ["frozen", "two", "three"]
    assert MOST == 2


def test_a_probable_rival_moves_up_with_its_own_account_and_an_improbable_one_stays():
    rivals = [a_cause("near", {"stuck": 30}), a_cause("far", {"stuck": 20})]
    fits = [a_fit("frozen", 0, {}), a_fit("far", 0, {"stuck": (9, 0)}), a_fit("near", -40, {})]
    found = ranked([FROZEN, *rivals], fits)
    assert [cause.id for cause in found] == ["frozen", "far", "near"]
    assert found[1].score_db == 20
    assert not found[1].companion


def test_what_is_level_with_the_first_stands_by_its_odds():
    level = [a_cause("one", {"stuck": 40}), a_cause("two", {"stuck": 39}), a_cause("three", {"stuck": 38})]
    fits = [
        a_fit(name, base, {"stuck": (9, 0)}) for name, base in (("one", 0), ("two", -30), ("three", -5), ("far-off", 5))
    ]
    found = ranked([*level, FAR_OFF], fits)
    assert [cause.id for cause in found] == ["one", "far-off", "three", "two"]
    assert [cause.id for cause in found if cause.leader] == ["one", "three", "two"]


SECOND = a_rule("second", link="critic", severity="medium", opens="critic-fails", opens_alone=True, proof="identity")


@pytest.mark.parametrize(
    ("base", "order"), [(0, ["frozen", "doubted", "far-off"]), (-30, ["frozen", "far-off", "doubted"])]
)
def test_a_further_leader_stands_ahead_of_what_is_probable_unless_its_own_odds_are_small(base, order):
    doubted = a_cause("doubted", {"second": 20}, complaints=CRITIC)
    fits = [a_fit("doubted", base, {}), a_fit("far-off", -4, {"scale": (9, 0)})]
    rules = (STUCK, SCALE, NOISE, SECOND)
    found = ranked([FROZEN, doubted, FAR_OFF], fits, fired=[STUCK, SCALE, SECOND], rules=rules)
    assert [cause.id for cause in found] == order
    assert [cause.id for cause in found if cause.leader] == ["frozen", "doubted"]


def test_the_first_leader_stays_first_however_small_its_odds():
    assert named([FROZEN, FAR_OFF], [a_fit("frozen", -60, {}), a_fit("far-off", 20, {"scale": (9, 0)})])[0] == "frozen"


@pytest.mark.parametrize(("fits", "there"), [([], False), ([a_fit("frozen", 0, {})], True)])
def test_what_a_leader_without_odds_makes_fire_speaks_for_nobody_else(fits, there):
    leader = a_cause("frozen", {"stuck": 40}, leads_to=("scale",))
    assert ("far-off" in named([leader, FAR_OFF], [*fits, a_fit("far-off", -5, {"scale": (15, 0)})])) is there


def test_of_a_configuration_alone_nothing_is_probable():
    findings = [a_finding(STUCK), a_finding(SCALE)]
    pack = a_pack([STUCK, SCALE], [FROZEN, FAR_OFF], [a_fit("far-off", 0, {"scale": (15, 0)})])
    explained = explain(pack, findings)
    assert [cause.id for cause in in_order(explained, findings, pack)] == ["frozen", "far-off"]
    assert [cause.id for cause in in_order(explained, findings, pack, logged=False)] == ["frozen"]


def test_odds_make_no_leader_and_change_no_explanation():
    fits = [a_fit("far-off", 40, {})]
    findings = [a_finding(STUCK), a_finding(SCALE)]
    with_fits, without = (a_pack([STUCK, SCALE], [FROZEN, FAR_OFF], used) for used in (fits, ()))
    assert explain(with_fits, findings) == explain(without, findings)


@pytest.mark.parametrize("fitted", load_pack(installed=False).fitted.values(), ids=lambda fitted: fitted.cause)
def test_fitted_weights_follow_the_reasons_of_the_cause_file(fitted):
    cause = load_pack(installed=False).cause(fitted.cause)
    assert cause is not None
    signs = {weight.finding: 1 if (weight.fired or -weight.clear) > 0 else -1 for weight in cause.weights}
    assert fitted.weights
    for weight in fitted.weights:
        assert weight.finding in signs, f"the file of {cause.id} does not weigh {weight.finding}"
        assert weight.fired * signs[weight.finding] >= 0
        assert weight.clear * signs[weight.finding] <= 0


def test_no_harmless_explanation_is_a_companion():
    pack = load_pack(installed=False)
    assert not [cause.id for cause in pack.causes if cause.benign and cause.id in pack.fitted]


def test_every_harmful_fault_of_the_lab_has_odds():
    pack = load_pack(installed=False)
    harmful = {cause.id for cause in pack.causes if not cause.benign}
    assert {spec.cause for spec in FAULTS.values()} & harmful <= set(pack.fitted)
