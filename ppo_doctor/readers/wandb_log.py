"""Read run files of W&B, `run-<id>.wandb`: history and configuration of online and offline runs.

The format is LevelDB's log, with a header and zlib's checksum: blocks of 32 KiB hold chunks of checksum, length, type
and data. A record is one chunk, or a first, some middle and a last one. A length has no checksum of its own, so after a
damaged chunk the next valid one is searched for, first where the length points and then byte by byte up to the end of
the block. Field numbers: wandb/proto/wandb_internal.proto; format: github.com/google/leveldb, doc/log_format.md.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import TYPE_CHECKING, Any

import orjson

from ppo_doctor.model.run import SourceRef
from ppo_doctor.readers.event import BYTES, VARINT, WireError, fields, signed, text
from ppo_doctor.readers.pack import Packer
from ppo_doctor.readers.table import EmbeddedConfig
from ppo_doctor.readers.values import Values, config_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ppo_doctor.readers import Item
    from ppo_doctor.readers.notes import Ledger
    from ppo_doctor.readers.source import Source

BLOCK = 1 << 15
#: Checksum, length and type before the data of a chunk.
_CHUNK = struct.Struct("<IHB")
HEADER = _CHUNK.size
#: Size of the header of the file in bytes.
_FILE_HEADER = 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
#: Longest record in bytes; a longer one is damaged.
LONGEST = 64 << 20
#: Bytes whose checksum may be computed in one search for a chunk, which bounds the time that hostile files take.
_SEARCH = 256 << 20


def records(blocks: Iterable[bytes], notes: Ledger) -> Iterator[tuple[int, bytes]]:
    """Yield (number, bytes) of each undamaged record of a file that comes in blocks; damage becomes notes."""
    chunks = _Chunks(notes)
    for block in blocks:
        chunks.data += block
        yield from chunks.work(final=False)
    yield from chunks.work(final=True)
    chunks.end()


class _Chunks:
    """Divides the bytes of a file that have arrived so far into chunks, and joins the chunks of a record."""

    def __init__(self, notes: Ledger) -> None:
        self._notes = notes
        self.data = b""
        #: offset of `data` in the file
        self._offset = 0
        self._number = 1
        self._parts: list[bytes] = []
        self._size = 0
        self._budget = _SEARCH

    def end(self) -> None:
        """Add a note if the last record is incomplete."""
        if self._parts:
            self._drop("the last record is cut off", f"{self._size:,} bytes of it are there")

    def work(self, *, final: bool) -> Iterator[tuple[int, bytes]]:
        """Yield the records that the bytes complete; `final` means that no more bytes follow."""
        at = max(0, _FILE_HEADER - self._offset)
        if len(self.data) < at:
            return
        while at < len(self.data):
            end = _end_of_block(self._offset + at) - self._offset
            if end - at < HEADER:  # too short for a chunk, so the writer left it blank
                if end > len(self.data):
                    break
                at = end
                continue
            stop = self._chunk(at, end)
            if stop is not None:
                yield from self._take(self.data[at + HEADER : stop], self.data[at + HEADER - 1])
                at = stop
                continue
            if min(end, at + HEADER + self._length(at)) > len(self.data) and not final:
                break  # more bytes may complete it
            if end > len(self.data) and not final and not self._trusted(at, end):
                break
            at = self._past_damage(at, min(end, len(self.data)), final=final)
        self.data = self.data[at:]
        self._offset += at

    def _length(self, at: int) -> int:
        return int.from_bytes(self.data[at + 4 : at + 6], "little") if len(self.data) - at >= HEADER else BLOCK

    def _chunk(self, at: int, end: int) -> int | None:
        """Return the end of the undamaged chunk that begins at `at`, None if there is none."""
        if len(self.data) - at < HEADER:
            return None
        checksum, size, kind = _CHUNK.unpack_from(self.data, at)
        stop = at + HEADER + size
        if not _FULL <= kind <= _LAST or stop > end or stop > len(self.data):
            return None
        self._budget -= size
        return stop if zlib.crc32(memoryview(self.data)[at + HEADER - 1 : stop]) == checksum else None

    def _trusted(self, at: int, end: int) -> bool:
        """Return whether an undamaged chunk follows a damaged one at the end that its length gives."""
        return self._chunk(at + HEADER + self._length(at), end) is not None

    def _past_damage(self, at: int, end: int, *, final: bool) -> int:
        """Add a note on a damaged chunk; return the beginning of the next undamaged one, or the end of the block."""
        after = at + HEADER + self._length(at)
        whole = _end_of_block(self._offset + at) - self._offset
        following = after if after < end and self._chunk(after, end) is not None else self._search(at + 1, end)
        torn = following == end == len(self.data) and final and after > end
        why = "the last record is cut off" if torn else "its checksum does not fit its content"
        self._drop(why, f"{following - at:,} bytes from byte {self._offset + at:,}")
        return following if following < end or end == whole else end

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
            return  # the rest of a record whose damaged beginning has a note already
        if self._size > LONGEST:
            self._drop(f"it is larger than {LONGEST >> 20} MiB", f"{self._size:,} bytes")
        elif kind in (_FULL, _LAST):
            yield self._number, b"".join(self._parts)
            self._number += 1
            self._parts, self._size = [], 0


def _end_of_block(offset: int) -> int:
    return (offset // BLOCK + 1) * BLOCK


#: Fields of a Record.
_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18
#: Field of a RunRecord that holds its first configuration.
_RUN_CONFIG = 4
_STEP = "_step"
#: Key of objects that are a histogram, an image or a table.
_TYPE = "_type"
#: Key of W&B's own settings in a configuration.
OWN = "_wandb"


def read(source: Source) -> Iterator[Item]:
    """Yield the history of a run in tables, then its configuration."""
    decoder = _Decoder(source)
    for number, data in records(source.blocks(), source.notes):
        decoder.take(number, data)
        if decoder.packer.full:
            yield from decoder.packer.flush()
    yield from decoder.packer.flush()
    if decoder.config:
        # No line: it would mark the beginning of another run.
        yield EmbeddedConfig(values=config_values(decoder.config), source=SourceRef(path=source.path))


class _Decoder:
    """Collects the history and the configuration from the records of a run."""

    def __init__(self, source: Source) -> None:
        self._notes = source.notes
        self.packer = Packer(source.path, source.notes)
        self._values = Values(source.notes)
        self.config: dict[str, Any] = {}

    def take(self, number: int, data: bytes) -> None:
        """Add the history or the configuration in a record; a record that cannot be parsed becomes a note."""
        try:
            for field, kind, start, stop, _ in fields(data, 0, len(data)):
                if kind == BYTES:
                    self._part(field, number, data, start, stop)
        except WireError as error:
            self._notes.skip("its content is no record", number, detail=str(error))

    def _part(self, field: int, number: int, data: bytes, start: int, stop: int) -> None:
        if field == _HISTORY:
            self._history(number, data, start, stop)
        elif field == _CONFIG:
            self._configure(number, data, start, stop)
        elif field == _RUN:
            for inner, kind, a, b, _ in fields(data, start, stop):
                if inner == _RUN_CONFIG and kind == BYTES:
                    self._configure(number, data, a, b)
        elif field == _EXIT:
            code = next((signed(n) for f, k, _, _, n in fields(data, start, stop) if f == 1 and k == VARINT), 0)
            if code:
                self._notes.tell("exit", f"the run ended with exit code {code}", number)

    def _history(self, number: int, data: bytes, start: int, stop: int) -> None:
        record: dict[str, Any] = {}
        step: int | None = None
        for field, kind, a, b, _ in fields(data, start, stop):
            if field == 1 and kind == BYTES:
                self._put(record, number, *_item(data, a, b))
            elif field == 2 and kind == BYTES:
                step = next((signed(n) for f, k, _, _, n in fields(data, a, b) if f == 1 and k == VARINT), 0)
        if step is not None:
            record.setdefault(_STEP, step)
        drop_media(record, number, self._notes)
        if record.keys() - {_STEP}:
            # Sorted, because the client varies the order of keys, and each order would be another layout.
            self.packer.add(number, *self._values.flat(dict(sorted(record.items())), number))

    def _configure(self, number: int, data: bytes, start: int, stop: int) -> None:
        for field, kind, a, b, _ in fields(data, start, stop):
            if field == 1 and kind == BYTES:
                keys, value = _item(data, a, b)
                if keys and keys[0] != OWN:
                    self._put(self.config, number, keys, value)

    def _put(self, record: dict[str, Any], number: int, keys: list[str], written: str) -> None:
        key = ".".join(keys)
        try:
            value = _parsed(written)
        except (ValueError, RecursionError):
            self._notes.tell_once("their values are no JSON", key, f"{key} holds no JSON, and is not read", number)
            return
        record[key] = value


def drop_media(record: dict[str, Any], number: int, notes: Ledger) -> None:
    """Remove histograms, images and tables from a record, whether they are one object or one key per part."""
    whole = [key for key, value in record.items() if isinstance(value, dict) and _TYPE in value]
    split = [key.removesuffix(f".{_TYPE}") for key in record if key.endswith(f".{_TYPE}")]
    for key in [*whole, *split]:
        notes.tell_once("they hold media", key, f"{key} holds media, which are not read", number)
        for part in [part for part in record if part == key or part.startswith(f"{key}.")]:
            del record[part]


def _item(data: bytes, start: int, stop: int) -> tuple[list[str], str]:
    """Return the path of keys and the JSON text of a history or configuration item."""
    keys: list[str] = []
    written = ""
    for field, kind, a, b, _ in fields(data, start, stop):
        if kind == BYTES and field in (1, 2):
            keys.append(text(data, a, b))
        elif kind == BYTES and field == 16:
            written = text(data, a, b)
    return [key for key in keys if key] or keys, written


def _parsed(written: str) -> Any:  # noqa: ANN401 - JSON is anything
    try:
        return orjson.loads(written)
    except orjson.JSONDecodeError:
        return json.loads(written)  # accepts NaN and Infinity
