"""Tables that trackers write or export: W&B charts, Lightning's metrics with their holes, Ray Tune's nested records."""

import json
import math

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
