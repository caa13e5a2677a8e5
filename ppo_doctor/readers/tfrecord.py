"""Record files of TensorFlow: length, checksum of the length, payload, checksum of the payload.

A record whose payload is damaged is passed over. Where a length is damaged, the next place is sought whose length fits
its checksum, and reading goes on there: what lies between is lost, and said so. A file of events begins with a record
that names its format: where damage stands in its place, nobody knows how much there was before.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import by_value
from ppo_doctor.readers.crc import crc32c, masked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ppo_doctor.model import BoolArray, IntArray
    from ppo_doctor.readers.notes import Ledger

#: Bytes of length and checksum before a payload, and of the checksum behind it.
HEADER, FOOTER = 12, 4
#: Bytes that are looked at together: enough for NumPy to pay, little enough for the cache.
CHUNK = 1 << 20
#: A longer record holds no scalar; a length that claims more is damage, whatever its checksum says.
LONGEST = 64 << 20
_LENGTH = struct.Struct("<Q").unpack_from
#: What the first record of a file of events says, and bytes within which it does.
_FORMAT, _FIRST = b"brain.Event:", 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Sound records: `data[start:start + size]` holds the payload of each, `numbers` count from 1 over the file."""

    data: bytes
    starts: IntArray
    sizes: IntArray
    numbers: IntArray


class Framer:
    """Takes a record file in blocks and hands on its sound records; damage goes to the notes, with its offset."""

    def __init__(self, notes: Ledger) -> None:
        self._notes = notes
        self._blocks: list[bytes] = []
        self._held = 0
        self._wanted = CHUNK
        #: offset of the held bytes in the file, and number of the next record
        self._offset = 0
        self._number = 1
        #: offset at which damage began, while the next sound place is sought
        self._lost_at: int | None = None
        self._begins = False

    def feed(self, block: bytes) -> Iterator[Batch]:
        """Take the next bytes; yield a batch whenever enough have come together."""
        self._blocks.append(block)
        self._held += len(block)
        if self._held >= self._wanted:
            yield from self._work(final=False)

    def finish(self) -> Iterator[Batch]:
        """Yield the rest; bytes of a record that never ended are accounted for."""
        yield from self._work(final=True)

    def _work(self, *, final: bool) -> Iterator[Batch]:
        data = b"".join(self._blocks)
        if not self._offset:
            self._begins = _FORMAT in data[:_FIRST]
        stretches, at = self._stretches(data, final=final)
        if stretches:
            starts, sizes, numbers = (np.concatenate(parts) for parts in zip(*stretches, strict=True))
            yield from self._batch(data, starts, sizes, numbers)
        self._blocks = [data[at:]] if at < len(data) else []
        self._held = len(data) - at
        self._offset += at
        if final and self._lost_at is not None:
            self._found(self._offset + self._held)

    def _stretches(self, data: bytes, *, final: bool) -> tuple[list[tuple[IntArray, IntArray, IntArray]], int]:
        """Return starts, sizes and numbers of the records between damage, and where the next bytes go on."""
        found: list[tuple[IntArray, IntArray, IntArray]] = []
        lengths, at = _Lengths(data), 0
        while True:
            if self._lost_at is not None:
                at = self._seek(lengths, at, len(data), final=final)
                if self._lost_at is not None:
                    return found, at
            starts, sizes, stop, damaged = _stretch(data, at, lengths, final=final)
            if len(starts):
                found.append((starts, sizes, np.arange(self._number, self._number + len(starts))))
                self._number += len(starts)
            if not damaged:
                self._unfinished(data, stop, final=final)
                return found, stop
            self._lost_at = self._offset + stop
            at = stop + 1

    def _batch(self, data: bytes, starts: IntArray, sizes: IntArray, numbers: IntArray) -> Iterator[Batch]:
        good = _payloads_hold(data, starts, sizes)
        for place in np.flatnonzero(~good):
            detail = f"{int(sizes[place]) + HEADER + FOOTER:,} bytes from byte {self._offset + int(starts[place]):,}"
            self._notes.skip("its checksum does not fit its content", int(numbers[place]), detail=detail)
        if good.any():
            yield Batch(data=data, starts=starts[good] + HEADER, sizes=sizes[good], numbers=numbers[good])

    def _unfinished(self, data: bytes, at: int, *, final: bool) -> None:
        """Wait for the rest of the record at which the bytes end, or account for it."""
        left = len(data) - at
        self._wanted = CHUNK
        if left >= HEADER and not final:
            self._wanted = max(CHUNK, HEADER + _LENGTH(data, at)[0] + FOOTER)
        if final and left:
            detail = f"{left:,} bytes from byte {self._offset + at:,}"
            self._notes.skip("the last record is cut off", self._number, detail=detail)
            self._number += 1

    def _seek(self, lengths: _Lengths, at: int, end: int, *, final: bool) -> int:
        """Return the next place that may begin a record; without one, as much as cannot be the start of one."""
        found = lengths.following(at)
        if found is not None:
            self._found(self._offset + found)
            return found
        return end if final else max(at, end - HEADER + 1)

    def _found(self, offset: int) -> None:
        lost = self._lost_at or 0
        detail = f"{offset - lost:,} bytes from byte {lost:,} lost"
        self._notes.skip("its length is damaged", self._number, detail=detail)
        if self._number == 1 and not self._begins:
            text = "the file begins within a record; records before it may be lost"
            self._notes.tell("begin", text, self._number, kind="lost")
        self._number += 1
        self._lost_at = None


