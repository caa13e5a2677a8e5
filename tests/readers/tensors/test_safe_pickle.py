"""Files made to do harm are refused with a message; nothing in them is executed, and memory stays bounded."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import random
import stat
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.readers.tensors import pickle_opcodes, read_archive, storages, torch_files
from ppo_doctor.readers.tensors.torch_files import MAGIC

FIXTURES = Path(__file__).resolve().parents[2] / "runs" / "dumps" / "fixtures"


def torch_zip(path: Path, pickled: bytes, storages: dict[str, bytes] | None = None) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3\n")
        for key, data in (storages or {}).items():
            archive.writestr(f"archive/data/{key}", data)
    return path


def refused(path: Path) -> DoctorError:
    with pytest.raises(DoctorError) as caught:
        for tensor in read_archive(path).tensors.values():
            list(tensor.bits())
    assert caught.value.code == ExitCode.NOTHING_TO_JUDGE
    assert caught.value.hint
    assert str(path) in caught.value.message
    assert len(caught.value.message) < 500 + len(str(path))
    return caught.value


def touching(sentinel: Path) -> dict[str, bytes]:
    """Pickles that create the sentinel when they are unpickled, each by another way of calling."""
    command = f"touch {sentinel}".encode()
    text = b"V" + command + b"\n"
    short = b"\x8c" + bytes([len(command)]) + command
    inside = pickle.dumps(_Touches(str(sentinel)), protocol=2)
    return {
        "reduce": pickle.dumps(_Touches(str(sentinel)), protocol=2),
        "reduce-4": pickle.dumps(_Touches(str(sentinel)), protocol=4),
        "global": b"cposix\nsystem\n(" + text + b"tR.",
        "stack-global": b"\x80\x04\x8c\x05posix\x8c\x06system\x93" + short + b"\x85R.",
        "inst": b"(" + text + b"iposix\nsystem\n.",
        "obj": b"(cposix\nsystem\n" + text + b"o.",
        "newobj": b"\x80\x02csubprocess\nPopen\n" + text + b"\x85\x81.",
        "newobj-ex": b"\x80\x04csubprocess\nPopen\n" + text + b"\x85}\x92.",
        "build": b"\x80\x02ccollections\nOrderedDict\n)R}(V__setstate__\ncposix\nsystem\nsb" + text + b"b.",
        "build-namespace": b"\x80\x02cargparse\nNamespace\n)\x81}V__reduce__\ncposix\nsystem\nsb.",
        "hidden-in-list": b"\x80\x02]" + inside[2:-1] + b"a.",
        "popped": inside[:-1] + b"0N.",
        "key-of-dict": b"\x80\x02}" + inside[2:-1] + b"Ns.",
        "eval": b"c__builtin__\neval\n(V__import__('os').system('" + command + b"')\ntR.",
        "getattr": b"cbuiltins\ngetattr\n(cos\nsystem\nVx\ntR.",
        "nested-name": b"\x80\x04\x8c\x05torch\x8c\x14serialization.os.system\x93" + short + b"\x85R.",
        "persistent": b"\x80\x02cposix\nsystem\n" + text + b"\x85RQ.",
        "rebuild-of-evil": b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(cposix\nsystem\nctorch\nTensor\n("
        + text
        + b"tNtR.",
        "default-factory": b"\x80\x02ccollections\ndefaultdict\n(cposix\nsystem\ntR.",
        "encode": b"\x80\x02c_codecs\nencode\n(Vabc\nVrot13\ntR.",
        "ext1": b"\x80\x02\x82\x01.",
        "ext4": b"\x80\x02\x84\x01\x00\x00\x00.",
        "buffer": b"\x80\x05\x97.",
        "text-persistent": b"P0\n.",
    }


class _Touches:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("way", sorted(touching(Path("x"))))
def test_nothing_in_a_pickle_is_executed(way, tmp_path):
    sentinel = tmp_path / "executed"
    refused(torch_zip(tmp_path / "evil.pt", touching(sentinel)[way]))
    assert not sentinel.exists()


@pytest.mark.parametrize(
    "way", ["reduce", "reduce-4", "global", "stack-global", "inst", "obj", "hidden-in-list", "popped"]
)
def test_the_pickles_above_do_execute_when_they_are_unpickled(way, tmp_path):
    """Else the test above could not fail."""
    sentinel = tmp_path / "executed"
    code = "import pickle, sys; pickle.loads(sys.stdin.buffer.read())"
    subprocess.run([sys.executable, "-c", code], input=touching(sentinel)[way], capture_output=True, check=False)
    assert sentinel.exists()


def test_a_plain_pickle_is_never_opened(tmp_path):
    sentinel = tmp_path / "executed"
    path = tmp_path / "evil.pt"
    path.write_bytes(touching(sentinel)["reduce"])
    refused(path)
    assert not sentinel.exists()


def test_the_old_format_executes_nothing_either(tmp_path):
    sentinel = tmp_path / "executed"
    path = tmp_path / "evil.pt"
    version, system = pickle.dumps(1001, protocol=2), pickle.dumps({"little_endian": True}, protocol=2)
    path.write_bytes(MAGIC + version + system + touching(sentinel)["reduce"] + pickle.dumps([], protocol=2))
    refused(path)
    assert not sentinel.exists()


def test_every_opcode_is_followed_or_refused(tmp_path):
    """No opcode of any protocol reaches Python's own unpickler or fails otherwise than by a message."""
    for opcode in pickletools.opcodes:
        for before in (b"", b"(", b"N", b"NN", b"]N", b"}NN", b"](", b"(NN"):
            path = torch_zip(tmp_path / "one.pt", b"\x80\x04" + before + opcode.code.encode("latin-1") + b"\0\0\0\0.")
            try:
                read_archive(path)
            except DoctorError as error:
                assert error.hint


