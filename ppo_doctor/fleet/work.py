"""Judge one unit of a fleet, in whichever process it is."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor.diagnosis.attempt import attempt
from ppo_doctor.fleet.remote import StorageError, fetched
from ppo_doctor.fleet.row import Row, failed, judged
from ppo_doctor.model.errors import DoctorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.fleet.unit import Unit
    from ppo_doctor.model.request import Request
    from ppo_doctor.runs.layouts import RunSource


def judge_unit(unit: Unit, request: Request, pack: Pack) -> list[Row]:
    """Return a row for each run of a unit, and one for each file of it that could not be read.

    There is none for files that turn out to hold no run.
    """
    if unit.source is not None:
        return _rows(unit, [unit.source], request, pack)
    from ppo_doctor.runs.discover import sources_in

    try:
        with fetched(unit) as folder:
            rows = _rows(unit, sources_in(folder), request, pack)
            return [_moved(row, str(folder), unit.url) for row in rows]
    except DoctorError as error:
        return [failed(unit, error.message, again=isinstance(error, StorageError))]


def _rows(unit: Unit, sources: Sequence[RunSource], request: Request, pack: Pack) -> list[Row]:
    rows: list[Row] = []
    errors: list[DoctorError] = []
    for source in sources:
        begun = time.perf_counter()
        result = attempt(source, request, pack)
        each = (time.perf_counter() - begun) / max(1, len(result.judged))
        rows += [judged(unit, run, diagnosis, each) for run, diagnosis in result.judged]
        errors += result.errors
    return rows + [failed(unit, error.message, run=_named(n, unit)) for n, error in enumerate(errors)]


def _named(number: int, unit: Unit) -> str:
    """Return a name for a part of a unit that failed: that of the unit for the first one."""
    return unit.key if not number else f"{unit.key}#{number + 1}"


def _moved(row: Row, folder: str, url: str) -> Row:
    """Return a row with the URL of each file instead of the place to which it was fetched."""
    return replace(
        row,
        run=row.run.replace(folder, url),
        source=row.source.replace(folder, url),
        headline=row.headline.replace(folder, url),
        error=row.error.replace(folder, url),
    )
