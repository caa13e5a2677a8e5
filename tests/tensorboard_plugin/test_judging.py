"""What is found below a log directory, and what is shown of each run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ppo_doctor.fleets.unit import Found, found_below
from ppo_doctor.tensorboard_plugin.judging import judge
from ppo_doctor.tensorboard_plugin.plugin import places


def found_in(folder: Path, name: str = "") -> dict[str, Found]:
    return {found.name: found for found in found_below({folder: name}, [])}


@pytest.mark.parametrize(
    ("logdir", "spec", "expected"),
    [
        ("runs", "", {"runs": ""}),
        ("a:b", "", {"a:b": ""}),
        ("", "", {}),
        ("", "runs", {"runs": ""}),
        ("", "a:/x,b:y", {"/x": "a", "y": "b"}),
        ("", "/x:y", {"/x:y": ""}),
        ("s3://bucket/runs", "", {}),
        ("", "a:gs://bucket,b:/x", {"/x": "b"}),
        ("", "gs://bucket,/x", {"/x": ""}),
    ],
)
def test_folders_of_the_flags(logdir, spec, expected):
    assert places(logdir, spec) == {Path(path): name for path, name in expected.items()}


def test_runs_are_named_as_tensorboard_names_them(tmp_path, samples):
    for name in (".", "exp/seed1"):
        shutil.copytree(samples / "healthy" / "healthy.sb3", tmp_path / name, dirs_exist_ok=True)
    assert set(found_in(tmp_path)) == {".", "exp/seed1"}
    assert set(found_in(tmp_path, "mine")) == {"mine", "mine/exp/seed1"}


def test_two_logs_of_one_folder_have_names_of_their_own(tmp_path, samples):
    for number in (1, 2):
        folder = tmp_path / "wandb" / f"offline-run-2024010{number}_000000-abc{number}"
        (folder / "files").mkdir(parents=True)
        shutil.copy(samples / "healthy" / "healthy.canonical" / "run.jsonl", folder / "run.jsonl")
    names = [found.name for found in found_below({tmp_path: ""}, [])]
    assert len(set(names)) == len(names) == 2


def test_a_key_tells_no_path_and_stays(tmp_path, samples):
    shutil.copytree(samples / "healthy" / "healthy.sb3", tmp_path / "run")
    (before,) = found_in(tmp_path).values()
    with (tmp_path / "run" / "progress.csv").open("a", encoding="utf-8") as file:
        file.write("\n")
    (after,) = found_in(tmp_path).values()
    assert before.key == after.key
    assert before.key.isalnum()
    assert before.unit.fingerprint != after.unit.fingerprint


def test_of_several_runs_in_a_file_the_worst_is_named(tmp_path, samples):
    rows = []
    for seed, name in enumerate(("healthy/healthy", "sick/lr-zero")):
        lines = (samples / f"{name}.canonical" / "run.jsonl").read_text(encoding="utf-8").splitlines()
        rows += [json.dumps({**json.loads(line), "run_id": f"seed{seed}"}) for line in lines]
    (tmp_path / "metrics.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (found,) = found_in(tmp_path).values()
    judgement = judge(found, growing=False, page=True)
    assert judgement.verdict == "unhealthy"
    assert judgement.headline.startswith("2 runs, the worst: ")
    assert all(f'id="run-{number}"' in judgement.page for number in (0, 1))
