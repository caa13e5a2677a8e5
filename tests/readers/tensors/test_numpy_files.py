"""Arrays of NumPy, dumps by row, folders: equal to what was written, whatever the shapes and strides."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.readers.tensors import archives_in, is_archive, read_archive, rows, storages
from ppo_doctor.readers.tensors.tensor import RAW, Tensor

TYPES = st.one_of(
    hnp.floating_dtypes(sizes=(16, 32, 64), endianness="?"),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.boolean_dtypes(),
    hnp.complex_number_dtypes(sizes=(64, 128), endianness="?"),
)


ARRAYS = TYPES.flatmap(lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=6)))


def joined(pieces):
    found = list(pieces)
    return np.concatenate(found) if found else np.empty(0)


def check(tensor: Tensor, array: np.ndarray, elements: int) -> None:
    assert tensor.shape == array.shape
    np.testing.assert_array_equal(tensor.array(), array)
    wide = array.astype(array.dtype.newbyteorder("=")).reshape(-1)
    if wide.dtype.kind == "c":
        wide = wide.view(f"f{wide.itemsize // 2}")
    values = joined(tensor.chunks(elements))
    np.testing.assert_array_equal(values, wide.astype(np.float64).astype(values.dtype))
    assert values.dtype in (np.float32, np.float64)
    pieces = list(tensor.bits(elements))
    assert [len(piece) for piece in pieces[:-1]] == [elements] * (len(pieces) - 1)
    native = array.astype(array.dtype.newbyteorder("="))
    assert joined(pieces).tobytes() == native.tobytes() or not array.size


@given(
    array=ARRAYS, save=st.sampled_from([np.savez, np.savez_compressed]), elements=st.integers(1, 40), t=st.booleans()
)
def test_npz_is_read_equal_to_numpy(array, save, elements, t):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dump.npz"
        save(path, first=array.T if t else array, second=np.arange(3))
        with np.load(path, allow_pickle=False) as loaded:
            check(read_archive(path).tensors["first"], loaded["first"], elements)
        single = path.with_suffix(".npy")
        np.save(single, array.T if t else array)
        check(read_archive(single).tensors["dump"], np.load(single), elements)


@given(
    dims=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=5),
    offset=st.integers(0, 4),
    elements=st.integers(1, 50),
    kind=st.sampled_from(["float32", "int16", "float64", "bool"]),
)
def test_any_view_comes_in_logical_order(dims, offset, elements, kind):
    shape, stride = tuple(n for n, _ in dims), tuple(step for _, step in dims)
    length = offset + 1 + sum((n - 1) * step for n, step in dims if n)
    base = (np.arange(max(length, 1)) % 120).astype(kind)
    view = replace(Tensor.of("x", base), shape=shape, stride=stride, offset=offset)
    places = [offset + sum(i * step for i, step in zip(at, stride, strict=True)) for at in np.ndindex(*shape)]
    expected = base[places] if places else base[:0]
    assert joined(view.bits(elements)).tolist() == expected.tolist()
    assert view.array().shape == shape
    if view.size:
        assert view.array().reshape(-1).tolist() == expected.tolist()


def test_stored_arrays_are_mapped_not_copied(tmp_path):
    path = tmp_path / "dump.npz"
    np.savez(path, a=np.arange(10.0))
    array = read_archive(path).tensors["a"].array()
    assert not array.flags.owndata
    assert not array.flags.writeable


@pytest.mark.parametrize("held", [0, 1 << 30])
def test_packed_arrays_in_memory_and_beyond(held, tmp_path, monkeypatch):
    monkeypatch.setattr(storages, "IN_MEMORY", held)
    path = tmp_path / "dump.npz"
    array = np.random.default_rng(0).normal(size=(300, 700))
    np.savez_compressed(path, a=np.asfortranarray(array), zeros=np.zeros(2_000_000, dtype=np.float32))
    tensors = read_archive(path).tensors
    check(tensors["a"], array, 1000)
    assert sum(len(piece) for piece in tensors["zeros"].chunks(1 << 16)) == 2_000_000
    assert tensors["zeros"].array().shape == (2_000_000,)


def test_words_and_single_numbers_are_scalars(tmp_path):
    path = tmp_path / "dump.npz"
    np.savez(path, framework="verl", coded=np.bytes_(b"x"), epoch=3, lr=np.float32(0.5), names=np.array(["a", "b"]))
    archive = read_archive(path)
    assert archive.scalars == {"framework": "verl", "coded": "x", "epoch": 3, "lr": 0.5}
    assert list(archive.tensors) == ["epoch", "lr"]
    assert "names" in archive.notes[0].text


def in_order(numbers):
    """Return numbers as the order of their first appearance."""
    return [list(dict.fromkeys(numbers.tolist())).index(number) for number in numbers.tolist()]


def test_words_that_name_groups_are_numbered(tmp_path):
    path = tmp_path / "dump.npz"
    np.savez(path, uid=np.array(["p7", "p3", "p7"]), advantages=np.ones(3))
    assert in_order(read_archive(path).tensors["uid"].array()) == [0, 1, 0]


def test_records_are_left_out_with_a_note(tmp_path):
    path = tmp_path / "dump.npz"
    np.savez(path, table=np.zeros(3, dtype=[("a", "f4"), ("b", "i4")]), long=np.zeros(2, dtype="M8[s]"), x=np.ones(1))
    archive = read_archive(path)
    assert list(archive.tensors) == ["x"]
    assert len(archive.notes) == 2


def test_bfloat16_as_packages_of_low_precision_save_it(tmp_path):
    path = tmp_path / "dump.npy"
    raw = np.array([0x3F80, 0xC000, 0x7F80], dtype="<u2")
    np.save(path, raw)
    path.write_bytes(path.read_bytes().replace(b"'<u2'", b"'<V2'"))
    tensor = read_archive(path).tensors["dump"]
    assert tensor.dtype == "bfloat16"
    assert joined(tensor.chunks()).tolist() == [1.0, -2.0, math.inf]
    assert tensor.array().tolist() == raw.tolist()


def test_every_type_has_its_width():
    assert all(np.dtype(kind).itemsize in (1, 2, 4, 8, 16) for kind in RAW.values())


@pytest.mark.parametrize("kind", ["U3", "O", "M8[s]"])
def test_arrays_of_no_numbers_are_no_tensors(kind):
    with pytest.raises(DoctorError):
        Tensor.of("x", np.zeros(2, dtype=kind))


def rows_to(path: Path, records) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.mark.parametrize("held", [4, 1 << 20])
def test_a_dump_by_row(held, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "HELD", held)
    records = [
        {"content": "hello", "rewards": 1, "advantages": [0.5, -0.5], "token_ids": [[1, 2, 3]], "uid": "a"},
        {"content": "world", "rewards": math.nan, "advantages": [None, 1.5], "token_ids": [[4, 5]], "uid": "b"},
        {"content": "again", "rewards": 10**400, "advantages": [0, True], "token_ids": [], "uid": "a"},
    ]
    archive = read_archive(rows_to(tmp_path / "train_data_step12.jsonl", records))
    found = {name: tensor.array() for name, tensor in archive.tensors.items()}
    np.testing.assert_array_equal(found["rewards"], [1, math.nan, math.inf])
    np.testing.assert_array_equal(found["advantages"], [[0.5, -0.5], [math.nan, 1.5], [0, 1]])
    assert [found[f"token_ids.{row}"].tolist() for row in range(3)] == [[1, 2, 3], [4, 5], []]
    assert in_order(found["uid"]) == [0, 1, 0]
    assert "content" not in found
    assert len({archive.tensors[f"token_ids.{row}"].storage for row in range(3)}) == 1
    assert archive.scalars == {"step": 12}
    assert archive.container == "jsonl-dump"


def test_a_column_that_begins_late_or_a_line_that_is_torn(tmp_path):
    path = rows_to(tmp_path / "train_data_step1.jsonl", [{"rewards": 1.0}, {"rewards": 2.0, "lengths": 5}])
    path.write_text(path.read_text(encoding="utf-8") + '{"rewards": 3.0, "len', encoding="utf-8")
    archive = read_archive(path)
    assert archive.tensors["rewards"].array().tolist() == [1.0, 2.0]
    np.testing.assert_array_equal(archive.tensors["lengths"].array(), [math.nan, 5])
    assert sum(note.count for note in archive.notes) == 1


@pytest.mark.parametrize("text", ["", "[1, 2]\n", "not json\n", "[" * 100_000])
def test_rows_of_nothing_are_refused(text, tmp_path):
    path = tmp_path / "train_data_step1.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DoctorError):
        read_archive(path)


def test_a_table_of_completions(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "completions_00010.parquet"
    table = {
        "step": [10, 10, 10],
        "prompt": ["p", "q", "p"],
        "completion": ["x", "y", "z"],
        "advantage": [1.0, 0.0, -1.0],
    }
    parquet.write_table(arrow.table(table | {"log_probs": [[-1.0], [-2.0, -3.0], []]}), path)
    archive = read_archive(path)
    assert archive.tensors["advantage"].array().tolist() == [1.0, 0.0, -1.0]
    assert in_order(archive.tensors["prompt"].array()) == [0, 1, 0]
    assert [archive.tensors[f"log_probs.{row}"].array().tolist() for row in range(3)] == [[-1.0], [-2.0, -3.0], []]
    assert "completion" not in archive.tensors
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DoctorError):
        read_archive(path)


def test_a_table_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "completions_00010.parquet"
    path.write_bytes(b"PAR1 and more")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DoctorError) as caught:
        read_archive(path)
    assert "pip install" in caught.value.hint
    assert "\n" not in caught.value.message + caught.value.hint


def test_a_table_that_unpacks_to_billions_is_refused(tmp_path, monkeypatch):
    """A few bytes stand for as many equal values, and for as many equal texts."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "completions_00010.parquet"
    table = {"advantage": np.zeros(300), "log_probs": [np.zeros(1000)] * 300, "prompt": ["p" * 10_000] * 300}
    parquet.write_table(arrow.table(table | {"completion": ["x" * 10_000] * 300}), path, compression="zstd")
    assert path.stat().st_size < 1 << 20
    archive = read_archive(path)
    assert set(archive.tensors) == {"advantage", "log_probs", "prompt"}
    monkeypatch.setattr(rows, "MOST_VALUES", 1 << 18)
    with pytest.raises(DoctorError, match="unpacks"):
        read_archive(path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("tokens.idx", b"MMIDIDX\x00\x00" + bytes(30), "Megatron"),
        ("tokens.bin", bytes(64), "Megatron"),
        ("__0_0.distcp", bytes(64), "dcp_to_torch"),
    ],
)
def test_formats_of_large_clusters_are_refused_with_what_to_convert(name, content, words, tmp_path, cli):
    (tmp_path / "tokens.idx").write_bytes(b"MMIDIDX\x00\x00" + bytes(30))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DoctorError) as caught:
        read_archive(tmp_path / name)
    assert words in caught.value.message + caught.value.hint
    outcome = cli("analyze", tmp_path / name)
    assert outcome.code == ExitCode.NOTHING_TO_JUDGE
    assert words in outcome.err


