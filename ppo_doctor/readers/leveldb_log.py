"""Files of W&B as a log of blocks: LevelDB's format, with a header and zlib's checksum.

Blocks of 32 KiB hold chunks: checksum, length, type, data. A record is one chunk, or a first, some middle and a last
one. A length has no checksum of its own: behind a damaged chunk the next one whose checksum fits is sought, first where
the length says and then byte by byte up to the end of the block (github.com/google/leveldb, doc/log_format.md).
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppo_doctor.readers.notes import Ledger

BLOCK = 1 << 15
#: Checksum, length and type before the data of a chunk.
_CHUNK = struct.Struct("<IHB")
HEADER = _CHUNK.size
#: Bytes of the header of the file.
_FILE_HEADER = 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
#: A longer record is damage.
LONGEST = 64 << 20
#: Bytes whose checksum may be tried in search of chunks: a file made of traps must not take for ever.
_SEARCH = 256 << 20


class Chunks:
    """Takes a file in blocks of any size and hands on its records as (number, bytes); damage goes to the notes."""

    def __init__(self, notes: Ledger) -> None:
        self._notes = notes
        self._data = b""
        #: offset of the held bytes in the file
        self._offset = 0
        self._number = 1
        self._parts: list[bytes] = []
        self._size = 0
        self._budget = _SEARCH

    def feed(self, block: bytes) -> Iterator[tuple[int, bytes]]:
        """Take the next bytes; yield the records that they complete."""
        self._data += block
        yield from self._work(final=False)

    def finish(self) -> Iterator[tuple[int, bytes]]:
        """Yield the rest; bytes of a record that never ended are accounted for."""
        yield from self._work(final=True)
        if self._parts:
            self._drop("the last record is cut off", f"{self._size:,} bytes of it are there")

    def _work(self, *, final: bool) -> Iterator[tuple[int, bytes]]:
        at = max(0, _FILE_HEADER - self._offset)
        if len(self._data) < at:
            return
        while at < len(self._data):
            end = _end_of_block(self._offset + at) - self._offset
            if end - at < HEADER:  # too little for a chunk: the writer left it blank
                if end > len(self._data):
                    break
                at = end
                continue
            stop = self._chunk(at, end)
            if stop is not None:
                yield from self._take(self._data[at + HEADER : stop], self._data[at + HEADER - 1])
                at = stop
                continue
            if min(end, at + HEADER + self._length(at)) > len(self._data) and not final:
                break  # more bytes may complete it
            if end > len(self._data) and not final and not self._trusted(at, end):
                break
            at = self._past_damage(at, min(end, len(self._data)), final=final)
        self._data = self._data[at:]
        self._offset += at

    def _length(self, at: int) -> int:
        return int.from_bytes(self._data[at + 4 : at + 6], "little") if len(self._data) - at >= HEADER else BLOCK

    def _chunk(self, at: int, end: int) -> int | None:
        """Return where a sound chunk that begins at `at` ends, or None."""
        if len(self._data) - at < HEADER:
            return None
        checksum, size, kind = _CHUNK.unpack_from(self._data, at)
        stop = at + HEADER + size
        if not _FULL <= kind <= _LAST or stop > end or stop > len(self._data):
            return None
        self._budget -= size
        return stop if zlib.crc32(memoryview(self._data)[at + HEADER - 1 : stop]) == checksum else None

    def _trusted(self, at: int, end: int) -> bool:
        """Tell whether a sound chunk follows where the length of a damaged one says."""
        return self._chunk(at + HEADER + self._length(at), end) is not None

    def _past_damage(self, at: int, end: int, *, final: bool) -> int:
        """Account for a damaged chunk; return the place of the next sound one, or the end of the block."""
        after = at + HEADER + self._length(at)
        whole = _end_of_block(self._offset + at) - self._offset
        found = after if after < end and self._chunk(after, end) is not None else self._search(at + 1, end)
        torn = found == end == len(self._data) and final and after > end
        why = "the last record is cut off" if torn else "its checksum does not fit its content"
        self._drop(why, f"{found - at:,} bytes from byte {self._offset + at:,}")
        return found if found < end or end == whole else end

    def _search(self, at: int, end: int) -> int:
        budget = self._budget
        while at + HEADER <= end and self._budget > 0:
            if self._chunk(at, end) is not None:
                self._budget = budget
                return at
            at += 1
        return end

    def _drop(self, why: str, detail: str) -> None:
        self._notes.skip(why, self._number, detail=detail)
        self._number += 1
        self._parts, self._size = [], 0

    def _take(self, data: bytes, kind: int) -> Iterator[tuple[int, bytes]]:
        if kind in (_FULL, _FIRST):
            if self._parts:
                self._drop("its end is missing", f"{self._size:,} bytes of it are there")
            self._parts, self._size = [data], len(data)
        elif self._parts:
            self._parts.append(data)
            self._size += len(data)
        else:
            return  # the rest of a record whose begin was damaged, and accounted for
        if self._size > LONGEST:
            self._drop(f"it is larger than {LONGEST >> 20} MiB", f"{self._size:,} bytes")
        elif kind in (_FULL, _LAST):
            yield self._number, b"".join(self._parts)
            self._number += 1
            self._parts, self._size = [], 0


def _end_of_block(offset: int) -> int:
    return (offset // BLOCK + 1) * BLOCK
