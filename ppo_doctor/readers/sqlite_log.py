"""Databases of MLflow and Trackio in SQLite: opened read-only, recognised by their tables.

Sources: mlflow/store/tracking/sqlalchemy_store.py, and trackio/sqlite_storage.py, whose cells are JSON.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.opening import plain_file
from ppo_doctor.model.run import SourceRef
from ppo_doctor.readers.pack import Packer
from ppo_doctor.readers.points import Points, within
from ppo_doctor.readers.table import EmbeddedConfig
from ppo_doctor.readers.values import Values, config_values, value_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ppo_doctor.model.run import FloatArray
    from ppo_doctor.model.words import ConfigValue
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
                runs = mlflow_runs
            elif {"metrics", "configs"} <= tables:
                runs = trackio_runs
            else:
                raise DoctorError(
                    f"{source.path} is a database of neither MLflow nor Trackio",
                    hint=f"its tables: {', '.join(sorted(tables)[:6]) or 'none'}",
                )
            yield from runs(database, source)
    except (sqlite3.Error, *DAMAGE) as error:
        raise DoctorError(f"{source.path} is a damaged database: {error}", hint=_OF_DAMAGE) from error


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


#: Infinity is stored as the largest double.
_LARGEST = 1.7976931348623157e308
_METRICS = "SELECT rowid, run_uuid, key, value, timestamp, step, is_nan FROM metrics NOT INDEXED WHERE rowid > ?"
_PARAMS = "SELECT rowid, run_uuid, key, value FROM params NOT INDEXED WHERE rowid > ?"
_RUNS = "SELECT rowid, run_uuid, name, status, lifecycle_stage FROM runs NOT INDEXED WHERE rowid > ?"
#: The column that tells the runs of a database apart.
_RUN = "run"
_DELETED = "deleted"


def mlflow_runs(database: sqlite3.Connection, source: Source) -> Iterator[Item]:
    """Yield each run's parameters and then its metrics by step; deleted runs are passed over.

    A record's line is the place of its first value among the values of the runs in the order in which they are read.
    """
    order = " ORDER BY rowid"
    known = {str(cells[0]): cells[1:] for _, cells in rows(database, _RUNS + order, (), source.notes)}
    settings: dict[str, dict[str, ConfigValue]] = defaultdict(dict)
    for _, (run, key, value) in rows(database, _PARAMS + order, (), source.notes):
        settings[str(run)][str(key)] = value_of(str(value))
    points = Points(source.path, source.notes)
    values = _values(rows(database, _METRICS + order, (), source.notes), points, source)
    live = [run for run in values if known.get(run, ("", "", ""))[2] != _DELETED]
    line = 1
    for number, run in enumerate(live, 1):
        name, status, _ = known.get(run, ("", "unknown", ""))
        if len(live) > 1:
            text = f"run {number} is {name or run} ({run}, {str(status).lower()}), with {len(values[run]):,} values"
            source.notes.tell("runs", text, line)
        if run in settings:
            yield EmbeddedConfig(values=settings[run], source=SourceRef(path=source.path, line=line, key=run))
        cells = values[run]
        points.begin({_RUN: float(number)} if len(live) > 1 else {})
        points.add(cells[:, 0], cells[:, 1], cells[:, 2], cells[:, 3], np.arange(line, line + len(cells)))
        yield from points.tables()
        line += len(cells)


def _values(metrics: Iterator[tuple[int, tuple[object, ...]]], points: Points, source: Source) -> dict[str, FloatArray]:
    """Return the values of each run as rows of (tag, step, value, time in s), in the order in which they came."""
    held: dict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
    for number, (run, key, value, time, step, is_nan) in metrics:
        try:
            plain = float("nan") if is_nan else float(str(value))
            place = within(int(str(step)))
            held[str(run)].append((points.tag(str(key)), place, _unclipped(plain), float(str(time)) / 1000))
        except (ValueError, OverflowError):
            source.notes.skip("its value or step is no number", number)
    return {run: np.array(values, dtype=np.float64).reshape(-1, 4) for run, values in held.items()}


def _unclipped(value: float) -> float:
    return float(np.copysign(np.inf, value)) if abs(value) >= _LARGEST else value


_STEP = "step"
_CONFIGS = "SELECT rowid, {run}, config FROM configs WHERE rowid > ? ORDER BY rowid"
_TRACKIO_METRICS = "SELECT rowid, step, metrics FROM metrics WHERE {run} = ? AND rowid > ? ORDER BY rowid"
_TRACKIO_RUNS = (
    "SELECT min(rowid), {run}, min(run_name), count(*) FROM metrics WHERE rowid > ? GROUP BY {run} ORDER BY 1"
)


def trackio_runs(database: sqlite3.Connection, source: Source) -> Iterator[Item]:
    """Yield each run's configuration and then its records; a record's line is its number among those read."""
    columns = {str(row[1]) for row in database.execute("PRAGMA table_info(metrics)")}
    run = "run_id" if "run_id" in columns else "run_name"  # databases of before 2026 know names only
    found = [cells for _, cells in rows(database, _TRACKIO_RUNS.format(run=run), (), source.notes)]
    configs = _configs(database, run, source)
    packer, values = Packer(source.path, source.notes), Values(source.notes)
    line = 1
    for number, (key, name, count) in enumerate(found, 1):
        if len(found) > 1:
            source.notes.tell("runs", f"run {number} is {name}, with {count} records", line)
        if str(key) in configs:
            where = SourceRef(path=source.path, line=line, key=str(name))
            yield EmbeddedConfig(values=config_values(configs[str(key)]), source=where)
        for _, (step, cell) in rows(database, _TRACKIO_METRICS.format(run=run), (str(key),), source.notes):
            record = _object(cell)
            if record is None:
                source.notes.skip("its metrics are no JSON object", line)
            else:
                own = {_STEP: step} | ({_RUN: number} if len(found) > 1 else {})
                packer.add(line, *values.flat({**own, **record}, line))
            line += 1
            if packer.full:
                yield from packer.flush()
        yield from packer.flush()


def _configs(database: sqlite3.Connection, run: str, source: Source) -> dict[str, dict[str, Any]]:
    found = rows(database, _CONFIGS.format(run=run), (), source.notes)
    configs = {str(key): _object(cell) for _, (key, cell) in found}
    return {
        key: {name: value for name, value in config.items() if not name.startswith("_")}
        for key, config in configs.items()
        if config
    }


def _object(cell: object) -> dict[str, Any] | None:
    """Return the JSON object in a cell; numbers that are not finite stand there as words."""
    try:
        value = orjson.loads(cell) if isinstance(cell, (str, bytes)) else None
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
