"""Read record files of TensorFlow: length, checksum of the length, payload, checksum of the payload.

A record with a damaged payload is skipped. After a damaged length, reading resumes at the next length that matches its
checksum; the bytes between are lost, with a note. A file of events begins with a record that names its format; if it
does not, an unknown number of records before may be lost.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import by_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from ppo_doctor.model.run import BoolArray, IntArray
    from ppo_doctor.readers.notes import Ledger

    Words = NDArray[np.uint32]
    Bytes = NDArray[np.uint8]

#: Bytes of length and checksum before a payload, and of the checksum after it.
HEADER, FOOTER = 12, 4
#: Bytes processed together: enough to amortise calls of NumPy, few enough for the CPU's cache.
CHUNK = 1 << 20
#: Bytes of the first window searched after damage; each further window is twice as long, up to CHUNK.
_FIRST_SEARCH = 1 << 8
#: Longest record in bytes; records of scalars are shorter, so a larger length is damage even if its checksum matches.
LONGEST = 64 << 20
_LENGTH = struct.Struct("<Q").unpack_from
#: Text in the first record of a file of events, and the number of first bytes that contain it.
_FORMAT, _FIRST = b"brain.Event:", 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Undamaged records: payloads `data[start:start + size]`, and numbers that count from 1 over the file."""

    data: bytes
    starts: IntArray
    sizes: IntArray
    numbers: IntArray


def batches(blocks: Iterable[bytes], notes: Ledger) -> Iterator[Batch]:
    """Yield the undamaged records of a file that comes in blocks; damage becomes notes with its offset."""
    framer = _Framer(notes)
    for block in blocks:
        framer.blocks.append(block)
        framer.held += len(block)
        if framer.held >= framer.wanted:
            yield from framer.work(final=False)
    yield from framer.work(final=True)


class _Framer:
    """Divides the bytes of a file that have arrived so far into records."""

    def __init__(self, notes: Ledger) -> None:
        self._notes = notes
        self.blocks: list[bytes] = []
        #: number of bytes in the blocks, and the number needed before they are divided
        self.held, self.wanted = 0, CHUNK
        #: offset of the blocks in the file, and number of the next record
        self._offset = 0
        self._number = 1
        #: offset at which damage began, while the next undamaged record is searched for
        self._lost_at: int | None = None
        self._begins = False

    def work(self, *, final: bool) -> Iterator[Batch]:
        """Yield the records in the blocks; `final` means that no more bytes follow."""
        data = b"".join(self.blocks)
        if not self._offset:
            self._begins = _FORMAT in data[:_FIRST]
        records, at = self._records(data, final=final)
        if records:
            starts, sizes, numbers = np.array(records, dtype=np.int64).T
            yield from self._batch(data, starts, sizes, numbers)
        self.blocks = [data[at:]] if at < len(data) else []
        self.held = len(data) - at
        self._offset += at
        if final and self._lost_at is not None:
            self._end_damage(self._offset + self.held)

    def _records(self, data: bytes, *, final: bool) -> tuple[list[tuple[int, int, int]], int]:
        """Return (start, size, number) of each record with a valid length, and the offset of the unprocessed rest."""
        records: list[tuple[int, int, int]] = []
        at, first = 0, 0  # offset of the next record; index of the first record after the last damage
        while True:
            if self._lost_at is not None:
                at = self._seek(data, at, final=final)
                first = len(records)
                if self._lost_at is not None:
                    return records, at
            size = size_of(data[at : at + HEADER])
            if size is not None and at + HEADER + size + FOOTER <= len(data):
                records.append((at, size, self._number))
                self._number += 1
                at += HEADER + size + FOOTER
                continue
            whole = at + HEADER <= len(data)
            damaged = whole and size is None
            # A damaged payload before a damaged length: the length before was wrong although its checksum matches.
            if damaged and len(records) > first and not _payload_fits(data, *records[-1][:2]):
                at = records.pop()[0]
                self._number -= 1
            # An incomplete last record: if another record begins within it, its length is wrong.
            elif not (damaged or (final and whole and _next_record(data, at + 1) is not None)):
                self._unfinished(data, at, final=final)
                return records, at
            self._lost_at = self._offset + at
            at += 1

    def _batch(self, data: bytes, starts: IntArray, sizes: IntArray, numbers: IntArray) -> Iterator[Batch]:
        good = _payloads_fit(data, starts, sizes)
        for place in np.flatnonzero(~good):
            detail = f"{int(sizes[place]) + HEADER + FOOTER:,} bytes from byte {self._offset + int(starts[place]):,}"
            self._notes.skip("its checksum does not fit its content", int(numbers[place]), detail=detail)
        if good.any():
            yield Batch(data=data, starts=starts[good] + HEADER, sizes=sizes[good], numbers=numbers[good])

    def _unfinished(self, data: bytes, at: int, *, final: bool) -> None:
        """Set how many bytes the incomplete last record needs; if no more follow, add a note that it is cut off."""
        left = len(data) - at
        self.wanted = CHUNK
        if left >= HEADER and not final:
            self.wanted = max(CHUNK, HEADER + _LENGTH(data, at)[0] + FOOTER)
        if final and left:
            detail = f"{left:,} bytes from byte {self._offset + at:,}"
            self._notes.skip("the last record is cut off", self._number, detail=detail)
            self._number += 1

    def _seek(self, data: bytes, at: int, *, final: bool) -> int:
        """Return the offset of the next record and end the damage there, else of bytes that may begin one."""
        start = _next_record(data, at)
        if start is not None:
            self._end_damage(self._offset + start)
            return start
        return len(data) if final else max(at, len(data) - HEADER + 1)

    def _end_damage(self, offset: int) -> None:
        """Add a note on the bytes lost up to `offset`, where records continue."""
        lost = self._lost_at or 0
        detail = f"{offset - lost:,} bytes from byte {lost:,} lost"
        self._notes.skip("its length is damaged", self._number, detail=detail)
        if self._number == 1 and not self._begins:
            text = "the file begins within a record; records before it may be lost"
            self._notes.tell("begin", text, self._number, kind="lost")
        self._number += 1
        self._lost_at = None


