"""Coefficients that hide in the metrics are read off, and not invented where they vary."""

from __future__ import annotations

import pytest

from ppo_doctor.checks.run_view import RunView
from ppo_doctor.testing import case_run


def fact(name, **series):
    return RunView(case_run({"name": "case", "series": series})).fact(name)


def test_a_fixed_kl_coefficient_is_the_quotient_of_penalty_and_kl():
    found = fact("kl_coef_implied", ref_kl="1+0.5x19", kl_penalty_reward="-0.05-0.025x19")
    assert found.value == pytest.approx(0.05)


def test_an_adaptive_coefficient_is_not_read_off():
    assert fact("kl_coef_implied", ref_kl="1x19", kl_penalty_reward="-0.05-0.05x19") is None


@pytest.mark.parametrize(("kl", "penalty"), [("0x19", "0x19"), ("1x2", "-0.05x2")])
def test_no_kl_or_few_records_give_no_coefficient(kl, penalty):
    assert fact("kl_coef_implied", ref_kl=kl, kl_penalty_reward=penalty) is None


def test_a_straight_decay_tells_where_it_ends():
    # 0.001 at step 0, 0.0001 less every four steps: 0 at step 40
    assert fact("schedule_end_step", learning_rate="0.001-0.000025x29").value == 40


@pytest.mark.parametrize("rate", ["0.001x29", "0.001+0.0001x29", "0.001-0.0001x9", "0.001 0.0005 0.00025x9 0.0001x9"])
def test_other_schedules_have_no_such_end(rate):
    found = fact("schedule_end_step", learning_rate=rate)
    assert found is None or found.value <= 12
