"""Dumps with one sample per row: NeMo-RL's JSON Lines and TRL's tables of completions."""

from __future__ import annotations

import json
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from ppo_doctor.errors import DoctorError
from ppo_doctor.model import Note, SourceRef
from ppo_doctor.tensors.columns import Columns
from ppo_doctor.tensors.tensor import Archive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: A longer line is not parsed: a sample of 100,000 tokens with ten numbers each has 20 MB.
LONGEST_LINE = 32 << 20
LARGEST_PARQUET = 2 << 30
_ROWS = 1 << 12
_NAMED = re.compile(r"train_data_step(\d+)\.jsonl")
_COMPLETIONS = re.compile(r"completions_(\d+)\.parquet")


def is_rows(path: Path) -> bool:
    """Tell by its name whether a file is a dump with one sample per row."""
    return bool(_NAMED.fullmatch(path.name) or _COMPLETIONS.fullmatch(path.name))


def read_jsonl_dump(path: Path) -> Archive:
    """Return the columns of a file with one sample per line; the step in its name is the scalar `step`.

    Lines that are no JSON object become notes. Raises DoctorError for a file without any.
    """
    with Columns(str(path)) as columns:
        skipped = _take(path, columns)
        if not columns.rows:
            raise DoctorError(f"{path} holds no JSON object", hint="a dump has one sample per line")
        named = _NAMED.fullmatch(path.name)
        notes = [*columns.notes(), *([] if not skipped else [_torn(path, skipped)])]
        return Archive(
            path=str(path),
            container="jsonl-dump",
            tensors=columns.tensors(),
            scalars={"step": int(named[1][:18])} if named else {},
            notes=tuple(notes),
        )


def _take(path: Path, columns: Columns) -> int:
    """Take every line of a file, and return how many could not be used."""
    skipped = 0
    with path.open("rb") as file:
        for line in _lines(file, str(path)):
            record = _parsed(line)
            if isinstance(record, dict):
                columns.add(record)
            elif line.strip():
                skipped += 1
    return skipped


def _torn(path: Path, count: int) -> Note:
    text = f"{count} lines are cut off or no JSON objects"
    return Note(text=text, source=SourceRef(path=str(path)), count=count, kind="skipped")


def read_parquet(path: Path, size: int) -> Archive:
    """Return the columns of a table with one sample per row; words that name a group become whole numbers.

    Raises DoctorError where pyarrow is missing, or the file is damaged.
    """
    if size > LARGEST_PARQUET:
        raise DoctorError(f"{path} has {size:,} bytes", hint="write one table per update")
    with Columns(str(path)) as columns:
        for record in _records(path):
            columns.add(record)
        return Archive(
            path=str(path),
            container="parquet",
            tensors=columns.tensors(),
            scalars={},
            notes=tuple(columns.notes()),
        )


def _records(path: Path) -> Iterator[dict[str, Any]]:
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise DoctorError(
            f"{path} is Parquet, which takes pyarrow", hint='pip install "ppo-doctor[parquet]"'
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_ROWS):
                yield from batch.to_pylist()
    except (arrow.ArrowException, OSError) as error:
        first = str(error).partition("\n")[0]
        raise DoctorError(f"{path} is cut off or damaged: {first}") from error


def _lines(file: BinaryIO, path: str) -> Iterator[bytes]:
    while line := file.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise DoctorError(f"{path} has a line of more than {LONGEST_LINE >> 20} MiB", hint="one sample per line")
        yield line


def _parsed(line: bytes) -> object:
    """Return what a line holds, or None where it is no JSON; NaN and Infinity, which Python writes, are numbers."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
