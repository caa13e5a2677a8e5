"""Hysteresis: what must hold for how long before it is told, on a run of our own and a judge of our own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ppo_doctor import load_run
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.cli.watch.monitor import (
    RECENT,
    STEADY,
    STEADY_PROOF,
    STEADY_SUSPICION,
    STEADY_WITHOUT_PROOF,
    Monitor,
    as_it_was,
    lately,
    updates,
)
from ppo_doctor.diagnosis.analyze import diagnose
from ppo_doctor.model.words import Severity
from tests.synthetic import a_problem

from .conftest import SICK


@pytest.fixture(scope="module")
def sick(samples):
    """A run of 80 updates with an established cause, and its diagnosis."""
    run = load_run(samples.joinpath(*SICK))
    return run, diagnose(run, load_pack())


class Judged:
    """Plays a run, update by update, with a diagnosis that says what we want."""

    def __init__(self, run, diagnosis):
        self.run, self.whole = run, diagnosis
        self.asked = []

    def at(self, update):
        return as_it_was(self.run, updates(self.run) - update)

    def says(self, confidence=None, **changes):
        """Return the diagnosis with its leader at a confidence, or with no cause at all."""
        if confidence is None:
            return replace(self.whole, causes=(), problems=(), verdict="healthy")
        cause = replace(self.whole.causes[0], confidence=confidence, **changes)
        return replace(self.whole, causes=(cause,))

    def play(self, monitor, confidences, start=1):
        """Return (update, kind) of each event when the leader has these confidences, one update each."""
        told = []
        for update, confidence in enumerate(confidences, start):
            events = monitor.take(self.at(update), self.says(confidence), lambda _: self.says())
            told += [(update, event.kind) for event in events]
        return told


@pytest.fixture
def judged(sick):
    return Judged(*sick)


def test_a_proof_is_told_at_the_next_update(judged):
    told = judged.play(Monitor(), ["established"] * 10)
    assert [event for event in told if event[1] == "cause"] == [(1 + STEADY_PROOF, "cause")]


def test_statistics_need_longer(judged):
    told = judged.play(Monitor(), ["likely"] * 30)
    assert [event for event in told if event[1] == "cause"] == [(1 + STEADY_WITHOUT_PROOF, "cause")]


def test_a_suspicion_is_never_told(judged):
    assert [kind for _, kind in judged.play(Monitor(), ["suspected"] * 40) if kind == "cause"] == []


def test_a_suspicion_turns_the_verdict_once_it_has_held_for_long(judged):
    told = judged.play(Monitor(), ["suspected"] * 30)
    assert told == [(1 + STEADY_SUSPICION, "verdict")]


def test_a_cause_that_is_proven_while_it_waits_waits_no_longer(judged):
    told = judged.play(Monitor(), ["likely", "likely", "established"])
    assert [event for event in told if event[1] == "cause"] == [(3, "cause")]


@pytest.mark.parametrize(("confidence", "needs"), [("established", STEADY_PROOF), ("likely", STEADY_WITHOUT_PROOF)])
def test_an_interruption_starts_the_count_again(judged, confidence, needs):
    told = judged.play(Monitor(), [*[confidence] * needs, None, *[confidence] * (needs + 1)])
    assert [update for update, kind in told if kind == "cause"] == [2 * needs + 2]


def test_a_short_alarm_changes_no_verdict(judged):
    told = judged.play(Monitor(), [*[None] * 10, *["likely"] * STEADY_WITHOUT_PROOF, *[None] * 20])
    assert [kind for _, kind in told] == ["verdict"]


def test_a_fault_that_begins_late_in_a_long_run_is_seen_in_its_last_updates(judged):
    """The whole of the run says nothing; its last 40 updates prove a cause."""
    monitor = Monitor(fail_on="high")
    told = {}
    for update in range(2 * RECENT - 5, 2 * RECENT + 1):

        def judge(run):
            return judged.says("established" if updates(run) == RECENT else None)

        for event in monitor.take(judged.at(update), judged.says(), judge):
            told.setdefault(event.kind, []).append((update, event.text))
    assert monitor.pending
    assert "cause" not in told


def test_what_only_statistics_say_of_the_last_updates_is_not_heard(judged):
    monitor = Monitor()
    for update in range(RECENT, 2 * RECENT + 1):
        monitor.take(judged.at(update), judged.says(), lambda _: judged.says("likely"))
    assert monitor.pending == []


def test_a_cause_that_goes_is_told_once(judged):
    told = judged.play(Monitor(), [*["established"] * 6, *[None] * 10])
    assert [kind for _, kind in told if kind in ("cause", "cleared")] == ["cause", "cleared"]
    assert ("cleared", 6 + STEADY) in [(kind, update) for update, kind in told]


def test_a_cause_that_flickers_is_not_told_again_and_again(judged):
    told = judged.play(Monitor(), [*["established"] * 6, None, *["established"] * 6, None, *["established"] * 6])
    assert [kind for _, kind in told if kind in ("cause", "cleared")] == ["cause"]


def test_the_same_records_confirm_nothing(judged):
    monitor = Monitor()
    for _ in range(20):
        monitor.take(judged.at(9), judged.says("established"), lambda _: judged.says())
    assert monitor.pending
    assert monitor.confirmed == []


def test_many_updates_at_once_are_judged_as_they_were_before(judged):
    monitor = Monitor()
    asked = []

    def judge(run):
        asked.append(updates(run))
        return judged.says("established")

    events = monitor.take(judged.at(60), judged.says("established"), judge)
    assert asked == [60 - STEADY_PROOF]
    assert [event.kind for event in events if event.kind == "cause"] == ["cause"]


def test_what_was_seen_not_to_lead_is_not_asked_again(judged):
    monitor = Monitor()
    monitor.take(judged.at(59), judged.says(), lambda _: pytest.fail("asked"))
    monitor.take(judged.at(60), judged.says("established"), lambda _: pytest.fail("asked"))
    assert monitor.confirmed == []


@pytest.mark.parametrize(
    ("severity", "fail_on", "fails"),
    [("high", "high", True), ("critical", "high", True), ("medium", "high", False), ("critical", "never", False)],
)
def test_severity_decides_whether_it_fails(judged, severity, fail_on, fails):
    monitor = Monitor(fail_on=fail_on)
    for update in range(1, 10):
        diagnosis = judged.says("established", severity=Severity(severity))
        monitor.take(judged.at(update), diagnosis, lambda _: judged.says())
    assert (monitor.failing is not None) == fails
    assert len(monitor.confirmed) == 1


def test_a_contested_cause_is_not_told(judged):
    monitor = Monitor(fail_on="low")
    for update in range(1, 30):
        diagnosis = judged.says("established")
        contested = a_problem(diagnosis.causes[0].problem, leader="healthy", verdict="inconclusive")
        monitor.take(judged.at(update), replace(diagnosis, problems=(contested,)), lambda _: judged.says())
    assert monitor.failing is None
    assert monitor.pending == []


def test_the_run_as_it_was_ends_some_updates_before(sick):
    run, _ = sick
    before = as_it_was(run, 7)
    assert updates(before) == updates(run) - 7
    assert before.steps == (run.steps[0], run.steps[1] - 7)
    assert as_it_was(run, updates(run)) is None


def test_the_last_updates_of_a_long_run_only(sick):
    run, _ = sick
    assert updates(run) == 2 * RECENT
    assert updates(lately(run)) == RECENT
    assert lately(run).steps[1] == run.steps[1]
    assert lately(as_it_was(run, 1)) is None
