"""Read dumps with one sample per row, NeMo-RL's JSON Lines and TRL's completions in Parquet, as a tensor per column."""

from __future__ import annotations

import json
import re
import tempfile
from array import array
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import numpy as np
import orjson

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.opening import plain_file
from ppo_doctor.model.run import Note, SourceRef
from ppo_doctor.readers.notes import Ledger
from ppo_doctor.readers.parquet_log import damaged, open_parquet
from ppo_doctor.readers.tensors.naming import role
from ppo_doctor.readers.tensors.tensor import Archive, InMemory, Tensor, as_float, code, dense

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ppo_doctor.readers.tensors.tensor import AnyArray

#: Values of a column that are kept in memory; a column with more is written to an unnamed temporary file.
HELD = 1 << 20
MOST_COLUMNS, MOST_ROWS = 256, 1 << 18
DEEPEST = 8


class Columns:
    """The columns of a table whose cells are numbers, lists of numbers, or texts that name a group."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.rows = 0
        self.notes = Ledger(path)
        self._columns: dict[str, _Column] = {}
        self._left_out: set[str] = set()

    def add(self, record: dict[str, object]) -> None:
        """Add one record; raises DoctorError for more columns or rows than dumps have."""
        if self.rows >= MOST_ROWS:
            raise DoctorError(f"{self.path} has more than {MOST_ROWS:,} rows", hint=_SPLIT)
        for key, value in record.items():
            if key not in self._columns and len(self._columns) >= MOST_COLUMNS:
                raise DoctorError(f"{self.path} has more than {MOST_COLUMNS} keys", hint=_SPLIT)
            column = self._columns.setdefault(key, _Column(key, self.rows))
            if not column.add(value, self.rows):
                self._left_out.add(key)
                text = f"{key[:80]} is left out: it holds {type(value).__name__}, neither numbers nor lists of them"
                self.notes.tell_once("left out", key[:80], text, kind="skipped")
        self.rows += 1

    def __enter__(self) -> Columns:
        return self

    def __exit__(self, *_: object) -> None:
        for column in self._columns.values():
            column.close()

    def tensors(self) -> dict[str, Tensor]:
        """Return the columns, of shape [rows] or [rows, time]; a column of unequal lengths has a tensor per row."""
        found: dict[str, Tensor] = {}
        for key, column in self._columns.items():
            if key not in self._left_out:
                found |= {tensor.name: tensor for tensor in column.tensors(self.rows)}
        return found


_SPLIT = "write one file per update, with log-probs, advantages and a mask"


class _Column:
    """The concatenated values of all rows of a column, and their number in each row, -1 for a single number."""

    def __init__(self, name: str, missing: int) -> None:
        self._name = name
        self._held = array("d")
        self._spilled: IO[bytes] | None = None
        self._lengths = array("q")
        self._is_group = role(name) == "group"
        self._fill(missing)

    def add(self, value: object, row: int) -> bool:
        """Add a cell; return False if it holds something other than numbers."""
        self._fill(row - len(self._lengths))
        if self._is_group and isinstance(value, str | list | dict):
            value = _code(value)
        if isinstance(value, list):
            before = self._count()
            fits = self._extend(value, 0)
            self._lengths.append(self._count() - before)
        else:
            fits = self._number(value)
            self._lengths.append(-1)
        if len(self._held) >= HELD:
            self._spill()
        return fits

    def tensors(self, rows: int) -> Iterator[Tensor]:
        self._fill(rows - len(self._lengths))
        values, lengths = self._values(), np.array(self._lengths, dtype=np.int64)
        storage = InMemory(values.view(np.uint8))
        if (lengths == -1).all():
            yield self._tensor(self._name, storage, 0, (rows,))
            return
        lengths = np.abs(lengths)
        if (lengths == lengths[0]).all():
            yield self._tensor(self._name, storage, 0, (rows, int(lengths[0])))
            return
        for row, (end, length) in enumerate(zip(np.cumsum(lengths).tolist(), lengths.tolist(), strict=True)):
            yield self._tensor(f"{self._name}.{row}", storage, end - length, (length,))

    def close(self) -> None:
        """Close the temporary file; the memory that is mapped to it stays valid."""
        if self._spilled is not None:
            self._spilled.close()

    def _tensor(self, name: str, storage: InMemory, offset: int, shape: tuple[int, ...]) -> Tensor:
        return Tensor(
            name=name,
            dtype="float64",
            shape=shape,
            storage=f"column:{self._name}",
            offset=offset,
            stride=dense(shape),
            data=storage,
        )

    def _fill(self, rows: int) -> None:
        """Add a NaN for each record without this column."""
        for _ in range(rows):
            self._held.append(float("nan"))
            self._lengths.append(-1)

    def _extend(self, values: list[object], depth: int) -> bool:
        """Add the numbers of a list and of the lists in it."""
        start = len(self._held)
        try:
            self._held.extend(values)  # type: ignore[arg-type]
        except (TypeError, OverflowError):  # not numbers alone: None, lists, integers beyond float64
            del self._held[start:]
            return depth < DEEPEST and all(self._cell(value, depth) for value in values)
        return True

    def _cell(self, value: object, depth: int) -> bool:
        return self._extend(value, depth + 1) if isinstance(value, list) else self._number(value)

    def _number(self, value: object) -> bool:
        if value is None or isinstance(value, bool | int | float):
            self._held.append(float("nan") if value is None else as_float(value))
            return True
        return False

    def _count(self) -> int:
        return len(self._held) + (self._spilled.tell() // 8 if self._spilled else 0)

    def _spill(self) -> None:
        if self._spilled is None:
            self._spilled = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._spilled.write(self._held.tobytes())
        self._held = array("d")

    def _values(self) -> AnyArray:
        if self._spilled is None:
            return np.array(self._held, dtype=np.float64)
        self._spill()
        self._spilled.flush()
        return np.asarray(np.memmap(self._spilled, dtype=np.float64, mode="r"))


def _code(value: object) -> int:
    """Return an integer that is the same for equal prompts: texts, messages of a conversation, or token ids."""
    return code(value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str))


#: A longer line is not parsed: a sample of 100,000 tokens with ten numbers each has 20 MB.
LONGEST_LINE = 32 << 20
LARGEST_PARQUET = 2 << 30
#: Values of a table: completions of 64,000 tokens for each of a thousand samples, twice over.
MOST_VALUES = 1 << 27
_ROWS = 1 << 8
_NAMED = re.compile(r"train_data_step(\d+)\.jsonl")
_COMPLETIONS = re.compile(r"completions_(\d+)\.parquet")


def is_rows(path: Path) -> bool:
    """Return whether a file is a dump with one sample per row, by its name."""
    return bool(_NAMED.fullmatch(path.name) or _COMPLETIONS.fullmatch(path.name))


def read_jsonl_dump(path: Path) -> Archive:
    """Return the columns of a file with one sample per line; the step in its name is the scalar `step`.

    Lines that are no JSON objects are counted in a note. Raises DoctorError for a file without a JSON object.
    """
    with Columns(str(path)) as columns:
        skipped = _take(path, columns)
        if not columns.rows:
            raise DoctorError(f"{path} holds no JSON object", hint="a dump has one sample per line")
        named = _NAMED.fullmatch(path.name)
        notes = [*columns.notes.notes(), *([_torn(path, skipped)] if skipped else [])]
        tensors = columns.tensors()
        if "idx" in tensors and not any(role(name) == "group" for name in tensors):
            tensors["group"] = replace(tensors["idx"], name="group")  # NeMo-RL: the prompt, which has several rows
        return Archive(
            path=str(path),
            container="jsonl-dump",
            tensors=tensors,
            scalars={"step": int(named[1][:18])} if named else {},
            notes=tuple(notes),
        )


def _take(path: Path, columns: Columns) -> int:
    """Add every line of a file to the columns, and return the number of lines that are no JSON objects."""
    skipped = 0
    with plain_file(path) as file:
        for line in _lines(file, str(path)):
            record = parsed(line)
            if isinstance(record, dict):
                columns.add(record)
            elif line.strip():
                skipped += 1
    return skipped


def _torn(path: Path, count: int) -> Note:
    text = f"{count} lines are cut off or no JSON objects"
    return Note(text=text, source=SourceRef(path=str(path)), count=count, kind="skipped")


def read_parquet(path: Path, size: int) -> Archive:
    """Return the columns of a table with one sample per row; texts that name a group become integers.

    The rewards in a table of TRL's completions are the sum of the columns without another role.

    Raises DoctorError if pyarrow is missing, or if the file is damaged.
    """
    if size > LARGEST_PARQUET:
        raise DoctorError(f"{path} has {size:,} bytes", hint="write one table per update")
    with Columns(str(path)) as columns:
        for record in _records(path):
            columns.add(record)
        tensors, notes = columns.tensors(), list(columns.notes.notes())
    rewards = _rewards(tensors)
    if rewards:
        text = f"rewards: the sum of {', '.join(rewards)[:200]}; their weights are not in the file"
        notes.append(Note(text=text, source=SourceRef(path=str(path))))
        values = [next(iter(tensors[name].chunks(tensors[name].size))) for name in rewards]
        tensors["rewards"] = Tensor.of("rewards", np.nansum(np.array(values, np.float64), axis=0))
    return Archive(path=str(path), container="parquet", tensors=tensors, scalars={}, notes=tuple(notes))


def _rewards(tensors: dict[str, Tensor]) -> list[str]:
    """Return the columns of single numbers without a role, if the table has advantages and no rewards."""
    roles = {role(name) for name in tensors}
    if "advantages" not in roles or "rewards" in roles:
        return []
    return [name for name, tensor in tensors.items() if role(name) is None and len(tensor.shape) == 1 and tensor.size]


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, without columns of text other than those that name a group."""
    arrow, file = open_parquet(path, path)
    with file:
        schema = file.schema_arrow
    words = [field.name for field in schema if role(field.name) == "group" and arrow.types.is_string(field.type)]
    _, file = open_parquet(path, path, read_dictionary=words)
    try:
        with file:
            wanted = [field.name for field in schema if _useful(arrow, field)]
            _check_values(path, file.metadata, wanted)
            for batch in file.iter_batches(batch_size=_ROWS, columns=wanted):
                yield from _rows_of(arrow, batch)
    except (arrow.ArrowException, OSError) as error:
        raise damaged(path, error) from error


