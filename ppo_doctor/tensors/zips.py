"""The members of a zip file, with where each stands, and what a file made to do harm would abuse refused."""

from __future__ import annotations

import stat
import struct
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ppo_doctor.errors import DoctorError
from ppo_doctor.tensors.storages import DAMAGED, Packed, Part

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ppo_doctor.tensors.storages import MappedFile
    from ppo_doctor.tensors.tensor import Storage

#: A directory of more bytes is not read.
LARGEST_DIRECTORY = 64 << 20
#: Deflated members may come to this much, or, where that is more, to so many times the size of the file.
UNPACKED, RATIO = 1 << 30, 200
_END = struct.Struct("<4s4H2IH")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_LOCAL = struct.Struct("<4s5H3I2H")
_UTF8, _ENCRYPTED = 0x800, 0x1
_ERRORS = (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error, OverflowError, IndexError)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Member:
    """One member of a zip file; `size` is what it has unpacked, in bytes."""

    name: str
    size: int
    data: Storage
    stored: bool


def members(file: MappedFile) -> Mapping[str, Member]:
    """Return the members of a zip file by name; nothing is unpacked.

    Raises DoctorError for a file that is cut off, for members that overlap, stand twice, are links, encrypted or packed
    in an unusual way, and for more unpacked bytes than dumps have.
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
        found[name] = Member(name=name, size=info.file_size, data=data, stored=stored)
    return found


def _directory(path: Path) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.infolist()
    except _ERRORS as error:
        raise DoctorError(f"{path} is cut off or damaged: {error}", hint=DAMAGED) from error


def _check_directory(file: MappedFile) -> None:
    """Refuse a directory of hundreds of megabytes, which zipfile would read whole."""
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
    """Return where the packed bytes of a member begin and end, by its own header."""
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