@lru_cache(maxsize=1 << 12)  # a file holds records of few sizes
def size_of(head: bytes) -> int | None:
    """Return the payload size in a header of 12 bytes, None if it does not match its checksum or is too large."""
    size: int = _LENGTH(head)[0] if len(head) == HEADER else LONGEST + 1
    if size > LONGEST:
        return None
    octets = np.frombuffer(head, dtype=np.uint8).reshape(1, HEADER)
    return size if masked(crc32c(octets[:, :8])) == _words(octets[:, 8:]) else None


def _payload_fits(data: bytes, at: int, size: int) -> bool:
    return bool(_payloads_fit(data, np.array([at]), np.array([size])).all())


def rows(data: bytes, starts: IntArray, width: int) -> NDArray[np.uint8]:
    """Return the `width` bytes at each start, of shape [starts, width]."""
    view: NDArray[np.uint8] = np.ndarray((len(data) - width + 1, width), np.uint8, data, strides=(1, 1))
    return view[starts]


def _words(matrix: NDArray[np.uint8]) -> NDArray[np.uint32]:
    return np.ascontiguousarray(matrix).view("<u4")[:, 0].astype(np.uint32)


def _payloads_fit(data: bytes, starts: IntArray, sizes: IntArray) -> BoolArray:
    fits = np.zeros(len(starts), dtype=np.bool_)
    for value, group in by_value(sizes):
        size = int(value)
        whole = rows(data, starts[group] + HEADER, size + FOOTER)
        fits[group] = masked(crc32c(whole[:, :size])) == _words(whole[:, size:])
    return fits


