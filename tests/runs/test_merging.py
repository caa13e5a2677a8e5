"""The files of one run make one run, and every number still says in which file and line it stands."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppo_doctor.diagnosis.analyze import read_runs, runs_of
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.request import Request
from ppo_doctor.runs.discover import sources_in
from ppo_doctor.runs.merging import read_source
from tests.runs.folders import as_csv, as_events, as_jsonl, events_name, sb3_rows, write

KL = "train/approx_kl"


def only(rows, keys):
    return [(step, {key: value for key, value in values.items() if key in keys}) for step, values in rows]


def changed(rows, key, at, by):
    return [(step, values | ({key: values[key] + by} if i in at else {})) for i, (step, values) in enumerate(rows)]


def the_run(folder):
    (run,) = read_runs(str(folder), Request())
    return run


def texts(run):
    return [note.text for note in run.notes]


def written_at(source):
    """What a file holds under the key of a source reference, at its line."""
    lines = Path(source.path).read_text(encoding="utf-8").splitlines()
    if source.path.endswith(".csv"):
        head = next(csv.reader(lines[:1]))
        return float(dict(zip(head, next(csv.reader([lines[source.line - 1]])), strict=True))[source.key])
    return float(json.loads(lines[source.line - 1])[source.key])


def test_three_forms_of_one_run_are_one_run(tmp_path):
    rows = sb3_rows()
    forms = {"progress.csv": as_csv(rows), "progress.json": as_jsonl(rows), events_name(): as_events(rows)}
    run = the_run(write(tmp_path, forms))
    assert len(run.sources) == 3
    assert [source.again for source in run.sources] == [False, True, True]
    assert run.series["approx_kl"].values.tolist() == [values[KL] for _, values in rows]
    assert not any("values differ" in text for text in texts(run))


def test_a_poorer_file_adds_the_metrics_that_the_richest_lacks(tmp_path):
    rows = sb3_rows()
    rest = set(rows[0][1]) - {KL}
    run = the_run(
        write(tmp_path, {"progress.csv": as_csv(only(rows, rest)), events_name(): as_events(only(rows, {KL}))})
    )
    kl = run.series["approx_kl"]
    assert np.allclose(kl.values, [values[KL] for _, values in rows], rtol=1e-6)
    assert Path(kl.source(0).path).name == events_name()
    assert Path(run.series["entropy"].source(0).path).name == "progress.csv"
    assert any("adds approx_kl" in text for text in texts(run))


@settings(max_examples=25)
@given(first=st.sets(st.sampled_from(sorted(sb3_rows()[0][1])), min_size=2), seed=st.integers(0, 5))
def test_every_number_stands_where_it_says(first, seed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    rows = sb3_rows(12, seed=seed)
    second = set(rows[0][1]) - first | {KL}
    files = {"progress.csv": as_csv(only(rows, first)), "progress.json": as_jsonl(only(rows, second))}
    run = the_run(write(folder, files))
    keys = {series.raw for series in run.series.values()}
    assert {key for key in rows[0][1] if key in first | second} <= keys
    for series in run.series.values():
        sign = -1.0 if series.name == "entropy" else 1.0
        for i in range(len(series)):
            assert written_at(series.source(i)) * sign == pytest.approx(series.values[i])


def test_values_that_differ_are_told_and_the_richest_counts(tmp_path):
    rows = sb3_rows()
    poorer = changed(only(rows, {KL, "train/value_loss"}), KL, {3, 4, 9}, 0.5)
    run = the_run(write(tmp_path, {"progress.csv": as_csv(rows), "progress.json": as_jsonl(poorer)}))
    assert run.series["approx_kl"].values.tolist() == [values[KL] for _, values in rows]
    (told,) = [note for note in run.notes if "values differ" in note.text]
    assert "approx_kl: 3 of 20" in told.text
    assert f"step {rows[3][0]}" in told.text
    assert Path(told.source.path).name == "progress.json"


def test_rounding_is_no_difference(tmp_path):
    rows = sb3_rows()
    rounded = [(step, {key: round(value, 2) for key, value in values.items()}) for step, values in rows]
    run = the_run(write(tmp_path, {"progress.csv": as_csv(rounded), events_name(): as_events(rows)}))
    assert len(run.sources) == 2
    assert not any("values differ" in text for text in texts(run))


def test_the_same_records_under_other_steps_are_the_same_run(tmp_path):
    rows = sb3_rows()
    counted = [
        (i, values) for i, (_, values) in enumerate(only(rows, {KL, "train/value_loss", "train/entropy_loss"}), 1)
    ]
    main = only(rows, set(rows[0][1]) - {"train/entropy_loss"})
    run = the_run(write(tmp_path, {"progress.csv": as_csv(main), events_name(): as_events(counted)}))
    assert run.series["entropy"].axis.steps.tolist() == [step for step, _ in rows]


def test_what_one_file_counts_its_steps_in_says_nothing_of_another_s(tmp_path):
    named = {
        "rollout/ep_rew_mean": "charts/episodic_return",
        KL: "actor/ppo_kl",
        "train/policy_gradient_loss": "actor/pg_loss",
        "train/value_loss": "critic/vf_loss",
        "train/clip_fraction": "actor/pg_clipfrac",
        "train/explained_variance": "critic/vf_explained_var",
    }
    rows = sb3_rows()
    updates = [(i, {name: v[key] for key, name in named.items()}) for i, (_, v) in enumerate(rows, start=1)]
    write(
        tmp_path, {"updates.jsonl": as_jsonl(updates, "step"), events_name(): as_events(only(rows, [KL, *named][:4]))}
    )
    run = the_run(tmp_path)
    assert (run.framework, run.steps, len(run.sources)) == ("verl", (1, 20), 2)
    assert "steps_are_env_steps" not in run.facts


@pytest.mark.parametrize(("column", "said"), [("global_step", True), ("row", False)])
def test_records_without_a_step_do_not_count_environment_steps(tmp_path, column, said):
    path = tmp_path / "log.csv"
    renamed = {
        KL: "losses/approx_kl",
        "train/value_loss": "losses/value_loss",
        "train/clip_fraction": "losses/clipfrac",
    }
    rows = [(at, {name: v[key] for key, name in renamed.items()}) for at, v in sb3_rows()]
    path.write_bytes(as_csv(rows, column))
    (run,) = read_runs(str(path), Request(framework="cleanrl"))
    assert ("steps_are_env_steps" in run.facts) is said


def test_metrics_whose_steps_cannot_be_placed_are_not_used_and_told(tmp_path):
    rows = sb3_rows()
    elsewhere = [(10**9 + i, values) for i, (_, values) in enumerate(only(rows[:7], {KL, "train/std"}))]
    elsewhere = [(step, values | {"train/std": 0.5}) for step, values in elsewhere]
    run = the_run(write(tmp_path, {"progress.csv": as_csv(rows), "progress.json": as_jsonl(elsewhere)}))
    assert "action_std" not in run.series
    assert any("action_std not used" in text for text in texts(run))


def test_a_resumed_run_s_event_files_are_one_run(tmp_path):
    early, late = sb3_rows(12), sb3_rows(12, seed=1, start=10)
    files = {events_name(1700000000): as_events(early), events_name(1700009999): as_events(late)}
    run = the_run(write(tmp_path, files))
    kl = run.series["approx_kl"]
    assert kl.axis.steps.tolist() == sorted({step for step, _ in early} | {step for step, _ in late})
    assert Path(kl.source(0).path).name == events_name(1700000000)
    assert Path(kl.source(len(kl) - 1).path).name == events_name(1700009999)
    overlapping = kl.axis.steps.tolist().index(late[0][0])
    assert kl.values[overlapping] == pytest.approx(late[0][1][KL], rel=1e-6)  # the later file counts
    assert Path(kl.source(overlapping).path).name == events_name(1700009999)
    assert [source.records for source in run.sources] == [12, 12]


def test_cutting_the_steps_keeps_the_files_of_records(tmp_path):
    files = {events_name(1): as_events(sb3_rows(10)), events_name(2): as_events(sb3_rows(10, start=11))}
    write(tmp_path, files)
    (run,) = read_runs(str(tmp_path), Request(steps=(2048 * 9, 2048 * 12)))
    kl = run.series["approx_kl"]
    assert [Path(kl.source(i).path).name for i in range(4)] == [events_name(1)] * 2 + [events_name(2)] * 2


def test_event_files_that_start_over_are_runs_of_their_own_and_a_broken_one_is_told(tmp_path):
    files = {events_name(1700000000 + i): as_events(sb3_rows(seed=i)) for i in range(3)}
    files[events_name(1700000009)] = as_events([])
    (source,) = sources_in(write(tmp_path, files))
    outcome = read_source(source, Request())
    assert [Path(run.id).name for run in outcome.runs] == [events_name(1700000000 + i) for i in range(3)]
    (error,) = outcome.broken
    assert events_name(1700000009) in error.message
    assert error.code == ExitCode.NOTHING_TO_JUDGE


def test_a_table_belongs_to_the_event_file_that_says_the_same(tmp_path):
    files = {events_name(1700000000 + i): as_events(sb3_rows(seed=i)) for i in range(3)}
    write(tmp_path, files | {"progress.csv": as_csv(sb3_rows(seed=2))})
    runs = read_runs(str(tmp_path), Request())
    assert len(runs) == 3
    (merged,) = [run for run in runs if len(run.sources) == 2]
    assert {Path(source.path).name for source in merged.sources} == {"progress.csv", events_name(1700000002)}


def test_logs_of_several_seeds_in_one_folder_are_several_runs(tmp_path):
    write(tmp_path, {f"train_seed{i}.csv": as_csv(sb3_rows(seed=i)) for i in range(3)})
    assert len(read_runs(str(tmp_path), Request())) == 3


def test_logs_that_share_no_metric_but_their_steps_are_one_run(tmp_path):
    rows = sb3_rows()
    names = sorted(rows[0][1])
    write(tmp_path, {"actor_log.csv": as_csv(only(rows, names[:4])), "critic_log.csv": as_csv(only(rows, names[4:]))})
    run = the_run(tmp_path)
    assert {series.raw for series in run.series.values()} >= set(names)


def test_a_damaged_file_beside_a_good_one_is_told_and_the_run_judged(tmp_path):
    run = the_run(write(tmp_path, {"progress.csv": as_csv(sb3_rows()), "progress.json": b""}))
    assert len(run.series["approx_kl"]) == 20
    assert any("progress.json is empty" in text for text in texts(run))


def test_files_that_are_no_logs_do_not_disturb(tmp_path):
    more = {
        "notes_run.txt": "it went well\n",
        "reward_fn.log": "hello\n",
        "logo.json": "[]",
        "dataset_stats.json": '{"a": 1}',
    }
    run = the_run(write(tmp_path, {"run.jsonl": as_jsonl(sb3_rows())} | more))
    assert len(run.sources) == 1


def test_a_folder_of_nothing_but_broken_logs_says_why(tmp_path):
    (source,) = sources_in(write(tmp_path, {"progress.csv": b"", "progress.json": b"\x00\x01\x02" * 50}))
    with pytest.raises(DoctorError) as caught:
        runs_of(source, Request())
    assert "progress" in caught.value.message
    assert caught.value.code == ExitCode.NOTHING_TO_JUDGE


def test_the_same_line_of_two_files_is_two_records(tmp_path):
    """A NaN in the second file of a resumed run stands at its own step, not at that of the first file's line."""
    early, late = sb3_rows(10), sb3_rows(10, start=11)
    late[4] = (late[4][0], late[4][1] | {"train/value_loss": float("nan"), "train/policy_gradient_loss": float("nan")})
    write(tmp_path, {events_name(1): as_events(early), events_name(2): as_events(late)})
    from ppo_doctor.checks.run_view import RunView

    found = RunView(the_run(tmp_path)).fact("nonfinite_at_times")
    assert (found.value, found.since) == (1, late[4][0])
    assert Path(found.source.path).name == events_name(2)


