import gzip
import io
import json
import sys
import zlib
from types import SimpleNamespace

import pytest

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.readers import read, read_source, source
from tests.readers.conftest import gather

TEXT = "".join(f'{{"loss": {i}.5, "t": "ä"}}\n' for i in range(3))


def records(items):
    return sum(len(item.records) for item in items if hasattr(item, "records"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_every_unicode_encoding(reading, encoding):
    got = reading(TEXT.encode(encoding))
    assert got.container == "jsonl"
    assert got.records == [{"loss": 0.5}, {"loss": 1.5}, {"loss": 2.5}]
    assert got.texts["t"][0] == (0, "ä")


def test_utf16_over_many_blocks(reading):
    text = "step,loss\r\n" + "".join(f"{i},{i}.25\r\n" for i in range(30_000))
    got = reading(b"\xff\xfe" + text.encode("utf-16-le"))
    assert [record["loss"] for record in got.records] == [i + 0.25 for i in range(30_000)]


def test_gzip_whatever_the_name_also_of_several_members(reading):
    packed = gzip.compress(TEXT.encode()) + gzip.compress(TEXT.encode()) + b"\0" * 512
    got = reading(packed, name="log.txt")
    assert len(got.records) == 6
    assert got.notes == []


def test_a_torn_gzip_gives_what_can_be_had(reading):
    text = "".join(f'{{"loss": {i / 7}}}\n' for i in range(5_000)).encode()
    packed = gzip.compress(text)
    got = reading(packed[: len(packed) // 2])
    assert 1_000 < len(got.records) < 5_000
    assert got.says("compressed data is cut off")


def test_a_damaged_gzip_is_noted(reading):
    packed = bytearray(gzip.compress(TEXT.encode() * 5_000, compresslevel=0))
    packed[70_000:70_010] = b"\xff" * 10
    got = reading(bytes(packed))
    assert got.records
    assert got.says("compressed data is damaged")


def test_a_gzip_bomb_unpacks_in_small_blocks():
    engine = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = b"".join(engine.compress(b"x" * (1 << 20)) for _ in range(64)) + engine.flush()
    blocks = source.Source("bomb", io.BytesIO(packed)).blocks()
    assert max(map(len, blocks)) <= source.BLOCK


def test_zstd_without_a_module_says_what_to_install(reading, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(source, "import_module", missing)
    with pytest.raises(DoctorError, match="zstd") as error:
        reading(b"\x28\xb5\x2f\xfd" + b"abc")
    assert "pip install" in error.value.hint


class FakeZstd(io.RawIOBase):
    """Four bytes of magic, then plain text; b"!" stands for damage."""

    def __init__(self, stream):
        self.stream = stream
        stream.read(4)

    def read(self, size=-1):
        data = self.stream.read(size)
        if b"!" in data:
            raise FakeError("bad block")
        return data


class FakeError(Exception):
    pass


@pytest.mark.parametrize("old_api", [False, True])
def test_zstd_with_either_kind_of_module(reading, monkeypatch, old_api):
    if old_api:
        decompressor = SimpleNamespace(stream_reader=lambda stream, **_: FakeZstd(stream))
        module = SimpleNamespace(ZstdDecompressor=lambda: decompressor, ZstdError=FakeError)
    else:
        module = SimpleNamespace(ZstdFile=FakeZstd, ZstdError=FakeError)
    monkeypatch.setattr(source, "import_module", lambda _: module)
    assert len(reading(b"\x28\xb5\x2f\xfd" + TEXT.encode()).records) == 3
    with pytest.raises(DoctorError, match="empty"):
        reading(b"\x28\xb5\x2f\xfd!")


def test_a_line_without_end_is_skipped_and_lines_stay_right(reading, monkeypatch):
    monkeypatch.setattr(source, "LONGEST_LINE", 1 << 17)
    got = reading(b'{"a": 1}\n{"a": "' + b"x" * (1 << 19) + b'"}\n{"a": 3}\n', "jsonl")
    assert [record["a"] for record in got.records] == [1, 3]
    assert got.lines == [1, 3]
    assert got.skipped == 1
    got = reading(b'{"a": 1}\n' + b"x" * (1 << 19), "jsonl")
    assert (len(got.records), got.skipped) == (1, 1)


def test_a_document_beyond_the_limit_says_what_to_do(reading, monkeypatch):
    monkeypatch.setattr("ppo_doctor.readers.json_log.LARGEST", 1_000)
    with pytest.raises(DoctorError, match="larger than") as error:
        reading('[{"a": 1}, ' + '{"a": 2}, ' * 1_000 + '{"a": 3}]')
    assert "per line" in error.value.hint


def test_missing_empty_and_unknown_files_are_errors_with_exit_code_3(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "blank").write_bytes(b" \n\0\n")
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 9)
    for name, words in (("none", "not exist"), ("empty", "empty"), ("blank", "empty"), ("binary", "no known kind")):
        with pytest.raises(DoctorError, match=words) as error:
            read(tmp_path / name)
        assert error.value.code == ExitCode.NOTHING_TO_JUDGE
        assert name in error.value.message
    with pytest.raises(DoctorError, match="cannot be read"):
        read(tmp_path)
    with pytest.raises(DoctorError, match="cannot be read"):
        read("a\0b")


def test_a_file_is_read_lazily_and_closed(tmp_path):
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    container, items = read(str(path))
    assert container == "jsonl"
    assert records(list(items)) == 3


def test_stdin(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(TEXT.encode())))
    container, items = read("-")
    tables = [item for item in items if hasattr(item, "records")]
    assert (container, records(tables), tables[0].path) == ("jsonl", 3, "<stdin>")


LEADING = {
    "NULs": b"\0" * 65_536,
    "NULs, not a multiple of four": b"\0" * 65_539,
    "newlines": b"\n" * 65_536,
    "newlines of Windows": b"\r\n" * 40_000,
    "both": b"\0" * 70_000 + b"\n" * 70_000,
    "10 MB": b"\0" * (10 << 20),
}
ROWS = [{"step": step, "loss": 0.5 + step, "kl": 0.25} for step in range(20)]
FORMS = {
    "jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
    "json": json.dumps(ROWS, indent=1),
    "csv": "step,loss,kl\n" + "".join(f"{row['step']},{row['loss']},0.25\n" for row in ROWS),
    "console": "".join(f"{row}\n" for row in ROWS),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", LEADING)
def test_what_copytruncate_leaves_before_a_log_is_passed_over(reading, before, form):
    expected = reading(FORMS[form])
    assert (expected.container, len(expected.records)) == (form, 20)
    got = reading(LEADING[before] + FORMS[form].encode())
    assert (got.container, got.records) == (form, expected.records)
    lines = LEADING[before].count(b"\n")
    assert got.lines == [line + lines for line in expected.lines]
    assert got.says(f"{len(LEADING[before]):,} bytes")
    assert got.skipped == 0


def test_a_blank_line_or_two_is_nobodys_concern(reading):
    got = reading("\n\r\n" + FORMS["jsonl"])
    assert (len(got.records), got.lines[0], got.notes) == (20, 3, [])


class Endless(io.RawIOBase):
    """A stream that never ends; `byte` is all it holds after `start`."""

    def __init__(self, byte, start=b""):
        self.byte, self.start, self.given = byte, start, 0

    def read(self, size=-1):
        data, self.start = self.start or self.byte * size, b""
        self.given += len(data)
        return data


@pytest.mark.parametrize("byte", [b"\0", b"\n"])
def test_a_stream_of_nothing_ends(monkeypatch, byte):
    monkeypatch.setattr(source, "ENDLESS", 4 << 20)
    stream = Endless(byte)
    with pytest.raises(DoctorError, match="holds nothing"):
        read_source(source.Source("-", stream))
    assert stream.given < 5 << 20


def test_a_line_that_never_ends_costs_its_record_alone(monkeypatch):
    monkeypatch.setattr(source, "ENDLESS", 4 << 20)
    monkeypatch.setattr(source, "LONGEST_LINE", 1 << 20)
    stream = Endless(b"x", FORMS["jsonl"].encode())
    got = gather(*read_source(source.Source("-", stream)))
    assert len(got.records) == 20
    assert got.says("does not end")
    assert stream.given < 5 << 20


@pytest.mark.parametrize("size", [100, 1_000, 20_000, 100_000])
@pytest.mark.parametrize("form", ["jsonl", "csv", "console"])
def test_nuls_within_a_log_cost_the_lines_that_they_took(reading, form, size):
    """A crash leaves them behind half a line, and the program that is started again writes on behind them."""
    lines = FORMS[form].encode().splitlines(keepends=True)
    got = reading(b"".join(lines[:12]) + lines[12][:-4] + b"\0" * size + b"".join(lines[13:]))
    whole = reading(FORMS[form])
    behind = 14 if form == "csv" else 13  # of an object alone can be told that it is whole
    expected = [(n, record) for n, record in zip(whole.lines, whole.records, strict=True) if not 13 <= n <= behind]
    expected = [(n - (n > 13), record) for n, record in expected]
    assert (got.container, [*zip(got.lines, got.records, strict=True)]) == (form, expected)
    assert [(note.kind, note.source.line) for note in got.notes if f"{size:,} NULs" in note.text] == [("lost", 13)]


def test_nuls_at_the_end_of_a_log_are_told(reading):
    got = reading(FORMS["jsonl"].encode() + b"\0" * 5_000)
    assert (len(got.records), got.skipped) == (20, 0)
    assert got.says("log:21: 5,000 NULs")


@pytest.mark.parametrize("size", [1, 3])
def test_a_line_of_which_only_nuls_are_left_is_told(reading, size):
    lines = FORMS["jsonl"].encode().splitlines(keepends=True)
    lines[4] = b"\0" * size + b"\n"
    got = reading(b"".join(lines))
    assert len(got.records) == 19
    assert [(note.kind, note.source.line) for note in got.notes] == [("lost", 5)]


def test_few_nuls_are_nobodys_concern(reading):
    got = reading(FORMS["jsonl"].encode().replace(b"\n", b"\n\0\0", 1))
    assert (len(got.records), got.notes) == (20, [])
