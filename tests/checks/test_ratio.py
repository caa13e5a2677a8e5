"""How exactly a ratio of 1 is known from a log that rounds."""

from __future__ import annotations

import numpy as np
import pytest

from tests.synthetic import a_series, observe


def departure(entropy, absolute):
    kl = a_series("approx_kl", [0.0] * 60, absolute=absolute)
    return observe(kl, a_series("entropy", entropy)).series("ratio_departure")


@pytest.mark.parametrize(("absolute", "exact"), [(5e-8, True), (5e-4, False)])
def test_zeros_are_exact_where_no_print_could_hide_what_the_policy_moved(absolute, exact):
    assert departure(np.linspace(2.0, 0.2, 60), absolute).resolution.exact is exact


def test_zeros_of_a_policy_that_may_stand_are_as_coarse_as_they_are_printed():
    assert not departure([2.0] * 60, 5e-8).resolution.exact
