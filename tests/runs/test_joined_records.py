"""Runs put together: files of one record each, settings among records, columns of several workers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ppo_doctor.diagnosis.analyze import runs_of
from ppo_doctor.runs.discover import gather
from ppo_doctor.runs.reading import Request

RECORDS = [
    {"policy_loss": -0.01 * n, "value_loss": 1.0 / n, "entropy": 1.4 - 0.01 * n, "mean_reward": n} for n in range(1, 32)
]


def runs(path):
    sources, _ = gather([str(path)])
    return [run for source in sources for run in runs_of(source, Request())]


def test_files_of_one_record_each_are_one_run_in_the_order_of_their_numbers(tmp_path):
    for number, record in enumerate(RECORDS):
        (tmp_path / f"metrics-{number}.json").write_text(json.dumps(record))
    (run,) = runs(tmp_path)
    assert run.series["reward_mean"].values.tolist() == list(range(1, 32))


def test_files_of_several_seeds_stay_runs_of_their_own(tmp_path):
    for number, record in enumerate(RECORDS[:4]):
        (tmp_path / f"results_seed{number}.json").write_text(json.dumps(record))
    assert len(runs(tmp_path)) == 4


@pytest.mark.parametrize("suffix", ["jsonl", "log"])
def test_settings_among_the_records_are_settings(tmp_path, suffix):
    settings = {"learning_rate": 3e-4, "clip_range": 0.2, "gamma": 0.99, "n_epochs": 4, "env_id": "CartPole-v1"}
    write = json.dumps if suffix == "jsonl" else str
    (tmp_path / f"train.{suffix}").write_text("\n".join(map(write, [settings, *RECORDS])))
    (run,) = runs(tmp_path / f"train.{suffix}")
    assert len(run.series["entropy"]) == len(RECORDS)
    assert "clip_range" not in run.series
    assert (run.config["ppo_epochs"].value, run.config["gamma"].value) == (4, 0.99)


def test_columns_of_several_workers_are_their_mean_and_norms_their_largest(tmp_path):
    rows = [
        {**record, "entropy_0": 1.0, "entropy_1": 2.0, "grad_norm_0": 0.5, "grad_norm_1": n}
        for n, record in enumerate({key: r[key] for key in r if key != "entropy"} for r in RECORDS)
    ]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (run,) = runs(tmp_path / "train.jsonl")
    assert np.all(run.series["entropy"].values == 1.5)
    assert run.series["grad_norm"].values[-1] == 30
    assert any("entropy_0, entropy_1" in note.text for note in run.notes)
