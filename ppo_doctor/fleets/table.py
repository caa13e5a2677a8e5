"""The table of a fleet: parts that are written while runs are judged, and one Parquet file in the end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from ppo_doctor.fleets.folders import owned
from ppo_doctor.fleets.row import Row
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.opening import plain_file

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    from ppo_doctor.fleets.unit import Unit

#: Rows of a part, and seconds after which a smaller one is written, so that a kill loses little.
ROWS, SECONDS = 1000, 20.0
#: Rows that are read at a time.
BATCH = 1000
#: What the head of a file names the units by that turned out to hold no run.
EMPTY = b"ppo-doctor: without a run"


class Table:
    """The rows of a fleet in a Parquet file; while it grows, in parts in a folder beside it."""

    def __init__(self, path: Path) -> None:
        _arrow()
        self.path = path
        self._parts = path.with_name(f"{path.name}.parts")
        self._rows: list[Row] = []
        self._empty: dict[str, str] = {}
        self._written = time.monotonic()

    @contextmanager
    def written(self) -> Iterator[None]:
        """Let no other call write the table until the block ends.

        Raises:
            DoctorError: another call writes it, or its folder cannot be written (exit code 2).
        """
        hint = "name another file with --out"
        with ExitStack() as held:
            try:
                held.enter_context(owned(self._parts))
            except BlockingIOError as error:
                text = f"{self.path} is being written by another call"
                raise DoctorError(text, hint=f"wait for its end, or {hint}", code=ExitCode.USAGE) from error
            except OSError as error:
                text = f"{self.path}: cannot write: {error.strerror}"
                raise DoctorError(text, hint=hint, code=ExitCode.USAGE) from error
            yield

    @property
    def has_parts(self) -> bool:
        """Return whether a call that adds to the table has not ended."""
        return bool(self._part_files())

    def known(self) -> frozenset[str]:
        """Return the fingerprints of the units that are in the table and need not be judged again.

        Raises:
            DoctorError: a file of the table is no table of a fleet (exit code 2).
        """
        found: set[str] = set()
        for batch in self._batches(["fingerprint", "again"]):
            for fingerprint, again in zip(batch["fingerprint"].to_pylist(), batch["again"].to_pylist(), strict=True):
                (found.discard if again else found.add)(fingerprint)
        return frozenset(found)

    def empty(self) -> frozenset[str]:
        """Return the fingerprints of the units that turned out to hold no run."""
        return frozenset(self._known_as_empty().values())

    def add(self, rows: Iterable[Row], unit: Unit | None = None) -> None:
        """Add the rows of one unit; they are written with those of others. A unit without rows is remembered."""
        before = len(self._rows)
        self._rows += rows
        if unit is not None and len(self._rows) == before:
            self._empty[_short(unit.key).hex()] = unit.fingerprint
        if len(self._rows) >= ROWS or (self._rows and time.monotonic() - self._written > SECONDS):
            self.flush()

    def finish(self) -> None:
        """Write all rows into one file; of a unit that was judged again only its last rows.

        The rows of a unit are together in one part.
        """
        self.flush()
        if not self._part_files() and not self._empty and self.path.exists():
            return
        latest = {_short(key): file for file, batch in self._numbered(["key"]) for key in batch["key"].to_pylist()}
        batches = (_of_file(batch, file, latest) for file, batch in self._numbered(None))
        self._write(self.path, batches, self._known_as_empty() | self._empty)
        for each in (*self._part_files(), *self._parts.glob(".part-*"), *self.path.parent.glob(f".{self.path.name}.*")):
            each.unlink()  # the last ones are what a call that was killed had not finished
        self._empty = {}
        with suppress(OSError):  # it is not there, or is that of a call which removes it
            self._parts.rmdir()

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows as plain values, with all columns or with some."""
        for batch in self._batches(columns):
            yield from batch.to_pylist()

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a frame of pandas, with a dictionary for each cell of metrics or settings."""
        rows: pd.DataFrame = (
            _arrow().Table.from_batches(self._batches(None), schema()).to_pandas(maps_as_pydicts="strict")
        )
        return rows

    def _part_files(self) -> list[Path]:
        return sorted(self._parts.glob(f"part-{'[0-9]' * 8}.parquet")) if self._parts.is_dir() else []

    def _batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        return (batch for _, batch in self._numbered(columns))

    def _numbered(self, columns: Sequence[str] | None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the batches of the file and then of the parts, in the order in which they were written."""
        for number, path in enumerate(self._files()):
            with _opened(path) as file:
                for batch in file.iter_batches(BATCH, columns=columns):
                    yield number, _typed(batch)

    def _files(self) -> list[Path]:
        return ([self.path] if self.path.exists() else []) + self._part_files()

    def _known_as_empty(self) -> dict[str, str]:
        """Return the fingerprint of each unit without a run by its key in short, as the heads of the files have it."""
        found: dict[str, str] = {}
        for path in self._files():
            with _opened(path) as file:
                held = orjson.loads((file.schema_arrow.metadata or {}).get(EMPTY, b"{}"))
                if not isinstance(held, dict) or not all(isinstance(value, str) for value in held.values()):
                    raise ValueError("what it says about units without a run cannot be understood")
                found |= held
        return found

    def flush(self) -> None:
        """Write the rows that were added since the last part as another one."""
        if self._rows:
            self._parts.mkdir(parents=True, exist_ok=True)
            last = max((int(each.stem.rpartition("-")[2]) for each in self._part_files()), default=0)
            rows = table_of(self._rows)
            self._write(self._parts / f"part-{last + 1:08d}.parquet", rows.to_batches(), self._empty)
            self._rows = []
        self._written = time.monotonic()

    @staticmethod
    def _write(path: Path, batches: Iterable[pa.RecordBatch], empty: Mapping[str, str]) -> None:
        """Write a file whole, then put it in its place."""
        from pyarrow.parquet import ParquetWriter

        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        head = schema().with_metadata({EMPTY: orjson.dumps(empty)})
        with ParquetWriter(unfinished, head, compression="zstd") as writer:
            for batch in batches:
                writer.write_batch(batch)
        unfinished.replace(path)


