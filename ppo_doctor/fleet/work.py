"""Judge one unit of a fleet, in whichever process it is."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.diagnosis.attempt import attempt
from ppo_doctor.fleet.remote import StorageError, fetched
from ppo_doctor.fleet.row import Row, failed, judged
from ppo_doctor.model.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.fleet.unit import Unit
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.request import Request
    from ppo_doctor.model.run import Run
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
            rows = _rows(unit, sources_in(folder), request, pack, str(folder))
            return [_moved(row, str(folder), unit.url) for row in rows]
    except DoctorError as error:
        return [failed(unit, error.message, again=isinstance(error, StorageError))]


def _rows(
    unit: Unit, sources: Sequence[RunSource], request: Request, pack: Pack, fetched_to: str | None = None
) -> list[Row]:
    rows: list[Row] = []
    errors: list[DoctorError] = []
    for source in sources:
        begun = time.perf_counter()
        result = attempt(source, request, pack)
        each = (time.perf_counter() - begun) / max(1, len(result.judged))
        for run, diagnosis in result.judged:
            rows.append(judged(unit, run, diagnosis, each))
            if unit.reports:
                _write_report(unit, run, diagnosis, fetched_to)
        errors += result.errors
    return rows + [failed(unit, error.message, run=_named(n, unit)) for n, error in enumerate(errors)]


def report_name(fingerprint: str, run: str) -> str:
    """Return the name of the file with the report of a run."""
    return f"{blake2b(f'{fingerprint} {run}'.encode('utf-8', 'surrogateescape'), digest_size=10).hexdigest()}.html"


def _write_report(unit: Unit, run: Run, diagnosis: Diagnosis, fetched_to: str | None) -> None:
    """Write the report of a run as a page, whole or not at all.

    Raises:
        DoctorError: the folder of the reports cannot be written (exit code 2).
    """
    from ppo_doctor.report import RenderOptions, render

    text, name = render(diagnosis, run, RenderOptions(), "html"), run.id
    if fetched_to:
        text, name = text.replace(fetched_to, unit.url), name.replace(fetched_to, unit.url)
    path = Path(unit.reports) / report_name(unit.fingerprint, name)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")
        unfinished.replace(path)
    except OSError as error:
        raise DoctorError(f"{path}: cannot write: {error.strerror}", code=ExitCode.USAGE) from error


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
