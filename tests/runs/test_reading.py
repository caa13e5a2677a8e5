"""Logs with lost cells, lost ends or text in cells: no damaged run is called healthy."""

from __future__ import annotations

import csv
import gzip
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppo_doctor.checks.outcome import outcome
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose, read_run, read_runs
from ppo_doctor.model import metrics
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.request import Request
from ppo_doctor.model.run import Run
from ppo_doctor.readers.table import Table
from ppo_doctor.runs.reading import name_and_power, without_factors
from tests.layouts import SETTINGS, Log, Written, logs_in, read, read_back, write
from tests.readers.event_files import event_file, scalars
from tests.synthetic import a_series, observe

SAMPLES = Path(__file__).resolve().parent.parent.parent / "sample_logs"


LOGS = [path for path in logs_in([SAMPLES / "healthy", SAMPLES / "sick"]) if "nan-inf" not in path.parent.name]


DAMAGE = {"far above": 9e18, "far below": -9e18, "beyond float32": 1e300, "negative": -1.0}


def runs(log: Log, folder: Path, settings: list[Path]) -> list[Run]:
    folder.mkdir()
    return read_back(Written({log.name: write(log)}), folder, settings)


def told(found: list[Run]) -> object:
    """Return of each run the verdict and its leading causes, whenever they begin."""
    diagnoses = [diagnose(run, load_pack()) for run in found]
    return [(d.verdict, sorted(cause.id for cause in d.causes if cause.leader)) for d in diagnoses]


def with_cells(log: Log, cells: Mapping[str, float | None]) -> Log:
    """Put a number into one cell of each key, or take it out, each in a record of its own."""
    records = [dict(record) for record in log.records]
    free = set(range(1, len(records) - 1))
    rng = random.Random(log.name)
    for key, value in cells.items():
        places = sorted(at for at in free if records[at].get(key) not in (None, ""))
        if places:
            at = rng.choice(places)
            free -= {at}
            if value is None and log.form != "csv":
                del records[at][key]
            else:
                records[at][key] = "" if value is None else value
    return replace(log, records=records)


def limited(found: list[Run]) -> dict[str, float]:
    """Return for each key whose metric has limits a number beyond them, of each kind in turn."""
    kinds, cells = list(DAMAGE.values()), {}
    for at, series in enumerate(found[0].series.values()):
        low, high = metrics.limits(series.name)
        beyond = [value for value in kinds[at % 4 :] + kinds[: at % 4] if not low <= value <= high]
        if beyond and len(series) >= 20:
            cells[series.raw] = beyond[0]
    return cells


@cache
def as_it_is(path: Path) -> tuple[Log, list[Path], list[Run], object]:
    """Return a log, the settings beside it, the runs in it, and what is said of them."""
    log, settings = read(path), [path.parent / name for name in SETTINGS if (path.parent / name).is_file()]
    with tempfile.TemporaryDirectory() as folder:
        sound = runs(log, Path(folder) / "sound", settings)
    return log, settings, sound, told(sound)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name)
def test_cells_that_are_lost_or_cannot_be_change_no_diagnosis(path, tmp_path):
    log, settings, sound, expected = as_it_is(path)
    lost = dict.fromkeys(series.raw for series in sound[0].series.values())
    assert told(runs(with_cells(log, lost), tmp_path / "torn", settings)) == expected
    cells = limited(sound)
    damaged = runs(with_cells(log, cells), tmp_path / "damaged", settings)
    assert cells
    assert {note.source.key for run in damaged for note in run.notes if note.kind == "dropped"} == set(cells)
    assert told(damaged) == expected


@pytest.mark.parametrize(
    "path", [path for path in LOGS if path.parent.parent.name == "sick"], ids=lambda path: path.parent.name
)
def test_large_numbers_make_no_sick_run_healthy(path, tmp_path):
    log, settings, sound, _ = as_it_is(path)
    kinds = list(DAMAGE.values())
    cells = {series.raw: kinds[at % 4] for at, series in enumerate(sound[0].series.values())}
    damaged = runs(with_cells(log, cells), tmp_path / "damaged", settings)
    assert "healthy" not in {verdict for verdict, _ in told(damaged)}


HEALTHY = logs_in([str(SAMPLES / "healthy")])


JUNK = "@@"


def damaged(log: Log, change: Callable[[int, str, Any], Any]) -> Log:
    """Return a log in which `change` of record, key and value takes the place of the value."""
    records = [{key: change(at, key, value) for key, value in record.items()} for at, record in enumerate(log.records)]
    return replace(log, records=records)