def tensor_pickle(shape, stride, offset=0, count=4, kind="FloatStorage", key="0") -> bytes:
    def number(n):
        return pickle.dumps(n, protocol=2)[2:-1]

    def several(values):
        return b"(" + b"".join(map(number, values)) + b"t"

    storage = (
        b"(" + number("storage") + f"ctorch\n{kind}\n".encode() + number(key) + number("cpu") + number(count) + b"tQ"
    )
    arguments = (
        b"(" + storage + number(offset) + several(shape) + several(stride) + b"\x89ccollections\nOrderedDict\n)Rt"
    )
    return b"\x80\x02}" + number("t") + b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"Rs."


def test_a_tensor_by_hand_is_read(tmp_path):
    data = np.arange(4, dtype="<f4").tobytes()
    archive = read_archive(torch_zip(tmp_path / "fine.pt", tensor_pickle((2, 2), (1, 2)), {"0": data}))
    assert archive.tensors["t"].array().tolist() == [[0, 2], [1, 3]]


@pytest.mark.parametrize(
    "claim",
    [
        {"shape": (10**18,), "stride": (1,)},
        {"shape": (10**18,), "stride": (0,)},
        {"shape": (10**9, 10**9), "stride": (0, 0)},
        {"shape": (2**70,), "stride": (1,)},
        {"shape": (10**4000,), "stride": (10**4000,)},
        {"shape": (2, 2), "stride": (1, 3)},
        {"shape": (2, 2), "stride": (1, -1)},
        {"shape": (2, 2), "stride": (1,)},
        {"shape": (-2,), "stride": (1,)},
        {"shape": (True,), "stride": (1,)},
        {"shape": (2.0,), "stride": (1,)},
        {"shape": ("2",), "stride": (1,)},
        {"shape": (1,) * 40, "stride": (1,) * 40},
        {"shape": (4,), "stride": (1,), "offset": 1},
        {"shape": (1,), "stride": (1,), "offset": 10**18},
        {"shape": (1,), "stride": (1,), "offset": -1},
        {"shape": (4,), "stride": (1,), "count": 10**18},
        {"shape": (4,), "stride": (1,), "kind": "DoubleStorage"},
        {"shape": (4,), "stride": (1,), "kind": "EvilStorage"},
        {"shape": (4,), "stride": (1,), "key": "1"},
        {"shape": (4,), "stride": (1,), "key": "../data.pkl"},
    ],
    ids=str,
)
def test_claims_beyond_the_storage_are_refused(claim, tmp_path):
    refused(torch_zip(tmp_path / "claim.pt", tensor_pickle(**claim), {"0": bytes(16)}))


