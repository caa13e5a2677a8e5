"""Records of other methods or other trainers in one file."""

from __future__ import annotations

import json

import pytest

from ppo_doctor.diagnosis.analyze import runs_of
from ppo_doctor.model.request import Request
from ppo_doctor.runs.discover import gather

QUEUE = [f"step {800 * n} | ret {-90 + n}.5 | td_err 0.0{n + 10} | q -{n}.25 | eps 0.{99 - n}" for n in range(1, 21)]


POLICY = [
    f"step {640 * n} | ret {-80 + 2 * n + n % 3}.5 | pi_loss -0.00{n % 7 + 1} | v_loss 0.{90 - n} | entropy 1.{60 - n}"
    f" | kl 0.00{n % 5 + 3} | clipfrac 0.0{n % 4 + 5}"
    for n in range(1, 31)
]


def with_algo(lines, name):
    return [line.replace(" | ret", f" | algo {name} | ret") for line in lines]


def the_run(path):
    (source,), _ = gather([str(path)])
    (run,) = runs_of(source, Request())
    return run


@pytest.mark.parametrize(
    "lines",
    [
        ["== DQN ==", *QUEUE, "== PPO ==", *POLICY],
        ["== PPO ==", *POLICY, "== DQN ==", *QUEUE],
        [*with_algo(QUEUE, "DQN"), *with_algo(POLICY, "PPO")],
        [line for pair in zip(with_algo(QUEUE, "DQN"), with_algo(POLICY, "PPO"), strict=False) for line in pair],
    ],
    ids=["headed", "headed, PPO first", "a word in each line", "line by line in turn"],
)
def test_lines_of_another_method_are_left_out_and_told(tmp_path, lines):
    path = tmp_path / "compare.log"
    path.write_text("\n".join(lines) + "\n")
    run = the_run(path)
    assert "values_mean" not in run.series
    assert run.series["episode_return"].values.max() < 2 * 30
    assert len(run.series["episode_return"]) == sum("pi_loss" in line for line in lines)
    assert any("DQN" in note.text and note.kind == "said" for note in run.notes)


def test_rows_of_another_method_are_left_out_by_their_column(tmp_path):
    rows = [{"algo": "sac", "step": 100 * n, "return": n / 3, "critic_loss": 1 / n} for n in range(1, 20)]
    rows += [
        {
            "algo": "ppo",
            "step": 100 * n,
            "return": n + n % 4,
            "policy_loss": -0.01 / n,
            "entropy": 2 - n / 40,
            "approx_kl": 0.01 + n / 9999,
        }
        for n in range(1, 26)
    ]
    path = tmp_path / "both.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = the_run(path)
    assert {len(series) for series in run.series.values()} == {25}


def test_a_heading_that_names_another_method_above_records_of_ppo_takes_nothing(tmp_path):
    path = tmp_path / "run.log"
    path.write_text("\n".join(["== PPO ==", *POLICY[:10], "-- compared with DQN --", *POLICY[10:]]) + "\n")
    assert len(the_run(path).series["episode_return"]) == len(POLICY)


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
