"""What a Python session holds is judged as the same data in a file."""

from __future__ import annotations

import json
import math
import sys
from collections import namedtuple
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import ppo_doctor
from ppo_doctor import DoctorError
from ppo_doctor.model.errors import ExitCode
from tests.readers.event_files import event_file, scalars

SAMPLES = (
    "sick/old-policy-aliased.canonical",
    "sick/lr-zero.canonical",
    "sick/adv-exactly-zero.canonical",
    "benign/benign-single-update.canonical",
    "healthy/healthy.canonical",
)


def records_of(log):
    """Return the records of a sample, and its settings."""
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return lines[1:], lines[0]["config"]


def judgement(diagnosis):
    """Return what a diagnosis states, without the names of places."""
    causes = [(cause.id, cause.score_db, cause.confidence, cause.onset_step) for cause in diagnosis.causes]
    checks = {finding.rule: (finding.status, finding.onset_step) for finding in diagnosis.findings}
    numbers = {
        finding.rule: [(e.observed, e.steps, e.of, e.source.line if e.source else None) for e in finding.evidence]
        for finding in diagnosis.findings
    }
    return diagnosis.verdict, causes, checks, numbers


def columns_of(records):
    keys = dict.fromkeys(key for record in records for key in record)
    return {key: [record.get(key) for record in records] for key in keys}


def written(path, records):
    """Write records as JSON Lines, a line for each row, and return the path."""
    lines = [json.dumps(record) for record in records]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def loop(rows=40, **columns):
    """Return records of a loop that learns, with further columns by functions of the row."""
    made = [
        {
            "step": 100 * (row + 1),
            "episode_return": 10.0 + row,
            "approx_kl": 0.01 + 0.001 * (row % 3),
            "entropy": 1.5 - 0.01 * row,
            "policy_loss": -0.01 + 0.001 * (row % 5),
            "value_loss": 1.0 / (row + 1),
            "clip_fraction": 0.1 + 0.01 * (row % 4),
            "grad_norm": 0.5 + 0.01 * (row % 7),
        }
        for row in range(rows)
    ]
    return [record | {key: of(row) for key, of in columns.items()} for row, record in enumerate(made)]


def nan_from(row, first=25):
    return math.nan if row >= first else 0.1 + 0.01 * (row % 6)


@pytest.fixture
def polars():
    return pytest.importorskip("polars")


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("kind", ["pandas", "list", "dict", "arrays", "polars"])
def test_an_object_is_judged_as_the_file_that_it_comes_from(root, tmp_path, name, kind):
    records, config = records_of(root / "sample_logs" / name / "run.jsonl")
    columns = columns_of(records)
    if kind == "polars":
        given = pytest.importorskip("polars").DataFrame(columns, strict=False)
    else:
        arrays = {key: np.ma.masked_invalid(np.array(cells, dtype=float)) for key, cells in columns.items()}
        given = {"pandas": pd.DataFrame(records), "list": records, "dict": columns, "arrays": arrays}[kind]
    of_file = ppo_doctor.analyze(written(tmp_path / "run.jsonl", records), settings=config)
    assert judgement(ppo_doctor.analyze(given, settings=config)) == judgement(of_file)


def test_a_frame_read_from_a_csv_is_judged_as_the_csv(root):
    log = root / "sample_logs" / "sick" / "old-policy-aliased.sb3" / "progress.csv"
    of_file = ppo_doctor.analyze(log)
    config = {each.key: each.value for each in of_file.full_run.config.values() if each.how != "default"}
    given = ppo_doctor.analyze(pd.read_csv(log), settings=config)
    assert (given.verdict, [c.id for c in given.causes]) == (of_file.verdict, [c.id for c in of_file.causes])
    assert given.findings[0].onset_step == of_file.findings[0].onset_step


# Cells

ODD_CELLS = {
    "none": lambda row: None if row % 3 else 1.0 + row,
    "mixed": lambda row: (None, "0.5", 2, True)[row % 4],
    "nested": lambda row: {"mean": 0.5 + row, "inner": {"max": row}},
    "lists": lambda row: [row, row + 1, row + 2],
    "range_of_ratio": lambda _: [0.9, 1.1],
    "whole": lambda row: 2**53 + row,
    "yes": lambda row: row % 2 == 0,
    "percent": lambda row: f"{row}%",
    "words": lambda row: f"phase {row % 2}",
    "empty": lambda _: None,
}