def _useful(arrow: Any, field: Any) -> bool:  # noqa: ANN401 - pyarrow may not be there
    """Return whether a column holds numbers, lists of numbers, or names of groups."""
    kind = field.type
    while arrow.types.is_list(kind) or arrow.types.is_large_list(kind):
        kind = kind.value_type
    types = arrow.types
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return number or types.is_null(kind) or role(field.name) == "group"


def _check_values(path: Path, metadata: Any, wanted: list[str]) -> None:  # noqa: ANN401 - pyarrow may not be there
    """Raise DoctorError for a table larger than dumps are; a few bytes may stand for a billion values."""
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
    held = [chunk for chunk in chunks if chunk.path_in_schema.partition(".")[0] in wanted]
    values, size = sum(chunk.num_values for chunk in held), sum(chunk.total_uncompressed_size for chunk in held)
    if values > MOST_VALUES or size > LARGEST_PARQUET:
        raise DoctorError(f"{path} unpacks to {values:,} values, {size:,} bytes", hint="write one table per update")


def _rows_of(arrow: Any, batch: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - pyarrow may not be there
    """Yield rows; texts from a dictionary are not copied for each row."""
    held = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if arrow.types.is_dictionary(column.type):
            known = column.dictionary.to_pylist()
            held[name] = [None if at is None else known[at] for at in column.indices.to_pylist()]
        else:
            held[name] = column.to_pylist()
    for values in zip(*held.values(), strict=True):
        yield dict(zip(held, values, strict=True))


def _lines(file: BinaryIO, path: str) -> Iterator[bytes]:
    while line := file.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise DoctorError(f"{path} has a line of more than {LONGEST_LINE >> 20} MiB", hint="one sample per line")
        yield line


def parsed(line: bytes) -> object:
    """Return the value of a line of JSON, with NaN and Infinity as Python writes them; None for any other text."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
