"""Databases of trackers in SQLite: opened for reading only, told apart by their tables."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from ppo_doctor.errors import DoctorError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ppo_doctor.readers import Item
    from ppo_doctor.readers.notes import Ledger
    from ppo_doctor.readers.source import Source

#: Largest database that is read from stdin or from a compressed file, which takes holding it in memory.
LARGEST = 256 << 20
_HEADER = 100
#: Bytes 18 and 19 of the header: 2 where changes are kept in a file beside it until they are merged.
_JOURNAL = slice(18, 20)
_WAL = b"\2\2"
#: Farthest that is jumped over a damaged page, in row ids.
_FARTHEST = 1 << 40
#: What damage raises: messages of SQLite quote what is damaged, and its module cannot decode them then.
DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)
_LAST_ROW = (1 << 63) - 1
#: Damaged pages that are jumped over; each takes some ten queries.
MOST_JUMPS = 1_000
#: A larger cell is no value and no configuration; SQLite refuses it before it takes memory.
LARGEST_CELL = 16 << 20


def read(source: Source) -> Iterator[Item]:
    """Yield the runs of an MLflow or a Trackio database, one after the other, and what was lost.

    Raises DoctorError for a database of something else, and for one that is damaged before its first table.
    """
    try:
        with closing(_connect(source)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_CELL)
            database.text_factory = lambda raw: raw.decode("utf-8", "replace")
            tables = _tables(database)
            if {"metrics", "params", "runs"} <= tables:
                from ppo_doctor.readers.mlflow_db import runs
            elif {"metrics", "configs"} <= tables:
                from ppo_doctor.readers.trackio_db import runs
            else:
                raise DoctorError(
                    f"{source.path} is a database of neither MLflow nor Trackio",
                    hint=f"its tables: {', '.join(sorted(tables)[:6]) or 'none'}",
                )
            yield from runs(database, source)
    except (sqlite3.Error, *DAMAGE) as error:
        raise DoctorError(f"{source.path} is a damaged database: {error}") from error
    yield from source.notes.notes()


def rows(
    database: sqlite3.Connection, query: str, key: tuple[str, ...], notes: Ledger
) -> Iterator[tuple[int, tuple[object, ...]]]:
    """Yield (row id, the rest) of every row that can be read; a damaged page is jumped over, with a note.

    `query` selects the row id first, and takes one parameter more than `key`: the row id to begin behind.
    """
    last: int | None = -1
    jumps = 0
    while last is not None:
        try:
            for number, *cells in database.execute(query, (*key, last)):
                if not isinstance(number, int) or number <= last:  # pages that lead in a circle would never end
                    raise sqlite3.DatabaseError(f"row {number} follows row {last}")
                last = number
                yield number, tuple(cells)
        except DAMAGE as error:
            jumps += 1
            ahead = _ahead(database, query, (*key, last))
            if ahead is not None:
                last = ahead[0]
                yield ahead
            beyond = _beyond(database, query, (*key, last)) if jumps < MOST_JUMPS else None
            upto = f"to {beyond}" if beyond is not None else "on"
            notes.skip("a page of the database is damaged", last + 1, detail=f"rows from {last + 1} {upto}: {error}")
            last = beyond
        else:
            return


def _first(database: sqlite3.Connection, query: str, key: tuple[object, ...]) -> tuple[object, ...] | None:
    row: tuple[object, ...] | None = database.execute(f"{query} LIMIT 1", key).fetchone()
    return row


def _ahead(database: sqlite3.Connection, query: str, key: tuple[object, ...]) -> tuple[int, tuple[object, ...]] | None:
    """Return the row before the damage: the module reads ahead by one, and loses it with the error."""
    try:
        row = _first(database, query, key)
    except DAMAGE:
        return None
    number = row[0] if row else None
    return (number, row[1:]) if row and isinstance(number, int) and number > int(str(key[-1])) else None


def _beyond(database: sqlite3.Connection, query: str, key: tuple[object, ...]) -> int | None:
    """Return the least row id behind which there is a row that can be read, or nothing at all; None for neither."""

    def readable(last: int) -> bool:
        try:
            _first(database, query, (*key[:-1], last))
        except DAMAGE:
            return False
        return True

    last = int(str(key[-1]))
    step = 1
    while not readable(last + step):
        step *= 2
        if step > _FARTHEST or last + step >= _LAST_ROW:
            return None
    low, high = step // 2, step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if readable(last + middle) else (middle, high)
    return last + high


def _tables(database: sqlite3.Connection) -> set[str]:
    """Return the names of plain tables: a view may be a program that never ends."""
    listed = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
    return {str(name) for name, sql in listed if str(sql).upper().startswith("CREATE TABLE")}


def _connect(source: Source) -> sqlite3.Connection:
    stream, path = source.file(LARGEST)
    with stream:
        if path is not None:
            return _open(path, stream.read(_HEADER)[_JOURNAL])
        data = bytearray(stream.read())
    if len(data) < _HEADER:
        raise DoctorError(f"{source.path} is a database that is cut off within its header")
    if data[_JOURNAL] == _WAL:
        data[_JOURNAL] = b"\1\1"  # what stands beside it is not at hand
    database = sqlite3.connect(":memory:")
    database.deserialize(bytes(data))
    return database


def _open(path: Path, journal: bytes) -> sqlite3.Connection:
    """Open a file without writing anything, not even beside it."""
    beside = path.with_name(path.name + "-wal").exists()
    mode = "immutable=1" if journal == _WAL and not beside else "mode=ro"
    return sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True)
