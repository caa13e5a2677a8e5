"""MLflow's file store and database, Trackio's database: written here by hand, and by the trackers where they are."""

from __future__ import annotations

import json
import math
import os
import random
import sqlite3
import subprocess
import sys
import tracemalloc
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.readers import read, sqlite_log
from ppo_doctor.readers.metric_files import is_mlflow_run, read_mlflow_run
from ppo_doctor.readers.notes import Ledger
from tests.readers.conftest import gather, read_back


def values(record):
    return {key: value for key, value in record.items() if key != "wall_time"}


def store(folder, metrics, params=()):
    (folder / "metrics").mkdir(parents=True)
    (folder / "meta.yaml").write_text("run_id: abc\n", encoding="utf-8")
    for kind, files in (("metrics", metrics), ("params", dict(params))):
        for key, text in files.items():
            file = folder / kind / key
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    return gather("mlflow", read_mlflow_run(folder))


def test_a_file_store_is_read_by_step(tmp_path):
    lines = "".join(f"{1000 * step} {step / 4} {step}\n" for step in range(5))
    reading = store(tmp_path / "r", {"loss": lines, "train/kl": "2000 nan 2\n3000 inf 3\n"}, {"lr": "0.1", "n": "4"})
    assert is_mlflow_run(tmp_path / "r")
    assert [record["loss"] for record in reading.records] == [0, 0.25, 0.5, 0.75, 1]
    assert [record["step"] for record in reading.records] == [0, 1, 2, 3, 4]
    assert math.isnan(reading.records[2]["train/kl"])
    assert reading.records[3]["train/kl"] == math.inf
    assert reading.configs[0].values == {"lr": 0.1, "n": 4}
    assert reading.notes == []


def test_lines_of_old_and_new_versions(tmp_path):
    reading = store(tmp_path / "r", {"a": "1000 0.5\n", "b": "1000 0.5 7 data 1a2b\n"})
    assert [values(r) for r in reading.records] == [{"step": 0, "a": 0.5}, {"step": 7, "b": 0.5}]


def test_the_times_tell_which_branch_of_a_resumed_run_is_later(tmp_path):
    text = "1000 1.0 1\n2000 1.0 2\n3000 2.0 1\n4000 2.0 2\n"
    reading = store(tmp_path / "r", {"a": text, "b": text})
    expected = [{"step": s, "a": v, "b": v} for v in (1, 2) for s in (1, 2)]
    assert [values(record) for record in reading.records] == expected


def test_a_metric_file_truncated_anywhere_gives_its_whole_lines(tmp_path):
    whole = "".join(f"{1000 + step} 0.5 {step}\n" for step in range(10, 14))
    for cut in range(1, len(whole)):
        text = whole[:cut]
        reading = store(tmp_path / str(cut), {"a": text})
        assert [record["step"] for record in reading.records] == list(range(10, 10 + text.count("\n"))), cut
        assert reading.skipped == (not text.endswith("\n")), cut


def test_lines_that_are_none_are_skipped(tmp_path):
    reading = store(tmp_path / "r", {"a": "x y z\n1000 0.5 1\n\n7\n1000 0.5 99999999999999999999\n"})
    assert [record["step"] for record in reading.records] == [1]
    assert reading.skipped == 3


#: what a crash made of a metric's file → steps that are left, and what is told, with the line
WHOLE = "".join(f"{1000 + step} 0.{step} {step}\n" for step in range(10, 16))


