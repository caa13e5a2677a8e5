"""Bursts of the KL to the reference come back to where they left; what climbs or starts again at 0 is none."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_doctor.derive import Observations
from ppo_doctor.derive.bursts import bursts
from ppo_doctor.testing import case_run

CALM = [0.01] * 9


def fact(name, framework="canonical", config=None, **series):
    case = {"name": "case", "framework": framework, "config": config or {}, "series": series}
    return Observations(case_run(case)).fact(name)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([*CALM, 2.0, 1.5, *CALM, 0.5, *CALM], [200.0, 50.0]),
        ([*CALM, 2.0, 0.01, 2.0, *CALM], [200.0]),
        ([*CALM, 2.0, 1.5, *[0.2] * 9], []),
        ([*CALM, *[2.0] * 9], []),
        ([*CALM, 0.1, 0.5, 2.0, *CALM], []),
        ([0.0, 0.1, 0.3, 0.0, 0.1, 0.3, 0.0], []),
    ],
    ids=["two, the largest first", "one batch twice", "to another level", "for good", "climbs", "from 0"],
)
def test_a_burst_leaves_at_once_and_comes_back(values, found):
    assert bursts(np.array(values)) == pytest.approx(found)


def test_only_the_exponential_estimator_bursts():
    told = "0.01x8 2 0.01x9 2 0.01x9"
    assert fact("reference_kl_burst", "trl-grpo", ref_kl=told).value == pytest.approx(200)
    assert fact("reference_kl_burst", "canonical", ref_kl=told) is None


FALLING = {"approx_kl": "0.02x39", "entropy": "0.69-0.01x39"}


def test_the_kl_of_an_update_is_held_against_the_entropy_lost_since_the_height():
    assert fact("kl_of_entropy_lost", **FALLING).value == pytest.approx(0.02 / 0.205, rel=0.05)


def test_a_kl_that_an_early_stop_holds_tells_nothing_of_its_size():
    assert fact("kl_of_entropy_lost", config={"target_kl": 0.02}, **FALLING) is None
    assert fact("kl_of_entropy_lost", config={"target_kl": 0.2}, **FALLING) is not None