def test_a_folder_of_a_distributed_checkpoint_says_how_to_convert(tmp_path, cli):
    (tmp_path / ".metadata").write_bytes(b"x")
    (tmp_path / "__0_0.distcp").write_bytes(bytes(64))
    assert "dcp_to_torch" in cli("analyze", tmp_path).err


def test_a_folder_is_read_in_the_order_of_its_numbers(tmp_path):
    for name in ("dump_10.npz", "dump_2.npz", "dump_1.npz"):
        np.savez(tmp_path / name, log_probs=np.ones(1))
    rows_to(tmp_path / "metrics.jsonl", [{"step": 1}])
    (tmp_path / "notes.pt").write_text("no tensors", encoding="utf-8")
    (tmp_path / "folder.npz").mkdir()
    assert [path.name for path in archives_in(tmp_path)] == ["dump_1.npz", "dump_2.npz", "dump_10.npz"]


def test_what_is_no_dump_is_told_apart(tmp_path):
    assert not is_archive(tmp_path / "absent.npz")
    assert not is_archive(tmp_path)
    path = rows_to(tmp_path / "train_data_step3.jsonl", [{"rewards": 1.0}])
    assert is_archive(path)
    assert not is_archive(rows_to(tmp_path / "metrics.jsonl", [{"rewards": 1.0}]))
    with pytest.raises(DoctorError):
        read_archive(tmp_path / "metrics.jsonl")
    with pytest.raises(DoctorError):
        read_archive(tmp_path / "absent.npz")


