"""Curves that TensorBoard downloads and frames that pandas writes: names stand apart from their numbers."""

import json

import pytest

from ppo_doctor.pipeline import Request, read_runs
from ppo_doctor.readers.csv_log import tag_of
from tests.readers.conftest import read_back

ROWS = [{"step": i * 10, "approx_kl": i / 128, "reward": i * 1.5} for i in range(1, 7)]
NAMES = list(ROWS[0])
VALUES = [list(row.values()) for row in ROWS]
FRAMES = {
    "columns": {name: {str(i): row[name] for i, row in enumerate(ROWS)} for name in NAMES},
    "index": {str(i): row for i, row in enumerate(ROWS)},
    "records": ROWS,
    "split": {"columns": NAMES, "index": list(range(6)), "data": VALUES},
    "rows below their names": [NAMES, *VALUES],
    "table": {"schema": {"fields": [{"name": name} for name in NAMES]}, "data": ROWS},
}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("orient", FRAMES)
def test_frames_in_each_orient(orient, indent):
    got = read_back(json.dumps(FRAMES[orient], indent=indent))
    assert [{name: record[name] for name in NAMES} for record in got.records] == ROWS


def test_a_long_frame_in_one_line():
    count = 9_000
    frame = {"kl": {str(i): i / 8 for i in range(count)}, "reward": {str(i): i * 2.0 for i in range(count)}}
    got = read_back(json.dumps(frame))
    assert len(got.records) == count
    assert got.records[-1] == {"kl": (count - 1) / 8, "reward": (count - 1) * 2.0}


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("run-PPO_1-tag-train_approx_kl.csv", "train/approx_kl"),
        ("logs/PPO_1-tag-rollout_ep_rew_mean.json", "rollout/ep_rew_mean"),
        ("run-.-tag-Losses_Policy Loss (1).csv", "Losses/Policy Loss"),
        ("run-x-tag-entropy.csv", "entropy"),
        ("episode_reward.csv", "episode_reward"),
    ],
)
def test_the_name_of_a_file_is_that_of_its_curve(name, tag):
    assert tag_of(name) == tag


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_the_curves_of_a_folder_are_one_run(tmp_path, suffix):
    for name in ("approx_kl", "value_loss"):
        points = [[1.7e9 + i, i * 2048, 0.125 * i + len(name)] for i in range(1, 9)]
        text = json.dumps(points)
        if suffix == "csv":
            text = "Wall time,Step,Value\n" + "".join(f"{a},{b},{c}\n" for a, b, c in points)
        (tmp_path / f"run-PPO_1-tag-train_{name}.{suffix}").write_text(text, encoding="utf-8")
    (run,) = read_runs(str(tmp_path), Request())
    assert run.series["approx_kl"].raw == "train/approx_kl"
    assert run.series["value_loss"].values[0] == 0.125 + len("value_loss")
    assert run.series["value_loss"].axis.steps.tolist() == [i * 2048 for i in range(1, 9)]


def test_a_table_of_values_by_step_keeps_its_names():
    got = read_back("Step,Value,kl\n1,2.5,0.1\n2,3.5,0.2\n")
    assert got.records[0] == {"Step": 1, "Value": 2.5, "kl": 0.1}
