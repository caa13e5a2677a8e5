"""Judge a fleet: find its units, judge those that are new or changed, and put their rows into a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.fleet.remote import is_url, units_at
from ppo_doctor.fleet.unit import Unit, unit_of
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.runs.discover import gather, sources_below
from ppo_doctor.runs.layouts import Walker

if TYPE_CHECKING:
    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.fleet.engines import Engine
    from ppo_doctor.fleet.table import Table
    from ppo_doctor.model.request import Request

#: Folders that are looked into.
MOST_FOLDERS = 5_000_000


@dataclass(slots=True)
class Progress:
    """What a call has done so far: rows by status, units that were in the table already, and what was left out."""

    rows: Counter[str] = field(default_factory=Counter)
    unchanged: int = 0
    empty: int = 0
    skipped: list[str] = field(default_factory=list)


def judge_fleet(
    sources: Sequence[str],
    request: Request,
    pack: Pack,
    engine: Engine,
    table: Table,
    tell: Callable[[Progress], None] = lambda _: None,
    reports: Path | None = None,
) -> Progress:
    """Judge every source that is not in the table as it is now, and write the table; `tell` is called after each unit.

    The HTML report of each run that is judged is written into the folder `reports`.

    Raises:
        DoctorError: a source is missing, or the table cannot be read (exit code 2 or 3).
    """
    done = Progress()
    units = _new(sources, table.known(), done)
    if reports is not None:
        units = (replace(unit, reports=str(reports)) for unit in units)
    for _, rows in engine.map(units, request, pack):
        table.add(rows)
        done.rows.update(row.status for row in rows)
        done.empty += not rows
        tell(done)
    table.finish()
    return done


def _new(sources: Sequence[str], known: frozenset[str], done: Progress) -> Iterator[Unit]:
    """Yield the units of sources, each once, that are not known."""
    seen: set[str] = set()
    for unit in _units(sources, done):
        if unit.fingerprint in known or unit.fingerprint in seen:
            done.unchanged += unit.fingerprint not in seen
            continue
        seen.add(unit.fingerprint)
        yield unit


def _units(given: Sequence[str], done: Progress) -> Iterator[Unit]:
    for text in given:
        if is_url(text):
            yield from units_at(text)
        elif Path(text).is_dir():
            walker = Walker(MOST_FOLDERS)
            yield from map(unit_of, sources_below(Path(text), walker))
            done.skipped += walker.skipped
        else:
            found, missing = gather([text])
            if missing and not found:
                raise DoctorError(missing[0].message, hint=missing[0].hint, code=missing[0].code)
            yield from map(unit_of, found)
            done.skipped += [error.message for error in missing]
