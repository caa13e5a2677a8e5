"""Coefficients are read off a logged loss where every record agrees on them, and not invented where they do not."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_doctor.checks.run_view import RunView
from ppo_doctor.model.run import Axis, Run, Series

RNG = np.random.default_rng(5)
POLICY, VALUE, ENTROPY, KL = (
    RNG.normal(0, 0.05, 30), RNG.uniform(1, 30, 30), RNG.uniform(0.5, 0.7, 30), RNG.uniform(0, 2, 30),
)  # fmt: skip


def fact(name: str, loss: np.ndarray, *, windows: dict[str, str] | None = None, **terms: np.ndarray) -> float | None:
    axis = Axis(path="run.csv", steps=np.arange(30), lines=np.arange(30))
    columns = {"loss": loss, "policy_loss": POLICY, **terms}
    series = {
        key: Series(name=key, raw=key, axis=axis, values=values, aggregation=(windows or {}).get(key))
        for key, values in columns.items()
    }
    found = RunView(Run(id="run", framework="", algorithm="ppo", sources=(), series=series)).fact(name)
    return None if found is None else float(str(found.value))


def test_all_coefficients_are_read_off_one_loss():
    loss = POLICY + 0.5 * VALUE - 0.01 * ENTROPY
    assert fact("value_loss_in_loss", loss, value_loss=VALUE, entropy=ENTROPY) == pytest.approx(0.5)
    assert fact("bonus_in_loss", loss, value_loss=VALUE, entropy=ENTROPY) == pytest.approx(0.01)


def test_a_bonus_with_the_wrong_sign_is_below_zero():
    assert fact("bonus_in_loss", POLICY + 0.02 * ENTROPY, entropy=ENTROPY) == pytest.approx(-0.02)


def test_a_penalty_that_pays_is_below_zero():
    assert fact("penalty_coefficient", POLICY - 0.3 * KL, ref_kl=KL) == pytest.approx(-0.3)


def test_a_value_loss_that_is_left_out_is_known_by_the_other_terms():
    loss = POLICY - 0.01 * ENTROPY
    assert fact("value_loss_in_loss", loss, value_loss=VALUE, entropy=ENTROPY) == 0


def test_digits_of_a_console_are_enough_where_the_term_is_large():
    loss = np.round(POLICY + 0.5 * VALUE, 3)
    assert fact("value_loss_in_loss", loss, value_loss=np.round(VALUE, 3)) == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("added", [RNG.normal(0, 1, 30), 0.5 * VALUE + RNG.normal(0, 0.5, 30), 0.5 * VALUE**1.1])
def test_a_loss_of_another_form_gives_no_coefficient(added: np.ndarray):
    assert fact("value_loss_in_loss", POLICY + added, value_loss=VALUE, entropy=ENTROPY) is None


def test_a_loss_that_is_the_surrogate_tells_nothing():
    assert fact("value_loss_in_loss", POLICY, value_loss=VALUE, entropy=ENTROPY) is None
    assert fact("penalty_in_loss", POLICY + 0.5 * VALUE, value_loss=VALUE, ref_kl=KL) is None


def test_no_coefficient_is_read_off_a_loss_of_other_samples():
    loss = POLICY + 0.5 * VALUE
    assert fact("value_loss_in_loss", loss, windows={"loss": "last minibatch"}, value_loss=VALUE) == pytest.approx(0.5)
    several = {"loss": "last minibatch", "value_loss": "all minibatches"}
    assert fact("value_loss_in_loss", loss, windows=several, value_loss=VALUE) is None