@pytest.mark.parametrize(("updates", "held"), [(20, True), (37, False)])
def test_rows_without_a_step_are_side_by_side_where_both_files_have_as_many(tmp_path, updates, held):
    rollout = [{"rollout/ep_rew": 1.0 + n % 3, "rollout/ep_len": 9.0 + n % 2} for n in range(20)]
    training = [{"ppo/policy_loss": -0.01 * (n % 4), "ppo/entropy": 2.0 - 0.01 * n} for n in range(updates)]
    forms = {"rollout_log.jsonl": rollout, "training_log.jsonl": training}
    write(tmp_path, {name: "\n".join(map(json.dumps, rows)) for name, rows in forms.items()})
    (*_, run) = sorted(read_runs(str(tmp_path), Request()), key=lambda run: "entropy" in run.series)
    assert ({"episode_return", "entropy"} <= set(run.series)) is held


def printed(folder, rewards, every):
    """Write a table of rewards, and a console that prints settings and the mean of as many at a time."""
    folder.mkdir()
    table = [f"{100 * (n + 1)},{value}" for n, value in enumerate(rewards)]
    (folder / "log.csv").write_text("\n".join(["timestep,reward", *table]))
    ends = range(every, len(rewards) + 1, every)
    means = [f"Timestep : {100 * n} \t Average Reward : {sum(rewards[n - every : n]) / every:.2f}" for n in ends]
    told = {
        "max training timesteps": 6000,
        "PPO epsilon clip": 0.2,
        "PPO K epochs": 20,
        "discount factor (gamma)": 0.91,
    }
    return [*(f"{name} :  {value}" for name, value in told.items()), *means]


