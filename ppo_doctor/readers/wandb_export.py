"""Charts of W&B exported as CSV: a column per run and metric, each with its least and greatest value beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ppo_doctor.table import Table

_LEAST, _GREATEST, _BETWEEN = "__MIN", "__MAX", " - "
#: The column that tells the runs of an export apart.
_RUN = "run"
#: What W&B calls the axis elsewhere.
_AXES = {"Step": "_step"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """The columns of an export: of each run, what the column of a metric is called there; and those of all runs."""

    runs: Mapping[str, Mapping[str, str]]
    common: Mapping[str, str]

    def tables(self, table: Table) -> Iterator[Table]:
        """Yield the part of each run, in the names that the trainer gave; of several runs each gets a number."""
        count = len(self.runs)
        for place, names in enumerate(self.runs.values()):
            held = [name for name in names if name in table.columns]
            if not held:
                continue
            renamed = {column: self.common[column] for column in self.common if column in table.columns}
            renamed |= {column: names[column] for column in held}
            columns = {name: table.columns[column] for column, name in renamed.items()}
            if count > 1:
                columns[_RUN] = np.full(len(table.records), place + 1.0)
            yield replace(
                table,
                records=table.records * count + place,
                columns=columns,
                decimals={renamed[key]: places for key, places in table.decimals.items() if key in renamed},
                texts={
                    renamed[key]: tuple((record * count + place, text) for record, text in cells)
                    for key, cells in table.texts.items()
                    if key in renamed
                },
                texts_left={renamed[key]: left for key, left in table.texts_left.items() if key in renamed},
            )


def export_of(columns: Sequence[str]) -> Export | None:
    """Return the meaning of the columns of an export, or None for any other table."""
    present = set(columns)
    metrics = [name for name in columns if {name + _LEAST, name + _GREATEST} <= present and _BETWEEN in name]
    if not metrics:
        return None
    runs: dict[str, dict[str, str]] = {}
    for name in metrics:
        run, _, metric = name.rpartition(_BETWEEN)
        runs.setdefault(run, {})[name] = metric
    ranges = {name + suffix for name in metrics for suffix in (_LEAST, _GREATEST)}
    common = {name: _AXES.get(name, name) for name in columns if name not in ranges and name not in metrics}
    return Export(runs=runs, common=common)