DAMAGED = {
    "half a line before a whole one": (WHOLE.replace("11\n", "1"), [10, 13, 14, 15], "a:2: record skipped: not"),
    "a step that is cut off": (WHOLE.replace(" 11\n", "\n"), [10, 12, 13, 14, 15], "a:2: record skipped: not"),
    "NULs": (WHOLE.replace("1012", "\0" * 4096 + "1012"), [10, 11, 13, 14, 15], "a:3: 4,096 NULs"),
    "NULs alone": ("\0" * 4096, [], "a: no value of this metric"),
    "nothing": ("", [], "a: no value of this metric"),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_what_is_damaged_in_a_metric_is_told_with_its_file_and_line(tmp_path, how):
    text, left, told = DAMAGED[how]
    reading = store(tmp_path / "r", {"a": text, "b": WHOLE})
    assert [record["step"] for record in reading.records if "a" in record] == left
    assert reading.says(str(tmp_path / "r" / "metrics" / told))


def test_further_notes_stand_at_the_file_that_the_first_of_them_is_of(tmp_path):
    reading = store(tmp_path / "r", {"a": "x\n" * 15, "b": "x\n" * 15})
    assert [str(note) for note in reading.notes if note.count == 10] == [
        f"{tmp_path / 'r' / 'metrics' / 'b'}:6: 10 more records skipped: not “time value step”"
    ]


def test_a_parameter_of_nuls_is_lost(tmp_path):
    reading = store(tmp_path / "r", {"a": WHOLE}, {"lr": "\0" * 300, "n": "4"})
    assert reading.configs[0].values == {"n": 4}
    assert reading.says("the parameter lr is lost")


def test_a_run_that_lost_its_meta_file_is_a_run(tmp_path):
    store(tmp_path / "r", {"a": WHOLE})
    assert is_mlflow_run(tmp_path / "r")
    (tmp_path / "r" / "meta.yaml").unlink()
    assert not is_mlflow_run(tmp_path / "r")
    for name in ("params", "tags"):
        (tmp_path / "r" / name).mkdir(exist_ok=True)
    assert is_mlflow_run(tmp_path / "r")


@given(st.binary(max_size=300) | st.text("0123456789.-e nan\n\t", max_size=200).map(str.encode))
def test_any_bytes_in_a_metric_file(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("run")
    (folder / "metrics").mkdir()
    (folder / "metrics" / "a").write_bytes(data)
    (folder / "metrics" / "b").write_text("1000 0.5 1\n", encoding="utf-8")
    reading = gather("mlflow", read_mlflow_run(folder))
    assert [record["b"] for record in reading.records if "b" in record] == [0.5]


def test_a_run_without_metrics(tmp_path):
    assert store(tmp_path / "r", {}).records == []


def mlflow_db(path, runs, wal=False):
    with sqlite3.connect(path) as database:
        if wal:
            database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE runs (run_uuid TEXT PRIMARY KEY, name, status, lifecycle_stage)")
        database.execute("CREATE TABLE params (key, value, run_uuid)")
        columns = "key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT, step BIGINT, is_nan BOOLEAN"
        database.execute(f"CREATE TABLE metrics ({columns}, PRIMARY KEY (key, timestamp, step, run_uuid, value))")
        for run, (stage, rows) in runs.items():
            database.execute("INSERT INTO runs VALUES (?, ?, 'FINISHED', ?)", (run, f"name-{run}", stage))
            database.execute("INSERT INTO params VALUES ('lr', '0.25', ?)", (run,))
            for i, (key, value, step) in enumerate(rows):
                plain = 0.0 if math.isnan(value) else math.copysign(1.7976931348623157e308, value)
                held = value if math.isfinite(value) else plain
                database.execute(
                    "INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", (key, held, i, run, step, math.isnan(value))
                )
    database.close()
    return path


ROWS = [(key, value + step, step) for step in range(5) for key, value in (("loss", 1.0), ("kl", 2.0))]


def test_a_database_of_one_run(tmp_path):
    odd = [("a", math.nan, 9), ("a", math.inf, 10), ("a", -math.inf, 11)]
    reading = gather(*read(mlflow_db(tmp_path / "m.db", {"r": ("active", ROWS + odd)})))
    assert reading.container == "sqlite"
    plain = [values(record) for record in reading.records]
    assert plain[:5] == [{"step": s, "loss": 1 + s, "kl": 2 + s} for s in range(5)]
    assert math.isnan(plain[5]["a"])
    assert [record["a"] for record in plain[6:]] == [math.inf, -math.inf]
    assert reading.configs[0].values == {"lr": 0.25}


def test_values_and_steps_that_are_no_numbers_are_skipped(tmp_path):
    path = mlflow_db(tmp_path / "m.db", {"r": ("active", ROWS)})
    with sqlite3.connect(path) as database:
        for i, (value, step) in enumerate([("x", 1), (1.0, 2**62), (1.0, "y")]):
            database.execute("INSERT INTO metrics VALUES ('odd', ?, ?, 'r', ?, 0)", (value, i, step))
    database.close()
    reading = gather(*read(path))
    assert len(reading.records) == 5
    assert reading.skipped == 3


def test_a_database_of_several_runs_tells_them_apart(tmp_path):
    held = {"r": ("active", ROWS), "s": ("active", ROWS), "t": ("deleted", ROWS)}
    reading = gather(*read(mlflow_db(tmp_path / "m.db", held)))
    assert [record["run"] for record in reading.records] == [1] * 5 + [2] * 5
    assert [config.source.line for config in reading.configs] == [1, 11]
    assert reading.says("run 2 is name-s")


@pytest.mark.parametrize("packed", [False, True])
def test_a_database_is_not_touched(tmp_path, packed):
    import gzip

    path = mlflow_db(tmp_path / "m.db", {"r": ("active", ROWS)}, wal=True)
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    before = path.read_bytes(), sorted(tmp_path.iterdir())
    assert len(gather(*read(path)).records) == 5
    assert (path.read_bytes(), sorted(tmp_path.iterdir())) == before


def test_what_a_writer_has_not_merged_yet_is_read(tmp_path):
    path = mlflow_db(tmp_path / "m.db", {"r": ("active", ROWS)}, wal=True)
    writer = sqlite3.connect(path)
    writer.execute("INSERT INTO metrics VALUES ('late', 5.0, 99, 'r', 99, 0)")
    writer.commit()
    try:
        assert gather(*read(path)).records[-1]["late"] == 5
    finally:
        writer.close()


def test_a_database_of_something_else_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "x.db") as database:
        database.execute("CREATE TABLE cats (name)")
    database.close()
    with pytest.raises(DoctorError, match="neither MLflow nor Trackio"):
        gather(*read(tmp_path / "x.db"))


def test_a_view_called_like_a_table_is_not_run(tmp_path):
    with sqlite3.connect(tmp_path / "x.db") as database:
        for name in ("runs", "params"):
            database.execute(f"CREATE TABLE {name} (run_uuid)")
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
        database.execute(f"CREATE VIEW metrics AS {endless}")
    database.close()
    with pytest.raises(DoctorError, match="neither MLflow nor Trackio"):
        gather(*read(tmp_path / "x.db"))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    rows = [("loss", float(step), step) for step in range(4000)]
    return mlflow_db(tmp_path_factory.mktemp("db") / "m.db", {"r": ("active", rows)}).read_bytes()


@given(st.data())
def test_a_damaged_database_gives_what_can_be_read(large, data):
    raw = bytearray(large[: data.draw(st.integers(101, len(large)))])
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=6)):
        raw[place] ^= 255
    try:
        reading = read_back(bytes(raw), "sqlite")
    except DoctorError as error:
        assert error.message
    else:
        assert all(record["loss"] == record["step"] or reading.notes for record in reading.records if "loss" in record)


