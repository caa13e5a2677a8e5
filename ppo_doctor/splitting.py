"""Several runs in one log: told apart by a new configuration line, by steps that start over, or by a column.

And what stands among its records and is none: settings that were printed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import by_value
from ppo_doctor.ingest.naming import is_settings
from ppo_doctor.table import RUN_KEYS

if TYPE_CHECKING:
    from ppo_doctor.model import BoolArray, ConfigValue, FloatArray, IntArray
    from ppo_doctor.table import Table

#: A run that is told apart by its records alone has at least this many.
LEAST_RECORDS = 3


def split(tables: Sequence[Table], steps: FloatArray, config_lines: Sequence[int]) -> list[list[Table]]:
    """Return the tables of each run, in the order of the log.

    `steps` has shape [records of the source], NaN where a record is absent or has no step; `config_lines` are the
    lines at which a configuration stands.
    """
    run_of = _named(tables, len(steps), LEAST_RECORDS)
    if run_of is None:
        run_of = np.maximum(_restarted(steps), _configured(tables, len(steps), config_lines))
    return _parts(tables, run_of)


def settings_apart(tables: list[Table]) -> tuple[list[Table], list[tuple[int, Mapping[str, ConfigValue]]]]:
    """Return tables without printed configurations, and these with their lines: layouts of their own, printed once."""
    written = Counter(frozenset(table.columns) for table in tables)
    once = [t for t in tables if len(t.records) == 1 == written[frozenset(t.columns)]]
    found = [table for table in once if is_settings(table.columns)] if len(once) < len(tables) else []
    kept = [table for table in tables if table not in found]
    return kept, [(int(table.lines[0]), _cells(table)) for table in found]


#: What Hugging Face's trainers write once at the end, beside means over the whole run.
_SUMMARY = "train_runtime"


def summaries_apart(tables: Sequence[Table]) -> tuple[list[Table], list[int]]:
    """Return tables without the closing summary of a training, which is no record of it, and the lines of these."""
    closing = [t for t in tables if any(key.rpartition("/")[2] == _SUMMARY for key in (*t.columns, *t.texts))]
    kept = [table for table in tables if not any(table is one for one in closing)]
    return kept, [int(line) for table in closing for line in table.lines]


def _cells(table: Table) -> dict[str, ConfigValue]:
    """Return the one record of a table, its whole numbers as such."""
    numbers = {key: int(n) if (n := float(column[0])) % 1 == 0 else n for key, column in table.columns.items()}
    return numbers | {key: cells[0][1] for key, cells in table.texts.items() if cells}


def by_lines(tables: Sequence[Table], lines: Sequence[int]) -> list[list[Table]]:
    """Return the tables of each stretch between lines that holds a run's records; shorter ones join the last."""
    held = np.sort(np.concatenate([table.lines for table in tables])) if tables else np.zeros(0, dtype=np.int64)
    counts = np.diff(np.searchsorted(held, [*sorted(lines), np.iinfo(np.int64).max]))
    begins = [line for line, count in zip(sorted(lines), counts, strict=True) if count >= LEAST_RECORDS]
    size = 1 + max((int(table.records[-1]) for table in tables if len(table.records)), default=-1)
    return _parts(tables, _configured(tables, size, begins)) if begins else [list(tables)]


def by_name(tables: Sequence[Table]) -> list[list[Table]]:
    """Return the tables of each run where a column of run names means what it says, however few records a run has."""
    size = 1 + max((int(table.records[-1]) for table in tables if len(table.records)), default=-1)
    run_of = _named(tables, size, 1)
    return [list(tables)] if run_of is None else _parts(tables, run_of)


