"""Records of several trainers in one file: none of them takes the reading of the others over."""

from __future__ import annotations

import json

import pytest

SICK = "old-policy-aliased"


def records(samples, name):
    path = samples / name
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return json.loads(text)["log_history"]
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def cleanrl(samples):
    return records(samples, f"sick/{SICK}.cleanrl/metrics.jsonl")


@pytest.fixture(scope="module")
def trl(samples):
    return [row for row in records(samples, "healthy/healthy.trl-grpo/trainer_state.json") if "reward" in row]


@pytest.fixture
def judged(cli, tmp_path):
    def judge(*parts):
        path = tmp_path / "run.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for rows in parts for row in rows), encoding="utf-8")
        found = cli("analyze", path, "--format", "json").json
        return found.get("diagnoses", [found])

    return judge


def told(diagnosis):
    return [note for note in diagnosis["run"]["notes"] if "TRL" in note]


@pytest.mark.parametrize("at", [0, 3, 140, 278])
@pytest.mark.parametrize("count", [1, 5])
def test_records_of_another_trainer_take_no_log_over(judged, cleanrl, trl, at, count):
    (alone,), (found,) = judged(cleanrl), judged(cleanrl[:at], trl[40 : 40 + count], cleanrl[at:])
    assert found["run"]["framework"] == "cleanrl"
    assert found["verdict"] == alone["verdict"] != "healthy"
    assert [cause["id"] for cause in found["causes"]] == [cause["id"] for cause in alone["causes"]]
    assert found["run"]["keys"] == alone["run"]["keys"]
    (note,) = told(found)
    assert f"{count} record" in note
    assert "left out" in note


def test_the_note_is_on_the_screen(cli, tmp_path, cleanrl, trl):
    path = tmp_path / "run.jsonl"
    rows = [*cleanrl[:140], trl[40], *cleanrl[140:]]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    page = " ".join(cli("analyze", path).out.split())
    assert "1 record of line 141 left out: of TRL GRPOTrainer, and the log is of CleanRL PPO" in page


def test_records_of_two_trainers_that_take_turns_are_read_as_what_most_are(judged, cleanrl, trl):
    mixed = [row for pair in zip(cleanrl, trl, strict=False) for row in pair] + cleanrl[len(trl) :]
    (found,) = judged(mixed)
    assert found["run"]["framework"] == "cleanrl"
    assert found["verdict"] != "healthy"
    assert len(told(found)) == 1


@pytest.mark.parametrize("first", ["cleanrl", "trl"])
def test_sections_of_two_trainers_are_runs_of_their_own(judged, cleanrl, trl, first):
    parts = (cleanrl, trl) if first == "cleanrl" else (trl, cleanrl)
    alone = {found["run"]["framework"]: found for part in parts for found in judged(part)}
    found = {diagnosis["run"]["framework"]: diagnosis for diagnosis in judged(*parts)}
    assert found.keys() == alone.keys() == {"cleanrl", "trl-grpo"}
    for name, diagnosis in found.items():
        assert diagnosis["verdict"] == alone[name]["verdict"]
        assert [cause["id"] for cause in diagnosis["causes"]] == [cause["id"] for cause in alone[name]["causes"]]
        assert len(told(diagnosis)) == 1


def test_three_sections_are_three_runs(judged, cleanrl, trl):
    names = ("loss", "approx_kl", "clip_fraction", "entropy_loss", "n_updates")
    sb3 = [{"time/total_timesteps": i, **{f"train/{name}": 0.01 + i % 3 / 100 for name in names}} for i in range(30)]
    found = judged(cleanrl, sb3, trl)
    assert [diagnosis["run"]["framework"] for diagnosis in found] == ["cleanrl", "sb3", "trl-grpo"]


def test_a_record_of_a_trainer_takes_no_log_of_a_script_over(judged, trl):
    rows = [
        {"iter": i, "pi_loss": -0.01 + i % 3 / 500, "v_loss": 1.0 / (1 + i), "approxKL": 0.0, "clipped_fraction": 0.0,
         "mean_episode_return": 3.0 * i, "pi_entropy": 1.5 - i / 200}
        for i in range(60)
    ]  # fmt: skip
    (alone,), (found,) = judged(rows), judged(rows[:30], trl[40:41], rows[30:])
    assert found["run"]["framework"] == alone["run"]["framework"]
    assert found["verdict"] == alone["verdict"]
    assert len(told(found)) == 1


def test_a_trainers_own_layouts_stay_together(judged, trl):
    """Evaluations, a summary and what a callback adds are of the run."""
    evaluations = [{"step": i, "eval_loss": 0.1, "eval_reward": 0.5} for i in range(20, 200, 20)]
    own = [{"step": i, "my/entropy_bonus": 0.1, "policy_loss": 0.2} for i in range(240, 260)]
    (found,) = judged(trl[:100], evaluations, trl[100:], own)
    assert found["run"]["framework"] == "trl-grpo"
    assert not told(found)


def test_a_framework_that_was_named_reads_all_records(cli, tmp_path, cleanrl, trl):
    path = tmp_path / "run.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in (*cleanrl, *trl)), encoding="utf-8")
    found = cli("analyze", path, "--framework", "cleanrl", "--format", "json").json
    assert found["run"]["framework"] == "cleanrl"
    assert not told(found)
