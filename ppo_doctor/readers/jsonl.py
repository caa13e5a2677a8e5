"""JSON Lines: one object per line."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import orjson

from ppo_doctor.model import SourceRef
from ppo_doctor.readers.pack import Packer
from ppo_doctor.readers.values import Values, config_values
from ppo_doctor.table import EmbeddedConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ppo_doctor.readers import Item
    from ppo_doctor.readers.source import Source

#: A first record that holds one of these and nothing else is a configuration.
CONFIG_KEYS = frozenset({"config", "args", "hyperparameters", "hparams"})


def read(source: Source) -> Iterator[Item]:
    """Yield the records of a file of JSON objects, one per line.

    A line that is no JSON object is skipped with a note; so is a last line that was cut off.
    """
    reader = _Reader(source)
    packer = reader.packer
    layouts = packer.layouts
    loads = orjson.loads
    for number, line in enumerate(source.lines(), 1):
        # The fast path knows one case: a flat object of numbers whose keys were seen before.
        try:
            record = loads(line)
            layout = layouts[tuple(record)]
            layout.buffer += layout.pack(packer.ordinal, number, *record.values())
            packer.ordinal += 1
        except (ValueError, KeyError, TypeError, AttributeError, struct.error, OverflowError):
            yield from reader.slow(line, number)
        if packer.full:
            yield from packer.flush()
    yield from packer.flush()
    yield from reader.tail()


class _Reader:
    def __init__(self, source: Source) -> None:
        self.packer = Packer(source.path, source.notes)
        self._source = source
        self._values = Values(source.notes)
        self._last_config: object = None
        #: a line that failed: whether it was torn is known only at the end of the file
        self._failed: tuple[int, str] | None = None

    def slow(self, line: bytes, number: int) -> Iterator[Item]:
        """Take a line that the fast path could not."""
        line = line.strip(b" \t\r\n\0")
        if not line:
            return
        self._settle()
        try:
            record = self._parse(line, number)
        except RecursionError:
            self._source.notes.skip("nested too deeply", number)
            return
        except ValueError as error:
            self._failed = (number, str(error))
            return
        if not isinstance(record, dict):
            self._source.notes.skip("not a JSON object", number)
            return
        yield from self._take(record, number)

    def tail(self) -> Iterator[Item]:
        """Yield the notes; a last line that failed and has no end was torn."""
        if self._failed and not self._source.ended:
            self._source.notes.skip("the last line is cut off", self._failed[0])
            self._failed = None
        self._settle()
        yield from self._source.notes.notes()

    def _settle(self) -> None:
        if self._failed:
            number, why = self._failed
            self._source.notes.skip("not JSON", number, detail=why)
            self._failed = None

    def _take(self, record: dict[str, Any], number: int) -> Iterator[Item]:
        config = self._config_of(record)
        if config is not None:
            if config != self._last_config:
                self._last_config = config
                source = SourceRef(path=self._source.path, line=number)
                yield EmbeddedConfig(values=config_values(config), source=source)
            record = {key: value for key, value in record.items() if value is not config}
            if not record or record.keys() == {"ppo_doctor"}:
                return
        self.packer.add(number, *self._values.flat(record, number))

    def _config_of(self, record: dict[str, Any]) -> Mapping[str, Any] | None:
        """Return the configuration that a record holds; Ray Tune repeats it in every record."""
        if len(record) == 1 and not self.packer.ordinal and CONFIG_KEYS.issuperset(record):
            (config,) = record.values()
        else:
            config = record.get("config")
        return config if isinstance(config, dict) else None

    def _parse(self, line: bytes, number: int) -> object:
        try:
            return orjson.loads(line)
        except orjson.JSONDecodeError:
            return parse_lenient(line, self._values, number)


def parse_lenient(line: bytes, values: Values, number: int) -> Any:  # noqa: ANN401 - JSON is anything
    """Return what the standard library makes of a line: it knows NaN, Infinity and numbers of any length.

    Raises ValueError for what is no JSON, RecursionError for objects nested too deeply.
    """
    return json.loads(
        line.decode("utf-8", "replace"),
        parse_float=lambda digits: values.of_long_number(digits, number),
        parse_int=lambda digits: values.of_digits(digits, number),
    )
