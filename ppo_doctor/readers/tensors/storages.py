"""The bytes of a tensor: in a mapped file, in a part of one, or deflated in a member of a zip file."""

from __future__ import annotations

import os
import stat
import struct
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.readers.tensors.tensor import DAMAGED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ppo_doctor.readers.tensors.tensor import AnyArray, Storage

#: Packed bytes handed to the unpacker at a time.
_PIECE = 1 << 18
#: Mapped bytes that are read before the length of the file is checked again.
_LOOKED_AT = 1 << 20
#: Largest deflated member that is unpacked into memory; a larger one is unpacked into an unnamed file.
IN_MEMORY = 64 << 20
_CHANGED = "a run may be writing it; copy it, or wait until it is written"


class MappedFile:
    """A file whose bytes are mapped on first use."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self._name = str(path)
        self._bytes: AnyArray | None = None

    def view(self) -> AnyArray:
        """Return all bytes; raises DoctorError if the file was truncated or removed since it was opened."""
        try:
            if self._bytes is None:
                held = np.memmap(self.path, dtype=np.uint8, mode="r") if self.size else np.empty(0, np.uint8)
                self._bytes = np.asarray(held)[: self.size]
            length = min(len(self._bytes), os.stat(self._name).st_size)  # noqa: PTH116 - a third of the time
        except (OSError, ValueError) as error:
            raise DoctorError(f"{self.path} cannot be read any more: {error}", hint=_CHANGED) from error
        if length < self.size:  # reading mapped bytes beyond the end would kill the process
            raise DoctorError(f"{self.path} became shorter while it was read", hint=_CHANGED)
        return self._bytes

    def stream(self, start: int, stop: int, size: int) -> Iterator[AnyArray]:
        """Yield slices of the mapped bytes; the length of the file is checked again after each megabyte."""
        held, unseen = self.view(), _LOOKED_AT
        for at in range(start, stop, size):
            unseen -= size
            if unseen < 0:
                held, unseen = self.view(), _LOOKED_AT
            yield held[at : min(at + size, stop)]


class Part:
    """The bytes of another storage from `start` to `stop`."""

    def __init__(self, whole: Storage, start: int, stop: int) -> None:
        self._whole = whole
        self._start = start
        self._stop = stop

    def view(self) -> AnyArray:
        """Return the bytes of this part."""
        return self._whole.view()[self._start : self._stop]

    def stream(self, start: int, stop: int, size: int) -> Iterator[AnyArray]:
        """Yield pieces; positions are relative to the beginning of this part."""
        yield from self._whole.stream(self._start + start, self._start + stop, size)


class Packed:
    """A deflated member of a zip file, unpacked piece by piece."""

    def __init__(self, where: str, packed: Storage, size: int, checksum: int) -> None:
        self._where = where
        self._packed = packed
        self._size = size
        self._checksum = checksum
        self._whole: AnyArray | None = None

    def view(self) -> AnyArray:
        """Return all bytes, unpacked into memory, or into an unnamed temporary file if they are many."""
        if self._whole is None:
            self._whole = self._unpack()
        return self._whole

    def stream(self, start: int, stop: int, size: int) -> Iterator[AnyArray]:
        """Yield pieces; the bytes before `start` are unpacked and dropped."""
        if self._whole is not None:
            yield from (self._whole[at : min(at + size, stop)] for at in range(start, stop, size))
            return
        held, position = bytearray(), 0
        for piece in self._unpacked(to_the_end=stop == self._size):
            held += piece[max(0, start - position) : max(0, stop - position)]
            position += len(piece)
            while len(held) >= size:
                yield np.frombuffer(bytes(held[:size]), dtype=np.uint8)
                del held[:size]
            if position >= stop and stop != self._size:
                break
        if held:
            yield np.frombuffer(bytes(held), dtype=np.uint8)

    def _unpack(self) -> AnyArray:
        if self._size <= IN_MEMORY:
            return np.frombuffer(b"".join(self._unpacked(to_the_end=True)), dtype=np.uint8)
        with tempfile.TemporaryFile() as file:
            for piece in self._unpacked(to_the_end=True):
                file.write(piece)
            file.flush()
            return np.asarray(np.memmap(file, dtype=np.uint8, mode="r"))

    def _unpacked(self, *, to_the_end: bool) -> Iterator[bytes]:
        """Yield the unpacked bytes; raises DoctorError if their size or checksum differs from the directory."""
        engine, count, checksum = zlib.decompressobj(wbits=-15), 0, 0
        length = len(self._packed.view())
        for packed in self._packed.stream(0, length, _PIECE):
            piece, rest = b"", packed.tobytes()
            while (rest or len(piece) == _PIECE) and not engine.eof:
                try:
                    piece = engine.decompress(rest, _PIECE)
                except zlib.error as error:
                    raise DoctorError(f"{self._where} cannot be unpacked: {error}", hint=DAMAGED) from error
                rest = engine.unconsumed_tail
                count += len(piece)
                checksum = zlib.crc32(piece, checksum)
                if count > self._size:
                    raise DoctorError(f"{self._where} is larger than the archive says", hint=DAMAGED)
                if piece:
                    yield piece
        if to_the_end and (count != self._size or checksum != self._checksum):
            raise DoctorError(f"{self._where} is not what the archive says: size or checksum differ", hint=DAMAGED)


#: Largest directory of a zip file in bytes.
LARGEST_DIRECTORY = 64 << 20
#: Most bytes to which the members of a file unpack: 1 GiB, or 200 times the size of the file if that is more.
UNPACKED, RATIO = 1 << 30, 200
_END = struct.Struct("<4s4H2IH")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_LOCAL = struct.Struct("<4s5H3I2H")
_UTF8, _ENCRYPTED = 0x800, 0x1
_ERRORS = (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error, OverflowError, IndexError)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Member:
    """One member of a zip file; `size` is its unpacked size in bytes."""

    size: int
    data: Storage


def members(file: MappedFile) -> Mapping[str, Member]:
    """Return the members of a zip file by name; nothing is unpacked.

    Raises DoctorError for a file that is cut off, for members that overlap, occur twice, are links, are encrypted or
    are compressed in an unusual way, and for more unpacked bytes than dumps have.
    """
    _check_directory(file)
    infos = [info for info in _directory(file.path) if not info.filename.endswith("/")]
    spans = [_span(file, info) for info in infos]
    _check_overlap(file.path, spans)
    _check_bulk(file, infos)
    found: dict[str, Member] = {}
    for info, (start, stop) in zip(infos, spans, strict=True):
        name = info.filename
        if name in found:
            raise DoctorError(f"{file.path} holds {name} twice", hint=DAMAGED)
        part, stored = Part(file, start, stop), info.compress_type == zipfile.ZIP_STORED
        data = part if stored else Packed(f"{file.path}: {name}", part, info.file_size, info.CRC)
        found[name] = Member(size=info.file_size, data=data)
    return found


def _directory(path: Path) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.infolist()
    except _ERRORS as error:
        raise DoctorError(f"{path} is cut off or damaged: {error}", hint=DAMAGED) from error


def _check_directory(file: MappedFile) -> None:
    """Raise DoctorError for a directory of hundreds of megabytes, which zipfile would read into memory."""
    tail = file.view()[-(1 << 16) - _END.size :].tobytes()
    at = tail.rfind(b"PK\5\6")
    at_64 = tail.rfind(b"PK\6\6")
    sizes = []
    if 0 <= at <= len(tail) - _END.size:
        sizes.append(_END.unpack_from(tail, at)[5])
    if 0 <= at_64 <= len(tail) - _END_64.size:
        sizes.append(_END_64.unpack_from(tail, at_64)[8])
    if any(LARGEST_DIRECTORY < size != 0xFFFFFFFF for size in sizes):
        raise DoctorError(f"{file.path} has a directory of {max(sizes):,} bytes", hint=DAMAGED)


def _span(file: MappedFile, info: zipfile.ZipInfo) -> tuple[int, int]:
    """Return the begin and end of the packed bytes of a member, by its own header."""
    where = f"{file.path}: {info.filename}"
    if stat.S_ISLNK(info.external_attr >> 16):
        raise DoctorError(f"{where} is a link to another file, which is not followed", hint=DAMAGED)
    if info.flag_bits & _ENCRYPTED or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DoctorError(f"{where} is encrypted or packed in a way that no trainer uses", hint=DAMAGED)
    if info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
        raise DoctorError(f"{where} has two sizes", hint=DAMAGED)
    begin = info.header_offset
    if not 0 <= begin <= file.size - _LOCAL.size:
        raise DoctorError(f"{where} stands beyond the end of the file", hint=DAMAGED)
    head = _LOCAL.unpack(file.view()[begin : begin + _LOCAL.size].tobytes())
    name_at = begin + _LOCAL.size
    name = file.view()[name_at : name_at + head[9]].tobytes()
    spelled = name.decode("utf-8" if head[2] & _UTF8 else "cp437", "replace")
    if head[0] != b"PK\3\4" or spelled != info.orig_filename:
        raise DoctorError(f"{where} is called otherwise in its own header", hint=DAMAGED)
    start = name_at + head[9] + head[10]
    if start + info.compress_size > file.size:
        raise DoctorError(f"{where} is cut off", hint=DAMAGED)
    return start, start + info.compress_size


def _check_overlap(path: Path, spans: list[tuple[int, int]]) -> None:
    end = 0
    for start, stop in sorted(spans):
        if start < end:
            raise DoctorError(f"{path} has members that overlap", hint=DAMAGED)
        end = stop


def _check_bulk(file: MappedFile, infos: list[zipfile.ZipInfo]) -> None:
    total = sum(info.file_size for info in infos if info.compress_type != zipfile.ZIP_STORED)
    if total > max(UNPACKED, RATIO * file.size):
        raise DoctorError(
            f"{file.path} would unpack to {total:,} bytes from {file.size:,}",
            hint="if that is meant, save it without compression",
        )
