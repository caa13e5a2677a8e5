"""The table: parts while it grows, one file in the end, each unit with its last rows."""

from __future__ import annotations

import os
from dataclasses import fields

import pytest

from ppo_doctor.fleets import table as tables
from ppo_doctor.fleets.row import CauseOf, FindingOf, Row
from ppo_doctor.fleets.table import Table, schema
from ppo_doctor.fleets.unit import Unit
from ppo_doctor.model.errors import DoctorError

pytest.importorskip("pyarrow")


def row(key, fingerprint="1", **values):
    given = {"run": key, "source": key, "status": "judged", "modified": 1.0, "size": 2, **values}
    return Row(key=key, fingerprint=fingerprint, **given)


def parts(folder):
    return sorted(path.name for path in folder.glob("runs.parquet.parts/*"))


def held(path):
    return [(each["key"], each["fingerprint"], each["status"]) for each in Table(path).rows()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.parquet"


def test_a_row_comes_back_as_it_was(path):
    given = row(
        "a",
        findings=(FindingOf("ratio", "high", 7, "Title"), FindingOf("kl", "medium", None, "Other")),
        causes=(CauseOf("lr", "likely", "high", benign=False),),
        metrics_end={"entropy": 0.5},
        settings={"clip_range": "0.2"},
        onset_step=7,
        outcome_end=None,
        wasted=0.25,
        movement=True,
    )
    table = Table(path)
    table.add([given])
    table.finish()
    (back,) = Table(path).rows()
    back = {**back, "metrics_end": dict(back["metrics_end"]), "settings": dict(back["settings"])}
    expected = given.as_dict()
    for name in ("findings", "causes"):
        expected[name] = list(expected[name])
    assert back == {**expected, "metrics_start": []}
    assert schema().names == [each.name for each in fields(Row)]


def test_rows_are_written_in_parts_and_in_the_end_into_one_file(path, monkeypatch):
    monkeypatch.setattr(tables, "ROWS", 3)
    table = Table(path)
    for i in range(8):
        table.add([row(str(i))])
    assert len(parts(path.parent)) == 2
    assert not path.exists()
    table.finish()
    assert [file.name for file in path.parent.iterdir()] == ["runs.parquet"]
    assert [key for key, _, _ in held(path)] == [str(i) for i in range(8)]


def test_what_was_written_before_a_kill_is_known(path, monkeypatch):
    monkeypatch.setattr(tables, "ROWS", 2)
    table = Table(path)
    for i in range(5):
        table.add([row(str(i), f"f{i}")])
    del table  # killed: the fifth row was in memory only
    (path.parent / "runs.parquet.parts" / ".part-00000003.parquet.77").write_bytes(b"half a part")
    table = Table(path)
    assert table.known() == {"f0", "f1", "f2", "f3"}
    table.add([row("4", "f4")])
    table.finish()
    assert len(held(path)) == 5
    assert [file.name for file in path.parent.iterdir()] == ["runs.parquet"]


def test_a_unit_that_changed_has_its_last_rows_only(path):
    for rows in ([row("a", "1", run="r1"), row("a", "1", run="r2"), row("b")], [row("a", "2", run="r1")]):
        table = Table(path)
        table.add(rows)
        table.finish()
    assert held(path) == [("b", "1", "judged"), ("a", "2", "judged")]


def test_a_row_that_failed_for_a_while_is_not_known_and_gives_way(path):
    table = Table(path)
    table.add([row("a", "1", status="failed", again=True)])
    table.add([row("b", "2", status="failed", error="no table")])
    table.finish()
    table = Table(path)
    assert table.known() == {"2"}
    table.add([row("a", "1")])
    table.finish()
    assert held(path) == [("b", "2", "failed"), ("a", "1", "judged")]
    assert Table(path).known() == {"1", "2"}


def written(path):
    table = Table(path)
    table.add([row(str(i), settings={f"s{i}": "x" * i}) for i in range(50)])
    table.finish()
    return path.read_bytes()


def test_a_table_that_is_damaged_anywhere_is_read_or_refused(path):
    """Its head may be whole and a page behind it not."""
    whole = written(path)
    refused = 0
    for at in range(4, len(whole), 97):
        path.write_bytes(whole[:at] + bytes(16) + whole[at + 16 :])
        try:
            list(Table(path).rows())
            Table(path).known()
            Table(path).empty()
        except DoctorError as error:
            assert error.code == 2
            refused += 1
    assert refused > 10


@pytest.mark.parametrize("kind", ["lists", "none", "no text"])
def test_a_table_with_other_keys_is_refused(path, kind):
    import pyarrow as pa
    from pyarrow import parquet

    written(path)
    whole = parquet.read_table(path)
    raw = pa.array([b"\xff"] * 50, pa.binary()).buffers()
    keys = {
        "lists": pa.array([["a"]] * 50),
        "none": pa.nulls(50, pa.string()),
        "no text": pa.StringArray.from_buffers(50, raw[1], raw[2]),
    }
    parquet.write_table(whole.set_column(0, "key", keys[kind]), path)
    table = Table(path)
    table.add([row("a")])
    with pytest.raises(DoctorError) as refused:
        table.finish()
    assert refused.value.code == 2


def test_a_table_with_a_column_twice_is_refused_and_one_in_another_order_is_not(path):
    from pyarrow import parquet

    written(path)
    whole = parquet.read_table(path)
    parquet.write_table(whole.select(whole.column_names[::-1]), path)
    table = Table(path)
    table.add([row("new")])
    table.finish()
    assert len(held(path)) == 51
    parquet.write_table(whole.append_column("key", whole["key"]), path)
    with pytest.raises(DoctorError, match="twice"):
        Table(path).known()


@pytest.mark.parametrize("head", [b"1", b"null", b'{"a": ["b"]}', b"\xff"])
def test_a_table_whose_head_is_not_ours_is_refused(path, head):
    from pyarrow import parquet

    written(path)
    parquet.write_table(parquet.read_table(path).replace_schema_metadata({tables.EMPTY: head}), path)
    with pytest.raises(DoctorError, match="no table of a fleet"):
        Table(path).empty()


def test_a_file_of_another_name_among_the_parts_is_none(path):
    (path.parent / "runs.parquet.parts").mkdir()
    (path.parent / "runs.parquet.parts" / "part-abc.parquet").write_bytes(b"")
    table = Table(path)
    assert not table.has_parts
    table.add([row("a")])
    table.finish()
    assert held(path) == [("a", "1", "judged")]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_is_no_table(path):
    os.mkfifo(path)
    with pytest.raises(DoctorError, match="pipe"):
        Table(path).known()


def test_nothing_new_leaves_the_file_alone(path):
    table = Table(path)
    table.add([row("a")])
    table.finish()
    before = path.stat().st_mtime_ns
    Table(path).finish()
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("content", [b"", b"nothing of this kind", None])
def test_a_file_that_is_no_table_of_a_fleet_is_refused_and_kept(path, content):
    if content is None:
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.table({"x": [1]}), path)
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(DoctorError, match="no table of a fleet") as refused:
        Table(path).known()
    assert refused.value.code == 2
    assert path.read_bytes() == before