def test_what_a_console_averages_is_the_run_of_the_table_beside_it(tmp_path):
    rewards = [20 + n + 7 * (n * n % 5) for n in range(60)]
    lines = printed(tmp_path / "a", rewards, every=4)
    (tmp_path / "a" / "console.log").write_text("\n".join(lines))
    run = the_run(tmp_path / "a")
    assert run.config["gamma"].value == 0.91
    assert len(run.series["reward_mean"]) == 60
    assert not any("differ" in text for text in texts(run))


def test_a_console_of_other_values_is_another_run(tmp_path):
    lines = printed(tmp_path / "b", [20 + n + 7 * (n * n % 5) for n in range(60)], every=4)
    other = printed(tmp_path / "c", [90 - n - 7 * (n * n % 5) for n in range(60)], every=4)
    assert lines != other
    (tmp_path / "b" / "console.log").write_text("\n".join(other))
    assert len(read_runs(str(tmp_path / "b"), Request())) == 2


def test_what_a_console_says_of_the_end_is_said_of_the_run_of_the_table_beside_it(tmp_path):
    rows = [(step, {"reward": 1.0 + 0.1 * step, "entropy": 0.69 - 0.01 * step}) for step in range(1, 21)]
    records = "\n".join(json.dumps({"step": step} | values) for step, values in rows)
    died = 'Traceback (most recent call last):\n  File "a.py", line 3, in update\nValueError: probs are nan\n'
    run = the_run(write(tmp_path, {"progress.csv": as_csv(rows), "console.log": f"{records}\n{died}"}))
    assert len(run.sources) == 2
    assert [Path(note.source.path).name for note in run.notes if note.event == "died_of_numbers"] == ["console.log"]


