"""Where the bytes of a tensor stand: in a mapped file, in a part of one, or packed in a member of a zip."""

from __future__ import annotations

import os
import tempfile
import zlib
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.errors import DoctorError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ppo_doctor.tensors.dtypes import AnyArray
    from ppo_doctor.tensors.tensor import Storage

#: Packed bytes handed to the unpacker at a time.
_PIECE = 1 << 18
#: Mapped bytes that are read before the length of their file is looked at again.
_LOOKED_AT = 1 << 20
#: A packed member that is asked for as a whole is unpacked into memory up to here, into an unnamed file beyond.
IN_MEMORY = 64 << 20
_CHANGED = "a run may be writing it; copy it, or wait until it is written"
DAMAGED = "the file is cut off, damaged or was made to do harm; write it again"


class MappedFile:
    """A file whose bytes are mapped when they are first asked for."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self._name = str(path)
        self._bytes: AnyArray | None = None

    def view(self) -> AnyArray:
        """Return all bytes; raises DoctorError if the file was cut or taken away since it was opened."""
        try:
            if self._bytes is None:
                held = np.memmap(self.path, dtype=np.uint8, mode="r") if self.size else np.empty(0, np.uint8)
                self._bytes = np.asarray(held)[: self.size]
            length = min(len(self._bytes), os.stat(self._name).st_size)  # noqa: PTH116 - a third of the time
        except (OSError, ValueError) as error:
            raise DoctorError(f"{self.path} cannot be read any more: {error}", hint=_CHANGED) from error
        if length < self.size:  # to read mapped bytes that are gone would end the process, not raise
            raise DoctorError(f"{self.path} became shorter while it was read", hint=_CHANGED)
        return self._bytes

    def stream(self, start: int, stop: int, size: int) -> Iterator[AnyArray]:
        """Yield slices of the mapped bytes; whether the file is whole is looked at every few megabytes."""
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
        """Yield pieces; positions count from the beginning of this part."""
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
        """Return all bytes, unpacked into memory, or into an unnamed temporary file where they are many."""
        if self._whole is None:
            self._whole = self._unpack()
        return self._whole

    def stream(self, start: int, stop: int, size: int) -> Iterator[AnyArray]:
        """Yield pieces; the bytes before `start` are unpacked too, and dropped."""
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
        """Yield what comes out, never more than the directory says; raises DoctorError where it is not exactly that."""
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
