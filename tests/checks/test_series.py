"""How a series goes: start, end, and whether the change is more than scatter."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_doctor.checks.series import all_known, any_known, both, course, paired, zero_share
from tests.synthetic import a_series


def test_a_rise_beyond_its_scatter_and_none_within_it():
    noise = np.random.default_rng(1).normal(0, 1, 40)
    assert course(noise + np.linspace(0, 20, 40)).change > 5
    assert abs(course(noise).change) < 3


@pytest.mark.parametrize("size", [0, 3])
def test_too_few_values_have_no_course(size):
    assert course(np.ones(size)) is None


def test_a_long_series_is_read_as_means():
    values = np.tile([0.0, 1.0], 5_000)
    assert course(values).start == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_the_change_has_no_scale(scale):
    values = np.array([1.0, 1.2, 0.9, 1.1, 2.0, 2.2, 1.9, 2.1])
    assert course(values * scale).change == pytest.approx(course(values).change, rel=1e-3)


def test_a_zero_that_may_be_one_in_print_only_is_not_counted():
    assert zero_share(a_series("grad_norm", [0.0] * 5)) == 1.0
    assert zero_share(a_series("grad_norm", [0.0, 0.5, 0.5], absolute=0.05)) is None
    assert zero_share(a_series("grad_norm", [0.0, 500.0, 500.0], absolute=0.05)) == pytest.approx(1 / 3)


def test_values_are_paired_by_their_steps():
    left, right = paired(a_series("a", [1.0, 2.0, 3.0]), a_series("b", [10.0, np.nan, 30.0, 40.0]))
    assert (left.tolist(), right.tolist()) == ([1.0, 3.0], [10.0, 30.0])


def test_what_is_unknown_says_neither_yes_nor_no():
    assert (all_known(None, True), all_known(None, False), all_known(None)) == (True, False, None)
    assert (any_known(None, False), any_known(None, True), any_known()) == (False, True, None)
    assert (both(None, True), both(None, False), both(True, True)) == (None, False, True)