@pytest.mark.parametrize("name", sorted(ODD_CELLS))
@pytest.mark.parametrize("kind", ["pandas", "list"])
def test_odd_cells_are_read_as_in_a_file(tmp_path, name, kind):
    records = loop(**{f"extra/{name}": ODD_CELLS[name]})
    given = pd.DataFrame(records) if kind == "pandas" else records
    run, of_file = ppo_doctor.load_run(given), ppo_doctor.load_run(written(tmp_path / "run.jsonl", records))
    assert run.keys.keys() == of_file.keys.keys() and run.series.keys() == of_file.series.keys()
    for key, series in of_file.series.items():
        np.testing.assert_array_equal(run.series[key].values, series.values)
        assert run.series[key].axis.steps.tolist() == series.axis.steps.tolist()
    assert judgement(ppo_doctor.analyze(given)) == judgement(ppo_doctor.analyze(tmp_path / "run.jsonl"))


def test_numbers_of_other_types_are_numbers():
    kinds = [np.float32(0.25), np.array(0.25), np.array([0.25]), "0.25", np.float64(0.25)]
    run = ppo_doctor.load_run(loop(grad_norm=lambda row: kinds[row % len(kinds)]))
    assert set(run.series["grad_norm"].values) == {0.25}


def test_times_and_texts_are_told_and_do_no_harm():
    began = datetime(2024, 1, 1, tzinfo=UTC)
    records = loop(when=lambda row: began + timedelta(minutes=row), note=lambda _: "warm", thing=lambda _: object())
    run = ppo_doctor.load_run(pd.DataFrame(records))
    told = " ".join(str(note) for note in run.notes)
    assert all(f"{name} holds text" in told for name in ("when", "note", "thing"))
    assert ppo_doctor.analyze(records).verdict == ppo_doctor.analyze(loop()).verdict


def test_a_list_in_a_cell_is_told():
    run = ppo_doctor.load_run(pd.DataFrame(loop(answers=lambda _: ["a", "b"])))
    assert any("answers holds lists" in str(note) for note in run.notes)


# Missing cells and NaN


@pytest.mark.parametrize("kind", ["pandas", "list", "dict", "polars"])
def test_a_metric_that_turns_to_nan_is_judged_as_in_a_file(tmp_path, kind):
    records = loop(policy_loss=nan_from)
    made = {
        "pandas": pd.DataFrame,
        "list": list,
        "dict": lambda rows: {k: np.array(v) for k, v in columns_of(rows).items()},
    }
    given = pytest.importorskip("polars").DataFrame(records) if kind == "polars" else made[kind](records)
    of_file = ppo_doctor.analyze(written(tmp_path / "run.jsonl", records))
    assert of_file.verdict == "unhealthy"
    assert judgement(ppo_doctor.analyze(given)) == judgement(of_file)


def test_a_frame_has_missing_cells_where_a_metric_is_logged_less_often(tmp_path):
    records = [
        r
        for row, r in enumerate(loop())
        for r in [r, {"step": r["step"], "eval/mean_reward": 1.0}][: 1 + (row % 5 == 0)]
    ]
    frame = pd.DataFrame(records)
    assert frame.isna().to_numpy().any()
    assert judgement(ppo_doctor.analyze(frame)) == judgement(
        ppo_doctor.analyze(written(tmp_path / "run.jsonl", records))
    )


def test_a_last_record_of_other_columns_makes_no_metric_nan():
    records = [{**record, "_runtime": 1.0 * row, "seed": 1} for row, record in enumerate(loop())]
    last = {"step": 4000, "_runtime": 41.0, "seed": 1, "eval/mean_reward": 50.0}
    run = ppo_doctor.load_run(pd.DataFrame([*records, last]))
    assert np.isfinite(run.series["policy_loss"].values).all()


def test_nan_that_is_read_from_a_frame_is_told():
    run = ppo_doctor.load_run(pd.DataFrame(loop(policy_loss=nan_from)))
    [note] = [note for note in run.notes if "policy_loss holds NaN" in note.text]
    assert str(note.source) == "<DataFrame> row 26"


@pytest.mark.parametrize("dtype", ["Float64", "float32", "object"])
def test_the_dtype_of_a_column_is_no_matter(dtype):
    frame = pd.DataFrame(loop()).astype({"grad_norm": dtype})
    frame.loc[3, "grad_norm"] = None
    run = ppo_doctor.load_run(frame)
    assert len(run.series["grad_norm"]) == 39


def test_a_repeated_header_is_no_record():
    frame = pd.DataFrame(loop())
    rows = [frame.iloc[:20], pd.DataFrame([frame.columns], columns=frame.columns), frame.iloc[20:]]
    diagnosis, whole = ppo_doctor.analyze(pd.concat(rows)), ppo_doctor.analyze(frame)
    assert (diagnosis.verdict, diagnosis.run.records) == (whole.verdict, whole.run.records)
    assert diagnosis.full_run.series["entropy"].axis.lines.tolist() == [*range(1, 21), *range(22, 42)]
    assert diagnosis.run.notes[0].startswith("<DataFrame> row 21: the header is repeated")


