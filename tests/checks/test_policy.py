"""Bursts and falls of what a policy does, and statistics of windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.checks import policy
from ppo_doctor.checks.cases import case_run
from ppo_doctor.checks.policy import bursts
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.model.arrays import (
    SORTED,
    correlation,
    finite_of,
    mean_of,
    median,
    parts,
    quantile,
    running_quantiles,
    scatter_of,
    variance_of,
)

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


chance = np.random.default_rng(0)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 17, SORTED, SORTED + 1, SORTED + 2, 5_001])
@pytest.mark.parametrize("whole", [False, True])
def test_order_statistics_of_short_and_long_arrays(size, whole):
    values = chance.integers(0, 9, size).astype(np.float64) if whole else chance.normal(size=size)
    assert median(values) == pytest.approx(float(np.median(values)), rel=1e-15)
    for share in (0.0, 0.1, 0.25, 0.8, 0.95, 1.0):
        assert quantile(values, share) == pytest.approx(float(np.quantile(values, share)), rel=1e-12, abs=1e-15)


def test_no_statistic_changes_its_values():
    values = chance.normal(size=SORTED + 50)
    before = values.copy()
    median(values), quantile(values, 0.9), scatter_of(values), variance_of(values), running_quantiles(values, 20, 0.8)
    assert (values == before).all()


def test_running_quantiles_are_those_of_each_window():
    values = chance.normal(size=60)
    found = running_quantiles(values, 20, 0.8)
    assert found.tolist() == [quantile(values[at : at + 20], 0.8) for at in range(41)]


def test_moments_are_those_of_numpy_to_the_last_bit():
    values = chance.normal(size=501)
    other = chance.normal(size=501)
    assert mean_of(values) == float(np.mean(values))
    assert mean_of(values > 0) == float(np.mean(values > 0))
    assert np.isnan(mean_of(values[:0]))
    assert variance_of(values, ddof=1) == float(np.var(values, ddof=1))
    assert correlation(values, other) == float(np.corrcoef(values, other)[0, 1])
    assert scatter_of(values) == 1.4826 * median(np.abs(np.diff(values)))


def test_a_constant_correlates_with_nothing():
    with np.errstate(all="ignore"):
        assert np.isnan(correlation(np.ones(9), chance.normal(size=9)))
    assert correlation(np.arange(9.0), 2 * np.arange(9.0)) == pytest.approx(1.0)


@pytest.mark.parametrize(("size", "count"), [(60, 6), (61, 6), (65, 6), (7, 10)])
def test_parts_are_those_of_numpy(size, count):
    values = chance.normal(size=size)
    assert [part.tolist() for part in parts(values, count)] == [p.tolist() for p in np.array_split(values, count)]


def test_finite_values_are_the_array_itself_where_all_are():
    values = chance.normal(size=9)
    assert finite_of(values) is values
    assert finite_of(np.array([1.0, np.nan, np.inf, 2.0])).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("size", [policy.BEFORE + 1 + policy.LEAST_AFTER, 25, 26, 27, 40, 200])
@pytest.mark.parametrize("broken", [0.0, 0.05])
def test_falls_are_those_at_each_batch(size, broken):
    values = chance.random(size) ** 3
    values[chance.random(size) < broken] = np.nan
    falls = policy._falls(values)
    assert len(falls) == size - policy.BEFORE - policy.LEAST_AFTER
    for place, fall in enumerate(falls):
        at = place + policy.BEFORE
        before, after = values[at - policy.BEFORE : at], values[at + 1 : at + 1 + policy.AFTER]
        sound = np.isfinite(before).all() and np.isfinite(after).all()
        assert fall == (np.sort(before)[1] / quantile(after, 1 - policy.ODD) if sound else 1.0)