def laughs(leaf: bytes) -> bytes:
    """Return lists of fifty references to one list, forty deep."""
    return b"\x80\x02]q\x00" + leaf + b"".join(b"](" + b"h%c" % n * 50 + b"eq%c" % (n + 1) for n in range(40)) + b"."


BOMBS = {
    "deep-lists": b"\x80\x02" + b"]" * 40_000 + b"a" * 39_999 + b".",
    "deep-tuples": b"\x80\x02N" + b"\x85" * 40_000 + b".",
    "deep-tuple-as-key": b"\x80\x02}N" + b"\x85" * 40_000 + b"Ns.",
    "deep-tuple-in-set": b"\x80\x04\x8fN(" + b"N" + b"\x85" * 40_000 + b"\x90.",
    "laughs": laughs(b"Na"),
    "list-in-itself": b"\x80\x02]q\x00(h\x00h\x00e.",
    "containers": b"\x80\x02" + b"}" * 60_000 + b".",
    "opcodes": b"\x80\x02" + b"N0" * 60_000 + b"N.",
    "long-text": b"\x80\x02X\xff\xff\xff\x7fabc.",
    "long-text-8": b"\x80\x04\x8d" + struct.pack("<Q", 10**18) + b"abc.",
    "long-bytes": b"\x80\x04\x8e" + struct.pack("<Q", 2**63 - 1) + b"abc.",
    "copies": b"\x80\x02((" + b"N" * 100_000 + b"tq\x00" + b"ctorch\nSize\nq\x01" + b"h\x01h\x00\x85R0" * 5_000 + b"t.",
    "memo": b"\x80\x02Nr\xff\xff\xff\xff.",
    "huge-memo-get": b"\x80\x02j\xff\xff\xff\xff.",
}


@pytest.mark.parametrize("bomb", sorted(BOMBS))
def test_pickle_bombs_end_soon(bomb, tmp_path, peak, monkeypatch):
    monkeypatch.setattr(pickle_opcodes, "MOST_OPCODES", 200_000 if bomb.startswith("deep") else 40_000)
    monkeypatch.setattr(pickle_opcodes, "MOST_CONTAINERS", 200_000 if bomb.startswith("deep") else 20_000)
    monkeypatch.setattr(torch_files, "MOST_VISITS", 40_000)
    path = torch_zip(tmp_path / "bomb.pt", BOMBS[bomb])
    if bomb == "memo":  # a memo is a mapping here, so that a far entry costs nothing
        assert read_archive(path).scalars == {"": None}
    else:
        with peak(150):
            refused(path)


@pytest.mark.parametrize("leaf", [b"Na", b"X\x01\x00\x00\x00wa"], ids=["nothing", "a word"])
def test_what_names_say_is_asked_as_often_as_a_visit_may_take(leaf, tmp_path, monkeypatch):
    """To take a name apart takes fifteen times as long as a visit: of half a million names, ten seconds."""
    asked = []
    monkeypatch.setattr(torch_files, "MOST_VISITS", 6_000)
    monkeypatch.setattr(torch_files, "role", asked.append)
    refused(torch_zip(tmp_path / "bomb.pt", laughs(leaf)))
    assert len(asked) <= 6_000 / 15


def test_a_huge_number_is_no_scalar(tmp_path):
    data = (1 << 80_000).to_bytes(10_001, "little")
    pickled = b"\x80\x02}X\x01\x00\x00\x00n\x8b" + struct.pack("<i", len(data)) + data + b"s."
    archive = read_archive(torch_zip(tmp_path / "n.pt", pickled))
    assert archive.scalars == {}
    assert archive.notes