def test_a_metric_with_a_cell_of_text_is_told_once():
    notes = ppo_doctor.load_run(loop(grad_norm=lambda row: "broken" if row == 7 else 0.5)).notes
    assert len([note for note in notes if "grad_norm" in note.text]) == 1


# Names, steps and places


def test_a_named_index_is_a_column():
    frame = pd.DataFrame(loop()).set_index("step")
    assert ppo_doctor.load_run(frame).steps == (100, 4000)


def test_an_index_without_a_name_is_the_step_where_no_column_counts():
    frame = pd.DataFrame(loop())
    bare = frame.drop(columns="step").set_axis(frame["step"].to_numpy(), axis=0)
    assert ppo_doctor.load_run(bare).steps == (100, 4000)
    assert ppo_doctor.load_run(frame.set_axis(frame["step"].to_numpy() * 7, axis=0)).steps == (100, 4000)


def test_levels_of_column_names_are_joined():
    frame = pd.DataFrame(loop()).rename(columns={"approx_kl": "train/approx_kl"})
    levels = frame.set_axis(pd.MultiIndex.from_tuples([tuple((*name.split("/"), "")[:2]) for name in frame]), axis=1)
    assert "train/approx_kl" in ppo_doctor.load_run(levels).keys


def test_places_are_rows():
    diagnosis = ppo_doctor.analyze(pd.DataFrame(loop(approx_kl=lambda _: 0.0, clip_fraction=lambda _: 0.0)))
    assert diagnosis.run.id == "<DataFrame>"
    places = [str(e.source) for finding in diagnosis.findings for e in finding.evidence if e.source and e.source.line]
    assert places and all(place.startswith("<DataFrame> row ") for place in places)


def test_what_is_no_column_of_a_dict_is_a_setting():
    columns = columns_of(loop()) | {"learning_rate_initial": 0.1, "gamma": 0.98, "config": {"ppo_epochs": 4}}
    run = ppo_doctor.load_run(columns)
    assert run.config["gamma"].value == 0.98 and run.config["ppo_epochs"].value == 4


def test_nested_columns_and_arrays_of_one_number_a_record():
    columns = {key: np.array(cells) for key, cells in columns_of(loop()).items()}
    nested = {"step": columns.pop("step"), "train": {key: cells.reshape(-1, 1) for key, cells in columns.items()}}
    assert {"episode_return", "approx_kl"} <= ppo_doctor.load_run(nested).series.keys()


def test_columns_of_other_lengths_and_shapes_are_told():
    columns = columns_of(loop()) | {"extra": [1.0, 2.0], "matrix": np.ones((40, 3))}
    told = " ".join(str(note) for note in ppo_doctor.load_run(columns).notes)
    assert "extra has 2 values" in told and "matrix is an array of shape (40, 3)" in told


