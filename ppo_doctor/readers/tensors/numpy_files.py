"""Read NumPy's `.npy` and `.npz`, memory-mapped; arrays that would need unpickling are refused."""

from __future__ import annotations

import math
import re
import struct
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.literals import python_literal
from ppo_doctor.readers.notes import Ledger
from ppo_doctor.readers.tensors.naming import role
from ppo_doctor.readers.tensors.storages import MappedFile, Part, members
from ppo_doctor.readers.tensors.tensor import (
    DAMAGED,
    LONGEST_TEXT,
    RAW,
    Archive,
    Tensor,
    codes,
    is_count,
    raw_type,
    stored,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.readers.tensors.tensor import Storage

#: Longest header, which is also NumPy's default limit.
LONGEST_HEADER = 10_000
#: Largest array of texts that name groups, in bytes; they are numbered in memory.
LARGEST_NAMES = 64 << 20
_MAGIC = b"\x93NUMPY"
_HEADER_KEYS = {"descr", "fortran_order", "shape"}
_NUMBER = re.compile(r"[<>|=]?([?biufc])(\d+)?")
_TEXT = re.compile(r"([<>|=]?)([US])(\d{1,6})")
#: The type that packages of low-precision types write for bfloat16.
_BFLOAT16 = "<V2"
#: NumPy's code of a type, without byte order → its name.
_NAMES = {raw_type(name).str.lstrip("<>|="): name for name in RAW if np.dtype(RAW[name]).name == name}
_KEEP_APART = "save each array by itself, padded to one shape, or its rows one by one; objects are never unpickled"


def read_npy(path: Path, size: int) -> Archive:
    """Return the array of an `.npy` file under the name of the file."""
    collector = _Collector(path)
    collector.add(path.stem, MappedFile(path, size), size)
    return collector.archive("npy")


def read_npz(path: Path, size: int) -> Archive:
    """Return the arrays of an `.npz` file; stored members are mapped, deflated ones are unpacked on demand.

    Raises DoctorError for damage and for arrays of objects.
    """
    collector = _Collector(path)
    for name, member in members(MappedFile(path, size)).items():
        if name.endswith(".npy"):
            collector.add(name.removesuffix(".npy"), member.data, member.size)
        else:
            collector.note(f"the member {name} is no array and is left out")
    return collector.archive("npz")


class _Collector:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._tensors: dict[str, Tensor] = {}
        self._scalars: dict[str, ConfigValue] = {}
        self._notes = Ledger(str(path))

    def archive(self, container: str) -> Archive:
        return Archive(
            path=str(self._path),
            container=container,
            tensors=self._tensors,
            scalars=self._scalars,
            notes=tuple(self._notes.notes()),
        )

    def note(self, text: str) -> None:
        self._notes.tell("left out", text, kind="skipped")

    def add(self, name: str, storage: Storage, size: int) -> None:
        """Add one array with its header; `size` is in bytes."""
        where = f"{self._path}: {name}"
        header, start = _header(where, storage, size)
        descr, shape = header["descr"], header["shape"]
        if not isinstance(descr, str):
            self.note(f"{name} is an array of records, and is left out")
            return
        if "O" in descr:
            raise DoctorError(f"{where} is an array of Python objects", hint=_KEEP_APART)
        body = Part(storage, start, size)
        if text := _TEXT.fullmatch(descr):
            self._text(name, shape, text, body, size - start)
        elif kind := _kind(descr):
            order = bool(header["fortran_order"])
            self._number(name, shape, kind, body, size - start, big_endian=descr.startswith(">"), fortran=order)
        else:
            self.note(f"{name} has the type {descr[:20]}, which is no number, and is left out")

    def _number(
        self, name: str, shape: object, kind: str, body: Storage, size: int, *, big_endian: bool, fortran: bool
    ) -> None:
        where = f"{self._path}: {name}"
        counts = _counts(where, shape)
        tensor = stored(where, name, kind, counts, body, size, fortran=fortran, big_endian=big_endian)
        self._tensors[name] = tensor
        if not counts and kind not in ("complex64", "complex128"):
            self._scalars[name] = next(tensor.bits()).item() if kind != "bfloat16" else float(next(tensor.chunks())[0])

    def _text(self, name: str, shape: object, descr: re.Match[str], body: Storage, size: int) -> None:
        if shape != () and role(name) == "group" and size <= LARGEST_NAMES:
            self._groups(name, _counts(f"{self._path}: {name}", shape), descr[0], body, size)
            return
        if shape != () or size > LONGEST_TEXT:
            self.note(f"{name} holds words, and is left out")
            return
        raw = b"".join(piece.tobytes() for piece in body.stream(0, size, LONGEST_TEXT))
        coding = "latin-1" if descr[2] == "S" else "utf-32-be" if descr[1] == ">" else "utf-32-le"
        self._scalars[name] = raw.decode(coding, "replace").rstrip("\0")

    def _groups(self, name: str, shape: tuple[int, ...], descr: str, body: Storage, size: int) -> None:
        """Add texts that name groups, as integers."""
        width = np.dtype(descr).itemsize
        if not width or math.prod(shape) * width != size:
            raise DoctorError(f"{self._path}: {name} claims {math.prod(shape):,} words in {size:,} bytes", hint=DAMAGED)
        raw = body.view().view(f"V{width}").tolist()
        numbered = codes([bytes(word).rstrip(b"\0").hex() for word in raw])
        if numbered is not None:
            self._tensors[name] = Tensor.of(name, numbered.reshape(shape))


def _kind(descr: str) -> str | None:
    """Return the name of an element type, or None if it is no known type of numbers."""
    if descr == _BFLOAT16:
        return "bfloat16"
    found = _NUMBER.fullmatch(descr)
    return _NAMES.get("b1" if found[1] == "?" else f"{found[1]}{found[2]}") if found else None


def _counts(where: str, shape: object) -> tuple[int, ...]:
    if not isinstance(shape, tuple) or not all(is_count(n) for n in shape):
        raise DoctorError(f"{where} has a shape that is no tuple of counts", hint=DAMAGED)
    return shape


def _header(where: str, storage: Storage, size: int) -> tuple[dict[str, object], int]:
    """Return the header of an array and where its data begin (NumPy enhancement proposal 1)."""
    longest = min(size, LONGEST_HEADER + 12)
    head = b"".join(piece.tobytes() for piece in storage.stream(0, longest, max(longest, 1)))
    if len(head) < 12 or not head.startswith(_MAGIC):
        raise DoctorError(f"{where} is cut off or no array", hint=DAMAGED)
    wide = head[6] > 1
    (length,) = struct.unpack_from("<I" if wide else "<H", head, 8)
    start = (12 if wide else 10) + length
    if length > LONGEST_HEADER or start > size or not 1 <= head[6] <= 3:
        raise DoctorError(f"{where} has a header of {length:,} bytes in {size:,}", hint=DAMAGED)
    text = head[start - length : start].decode("utf-8" if head[6] == 3 else "latin-1", "replace")
    try:
        header = python_literal(text.strip())
    except ValueError as error:
        raise DoctorError(f"{where} has a header that cannot be read", hint=DAMAGED) from error
    if not isinstance(header, dict) or header.keys() != _HEADER_KEYS:
        raise DoctorError(f"{where} has a header without type or shape", hint=DAMAGED)
    return header, start
