"""What is a consequence of what, and what looked for a cause: folds in both directions, later parts, idle steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ppo_doctor.accounts import account
from ppo_doctor.cutting import since
from ppo_doctor.derive import Observations
from ppo_doctor.model import Evidence
from ppo_doctor.not_ruled_out import not_ruled_out
from ppo_doctor.ranking import explain
from tests.synthetic import a_cause, a_finding, a_pack, a_rule, a_run, a_series, an_axis

RNG = np.random.default_rng(0)


def consequence_first(*, back: int = 0):
    """Return two complaints of which the later one's leader accounts for the earlier one's opener."""
    critic = a_rule("critic-flat", severity="critical", opens="critic", opens_alone=True, proof="identity", link="loss")
    still = a_rule("still", severity="high", opens="still", opens_alone=True, proof="identity", link="update")
    causes = [
        a_cause("no-critic", {"critic-flat": 40, "still": back}, complaints=["critic"]),
        a_cause("no-steps", {"still": 40, "critic-flat": 9}, complaints=["still"]),
    ]
    return explain(a_pack([critic, still], causes), [a_finding(critic), a_finding(still)])


def test_a_complaint_folds_into_a_later_one_that_accounts_for_it():
    critic, still = consequence_first()
    assert (critic.folded_into, still.folded_into) == ("no-steps", None)
    assert not critic.causes
    assert still.causes[0].id == "no-steps"


def test_of_two_that_account_for_each_other_the_earlier_stands():
    critic, still = consequence_first(back=9)
    assert (critic.folded_into, still.folded_into) == (None, "no-critic")


@pytest.mark.parametrize(("began", "folds"), [(1, False), (80, True), (90, True), (None, True)])
def test_what_began_clearly_before_a_cause_is_nothing_that_it_led_to(began, folds):
    cut = a_rule("cut", severity="critical", opens="cut", opens_alone=True, proof="identity", link="rollout")
    off = a_rule("off", severity="high", opens="off", opens_alone=True, proof="identity", link="update")
    causes = [
        a_cause("limit", {"cut": 40}, complaints=["cut"], leads_to=("off",)),
        a_cause("sampler", {"off": 40}, complaints=["off"]),
    ]
    _, later = explain(a_pack([cut, off], causes), [a_finding(cut, onset=85), lasting(off, began)])
    assert later.folded_into == ("limit" if folds else None)


def lasting(rule, onset):
    """Return a finding that lasts to step 160."""
    found = a_finding(rule, onset=onset)
    return replace(found, evidence=tuple(replace(part, steps=(onset or 1, 160)) for part in found.evidence))


def beside_two_faults(*, by_limit: int, by_sampler: int, firm: bool = True):
    """Return how a complaint of two openers is settled, of which two other faults account for one each."""
    limit = a_rule("limited", severity="critical", opens="cut", opens_alone=True, proof="identity", link="rollout")
    off = a_rule("off", severity="critical", opens="off", opens_alone=True, proof="identity", link="update")
    soft = [a_rule(name, opens="degenerates", link=link) for name, link in (("short", "policy"), ("dull", "ratio"))]
    surely = 40 if firm else 3
    causes = [
        a_cause("limit", {"limited": surely, "short": by_limit}, complaints=["cut"]),
        a_cause("sampler", {"off": surely, "dull": by_sampler}, complaints=["off"]),
        a_cause("collapse", {"short": 5, "dull": 5}, complaints=["degenerates"]),
    ]
    rules = [limit, off, *soft]
    settled = explain(a_pack(rules, causes), [a_finding(rule) for rule in rules])
    return next(entry for entry in settled if entry.complaint == "degenerates")


@pytest.mark.parametrize(
    ("by_limit", "by_sampler", "folds"),
    [(9, 9, True), (9, 0, False), (0, 9, False), (0, 0, False), (4, 4, False)],  # each symptom has to have a cause
)
def test_a_suspicion_that_other_faults_account_for_together_is_their_consequence(by_limit, by_sampler, folds):
    settled = beside_two_faults(by_limit=by_limit, by_sampler=by_sampler)
    assert (settled.folded_into is not None) is folds
    assert bool(settled.causes) is not folds


def test_what_is_only_suspected_takes_no_part_of_another_complaint():
    assert beside_two_faults(by_limit=9, by_sampler=9, firm=False).folded_into is None


@pytest.mark.parametrize(("known_by_another", "named"), [(True, True), (False, False)])
def test_beside_a_fault_that_another_complaint_names_the_rest_of_a_complaint_is_settled(known_by_another, named):
    """Epochs are not executed, which explains a ratio of 1, and a penalty holds the policy besides."""
    fewer = a_rule("fewer", severity="critical", opens="config", opens_alone=True, proof="identity", link="config")
    one = a_rule("ratio-one", opens="still", opens_alone=True, proof="identity", link="ratio")
    soft = [a_rule(name, opens="still", link=link) for name, link in (("held", "reference"), ("stays", "weights"))]
    causes = [
        a_cause("epochs", {"fewer": 40, "ratio-one": 30}, complaints=["config", "still"]),
        a_cause("penalty", {"held": 6, "stays": 5}, complaints=["still"]),
    ]
    rules = [*([fewer] if known_by_another else []), one, *soft]
    settled = explain(a_pack([fewer, one, *soft], causes), [a_finding(rule) for rule in rules])
    assert ("penalty" in {entry.leader for entry in settled}) is named
    assert "epochs" in {entry.leader for entry in settled if not entry.folded_into}


@pytest.mark.parametrize(("weight", "listed"), [(4, True), (6, False)])
def test_a_faint_symptom_has_not_looked_for_a_cause(weight, listed):
    faint = a_rule("faint", opens="still", link="policy", opens_alone=True)
    blind = a_rule("blind", opens="still", link="update")
    pack = a_pack([faint, blind], [a_cause("hidden", {"faint": weight, "blind": 30}, complaints=["still"])])
    findings = [a_finding(faint), a_finding(blind, "skipped", missing=("skipped_steps",))]
    assert ("hidden" in {entry.id for entry in not_ruled_out(pack, findings, [])}) is listed


def kl(values, **others):
    axis = an_axis(range(1, len(values) + 1))
    logged = {"approx_kl": values, "policy_loss": [0.01] * len(values)} | others
    return Observations(a_run(*(a_series(name, held, axis=axis) for name, held in logged.items())))


def test_idle_updates_are_counted_between_those_that_moved():
    moved = list(RNG.uniform(0.001, 0.01, 30))
    moved[5] = moved[6] = moved[11] = moved[20] = 0.0
    share = kl([0.0, 0.0, *moved, 0.0]).fact("idle_updates_share")
    assert share is not None
    assert share.value == pytest.approx(4 / 30)


@pytest.mark.parametrize(
    "values",
    [
        [0.0, 0.01, 0.02, 0.03] * 8,  # the first step of each batch
        [1e-9, 0.0, 2e-9, 0.0, 0.0, 1e-9] * 5,  # float noise
        [0.0] * 30,
    ],
)
def test_zeros_that_have_another_reason_are_no_idle_updates(values):
    assert kl(values).fact("idle_updates_share") is None


def test_updates_without_a_signal_are_not_idle():
    """Real runs of ten steps per rollout: no reward in the batch, returns all equal, and rightly nothing moved."""
    moved = list(RNG.uniform(0.001, 0.01, 30))
    for place in (5, 6, 11, 20):
        moved[place] = 0.0
    no_loss = [0.0 if value == 0 else 0.01 for value in moved]
    no_spread = [np.nan if value == 0 else 0.3 for value in moved]
    assert kl(moved).fact("idle_updates_share").value > 0.1
    assert kl(moved, policy_loss=no_loss).fact("idle_updates_share").value == 0
    assert kl(moved, explained_variance=no_spread).fact("idle_updates_share").value == 0


def test_without_any_word_on_the_signal_idle_updates_are_not_counted():
    moved = [*RNG.uniform(0.001, 0.01, 10), 0.0, 0.0, *RNG.uniform(0.001, 0.01, 10)]
    assert Observations(a_run(a_series("approx_kl", moved))).fact("idle_updates_share") is None


def test_a_reward_that_lags_is_no_witness_of_the_later_part():
    run = a_run(a_series("reward_mean", np.linspace(0.0, 1.0, 60)))
    assert Observations(run).fact("reward_trend") is not None
    assert Observations(since(run, int(run.series["reward_mean"].axis.steps[20]))).fact("reward_trend") is None


@pytest.mark.parametrize("records", [20, 60])
def test_a_collapse_within_the_first_third_is_a_drift(records):
    entropy = np.concatenate([np.geomspace(0.7, 0.02, records // 3), np.full(records - records // 3, 0.02)])
    entropy += RNG.normal(0, 0.001, records)
    drift = Observations(a_run(a_series("entropy", entropy))).fact("policy_drift")
    assert drift is not None
    assert (float(str(drift.value)) > 6) is (records == 60)  # too few records leave the cautious noise


def test_a_creep_that_only_averages_show_is_no_drift():
    entropy = 2.302 - np.linspace(0, 4e-4, 90) + RNG.normal(0, 1e-6, 90)
    drift = Observations(a_run(a_series("entropy", entropy))).fact("policy_drift")
    assert drift is not None
    assert float(str(drift.value)) < 6


@pytest.mark.parametrize(("still_since", "explained"), [(1, False), (45, False), (56, True), (70, True)])
def test_a_cause_explains_nothing_that_was_there_before_it_began(still_since, explained):
    """Solved at step 60, ratio 1 since the first step: being solved is not why."""
    steps = Evidence(metric="m", raw="m", statistic="", observed=1.0, op=">", bound=0.0, steps=(still_since, 100))
    still = a_rule("still", opens="still", opens_alone=True, proof="identity", link="ratio")
    solved = a_rule("solved", link="rewards")
    cause = a_cause("saturated", {"still": 35, "solved": 20}, complaints=["still"], begins_with=("solved",), prior=-10)
    findings = {
        "still": replace(a_finding(still, onset=still_since), evidence=(steps,)),
        "solved": a_finding(solved, onset=60),
    }
    assert account(cause, findings).score == (-10 + 20 + 35 if explained else -10 + 20)


@pytest.mark.parametrize(("began", "stands"), [(121, True), (125, True), (40, False), (None, False)])
def test_broken_numbers_are_no_consequence_of_what_is_only_suspected_from_later_records(began, stands):
    broken = a_rule("broken", severity="critical", opens="numbers-break", opens_alone=True, proof="identity")
    soft = [a_rule(name, opens="degenerates", link=link) for name, link in (("short", "policy"), ("dull", "rewards"))]
    causes = [
        a_cause("no-number", {"broken": 40}, complaints=["numbers-break"]),
        a_cause("long-steps", {"short": 5, "dull": 5}, complaints=["degenerates"], leads_to=("broken",)),
    ]
    found = [a_finding(broken, onset=121), *(a_finding(rule, onset=began) for rule in soft)]
    first, later = explain(a_pack([broken, *soft], causes), found)
    assert (first.folded_into, later.folded_into) == ((None, "no-number") if stands else ("long-steps", None))