def _parts(tables: Sequence[Table], run_of: FloatArray) -> list[list[Table]]:
    held = np.flatnonzero(_present(tables, len(run_of)))
    runs = list(by_value(run_of[held]))
    if len(runs) < 2:
        return [list(tables)]
    # Records are numbered in their own run: what is made of it is then as long as it is, and not as the log.
    places = np.zeros(len(run_of), dtype=np.int64)
    for _, group in runs:
        places[held[group]] = np.arange(len(group))
    parts: dict[float, list[Table]] = {float(run): [] for run, _ in runs}
    for table in tables:
        for run, part in _by_run(table, run_of, places):
            parts[run].append(part)
    return list(parts.values())


def _present(tables: Sequence[Table], size: int) -> BoolArray:
    present = np.zeros(size, dtype=np.bool_)
    for table in tables:
        present[table.records] = True
    return present


def _named(tables: Sequence[Table], size: int, least: int) -> FloatArray | None:
    """Return the run of each record by a column that names it, or None without one that takes several values."""
    held_keys = {key for table in tables for key in (*table.columns, *table.texts)}
    for key in (key for key in RUN_KEYS if key in held_keys):
        names = _values(tables, key, size)
        counts = {name: len(places) for name, places in by_value(names[np.isfinite(names)])}
        if len(counts) > 1 and min(counts.values()) >= least:
            held = np.array(list(counts))
            return np.asarray(np.searchsorted(held, np.where(np.isfinite(names), names, held[0])), dtype=np.float64)
    return None


def _values(tables: Sequence[Table], key: str, size: int) -> FloatArray:
    values = np.full(size, np.nan)
    words: dict[str, float] = {}
    for table in tables:
        if key in table.columns:
            values[table.records] = table.columns[key]
        for record, text in table.texts.get(key, ()):
            values[record] = words.setdefault(text, float(len(words)))
    return values


def _restarted(steps: FloatArray) -> FloatArray:
    """Count how often steps fell back to the first step of the log, each time after some records.

    A fall to a later step is a run resumed from a checkpoint, not another run. Runs of three records or more leave two
    steps in three to rise: where more than one in three falls, records stand in no order, and no fall tells anything.
    """
    known = np.flatnonzero(np.isfinite(steps))
    if len(known) < 2 * LEAST_RECORDS:
        return np.zeros(len(steps))
    values = steps[known]
    falls = values[1:] < values[:-1]
    if falls.sum() * LEAST_RECORDS > len(values):
        return np.zeros(len(steps))
    fell = np.append(False, falls & (values[1:] <= values[0]))
    fell[1:-1] &= values[2:] < values[:-2]  # a step that is lost for one record is damage
    starts = [int(i) for i in np.flatnonzero(fell)]
    kept = [i for i, before in zip(starts, [0, *starts], strict=False) if i - before >= LEAST_RECORDS]
    marks = np.zeros(len(steps))
    marks[known[kept]] = 1
    return np.asarray(np.cumsum(marks))


def _configured(tables: Sequence[Table], size: int, config_lines: Sequence[int]) -> FloatArray:
    lines = np.zeros(size, dtype=np.int64)
    for table in tables:
        lines[table.records] = table.lines
    first = lines[lines > 0].min(initial=np.iinfo(np.int64).max)
    later = sorted(line for line in config_lines if first < line)
    return np.searchsorted(np.array(later), np.maximum.accumulate(lines), side="left").astype(np.float64)


def _by_run(table: Table, run_of: FloatArray, places: IntArray) -> Iterator[tuple[float, Table]]:
    """Yield the rows of each run that a table holds; each row and each text is looked at once, however many runs."""
    texts: defaultdict[tuple[float, str], list[tuple[int, str]]] = defaultdict(list)
    for key, cells in table.texts.items():
        for record, text in cells:
            texts[float(run_of[record]), key].append((int(places[record]), text))
    for number, rows in by_value(run_of[table.records]):
        run = float(number)
        part = replace(
            table,
            records=places[table.records[rows]],
            lines=table.lines[rows],
            columns={key: values[rows] for key, values in table.columns.items()},
            texts={key: tuple(texts[run, key]) for key in table.texts},
            texts_left={},  # nobody knows of which runs they are
        )
        yield run, part
