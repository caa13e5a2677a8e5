"""Runs in MLflow's database: tables runs, metrics, params (mlflow/store/tracking/sqlalchemy_store.py)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model import SourceRef
from ppo_doctor.readers.event_settings import value_of
from ppo_doctor.readers.points import Points, within
from ppo_doctor.readers.sqlite_log import rows
from ppo_doctor.table import EmbeddedConfig

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from ppo_doctor.model import ConfigValue, FloatArray
    from ppo_doctor.readers import Item
    from ppo_doctor.readers.source import Source

#: Infinity is stored as the largest double.
_LARGEST = 1.7976931348623157e308
_METRICS = "SELECT rowid, run_uuid, key, value, timestamp, step, is_nan FROM metrics NOT INDEXED WHERE rowid > ?"
_PARAMS = "SELECT rowid, run_uuid, key, value FROM params NOT INDEXED WHERE rowid > ?"
_RUNS = "SELECT rowid, run_uuid, name, status, lifecycle_stage FROM runs NOT INDEXED WHERE rowid > ?"
#: The column that tells the runs of a database apart.
_RUN = "run"
_DELETED = "deleted"


def runs(database: sqlite3.Connection, source: Source) -> Iterator[Item]:
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
