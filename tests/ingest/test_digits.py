"""How finely a column was printed, as far as its numbers tell."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_doctor.ingest.digits import inferred_decimals


def rounded(decimals, size=60, scale=1.0):
    return np.round(np.random.default_rng(decimals).normal(size=size) * scale, decimals)


@pytest.mark.parametrize("decimals", [1, 2, 3, 4, 5])
def test_rounding_shows_in_many_values(decimals):
    assert inferred_decimals(rounded(decimals, scale=10)) == decimals


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).normal(size=60),
        np.arange(60.0),
        rounded(2, size=15),
        np.zeros(60),
        np.full(60, np.nan),
        [],
    ],
    ids=["full precision", "counter", "few values", "zeros", "nan", "empty"],
)
def test_what_does_not_tell_its_rounding_is_exact(values):
    assert inferred_decimals(np.array(values, dtype=np.float64)) is None