def run_of(log: Log, folder: Path, original: Path) -> Run:
    for name in SETTINGS:
        if (original.parent / name).is_file():
            (folder / name).write_bytes((original.parent / name).read_bytes())
    (folder / log.name).write_bytes(write(log))
    return read_run(str(folder / log.name), Request())


def lost_cells(run: Run) -> dict[str, int]:
    return {note.source.key: note.count for note in run.notes if note.kind == "lost" and note.source.key}


def column(run: Run, names: tuple[str, ...] = ("entropy", "approx_kl", "loss", "policy_loss")) -> str:
    return next(run.series[name].raw for name in names if name in run.series)


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.parent.name)
def test_one_text_cell_of_a_metric_is_counted_and_keeps_a_run_from_being_healthy(path, tmp_path):
    sound = read_run(str(path), Request())
    key = column(sound)
    at = next(i for i, record in enumerate(read(path).records) if i > 4 and record.get(key) not in (None, ""))
    run = run_of(damaged(read(path), lambda i, k, v: JUNK if (i, k) == (at, key) else v), tmp_path, path)
    assert lost_cells(run) == {key: 1}
    verdict = diagnose(run, load_pack())
    assert verdict.verdict != "healthy"
    assert run.keys[key] in ("mapped", "guessed")


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.parent.name)
def test_a_metric_that_is_text_throughout_is_told_and_listed(path, tmp_path):
    sound = read_run(str(path), Request())
    key = column(sound)
    run = run_of(damaged(read(path), lambda _, k, v: JUNK if k == key and v not in (None, "") else v), tmp_path, path)
    assert lost_cells(run) == {key: sum(record.get(key) not in (None, "") for record in read(path).records)}
    assert run.keys[key] == "text"
    assert diagnose(run, load_pack()).verdict != "healthy"


def test_more_text_cells_than_are_kept_are_all_counted(tmp_path):
    lines = [{"step": i, "entropy": 1.0 if i % 3 else JUNK, "reward_mean": 0.1, "approx_kl": 0.01} for i in range(6000)]
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert lost_cells(read_run(str(tmp_path / "run.jsonl"), Request())) == {"entropy": 2000}


def test_text_in_a_column_that_is_no_metric_is_told_and_loses_nothing(tmp_path):
    lines = [{"step": i, "entropy": 1.0, "node": 3 if i % 2 else "three", "policy": "mlp"} for i in range(20)]
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = read_run(str(tmp_path / "run.jsonl"), Request())
    assert lost_cells(run) == {}
    assert [(note.source.key, note.count) for note in run.notes if note.kind == "dropped"] == [("node", 10)]
    assert run.keys["policy"] == "text"


def test_a_dash_is_a_blank_and_no_text(tmp_path):
    rows = [f"{i},{'-' if i % 5 else 0.5},{0.1 * i}" for i in range(1, 30)]
    (tmp_path / "run.csv").write_text("\n".join(["step,entropy,reward_mean", *rows]) + "\n")
    run = read_run(str(tmp_path / "run.csv"), Request())
    assert len(run.series["entropy"]) == 5
    assert lost_cells(run) == {}


#: Ways of printing loose pairs.
PRINTED = {
    "words": "step {step} policy_loss {value} approx_kl {kl} entropy {entropy}",
    "equals": "step={step} policy_loss={value} approx_kl={kl} entropy={entropy}",
    "colons": "step: {step} policy_loss: {value} approx_kl: {kl} entropy: {entropy}",
    "commas": "INFO step: {step}, policy_loss: {value}, approx_kl: {kl}, entropy: {entropy}",
    "bars": "step {step} | policy_loss {value} | approx_kl {kl} | entropy {entropy}",
    "lines": "step: {step}\npolicy_loss: {value}\napprox_kl: {kl}\nentropy: {entropy}",
    "block": "Step {step}\n  policy_loss: {value}\n  approx_kl: {kl}\n  entropy: {entropy}\n",
    "bar": "{step}%|##  | {step}/40 [00:01<00:10, 1.0it/s, policy_loss={value}, approx_kl={kl}, entropy={entropy}]",
}