def _next_record(data: bytes, at: int) -> int | None:
    """Return the first offset from `at` on where a length matches its checksum, None if there is none."""
    span = _FIRST_SEARCH
    while len(data) - at >= HEADER:
        window = np.frombuffer(data[at : at + span], dtype=np.uint8)
        places = len(window) - HEADER + 1
        possible = window[3 : 3 + places] <= LONGEST >> 24
        for i in range(4, 8):
            possible &= window[i : i + places] == 0
        candidates = at + np.flatnonzero(possible)
        if len(candidates):
            heads = rows(data, candidates, HEADER)
            fits = masked(crc32c(heads[:, :8])) == _words(heads[:, 8:])
            for place in candidates[fits].tolist():
                if size_of(data[place : place + HEADER]) is not None:
                    return int(place)
        at += places
        span = min(2 * span, CHUNK)
    return None


_POLYNOMIAL = 0x82F63B78
#: Longer records are processed in stretches of this many bytes; each byte of a stretch needs a table of 1 KiB.
STRETCH = 512
#: Constant that TensorFlow adds to the checksums it stores.
_MASK_DELTA = 0xA282EAD8


@cache
def _tables() -> Words:
    """Return the contribution of each byte value by the number of bytes after it, of shape [STRETCH, 256]."""
    tables = np.empty((STRETCH, 256), dtype=np.uint32)
    words = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        words = np.where(words & 1, (words >> 1) ^ np.uint32(_POLYNOMIAL), words >> 1)
    tables[0] = words
    for distance in range(1, STRETCH):
        tables[distance] = words[tables[distance - 1] & 255] ^ (tables[distance - 1] >> 8)
    return tables


def crc32c(rows: Bytes) -> Words:
    """Return the CRC-32C of each row of bytes; `rows` has shape [records, length]."""
    count, length = rows.shape
    if length < 4:  # the start value covers four bytes, more than the data has
        return np.array([_crc32c_of_bytes(row.tobytes()) for row in rows], dtype=np.uint32)
    stretches = -(-length // STRETCH)
    stretch = STRETCH if stretches > 1 else length
    # Leading zeros do not change a remainder of 0; the start value of all ones flips the first four bytes of data.
    padded = np.zeros((count, stretches * stretch), dtype=np.uint8)
    begin = padded.shape[1] - length
    padded[:, begin:] = rows
    padded[:, begin : begin + 4] ^= 255
    # First the remainders of all stretches at once, then those of each record are combined in order.
    columns = np.ascontiguousarray(padded.reshape(count * stretches, stretch).T)
    remainders = _remainder(columns).reshape(count, stretches)
    words = remainders[:, 0]
    for place in range(1, stretches):
        words = _advanced(words) ^ remainders[:, place]
    return ~words


def _remainder(columns: Bytes) -> Words:
    """Return the remainder of each column of bytes; shape [length, records] → [records]."""
    tables = _tables()
    length, count = columns.shape
    words = np.zeros(count, dtype=np.uint32)
    alike = (columns == columns[:, :1]).all(axis=1)  # records of one kind share most of their bytes
    fixed = np.uint32(0)
    for place in range(length):
        table = tables[length - 1 - place]
        if alike[place]:
            fixed ^= table[columns[place, 0]]
        else:
            words ^= table[columns[place]]
    return words ^ fixed


def _advanced(words: Words) -> Words:
    """Return the remainders after a further stretch of zeros."""
    tables = _tables()
    parts = (tables[STRETCH - 1 - i][(words >> np.uint32(8 * i)) & np.uint32(255)] for i in range(4))
    first, second, third, fourth = parts
    return np.asarray(first ^ second ^ third ^ fourth, dtype=np.uint32)


def _crc32c_of_bytes(data: bytes) -> int:
    """Return the CRC-32C of data of any length, byte by byte."""
    table = _tables()[0]
    word = 0xFFFFFFFF
    for byte in data:
        word = int(table[(word ^ byte) & 255]) ^ (word >> 8)
    return word ^ 0xFFFFFFFF


def masked(words: Words) -> Words:
    """Return checksums as a record file stores them: rotated right by 15 bits, plus a constant."""
    return ((words >> np.uint32(15)) | (words << np.uint32(17))) + np.uint32(_MASK_DELTA)
