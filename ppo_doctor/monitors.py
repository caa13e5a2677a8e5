"""Monitor files: one row per finished episode and one file per environment; together they are the episodes of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ppo_doctor.model import FloatArray, IntArray
    from ppo_doctor.table import Table

#: Return, length and seconds since the start: the columns that every Monitor writes.
RETURN, LENGTH, SECONDS = "r", "l", "t"
COLUMNS = frozenset({RETURN, LENGTH, SECONDS})
#: The count of environment steps that is made of the lengths, and where the start of the clock is written.
STEP, START = "step", "t_start"


def is_monitor(tables: Sequence[Table]) -> bool:
    """Tell whether every table holds the columns of a Monitor file."""
    return bool(tables) and all(table.columns.keys() >= COLUMNS for table in tables)


def woven(parts: Sequence[tuple[Table, float]]) -> list[Table]:
    """Return the tables of several Monitor files, each with the time of its start, as those of one run.

    Episodes stand in the order in which they ended.
    """
    ended = np.concatenate([table.columns[SECONDS] + start for table, start in parts])
    return _numbered([table for table, _ in parts], np.argsort(ended, kind="stable"))


def with_steps(tables: Sequence[Table]) -> list[Table]:
    """Return the tables of one Monitor file with the count of environment steps at the end of each episode."""
    records = np.concatenate([table.records for table in tables])
    return _numbered(tables, np.argsort(records, kind="stable"))


def start_of(settings: Iterable[Mapping[str, object]]) -> float:
    """Return the Unix time at which the clock of a Monitor file starts, 0 where its first line does not tell."""
    found = (values.get(START) for values in settings)
    return next((float(value) for value in found if isinstance(value, int | float)), 0.0)


def _numbered(tables: Sequence[Table], order: IntArray) -> list[Table]:
    """Return tables whose rows, one table after the other, have the places that an order gives them."""
    lengths: FloatArray = np.concatenate([table.columns[LENGTH] for table in tables])
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    steps = np.empty(len(order))
    steps[order] = np.cumsum(np.nan_to_num(lengths[order]))
    ends = np.cumsum([len(table.records) for table in tables])[:-1]
    rows = zip(tables, np.split(places, ends), np.split(steps, ends), strict=True)
    return [_at(table, place, step) for table, place, step in rows]


def _at(table: Table, places: IntArray, steps: FloatArray) -> Table:
    """Return a table with its rows at new places, in their order, and their steps."""
    order = np.argsort(places, kind="stable")
    moved = dict(zip(table.records.tolist(), places.tolist(), strict=True))
    return replace(
        table,
        records=places[order],
        lines=table.lines[order],
        columns={key: values[order] for key, values in table.columns.items()} | {STEP: steps[order]},
        texts={key: tuple((moved[record], text) for record, text in cells) for key, cells in table.texts.items()},
    )