def minibatches(rows, *, every=1, factor=1.0):
    """Four minibatches of some updates, around the numbers that the log of the updates holds of them."""
    lines = []
    for number, (_, values) in list(enumerate(rows, start=1))[::every]:
        for minibatch, around in enumerate((0.8, 0.9, 1.1, 1.2)):
            names = ("approx_kl", "value_loss", "clip_fraction")
            inner = {name: values[f"train/{name}"] * around * factor for name in names}
            lines.append(json.dumps({"update": number, "epoch": 0, "minibatch": minibatch, **inner}) + "\n")
    return "".join(lines)


@pytest.mark.parametrize("every", [1, 4])
def test_a_log_of_minibatches_is_of_the_run_whose_updates_they_are(tmp_path, every):
    rows = sb3_rows()
    write(tmp_path, {"progress.csv": as_csv(rows), "minibatches.jsonl": minibatches(rows, every=every)})
    run = the_run(tmp_path)
    assert run.sources[0].path.endswith("progress.csv")
    assert len(run.sources) == 2


def test_the_minibatches_of_another_run_are_another_run(tmp_path):
    rows = sb3_rows()
    write(tmp_path, {"progress.csv": as_csv(rows), "minibatches.jsonl": minibatches(rows, factor=2.0)})
    assert len(read_runs(str(tmp_path), Request())) == 2


def test_a_console_above_the_folder_of_the_log(tmp_path):
    rows = sb3_rows()
    console = "".join(f"step={step} ep_rew_mean={values['rollout/ep_rew_mean']:.1f}\n" for step, values in rows)
    write(tmp_path, {"stdout.log": "start\n" + console, "runs/exp_1/progress.csv": as_csv(rows)})
    run = the_run(tmp_path)
    assert run.sources[0].path.endswith("progress.csv")
    assert run.sources[1].path.endswith("stdout.log")


def test_a_console_above_the_folders_of_two_runs_is_left_by_itself(tmp_path):
    write(tmp_path, {f"runs/{n}/progress.csv": as_csv(sb3_rows(seed=n)) for n in (1, 2)})
    console = "".join(f"step={i} reward={i / 7:.3f} kl=0.0{i}\n" for i in range(10, 30))
    write(tmp_path, {"stdout.log": console})
    assert len(read_runs(str(tmp_path), Request())) == 3


def test_large_numbers_that_a_console_cut_are_no_other_run(tmp_path):
    rows = [(step, {**v, "train/value_loss": v["train/value_loss"] * 1e9}) for step, v in sb3_rows()]
    cut = [(step, {key: float(f"{n:.3g}") for key, n in values.items()}) for step, values in rows]
    write(tmp_path, {"progress.csv": as_csv(rows), "progress.json": as_jsonl(cut)})
    assert len(the_run(tmp_path).sources) == 2


def test_each_logger_reads_the_clock_for_itself(tmp_path):
    rows = [(step, {**values, "time/fps": 1000.5 + step}) for step, values in sb3_rows()]
    other = [(step, {**values, "time/fps": 3.0 + step % 7}) for step, values in rows]
    write(tmp_path, {"progress.csv": as_csv(rows), "log_of_metrics.jsonl": as_jsonl(other)})
    assert len(the_run(tmp_path).sources) == 2