def index_to(path: Path, places) -> Path:
    path.write_text(json.dumps({"metadata": {}, "weight_map": places}), encoding="utf-8")
    return path


def test_a_split_checkpoint_is_one(tmp_path):
    fixtures = Path(__file__).resolve().parents[2] / "runs" / "dumps" / "fixtures"
    for name, fixture in (("a-00001-of-00002.bin", "trained"), ("a-00002-of-00002.bin", "one")):
        (tmp_path / name).write_bytes((fixtures / f"{fixture}.pt").read_bytes())
    places = {"model.0.weight": "a-00001-of-00002.bin", "model.2.weight": "a-00001-of-00002.bin"}
    index = index_to(tmp_path / "a.bin.index.json", places | {"tensor": "a-00002-of-00002.bin"})
    assert is_archive(index)
    tensors = read_archive(index).tensors
    assert list(tensors) == ["model.0.weight", "model.2.weight", "tensor"]
    assert tensors["model.0.weight"].storage == tensors["model.2.weight"].storage != tensors["tensor"].storage
    assert tensors["tensor"].array().shape == (3, 2)
    (tmp_path / "training_args.bin").write_bytes((fixtures / "module.pt").read_bytes())
    assert archives_in(tmp_path) == (index,)


@pytest.mark.parametrize(
    "places",
    [
        {"x": "../secret.npz"},
        {"x": "/etc/passwd"},
        {"x": "absent.safetensors"},
        {"x": "nul\0.npz"},
        {"x": ".."},
        {"x": "a.bin.index.json"},
        {"missing": "fine.npz"},
        {"x": 1},
        {},
        [],
    ],
    ids=str,
)
def test_an_index_that_leads_elsewhere_is_refused(places, tmp_path):
    (tmp_path / "below").mkdir()
    for path in (tmp_path / "secret.npz", tmp_path / "below" / "fine.npz"):
        np.savez(path, x=np.ones(1))
    with pytest.raises(DoctorError):
        read_archive(index_to(tmp_path / "below" / "a.bin.index.json", places))
