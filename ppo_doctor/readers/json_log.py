"""Read JSON documents: lists of records, records by step, columns, curves, or several objects one after the other."""

from __future__ import annotations

import re
from collections import Counter
from itertools import zip_longest
from json import JSONDecoder
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo_doctor.model.run import SourceRef
from ppo_doctor.readers.csv_log import tag_of
from ppo_doctor.readers.jsonl import CONFIG_KEYS, HEADER, Configurations
from ppo_doctor.readers.pack import Packer
from ppo_doctor.readers.points import Points
from ppo_doctor.readers.sniffing import FRAME, is_frame
from ppo_doctor.readers.table import EmbeddedConfig
from ppo_doctor.readers.values import Values, config_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ppo_doctor.readers import Item
    from ppo_doctor.readers.source import Source

#: Parsing takes several times the size of the text in memory.
LARGEST = 1 << 30
#: Suffix of the list of steps that belongs to a list of values (PyMARL).
STEPS_OF = "_T"
#: Larger numbers are not steps, and neither are keys of more digits.
LARGEST_STEP, LONGEST_STEP = 1e15, 15
_BLANK = re.compile(r"[ \t\r\n]*")
#: The end of a damaged record and the beginning of the next one.
_NEXT_RECORD = re.compile(r"\}\s*,\s*(?=\{)")


def read(source: Source) -> Iterator[Item]:
    """Yield the records of a JSON document, and its other top-level values as a configuration.

    A document that is cut off yields the records before the cut, with a note.
    """
    text = source.read_bytes(LARGEST).decode("utf-8", "replace").rstrip(" \t\r\n\0")
    walk = _Walk(text, source)
    yield from walk.document()
    yield from walk.packer.flush()


def read_values(document: dict[str, Any] | Iterator[dict[str, Any] | None], source: Source) -> Iterator[Item]:
    """Yield the items of what a JSON document would hold: an object of columns or curves, or records in their order.

    What is None is no record, and counts as one.
    """
    walk = _Walk("", source)
    if isinstance(document, dict):
        yield from walk.members(document)
    else:
        for number, record in enumerate(document, 1):
            yield from walk.record(record, number) if record is not None else ()
    yield from walk.packer.flush()


class _DamagedError(ValueError):
    """Raised where the text stops being JSON."""


