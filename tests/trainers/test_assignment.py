"""Columns of a script's own names, given to metrics jointly: what is clear is, and the rest stays open."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from ppo_doctor.trainers.assignment import _matched, looks_like_ppo
from ppo_doctor.trainers.unnamed import by_form

RECORDS = 120


def noise(size, seed=0):
    return np.random.default_rng(seed).normal(size=RECORDS) * size


def numbers(**changed):
    """Return metric → numbers of a sound run of three actions."""
    at = np.arange(RECORDS)
    return {
        "episode_return": -200 + 1.5 * at + noise(20),
        "policy_loss": noise(0.01, 1) - 0.01,
        "value_loss": 50 * np.exp(-at / 40) + np.abs(noise(3, 2)),
        "entropy": 1.09 - at / 200 + noise(0.004, 3),
        "approx_kl": 0.008 + np.abs(noise(0.004, 4)),
        "clip_fraction": 12 + np.abs(noise(4, 5)),
        "ratio": noise(0.002, 6),
        "steps": np.full(RECORDS, 40.0),
    } | changed


def log(names, **changed):
    held = numbers(**changed)
    return {name: held[metric] for name, metric in names.items()}


def found(columns, named=()):
    return {key: reading.metric for key, reading in by_form(columns, named, columns.keys()).items()}


SYMBOLS = {
    "G": "episode_return",
    "La": "policy_loss",
    "Lc": "value_loss",
    "Ent2": "entropy",
    "dKL": "approx_kl",
    "cf%": "clip_fraction",
    "rho-1": "ratio",
    "upd/batch": "steps",
}


def test_symbols_are_plain_together():
    ours = SYMBOLS | {"rho-1": "ratio_mean", "upd/batch": "optimizer_steps"}
    assert found(log(SYMBOLS)) == ours


def test_one_symbol_alone_is_nothing():
    for name in SYMBOLS:
        assert found({name: log(SYMBOLS)[name]}) == {}


def test_a_frozen_policy_does_not_hide_what_its_columns_are():
    still = np.zeros(RECORDS)
    columns = log(SYMBOLS, approx_kl=still, clip_fraction=still, policy_loss=noise(1e-8), entropy=still + 1.0986)
    assert {"La": "policy_loss", "Ent2": "entropy", "dKL": "approx_kl"}.items() <= found(columns).items()


def test_numbers_rule_out_what_they_cannot_be():
    columns = log(SYMBOLS)
    columns["Lc"] = -columns["Lc"]  # no squared error is negative
    assert found(columns).get("Lc") != "value_loss"


def test_a_value_beside_a_policy_is_a_loss_and_a_signed_one_is_none():
    names = {"policy": "policy_loss", "value": "value_loss", "ent": "entropy", "kl": "approx_kl"}
    named = {"entropy", "approx_kl"}
    columns = {key: values for key, values in log(names).items() if key in ("policy", "value")}
    assert found(columns, named) == {"policy": "policy_loss", "value": "value_loss"}
    assert found(columns | {"value": noise(3)}, named).get("value") != "value_loss"


def test_a_metric_that_a_name_settles_is_given_to_no_other_column():
    columns = log({"G": "episode_return", "La": "policy_loss", "Lc": "value_loss", "H": "entropy", "K": "approx_kl"})
    assert "G" not in found(columns, {"episode_return"})


def test_of_the_same_numbers_under_two_names_the_first_is_the_return():
    columns = log({"La": "policy_loss", "Lc": "value_loss", "H": "entropy", "dKL": "approx_kl"})
    ours = found(columns | {"G": noise(30), "R": noise(30)})
    assert ours["G"] == "episode_return" != ours.get("R")


OTHERS = (
    {"G": noise(5) + 30, "L": np.abs(noise(1)), "eps": np.linspace(1, 0.1, RECORDS)},
    {"R": noise(5), "Lq1": np.abs(noise(1)), "Lpi": noise(0.1), "alpha": np.full(RECORDS, 0.2), "H": noise(0.1) - 3},
    {"L": np.abs(noise(1)), "Lv": np.abs(noise(1)), "A": np.linspace(0, 1, RECORDS), "recon": noise(1)},
    {"O": noise(1) + 100, "H": noise(1) + 101, "L": noise(1) + 99, "C": noise(1) + 100, "V": np.abs(noise(1e6))},
    {"L_D": noise(0.1) + 0.7, "L_G": noise(0.1) + 0.7, "G": noise(0.1), "gn": np.abs(noise(1))},
)


@pytest.mark.parametrize("columns", OTHERS)
def test_logs_of_something_else_are_not_read(columns):
    assert found(columns) == {}


@pytest.mark.parametrize("named", [{"policy_loss", "value_loss"}, {"learning_rate", "loss"}, set(), {"approx_kl"}])
def test_what_does_not_look_like_ppo(named):
    assert not looks_like_ppo(named)


def test_columns_beyond_what_a_script_has_are_left():
    columns = {f"train{n}/La": noise(0.01, n) for n in range(200)}
    assert len(found(columns | log(SYMBOLS))) <= 24


def test_the_matching_is_the_cheapest():
    draw = np.random.default_rng(0)
    for rows, more in ((1, 0), (2, 2), (3, 1), (4, 3)):
        costs = draw.normal(size=(rows, rows + more)).tolist()
        places = _matched(costs)
        every = (sum(costs[i][p] for i, p in enumerate(each)) for each in permutations(range(rows + more), rows))
        assert len(set(places)) == rows
        assert sum(costs[i][p] for i, p in enumerate(places)) == pytest.approx(min(every))
