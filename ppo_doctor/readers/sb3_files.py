"""Read evaluations.npz and the settings in saved models of Stable-Baselines3.

Nothing is unpickled: only the plain values in the JSON member `data` of a model are read. An archive that lost the
directory at its end is read member by member. Sources: stable_baselines3/common/callbacks.py (EvalCallback),
common/save_util.py.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ppo_doctor.model.run import SourceRef
from ppo_doctor.readers.table import EmbeddedConfig, Table
from ppo_doctor.readers.values import config_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.readers import Item
    from ppo_doctor.readers.notes import Ledger
    from ppo_doctor.readers.source import Source

#: Larger members are not read: they are no log, or a decompression bomb.
LARGEST_MEMBER = 256 << 20
_LOCAL = struct.Struct("<4s5H3I2H")
_MAGIC = b"PK\x03\x04"
_STORED, _DEFLATED = 0, 8
#: Flag of members whose size follows their data, and type of the extra field with 64-bit sizes.
_SIZE_FOLLOWS, _ZIP64 = 8, 1
_IN_EXTRA = 0xFFFFFFFF


def members(stream: BinaryIO, wanted: Callable[[str], bool], notes: Ledger) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of the wanted members of a zip; those that are damaged or too large become notes."""
    try:
        archive = zipfile.ZipFile(stream)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as error:
        notes.skip("the archive is cut off or damaged", detail=f"{error}; its members are read one after the other")
        stream.seek(0)
        yield from _one_by_one(stream, wanted, notes)
        return
    with archive:
        for info in archive.infolist():
            if not wanted(info.filename):
                continue
            try:
                content = _content(archive, info)
            except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, zlib.error, struct.error) as error:
                notes.skip("a member of the archive is damaged", detail=f"{info.filename}: {error}")
            else:
                yield info.filename, content


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return the content of a member.

    Raises:
        ValueError: the member is compressed in another way than trainers do, or unpacks to more than LARGEST_MEMBER.
    """
    if info.compress_type not in (_STORED, _DEFLATED):
        raise ValueError("a way of compression that no trainer uses")
    with archive.open(info) as member:
        content = member.read(LARGEST_MEMBER + 1)
    if len(content) > LARGEST_MEMBER:
        raise ValueError(f"larger than {LARGEST_MEMBER >> 20} MiB")
    return content


def _one_by_one(stream: BinaryIO, wanted: Callable[[str], bool], notes: Ledger) -> Iterator[tuple[str, bytes]]:
    """Yield the wanted members of an archive without a directory, until a local header lacks the size of its member."""
    while len(head := stream.read(_LOCAL.size)) == _LOCAL.size and head.startswith(_MAGIC):
        _, _, flags, method, _, _, checksum, packed, _, name_size, extra_size = _LOCAL.unpack(head)
        name = stream.read(name_size).decode("utf-8", "replace")
        size = _size(packed, stream.read(extra_size))
        if flags & _SIZE_FOLLOWS or size is None or size > LARGEST_MEMBER:
            notes.skip("a member of the archive is cut off", detail=name)
            return
        data = stream.read(size)
        content = _unpacked(data, method) if len(data) == size else None
        if content is not None and zlib.crc32(content) == checksum:
            if wanted(name):
                yield name, content
        elif wanted(name):
            notes.skip("a member of the archive is cut off or damaged", detail=name)


def _size(packed: int, extra: bytes) -> int | None:
    """Return the packed size of a member, from its zip64 extra field if it has one; None if the field is missing."""
    if packed != _IN_EXTRA:
        return packed
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        if kind == _ZIP64 and size >= 16 and at + 20 <= len(extra):
            return int(struct.unpack_from("<Q", extra, at + 12)[0])
        at += 4 + size
    return None


def _unpacked(data: bytes, method: int) -> bytes | None:
    """Return the unpacked content of a member, None if it is damaged, too large or compressed in another way."""
    if method == _STORED:
        return data
    if method != _DEFLATED:
        return None
    engine = zlib.decompressobj(wbits=-15)
    try:
        content = engine.decompress(data, LARGEST_MEMBER)
    except zlib.error:
        return None
    return content if engine.eof else None


#: Largest archive read from stdin or a compressed file.
LARGEST = 512 << 20
#: Array of shape [evaluations, episodes] → the name under which the trainer's logger writes its means.
_MEANS = {"results": "eval/mean_reward", "ep_lengths": "eval/mean_ep_length", "successes": "eval/success_rate"}
_STEPS, _STEP = "timesteps", "time/total_timesteps"
_SETTINGS = "data"
#: Exceptions that NumPy raises for a damaged header, which it parses as a Python literal, perhaps of Python 2.
_HEADER_ERRORS = (
    *(ValueError, EOFError, OSError, SyntaxError, MemoryError, OverflowError, TypeError),
    *(RecursionError, TokenError),
)
_PICKLED = ":serialized:"
#: A constant schedule, as SB3 describes it since 2.7.
_CONSTANT = re.compile(r"ConstantSchedule\(val=([-+0-9.eE]+)\)")


def read_evaluations(source: Source) -> Iterator[Item]:
    """Yield a table with the means of each evaluation at its step; arrays of another length are left out."""
    stream, _ = source.file(LARGEST)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    with stream:
        for name, content in members(stream, lambda name: name.endswith(".npy"), source.notes):
            array = _array(name, content, source.notes)
            if array is not None:
                arrays[name.removesuffix(".npy")] = array
    steps = arrays.get(_STEPS)
    if steps is not None and steps.ndim == 1:
        yield from _evaluations(steps, arrays, source)


def _evaluations(
    steps: np.ndarray[Any, Any], arrays: Mapping[str, np.ndarray[Any, Any]], source: Source
) -> Iterator[Table]:
    columns = {_STEP: steps.astype(np.float64)}
    for name, key in _MEANS.items():
        array = arrays.get(name)
        if array is not None and array.ndim >= 1 and len(array) == len(steps) and array.size:
            with np.errstate(all="ignore"):  # infinities are kept
                columns[key] = array.astype(np.float64).reshape(len(steps), -1).mean(axis=1)
    if len(columns) > 1:
        places = np.arange(len(steps))
        yield Table(path=source.path, records=places, lines=places + 1, columns=columns)


def _array(name: str, content: bytes, notes: Ledger) -> np.ndarray[Any, Any] | None:
    """Return the array in a .npy file, None with a note if it is damaged or does not hold numbers (never unpickles)."""
    try:
        array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except _HEADER_ERRORS as error:
        notes.skip("an array cannot be read", detail=f"{name}: {error}")
        return None
    if array.dtype.kind not in "biuf":
        notes.skip("an array holds no numbers", detail=name)
        return None
    return array


def read_model(source: Source) -> Iterator[Item]:
    """Yield the settings of a saved model: its attributes that are plain numbers and strings."""
    stream, _ = source.file(LARGEST)
    with stream:
        for name, content in members(stream, _SETTINGS.__eq__, source.notes):
            try:
                document = json.loads(content)
            except (ValueError, RecursionError) as error:
                source.notes.skip("the settings of the model are no JSON", detail=str(error))
                continue
            settings = _plain(document) if isinstance(document, dict) else {}
            if settings:
                where = SourceRef(path=source.path, key=name)
                yield EmbeddedConfig(values=config_values(settings), source=where)


def _plain(document: Mapping[str, Any]) -> dict[str, ConfigValue]:
    """Return the public attributes that need no unpickling; a constant schedule becomes its value."""
    settings: dict[str, ConfigValue] = {}
    for key, value in document.items():
        if key.startswith("_"):
            continue
        if value is None or isinstance(value, (str, int, float)):
            settings[key] = value
        elif isinstance(value, dict) and _PICKLED in value and (match := _CONSTANT.search(_described(value))):
            settings[key] = float(match[1])
    return settings


def _described(value: Mapping[str, Any]) -> str:
    """Return the description of a pickled object: the attributes that SB3 also writes as text."""
    return " ".join(str(part) for key, part in value.items() if not key.startswith(":"))
