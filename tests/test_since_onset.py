"""What stopped is judged by what was logged since; what a log does not speak about is listed, not passed over."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_doctor.cutting import cut, since
from ppo_doctor.model import Complaint, Unjudged
from ppo_doctor.not_ruled_out import not_ruled_out
from ppo_doctor.pipeline import diagnose
from ppo_doctor.ranking import explain
from ppo_doctor.rulepack import load_pack
from tests.synthetic import a_cause, a_finding, a_pack, a_rule, a_run, a_series, an_axis

MOVES = "policy-does-not-move"


def stopping(rules, causes, *, judged_since_onset=True):
    pack = a_pack(rules, causes)
    told = Complaint(id=MOVES, title="stands still", judged_since_onset=judged_since_onset)
    return type(pack)(rules=pack.rules, causes=pack.causes, complaints=(told,), unjudged=())


STOPPED = a_rule("stopped", link="update", opens=MOVES, opens_alone=True, proof="identity")
MOVED = a_rule("moved", link="weights", needs=("series.entropy",))
CONFIGURED = a_rule("configured", link="config", needs=("config.ppo_epochs",))
CAUSE = a_cause("cause", {"stopped": (50, -40), "moved": (-30, 3), "configured": (0, 7)}, prior=-15)


def settled(whole, later, **fields):
    (explanation,) = explain(stopping([STOPPED, MOVED, CONFIGURED], [CAUSE], **fields), whole, lambda _step: later)
    return explanation


def test_what_happened_before_the_onset_is_no_witness():
    whole = [a_finding(STOPPED, onset=60), a_finding(MOVED, onset=3)]
    explanation = settled(whole, [a_finding(STOPPED, onset=60), a_finding(MOVED, "clear")])
    assert explanation.since_step == 60
    assert explanation.causes[0].score_db == -15 + 50 + 3


def test_a_complaint_that_does_not_tell_of_stopping_is_judged_by_the_whole_run():
    whole = [a_finding(STOPPED, onset=60), a_finding(MOVED, onset=3)]
    explanation = settled(whole, [a_finding(MOVED, "clear")], judged_since_onset=False)
    assert explanation.since_step is None
    assert explanation.causes[0].score_db == -15 + 50 - 30


def test_without_a_later_part_the_whole_run_is_the_witness():
    whole = [a_finding(STOPPED, onset=1), a_finding(MOVED, "clear")]
    assert settled(whole, None).since_step is None


def test_an_opener_without_an_onset_is_of_the_whole_run():
    assert settled([a_finding(STOPPED)], [a_finding(STOPPED)]).since_step is None


@pytest.mark.parametrize(
    ("rule", "whole", "counts"),
    [
        (CONFIGURED, a_finding(CONFIGURED, "clear"), True),  # a setting holds for each part of the run
        (MOVED, a_finding(MOVED, onset=70), True),  # fired within the later part, which is too short for the rule
        (MOVED, a_finding(MOVED, onset=3), False),
        (MOVED, a_finding(MOVED, "clear"), False),  # clear over the whole run says nothing of its end alone
    ],
)
def test_where_the_later_part_is_too_short_the_whole_speaks_only_of_that_time(rule, whole, counts):
    later = [a_finding(STOPPED, onset=60), a_finding(rule, "skipped")]
    explanation = settled([a_finding(STOPPED, onset=60), whole], later)
    assert (rule.name in {entry.finding for entry in explanation.causes[0].ledger}) is counts


def test_cutting_keeps_steps_values_and_lines_together():
    run = a_run(a_series("entropy", range(10)), a_series("approx_kl", range(3), steps=(1, 2, 9)))
    part = since(run, 5)
    entropy = part.series["entropy"]
    assert list(entropy.axis.steps) == [5, 6, 7, 8, 9, 10]
    assert list(entropy.values) == [4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    assert list(entropy.axis.lines) == list(run.series["entropy"].axis.lines[4:])
    assert list(part.series["approx_kl"].values) == [2.0]
    assert part.config == run.config


def test_a_series_without_records_in_the_part_is_left_out():
    run = a_run(a_series("entropy", range(10)))
    assert cut(run.series, (11, None)) == {}
    assert list(cut(run.series, (None, 3))["entropy"].values) == [0.0, 1.0, 2.0]


def test_a_learning_rate_that_dies_late_is_found_though_the_run_learned_before():
    rng = np.random.default_rng(0)
    alive, dead = 60, 40
    rate = np.r_[np.full(alive, 3e-4), np.zeros(dead)]
    entropy = np.r_[np.linspace(1.8, 0.9, alive), np.full(dead, 0.9)] + rng.normal(0, 0.002, alive + dead)
    kl = np.r_[rng.uniform(0.01, 0.02, alive), np.zeros(dead)]
    reward = np.r_[np.linspace(10, 60, alive), np.full(dead, 60)] + rng.normal(0, 1, alive + dead)
    logged = {"learning_rate": rate, "entropy": entropy, "approx_kl": kl, "reward_mean": reward}
    diagnosis = diagnose(a_run(*(a_series(name, values) for name, values in logged.items())), load_pack())
    assert diagnosis.causes[0].id == "lr-zero"
    assert diagnosis.causes[0].onset_step == alive + 1
    assert [complaint.since_step for complaint in diagnosis.complaints if complaint.id == MOVES] == [alive + 1]
    assert {link.link: link.state for link in diagnosis.chain}["update"] == "dead"


# Not ruled out

LOOKS = a_rule("looks", opens=MOVES, needs=("series.approx_kl",))
GLANCES = a_rule("glances", opens=MOVES, needs=("series.entropy",))
RULES = [LOOKS, GLANCES]


def unseen(cause, *findings, named=()):
    return {entry.id for entry in not_ruled_out(stopping(RULES, [cause]), findings, named)}


SOUGHT = a_cause("sought", {"looks": (20, -10), "glances": (8, -1)})


@pytest.mark.parametrize(
    ("findings", "listed"),
    [
        ((a_finding(LOOKS, "skipped", missing=["approx_kl"]),), True),
        ((a_finding(LOOKS, "clear"),), False),  # it looked, and found nothing
        ((a_finding(LOOKS),), False),  # it spoke
        ((a_finding(LOOKS, "errored"),), True),  # a check that broke is no check that passed
        # silence that hardly weighs is no looking
        ((a_finding(LOOKS, "skipped", missing=["approx_kl"]), a_finding(GLANCES, "clear")), True),
    ],
)
def test_a_cause_is_listed_until_something_looked_for_it(findings, listed):
    assert ("sought" in unseen(SOUGHT, *findings)) is listed


def test_a_named_cause_and_a_harmless_one_are_not_listed():
    skipped = a_finding(LOOKS, "skipped", missing=["approx_kl"])
    assert unseen(SOUGHT, skipped, named=["sought"]) == set()
    assert unseen(a_cause("sought", {"looks": (20, -10)}, benign=True), skipped) == set()


def test_a_cause_that_does_not_apply_is_not_listed():
    apart = type(a_finding(LOOKS))(
        **{
            **{name: getattr(a_finding(LOOKS, "skipped"), name) for name in a_finding(LOOKS).__slots__},
            "reason": "not for grpo",
        }
    )
    assert unseen(SOUGHT, apart) == set()


def test_what_no_log_can_show_stays_listed():
    pack = stopping(RULES, [])
    never = type(pack)(rules=pack.rules, causes=(), complaints=(), unjudged=(Unjudged(id="hacking", because="why"),))
    (entry,) = not_ruled_out(never, [], [])
    assert (entry.id, entry.a_fuller_log_could) == ("hacking", False)


def test_series_of_one_axis_have_one_axis_in_each_part():
    axis, other = an_axis(range(1, 21)), an_axis(range(1, 41, 2))
    held = {name: a_series(name, [0.1] * 20, axis=of) for name, of in (("a", axis), ("b", axis), ("c", other))}
    for part in (cut(held, (5, None)), cut(held, (None, 9)), cut(held, (3, 12))):
        assert part["a"].axis is part["b"].axis
        assert part["c"].axis is not part["a"].axis
        assert all(len(s.axis.steps) == len(s.values) < 20 for s in part.values())
    assert cut(held, (100, None)) == {}
