"""Observed updates add at most a share to the time of a run."""

from __future__ import annotations

import pytest

from ppo_doctor.record.script.budget import Budget


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
