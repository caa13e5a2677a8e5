"""Columns of a script's own names, given to metrics jointly: what is clear is, and the rest stays open."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ppo_doctor.model.metrics import METRICS
from ppo_doctor.trainers.guessing import value_forms
from ppo_doctor.trainers.guessing.inference import infer_columns
from ppo_doctor.trainers.guessing.value_forms import OTHER, described, form, log_odds, numbers, support
from ppo_doctor.trainers.guessing.weights import UNUSUAL_RUNS

RECORDS = 120


def noise(size, seed=0):
    return np.random.default_rng(seed).normal(size=RECORDS) * size


def sound_numbers(**changed):
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
    held = sound_numbers(**changed)
    return {name: held[metric] for name, metric in names.items()}


def found(columns, named=()):
    return {key: reading.metric for key, reading in infer_columns(columns, named, columns.keys()).items()}


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


def test_columns_beyond_what_a_script_has_are_left():
    columns = {f"train{n}/La": noise(0.01, n) for n in range(200)}
    assert len(found(columns | log(SYMBOLS))) <= 24


AT = np.arange(80)


NOISE = np.random.default_rng(0)


TABLE = json.loads(Path(value_forms.__file__).with_name("forms.json").read_text(encoding="utf-8"))


COLUMNS = {
    "entropy": 1.38 - AT / 200 + NOISE.normal(size=80) * 0.002,
    "learning_rate": np.full(80, 3e-4),
    "value_loss": 400 * np.exp(-AT / 30) * np.exp(0.2 * NOISE.normal(size=80)),
    "policy_loss": NOISE.normal(size=80) * 0.01 - 0.005,
    "approx_kl": 0.008 * np.exp(0.3 * NOISE.normal(size=80)),
    "ratio_mean": 1 + NOISE.normal(size=80) * 0.002,
}


@pytest.mark.parametrize("metric", COLUMNS)
def test_a_column_is_likelier_what_it_is_than_what_the_others_are(metric):
    column = numbers(COLUMNS[metric])
    assert max(COLUMNS, key=lambda each: support(each, form(column))) == metric
    assert support(metric, form(column)) > 0


def test_a_counter_has_no_form_and_a_few_numbers_say_nothing():
    assert numbers(AT.astype(float)) is None
    assert support("entropy", {}) == 0


def test_what_is_unusual_speaks_against_a_metric_only_so_far_as_such_runs_are_rare():
    worst = min(support("entropy", form(numbers(column))) for column in (*COLUMNS.values(), np.zeros(80), -1e9 * AT))
    assert worst >= np.log(UNUSUAL_RUNS)


def test_every_class_of_a_form_has_a_weight_for_every_metric():
    odds = log_odds(TABLE)
    columns = [*COLUMNS.values(), -COLUMNS["entropy"], np.zeros(80), np.full(80, -1.0), 1e9 * AT[::-1] + 0.5]
    for values in columns:
        for name, k in form(numbers(values)).items():
            assert all(k in odds[metric][name] for metric in odds)


def test_the_table_holds_metrics_of_ours_and_counts_of_columns():
    assert TABLE.keys() - METRICS.keys() == {OTHER}
    assert all(n >= 0 for of in TABLE.values() for classes in of.values() for n in classes.values())


def test_of_a_metric_that_was_never_counted_numbers_say_nothing():
    assert "ratio_abs_dev" not in TABLE
    assert support("ratio_abs_dev", form(numbers(COLUMNS["entropy"]))) == 0


def test_a_start_beyond_all_numbers_has_a_form():
    huge = np.full(40, 1.7e308)
    huge[3:] = np.random.default_rng(4).normal(size=37)
    with np.errstate(all="ignore"):
        assert np.isfinite(support("entropy", form(described(huge))))


@pytest.mark.parametrize("column", [0.8 * (1 + AT), 0.25 * (4 + AT), (AT % 7 == 0).astype(float)])
def test_clocks_and_flags_have_no_form(column):
    assert numbers(column) is None


@pytest.mark.parametrize("column", [3e-4 * (1 - AT / 80), 0.0135 + 0.001 * AT, np.zeros(80), np.full(80, 1.0)])
def test_what_is_constant_or_falls_is_no_clock(column):
    assert numbers(column) is not None
