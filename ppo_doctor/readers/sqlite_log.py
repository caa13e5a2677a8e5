"""Read the SQLite databases of MLflow and Trackio.

Databases are opened read-only and recognised by their tables. Trackio stores JSON in its cells. Sources:
mlflow/store/tracking/sqlalchemy_store.py, trackio/sqlite_storage.py.
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

#: Largest database that is read from stdin or from a compressed file, because it is then held in memory.
LARGEST = 256 << 20
_HEADER = 100
#: Bytes 18 and 19 of the header are 2 if the database keeps a write-ahead log, the file `NAME-wal`.
_JOURNAL = slice(18, 20)
_WAL = b"\2\2"
#: First bytes of a write-ahead log, and the sizes of its header and of the header of each frame (one page) in bytes.
_LOG_MARK, _LOG_HEADER, _FRAME_HEADER = b"\x37\x7f\x06", 32, 24
#: Largest number of row ids that may be skipped at a damaged page.
_FARTHEST = 1 << 40
#: Exceptions that a damaged database raises. SQLite quotes damaged text in its messages, which may not decode.
DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)
_LAST_ROW = (1 << 63) - 1
_OF_DAMAGE = "copy it again from where it was written, or save what can be saved: sqlite3 FILE .recover"
#: Error codes if an interrupted transaction would have to be rolled back, which needs write access, and if the journal
#: or the write-ahead log cannot be opened.
_NOT_WITHOUT_WRITING = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
#: Largest number of damaged pages that are skipped in one table; each takes about ten queries.
MOST_JUMPS = 1_000
#: A larger cell is neither a value nor a configuration; SQLite refuses it before allocating memory.
LARGEST_CELL = 16 << 20


def read(source: Source) -> Iterator[Item]:
    """Yield the runs of an MLflow or a Trackio database, one after the other; losses become notes.

    Raises:
        DoctorError: the database belongs to another program, or its list of tables is damaged.
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
    """Yield (row id, other cells) of every row that can be read; damaged pages are skipped, with a note.

    `query` selects the row id as its first column. Its parameters are `key`, then the row id after which to begin.
    """
    last: int | None = -1
    jumps = 0
    while last is not None:
        try:
            for number, *cells in database.execute(query, (*key, last)):
                if not isinstance(number, int) or number <= last:  # damaged pages may form a cycle
                    raise sqlite3.DatabaseError(f"row {number} follows row {last}")
                last = number
                yield number, tuple(cells)
        except DAMAGE as error:
            jumps += 1
            unread = _row_before_damage(database, query, (*key, last))
            if unread is not None:
                last = unread[0]
                yield unread
            end = _end_of_damage(database, query, (*key, last)) if jumps < MOST_JUMPS else None
            first = max(1, last + 1)
            upto = f"to {end}" if end is not None else "on"
            table = query.partition(" FROM ")[2].partition(" ")[0]
            text = f"a page of the database is damaged: rows of {table} from {first} {upto} are lost ({error})"
            notes.tell("a page of the database is damaged", text, first, kind="lost")
            last = end
        else:
            return


def _first(database: sqlite3.Connection, query: str, key: tuple[object, ...]) -> tuple[object, ...] | None:
    row: tuple[object, ...] | None = database.execute(f"{query} LIMIT 1", key).fetchone()
    return row


def _row_before_damage(
    database: sqlite3.Connection, query: str, key: tuple[object, ...]
) -> tuple[int, tuple[object, ...]] | None:
    """Return the last row before the damage, which the sqlite3 module reads ahead and drops with the error."""
    try:
        row = _first(database, query, key)
    except DAMAGE:
        return None
    number = row[0] if row else None
    return (number, row[1:]) if row and isinstance(number, int) and number > int(str(key[-1])) else None


def _end_of_damage(database: sqlite3.Connection, query: str, key: tuple[object, ...]) -> int | None:
    """Return the smallest row id after which the query succeeds, or None if none is found within _FARTHEST."""

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
    """Return the names of plain tables. Views are left out, because a hostile one could run without end."""
    entries = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
    return {str(name) for name, sql in entries if str(sql).upper().startswith("CREATE TABLE")}


def _connect(source: Source) -> sqlite3.Connection:
    """Open the database in place if it is a whole file, else a copy of its bytes in memory."""
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
        data[_JOURNAL] = b"\1\1"  # the write-ahead log is not available
    database = sqlite3.connect(":memory:")
    database.deserialize(bytes(data) + bytes(max(0, missing)))  # pages of zeros are skipped like damaged ones
    return database


def _size_of(head: bytes) -> int:
    """Return the size of a database in bytes by its header, or 0 if an old version of SQLite left the count stale."""
    pages = int.from_bytes(head[28:32], "big")
    return _page(head) * pages if head[24:28] == head[92:96] else 0


def _page(head: bytes) -> int:
    size = int.from_bytes(head[16:18], "big")
    return size if size > 1 else 1 << 16


