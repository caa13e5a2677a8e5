"""Runs in Trackio's database: tables metrics and configs, whose cells are JSON (trackio/sqlite_storage.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from ppo_doctor.model import SourceRef
from ppo_doctor.readers.pack import Packer
from ppo_doctor.readers.sqlite_log import rows
from ppo_doctor.readers.values import Values, config_values
from ppo_doctor.table import EmbeddedConfig

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from ppo_doctor.readers import Item
    from ppo_doctor.readers.source import Source

#: The column that tells the runs of a database apart, and the one of the step.
_RUN, _STEP = "run", "step"
_CONFIGS = "SELECT rowid, {run}, config FROM configs WHERE rowid > ? ORDER BY rowid"
_METRICS = "SELECT rowid, step, metrics FROM metrics WHERE {run} = ? AND rowid > ? ORDER BY rowid"
_RUNS = "SELECT min(rowid), {run}, min(run_name), count(*) FROM metrics WHERE rowid > ? GROUP BY {run} ORDER BY 1"


def runs(database: sqlite3.Connection, source: Source) -> Iterator[Item]:
    """Yield each run's configuration and then its records; a record's line is its number among those read."""
    columns = {str(row[1]) for row in database.execute("PRAGMA table_info(metrics)")}
    run = "run_id" if "run_id" in columns else "run_name"  # databases of before 2026 know names only
    found = [cells for _, cells in rows(database, _RUNS.format(run=run), (), source.notes)]
    configs = _configs(database, run, source)
    packer, values = Packer(source.path, source.notes), Values(source.notes)
    line = 1
    for number, (key, name, count) in enumerate(found, 1):
        if len(found) > 1:
            source.notes.tell("runs", f"run {number} is {name}, with {count} records", line)
        if str(key) in configs:
            where = SourceRef(path=source.path, line=line, key=str(name))
            yield EmbeddedConfig(values=config_values(configs[str(key)]), source=where)
        for _, (step, cell) in rows(database, _METRICS.format(run=run), (str(key),), source.notes):
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
