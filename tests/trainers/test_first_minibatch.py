"""Columns of a ratio at the first minibatch: told by their names, or by clipped samples beside them."""

from __future__ import annotations

import json

import pytest

from ppo_doctor.diagnosis.analyze import read_runs
from ppo_doctor.runs.reading import Request
from ppo_doctor.trainers.column_values import is_named_so


@pytest.mark.parametrize(
    "key", ["w_err0", "w0_dev", "rho_start", "ratio_first_dev", "first_ratio_err", "q0_prom", "lp_gap0", "rho0-1"]
)
def test_names_of_the_first_minibatch(key):
    assert is_named_so(key)


@pytest.mark.parametrize("key", ["ratio", "w_dev", "rho-1", "r0", "first", "reward0", "kl0", "lp_gap", "odd_start_up"])
def test_names_of_something_else(key):
    assert not is_named_so(key)


def metrics_of(tmp_path, ratios, clipped):
    path = tmp_path / "log.jsonl"
    records = [
        {"update": i, "episode_return": i, "ratio_abs_dev": r, "clip_fraction": c, "approx_kl": 0.01}
        for i, (r, c) in enumerate(zip(ratios, clipped, strict=True))
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return read_runs(str(path), Request())[0].series


def test_a_ratio_of_one_beside_clipped_samples_is_of_the_first_minibatch(tmp_path):
    series = metrics_of(tmp_path, [0.0] * 12, [0.1, 0.2] * 6)
    assert "ratio_abs_dev" not in series
    assert not series["first_ratio_dev"].values.any()


def test_so_is_one_that_is_one_only_at_times(tmp_path):
    series = metrics_of(tmp_path, [0.0, 0.05, 0.06, 0.07] * 3, [0.1] * 12)
    assert series["first_ratio_dev"].values.max() == pytest.approx(0.07)


@pytest.mark.parametrize("clipped", [[0.0] * 12, [0.0] * 10 + [0.1] * 2])
def test_where_nothing_is_clipped_a_ratio_of_one_is_the_updates_own(tmp_path, clipped):
    assert "ratio_abs_dev" in metrics_of(tmp_path, [0.0] * 12, clipped)


def test_a_ratio_that_moves_beside_clipped_samples_stays(tmp_path):
    assert "ratio_abs_dev" in metrics_of(tmp_path, [0.05, 0.06, 0.07] * 4, [0.1] * 12)
