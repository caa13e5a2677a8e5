"""A fleet in Python: a table of many runs for pandas, and rows for the batches of Ray Data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.fleets.engines import engine_named
from ppo_doctor.fleets.folders import temporary
from ppo_doctor.fleets.row import Row, failed
from ppo_doctor.fleets.run import Progress, judge_fleet, units_of
from ppo_doctor.fleets.table import Table, table_of
from ppo_doctor.fleets.unit import Unit
from ppo_doctor.fleets.work import Judge
from ppo_doctor.model.request import Request
from ppo_doctor.trainers.configuration import flatten

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa


def frame(
    sources: Sequence[str],
    engine: str,
    *,
    address: str | None,
    jobs: int | None,
    out: Path | None,
    settings: Mapping[str, object] | None,
    framework: str | None,
) -> pd.DataFrame:
    """Judge a fleet and return its table; see `ppo_doctor.fleet`."""
    request = Request(settings=flatten(settings or {}), framework=framework)
    with temporary() as folder:
        table = Table(out or folder / "runs.parquet")
        done = judge_fleet(sources, request, load_pack(), engine_named(engine, address, jobs), table)
        if done.errors:
            raise done.errors[0]
        return table.to_frame()


def batch(given: Mapping[str, Any], column: str) -> pa.Table:
    """Return the rows of the runs that a column names; see `ppo_doctor.judge_batch`."""
    judge = _judge()
    return table_of([row for source in given[column] for row in _rows(str(source), judge)])


@lru_cache(maxsize=1)
def _judge() -> Judge:
    """Return what judges with the built-in rules, once for each process."""
    return Judge(Request(), load_pack())


def _rows(source: str, judge: Judge) -> Iterator[Row]:
    done = Progress()
    for unit in units_of([source], done):
        yield from judge(unit)
    for error in done.errors:
        yield failed(Unit(source, None, "", 0.0, 0), error.message, again=True)
