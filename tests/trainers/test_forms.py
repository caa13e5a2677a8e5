"""What numbers say of a column: counted, so that what is unlike a metric's columns weighs against it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ppo_doctor.model.metrics import METRICS
from ppo_doctor.trainers import assignment as forms
from ppo_doctor.trainers.assignment import OTHER, UNUSUAL, described, form, log_odds, numbers, support

AT = np.arange(80)
NOISE = np.random.default_rng(0)
TABLE = json.loads(Path(forms.__file__).with_name("forms.json").read_text(encoding="utf-8"))

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
    assert worst >= np.log(UNUSUAL)


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