def _open(path: Path, head: bytes, notes: Ledger) -> sqlite3.Connection:
    """Open a file without writing to it or to its folder."""
    wal = path.with_name(path.name + "-wal")
    alone = head[_JOURNAL] == _WAL and not wal.exists()
    if head[_JOURNAL] == _WAL and not alone and not _is_whole_wal(wal, _page(head)):
        notes.tell("wal", f"{wal.name} is damaged: of the last changes some are lost", kind="lost")
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


def _is_whole_wal(wal: Path, page: int) -> bool:
    """Return whether a write-ahead log looks undamaged; SQLite silently ignores everything after the first damage.

    A whole log begins with its magic number and ends at a frame boundary. Frames with the salt of the header come
    first; older frames may follow, but no zeros.
    """
    with plain_file(wal) as stream:
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


#: MLflow stores infinity as the largest double.
_LARGEST = 1.7976931348623157e308
_METRICS = "SELECT rowid, run_uuid, key, value, timestamp, step, is_nan FROM metrics NOT INDEXED WHERE rowid > ?"
_PARAMS = "SELECT rowid, run_uuid, key, value FROM params NOT INDEXED WHERE rowid > ?"
_RUNS = "SELECT rowid, run_uuid, name, status, lifecycle_stage FROM runs NOT INDEXED WHERE rowid > ?"
#: Column that holds the number of the run, if a database has several.
_RUN = "run"
_DELETED = "deleted"


def mlflow_runs(database: sqlite3.Connection, source: Source) -> Iterator[Item]:
    """Yield the parameters and then the metrics by step of each run that is not deleted.

    Lines count the values of all runs in the order in which they are read; a record has the line of its first value.
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
    """Return the values of each run in stored order, as rows of (tag, step, value, time in s)."""
    by_run: dict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
    for number, (run, key, value, time, step, is_nan) in metrics:
        try:
            plain = float("nan") if is_nan else float(str(value))
            place = within(int(str(step)))
            by_run[str(run)].append((points.tag(str(key)), place, _unclipped(plain), float(str(time)) / 1000))
        except (ValueError, OverflowError):
            source.notes.skip("its value or step is no number", number)
    return {run: np.array(values, dtype=np.float64).reshape(-1, 4) for run, values in by_run.items()}


def _unclipped(value: float) -> float:
    """Return infinity for the double that MLflow stores in its place, else the value."""
    return float(np.copysign(np.inf, value)) if abs(value) >= _LARGEST else value


_STEP = "step"
_CONFIGS = "SELECT rowid, {run}, config FROM configs WHERE rowid > ? ORDER BY rowid"
_TRACKIO_METRICS = "SELECT rowid, step, metrics FROM metrics WHERE {run} = ? AND rowid > ? ORDER BY rowid"
_TRACKIO_RUNS = (
    "SELECT min(rowid), {run}, min(run_name), count(*) FROM metrics WHERE rowid > ? GROUP BY {run} ORDER BY 1"
)


def trackio_runs(database: sqlite3.Connection, source: Source) -> Iterator[Item]:
    """Yield the configuration and then the records of each run; the line of a record is its number in reading order."""
    columns = {str(row[1]) for row in database.execute("PRAGMA table_info(metrics)")}
    run = "run_id" if "run_id" in columns else "run_name"  # databases written before 2026 have names only
    runs = [cells for _, cells in rows(database, _TRACKIO_RUNS.format(run=run), (), source.notes)]
    configs = _configs(database, run, source)
    packer, values = Packer(source.path, source.notes), Values(source.notes)
    line = 1
    for number, (key, name, count) in enumerate(runs, 1):
        if len(runs) > 1:
            source.notes.tell("runs", f"run {number} is {name}, with {count} records", line)
        if str(key) in configs:
            where = SourceRef(path=source.path, line=line, key=str(name))
            yield EmbeddedConfig(values=config_values(configs[str(key)]), source=where)
        for _, (step, cell) in rows(database, _TRACKIO_METRICS.format(run=run), (str(key),), source.notes):
            record = _object(cell)
            if record is None:
                source.notes.skip("its metrics are no JSON object", line)
            else:
                own = {_STEP: step} | ({_RUN: number} if len(runs) > 1 else {})
                packer.add(line, *values.flat({**own, **record}, line))
            line += 1
            if packer.full:
                yield from packer.flush()
        yield from packer.flush()


def _configs(database: sqlite3.Connection, run: str, source: Source) -> dict[str, dict[str, Any]]:
    cells = rows(database, _CONFIGS.format(run=run), (), source.notes)
    configs = {str(key): _object(cell) for _, (key, cell) in cells}
    return {
        key: {name: value for name, value in config.items() if not name.startswith("_")}
        for key, config in configs.items()
        if config
    }


def _object(cell: object) -> dict[str, Any] | None:
    """Return the JSON object in a cell, None if it holds none; Trackio writes non-finite numbers as strings."""
    try:
        value = orjson.loads(cell) if isinstance(cell, (str, bytes)) else None
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