@pytest.fixture
def peak():
    """A limit on what Python and NumPy allocate inside, in MB."""
    import tracemalloc
    from contextlib import contextmanager

    @contextmanager
    def limit(megabytes):
        tracemalloc.start()
        try:
            yield
            assert tracemalloc.get_traced_memory()[1] < megabytes << 20
        finally:
            tracemalloc.stop()

    return limit


def npy(descr: str, shape: str, data: bytes = b"", *, fortran: str = "False") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


@pytest.mark.parametrize(
    "content",
    [
        npy("'<f4'", "(1000000000000000000,)", bytes(16)),
        npy("'<f4'", "(4, -1)", bytes(16)),
        npy("'<f4'", "4", bytes(16)),
        npy("'<f4'", "(4.0,)", bytes(16)),
        npy("'<f4'", "(5,)", bytes(16)),
        npy("'<f4'", "(3,)", bytes(16)),
        npy("'<f4'", "(" + "9" * 5000 + ",)", bytes(16)),
        npy("'<f4'", "(" + "(" * 3000 + ")" * 3000 + ",)", bytes(16)),
        npy("'<f4'", "__import__('os').getpid(),", bytes(16)),
        npy("'|O'", "(2,)", pickle.dumps([1, 2])),
        npy("'O'", "(2,)", pickle.dumps([1, 2])),
        npy("'<f4'", "(4,)", bytes(16))[:40],
        npy("'<f4'", "(4,)", bytes(16))[:9],
        b"\x93NUMPY\x01\x00\xff\xff" + bytes(64),
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(64),
        b"\x93NUMPY\x09\x00\x10\x00" + bytes(64),
    ],
    ids=lambda content: repr(content[10:70]),
)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_arrays_that_lie_are_refused(content, suffix, tmp_path, peak):
    path = tmp_path / f"array{suffix}"
    if suffix == ".npz":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.npy", content)
    else:
        path.write_bytes(content)
    with peak(50):
        refused(path)


def test_object_arrays_are_not_unpickled(tmp_path):
    sentinel = tmp_path / "executed"
    path = tmp_path / "objects.npz"
    rows = np.empty(1, dtype=object)
    rows[0] = _Touches(str(sentinel))
    np.savez(path, fine=np.ones(3), rows=rows)
    error = refused(path)
    assert "rows" in error.message
    assert not sentinel.exists()


def zip_of(path: Path, members, compression=zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for info, data in members:
            archive.writestr(info, data)
    return path


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path, peak, monkeypatch):
    monkeypatch.setattr(storages, "UNPACKED", 1 << 20)
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, a=np.zeros(4_000_000, dtype=np.uint8))
    with peak(30):
        refused(path)


def test_a_member_that_is_larger_than_it_says_stops_there(tmp_path, peak):
    content = npy("'|u1'", "(1000,)", bytes(1000))
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = engine.compress(content + bytes(200 << 20)) + engine.flush()
    path = tmp_path / "liar.npz"
    write_raw(path, b"a.npy", packed, len(content), zlib.crc32(content), method=8)
    with peak(30):
        refused(path)


def write_raw(path, name, packed, size, checksum, *, method=0, flags=0, claimed=None, offset=0, attributes=0):
    """Write a zip of one member, with whatever its headers are to say."""
    claimed = len(packed) if claimed is None else claimed
    fields = (20, flags, method, 0, 0, checksum, claimed, size, len(name), 0)
    local = b"PK\3\4" + struct.pack("<5H3I2H", *fields) + name
    entry = b"PK\1\2" + struct.pack("<6H3I5H2I", 0x314, *fields, 0, 0, 0, attributes, offset) + name
    end = b"PK\5\6" + struct.pack("<4H2IH", 0, 0, 1, 1, len(entry), len(local) + len(packed), 0)
    path.write_bytes(local + packed + entry + end)