class _Walk:
    """Parses the text once, record by record, with line numbers, and keeps what precedes a torn end."""

    def __init__(self, text: str, source: Source) -> None:
        self._text = text
        self._at = 0
        self._line, self._counted = source.line, 0
        self._notes = source.notes
        self._path = source.path
        self._values = Values(source.notes)
        self._decoder = JSONDecoder(
            parse_int=lambda digits: self._values.of_digits(digits, self._line),
            parse_float=lambda digits: self._values.of_long_number(digits, self._line),
            object_hook=_number_of if _PICKLED in text else None,
        )
        self.packer = Packer(source.path, source.notes)
        self._configs = Configurations(source.path)
        #: number of lists of records so far; keys of further lists get the name of their list as a prefix
        self._lists = 0
        #: number of records so far that are keyed by their step
        self._under_steps = 0

    def document(self) -> Iterator[Item]:
        """Yield the items of the whole text; whatever follows damage that cannot be skipped is lost, with a note."""
        try:
            while start := self._peek():
                if start == "[" and _LIST_IN_LIST.match(self._text, self._at):
                    yield from self._rows(self._value())
                elif start == "[":
                    yield from self._records("")
                elif start == "{":
                    yield from self._object()
                else:
                    self._take("{[")
        except _DamagedError as error:
            text = f"the document is cut off or damaged here, what follows is not read ({error})"
            self._notes.tell("damage", text, self._line_of(self._at), kind="lost")

    def members(self, document: dict[str, Any]) -> Iterator[Item]:
        """Yield the items of an object without records in it."""
        yield from self._rest(document, 1, records_found=False, torn=False)

    def record(self, record: Mapping[str, Any], number: int) -> Iterator[Item]:
        """Take one record, and yield what is ready."""
        self._record(record, number, "")
        yield from self._configs.new()
        if self.packer.full:
            yield from self.packer.flush()

    def _rows(self, rows: list[Any]) -> Iterator[Item]:
        """Read a list of lists: a curve downloaded from TensorBoard, or a row of names and then rows of values."""
        if _is_points(rows):
            yield from self._points({tag_of(self._path): rows}, 1)
        elif isinstance(rows[0], list) and (columns := _columns_of(rows[0], rows[1:])):
            self._columns(columns, 1)
        else:
            self._notes.skip("a list of lists says nothing of its columns", 1)

    def _peek(self) -> str:
        match = _BLANK.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._text[self._at : self._at + 1]

    def _take(self, expected: str) -> str:
        character = self._peek()
        if not character or character not in expected:
            raise _DamagedError(f"expected {' or '.join(expected)}, found {character or 'the end'}")
        self._at += 1
        return character

    def _value(self) -> Any:  # noqa: ANN401 - JSON is anything
        self._peek()
        try:
            value, self._at = self._decoder.raw_decode(self._text, self._at)
        except RecursionError as error:
            raise _DamagedError("nested too deeply") from error
        except ValueError as error:
            raise _DamagedError(str(error)) from error
        return value

    def _line_of(self, at: int) -> int:
        self._line += self._text.count("\n", self._counted, at)
        self._counted = max(at, self._counted)
        return self._line

    def _records(self, prefix: str) -> Iterator[Item]:
        """Read a list of records; `prefix` is put before their keys."""
        self._take("[")
        while self._peek() not in ("]", ""):
            line = self._line_of(self._at)
            try:
                self._record(self._value(), line, prefix)
                self._expect_more()
            except _DamagedError as error:
                self._skip_damaged(line, str(error))
            yield from self._configs.new()
            if self.packer.full:
                yield from self.packer.flush()
            if self._peek() != "]":
                self._take(",")
        self._take("]")

    def _expect_more(self) -> None:
        if (character := self._peek()) not in (",", "]", ""):
            raise _DamagedError(f"expected , or ], found {character}")

    def _record(self, value: object, line: int, prefix: str) -> None:
        if not isinstance(value, dict):
            self._notes.skip("not a JSON object", line)
            return
        metrics = self._configs.taken_out(value, line, first=not self.packer.ordinal)
        record = {prefix + key: inner for key, inner in metrics.items()} if prefix else metrics
        if record or not value:
            self.packer.add(line, *self._values.flat(record, line))

    def _skip_damaged(self, line: int, why: str) -> None:
        """Continue before the next record; without one, give up the rest of the text and raise _DamagedError."""
        start = self._at
        following = _NEXT_RECORD.search(self._text, start)
        self._notes.skip("not JSON" if following else "it is cut off", line, detail=why)
        if following is None:
            self._at = len(self._text)
            raise _DamagedError(why)
        self._at = self._text.rindex(",", start, following.end())

    def _object(self) -> Iterator[Item]:
        start = self._line_of(self._at)
        others: dict[str, Any] = {}
        before = self._lists + self._under_steps
        damage = None
        self._take("{")
        try:
            while self._peek() != "}":
                yield from self._member(others)
                if self._peek() != "}":
                    self._take(",")
            self._take("}")
        except _DamagedError as error:
            damage = error  # the columns and the configuration before the tear still count
        records_found = self._lists + self._under_steps > before
        yield from self._rest(others, start, records_found=records_found, torn=damage is not None)
        if damage:
            raise damage

    def _member(self, others: dict[str, Any]) -> Iterator[Item]:
        """Read one key of the top-level object: yield the records below it, or put its value into `others`."""
        key = self._value() if self._peek() == '"' else None
        if not isinstance(key, str):
            raise _DamagedError("expected a key")
        self._take(":")
        if self._peek() == "[" and _BLANK_THEN_RECORD.match(self._text, self._at + 1):
            self._lists += 1
            prefix = f"{key}/" if self._lists > 1 else ""
            if prefix:
                text = f"a further list of records; its keys begin with {prefix}"
                self._notes.tell_once("further lists of records", key, text)
            yield from self._records(prefix)
        elif key.isdecimal() and len(key) <= LONGEST_STEP and self._peek() == "{":
            yield from self._numbered(key)
        else:
            others[key] = self._value()

    def _numbered(self, step: str) -> Iterator[Item]:
        """Read a record whose key is its step."""
        self._under_steps += 1
        line = self._line_of(self._at)
        self._record({"step": int(step)} | self._value(), line, "")
        if self.packer.full:
            yield from self.packer.flush()

    def _rest(self, others: dict[str, Any], line: int, *, records_found: bool, torn: bool) -> Iterator[Item]:
        """Yield what the other keys of the object are: curves, columns, a configuration, or one record."""
        others = dict(others if records_found else _framed(others))
        points = {} if records_found else _points(others)
        if points:
            yield from self._points(points, line)
            others = {key: value for key, value in others.items() if key.removesuffix(STEPS_OF) not in points}
            records_found = True
        columns = {} if records_found else _columns(others)
        if columns:
            self._columns(columns, line)
        settings = {key: value for key, value in others.items() if key not in columns}
        whole = records_found or bool(columns)
        nested = {key: value for key, value in settings.items() if key in CONFIG_KEYS and isinstance(value, dict)}
        config = config_values({k: v for k, v in settings.items() if whole and not isinstance(v, (dict, list))})
        for value in nested.values():
            config |= config_values(value)
        if config:
            yield EmbeddedConfig(values=config, source=SourceRef(path=self._path, line=line))
        record = {key: value for key, value in settings.items() if key not in nested}
        if torn and not whole:
            self._notes.skip("it is cut off", line)
        elif record.keys() - {HEADER} and not whole:
            self._record(record, line, "")

    def _points(self, points: Mapping[str, list[list[float]]], line: int) -> Iterator[Item]:
        curves = Points(self._path, self._notes)
        names = list(points) if len(points) == 1 else _short(list(points))
        for key, rows in zip(names, points.values(), strict=True):
            table = np.array([row[-2:] for row in rows], dtype=np.float64)
            known = np.isfinite(table[:, 0]) & (np.abs(table[:, 0]) < LARGEST_STEP)
            steps, values = table[known, 0].astype(np.int64), table[known, 1]
            tags = np.full(len(steps), curves.tag(key), dtype=np.int64)
            curves.add(tags, steps, values, np.zeros(len(steps)), np.full(len(steps), line, dtype=np.int64))
        yield from curves.tables()

    def _columns(self, columns: Mapping[str, list[Any]], line: int) -> None:
        length = Counter(map(len, columns.values())).most_common(1)[0][0]
        aligned = {key: values for key, values in columns.items() if len(values) == length}
        for key in columns.keys() - aligned.keys():
            text = f"{key} has {len(columns[key])} values where the others have {length}; it is not read"
            self._notes.tell_once("columns of another length", key, text, line)
        for number, row in enumerate(zip_longest(*aligned.values()), 1):
            self._record(dict(zip(aligned, row, strict=True)), number, "")


