"""What a name tells of the scale of its numbers."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_doctor.readers.table import Table
from ppo_doctor.runs.cleaning import told, without_factors


@pytest.mark.parametrize(
    ("key", "bare", "power"),
    [
        ("wob·1e3", "wob", -3),
        ("kl_x1000", "kl", -3),
        ("kl (x1000)", "kl", -3),
        ("lr(\u00b5)", "lr", -6),
        ("lr [1e-4]", "lr", -4),
        ("drift ×10^-3", "drift", -3),
        ("leash_mnat", "leash_nat", -3),
        ("D mbits", "D bits", -3),
        ("milli_kl", "kl", -3),
        ("driftMilli", "drift", -3),
        ("brain/driftMilli", "brain/drift", -3),
        ("drift_e3", "drift", -3),
        ("cut_pm", "cut", -3),
        ("rate_ppm", "rate", -6),
        ("kstep", "step", 3),
        ("k_env_steps", "env_steps", 3),
        ("Mframes", "frames", 6),
        ("frames (M)", "frames", 6),
    ],
)
def test_a_factor_in_a_name(key, bare, power):
    assert told(key) == (bare, power)


@pytest.mark.parametrize(
    "key",
    [
        "max1000",
        "lr 1e-4 - loss",
        "loss/lr_1e-3",
        "σ(μ)",
        "dist (m)",
        "x1000",
        "return_100",
        "millions",
        "reward/x",
        "kick",
        "Max",
        "dist_m",
        "familiar",
    ],
)
def test_a_name_without_a_factor(key):
    assert told(key) == (key, 0)


def table(**columns):
    rows = np.arange(3)
    values = {key: np.array(column) for key, column in columns.items()}
    return Table(path="log", records=rows, lines=rows + 1, columns=values, decimals=dict.fromkeys(columns, 1))


def test_columns_are_read_without_their_factors():
    got, says = without_factors(table(kl·1e3=[26.4, 1.0, 0.5], R=[1.0, 2.0, 3.0]), ())
    assert got.columns["kl"].tolist() == [0.0264, 0.001, 0.0005]
    assert (got.decimals["kl"], got.decimals["R"]) == (4, 1)
    assert says == {"kl·1e3": "'kl·1e3' is read as 'kl': its name says that it is written times 1e3"}


def test_a_column_that_somebody_named_keeps_its_name():
    got, _ = without_factors(table(kl·1e3=[26.4, 1.0, 0.5]), ("kl·1e3",))
    assert got.columns["kl·1e3"].tolist() == [0.0264, 0.001, 0.0005]


def test_two_columns_of_one_bare_name_stay_as_they_are():
    both = table(kl·1e3=[26.4, 1.0, 0.5], kl=[1.0, 1.0, 1.0])
    assert without_factors(both, ()) == (both, {})