@pytest.mark.parametrize(
    "lie",
    [
        {"method": 12},
        {"flags": 1},
        {"claimed": 10**9},
        {"claimed": 50},
        {"offset": 10**9},
        {"offset": 7},
        {"attributes": (stat.S_IFLNK | 0o777) << 16},
        {"method": 8},
    ],
    ids=str,
)
def test_members_that_lie_are_refused(lie, tmp_path):
    content = npy("'<f4'", "(4,)", bytes(16))
    path = tmp_path / "x.npz"
    write_raw(path, b"a.npy", content, len(content), zlib.crc32(content), **lie)
    refused(path)
    write_raw(path, b"a.npy", content, len(content), zlib.crc32(content))
    assert list(read_archive(path).tensors) == ["a"]


def test_a_member_without_a_name_is_no_crash(tmp_path):
    content = npy("'<f4'", "(4,)", bytes(16))
    write_raw(tmp_path / "x.npz", b"", content, len(content), zlib.crc32(content))
    assert read_archive(tmp_path / "x.npz").tensors == {}


def test_members_that_stand_twice_or_overlap_are_refused(tmp_path):
    content = npy("'<f4'", "(4,)", bytes(16))
    with pytest.warns(UserWarning, match="Duplicate"):
        refused(zip_of(tmp_path / "twice.npz", [("a.npy", content), ("a.npy", content)]))
    path = zip_of(tmp_path / "overlap.npz", [("a.npy", content), ("b.npy", content)])
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\1\2")
    struct.pack_into("<I", data, at + 42, 0)  # the second entry points at the first member
    data[at + 46 : at + 51] = b"a.npy"
    path.write_bytes(data)
    refused(path)


def test_names_that_lead_elsewhere_lead_nowhere(tmp_path):
    content = npy("'<f4'", "(4,)", bytes(16))
    (tmp_path / "inner").mkdir()
    path = zip_of(tmp_path / "inner" / "x.npz", [("../../up.npy", content)])
    assert list(read_archive(path).tensors) == ["../../up"]
    assert sorted(found.name for found in tmp_path.rglob("*")) == ["inner", "x.npz"]


def test_a_directory_of_gigabytes_is_not_read(tmp_path):
    path = zip_of(tmp_path / "x.npz", [("a.npy", npy("'<f4'", "(4,)", bytes(16)))])
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.rindex(b"PK\5\6") + 12, 3 << 30)
    path.write_bytes(data)
    refused(path)