class _Lengths:
    """The places at which bytes hold a length that is possible, with the checksum that fits it.

    Sought when the first damage is met, and once, however many records are damaged.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._places: list[int] | None = None

    @property
    def sought(self) -> bool:
        return self._places is not None

    def following(self, at: int) -> int | None:
        """Return the first such place from `at` on; those before the first one asked for are not known."""
        if self._places is None:
            self._places = _lengths_from(self._data, at)
        index = bisect_left(self._places, at)
        return self._places[index] if index < len(self._places) else None


def _stretch(data: bytes, at: int, lengths: _Lengths, *, final: bool) -> tuple[IntArray, IntArray, int, bool]:
    """Return where records that follow each other begin, their sizes, where they end, and whether damage is there."""
    if not lengths.sought:
        starts, sizes, stop = _walk(data, at)
        if _lengths_hold(data, np.append(starts, stop) if stop + HEADER <= len(data) else starts).all():
            return starts, sizes, stop, final and _goes_on(data, stop, lengths)
    starts, sizes, stop = _walk(data, at, lengths)
    damaged = stop + HEADER <= len(data) and lengths.following(stop) != stop
    # A payload that fails before a length that fails: that payload's length was wrong although its checksum holds.
    if damaged and len(starts) and not _payloads_hold(data, starts[-1:], sizes[-1:]).all():
        return starts[:-1], sizes[:-1], int(starts[-1]), True
    return starts, sizes, stop, damaged or (final and _goes_on(data, stop, lengths))


def _goes_on(data: bytes, at: int, lengths: _Lengths) -> bool:
    """Tell whether another record begins within the one at which the bytes end, whose length is wrong then."""
    return len(data) - at >= HEADER and lengths.following(at + 1) is not None


def _walk(data: bytes, at: int, lengths: _Lengths | None = None) -> tuple[IntArray, IntArray, int]:
    """Return where complete records begin, their payloads' sizes, and where the next one begins.

    Each length is believed, or ends the walk where it is not one of `lengths`.
    """
    starts: list[int] = []
    sizes: list[int] = []
    end = len(data) - HEADER - FOOTER
    while at <= end and (lengths is None or lengths.following(at) == at):
        (size,) = _LENGTH(data, at)
        if size > end - at:
            break
        starts.append(at)
        sizes.append(size)
        at += size + HEADER + FOOTER
    return np.array(starts, dtype=np.int64), np.array(sizes, dtype=np.int64), at


def rows(data: bytes, starts: IntArray, width: int) -> NDArray[np.uint8]:
    """Return the `width` bytes at each start; shape [starts, width]."""
    view: NDArray[np.uint8] = np.ndarray((len(data) - width + 1, width), np.uint8, data, strides=(1, 1))
    return view[starts]


def _words(matrix: NDArray[np.uint8]) -> NDArray[np.uint32]:
    return np.ascontiguousarray(matrix).view("<u4")[:, 0].astype(np.uint32)


def _lengths_hold(data: bytes, starts: IntArray) -> BoolArray:
    """Tell where a length is possible and fits its checksum."""
    if not len(starts):
        return np.ones(0, dtype=np.bool_)
    heads = rows(data, starts, HEADER)
    sizes = np.ascontiguousarray(heads[:, :8]).view("<u8")[:, 0]
    return np.asarray((sizes <= LONGEST) & (masked(crc32c(heads[:, :8])) == _words(heads[:, 8:])), dtype=np.bool_)


def _payloads_hold(data: bytes, starts: IntArray, sizes: IntArray) -> BoolArray:
    hold = np.zeros(len(starts), dtype=np.bool_)
    for value, group in by_value(sizes):
        size = int(value)
        whole = rows(data, starts[group] + HEADER, size + FOOTER)
        hold[group] = masked(crc32c(whole[:, :size])) == _words(whole[:, size:])
    return hold


def _lengths_from(data: bytes, at: int) -> list[int]:
    """Return every place from `at` on at which a length holds, in order."""
    found: list[int] = []
    while len(data) - at >= HEADER:
        window = data[at : at + CHUNK]
        octets = np.frombuffer(window, dtype=np.uint8)
        places = len(window) - HEADER + 1
        possible = np.ones(places, dtype=np.bool_)
        for i in range(4, 8):  # lengths beyond 4 GiB are not
            possible &= octets[i : i + places] == 0
        candidates = np.flatnonzero(possible)
        found += (at + candidates[_lengths_hold(window, candidates)]).tolist()
        at += places
    return found
