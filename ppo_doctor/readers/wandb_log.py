"""Run files of W&B, `run-<id>.wandb`: the history and the configuration, whether the run was online or offline.

Field numbers: wandb/proto/wandb_internal.proto.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson

from ppo_doctor.model import SourceRef
from ppo_doctor.readers.leveldb_log import Chunks
from ppo_doctor.readers.pack import Packer
from ppo_doctor.readers.values import Values, config_values
from ppo_doctor.readers.wire import BYTES, VARINT, WireError, fields, signed, text
from ppo_doctor.table import EmbeddedConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppo_doctor.readers import Item
    from ppo_doctor.readers.source import Source

#: Fields of a Record.
_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18
#: Field of a RunRecord that holds its first configuration.
_RUN_CONFIG = 4
_STEP = "_step"
#: What an object holds that is no metric but a histogram, an image, a table.
_TYPE = "_type"
#: Settings of W&B's own.
_OWN = "_wandb"


def read(source: Source) -> Iterator[Item]:
    """Yield the history of a run, then its configuration, then what was lost."""
    decoder = Decoder(source)
    for block in source.blocks():
        yield from decoder.feed(block)
    yield from decoder.finish()


class Decoder:
    """Takes the bytes of a run file as they come; hands on tables, settings and notes."""

    def __init__(self, source: Source) -> None:
        self._path = source.path
        self._notes = source.notes
        self._chunks = Chunks(source.notes)
        self._packer = Packer(source.path, source.notes)
        self._values = Values(source.notes)
        self._config: dict[str, Any] = {}

    def feed(self, block: bytes) -> Iterator[Item]:
        """Take the next bytes; yield tables whenever enough have come together."""
        for number, data in self._chunks.feed(block):
            self._take(number, data)
        if self._packer.full:
            yield from self._packer.flush()

    def finish(self) -> Iterator[Item]:
        """Yield the rest, the configuration, and the notes."""
        for number, data in self._chunks.finish():
            self._take(number, data)
        yield from self._packer.flush()
        if self._config:
            # Without a place: a line would mark the begin of another run.
            yield EmbeddedConfig(values=config_values(self._config), source=SourceRef(path=self._path))
        yield from self._notes.notes()

    def _take(self, number: int, data: bytes) -> None:
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
        self._drop_media(record, number)
        if record.keys() - {_STEP}:
            # Sorted: the client writes each record's keys in an order of its own, and a layout is a sequence of keys.
            self._packer.add(number, *self._values.flat(dict(sorted(record.items())), number))

    def _configure(self, number: int, data: bytes, start: int, stop: int) -> None:
        for field, kind, a, b, _ in fields(data, start, stop):
            if field == 1 and kind == BYTES:
                keys, value = _item(data, a, b)
                if keys and keys[0] != _OWN:
                    self._put(self._config, number, keys, value)

    def _put(self, record: dict[str, Any], number: int, keys: list[str], written: str) -> None:
        key = ".".join(keys)
        try:
            value = _parsed(written)
        except (ValueError, RecursionError):
            self._notes.tell_once("their values are no JSON", key, f"{key} holds no JSON, and is not read", number)
            return
        record[key] = value

    def _drop_media(self, record: dict[str, Any], number: int) -> None:
        """Leave out histograms, images and tables, whether they stand as one object or as one key per part."""
        whole = [key for key, value in record.items() if isinstance(value, dict) and _TYPE in value]
        split = [key.removesuffix(f".{_TYPE}") for key in record if key.endswith(f".{_TYPE}")]
        for key in [*whole, *split]:
            self._notes.tell_once("they hold media", key, f"{key} holds media, which are not read", number)
            for part in [part for part in record if part == key or part.startswith(f"{key}.")]:
                del record[part]


def _item(data: bytes, start: int, stop: int) -> tuple[list[str], str]:
    """Return the keys (one, or those of nested objects) and the JSON of a history or configuration item."""
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
        return json.loads(written)  # knows NaN and Infinity
