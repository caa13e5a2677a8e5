"""How finely a column was printed, as far as its numbers tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ppo_doctor.model.run import Resolution
from ppo_doctor.trainers.column_values import inferred_decimals, with_common_resolution, with_signed_zeros
from tests.synthetic import a_series, an_axis


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


@pytest.mark.parametrize(("spelling", "exact"), [("%.4g", True), ("%.4f", False)])
def test_a_zero_of_a_short_log_is_exact_where_it_prints_digits_and_not_decimals(spelling, exact):
    rng = np.random.default_rng(3)
    drawn = {"time_step": rng.uniform(0.1, 1, 24), "response_length": rng.uniform(10, 20, 12), "loss": np.zeros(24)}
    columns = {}
    for name, values in drawn.items():
        printed = [float(spelling % value) for value in values]
        places = inferred_decimals(np.array(printed))
        resolution = Resolution(absolute=0.0 if places is None else 0.5 * 10.0**-places)
        columns[name] = replace(a_series(name, printed, axis=an_axis(range(len(printed)))), resolution=resolution)
    assert with_common_resolution(columns)["loss"].resolution.exact is exact


def printed_loss(signs, *, absolute=5e-6, gradient=None):
    zeros = np.copysign(np.zeros(len(signs)), signs)
    columns = {"policy_loss": a_series("policy_loss", zeros, absolute=absolute)}
    if gradient is not None:
        columns["grad_norm"] = a_series("grad_norm", [gradient] * len(signs))
    return with_signed_zeros(columns)["policy_loss"]


MIXED = [1.0, -1.0] * 8


@pytest.mark.parametrize(
    ("loss", "exact"),
    [
        (printed_loss([1.0] * 16), True),
        (printed_loss(MIXED), False),
        (printed_loss([-1.0] * 16), False),
        (printed_loss([-1.0] * 16, gradient=0.2), False),
        (printed_loss([-1.0] * 16, gradient=0.0), True),
        (printed_loss(MIXED, gradient=0.0), False),
        (printed_loss([1.0] * 16, absolute=5e-3), False),
        (printed_loss([1.0] * 11), False),
    ],
    ids=["+0", "either sign", "-0", "-0 beside a gradient", "-0 without", "either, without", "two decimals", "few"],
)
def test_a_printed_zero_is_exact_where_no_rounding_has_its_sign(loss, exact):
    assert loss.resolution.exact is exact
