"""Checkpoints beside a log are found by their names, and only where their steps are those of the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ppo_doctor.diagnosis.analyze import load_run
from ppo_doctor.runs.beside import checkpoints, homes

HF = {"completions/mean_length": 100.0, "reward": 0.5, "reward_std": 0.1, "kl": 0.01, "loss": 0.1, "grad_norm": 1.0}
SB3 = {"rollout/ep_rew_mean": 10.0, "train/approx_kl": 0.01, "train/clip_fraction": 0.1, "train/loss": 0.1}


def trl(folder: Path, last: int = 100) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "trainer_state.json"
    history = [{**HF, "step": step} for step in range(10, last + 1, 10)]
    path.write_text(json.dumps({"log_history": history, "global_step": last}), encoding="utf-8")
    return path


def sb3(folder: Path, scale: int = 2048) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "progress.csv"
    names = [*SB3, "time/total_timesteps", "time/iterations"]
    rows = [[*SB3.values(), n * scale, n] for n in range(1, 21)]
    path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]), encoding="utf-8")
    return path


def saved(folder: Path, *names: str) -> None:
    """Make checkpoints: folders with a file, or files for names with a suffix."""
    for name in names:
        path = folder / name
        if path.suffix:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"never opened")
        else:
            path.mkdir(parents=True, exist_ok=True)
            (path / "model.safetensors").write_bytes(b"never opened")


def steps(path: Path) -> list[int]:
    return [checkpoint.step for checkpoint in checkpoints(load_run(path))]


def test_the_checkpoints_of_a_hugging_face_trainer(tmp_path):
    saved(tmp_path, "checkpoint-50", "checkpoint-100")
    found = checkpoints(load_run(trl(tmp_path)))
    assert [(Path(each.path).name, each.step, each.size) for each in found] == [
        ("checkpoint-50", 50, 12),
        ("checkpoint-100", 100, 12),
    ]
    assert all(each.modified for each in found)


def test_a_log_in_a_checkpoint_or_in_a_part_of_the_folder_belongs_to_the_folder_above(tmp_path):
    saved(tmp_path, "checkpoint-50", "checkpoint-100")
    assert steps(trl(tmp_path / "checkpoint-100")) == [50, 100]
    saved(tmp_path / "b", "models/rl_model_4096_steps.zip")
    assert steps(sb3(tmp_path / "b" / "logs")) == [4096]


def test_the_checkpoints_of_stable_baselines(tmp_path):
    saved(tmp_path, "rl_model_10000_steps.zip", "rl_model_20000_steps.zip", "best_model.zip")
    assert steps(sb3(tmp_path)) == [10000, 20000]


@pytest.mark.parametrize("name", ["model_{}.pt", "iter_{:07d}", "ckpt-{}.pth", "my_agent_{}.zip", "step={}.ckpt"])
def test_other_names_count_where_their_numbers_have_the_range_of_the_log(tmp_path, name):
    path = trl(tmp_path)
    saved(tmp_path / "checkpoints", *(name.format(step) for step in (40, 80)))
    assert steps(path) == [40, 80]


def test_steps_of_another_unit_are_not_compared(tmp_path):
    saved(tmp_path, "model_10.pt", "model_20.pt")
    assert steps(sb3(tmp_path)) == []  # 20 updates, 40960 steps of the environment
    saved(tmp_path / "b", "checkpoint-5000", "checkpoint-10000")
    assert steps(trl(tmp_path / "b")) == []


def test_a_log_without_steps_has_none(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text("".join(f"{json.dumps({'reward': n, 'kl': 0.1, 'loss': 0.2})}\n" for n in range(30)), "utf-8")
    saved(tmp_path, "checkpoint-10", "checkpoint-20")
    assert steps(path) == []


def test_empty_checkpoints_and_those_of_other_logs_do_not_count(tmp_path):
    path = trl(tmp_path)
    (tmp_path / "checkpoint-50").mkdir()
    (tmp_path / "model_60.pt").touch()
    assert steps(path) == []
    saved(tmp_path, "checkpoint-70")
    assert steps(path) == [70]
    path.with_name("trainer_log.json").write_text("[]", encoding="utf-8")
    assert steps(path) == []


def test_what_was_not_read_from_a_file_has_no_folder(tmp_path, monkeypatch):
    from dataclasses import replace

    run = load_run(trl(tmp_path))
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, "checkpoint-50")
    sources = tuple(replace(source, path="<stdin>") for source in run.sources)
    assert homes(replace(run, sources=sources)) == []
    assert checkpoints(replace(run, sources=sources)) == []