def test_a_damaged_page_costs_its_rows_alone(large):
    raw = bytearray(large)
    leaf = next(at for at in range(4096 * 20, len(raw), 4096) if raw[at] == 13)
    raw[leaf] = 99
    reading = read_back(bytes(raw), "sqlite")
    assert 3800 < len(reading.records) < 4000
    assert reading.says("a page of the database is damaged")


@pytest.mark.parametrize("packed", [False, True])
def test_a_database_that_is_cut_off_gives_its_first_rows(tmp_path, large, packed):
    import gzip

    kept = large[: len(large) // 2 + 100]
    (tmp_path / "m.db").write_bytes(gzip.compress(kept) if packed else kept)
    reading = gather(*read(tmp_path / "m.db"))
    assert 1000 < len(reading.records) < 3000
    assert reading.says(f"the database is cut off: {len(kept):,} bytes of {len(large):,}")
    assert reading.says("rows of metrics from")


def test_a_database_that_lost_its_first_page_is_told_so(large):
    with pytest.raises(DoctorError, match="no known kind") as raised:
        read_back(bytes(4096) + large[4096:])
    assert "bytes are NULs" in raised.value.hint


DIES = """
import os, sqlite3, sys
database = sqlite3.connect(sys.argv[1])
if sys.argv[2] == "rollback":
    database.execute("PRAGMA cache_size = 1")
for row in range(3000):
    database.execute("INSERT INTO metrics VALUES ('late', 5.0, ?, 'r', ?, 0)", (row + 9000, row + 9000))
    if sys.argv[2] == "wal":
        database.commit()
os._exit(9)
"""


def killed_within_a_change(path, mode):
    mlflow_db(path, {"r": ("active", [("loss", float(step), step) for step in range(4000)])}, wal=mode == "wal")
    subprocess.run([sys.executable, "-c", DIES, str(path), mode], check=False)
    return path.with_name(f"{path.name}-{'wal' if mode == 'wal' else 'journal'}")


@pytest.mark.parametrize("damage", [None, b"junk" * 5000])
def test_a_writer_that_died_within_a_change_costs_no_run(tmp_path, damage):
    journal = killed_within_a_change(tmp_path / "m.db", "rollback")
    if damage is not None:
        journal.write_bytes(damage)
    before = (tmp_path / "m.db").read_bytes(), journal.read_bytes()
    reading = gather(*read(tmp_path / "m.db"))
    assert sum("loss" in record for record in reading.records) > 3800
    assert reading.says("its writer died within a change")
    assert ((tmp_path / "m.db").read_bytes(), journal.read_bytes()) == before


@pytest.fixture(scope="module")
def not_merged(tmp_path_factory):
    """Return the bytes of a database whose writer died, and of the changes beside it."""
    path = tmp_path_factory.mktemp("wal") / "m.db"
    log = killed_within_a_change(path, "wal")
    return path.read_bytes(), log.read_bytes()


@pytest.mark.parametrize("how", ["whole", "half a frame", "NULs", "junk"])
def test_changes_that_are_not_merged_and_damaged_are_told(not_merged, tmp_path, how):
    log = tmp_path / "m.db-wal"
    whole, data = not_merged
    (tmp_path / "m.db").write_bytes(whole)
    middle = len(data) // 2
    log.write_bytes(
        {
            "whole": data,
            "half a frame": data[: 32 + 4120 * 9 + 2000],
            "NULs": data[:middle] + bytes(9000) + data[middle + 9000 :],
            "junk": b"junk" * 5000,
        }[how]
    )
    reading = gather(*read(tmp_path / "m.db"))
    assert sum("loss" in record for record in reading.records) == 4000
    assert reading.says("m.db-wal is damaged") == (how != "whole")


def trackio_db(path, runs, with_ids=True):
    with sqlite3.connect(path) as database:
        ids = "run_id TEXT, " if with_ids else ""
        columns = f"id INTEGER PRIMARY KEY, {ids}timestamp TEXT, run_name TEXT, step INTEGER, metrics TEXT"
        database.execute(f"CREATE TABLE metrics ({columns})")
        database.execute(f"CREATE TABLE configs (id INTEGER PRIMARY KEY, {ids}run_name TEXT, config TEXT)")
        for run, rows in runs.items():
            own = (f"id-{run}",) if with_ids else ()
            marks = ", ".join("?" * (len(own) + 4))
            for step, row in rows:
                cells = (*own, "now", run, step, json.dumps(row))
                database.execute(f"INSERT INTO metrics VALUES (NULL, {marks})", cells)  # noqa: S608
            config = json.dumps({"lr": 0.5, "_Username": "me"})
            marks = ", ".join("?" * (len(own) + 2))
            database.execute(f"INSERT INTO configs VALUES (NULL, {marks})", (*own, run, config))  # noqa: S608
    database.close()
    return path


@pytest.mark.parametrize("with_ids", [True, False])
def test_trackio(tmp_path, with_ids):
    rows = [(step, {"loss": step / 2, "kl": "NaN", "nested": {"x": 1}}) for step in range(3)]
    reading = gather(*read(trackio_db(tmp_path / "p.db", {"a": rows, "b": rows}, with_ids)))
    assert [(r["run"], r["step"], r["loss"], r["nested/x"]) for r in reading.records] == [
        (run, step, step / 2, 1) for run in (1, 2) for step in range(3)
    ]
    assert all(math.isnan(record["kl"]) for record in reading.records)
    assert [config.values for config in reading.configs] == [{"lr": 0.5}] * 2


def test_trackio_cells_that_are_no_json(tmp_path):
    path = trackio_db(tmp_path / "p.db", {"a": [(0, {"loss": 1.0}), (1, ["no object"])]})
    reading = gather(*read(path))
    assert len(reading.records) == 1
    assert reading.skipped == 1


WRITE_MLFLOW = """
import math, sys, mlflow
mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment("e")
with mlflow.start_run():
    mlflow.log_params({"lr": 0.0003, "n_epochs": 10, "note": "ünï"})
    for i in range(20):
        mlflow.log_metrics({"train/loss": i / 7, "a b": math.nan, "c": math.inf, "d": -math.inf}, step=2 * i)
"""


@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed")
@pytest.mark.parametrize("kind", ["file", "sqlite"])
def test_what_mlflow_writes(tmp_path, kind):
    target = tmp_path / ("mlruns" if kind == "file" else "mlflow.db")
    uri = target.as_uri() if kind == "file" else f"sqlite:///{target}"
    environment = os.environ | {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_ENABLE_TELEMETRY": "false"}
    command = [sys.executable, "-W", "ignore", "-c", WRITE_MLFLOW, uri]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path, capture_output=True)
    if kind == "file":
        (folder,) = [path.parent for path in target.rglob("metrics")]
        reading = gather("mlflow", read_mlflow_run(folder))
    else:
        reading = gather(*read(target))
    assert [(r["step"], r["train/loss"]) for r in reading.records] == [(2 * i, i / 7) for i in range(20)]
    assert all(math.isnan(r["a b"]) and r["c"] == math.inf and r["d"] == -math.inf for r in reading.records)
    assert reading.configs[0].values == {"lr": 0.0003, "n_epochs": 10, "note": "ünï"}


WRITE_WANDB = """
import math, sys, wandb
run = wandb.init(mode="offline", dir=sys.argv[1], project="p", config={"lr": 0.0003, "net": {"size": 4}, "note": "ünï"})
for i in range(500):
    values = {"train/loss": i / 7, "ünï (x)": i, "a": math.nan, "b": -math.inf, "n": {"x": i}, "long" * 50: 1.5}
    run.log(values, step=3 * i)
run.config.update({"later": 5})
run.finish()
"""


@pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not installed")
def test_what_wandb_writes(tmp_path):
    subprocess.run([sys.executable, "-c", WRITE_WANDB, str(tmp_path)], check=True, cwd=tmp_path, capture_output=True)
    (path,) = Path(tmp_path).rglob("*.wandb")
    reading = gather(*read(path))
    assert [(r["_step"], r["train/loss"], r["n.x"]) for r in reading.records] == [(3 * i, i / 7, i) for i in range(500)]
    assert all(math.isnan(r["a"]) and r["b"] == -math.inf and r["long" * 50] == 1.5 for r in reading.records)
    assert reading.configs[-1].values == {"lr": 0.0003, "net.size": 4, "note": "ünï", "later": 5}
    assert len(reading.tables) == 1
    assert reading.notes == []


WRITE_TRACKIO = """
import math, trackio
trackio.init(project="p", name="run1", config={"lr": 0.0003, "net": {"size": 4}})
for i in range(5):
    trackio.log({"train/loss": i / 7, "a": math.nan, "b": math.inf})
trackio.finish()
"""


@pytest.mark.skipif(find_spec("trackio") is None, reason="trackio is not installed")
def test_what_trackio_writes(tmp_path):
    environment = os.environ | {"TRACKIO_DIR": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    subprocess.run(
        [sys.executable, "-c", WRITE_TRACKIO], check=True, env=environment, cwd=tmp_path, capture_output=True
    )
    reading = gather(*read(tmp_path / "p.db"))
    assert [(r["step"], r["train/loss"], r["b"]) for r in reading.records] == [(i, i / 7, math.inf) for i in range(5)]
    assert reading.configs[0].values == {"lr": 0.0003, "net.size": 4}


@pytest.mark.parametrize("seed", range(12))
def test_any_damage_is_a_note_or_an_error_with_its_place(large, tmp_path, seed):
    """Also of the schema, whose text SQLite quotes in messages that Python cannot decode."""
    rng = random.Random(seed)
    data = bytearray(large)
    for _ in range(rng.choice((1, 10, 100))):
        data[rng.randrange(100, 4096) if rng.random() < 0.5 else rng.randrange(len(data))] = rng.randrange(256)
    try:
        gather(*read_damaged(tmp_path, bytes(data)))
    except DoctorError as error:
        assert "m.db" in error.message


def read_damaged(folder, data):
    (folder / "m.db").write_bytes(data)
    return read(folder / "m.db")


def test_a_run_whose_values_are_all_unreadable(tmp_path):
    path = mlflow_db(tmp_path / "m.db", {"r": ("active", ROWS)})
    with sqlite3.connect(path) as database:
        database.execute("UPDATE metrics SET timestamp = 'x' || rowid")
    database.close()
    reading = gather(*read(path))
    assert (len(reading.records), reading.skipped) == (0, len(ROWS))


def test_a_cell_of_any_size_costs_its_row_and_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_log, "LARGEST_CELL", 1 << 16)
    path = mlflow_db(tmp_path / "m.db", {"r": ("active", ROWS)})
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO params VALUES ('big', zeroblob(16000000), 'r')")
        database.execute("INSERT INTO params VALUES ('gamma', '0.99', 'r')")
    database.close()
    tracemalloc.start()
    reading = gather(*read(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4_000_000
    assert len(reading.records) == 5
    assert reading.configs[0].values == {"lr": 0.25, "gamma": 0.99}
    assert reading.says("too big")


def test_rows_that_lead_in_a_circle_end():
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i, ? FROM n"
    with sqlite3.connect(":memory:") as database:
        found = list(islice(sqlite_log.rows(database, endless, (), Ledger("m.db")), 5_000))
    database.close()
    assert len(found) < 5_000
