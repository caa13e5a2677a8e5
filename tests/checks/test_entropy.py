"""Entropy and distance of a policy that is pulled back to its start."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.synthetic import a_series, observe

RNG = np.random.default_rng(11)


def number(name, *series, **fields):
    found = observe(*series, **fields).fact(name)
    return None if found is None else found.value


def walk(pull, size=0.03, updates=200):
    """Return the squared distance of a walk in eight directions that is pulled back by a share of its distance."""
    place, seen = np.zeros(8), []
    for _ in range(updates):
        seen.append(float(place @ place) / 2)
        place = (1 - pull) * place + size * RNG.normal(size=8)
    return seen


def test_a_walk_that_is_pulled_back_stays_where_its_first_steps_took_it():
    assert number("reference_growth", a_series("ref_kl", walk(0.4))) < 1.5
    assert number("reference_growth", a_series("ref_kl", walk(0.0))) > 2


@pytest.mark.parametrize(
    "ref_kl",
    [[0.0, 0.002] * 9, [0.0] * 40, [3e-6] * 40],
    ids=["few records", "a policy that stands", "rounding"],
)
def test_nothing_is_said_where_the_first_steps_do_not_show(ref_kl):
    assert number("reference_growth", a_series("ref_kl", ref_kl)) is None


def held(entropy, kl):
    series = a_series("entropy", entropy), a_series("approx_kl", [kl] * len(entropy))
    return number("entropy_pull", *series, a_series("episode_return", np.arange(len(entropy))))


def test_entropy_near_its_maximum_after_many_updates_is_pulled_back():
    assert held([math.log(4)] * 5 + [1.37] * 45, 0.004) == pytest.approx(0.08, abs=0.01)


def test_entropy_that_is_spent_or_updates_that_hardly_move_are_not():
    assert held(np.linspace(math.log(4), 0.6, 50), 0.004) == 1
    assert held([math.log(4)] * 50, 1e-5) == 1


def test_entropy_that_never_was_that_of_equal_choices_tells_nothing():
    assert held([1.2] * 50, 0.004) is None