def test_a_frame_has_dictionaries_for_metrics(path):
    table = Table(path)
    table.add([row("a", metrics_end={"entropy": 0.5}, settings={"x": "1"})])
    table.finish()
    frame = Table(path).to_frame()
    assert frame["metrics_end"][0] == {"entropy": 0.5}
    assert frame["settings"][0] == {"x": "1"}
    assert frame["key"].tolist() == ["a"]


def test_one_call_at_a_time_writes_a_table(path):
    first, second = Table(path), Table(path)
    with first.written():
        first.add([row("a")])
        with pytest.raises(DoctorError, match="written by another call") as refused, second.written():
            pass
        first.finish()
    assert refused.value.code == 2
    assert [key for key, _, _ in held(path)] == ["a"]
    with second.written():
        pass
    assert [file.name for file in path.parent.iterdir()] == ["runs.parquet"]


def test_a_table_that_cannot_be_written_is_told_before_anything_is_judged(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DoctorError, match="cannot write") as refused, Table(tmp_path / "file/runs.parquet").written():
        pass
    assert refused.value.code == 2


def test_units_without_a_run_are_remembered_and_no_rows(path):
    for fingerprint in ("1", "2"):
        table = Table(path)
        table.add([row("a", "f")], unit_of("a", "f"))
        table.add([], unit_of("b", fingerprint))
        table.flush()
        assert Table(path).empty() == {fingerprint}
        table.finish()
        assert Table(path).empty() == {fingerprint}
    assert held(path) == [("a", "f", "judged")]
    assert len(Table(path).to_frame()) == 1


def unit_of(key, fingerprint):
    return Unit(key, None, fingerprint, 0.0, 0)
