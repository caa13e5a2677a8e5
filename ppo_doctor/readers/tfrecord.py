"""Record files of TensorFlow: length, checksum of the length, payload, checksum of the payload.

A record whose payload is damaged is passed over. Where a length is damaged, the next place is sought whose length fits
its checksum, and reading goes on there: what lies between is lost, and said so. A file of events begins with a record
that names its format: where damage stands in its place, nobody knows how much there was before.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

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
#: Records that are looked at together right behind a damaged one, and bytes that are searched for it at first.
_STEP, _NEAR = 16, 1 << 12
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

    def pause(self) -> Iterator[Batch]:
        """Yield what is complete so far; the rest waits for more bytes, as in a file that is still written."""
        yield from self._work(final=False)

    def finish(self) -> Iterator[Batch]:
        """Yield the rest; bytes of a record that never ended are accounted for."""
        yield from self._work(final=True)

    def _work(self, *, final: bool) -> Iterator[Batch]:
        data = b"".join(self._blocks)
        at, most = 0, CHUNK
        if not self._offset:
            self._begins = _FORMAT in data[:_FIRST]
        while True:
            if self._lost_at is not None:
                at = self._seek(data, at, final=final)
                if self._lost_at is not None:
                    break
                most = _STEP  # where one record is damaged many may be: walk on with care
            starts, sizes, stop = _walk(data, at, most)
            headers = _headers_hold(data, np.append(starts, stop) if stop + HEADER <= len(data) else starts)
            sound = len(starts) if headers.all() else int(headers.argmin())
            payloads = _payloads_hold(data, starts[:sound], sizes[:sound])
            # A payload that fails before a header that fails: the length was wrong although its checksum holds.
            back = not headers.all() and sound > 0 and not payloads[sound - 1]
            keep = sound - back
            yield from self._batch(data, starts[:keep], sizes[:keep], payloads[:keep])
            if not headers.all():
                at = int(np.append(starts, stop)[keep])
                self._lose(at)
                at += HEADER if back else 1
            elif len(starts) == most:
                at, most = stop, 4 * most
            elif self._unfinished(data, stop, final=final):
                at = stop + HEADER
            else:
                at = stop
                break
        self._blocks = [data[at:]] if at < len(data) else []
        self._held = len(data) - at
        self._offset += at
        if final and self._lost_at is not None:
            self._found(self._offset + self._held)

    def _batch(self, data: bytes, starts: IntArray, sizes: IntArray, good: BoolArray) -> Iterator[Batch]:
        numbers = np.arange(self._number, self._number + len(starts))
        self._number += len(starts)
        for place in np.flatnonzero(~good):
            detail = f"{int(sizes[place]) + HEADER + FOOTER:,} bytes from byte {self._offset + int(starts[place]):,}"
            self._notes.skip("its checksum does not fit its content", int(numbers[place]), detail=detail)
        if good.any():
            yield Batch(data=data, starts=starts[good] + HEADER, sizes=sizes[good], numbers=numbers[good])

    def _unfinished(self, data: bytes, at: int, *, final: bool) -> bool:
        """Judge the record at which the bytes end; True where its length cannot be right, so that a search begins."""
        left = len(data) - at
        self._wanted = CHUNK
        if left >= HEADER:
            (size,) = _LENGTH(data, at)
            if size > LONGEST:
                self._lose(at)
                return True
            if not final:
                self._wanted = max(CHUNK, HEADER + size + FOOTER)
            elif _next_header(data, at + HEADER) is not None:
                self._lose(at)
                return True
        if final and left:
            detail = f"{left:,} bytes from byte {self._offset + at:,}"
            self._notes.skip("the last record is cut off", self._number, detail=detail)
            self._number += 1
        return False

    def _lose(self, at: int) -> None:
        self._lost_at = self._offset + at

    def _seek(self, data: bytes, at: int, *, final: bool) -> int:
        """Return the next place that may begin a record; without one, as much as cannot be the start of one."""
        found = _next_header(data, at)
        if found is not None:
            self._found(self._offset + found)
            return found
        return len(data) if final else max(at, len(data) - HEADER + 1)

    def _found(self, offset: int) -> None:
        lost = self._lost_at or 0
        detail = f"{offset - lost:,} bytes from byte {lost:,} lost"
        self._notes.skip("its length is damaged", self._number, detail=detail)
        if self._number == 1 and not self._begins:
            text = "the file begins within a record; records before it may be lost"
            self._notes.tell("begin", text, self._number, kind="lost")
        self._number += 1
        self._lost_at = None


def _walk(data: bytes, at: int, most: int) -> tuple[IntArray, IntArray, int]:
    """Return where at most `most` complete records begin, their payloads' sizes, and where the next one begins."""
    starts: list[int] = []
    sizes: list[int] = []
    end = len(data) - HEADER - FOOTER
    while at <= end and len(starts) < most:
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


def _headers_hold(data: bytes, starts: IntArray) -> BoolArray:
    if not len(starts):
        return np.ones(0, dtype=np.bool_)
    heads = rows(data, starts, HEADER)
    return np.asarray(masked(crc32c(heads[:, :8])) == _words(heads[:, 8:]), dtype=np.bool_)


def _payloads_hold(data: bytes, starts: IntArray, sizes: IntArray) -> BoolArray:
    hold = np.zeros(len(starts), dtype=np.bool_)
    for size, group in by_value(sizes):
        whole = rows(data, starts[group] + HEADER, size + FOOTER)
        hold[group] = masked(crc32c(whole[:, :size])) == _words(whole[:, size:])
    return hold


def by_value(values: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Yield each distinct value with the places where it stands, in order."""
    order = np.argsort(values, kind="stable")
    edges = np.flatnonzero(np.diff(values[order])) + 1
    for group in np.split(order, edges):
        if len(group):
            yield int(values[group[0]]), group


def _next_header(data: bytes, at: int) -> int | None:
    """Return the first place from `at` on whose length is possible and fits its checksum."""
    reach = _NEAR
    while len(data) - at >= HEADER:
        window = data[at : at + reach]
        reach = min(4 * reach, CHUNK)
        octets = np.frombuffer(window, dtype=np.uint8)
        places = len(window) - HEADER + 1
        possible = np.ones(places, dtype=np.bool_)
        for i in range(4, 8):  # lengths beyond 4 GiB are not
            possible &= octets[i : i + places] == 0
        candidates = np.flatnonzero(possible)
        held = candidates[_headers_hold(window, candidates)]
        for place in held.tolist():
            if _LENGTH(window, place)[0] <= LONGEST:
                return at + int(place)
        at += places
    return None
