"""Several runs in one log are told apart, and each is judged; a resumed run stays one."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose, read_runs, runs_of
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.request import Request
from ppo_doctor.readers.table import Table
from ppo_doctor.runs.discover import gather
from ppo_doctor.runs.log import Log
from ppo_doctor.runs.sections import split


def record(step, **more):
    return {"step": step, "approx_kl": 0.01 + 0.0001 * step, "entropy": 1.0 - 0.001 * step, "policy_loss": -0.1} | more


def written(tmp_path, rows):
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def table_of(rows):
    places = np.arange(len(rows))
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    return Table(path="run.jsonl", records=places, lines=places + 1, columns=columns)


def runs(tmp_path, rows):
    return read_runs(written(tmp_path, rows), Request())


def steps_of(run):
    return run.series["approx_kl"].axis.steps.tolist()


def test_steps_that_start_over_are_another_run(tmp_path):
    first, second = runs(tmp_path, [record(s) for s in (*range(10), *range(6))])
    assert steps_of(first) == list(range(10))
    assert steps_of(second) == list(range(6))
    assert first.id != second.id


@pytest.mark.parametrize(("damaged", "records"), [(-1, 20), (0, 19), (-9e18, 19)])
def test_one_step_that_is_wrong_begins_no_run(tmp_path, damaged, records):
    """It stands for itself where it can be a step, and else for the one before it, whose record it replaces."""
    (run,) = runs(tmp_path, [record(s) for s in (*range(10), damaged, *range(11, 20))])
    assert len(steps_of(run)) == records


def test_steps_that_fall_back_to_a_checkpoint_are_one_resumed_run(tmp_path):
    (run,) = runs(
        tmp_path,
        [record(s, approx_kl=float(s)) for s in range(10)] + [record(s, approx_kl=-1.0) for s in (7, 8, 9, 10)],
    )
    assert steps_of(run) == list(range(11))
    assert run.series["approx_kl"].values[7:].tolist() == [-1.0] * 4
    assert any(note.kind == "merged" and note.count == 3 for note in run.notes)


def test_records_in_no_order_are_one_run_whose_steps_order_them(tmp_path):
    rows = [record(s) for s in (*range(40), *range(40))]
    random.Random(0).shuffle(rows)
    (run,) = runs(tmp_path, rows)
    assert steps_of(run) == list(range(40))


def test_runs_of_three_records_each_are_told_apart(tmp_path):
    found = runs(tmp_path, [record(s) for _ in range(20) for s in range(3)])
    assert [steps_of(run) for run in found] == [[0, 1, 2]] * 20


def test_a_new_configuration_line_begins_another_run_with_it(tmp_path):
    config = [{"ppo_doctor": 1, "config": {"ppo_epochs": epochs, "num_minibatches": 1}} for epochs in (4, 1)]
    rows = [config[0], *(record(s) for s in range(5)), config[1], *(record(s) for s in range(5, 10))]
    first, second = runs(tmp_path, rows)
    assert first.config["ppo_epochs"].value == 4
    assert second.config["ppo_epochs"].value == 1


@pytest.mark.parametrize("key", ["seed", "run_id"])
def test_a_column_that_names_runs_tells_interleaved_ones_apart(tmp_path, key):
    rows = [record(s, approx_kl=0.1 * seed, **{key: seed}) for s in range(6) for seed in (1, 2)]
    first, second = runs(tmp_path, rows)
    assert set(first.series["approx_kl"].values) == {0.1}
    assert set(second.series["approx_kl"].values) == {0.2}


def test_a_column_of_words_names_runs_too(tmp_path):
    rows = [record(s, run_name=name) for s in range(5) for name in ("a", "b")]
    assert len(runs(tmp_path, rows)) == 2


def test_one_seed_is_one_run(tmp_path):
    assert len(runs(tmp_path, [record(s, seed=3) for s in range(10)])) == 1


def test_a_single_record_that_falls_back_is_no_run(tmp_path):
    (run,) = runs(tmp_path, [record(5), record(0), *(record(s) for s in range(6, 16))])
    assert steps_of(run)[:2] == [0, 5]


def test_each_run_is_judged(tmp_path):
    sick = [record(s, learning_rate=0.0, approx_kl=0.0, entropy=1.0) for s in range(30)]
    sound = [record(s, learning_rate=0.001) for s in range(30)]
    verdicts = [diagnose(run, load_pack()) for run in runs(tmp_path, sick + sound)]
    assert [[c.id for c in d.causes if c.leader] for d in verdicts] == [["lr-zero"], []]


def test_the_command_line_reports_each(tmp_path, cli):
    path = written(tmp_path, [record(s) for s in (*range(10), *range(10))])
    report = cli("analyze", path, "--format", "json").json
    assert [d["run"]["steps"] for d in report["diagnoses"]] == [[0, 9], [0, 9]]


def test_the_length_of_an_episode_is_no_step(tmp_path):
    rows = [
        {"episode": n, "steps": 40 - 7 * (n % 5), "loss": 1.0 / n, "policy_loss": -0.1, "reward": n}
        for n in range(1, 31)
    ]
    (run,) = runs(tmp_path, rows)
    assert run.series["policy_loss"].axis.steps.tolist() == list(range(1, 31))


def test_steps_that_count_up_stay_the_steps_beside_an_episode(tmp_path):
    rows = [{"episode": n, "steps": 500 * n, "policy_loss": -0.1, "reward": n} for n in range(1, 31)]
    (run,) = runs(tmp_path, rows)
    assert run.series["policy_loss"].axis.steps.tolist() == [500 * n for n in range(1, 31)]


def test_dicts_of_samples_in_a_console_begin_no_run(tmp_path):
    def update(step):
        sample = f"{{'first': True, 'second': False, 'third': {step % 2 == 0}, 'fourth': True}}"
        return f"{sample}\nstep:{step} - actor/pg_loss:-0.1 - actor/ppo_kl:0.001 - critic/score/mean:0.{step}\n"

    path = tmp_path / "output.log"
    path.write_text("".join(map(update, range(1, 10))), encoding="utf-8")
    (run,) = read_runs(str(path), Request())
    assert run.series["approx_kl"].axis.steps.tolist() == list(range(1, 10))


def test_runs_are_told_apart_by_their_names_however_long_the_log_is(tmp_path):
    rows = [record(s, run_id=f"run-{n}", approx_kl=0.001 * n) for n in range(1, 301) for s in range(5)]
    found = runs(tmp_path, rows)
    assert [set(run.series["approx_kl"].values) for run in found] == [{0.001 * n} for n in range(1, 301)]


def test_a_run_is_as_long_as_its_own_records_however_long_the_log_is():
    """Columns are laid out by place: what is made of one run in a thousand would else be a thousand runs long."""
    rows = [{"seed": float(seed), "step": float(step)} for seed in range(50) for step in range(4)]
    parts = split([table_of(rows)], np.full(len(rows), np.nan), [])
    assert [Log(path="", tables=part).size for part in parts] == [4] * 50


def test_what_is_told_apart_is_looked_at_once_however_many_runs_there_are():
    counted = Counter()

    class Cells(tuple):
        __slots__ = ()

        def __iter__(self):
            counted["cells"] += len(self)
            return super().__iter__()

    rows = [{"step": float(step)} for _ in range(100) for step in range(4)]
    table = replace(table_of(rows), texts={"run_id": Cells((i, f"run-{i // 4}") for i in range(len(rows)))})
    parts = split([table], np.full(len(rows), np.nan), [])
    assert [part[0].texts["run_id"][3] for part in parts] == [(3, f"run-{i}") for i in range(100)]
    assert counted["cells"] <= 4 * len(rows)


CLOSING = {"train_runtime": 130.1, "train_samples_per_second": 0.2, "train_loss": 0.03, "approx_kl": 0.5, "step": 20}


def test_the_closing_summary_of_a_training_is_no_record(tmp_path):
    (run,) = runs(tmp_path, [*map(record, range(1, 20)), CLOSING])
    assert run.series["approx_kl"].values.max() < 0.1
    assert any("summary of the whole training" in note.text and note.source.line == 20 for note in run.notes)


def test_nothing_but_a_closing_summary_is_no_log(tmp_path):
    with pytest.raises(DoctorError) as refused:
        runs(tmp_path, [CLOSING])
    assert "summary of the whole training" in str(refused.value.hint)


def boxes(rows):
    return "".join("---------------\n" + "".join(f"| {k} | {v} |\n" for k, v in row.items()) for row in rows) + "---\n"


def test_the_section_of_another_method_is_left_out_by_name(tmp_path):
    dqn = [{"rollout/exploration_rate": 0.5, "total_timesteps": i * 100, "train/loss": i / 99} for i in range(1, 9)]
    ppo = [{"total_timesteps": i * 100, "train/approx_kl": i / 999, "train/value_loss": i / 7} for i in range(1, 9)]
    (tmp_path / "out.txt").write_text(boxes(dqn) + "second\n" + boxes(ppo), encoding="utf-8")
    (run,) = read_runs(str(tmp_path / "out.txt"), Request())
    assert len(run.series["approx_kl"]) == 8
    assert any("are of DQN" in note.text for note in run.notes)
    (tmp_path / "out.txt").write_text(boxes(dqn), encoding="utf-8")
    with pytest.raises(DoctorError):
        read_runs(str(tmp_path / "out.txt"), Request())


@pytest.mark.parametrize(("folder", "refused"), [("a2c_pong", True), ("ppo_vs_a2c", False), ("pong", False)])
def test_a_folder_that_is_named_after_another_method(tmp_path, folder, refused):
    (tmp_path / folder).mkdir()
    path = tmp_path / folder / "log.csv"
    path.write_text("step,reward,entropy\n" + "".join(f"{i},{i}.5,0.{i}\n" for i in range(1, 9)), encoding="utf-8")
    if refused:
        with pytest.raises(DoctorError, match="A2C"):
            read_runs(str(path), Request())
    else:
        assert len(read_runs(str(path), Request())) == 1
    path.write_text("step,reward,approx_kl\n" + "".join(f"{i},{i}.5,0.0{i}\n" for i in range(1, 9)), encoding="utf-8")
    assert len(read_runs(str(path), Request())) == 1


def cell(html):
    output = {"output_type": "display_data", "data": {"text/html": [html]}, "metadata": {}}
    return {"cell_type": "code", "source": [], "metadata": {}, "outputs": [output]}


def table(names, rows):
    body = "".join("<tr>" + "".join(f"<td>{value}</td>" for value in row) + "</tr>" for row in rows)
    return "<table><tr>" + "".join(f"<th>{name}</th>" for name in names) + f"</tr>{body}</table>"


def notebook(tmp_path, *cells):
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps({"cells": cells, "nbformat": 4, "metadata": {}}, indent=1), encoding="utf-8")
    return read_runs(str(path), Request())


GRPO = ["Step", "Training Loss", "reward", "kl"]


def grpo(count, seed=1):
    rng = random.Random(seed)
    return [
        (i, round(rng.random(), 4), round(rng.random(), 4), round(rng.random() / 9, 5)) for i in range(1, count + 1)
    ]


def test_fine_tuning_before_the_training_by_rewards_is_left_out(tmp_path):
    sft = [(i, 1 / i) for i in range(1, 9)]
    (run,) = notebook(tmp_path, cell(table(GRPO[:2], sft)), cell(table(GRPO, grpo(9))))
    assert "reward_mean" in run.series
    assert any("fine-tuning" in note.text for note in run.notes)


def test_a_table_that_a_notebook_shows_again_is_one_run(tmp_path):
    (run,) = notebook(tmp_path, cell(table(GRPO, grpo(9))), cell(table(GRPO, grpo(20))))
    assert len(run.series["reward_mean"]) == 20
    assert len(notebook(tmp_path, cell(table(GRPO, grpo(9))), cell(table(GRPO, grpo(20, seed=2))))) == 2


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