@contextmanager
def _opened(path: Path) -> Iterator[ParquetFile]:
    """Open a file of the table; what fails while it is read is an error, too.

    Raises:
        DoctorError: it is no table of a fleet, or damaged (exit code 2).
    """
    from pyarrow.parquet import ParquetFile

    try:
        with plain_file(path) as stream, ParquetFile(stream) as file:
            names = file.schema_arrow.names
            if not set(schema().names) <= set(names) or len(names) > len(set(names)):
                raise ValueError("columns of a fleet's table are missing or there twice")  # noqa: TRY301
            yield file
    except (OSError, ValueError, NotImplementedError) as error:
        text = f"{path} is no table of a fleet, or damaged: {error}"
        raise DoctorError(text, hint="name another file with --out", code=ExitCode.USAGE) from error


def _of_file(batch: pa.RecordBatch, file: int, latest: Mapping[bytes, int]) -> pa.RecordBatch:
    """Return the rows of a batch whose units are in no later file."""
    return batch.filter(_arrow().array([latest[_short(key)] == file for key in batch["key"].to_pylist()]))


def _typed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with the types of our columns, which other programs may have written with similar ones.

    Raises:
        ValueError, NotImplementedError: a column is damaged or cannot be converted.
    """
    batch.validate(full=True)
    ours = _arrow().schema([field for field in schema() if field.name in batch.schema.names])
    if "key" in ours.names and batch["key"].null_count:
        raise ValueError("rows without a key")
    if batch.schema.equals(ours):
        return batch
    return _arrow().Table.from_batches([batch.select(ours.names)]).cast(ours).combine_chunks().to_batches()[0]


def _short(key: str) -> bytes:
    """Return a key in 8 bytes, which a dictionary of 100,000 keys takes a tenth of the memory for."""
    return blake2b(key.encode("utf-8", "surrogateescape"), digest_size=8).digest()


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Return rows as a table of Arrow."""
    return _arrow().Table.from_pylist([row.as_dict() for row in rows], schema())


def schema() -> pa.Schema:
    """Return the columns of the table and their types."""
    pa = _arrow()
    text, whole, number, truth = pa.string(), pa.int64(), pa.float64(), pa.bool_()
    findings = pa.struct({"id": text, "severity": text, "since_step": whole, "title": text})
    causes = pa.struct({"id": text, "confidence": text, "severity": text, "benign": truth})
    of_annotation = {
        "str": text,
        "bool": truth,
        "int": whole,
        "int | None": whole,
        "float": number,
        "float | None": number,
        "Literal['judged', 'failed']": text,
        'Literal["judged", "failed"]': text,
        "tuple[FindingOf, ...]": pa.list_(findings),
        "tuple[CauseOf, ...]": pa.list_(causes),
        "Mapping[str, float]": pa.map_(text, number),
        "Mapping[str, str]": pa.map_(text, text),
    }
    return pa.schema({each.name: of_annotation[str(each.type)] for each in fields(Row)})


def _arrow() -> Any:  # noqa: ANN401 - a module
    try:
        import pyarrow as pa
    except ImportError as error:
        hint = "pip install 'ppo-doctor[fleet]'"
        raise DoctorError("a fleet's table needs pyarrow", hint=hint, code=ExitCode.USAGE) from error
    return pa
