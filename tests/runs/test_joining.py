"""Parts of one run are judged as the whole; runs of their own stay apart."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.diagnosis.analyze import read_runs, runs_of
from ppo_doctor.model.request import Request
from ppo_doctor.runs.discover import gather
from tests.layouts import seen
from tests.runs.folders import as_csv, as_jsonl, as_state, grpo_rows, sb3_rows, write
from tests.runs.test_merging import KL, written_at

FORMS = {"jsonl": (as_jsonl, sb3_rows), "csv": (as_csv, sb3_rows), "json": (as_state, grpo_rows)}


def runs(*paths, **options):
    sources, missing = gather([str(path) for path in paths], **options)
    assert not missing
    return [run for source in sources for run in runs_of(source, Request())]


def in_parts(folder, form, rows, cuts, names):
    """Write rows cut before some of them, each part under the name that it gets."""
    write_rows, _ = FORMS[form]
    edges = [0, *sorted(cuts), len(rows)]
    parts = [rows[a:b] for a, b in itertools.pairwise(edges)]
    write(folder, {f"{name}.{form}": write_rows(part) for name, part in zip(names, parts, strict=False)})
    return sorted(folder.iterdir())


@given(
    form=st.sampled_from(sorted(FORMS)),
    cuts=st.sets(st.integers(1, 39), min_size=1, max_size=4),
    names=st.permutations(["log-a", "log-b", "log-c", "log-d", "log-e"]),
)
def test_a_run_cut_anywhere_is_the_whole_run(form, cuts, names, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    rows = FORMS[form][1](40)
    (whole,) = runs(write(folder, {"whole." + form: FORMS[form][0](rows)}) / f"whole.{form}")
    paths = in_parts(folder / "parts", form, rows, cuts, names)
    for (run,) in (runs(*paths, together=True), runs(*paths[::-1], together=True)):
        assert seen(run) == seen(whole)
        assert {source.path for source in run.sources} == set(map(str, paths))


def test_parts_in_one_folder_are_one_run_and_each_number_stands_where_it_says(tmp_path):
    rows = sb3_rows(30)
    in_parts(tmp_path, "csv", rows, {8, 21}, ["c", "a", "b"])
    (run,) = runs(tmp_path)
    kl = run.series["approx_kl"]
    assert kl.values.tolist() == [values[KL] for _, values in rows]
    assert [written_at(kl.source(i)) for i in range(len(kl))] == kl.values.tolist()
    assert [Path(kl.source(i).path).name for i in (0, 8, 29)] == ["c.csv", "a.csv", "b.csv"]


def test_what_breaks_in_a_later_part_is_seen(tmp_path, cli):
    rows = [(step, values | {"train/value_loss": float("nan")} if i > 39 else values)
            for i, (step, values) in enumerate(sb3_rows(80))]  # fmt: skip
    paths = in_parts(tmp_path, "jsonl", rows, {40}, ["z", "a"])
    for given_ in (paths, paths[::-1]):
        diagnosis = cli("analyze", *given_, "--together", "--format", "json").json
        assert diagnosis["verdict"] == "unhealthy"
        assert diagnosis["causes"][0]["onset_step"] == rows[40][0]


def test_the_later_part_counts_where_a_run_was_resumed(tmp_path):
    early, late = sb3_rows(12), sb3_rows(12, seed=1, start=10)
    write(tmp_path, {"b.csv": as_csv(early), "a.csv": as_csv(late)})
    for (run,) in (runs(tmp_path), runs(tmp_path / "b.csv", tmp_path / "a.csv", together=True)):
        assert run.series["approx_kl"].values.tolist() == [v[KL] for _, v in early[:9]] + [v[KL] for _, v in late]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (sb3_rows(30, seed=1), sb3_rows(30, seed=2)),
        (sb3_rows(10, seed=1), sb3_rows(40, seed=2)),
        (sb3_rows(1, seed=1), sb3_rows(40, seed=2)),
        (sb3_rows(1, seed=1, batch=1024), sb3_rows(40, seed=2)),
    ],
    ids=["seeds", "one that crashed", "one that crashed at once", "one of other steps that crashed at once"],
)
def test_runs_that_begin_at_the_start_stay_apart(first, second, tmp_path):
    write(tmp_path, {"a.csv": as_csv(first), "b.csv": as_csv(second)})
    assert len(runs(tmp_path)) == 2


def test_nobody_guesses_which_of_two_runs_goes_on(tmp_path):
    write(tmp_path, {"a.csv": as_csv(sb3_rows(10, seed=1)), "b.csv": as_csv(sb3_rows(10, seed=2)),
                     "c.csv": as_csv(sb3_rows(10, seed=3, start=11))})  # fmt: skip
    assert len(runs(tmp_path)) == 3


@pytest.mark.parametrize("column", ["seed", "run_name"])
def test_a_column_that_names_the_run_keeps_parts_apart(column, tmp_path):
    rows = [(step, values | {column: 1 if i < 10 else 2}) for i, (step, values) in enumerate(sb3_rows(20))]
    in_parts(tmp_path, "jsonl", rows, {10}, ["a", "b"])
    assert len(runs(tmp_path)) == 2


def test_other_settings_begin_another_run_and_the_same_ones_do_not(tmp_path):
    def part(rows, epochs):
        return json.dumps({"config": {"ppo_epochs": epochs}}).encode() + b"\n" + as_jsonl(rows, "step")

    rows = sb3_rows(20)
    write(tmp_path, {"x/a.jsonl": part(rows[:10], 4), "x/b.jsonl": part(rows[10:], 4),
                     "y/a.jsonl": part(rows[:10], 4), "y/b.jsonl": part(rows[10:], 1)})  # fmt: skip
    assert [len(runs(tmp_path / name)) for name in "xy"] == [1, 2]


def test_logs_that_are_named_one_by_one_are_several_unless_somebody_says_so(tmp_path):
    paths = in_parts(tmp_path, "jsonl", sb3_rows(20), {10}, ["a", "b"])
    assert len(runs(*paths)) == 2
    assert len(runs(*paths, together=True)) == 1


def test_without_steps_the_order_of_names_counts_or_the_time_or_what_is_added_up(tmp_path):
    rows = [{"policy_loss": -0.01 * i, "entropy": 1.0 - 0.01 * i, "approx_kl": 0.001 * (i % 7)} for i in range(1, 21)]
    timed = [row | {"timestamp": 1.7e9 + 60 * i} for i, row in enumerate(rows)]
    summed = [row | {"epoch": round(i / 30, 1), "episodes so far": 3 * i} for i, row in enumerate(rows)]
    rounded = [row | {"epoch": round(i / 15, 1)} for i, row in enumerate(rows)]
    for name, held in (("plain", rows), ("timed", timed), ("summed", summed), ("rounded", rounded)):
        for part, of in (("a", held[10:]), ("b", held[:10])):
            write(tmp_path / name, {f"{part}.jsonl": "".join(json.dumps(row) + "\n" for row in of)})
    expected = [row["approx_kl"] for row in rows]
    (named,) = runs(tmp_path / "plain/b.jsonl", tmp_path / "plain/a.jsonl", together=True)
    assert named.series["approx_kl"].values.tolist() == expected
    for name in ("timed", "summed", "rounded"):
        (run,) = runs(tmp_path / name / "a.jsonl", tmp_path / name / "b.jsonl", together=True)
        assert run.series["approx_kl"].values.tolist() == expected, name


def test_a_copy_is_no_part(tmp_path):
    rows = [{"policy_loss": -0.01 * i, "entropy": 1.0 - 0.01 * i, "approx_kl": 0.001 * i} for i in range(1, 21)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    write(tmp_path, {"a.jsonl": text, "b.jsonl": text, "c.csv": as_csv(sb3_rows()), "d.csv": as_csv(sb3_rows())})
    for names in (("a.jsonl", "b.jsonl"), ("c.csv", "d.csv")):
        (run,) = runs(*(tmp_path / name for name in names), together=True)
        assert len(run.series["approx_kl"]) == 20


@pytest.mark.parametrize("rows", [40, 2400], ids=["short", "longer than what is kept whole"])
def test_a_part_of_a_table_without_a_header_has_that_of_the_first(rows, tmp_path):
    text = as_csv(sb3_rows(rows)).decode().splitlines(keepends=True)
    half = len(text) // 2
    write(tmp_path, {"a.csv": "".join(text[half:]), "b.csv": "".join(text[:half]), "whole/b.csv": "".join(text)})
    (whole,) = runs(tmp_path / "whole/b.csv")
    (run,) = runs(tmp_path / "a.csv", tmp_path / "b.csv", together=True)
    assert seen(run) == seen(whole)


def test_a_cut_within_a_step_of_many_minibatches(tmp_path):
    rng = random.Random(0)
    rows = [
        {"update": u, "epoch": e, "minibatch": m, "approx_kl": rng.random() / 50, "policy_loss": -rng.random()}
        for u, e, m in itertools.product(range(1, 4), range(4), range(4))
    ]
    for cut in (3, 16, 30, 45):
        parts = {"a.jsonl": rows[cut:], "b.jsonl": rows[:cut]}
        write(tmp_path, {name: "".join(json.dumps(row) + "\n" for row in held) for name, held in parts.items()})
        (run,) = runs(tmp_path / "a.jsonl", tmp_path / "b.jsonl", together=True)
        assert run.series["approx_kl"].values.tolist() == [row["approx_kl"] for row in rows]


def test_a_part_in_another_container_goes_on(tmp_path):
    rows = sb3_rows(20)
    write(tmp_path, {"old.csv": as_csv(rows[:12]), "new.jsonl": as_jsonl(rows[12:])})
    (run,) = runs(tmp_path / "new.jsonl", tmp_path / "old.csv", together=True)
    assert np.allclose(run.series["approx_kl"].values, [values[KL] for _, values in rows])


def test_what_cannot_be_joined_is_told(tmp_path):
    rows = sb3_rows(30)
    write(tmp_path, {"a.csv": as_csv(rows[:20]), "b.jsonl": as_jsonl(rows[20:], "global_step")})
    (run,) = runs(tmp_path / "a.csv", tmp_path / "b.jsonl", together=True)
    assert len(run.series["approx_kl"]) == 30 or any("outside of steps" in note.text for note in run.notes)


def test_separate_keeps_every_file(tmp_path):
    files = {"progress.csv": as_csv(sb3_rows()), "run.jsonl": as_jsonl(sb3_rows(seed=2)),
             "extra.jsonl": as_jsonl(sb3_rows(seed=3))}  # fmt: skip
    found = runs(write(tmp_path, files), separate=True)
    assert sorted(Path(run.sources[0].path).name for run in found) == sorted(files)


RECORDS = [
    {"policy_loss": -0.01 * n, "value_loss": 1.0 / n, "entropy": 1.4 - 0.01 * n, "mean_reward": n} for n in range(1, 32)
]


def runs_in(path):
    sources, _ = gather([str(path)])
    return [run for source in sources for run in runs_of(source, Request())]


def test_files_of_one_record_each_are_one_run_in_the_order_of_their_numbers(tmp_path):
    for number, record in enumerate(RECORDS):
        (tmp_path / f"metrics-{number}.json").write_text(json.dumps(record))
    (run,) = runs_in(tmp_path)
    assert run.series["reward_mean"].values.tolist() == list(range(1, 32))


def test_files_of_several_seeds_stay_runs_of_their_own(tmp_path):
    for number, record in enumerate(RECORDS[:4]):
        (tmp_path / f"results_seed{number}.json").write_text(json.dumps(record))
    assert len(runs_in(tmp_path)) == 4


@pytest.mark.parametrize("suffix", ["jsonl", "log"])
def test_settings_among_the_records_are_settings(tmp_path, suffix):
    settings = {"learning_rate": 3e-4, "clip_range": 0.2, "gamma": 0.99, "n_epochs": 4, "env_id": "CartPole-v1"}
    write = json.dumps if suffix == "jsonl" else str
    (tmp_path / f"train.{suffix}").write_text("\n".join(map(write, [settings, *RECORDS])))
    (run,) = runs_in(tmp_path / f"train.{suffix}")
    assert len(run.series["entropy"]) == len(RECORDS)
    assert "clip_range" not in run.series
    assert (run.config["ppo_epochs"].value, run.config["gamma"].value) == (4, 0.99)


def test_columns_of_several_workers_are_their_mean_and_norms_their_largest(tmp_path):
    rows = [
        {**record, "entropy_0": 1.0, "entropy_1": 2.0, "grad_norm_0": 0.5, "grad_norm_1": n}
        for n, record in enumerate({key: r[key] for key in r if key != "entropy"} for r in RECORDS)
    ]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (run,) = runs_in(tmp_path / "train.jsonl")
    assert np.all(run.series["entropy"].values == 1.5)
    assert run.series["grad_norm"].values[-1] == 30
    assert any("entropy_0, entropy_1" in note.text for note in run.notes)


HEAD = '#{"t_start": %s, "env_id": "CartPole-v1"}\nr,l,t\n'


def write_monitor(path, rows, start=1000.0):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD % start + "".join(f"{r},{length},{t}\n" for r, length, t in rows), encoding="utf-8")


def test_a_monitor_file_is_episodes_with_steps_added_up(tmp_path):
    write_monitor(tmp_path / "monitor.csv", [(1.5, 10, 0.5), (2.5, 20, 1.0), (3.0, 5, 1.5)])
    (run,) = read_runs(str(tmp_path / "monitor.csv"), Request())
    assert run.framework == "gym-monitor"
    assert run.series["episode_return"].values.tolist() == [1.5, 2.5, 3.0]
    assert run.series["episode_return"].axis.steps.tolist() == [10, 30, 35]
    assert run.series["episode_return"].axis.lines.tolist() == [3, 4, 5]
    assert run.series["episode_length"].values.tolist() == [10, 20, 5]


def test_the_monitors_of_a_folder_are_one_run_by_time(tmp_path):
    write_monitor(tmp_path / "0.monitor.csv", [(1.0, 10, 1.0), (3.0, 10, 3.0)])
    write_monitor(tmp_path / "1.monitor.csv", [(2.0, 20, 1.0), (4.0, 20, 3.0)], start=1001.0)
    (run,) = read_runs(str(tmp_path), Request())
    returns = run.series["episode_return"]
    assert returns.values.tolist() == [1, 2, 3, 4]
    assert returns.axis.steps.tolist() == [10, 30, 40, 60]
    where = [(returns.axis.path_of(i).rpartition("/")[2], int(returns.axis.lines[i])) for i in range(4)]
    assert where == [("0.monitor.csv", 3), ("1.monitor.csv", 3), ("0.monitor.csv", 4), ("1.monitor.csv", 4)]


def test_monitors_of_two_folders_are_two_runs(tmp_path):
    for name in ("a", "b"):
        write_monitor(tmp_path / name / "monitor.csv", [(1.0, 10, 1.0), (3.0, 10, 3.0)])
    assert len(read_runs(str(tmp_path), Request())) == 2


def test_a_log_of_the_trainer_counts_more_than_monitors(tmp_path):
    write_monitor(tmp_path / "monitor.csv", [(1.0, 10, 1.0), (3.0, 10, 3.0)])
    (tmp_path / "progress.csv").write_text("time/total_timesteps,train/approx_kl\n10,0.1\n20,0.2\n", encoding="utf-8")
    sources, _ = gather([str(tmp_path)])
    assert [source.log for source in sources] == [str(tmp_path / "progress.csv")]
