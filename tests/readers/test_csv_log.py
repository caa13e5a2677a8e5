"""CSV files, W&B's charts and TensorBoard's curves as downloaded, and frames that pandas writes."""

from __future__ import annotations

import json
import math
from math import inf, isnan

import pytest

from ppo_doctor.diagnosis.analyze import read_runs
from ppo_doctor.model.request import Request
from ppo_doctor.readers.csv_log import tag_of
from tests.readers.conftest import read_back


@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("rows", [3, 500])
def test_tables_of_every_delimiter(reading, delimiter, newline, rows):
    # More rows than are sampled: the first by their text, the rest by the fast path.
    table = [f"{i}{delimiter}{i / 7!r}{delimiter}{i}e-3" for i in range(rows)]
    got = reading(newline.join([delimiter.join(("step", "train/loss", "a b")), *table, ""]))
    assert got.container == "csv"
    assert got.records == [{"step": i, "train/loss": i / 7, "a b": float(f"{i}e-3")} for i in range(rows)]
    assert got.lines == list(range(2, rows + 2))
    assert got.notes == []


def pattern(i):
    cells = [str(i), "" if i % 2 else f"{i}.5", "nan" if i % 3 else "-inf", "" if i % 5 else "7"]
    return ",".join(cells)


def test_blank_cells_are_absent_and_nan_is_a_value(reading):
    got = reading("a,b,c,d\n" + "".join(pattern(i) + "\n" for i in range(400)))
    for i, record in enumerate(got.records):
        assert record["a"] == i
        assert record.get("b") == (None if i % 2 else i + 0.5)
        assert isnan(record["c"]) if i % 3 else record["c"] == -inf
        assert record.get("d") == (None if i % 5 else 7)
    assert len(got.records) == 400


def test_a_header_that_repeats_or_changes(reading):
    body = "".join(f"{i},0.5\n" for i in range(200))
    got = reading("a,b\n" + body + "a,b\n" + body + "a,b,c\n1,2,3\n")
    assert len(got.records) == 401
    assert got.records[-1] == {"a": 1, "b": 2, "c": 3}
    assert got.says("header is repeated")
    assert got.says("header changes")
    assert got.skipped == 0


def test_rows_of_a_wrong_width_are_skipped_with_their_lines(reading):
    body = "".join(f"{i},0.5,1\n" for i in range(100))
    got = reading("a,b,c\n1,2\n1,2,3,\n1,2,3,4\n" + body + "5,6\n7,8,9,10\n\n1,1,1,\n")
    assert got.skipped == 4
    assert len(got.records) == 102
    assert [note.source.line for note in got.notes] == [2, 4, 105, 106]


def test_text_cells_and_quotes(reading):
    got = reading('a,b,env\n1,0.5,"x, ""y""\nz"\n2,0.5,plain\n' + "3,0.5,w\n" * 100)
    assert got.texts["env"][:2] == [(0, 'x, "y"\nz'), (1, "plain")]
    assert [record["a"] for record in got.records[:3]] == [1, 2, 3]
    assert got.lines[:3] == [2, 4, 5]


def test_a_quote_that_is_never_closed_costs_one_row(reading):
    got = reading('a,b\n1,2\n"3,4\n' + "5,6\n" * 200)
    assert len(got.records) == 201
    assert got.skipped == 1


def test_the_monitor_of_sb3_and_baselines(reading):
    for mark in ("#", "# "):
        got = reading(mark + '{"t_start": 1.5, "env_id": "CartPole-v1"}\nr,l,t\n20.0,20,4.2\n')
        assert got.configs[0].values == {"t_start": 1.5, "env_id": "CartPole-v1"}
        assert got.records == [{"r": 20, "l": 20, "t": 4.2}]


def test_no_header_gives_numbered_columns(reading):
    got = reading("100,,,0.0\n200,,1,0.5\n")
    assert got.records == [{"column_1": 100, "column_4": 0}, {"column_1": 200, "column_3": 1, "column_4": 0.5}]
    assert got.says("no header")


def test_odd_numbers(reading):
    rows = "1" + "0" * 400 + ",+.5,1.,12.5%\n"
    got = reading("a,b,c,d\n" + rows + "1,1,1,1\n" * 100 + rows)
    for record in (got.records[0], got.records[-1]):
        assert record == {"a": inf, "b": 0.5, "c": 1, "d": 0.125}
    assert got.says("too large")


def test_a_decimal_comma_needs_a_semicolon(reading):
    assert reading("a;b\n" + "0,5;1\n" * 3).records == [{"a": 0.5, "b": 1}] * 3


def test_cells_cannot_break_out_of_the_json_made_of_them(reading):
    body = "1,2\n" * 100
    got = reading("a,b\n" + body + "1],[2,3\n" + body + "true,false\n" + body + "[1],2\n" + '1,"2"\n')
    assert [len(record) for record in got.records].count(2) == 302
    assert got.records[-1] == {"a": 1, "b": 2}
    assert got.skipped == 1


def test_words_that_hold_nan_stay_words(reading):
    body = "1,nan\n" * 100
    got = reading("a,b\n" + body + "2,banana\n2,nan1\n2,inf2\n" + body)
    assert [text for _, text in got.texts["b"]] == ["banana", "nan1", "inf2"]
    assert sum(isnan(record["b"]) for record in got.records if "b" in record) == 200