_LIST_IN_LIST = re.compile(r"\[\s*\[")
#: Key that jsonpickle, and therefore Sacred, adds to the object of a NumPy number.
_PICKLED = '"py/object"'
_BLANK_THEN_RECORD = re.compile(r'\s*\{(?!\s*(?:"dtype"\s*:[^,{}]*,\s*)?"py/object")')


def _number_of(value: dict[str, Any]) -> object:
    """Return the number that jsonpickle wrote as an object, or any other object unchanged."""
    number = value.get("value")
    pickled = str(value.get("py/object", "")).startswith("numpy.") and isinstance(number, int | float)
    return number if pickled else value


def _points(others: Mapping[str, Any]) -> dict[str, list[list[float]]]:
    """Return the curves of an object as lists of [time, step, value], or nothing if fewer than half of its keys are.

    Curves are written so by exports of TensorBoard; as an object of steps and values by Sacred; and as two lists, whose
    keys differ by STEPS_OF, by PyMARL.
    """
    steps = {key: others[f"{key}{STEPS_OF}"] for key in others if f"{key}{STEPS_OF}" in others}
    lists = {key: {"steps": steps[key], "values": value} if key in steps else value for key, value in others.items()}
    for key in steps:
        lists.pop(f"{key}{STEPS_OF}", None)
    curves = {key: _steps_and_values(value) for key, value in lists.items()}
    points = {key: value for key, value in curves.items() if isinstance(value, list) and _is_points(value)}
    return points if points and 2 * len(points) >= len(curves) else {}


