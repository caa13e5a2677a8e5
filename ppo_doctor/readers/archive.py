"""Members of a zip file, also of one whose directory, which stands at its end, was cut off."""

from __future__ import annotations

import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ppo_doctor.readers.notes import Ledger

#: A larger member is not read: whoever wrote it meant no log, or harm.
LARGEST = 256 << 20
_LOCAL = struct.Struct("<4s5H3I2H")
_MAGIC = b"PK\x03\x04"
_STORED, _DEFLATED = 0, 8
#: Flag of members whose size stands behind them, and the extra field that holds sizes of 64 bits.
_SIZE_BEHIND, _ZIP64 = 8, 1
_IN_EXTRA = 0xFFFFFFFF


def members(stream: BinaryIO, wanted: Callable[[str], bool], notes: Ledger) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of the wanted members; those that are damaged or too large become notes."""
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
    """Return a member; its size is what comes out, not what the archive says."""
    if info.compress_type not in (_STORED, _DEFLATED):
        raise ValueError("a way of compression that no trainer uses")
    with archive.open(info) as member:
        content = member.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"larger than {LARGEST >> 20} MiB")
    return content


def _one_by_one(stream: BinaryIO, wanted: Callable[[str], bool], notes: Ledger) -> Iterator[tuple[str, bytes]]:
    """Walk from local header to local header, as far as they hold the sizes of their members."""
    while len(head := stream.read(_LOCAL.size)) == _LOCAL.size and head.startswith(_MAGIC):
        _, _, flags, method, _, _, checksum, packed, _, name_size, extra_size = _LOCAL.unpack(head)
        name = stream.read(name_size).decode("utf-8", "replace")
        size = _size(packed, stream.read(extra_size))
        if flags & _SIZE_BEHIND or size is None or size > LARGEST:
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
    """Return the packed size of a member, which may stand in an extra field behind its unpacked size."""
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
    if method == _STORED:
        return data
    if method != _DEFLATED:
        return None
    engine = zlib.decompressobj(wbits=-15)
    try:
        content = engine.decompress(data, LARGEST)
    except zlib.error:
        return None
    return content if engine.eof else None