def test_decimals_are_told_for_fixed_formats_only(reading):
    rows = "".join(f"{i},{i / 8:.3f},{i / 8!r},0.0,1e-0{i % 9},{i % 4}.{i % 10},{i / 3:.15f}\n" for i in range(300))
    got = reading("step,fixed,full,zero,exp,tenths,many\n" + rows)
    assert got.decimals == {"fixed": 3, "tenths": 1}


def test_a_constant_zero_printed_with_three_decimals(reading):
    assert reading("a,b\n" + "1,0.000\n" * 3).decimals == {"b": 3}


def test_a_late_value_with_more_decimals_takes_the_claim_back(reading):
    got = reading("a,b\n" + "1,0.100\n" * 200 + "1,0.123456\n")
    assert got.decimals == {}


def test_two_columns_of_one_name(reading):
    got = reading("a,b,a\n" + "1,2,3\n" * 100)
    assert got.records == [{"a": 3, "b": 2}] * 100
    assert got.says("two columns are named a")


def test_every_table_of_a_long_file_tells_its_decimals(reading):
    got = reading("a,b\n" + "1,0.100\n" * 100_000)
    assert [table.decimals for table in got.tables] == [{"b": 3}] * 2
    assert sum(len(table.records) for table in got.tables) == 100_000


def test_a_header_before_each_row(reading):
    got = reading("".join(f"a,b\n{i},0.5\n" for i in range(1, 9)))
    assert [record["a"] for record in got.records] == list(range(1, 9))


def test_settings_in_further_columns_of_the_first_row(reading):
    got = reading("episode,reward,K_epochs,eps_clip,\n10,1.5,80,0.2,\n20,2.5\n30,3.5\n40,4.5\n")
    assert got.container == "csv"
    assert [record["reward"] for record in got.records] == [1.5, 2.5, 3.5, 4.5]
    assert all(record.keys() == {"episode", "reward"} for record in got.records)
    assert got.configs[0].values == {"K_epochs": 80, "eps_clip": 0.2}
    assert got.skipped == 0


def test_a_row_that_is_cut_off_among_whole_ones_is_still_no_row(reading):
    got = reading("step,reward,kl\n1,1.5,0.1\n2,2.5,0.1\n3,3.5\n4,4.5,0.1\n")
    assert [record["step"] for record in got.records] == [1, 2, 4]
    assert got.skipped == 1


def test_a_carriage_return_alone_ends_a_line(reading):
    got = reading("r,l,t\r10.5,83,6.25\n0.25,400,6.5\n0.5,400,6.75\n")
    assert got.container == "csv"
    assert [record["l"] for record in got.records] == [83, 400, 400]
    assert got.lines == [1, 2, 3]


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


HEADER = '"Step","pretty-run-1 - train/kl","pretty-run-1 - train/kl__MIN","pretty-run-1 - train/kl__MAX"'


def test_a_chart_of_one_run(reading):
    read = reading(HEADER + "\n" + "".join(f'"{s}","{s / 8}","0","1"\n' for s in range(4)))
    assert read.records == [{"_step": s, "train/kl": s / 8} for s in range(4)]
    assert read.lines == [2, 3, 4, 5]


def test_a_chart_of_several_runs(reading):
    columns = [
        "global_step",
        *(f"{run}{end}" for run in ("a - b - loss", "c - loss") for end in ("", "__MIN", "__MAX")),
    ]
    rows = ["0,1.0,1.0,1.0,,,", "1,2.0,2.0,2.0,5.0,5.0,5.0", "2,,,,6.0,6.0,6.0"]
    read = reading("\n".join([",".join(columns), *rows, ""]))
    runs = {1: [], 2: []}
    for record in read.records:
        runs[record["run"]].append((record["global_step"], record["loss"]))
    assert runs == {1: [(0, 1), (1, 2)], 2: [(1, 5), (2, 6)]}
    assert read.says("2 runs")


def test_a_name_with_a_dash_is_no_export(reading):
    read = reading("step,a - loss\n1,2.0\n2,3.0\n")
    assert read.records == [{"step": 1, "a - loss": 2}, {"step": 2, "a - loss": 3}]


def test_lightning_s_rows_have_holes(reading):
    read = reading("epoch,step,train/loss,val/loss\n0,9,0.5,\n0,9,,0.75\n1,19,nan,\n1,19,,0.25\n")
    assert read.records[:2] == [{"epoch": 0, "step": 9, "train/loss": 0.5}, {"epoch": 0, "step": 9, "val/loss": 0.75}]
    assert math.isnan(read.records[2]["train/loss"])
    assert read.records[3] == {"epoch": 1, "step": 19, "val/loss": 0.25}


def test_ray_tune_s_records_are_nested(reading):
    rows = [
        {
            "training_iteration": i,
            "info": {"learner": {"default_policy": {"learner_stats": {"kl": i / 8}}}},
            "config": {"lr": 5e-5},
        }
        for i in range(3)
    ]
    read = reading("".join(json.dumps(row) + "\n" for row in rows))
    assert [r["info/learner/default_policy/learner_stats/kl"] for r in read.records] == [0, 0.125, 0.25]
    assert len(read.configs) == 1


def test_a_history_exported_as_json(reading):
    rows = [{"_step": i, "loss": "NaN" if i == 1 else i / 2, "_runtime": 1.0} for i in range(3)]
    read = reading(json.dumps(rows))
    assert [record["_step"] for record in read.records] == [0, 1, 2]
    assert math.isnan(read.records[1]["loss"])
