"""Steps are divided into updates by the rollouts between them, and observed ones add a small share to the time."""

from __future__ import annotations

import pytest

from ppo_doctor.record.script.steps import Inputs, Step
from ppo_doctor.record.script.updates import Budget, Rhythm, rhythm_of, starts

ENTRY = 1


def steps(*passes, sampled=()):
    """Return steps with a training pass and so many passes before it; those at some places drew samples."""
    found = []
    for number, count in enumerate(passes):
        step = Step(number, sampled=number in sampled)
        step.inputs = [
            Inputs(ENTRY, None, graded, (), tokens=False, width=1, memory=(0, 0)) for graded in [True] + [False] * count
        ]
        found.append(step)
    return found


@pytest.mark.parametrize(
    ("seen", "known", "expected"),
    [
        ([], None, []),
        # draws tell rollouts from training
        (steps(8, 0, 0, 8, 0, sampled=(0, 3)), None, [0, 3]),
        # rollouts in NumPy or another process: by passes
        (steps(8, 0, 0, 8, 0, 0), None, [0, 3]),
        # samples are drawn in every step, as dropout does
        (steps(8, 0, 0, 8, 0, 0, sampled=range(6)), None, [0, 3]),
        # one step per rollout
        (steps(4, 4, 4, sampled=range(3)), None, [0, 1, 2]),
        (steps(4, 4, 4), None, [0, 1, 2]),
        # nothing seen of the rollouts: one update
        (steps(0, 0, 0), None, [0]),
        # the rhythm of earlier updates, from the middle of one on
        (steps(0, 0, 8, 0, sampled=(2,)), Rhythm(draws=True, passes=0, rollout=0), [2]),
        (steps(0, 0, 0), Rhythm(draws=True, passes=0, rollout=0), []),
        (steps(0, 8, 0), Rhythm(draws=False, passes=5, rollout=8), [1]),
    ],
)
def test_an_update_begins_after_a_rollout(seen, known, expected):
    begins = starts(seen, {ENTRY}, known)
    assert [number for number, begin in enumerate(begins) if begin] == expected


def test_the_rhythm_of_an_update_is_how_its_first_step_differs():
    assert rhythm_of(steps(8, 0, 0, sampled=(0,)), {ENTRY}) == Rhythm(draws=True, passes=5, rollout=9)
    assert rhythm_of(steps(8, 0, 0, sampled=range(3)), {ENTRY}) == Rhythm(draws=False, passes=5, rollout=9)
    assert rhythm_of(steps(1, 1, 1), {ENTRY}) is None
    assert rhythm_of(steps(8), {ENTRY}) is None


def spent(observed, plain, seconds=3.0):
    """Return a budget after so many observed steps, of some seconds each, and so many plain ones of 1 s."""
    budget, now = Budget(), 0.0
    budget.step(now, observed=True)
    for count, each in ((observed, seconds), (plain, 1.0)):
        for _ in range(count):
            now += each
            budget.step(now, observed=each != 1.0)
    return budget


def test_nothing_is_afforded_until_the_cost_of_plain_steps_is_known():
    assert not spent(4, 0).affords(1)


@pytest.mark.parametrize(("plain", "enough"), [(10, False), (400, True)])
def test_an_update_is_afforded_once_the_time_added_with_it_is_a_small_share(plain, enough):
    assert spent(4, plain).affords(1) is enough


def test_steps_that_cost_no_more_than_others_are_afforded_at_once():
    assert spent(4, 1, seconds=0.9).affords(1)
