"""Databases of trackers in SQLite: opened for reading only, told apart by their tables."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from ppo_doctor.errors import DoctorError
from ppo_doctor.opening import plain_file

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
#: The file of changes that are not merged yet: its mark, and bytes before the first frame and before the page of each.
_LOG_MARK, _LOG_HEADER, _FRAME_HEADER = b"\x37\x7f\x06", 32, 24
#: Farthest that is jumped over a damaged page, in row ids.
_FARTHEST = 1 << 40
#: What damage raises: messages of SQLite quote what is damaged, and its module cannot decode them then.
DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)
_LAST_ROW = (1 << 63) - 1
_OF_DAMAGE = "copy it again from where it was written, or save what can be saved: sqlite3 FILE .recover"
#: What SQLite says where a transaction that was cut off would have to be undone first, which takes writing, and where a
#: file beside the database cannot be opened.
_NOT_WITHOUT_WRITING = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
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
        raise DoctorError(f"{source.path} is a damaged database: {error}", hint=_OF_DAMAGE) from error
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
            first = max(1, last + 1)
            upto = f"to {beyond}" if beyond is not None else "on"
            text = f"a page of the database is damaged: rows of {_table(query)} from {first} {upto} are lost ({error})"
            notes.tell("a page of the database is damaged", text, first, kind="lost")
            last = beyond
        else:
            return


def _table(query: str) -> str:
    return query.partition(" FROM ")[2].partition(" ")[0]


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
        head = stream.read(_HEADER)
        size = stream.seek(0, 2)
        missing = _size_of(head) - size
        if path is not None and missing <= 0:
            return _open(path, head, source.notes)
        if missing > 0:
            text = f"the database is cut off: {size:,} bytes of {size + missing:,} are there; the rest is lost"
            source.notes.tell("cut off", text, kind="lost")
        if max(size, size + missing) > LARGEST:
            raise DoctorError(f"{source.path} is cut off, and larger than {LARGEST >> 20} MiB", hint=_OF_DAMAGE)
        stream.seek(0)
        data = bytearray(stream.read())
    if len(data) < _HEADER:
        raise DoctorError(f"{source.path} is a database that is cut off within its header", hint=_OF_DAMAGE)
    if data[_JOURNAL] == _WAL:
        data[_JOURNAL] = b"\1\1"  # what stands beside it is not at hand
    database = sqlite3.connect(":memory:")
    database.deserialize(bytes(data) + bytes(max(0, missing)))  # pages of zeros are jumped over as damaged ones are
    return database


def _size_of(head: bytes) -> int:
    """Return the bytes of a database by its header, 0 where the header does not know: old versions keep no count."""
    pages = int.from_bytes(head[28:32], "big")
    return _page(head) * pages if head[24:28] == head[92:96] else 0


def _page(head: bytes) -> int:
    size = int.from_bytes(head[16:18], "big")
    return size if size > 1 else 1 << 16


def _open(path: Path, head: bytes, notes: Ledger) -> sqlite3.Connection:
    """Open a file without writing anything, not even beside it."""
    beside = path.with_name(path.name + "-wal")
    alone = head[_JOURNAL] == _WAL and not beside.exists()
    if head[_JOURNAL] == _WAL and not alone and not _is_whole(beside, _page(head)):
        notes.tell("wal", f"{beside.name} is damaged: of the last changes some are lost", kind="lost")
    database = _opened(path, "immutable=1" if alone else "mode=ro")
    try:
        database.execute("SELECT 1 FROM sqlite_master")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 255 not in _NOT_WITHOUT_WRITING:
            raise
        database.close()
        text = "its writer died within a change, or the files beside it cannot be used; read without them, as it stands"
        notes.tell("beside", text, kind="lost")
        return _opened(path, "immutable=1")
    return database


def _is_whole(log: Path, page: int) -> bool:
    """Tell whether changes that are not merged yet look whole: SQLite takes those before the first damage, silently.

    The file begins with a mark and ends with a whole frame; frames of the same salt as its header stand together, and
    behind them those of earlier changes, never nothing.
    """
    with plain_file(log) as stream:
        size = stream.seek(0, 2)
        frames, rest = divmod(size - _LOG_HEADER, page + _FRAME_HEADER)
        stream.seek(0)
        head = stream.read(_LOG_HEADER)
        salts = []
        for frame in range(frames):
            stream.seek(_LOG_HEADER + frame * (page + _FRAME_HEADER) + 8)
            salts.append(stream.read(8))
    count = salts.count(head[16:24])
    ordered = salts[:count].count(head[16:24]) == count and bytes(8) not in salts
    return not size or (head.startswith(_LOG_MARK) and not rest and ordered)


def _opened(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True)