@pytest.mark.parametrize("word", ["oops", "overflow!", "1.2.3", "None", "-"])
@pytest.mark.parametrize("form", PRINTED)
def test_a_word_among_loose_pairs_costs_its_cell_alone_and_is_told(tmp_path, form, word):
    rows = [
        PRINTED[form].format(step=n, kl=0.01 + n / 1000, entropy=1 - n / 100, value=word if n % 5 == 3 else n / 7)
        for n in range(40)
    ]
    (tmp_path / "train.log").write_text("\n".join(rows) + "\n", encoding="utf-8")
    run = read_run(str(tmp_path / "train.log"), Request())
    counts = {name: len(run.series[name]) for name in ("policy_loss", "approx_kl", "entropy")}
    assert counts == {"policy_loss": 32, "approx_kl": 40, "entropy": 40}
    said = [note.text for note in run.notes if note.kind == "lost"]
    assert said == (
        []
        if word in ("None", "-")
        else [f"8 cells of policy_loss hold text, from “{word}” on, and no number; not read"]
    )


@pytest.mark.parametrize(
    "line",
    ["step 3, eval loss 0.2 kl 0.1", "eval step 3 loss 0.2 kl 0.1", "step 3 of loss and then kl", "step loss kl"],
)
def test_a_line_that_says_something_else_is_no_record_of_the_others(tmp_path, line):
    rows = [f"step {n} loss {n / 7:.4f} kl {0.01 + n / 1000:.4f}" for n in range(20)]
    rows.insert(10, line)
    (tmp_path / "train.log").write_text("\n".join(rows) + "\n", encoding="utf-8")
    run = read_run(str(tmp_path / "train.log"), Request())
    assert len(run.series["approx_kl"]) == 20
    assert not [note for note in run.notes if note.kind == "lost"]


SOUND = Path(__file__).resolve().parent.parent.parent / "sample_logs" / "healthy" / "healthy.canonical" / "run.jsonl"


def cut_off(whole: bytes) -> bytes:
    return gzip.compress(whole)[:-40]


def damaged_gzip(whole: bytes) -> bytes:
    packed = gzip.compress(whole)
    return packed[:-400] + b"\xff" * 100 + packed[-300:]


def damaged_document(whole: bytes) -> bytes:
    """Return lines of JSON as one document with a list of records, behind which stands what nobody can read."""
    records = [json.loads(line) for line in whole.splitlines()][1:]
    return json.dumps({"log_history": records})[:-1].encode() + b", [[[ and more"


def cut_document(whole: bytes) -> bytes:
    """Return the document without its end, and nothing behind: a document is written as one, and its end was there."""
    return damaged_document(whole)[: -len(b", [[[ and more") - 3]


def begins_within_a_record(whole: bytes) -> bytes:
    return whole[whole.index(b"\n", 1_000) + 200 :]


def unreadable_settings(whole: bytes) -> bytes:
    return whole.replace(b'"config": {', b'"config": ', 1)


def settings_damaged_below_a_record(whole: bytes) -> bytes:
    settings, first, rest = unreadable_settings(whole).split(b"\n", 2)
    return b"\n".join([first, settings, rest])