def test_a_configuration_in_the_working_folder_is_not_that_of_an_object(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text('{"learning_rate": 0.5, "ppo_epochs": 3, "gamma": 0.9}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert not ppo_doctor.load_run(pd.DataFrame(loop())).config


# Runs of W&B and TensorBoard


class WandbRun:
    """What the public API of W&B has of a run."""

    def __init__(self, rows, config, fails=False):
        self.id, self.config, self._rows, self._fails = "../../x1", config, rows, fails

    def scan_history(self):
        yield from self._rows
        if self._fails:
            raise ConnectionError("no network")


def test_the_history_of_a_wandb_run_is_judged_with_its_configuration(root):
    records, config = records_of(root / "sample_logs" / SAMPLES[0] / "run.jsonl")
    rows = [{"_step": n, "_runtime": 1.0 * n, "media": {"_type": "histogram"}, **r} for n, r in enumerate(records)]
    run = ppo_doctor.load_run(WandbRun(rows, config | {"_wandb": {"x": 1}}))
    assert run.id == "<W&B run x1>"
    assert {key: each.value for key, each in run.config.items()}["ppo_epochs"] == config["ppo_epochs"]
    assert any("media holds media" in str(note) for note in run.notes)
    assert ppo_doctor.analyze(WandbRun(rows, config)).verdict == "unhealthy"


def test_nan_as_wandb_writes_it_is_nan():
    assert ppo_doctor.analyze(WandbRun(loop(policy_loss=lambda r: "NaN" if r > 24 else 0.1), {})).verdict == "unhealthy"


def test_a_history_that_cannot_be_read_is_an_error_for_people():
    with pytest.raises(DoctorError, match="ConnectionError: no network"):
        ppo_doctor.analyze(WandbRun(loop(), {}, fails=True))


def test_a_live_run_of_wandb_is_read_from_its_file(tmp_path):
    kind = type("Run", (), {"__module__": "wandb.sdk.wandb_run", "log": None})
    live = kind()
    live.dir, live.id = str(tmp_path / "files"), "abc"
    with pytest.raises(DoctorError, match="abc has no file"):
        ppo_doctor.analyze(live)
    written(tmp_path / "run-abc.wandb", loop())
    assert ppo_doctor.load_run(live).steps == (100, 4000)


Event = namedtuple("Event", "wall_time step value")


class Accumulator:
    """What an EventAccumulator has, without a file."""

    def __init__(self, records):
        self._columns = columns_of(records)
        self._steps = self._columns.pop("step", [])

    def Tags(self):  # noqa: N802 - TensorBoard's
        return {"scalars": list(self._columns)}

    def Scalars(self, tag):  # noqa: N802 - TensorBoard's
        return [Event(0.0, step, value) for step, value in zip(self._steps, self._columns[tag], strict=True)]


def test_the_scalars_of_an_accumulator_are_judged():
    of_list, given = ppo_doctor.analyze(loop()), ppo_doctor.analyze(Accumulator(loop()))
    assert (given.verdict, given.run.steps) == (of_list.verdict, of_list.run.steps)
    with pytest.raises(DoctorError, match="no scalars"):
        ppo_doctor.analyze(Accumulator([]))


def test_an_accumulator_of_tensorboard_is_judged_as_its_file(tmp_path):
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    rows = [(record["step"], {key: value for key, value in record.items() if key != "step"}) for record in loop()]
    (tmp_path / "events.out.tfevents.1").write_bytes(event_file(*scalars(rows)))
    accumulator = module.EventAccumulator(str(tmp_path))
    accumulator.Reload()
    of_file = judgement(ppo_doctor.analyze(tmp_path))
    assert judgement(ppo_doctor.analyze(accumulator)) == of_file
    accumulator.path = ""
    assert judgement(ppo_doctor.analyze(accumulator))[:2] == of_file[:2]


# What cannot be judged


@pytest.mark.parametrize("given", [None, 3, b"x", {1, 2}, [1, 2], object(), pd.DataFrame, pd.Series([1.0])])
def test_other_objects_are_an_error_that_names_what_may_be_given(given):
    with pytest.raises(DoctorError, match="cannot be analyzed") as error:
        ppo_doctor.analyze(given)
    assert error.value.code == ExitCode.USAGE and "DataFrame" in error.value.hint


@pytest.mark.parametrize("given", [[], {}, pd.DataFrame(), pd.DataFrame({"approx_kl": []}), {"approx_kl": []}, [{}]])
def test_empty_objects_have_nothing_to_judge(given):
    with pytest.raises(DoctorError) as error:
        ppo_doctor.analyze(given)
    assert error.value.code == ExitCode.NOTHING_TO_JUDGE


def test_several_runs_in_one_object_are_an_error():
    records = [record | {"seed": seed} for seed in (1, 2) for record in loop()]
    with pytest.raises(DoctorError, match="holds 2 runs"):
        ppo_doctor.analyze(pd.DataFrame(records))


def test_hostile_cells_are_bounded():
    endless: dict[str, object] = {}
    endless["self"] = endless
    twice: list[object] = []
    twice.append(twice)
    hostile = loop(a=lambda _: endless, b=lambda _: twice, c=lambda _: "x" * 100_000, d=lambda _: 10**400)
    assert ppo_doctor.analyze(hostile).verdict == ppo_doctor.analyze(loop()).verdict


class GivenBack:
    """An array of another library, whose memory is no longer there."""

    shape = ()

    def item(self):
        raise RuntimeError("the array was deleted")


@pytest.mark.parametrize(
    "cell", [GivenBack(), Decimal("sNaN"), np.clongdouble(1)], ids=lambda cell: type(cell).__name__
)
def test_a_cell_that_has_no_value_is_a_text(cell):
    run = ppo_doctor.load_run(loop(entropy=lambda row: cell if row == 30 else 1.0))
    assert any("entropy" in note.text for note in run.notes)
    assert len(run.series["entropy"].values) == 39


@pytest.mark.parametrize("kind", [np.longdouble, Decimal])
def test_long_numbers_are_numbers(kind):
    run = ppo_doctor.load_run(loop(entropy=lambda row: kind(row) / 4))
    np.testing.assert_array_equal(run.series["entropy"].values, np.arange(40) / 4)


def test_masked_cells_in_a_list_are_missing():
    run = ppo_doctor.load_run(loop(entropy=lambda row: np.ma.masked if row % 2 else 1.0))
    assert set(run.series["entropy"].values) == {1.0}


def test_no_library_of_these_objects_is_imported_by_us():
    frame = SimpleNamespace()
    with pytest.raises(DoctorError):
        ppo_doctor.analyze(frame)
    ours = [m for n, m in sys.modules.items() if n.startswith("ppo_doctor.readers") and m is not None]
    assert not any(hasattr(module, name) for module in ours for name in ("pandas", "polars", "wandb", "tensorboard"))
