"""Read JSON Lines: one object per line."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from ppo_doctor.model.run import ROLES, CodePlace, SourceRef
from ppo_doctor.readers.console_base import Line
from ppo_doctor.readers.pack import Packer, disguise
from ppo_doctor.readers.table import EmbeddedConfig, ScriptPlaces
from ppo_doctor.readers.values import Values, config_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ppo_doctor.readers import Item
    from ppo_doctor.readers.console_messages import Exceptions
    from ppo_doctor.readers.notes import Ledger
    from ppo_doctor.readers.source import Source

#: A first record with one of these keys and no others is a configuration.
CONFIG_KEYS = frozenset({"config", "args", "hyperparameters", "hparams"})
#: The key of our recorder's format version in the record of its configuration.
HEADER = "ppo_doctor"
#: Keys beside HEADER: metric → line of the script that it was observed at, and quantity → why it was not observed.
PLACES, UNSEEN = "places", "unseen"
#: The most entries of each that are kept, the highest number of a line, and the most characters of a name, of a path,
#: and of a line of code or a reason.
MOST_ENTRIES, LARGEST_LINE = 300, 10_000_000
LONGEST_NAME, LONGEST_PATH, LONGEST_CODE = 80, 400, 200
#: The most lines of a metric that are kept beside the main one.
MOST_ALSO = 5
_SETTINGS = tuple(f'"{key}"'.encode() for key in sorted(CONFIG_KEYS))
#: Errors on a line that the fast path cannot read.
_NOT_FAST = (ValueError, KeyError, TypeError, AttributeError, struct.error, OverflowError)
_NANS, _INFINITIES = (b"NaN",), (b"Infinity",)
#: Records between two flushes. Packed records hold all columns, also those that are dropped later: 5 MB for 40 columns.
_EVERY = 16_384
#: Bytes that are ignored at the ends of a line.
_BLANK = b" \t\r\n\0"
#: Key layouts that are remembered; a log whose every record differs must not take memory without end.
_MOST_LAYOUTS = 1_000


def read(source: Source) -> Iterator[Item]:
    """Yield the records of a file of JSON objects, one per line.

    A line that is no JSON object is skipped with a note; so is a last line that was cut off.
    """
    reader = _Reader(source)
    packer = reader.packer
    known, loads, ordinal = reader.known, orjson.loads, 0
    last: tuple[str, ...] | None = None
    for chunk in source.chunks():
        lines = chunk.split(b"\n")
        for number, line in enumerate(lines, source.line):
            if not line.strip(_BLANK):  # the parser takes ten times as long to refuse it
                continue
            record = None
            # The fast path reads objects of numbers only, with keys that occurred before.
            try:
                record = loads(line)
                if len(record) == 2:
                    record = _unwrapped(record)
                keys = tuple(record)
                if keys != last:  # hashing forty names takes a twentieth of the time of parsing the line
                    pack, extend = known[keys]
                    last = keys
                extend(pack(ordinal, number, *record.values()))
                ordinal += 1
            except _NOT_FAST:
                packer.ordinal = ordinal
                reader.slow(line, number, record)
                ordinal = packer.ordinal
        packer.ordinal = ordinal
        source.line += len(lines)
        if reader.configs.found or packer.full:
            yield from reader.ready()
            last = None  # a flush may forget layouts
    yield from reader.end()


class Configurations:
    """Takes configurations out of records: a first record that is nothing else, and the value of `config` in any.

    `found` holds a configuration only if it differs from the last one: Ray Tune repeats it in every record.
    """

    def __init__(self, path: str) -> None:
        self.found: list[EmbeddedConfig] = []
        self._path = path
        self._last: object = None

    @property
    def any(self) -> bool:
        """Return whether there was any configuration so far."""
        return self._last is not None

    def taken_out(self, record: dict[str, Any], line: int, *, first: bool) -> dict[str, Any]:
        """Return a record without its configuration; `first` means that no record with a metric came before."""
        alone = first and len(record) == 1 and CONFIG_KEYS.issuperset(record)
        config = next(iter(record.values())) if alone else record.get("config")
        if not isinstance(config, dict):
            return record
        if config != self._last:
            self._last = config
            source = SourceRef(path=self._path, line=line)
            self.found.append(EmbeddedConfig(values=config_values(config), source=source))
        rest = {key: value for key, value in record.items() if value is not config}
        return {} if rest.keys() == {HEADER} else rest

    def new(self) -> list[EmbeddedConfig]:
        """Return the configurations since the last call."""
        found, self.found = self.found, []
        return found


class ScriptLines:
    """Takes what `ppo-doctor run` observed beside numbers out of records: lines of the script, and what was not seen.

    Later records replace what earlier ones state about a metric. Entries of other types, or beyond the limits, are
    left out with a note.
    """

    def __init__(self, notes: Ledger) -> None:
        self._notes = notes
        self._places: dict[str, CodePlace] = {}
        #: quantity → reason, and the line of the record
        self._unseen: dict[str, tuple[str, int]] = {}

    def taken_out(self, record: dict[str, Any], line: int) -> dict[str, Any]:
        """Return a record of our recorder without lines of the script and what was not seen; others unchanged."""
        if HEADER not in record or not (PLACES in record or UNSEEN in record):
            return record
        for metric, value in self._entries(record, PLACES, line):
            if (place := _code_place(value)) is not None:
                self._add(self._places, metric, replace(place, also=self._also(value, metric, line)), line)
            else:
                text = f"the line of code of {metric[:LONGEST_NAME]!r} is not used: it has no file and line"
                self._notes.tell("line of code", text, line, kind="dropped")
        for quantity, why in self._entries(record, UNSEEN, line):
            self._add(self._unseen, quantity, (_text(why, LONGEST_CODE) or "no reason is given", line), line)
        rest = {key: value for key, value in record.items() if key not in (PLACES, UNSEEN)}
        return {} if rest.keys() == {HEADER} else rest

    def finish(self) -> Iterator[ScriptPlaces]:
        """Yield the lines of the script if there are any, and note for each reason what was not observed."""
        reasons: dict[str, list[str]] = {}
        for quantity, (why, _) in self._unseen.items():
            reasons.setdefault(why, []).append(quantity)
        for why, names in reasons.items():
            text = f"not observed, so unknown: {', '.join(names)}: {why}"
            self._notes.tell("unseen", text, max(self._unseen[name][1] for name in names), kind="said")
        if self._places:
            yield ScriptPlaces(places=self._places)

    def _also(self, value: dict[str, Any], metric: str, line: int) -> tuple[CodePlace, ...]:
        """Return the lines of code beside the main one of a metric."""
        given = value.get("also", [])
        places = [_code_place(each) for each in given[:MOST_ALSO]] if isinstance(given, list) else [None]
        if None in places or len(given) > MOST_ALSO:
            name = metric[:LONGEST_NAME]
            text = f"lines of code beside that of {name!r} are not used: {MOST_ALSO} may be, each with file and line"
            self._notes.tell("line of code beside another", text, line, kind="dropped")
        return tuple(place for place in places if place is not None)

    def _entries(self, record: dict[str, Any], key: str, line: int) -> list[tuple[str, Any]]:
        entries = record.get(key, {})
        if isinstance(entries, dict):
            return list(entries.items())
        self._notes.tell(f"{key} of another type", f"'{key}' is not an object, and is not used", line, kind="dropped")
        return []

    def _add(self, held: dict[str, Any], name: str, value: object, line: int) -> None:
        if name in held or (len(held) < MOST_ENTRIES and 0 < len(name) <= LONGEST_NAME):
            held[name] = value
        else:
            text = f"names of more than {LONGEST_NAME} characters, and more than {MOST_ENTRIES} of them, are not used"
            self._notes.tell_once("entries beyond the limits", "", text, line, kind="dropped")


def _code_place(value: object) -> CodePlace | None:
    """Return a line of code with its texts shortened, or None if it has no file and no line number."""
    if not isinstance(value, dict):
        return None
    file, line = value.get("file"), value.get("line")
    if not isinstance(file, str) or not 0 < len(file) <= LONGEST_PATH or type(line) is not int:
        return None
    if not 0 < line <= LARGEST_LINE:
        return None
    function, text = _text(value.get("function"), LONGEST_NAME), _text(value.get("text"), LONGEST_CODE)
    role = _text(value.get("role"), LONGEST_NAME)
    return CodePlace(file=file, line=line, function=function, text=text, role=role if role in ROLES else "")


def _text(value: object, longest: int) -> str:
    """Return a text on one line, cut to a length; "" for a value of another type."""
    if not isinstance(value, str):
        return ""
    text = " ".join(value[: 4 * longest].split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


class _Reader:
    def __init__(self, source: Source) -> None:
        self.packer = Packer(source.path, source.notes, _EVERY)
        self.configs = Configurations(source.path)
        #: key layout → the functions that pack and append a record of numbers
        self.known: dict[tuple[str, ...], tuple[Callable[..., bytes], Callable[[bytes], None]]] = {}
        self.notes = source.notes
        self._script = ScriptLines(source.notes)
        self._source = source
        self._values = Values(source.notes)
        #: a console that prints records as JSON may end in a traceback
        self._exceptions: Exceptions | None = None
        #: key layouts that were searched for keys that occur twice
        self._seen: set[tuple[str, ...]] = set()
        #: the last line that failed, and why: only the end of the file tells whether it was cut off
        self._failed: tuple[int, str] | None = None
        #: the line of a piece of what may have been settings, or of a record before the first one
        self._piece: int | None = None

    @property
    def records(self) -> int:
        """Return the number of records so far."""
        return self.packer.ordinal

    def ready(self) -> Iterator[Item]:
        """Yield new configurations, and the records if there are enough of them."""
        yield from self.configs.new()
        if self.packer.full:
            yield from self.packer.flush()
            if not self.packer.layouts:
                self.known.clear()

    def end(self) -> Iterator[Item]:
        """Yield the remaining records; a last line that failed and has no newline was cut off."""
        if self._failed and not self._source.ended:
            self._source.notes.skip("the last line is cut off", self._failed[0])
            self._failed = None
        self._settle()
        if self._exceptions is not None:
            self._exceptions.finish()
        if self._piece is not None and not self.configs.any:
            text = "a piece of a record; settings, or records before it, may be lost with the rest"
            self._source.notes.tell("piece", text, self._piece, kind="lost")
        yield from self.configs.new()
        yield from self._script.finish()
        yield from self.packer.flush()

    def slow(self, line: bytes, number: int, record: object) -> None:
        """Read a line that the fast path could not read; `record` is the parsed value, or None if parsing failed."""
        whole, line = line, line.strip(_BLANK)
        if record is None and self.packer.disguised and self._by_stand_ins(line, number):
            return
        self._settle()
        if record is None:
            try:
                record = self._lenient(line, number)
            except (ValueError, RecursionError) as error:
                if not self._take_exception(whole, number):
                    self._fail(line, number, error)
                return
        if isinstance(record, dict):
            self._take(record, number, line)
        else:
            self._source.notes.skip("not a JSON object", number)

    def _take_exception(self, line: bytes, number: int) -> bool:
        """Read a line of a traceback; return False for any other line."""
        # Not at the top: these modules compile 20 expressions, and few logs have such a line.
        from ppo_doctor.readers.console_messages import Exceptions

        if self._exceptions is None:
            self._exceptions = Exceptions(self)
        return self._exceptions.take(Line(line.decode("utf-8", "replace").rstrip("\r\n\0"), number))

    def _fail(self, line: bytes, number: int, error: ValueError | RecursionError) -> None:
        """Count a damaged line; before the first record it may have been the configuration."""
        piece = not self.packer.ordinal and (line.startswith(b"{") or line.endswith(b"}"))
        if self._piece is None and (piece or any(key in line for key in _SETTINGS)):
            self._piece = number
        if isinstance(error, RecursionError):
            self._source.notes.skip("nested too deeply", number)
        else:
            self._failed = (number, str(error))

    def _settle(self) -> None:
        if self._failed:
            number, why = self._failed
            self._source.notes.skip("not JSON", number, detail=why)
            self._failed = None

    def _take(self, record: dict[str, Any], number: int, line: bytes) -> None:
        rest = self.configs.taken_out(record, number, first=not self.packer.ordinal)
        rest = self._script.taken_out(rest, number)
        if record and not rest:
            return
        record = _unwrapped(rest) if len(rest) == 2 else rest
        keys = tuple(record)
        if keys not in self._seen:
            if len(self._seen) > _MOST_LAYOUTS:
                self._seen.clear()
            self._seen.add(keys)
            self._look_for_twins(line, number)
        numbers, texts = self._values.flat(record, number)
        self.packer.add(number, numbers, texts)
        if tuple(numbers) == keys and not texts:
            layout = self.packer.layout(keys)
            if layout.keys == keys:
                self.known[keys] = (layout.pack, layout.buffer.extend)

    def _look_for_twins(self, line: bytes, number: int) -> None:
        """Note keys that occur twice in an object, which the fast parser ignores."""
        try:
            parse_lenient(line, self._values, number)
        except (ValueError, RecursionError):  # the standard library refuses a few things that orjson reads
            return

    def _lenient(self, line: bytes, number: int) -> object:
        record = parse_lenient(line, self._values, number)
        # Where one NaN is, many follow.
        self.packer.disguised = self.packer.disguised or b"NaN" in line or b"Infinity" in line
        return record

    def _by_stand_ins(self, line: bytes, number: int) -> bool:
        """Pack a line of numbers with NaN or infinity among them; return False for any other line."""
        nan, infinity = _NANS if b"NaN" in line else (), _INFINITIES if b"Infinity" in line else ()
        if not (nan or infinity):
            return False
        try:
            record = orjson.loads(disguise(line, nan, infinity))
            pack, extend = self.known[tuple(record)]
            extend(pack(self.packer.ordinal, number, *record.values()))
        except _NOT_FAST:
            return False
        self.packer.ordinal += 1
        return True


def _unwrapped(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record of verl's file logger, `{"step": 3, "data": {…}}`, without the inner object."""
    inner = record.get("data")
    if isinstance(inner, dict) and "step" in record and "step" not in inner:
        return {"step": record["step"], **inner}
    return record


def parse_lenient(line: bytes, values: Values, number: int) -> Any:  # noqa: ANN401 - JSON is anything
    """Return the value of a line of JSON, also with NaN, Infinity and numbers of any length.

    Raises ValueError for a line that is no JSON, and RecursionError for objects nested too deeply.
    """

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            values.note_twice([key for key, _ in pairs], number)
        return result

    return json.loads(
        line.decode("utf-8", "replace"),
        object_pairs_hook=object_of,
        parse_float=lambda digits: values.of_long_number(digits, number),
        parse_int=lambda digits: values.of_digits(digits, number),
    )
