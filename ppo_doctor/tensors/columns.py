"""Rows of numbers, or of lists of numbers, collected by column: a dump with one sample per record as tensors."""

from __future__ import annotations

import json
import tempfile
from array import array
from typing import IO, TYPE_CHECKING

import numpy as np

from ppo_doctor.errors import DoctorError
from ppo_doctor.model import Note, SourceRef
from ppo_doctor.tensors.naming import role
from ppo_doctor.tensors.nesting import code
from ppo_doctor.tensors.tensor import InMemory, Tensor, dense

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppo_doctor.tensors.dtypes import AnyArray

#: Values that are held in memory for a column; more go to an unnamed temporary file.
HELD = 1 << 20
MOST_COLUMNS, MOST_ROWS = 256, 1 << 18
DEEPEST = 8


class Columns:
    """The columns of a table whose cells are numbers, lists of numbers, or words that name a group."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.rows = 0
        self._columns: dict[str, _Column] = {}
        self._left_out: dict[str, str] = {}

    def add(self, record: dict[str, object]) -> None:
        """Take one record; raises DoctorError for a table of more columns or rows than dumps have."""
        if self.rows >= MOST_ROWS:
            raise DoctorError(f"{self.path} has more than {MOST_ROWS:,} rows", hint=_SPLIT)
        for key, value in record.items():
            if key not in self._columns and len(self._columns) >= MOST_COLUMNS:
                raise DoctorError(f"{self.path} has more than {MOST_COLUMNS} keys", hint=_SPLIT)
            column = self._columns.setdefault(key, _Column(key, self.rows))
            if not column.add(value, self.rows):
                self._left_out.setdefault(key, type(value).__name__)
        self.rows += 1

    def __enter__(self) -> Columns:
        return self

    def __exit__(self, *_: object) -> None:
        for column in self._columns.values():
            column.close()

    def tensors(self) -> dict[str, Tensor]:
        """Return each column: of shape [rows], of [rows, time], or, where lengths differ, row by row as "name.0"."""
        found: dict[str, Tensor] = {}
        for key, column in self._columns.items():
            if key not in self._left_out:
                found |= {tensor.name: tensor for tensor in column.tensors(self.rows)}
        return found

    def notes(self) -> Iterator[Note]:
        """Yield which columns are left out."""
        for key, kind in list(self._left_out.items())[:20]:
            yield Note(
                text=f"{key[:80]} is left out: it holds {kind}, neither numbers nor lists of them",
                source=SourceRef(path=self.path, key=key[:80]),
                kind="skipped",
            )


_SPLIT = "write one file per update, with log-probs, advantages and a mask"


class _Column:
    """One column: the values of all rows end to end, and how many each row has; -1 where the cell is one number."""

    def __init__(self, name: str, missing: int) -> None:
        self._name = name
        self._held = array("d")
        self._spilled: IO[bytes] | None = None
        self._lengths = array("q")
        self._is_group = role(name) == "group"
        self._fill(missing)

    def add(self, value: object, row: int) -> bool:
        """Take a cell; False for what holds no numbers."""
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
        """Close the temporary file; what is mapped of it stays until the tensors are gone."""
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
        """Account for records without this column."""
        for _ in range(rows):
            self._held.append(float("nan"))
            self._lengths.append(-1)

    def _extend(self, values: list[object], depth: int) -> bool:
        """Take the numbers of a list and of the lists in it, end to end."""
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
            self._held.append(float("nan") if value is None else _as_float(value))
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
    """Return a whole number that is equal for equal prompts: words, messages of a conversation, or token ids."""
    return code(value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str))


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
