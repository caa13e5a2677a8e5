"""Judge a fleet: find its units, judge those that are new or changed, and put their rows into a table."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.fleets.folders import remove_left
from ppo_doctor.fleets.remote import units_at
from ppo_doctor.fleets.unit import Unit, unit_of
from ppo_doctor.fleets.work import MOST_SECONDS, Judge
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.opening import is_url
from ppo_doctor.model.toml_files import parse_toml, toml_files
from ppo_doctor.runs.discover import expand, gather, sources_below
from ppo_doctor.runs.walking import Walker

if TYPE_CHECKING:
    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.fleets.engines import Engine
    from ppo_doctor.fleets.table import Table
    from ppo_doctor.model.request import Request

#: Folders that are looked into, and entries of one folder.
MOST_FOLDERS = 5_000_000


@dataclass(slots=True)
class Progress:
    """What a call has done so far: rows by status, units that were in the table already, and what was left out.

    `empty` are units that turned out to hold no run, `errors` what became of sources that could not be searched.
    """

    rows: Counter[str] = field(default_factory=Counter)
    unchanged: int = 0
    empty: int = 0
    skipped: list[str] = field(default_factory=list)
    errors: list[DoctorError] = field(default_factory=list)


def judge_fleet(
    sources: Sequence[str],
    request: Request,
    pack: Pack,
    engine: Engine,
    table: Table,
    tell: Callable[[Progress], None] = lambda _: None,
    seconds: float = MOST_SECONDS,
    reports: Path | None = None,
) -> Progress:
    """Judge every source that is not in the table as it is now, and write the table; `tell` is called after each unit.

    What was judged is kept if this ends early. A unit is given up after so many seconds. The HTML report of each run
    that is judged is written into the folder `reports`.

    Raises:
        DoctorError: there is no run in any source, or the table cannot be read or written (exit code 2 or 3).
    """
    done = Progress()
    with table.written():
        units = _new(sources, _options(request, pack), table, done)
        try:
            for unit, rows in engine.map(units, Judge(request, pack, seconds, reports)):
                table.add(rows, unit)
                done.rows.update(row.status for row in rows)
                done.empty += not rows
                tell(done)
        finally:
            table.flush()
            remove_left()
        if not done.rows and not done.unchanged:
            raise done.errors[0] if done.errors else DoctorError("there is no run in these sources")
        table.finish()
    return done


def _new(sources: Sequence[str], options: str, table: Table, done: Progress) -> Iterator[Unit]:
    """Yield the units of sources, each once, that the table does not know."""
    known, empty = table.known(), table.empty()
    seen: set[str] = set()
    for found in units_of(sources, done):
        unit = replace(found, fingerprint=blake2b(f"{options}{found.fingerprint}".encode(), digest_size=16).hexdigest())
        if unit.fingerprint in seen:
            continue
        seen.add(unit.fingerprint)
        if unit.fingerprint in known:
            done.unchanged += 1
        elif unit.fingerprint in empty:
            done.empty += 1
        else:
            yield unit


def _options(request: Request, pack: Pack) -> str:
    """Return what differs as soon as units are judged by other settings or rules."""
    rules = [parse_toml(path) for each in pack.further for path in toml_files(Path(each.path))]
    return repr((replace(request, debug=False), rules))


def units_of(sources: Sequence[str], done: Progress) -> Iterator[Unit]:
    """Yield the units of sources; those of files that are named one by one come last, for they may belong together.

    A file that is named as well as its folder is of the unit of that folder.
    """
    places = [place for text in sources for place in _places(text, done)]
    files = {os.path.abspath(each): each for each in places if not is_url(each) and not os.path.isdir(each)}  # noqa: PTH100, PTH112
    for place in places:
        try:
            if is_url(place):
                yield from units_at(place)
            elif os.path.isdir(place):  # noqa: PTH112
                yield from _below(place, files, done)
        except DoctorError as error:
            done.errors.append(error)
    if files:
        found, missing = gather(list(files.values()))
        done.errors += missing
        yield from map(unit_of, found)


def _below(place: str, named: dict[str, str], done: Progress) -> Iterator[Unit]:
    """Yield the units below a folder, and take their files out of those that are named one by one."""
    walker = Walker(MOST_FOLDERS, MOST_FOLDERS)
    for source in sources_below(Path(place), walker):
        for path in map(str, (*source.logs, *source.perhaps, *source.config)) if named else ():
            named.pop(os.path.abspath(path), None)  # noqa: PTH100
        yield unit_of(source)
    done.skipped += walker.skipped


def _places(text: str, done: Progress) -> Sequence[str]:
    """Return what a source names: a URL, or files and folders."""
    if text == "-":
        done.errors.append(DoctorError("a fleet is not read from stdin", code=ExitCode.USAGE))
        return ()
    try:
        return [text] if is_url(text) else expand(text)
    except DoctorError as error:
        done.errors.append(error)
        return ()
