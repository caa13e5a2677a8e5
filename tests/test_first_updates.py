"""What the first updates of a run tell of the later ones, and where they tell nothing."""

from __future__ import annotations

import pytest

from ppo_doctor.derive import Observations
from ppo_doctor.testing import case_run
from tests.synthetic import a_series, observe

GROWN = {"approx_kl": "0.001x1 0.1x27"}


def fact(name, framework="canonical", config=None, **series):
    case = {"name": "case", "framework": framework, "config": config or {}, "series": series}
    return Observations(case_run(case)).fact(name)


def test_the_kl_of_later_updates_is_held_against_the_larger_of_the_first_two():
    assert fact("kl_after_first", approx_kl="0.001 0.002 0.1x27").value == pytest.approx(50)


def test_a_leap_of_a_few_records_is_not_what_a_fifth_of_the_run_shows():
    assert fact("kl_after_first", approx_kl="0.001x19 0.5 0.5 0.001x19").value == pytest.approx(1)


@pytest.mark.parametrize(
    ("config", "series"),
    [
        ({"target_kl": 0.1}, GROWN),
        ({}, GROWN | {"learning_rate": "0.00001 0.00001 0.0003x27"}),
        ({}, {"approx_kl": "0x1 0.1x27"}),
        ({}, {"approx_kl": "0.001x1 0.1x9"}),
    ],
    ids=["an early stop holds it", "a rate that is warmed up", "no step at first", "a short run"],
)
def test_the_first_kl_is_no_measure_of_a_step_there(config, series):
    assert fact("kl_after_first", config=config, **series) is None


def test_a_kl_scatters_by_its_changes_and_not_by_its_trend():
    steady, uneven = "0.02 0.022 " * 15, "0.02 0.05 " * 15
    assert fact("kl_scatter", approx_kl=steady).value == pytest.approx(0.0953, abs=1e-3)
    assert fact("kl_scatter", approx_kl=uneven).value == pytest.approx(0.916, abs=1e-3)
    assert fact("kl_scatter", approx_kl="0.02+0.001x29").value < 0.1


def test_a_kl_that_is_sometimes_0_has_no_scatter():
    assert fact("kl_scatter", approx_kl="0.02 0 " * 15) is None


def test_the_first_update_is_all_steps_of_the_first_batch_where_each_has_a_record():
    clipped = a_series("clip_fraction", [0, 0.1, 0.2, 0.3, *[0] * 28])
    marked = {"generation_marker": "reward_mean", "updates_observed": 4}
    assert observe(clipped, facts=marked).fact("first_update_clipped").value == pytest.approx(0.15)


def test_the_first_update_is_the_first_record_elsewhere():
    assert fact("first_update_clipped", clip_fraction="0.3 0.1x27").value == pytest.approx(0.3)
    assert fact("first_update_clipped", clip_fraction="0.3 0.1x9") is None
