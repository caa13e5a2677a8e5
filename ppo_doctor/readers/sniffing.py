"""Recognise the container of a file by its first bytes, mostly regardless of its name."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.opening import plain_file
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.readers.values import parse

#: Number of lines that are examined.
_LINES = 60
_ARRAY = lazy_pattern(r"\[\s*(?:\{(?!\s*')|\[|\]\s*\Z|\Z)")
#: A one-line document longer than the head: it begins with a list, or is the log of a Hugging Face trainer.
_LONG_DOCUMENT = r'(?s)\{\s*"[^"]*"\s*:\s*(?:\[|\{"0":)|\{"0":|\{.*"log_history"\s*:\s*\['
#: An unmistakable column name, for files that consist of a header only.
_PLAIN_NAME = r"[\w./()%@-]+(?: [\w./()%@-]+){0,3}\Z"
#: A notebook: it has a cell within the head, or begins with its version, which long widget states may follow.
_NOTEBOOK = r'"cells": ?\[\s*\{(?s:.*?)"cell_type": ?"|\A\{\s*"nbformat": ?\d'
#: A console log as Kaggle saves it, in pieces of its streams.
_STREAMS = r'\[\s*\{"stream_name": ?"'
_DELIMITERS = "\t,;"
#: Keys of a frame that pandas writes as a list of names and a list of rows.
FRAME = ("columns", "data")


#: First bytes of containers; a zip is recognised by its first member.
_MAGIC = {b":W&B\xe1\xbe\0": "wandb", b"SQLite format 3\0": "sqlite", b"PAR1": "parquet"}
_ZIP = b"PK\x03\x04"
_MEMBERS = {b"data": "sb3-zip"} | dict.fromkeys(
    (b"timesteps.npy", b"results.npy", b"ep_lengths.npy", b"successes.npy"), "npz-evaluations"
)


def sniff(head: bytes, name: str = "") -> str | None:
    """Return the container of a file by its first 64 kB (unpacked, as UTF-8), or None if no reader knows it.

    The name counts only for event files and W&B files whose first bytes are damaged.
    """
    container = sniff_binary(head, name)
    if container:
        return container
    data = head.rstrip(b"\0").lstrip(b"\xef\xbb\xbf")
    if not data.strip() or _binary(data):
        return None
    text = data.decode("utf-8", "replace").lstrip()
    container = _sniff_json(text)
    if container:
        return container
    lines = [line for row in text.split("\n")[:_LINES] for line in row.split("\r") if line.strip()]
    return "csv" if delimiter_of(lines) else "console"


def sniff_binary(head: bytes, name: str = "") -> str | None:
    """Return the binary container of a file by its first bytes (at least 256, or all of them), or None."""
    for magic, container in _MAGIC.items():
        if head.startswith(magic):
            return container
    if head.startswith(_ZIP):
        size = int.from_bytes(head[26:28], "little")
        return _MEMBERS.get(head[30 : 30 + size])
    if _begins_records(head):
        return "tfevents"
    base = name.replace("\\", "/").rpartition("/")[2]
    if base.endswith(".wandb") and _binary(head[:256]):
        return "wandb"
    return "tfevents" if "tfevents" in base and _binary(head[:256]) else None


def _begins_records(head: bytes) -> bool:
    """Return whether a file begins like a record file of TensorFlow, with a length that matches its checksum."""
    if len(head) < 12 or head[4:8] != b"\0\0\0\0":
        return False
    from ppo_doctor.readers.tfrecord import size_of  # imports NumPy

    return size_of(head[:12]) is not None


def _binary(data: bytes) -> bool:
    """Return whether data is binary: over 1 % control characters that no terminal prints, or over 10 % broken UTF-8."""
    control = len(data) - len(data.translate(None, bytes(set(range(32)) - {8, 9, 10, 12, 13, 27}) + b"\x7f"))
    broken = data.decode("utf-8", "replace").count("\ufffd")
    return control > 0.01 * len(data) or broken > 0.1 * len(data)


def _sniff_json(text: str) -> str | None:
    if text.startswith("["):
        if re.match(_STREAMS, text):
            return "stream-log"
        return "json" if _ARRAY.match(text) else None
    may_be = text.startswith("{") and ('"cells"' in text or '"nbformat"' in text)
    if may_be and re.search(_NOTEBOOK, text):
        return "notebook"
    lines = [line.strip() for line in text.split("\n", _LINES)[:_LINES]]
    if len(lines) == 1 and text.startswith("{"):
        return _one_line(text)
    objects = [line for line in lines if line.startswith("{")]
    whole = sum(map(_is_object, objects))
    # Half of the lines: a log may begin with a torn line, or hold junk between its records.
    if whole and 2 * whole >= sum(map(bool, lines)):
        return "jsonl"
    return "json" if re.match(r'\{\s*(?:"|\}|\Z)', text) else None


def _one_line(text: str) -> str | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        if re.match(_LONG_DOCUMENT, text):
            return "json"
        return "jsonl" if re.match(r'\{\s*"', text) else None
    under_steps = bool(document) and all(map(str.isdecimal, document)) and _holds_records([[*document.values()]])
    if is_frame(document) or under_steps:
        return "json"
    lists = [value for value in document.values() if isinstance(value, list)]
    columns = sum(len(values) > 1 for values in lists)
    return "json" if lists and (2 * columns >= len(document) or _holds_records(lists)) else "jsonl"


def _holds_records(lists: list[list[object]]) -> bool:
    return any(values and all(isinstance(value, dict) for value in values) for values in lists)


def is_frame(document: Mapping[str, object]) -> bool:
    """Return whether an object is a pandas frame: columns of values by row number, or names and rows."""
    if set(FRAME) <= document.keys():
        return True
    inner = list(document.values())
    by_row = [set(value) for value in inner if isinstance(value, dict) and value and all(map(_is_row, value))]
    return len(by_row) == len(inner) > 0 and all(rows == by_row[0] for rows in by_row)


def _is_row(key: object) -> bool:
    return isinstance(key, str) and key.isdecimal()


def _is_object(line: str) -> bool:
    import orjson  # seven times as fast for 60 lines of every log, but it rejects NaN

    try:
        return isinstance(orjson.loads(line), dict)
    except ValueError:
        pass
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def delimiter_of(lines: list[str]) -> str | None:
    """Return the delimiter of a table of numbers, or None if the lines are no such table."""
    rows = [line.rstrip("\r") for line in lines if not line.startswith("#")]
    if not rows:
        return None
    for delimiter in _DELIMITERS:
        if _is_table([cells_of(row, delimiter) for row in rows]):
            return delimiter
    return None


def cells_of(row: str, delimiter: str) -> list[str]:
    """Return the cells of a row, or an empty list if the CSV parser rejects it."""
    import csv

    if row.count('"') % 2:  # otherwise an unclosed quote would turn the rest of the row into one cell
        row = row.replace('"', "")
    try:
        return next(csv.reader([row], delimiter=delimiter), [])
    except csv.Error:
        return []


def leading_columns(rows: list[list[str]]) -> int:
    """Return the width of most rows if it is smaller than the header's, which at most one row fills; else 0.

    Scripts write their settings into additional columns of the first row.
    """
    widths = Counter(len(row) for row in rows[1:] if row)
    if not widths or not all(map(_is_name, rows[0])):
        return 0
    width, count = widths.most_common(1)[0]
    whole = widths.pop(len(rows[0]), 0)
    return width if 2 <= width < len(rows[0]) and whole <= 1 and count >= max(2, 0.9 * widths.total()) else 0


def _is_table(rows: list[list[str]]) -> bool:
    """Return whether many rows are as wide as the first, and some column holds numbers in nearly all of them."""
    width = leading_columns(rows)
    rows = [row[:width] for row in rows] if width else rows
    first = rows[0]
    body = [row for row in rows if len(row) == len(first)]
    if len(first) < 2 or len(body) < 0.4 * len(rows):
        return False
    if len(rows) == 1:
        return all(map(_is_number, first)) or all(re.match(_PLAIN_NAME, cell) for cell in first)
    if all(map(_is_name, first)):
        body = [row for row in body if row != first]  # some loggers repeat the header before each row
    elif not all(map(_is_number, first)):
        return False
    return any(_mostly_numbers([row[i] for row in body]) for i in range(len(first)))


def _mostly_numbers(cells: list[str]) -> bool:
    numbers = sum(isinstance(parse(cell), float) for cell in cells)
    blanks = sum(parse(cell) is None for cell in cells)
    return numbers > 0 and numbers + blanks >= 0.9 * len(cells)


def _is_number(cell: str) -> bool:
    return not isinstance(parse(cell), str)


def _is_name(cell: str) -> bool:
    return isinstance(parse(cell), str) or not cell.strip()


#: For files of unknown kind: bytes examined, fewest lines with a digit, and smallest share of digits.
_LOOKED_AT, _FEWEST_LINES, _DIGITS = 1 << 12, 5, 0.08
#: Source code, which is no log even if it contains many numbers.
_SOURCES = frozenset(
    {".c", ".cpp", ".cs", ".css", ".go", ".h", ".html", ".java", ".js", ".py", ".rs", ".sh", ".svg", ".ts", ".xml"}
)


def holds_lines_of_numbers(path: Path) -> bool:
    """Return whether a file of unknown kind begins with lines of text with many digits, and is no source code."""
    if path.suffix.lower() in _SOURCES:
        return False
    try:
        file = plain_file(path)
        with file:
            text = file.read(_LOOKED_AT)
    except (OSError, DoctorError):
        return False
    if b"\0" in text:
        return False
    lines = [line for line in text.splitlines() if any(48 <= byte <= 57 for byte in line)]
    digits = sum(48 <= byte <= 57 for byte in text)
    return len(lines) >= _FEWEST_LINES and digits >= _DIGITS * len(text)