def safetensors(header: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(begin, end, shape=(2,), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


SAFETENSORS = {
    "overlap": safetensors({"a": entry(0, 8), "b": entry(4, 12)}, bytes(12)),
    "same-place": safetensors({"a": entry(0, 8), "b": entry(0, 8)}, bytes(8)),
    "hole": safetensors({"a": entry(0, 8), "b": entry(12, 20)}, bytes(20)),
    "tail": safetensors({"a": entry(0, 8)}, bytes(9)),
    "truncated": safetensors({"a": entry(0, 8)}, bytes(7)),
    "backwards": safetensors({"a": entry(8, 0)}, bytes(8)),
    "negative": safetensors({"a": entry(-8, 0)}, bytes(8)),
    "too-small": safetensors({"a": entry(0, 8, (3,))}, bytes(8)),
    "elements": safetensors({"a": entry(0, 8, (10**18,))}, bytes(8)),
    "digits": safetensors({"a": entry(0, 8, (10**4000, 10**4000))}, bytes(8)),
    "negative-shape": safetensors({"a": entry(0, 8, (-1, -2))}, bytes(8)),
    "bool-shape": safetensors({"a": entry(0, 8, (2, True))}, bytes(8)),
    "dimensions": safetensors({"a": entry(0, 8, (1,) * 40 + (2,))}, bytes(8)),
    "header-length": safetensors({"a": entry(0, 8)}, bytes(8), length=10**18),
    "header-cut": safetensors({"a": entry(0, 8)}, bytes(8), length=20),
    "twice": safetensors(b'{"a":' + b'{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a"'
                         b':{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(8)),
    "deep": safetensors(b"[" * 100_000 + b"]" * 100_000),
    "list": safetensors([1]),
    "no-place": safetensors({"a": {"dtype": "F32", "shape": [2]}}, bytes(8)),
    "empty": b"",
    "short": b"\x01\x02",
}  # fmt: skip


@pytest.mark.parametrize("lie", sorted(SAFETENSORS))
def test_safetensors_that_lie_are_refused(lie, tmp_path, peak):
    path = tmp_path / "x.safetensors"
    path.write_bytes(SAFETENSORS[lie])
    with peak(50):
        refused(path)


def test_safetensors_by_hand_are_read(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(
        safetensors(
            {"b": entry(8, 16), "a": entry(0, 8), "e": entry(8, 8, (0, 3))}, np.arange(4, dtype="<f4").tobytes()
        )
    )
    tensors = read_archive(path).tensors
    assert {name: tensor.array().tolist() for name, tensor in tensors.items()} == {"a": [0, 1], "b": [2, 3], "e": []}


DAMAGED = [
    "views.pt",
    "nested-protocol-4.pt",
    "trained.pt",
    "deflated.pt",
    "random.pt",
    "safe.safetensors",
    "views.npz",
]


@pytest.mark.parametrize("name", DAMAGED)
def test_a_file_that_is_cut_off_anywhere_is_refused(name, tmp_path):
    whole = (FIXTURES / name).read_bytes()
    path = tmp_path / name
    for end in sorted(random.Random(name).sample(range(len(whole)), 60)):
        path.write_bytes(whole[:end])
        refused(path)


@pytest.mark.parametrize("name", DAMAGED)
def test_bytes_that_differ_never_crash(name, tmp_path):
    """A flipped byte gives another number, a note or a refusal; never another exception."""
    whole = (FIXTURES / name).read_bytes()
    path = tmp_path / name
    rng = random.Random(name)
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 1, 5))):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            for tensor in read_archive(path).tensors.values():
                list(tensor.chunks(100))
        except DoctorError as error:
            assert error.message


def test_a_file_that_shrinks_after_it_was_opened_is_refused(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.ones(1000))
    archive = read_archive(path)
    assert archive.tensors["x"].array().sum() == 1000
    archive = read_archive(path)
    np.save(path, np.ones(10))
    with pytest.raises(DoctorError):
        archive.tensors["x"].array()


def text(word):
    return b"X" + struct.pack("<I", len(word)) + word


@pytest.mark.parametrize("letters", [1_000_000, 1_000])
def test_names_that_grow_with_every_container_end_soon(letters, tmp_path, peak):
    """A name is the path to a value: a mapping that holds itself under a long key would fill the memory."""
    path = torch_zip(tmp_path / "names.pt", b"\x80\x02}q\x00(" + text(b"a" * letters) + b"h\x00u.")
    with peak(20):
        refused(path)


def test_many_short_names_cost_what_they_weigh(tmp_path, peak, monkeypatch):
    monkeypatch.setattr(torch_files, "MOST_VISITS", 20_000)
    layers = b"".join(
        b"}q%c(" % (n + 1) + b"".join(text(b"%04d" % i + b"a" * 900) + b"h%c" % n for i in range(30)) + b"u"
        for n in range(4)
    )
    path = torch_zip(tmp_path / "names.pt", b"\x80\x02}q\x00" + layers + b".")
    with peak(20):
        refused(path)


def test_a_list_of_as_many_numbers_as_a_batch_has_tokens_is_read(tmp_path):
    numbers = b"(" + b"K\x01" * 600_000 + b"e"
    archive = read_archive(torch_zip(tmp_path / "n.pt", b"\x80\x02}" + text(b"mask") + b"]" + numbers + b"s."))
    assert archive.tensors["mask"].shape == (600_000,)
