"""Bursts of the KL to the reference come back to where they left; what climbs or starts again at 0 is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.checks.policy import bursts
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.testing import case_run

CALM = [0.01] * 9


def fact(name, framework="canonical", config=None, **series):
    case = {"name": "case", "framework": framework, "config": config or {}, "series": series}
    return RunView(case_run(case)).fact(name)


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


def comes_back(values, start):
    """Say of one start what the module says of all at once."""
    low = np.flatnonzero(values[start:] < values[start] / 5)
    if not len(low):
        return False
    end = start + low[0]
    same = values[start - 1] / 5 < values[end] < values[start - 1] * 5
    return bool(same and values[start] >= 0.5 * values[start:end].max())


@given(st.lists(st.sampled_from([0.0, 0.1, 0.4, 0.6, 1.0, 2.5, 3.0, 6.0, 20.0, 100.0]), min_size=2, max_size=50))
def test_bursts_are_those_that_come_back_one_by_one(numbers):
    values = np.array(numbers)
    starts = [i for i in range(1, len(values)) if values[i - 1] > 0 and values[i] > 5 * values[i - 1]]
    back = [start for start in starts if comes_back(values, start)]
    alone = [start for last, start in zip([-8, *back], back, strict=False) if start - last >= 8]
    usual = np.median(values)
    assert bursts(values) == sorted((values[start] / max(values[start - 1], usual) for start in alone), reverse=True)


def test_a_number_next_to_a_synced_reference_is_no_level():
    assert bursts(np.array([0.2] * 12 + [1e-5, 0.3, 1e-5] + [0.2] * 9 + [1e-5, 0.3, 1e-5]))[0] == pytest.approx(1.5)
