"""Settings that separate broken runs from others: the statistics, what is looked at, and what is said."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.fleets.separating import MOST_VALUES, Separating, Separation, fisher, holm, newcombe

CELL = st.integers(0, 25)


def by_counting(a: int, b: int, c: int, d: int) -> float:
    row, column, total = a + b, a + c, a + b + c + d
    tables = range(max(0, row + column - total), min(row, column) + 1)
    ways = {x: math.comb(column, x) * math.comb(total - column, row - x) for x in tables}
    return float(Fraction(sum(each for each in ways.values() if each <= ways[a]), math.comb(total, row)))


@given(CELL, CELL, CELL, CELL)
def test_fisher_is_what_counting_gives(a, b, c, d):
    assert fisher(a, b, c, d) == pytest.approx(by_counting(a, b, c, d), rel=1e-9)


def test_fisher_of_the_tea_and_of_a_million_runs():
    assert fisher(3, 1, 1, 3) == pytest.approx(0.4857142857)
    assert fisher(250_000, 250_000, 250_000, 250_000) == 1.0
    assert fisher(252_000, 248_000, 248_000, 252_000) == pytest.approx(1.27e-15, rel=0.02)
    assert fisher(500_000, 0, 0, 500_000) == 0.0


def test_holm_multiplies_by_what_is_left_and_keeps_the_order():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []
    assert holm([0.9, 0.5]) == [1.0, 1.0]


def test_newcombes_own_example():
    assert newcombe(56, 70, 48, 80) == pytest.approx((0.0524, 0.3339), abs=5e-5)


def fleet(size: int, *, planted: bool, seed: int = 0) -> Separation:
    """Return what separates in a fleet with settings of every kind, of which one breaks runs."""
    random, found = Random(seed), Separating()
    for at in range(size):
        rate = 10 ** random.uniform(-5, -2)
        optimizer = random.choice(["adam", "adamw", "sgd"])
        broken = random.random() < (0.9 if planted and optimizer == "sgd" else 0.2)
        settings = {
            "optim": optimizer,
            "optimizer_class": {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}[optimizer],
            "lr": repr(rate),
            "gamma": "0.99",
            "seed": str(random.randrange(10**9)),
            "run_name": f"run-{at}",
            "small_seed": str(at % 5),
            "epochs": random.choice(["1", "4", "4.0", "10"]),
        }
        found.add(settings, broken=broken)
    return found.result()


def test_a_planted_value_is_found_once_with_what_parts_the_same_runs():
    found = fleet(2000, planted=True)
    assert [(each.setting, each.value) for each in found.found] == [("optim", "sgd")]
    first = found.found[0]
    assert first.also == ("optimizer_class = SGD",)
    assert first.low < 0.7 < first.high
    assert first.broken / first.runs == pytest.approx(0.9, abs=0.04)
    assert first.runs + first.runs_others == found.runs == 2000
    assert first.probability < 1e-100


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_found_where_nothing_separates(seed):
    assert fleet(2000, planted=False, seed=seed).found == ()


def test_what_identifies_a_run_or_never_differs_is_not_looked_at():
    found = fleet(2000, planted=False)
    # two optimizers of three values, three numbers of epochs, five small seeds, and four bins of learning rates
    assert (found.settings, found.values) == (5, 3 + 3 + 3 + 5 + 4)


def test_a_range_of_numbers_is_found():
    random, found = Random(1), Separating()
    for _ in range(1000):
        rate = 10 ** random.uniform(-5, -1)
        found.add({"lr": repr(rate)}, broken=rate > 1e-2)
    (each,) = found.result().found
    low, high = map(float, each.value.split(" to "))
    assert 5e-3 < low < 2e-2
    assert high > 0.09
    assert not each.exact


def test_numbers_are_rounded_where_there_are_too_many_and_memory_is_bounded():
    random, found = Random(2), Separating()
    for _ in range(20_000):
        value = random.uniform(1, 100)
        found.add({"x": repr(value), "name": f"{value} of"}, broken=value > 75)
    (each,) = found.result().found
    assert each.value.endswith(" to 100")
    assert all(len(values.groups) <= MOST_VALUES for values in found._settings.values())


def test_numbers_that_are_written_differently_are_one_value():
    found = Separating()
    for at in range(40):
        found.add({"lr": "1e-3" if at % 2 else "0.001", "fused": "True" if at < 20 else "False"}, broken=at < 20)
    assert [(each.setting, each.value) for each in found.result().found] == [("fused", "True")]


def test_a_few_runs_separate_nothing():
    found = Separating()
    for at in range(8):
        found.add({"lr": "1" if at < 4 else "2"}, broken=at < 4)
    assert found.result() == Separation(settings=0, values=0, broken=4, runs=8)