def _steps_and_values(curve: object) -> object:
    """Return an object of lists of steps and values as rows of [time, step, value], anything else unchanged."""
    if not isinstance(curve, dict) or not {"steps", "values"} <= curve.keys():
        return curve
    steps, values = curve["steps"], curve["values"]
    if not isinstance(steps, list) or not isinstance(values, list) or len(steps) != len(values):
        return curve
    return [[0.0, step, value] for step, value in zip(steps, values, strict=True)]


def _is_points(values: list[Any]) -> bool:
    return bool(values) and all(
        isinstance(row, list)
        and len(row) == len(("time", "step", "value"))
        and all(isinstance(number, int | float) and not isinstance(number, bool) for number in row)
        for row in values
    )


def _short(keys: list[str]) -> list[str]:
    """Return tags without the folder that all of them share, and without a group that only repeats the name."""
    common = commonprefix([key[: key.rfind("/") + 1] for key in keys])
    folder = common[: common.rfind("/") + 1]
    tags = [key[len(folder) :] for key in keys]
    halves = [(tag[: len(tag) // 2], tag[len(tag) // 2 + 1 :], tag) for tag in tags]
    return [name if name == again and tag[len(name) : len(name) + 1] == "/" else tag for name, again, tag in halves]


def _columns(others: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the flat lists of an object, or of the one object inside it, where they are at least half of the values.

    Otherwise they are lists in a configuration, and nothing is returned.
    """
    columns = _mostly_lists(others)
    if columns:
        return columns
    inner = [_mostly_lists(value) for value in others.values() if isinstance(value, dict)]
    alone = len(others) == 1
    tables = [columns for columns in inner if len(columns) > (0 if alone else 1)]
    return tables[0] if len(tables) == 1 else {}


def _mostly_lists(others: Mapping[str, Any]) -> dict[str, list[Any]]:
    columns = {key: value for key, value in others.items() if isinstance(value, list) and _numeric(value)}
    return columns if 2 * len(columns) >= len(others) else {}


def _numeric(values: list[Any]) -> bool:
    return bool(values) and not any(isinstance(value, (list, dict)) for value in values)


def _framed(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the columns of a pandas frame as lists (`to_json` with "split" or "columns"), other objects unchanged."""
    names, rows = map(document.get, FRAME)
    if isinstance(names, list) and isinstance(rows, list):
        return _columns_of(names, rows) or document
    if not is_frame(document):
        return document
    return {key: list(values.values()) for key, values in document.items()}


def _columns_of(names: Sequence[object], rows: Sequence[object]) -> dict[str, list[Any]]:
    """Return rows as columns by name, or nothing if a row has another length than the list of names."""
    whole = [row for row in rows if isinstance(row, list) and len(row) == len(names)]
    if len(whole) < len(rows) or not all(isinstance(name, str) for name in names):
        return {}
    return {str(name): [row[i] for row in whole] for i, name in enumerate(names)}
