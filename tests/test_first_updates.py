"""What the first updates of a run tell of the later ones, and where they tell nothing."""

from __future__ import annotations

import pytest

from ppo_doctor.derive import Observations
from ppo_doctor.testing import case_run

GROWN = {"approx_kl": "0.001x1 0.1x27"}


def fact(name, framework="canonical", config=None, **series):
    case = {"name": "case", "framework": framework, "config": config or {}, "series": series}
    return Observations(case_run(case)).fact(name)


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


def test_a_kl_that_is_sometimes_0_has_no_scatter():
    assert fact("kl_scatter", approx_kl="0.02 0 " * 15) is None