DAMAGED = {
    "cut off.jsonl.gz": cut_off,
    "damaged.jsonl.gz": damaged_gzip,
    "damaged.json": damaged_document,
    "cut off.json": cut_document,
    "begins within.jsonl": begins_within_a_record,
    "unreadable settings.jsonl": unreadable_settings,
    "settings below.jsonl": settings_damaged_below_a_record,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_was_lost_is_not_healthy(cli, tmp_path, name):
    (tmp_path / name).write_bytes(DAMAGED[name](SOUND.read_bytes()))
    judged = cli("analyze", tmp_path / name, "--format", "json")
    assert judged.json["verdict"] == "inconclusive"
    assert name in judged.json["headline"]


@pytest.fixture(scope="module")
def events() -> bytes:
    """A sound log as an event file."""
    with (SOUND.parent.parent / "healthy.sb3" / "progress.csv").open(encoding="utf-8") as rows:
        read = [{tag: float(cell) for tag, cell in row.items() if cell} for row in csv.DictReader(rows)]
    return event_file(*scalars((int(row["time/total_timesteps"]), row) for row in read))


@pytest.mark.parametrize("piece", ["begins within", "its first record is damaged", "whole"])
def test_an_event_file_whose_begin_is_not_there_is_not_healthy(cli, tmp_path, events, piece):
    data = {"begins within": events[2_000:], "its first record is damaged": b"\x07" + events[1:], "whole": events}[
        piece
    ]
    (tmp_path / "events.out.tfevents.1").write_bytes(data)
    judged = cli("analyze", tmp_path / "events.out.tfevents.1", "--format", "json").json
    assert judged["verdict"] == ("inconclusive" if piece == "begins within" else "healthy")
    assert ("begins within a record" in judged["headline"]) == (piece == "begins within")


def test_a_last_line_that_is_cut_off_is_how_a_log_that_is_written_looks(cli, tmp_path):
    (tmp_path / "run.jsonl").write_bytes(SOUND.read_bytes()[:-5])
    assert cli("analyze", tmp_path / "run.jsonl", "--format", "json").json["verdict"] == "healthy"


def without_settings(whole: bytes) -> bytes:
    """Return the records alone: a sound log, and nobody can see that there was more."""
    return whole.split(b"\n", 1)[1]


def one_record_damaged(whole: bytes) -> bytes:
    """Return the log with a piece of a record among others: it costs itself, and what was lost is told."""
    lines = whole.split(b"\n")
    return b"\n".join([*lines[:20], lines[20][:100], *lines[21:]])


def piece_before_settings(whole: bytes) -> bytes:
    """Return the log behind a piece of an older one: from the settings on, everything is there."""
    return whole.split(b"\n")[3][100:] + b"\n" + whole


def behind_a_message(whole: bytes) -> bytes:
    return b"Training begins\n" + without_settings(whole)


@pytest.mark.parametrize("changed", [without_settings, one_record_damaged, piece_before_settings, behind_a_message])
def test_what_is_there_in_whole_is_judged(cli, tmp_path, changed):
    (tmp_path / "run.jsonl").write_bytes(changed(SOUND.read_bytes()))
    assert cli("analyze", tmp_path / "run.jsonl", "--format", "json").json["verdict"] == "healthy"


ROOT = Path(__file__).resolve().parent.parent.parent


WHOLE = {"whole": slice(None)}


KEPT = {"even": slice(0, None, 2), "odd": slice(1, None, 2)}


def thin_lines(log: Path, kept: slice) -> None:
    """Leave out records of JSON Lines or CSV; what is no record (a header, a configuration) stays."""
    first, *lines = log.read_text().splitlines(keepends=True)
    head = [first] if log.suffix == ".csv" or "ppo_doctor" in json.loads(first) else []
    log.write_text("".join(head + ([*lines] if head else [first, *lines])[kept]))


def thin_state(log: Path, kept: slice) -> None:
    """Leave out entries of a trainer's state."""
    state = json.loads(log.read_text())
    log.write_text(json.dumps(state | {"log_history": state["log_history"][kept]}, indent=1))


THIN: dict[str, Callable[[Path, slice], None]] = {".csv": thin_lines, ".jsonl": thin_lines, ".json": thin_state}


def log_of(folder: Path) -> Path | None:
    """Return the file that holds the records, None where it is no text."""
    logs = [file for file in folder.iterdir() if file.suffix in THIN and file.name != "config.json"]
    return logs[0] if len(logs) == 1 else None


SICK = sorted(folder for folder in (ROOT / "sample_logs/sick").iterdir() if log_of(folder))


def verdicts(path: Path) -> dict[str, str]:
    """Return the verdict of each run, none where too little is left to judge."""
    try:
        return {run.framework: verdict_of(run) for run in read_runs(str(path), Request())}
    except DoctorError:
        return {}


def verdict_of(run: Run) -> str:
    return diagnose(run, load_pack(), Request()).verdict


def rises(folder: Path) -> bool:
    """Tell whether the reward of a whole log rises."""
    return all(outcome(run).sound for run in read_runs(str(folder), Request()))


def thinned(
    folder: Path, place: Path, ways: Mapping[str, slice], *, configured: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield how a log was thinned, and its verdict then."""
    for how, kept in ways.items():
        copy = shutil.copytree(folder, place / f"{folder.name}-{how}-{configured}")
        log = log_of(copy)
        assert log is not None
        if not configured:
            (copy / "config.json").unlink(missing_ok=True)
        THIN[log.suffix](log, kept)
        for framework, verdict in verdicts(copy).items():
            yield f"{folder.name} {framework} {how}", how, verdict


@pytest.mark.parametrize("configured", [True, False])
def test_no_thinned_log_of_a_sick_run_is_healthy(tmp_path, configured):
    assert len(SICK) > 15
    passed, judged = [], 0
    for folder in SICK:
        told = list(thinned(folder, tmp_path, KEPT, configured=configured))
        judged += len(told)
        healthy = [name for name, _, verdict in told if verdict == "healthy" and not rises(folder)]
        whole = thinned(folder, tmp_path, WHOLE, configured=configured) if healthy else ()
        passed += healthy if "healthy" not in {verdict for _, _, verdict in whole} else []
    assert passed == []
    assert judged > len(SICK)


def test_the_log_of_a_healthy_run_stays_healthy_where_half_of_its_records_are_left_out(tmp_path):
    for folder in sorted((ROOT / "sample_logs/healthy").iterdir()):
        if log_of(folder):
            told = {how: verdict for _, how, verdict in thinned(folder, tmp_path, KEPT, configured=True)}
            assert told["even"] == "healthy"


def read_csv(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_thinning_leaves_out_records_and_nothing_else(tmp_path):
    log = tmp_path / "progress.csv"
    log.write_text("a,b\n1,2\n3,4\n5,6\n")
    thin_lines(log, KEPT["even"])
    assert read_csv(log) == [["a", "b"], ["1", "2"], ["5", "6"]]


def generations(apart, every=1, **fields):
    """Return observations of 60 records `every` steps from each other, a batch every `apart` records."""
    steps = range(1, 60 * every, every)
    return observe(
        a_series("loss", [0.1] * 60, steps=steps),
        a_series("reward_mean", [0.5] * len(range(0, 60, apart)), steps=list(steps)[::apart]),
        a_series("clip_fraction", [fields.pop("clipped", 0.0)] * 60, steps=steps),
        facts={"generation_marker": "reward_mean"} | fields,
    )


@pytest.mark.parametrize(
    ("apart", "every", "fields", "hidden"),
    [
        (1, 2, {"updates_configured": 4.0}, True),
        (2, 2, {}, True),  # batches last longer than a record
        (1, 2, {"updates_configured": 1.0}, False),
        (1, 2, {}, False),
        (4, 1, {"updates_configured": 4.0}, False),  # each step is there
        (1, 2, {"updates_configured": 4.0, "clipped": 0.01}, False),  # the ratio leaves 1
    ],
)
def test_passes_are_hidden_where_records_leave_out_steps_and_no_ratio_shows(apart, every, fields, hidden):
    found = generations(apart, every, **fields).fact("passes_hidden")
    assert (found is not None) == hidden


@pytest.mark.parametrize(
    ("key", "bare", "power"),
    [
        ("wob·1e3", "wob", -3),
        ("kl_x1000", "kl", -3),
        ("kl (x1000)", "kl", -3),
        ("lr(\u00b5)", "lr", -6),
        ("lr [1e-4]", "lr", -4),
        ("drift ×10^-3", "drift", -3),
        ("leash_mnat", "leash_nat", -3),
        ("D mbits", "D bits", -3),
        ("milli_kl", "kl", -3),
        ("driftMilli", "drift", -3),
        ("brain/driftMilli", "brain/drift", -3),
        ("drift_e3", "drift", -3),
        ("cut_pm", "cut", -3),
        ("rate_ppm", "rate", -6),
        ("kstep", "step", 3),
        ("k_env_steps", "env_steps", 3),
        ("Mframes", "frames", 6),
        ("frames (M)", "frames", 6),
    ],
)
def test_a_factor_in_a_name(key, bare, power):
    assert name_and_power(key) == (bare, power)


@pytest.mark.parametrize(
    "key",
    [
        "max1000",
        "lr 1e-4 - loss",
        "loss/lr_1e-3",
        "σ(μ)",
        "dist (m)",
        "x1000",
        "return_100",
        "millions",
        "reward/x",
        "kick",
        "Max",
        "dist_m",
        "familiar",
    ],
)
def test_a_name_without_a_factor(key):
    assert name_and_power(key) == (key, 0)


def table(**columns):
    rows = np.arange(3)
    values = {key: np.array(column) for key, column in columns.items()}
    return Table(path="log", records=rows, lines=rows + 1, columns=values, decimals=dict.fromkeys(columns, 1))


def test_columns_are_read_without_their_factors():
    got, says = without_factors(table(kl·1e3=[26.4, 1.0, 0.5], R=[1.0, 2.0, 3.0]), ())
    assert got.columns["kl"].tolist() == [0.0264, 0.001, 0.0005]
    assert (got.decimals["kl"], got.decimals["R"]) == (4, 1)
    assert says == {"kl·1e3": "'kl·1e3' is read as 'kl': its name says that it is written times 1e3"}


def test_a_column_that_somebody_named_keeps_its_name():
    got, _ = without_factors(table(kl·1e3=[26.4, 1.0, 0.5]), ("kl·1e3",))
    assert got.columns["kl·1e3"].tolist() == [0.0264, 0.001, 0.0005]


def test_two_columns_of_one_bare_name_stay_as_they_are():
    both = table(kl·1e3=[26.4, 1.0, 0.5], kl=[1.0, 1.0, 1.0])
    assert without_factors(both, ()) == (both, {})
