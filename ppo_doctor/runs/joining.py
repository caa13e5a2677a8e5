"""Read the files of a source into logs, and join files that are parts of one log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import distinct, median
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.readers.table import numbered_columns, renamed
from ppo_doctor.runs.layouts import role_of
from ppo_doctor.runs.log import Log
from ppo_doctor.runs.reading import (
    NOTEBOOK,
    SINGLE_RUN,
    STEP_KEYS,
    are_monitor_tables,
    merged_monitors,
    monitor_start,
    read_file,
)
from ppo_doctor.runs.sections import by_name, logs_in, of_the_family, parts_of
from ppo_doctor.trainers import detection

if TYPE_CHECKING:
    from ppo_doctor.model.request import Request
    from ppo_doctor.model.run import FloatArray
    from ppo_doctor.readers.table import Table
    from ppo_doctor.runs.layouts import RunSource
    from ppo_doctor.trainers.profiles import Profile

#: Files that share at least this part of their steps are copies, and no parts of one log.
SAME_STEPS = 0.9

#: How a file is read: its path, further folders that may hold its configuration, and the request.
ReadFile = Callable[[str, tuple[Path, ...], "Request"], Log]


def logs_of(
    source: RunSource, request: Request, read: ReadFile = read_file
) -> tuple[list[Log], dict[str, DoctorError]]:
    """Return the logs in the files of a source, and an error for each file that cannot be read.

    Files that are parts of one log are joined; a file that holds several logs is divided.
    """
    logs: list[Log] = []
    failed: dict[str, DoctorError] = {}
    for chain in _chains([*source.logs, *source.perhaps]):
        links: list[Log] = []
        for path in chain:
            try:
                links.append(read(path, source.folders, request))
                links[-1].one_run = source.one_run
            except DoctorError as error:
                failed[path] = error
        if len(links) > 1 and all(are_monitor_tables(link.tables) for link in links):
            logs.append(_woven(links))
        else:
            whole = linked(links, together=source.together) if len(links) > 1 else links
            logs += [part for link in whole for part in logs_in(link, request.framework)]
    if request.framework is None:
        logs = [of_the_family(log) for log in logs]
    if len(logs) > 1:
        logs = joined(logs, request.framework, together=source.together)
    return logs, failed


def _woven(links: Sequence[Log]) -> Log:
    """Return the Monitor files of one folder as one log, their episodes in order of time."""
    starts = [(link, monitor_start(settings.values for settings in link.embedded)) for link in links]
    tables = merged_monitors([(table, start) for link, start in starts for table in link.tables])
    first, *others = links
    for link in others:
        first.extend(link)
    first.tables = tables
    return first


def _chains(paths: Sequence[str]) -> Iterator[list[str]]:
    """Yield the files that may be parts of one log: event files, tables or Monitor files of a folder, or a W&B run."""
    events = [Path(path) for path in paths if "tfevents" in Path(path).name]
    if events:
        from ppo_doctor.readers.tfevents import order

        yield from ([str(path) for path in chain] for chain in order(events))
    chains: dict[object, list[str]] = {}
    for path in paths:
        file = Path(path)
        if file not in events:
            alike = {".wandb": file.name, ".parquet": (file.parent, file.suffix)}.get(file.suffix, file)
            key = (file.parent, "episodes") if role_of(file) == "episodes" else alike
            chains.setdefault(key, []).append(path)
    yield from map(sorted, chains.values())


def linked(links: Sequence[Log], *, together: bool) -> list[Log]:
    """Join files in the order of their creation; a file whose steps start over begins another run.

    A file that begins beyond the middle of the steps before it is a run resumed from a checkpoint.
    """
    runs: list[Log] = []
    spans: list[tuple[float, float]] = []
    bare = [link for link in links if not link.records]
    for link in (link for link in links if link.records):
        low, high = _span_of_chain(link)
        if runs and (together or low > sum(spans[-1]) / 2):
            runs[-1].extend(link)
            spans[-1] = (spans[-1][0], max(spans[-1][1], high))
        else:
            runs.append(link)
            spans.append((low, high))
    return runs + bare


def _span_of_chain(log: Log) -> tuple[float, float]:
    """Return the first and last step of a log, or record if it has no column of steps."""
    for key in STEP_KEYS:
        values = [table.columns[key] for table in log.tables if key in table.columns]
        finite = [column[np.isfinite(column)] for column in values]
        if any(map(len, finite)):
            steps = np.concatenate(finite)
            return float(steps.min()), float(steps.max())
    return 0.0, float(log.records)


@dataclass(slots=True, repr=False, eq=False)
class _Part:
    """A log with the range of its steps, NaN if its order is unknown."""

    log: Log
    #: its place among all logs
    place: int
    low: float
    high: float
    #: the distance of two steps
    stride: float

    def add(self, later: _Part) -> None:
        self.log.extend(later.log)
        self.high = max(self.high, later.high)
        self.place = min(self.place, later.place)


def joined(logs: Sequence[Log], framework: str | None, *, together: bool) -> list[Log]:
    """Return logs, those joined that are parts of one run.

    Parts are in one folder, have the same columns, and one continues where the other ended, or from a checkpoint beyond
    its middle. With `together` the steps alone decide, or the order of the names if there are no steps. A log with the
    same steps as another is a copy, and no part.
    """
    logs = _one_record_each(logs)
    held = [log for log in logs if log.records]
    if len(held) < 2:
        return list(logs)
    _give_headers(held, together=together)
    keys = frozenset().union(*(log.keys for log in held))
    profile = _profile(keys, framework)
    parts: list[_Part] = []
    for family in _families(held, profile):
        parts += _joined(family, profile, together=together)
    parts.sort(key=lambda part: part.place)
    return [*(part.log for part in parts), *(log for log in logs if not log.records)]


#: Files of one record each that make a run, and words before a number that count runs, and not records.
FEWEST_FILES = 3
_OF_ANOTHER = lazy_pattern(r"(seed|run|trial|fold|rank|worker|exp|experiment|job|agent|version)[ _.-]*$", re.I)


def _one_record_each(logs: Sequence[Log]) -> list[Log]:
    """Join files of one record each whose names differ in the last number only, in its order."""
    alike: dict[object, list[tuple[int, Log]]] = {}
    for log in logs:
        before, number, after = re.fullmatch(r"(?s)(.*?)(\d*)(\D*)", Path(log.path).name).groups()  # type: ignore[union-attr]
        if log.records == 1 and number and not _OF_ANOTHER.search(before):
            what = (Path(log.path).parent, before, after, log.container, log.keys)
            alike.setdefault(what, []).append((int(number), log))
    taken: set[int] = set()
    for files in alike.values():
        if len(files) >= FEWEST_FILES:
            (_, first), *later = sorted(files, key=lambda file: file[0])
            for _, log in later:
                first.extend(log)
                taken.add(id(log))
    return [log for log in logs if id(log) not in taken]


def _profile(keys: frozenset[str], framework: str | None) -> Profile:
    if framework:
        return detection.as_written(framework, keys)
    return detection.detect(keys) or detection.profile(detection.CANONICAL)


def _families(logs: Sequence[Log], profile: Profile) -> list[list[_Part]]:
    """Return groups of logs with the same columns of steps."""
    families: dict[frozenset[str], list[tuple[int, Log]]] = {}
    for place, log in enumerate(logs):
        clocks = log.keys.intersection(profile.axis.get("step", ()))
        families.setdefault(frozenset(clocks), []).append((place, log))
    return [_measured(family, profile) for family in families.values()]


def _measured(family: Sequence[tuple[int, Log]], profile: Profile) -> list[_Part]:
    """Return the range of steps of each log; which column counts them is decided from all logs together."""
    if len(family) == 1:
        ((place, log),) = family
        return [_Part(log, place, np.nan, np.nan, np.nan)]
    whole = Log(path="")
    ends: list[int] = []
    for _, log in family:
        log.turn_forward(profile)
        whole.extend(log)
        ends.append(whole.size)
    steps = np.split(whole.order(profile, ends[:-1]) + whole.within_step(profile), ends[:-1])
    return [_Part(log, place, *_reach(ours)) for (place, log), ours in zip(family, steps, strict=True)]


def _reach(steps: FloatArray) -> tuple[float, float, float]:
    known = distinct(steps[np.isfinite(steps)])
    if not len(known):
        return np.nan, np.nan, np.nan
    return float(known[0]), float(known[-1]), median(np.diff(known)) if len(known) > 1 else 0.0


def _joined(family: list[_Part], profile: Profile, *, together: bool) -> list[_Part]:
    runs: list[_Part] = []
    for part in sorted(family, key=lambda part: (not np.isnan(part.low), part.low, part.high)):
        before = [run for run in runs if _goes_on(run, part, profile, together=together)]
        near = sorted(before, key=lambda run: abs(part.low - run.high))
        if not near or (len(near) > 1 and abs(part.low - near[0].high) == abs(part.low - near[1].high)):
            runs.append(part)  # nothing before it, or two that it may follow
        else:
            near[0].add(part)
    return runs


def _goes_on(run: _Part, part: _Part, profile: Profile, *, together: bool) -> bool:
    """Return whether a part continues a run that begins before it."""
    one, other = run.log, part.log
    if one.path == other.path or not _alike(one, other, profile):
        return False
    follows = _follows_together(run, part) if together else _follows(run, part) and _of_one_run(one, other)
    return follows and all(len(parts_of(log, profile)) == 1 for log in (one, other))


def _follows_together(run: _Part, part: _Part) -> bool:
    """Return whether a log of the same run is a later part of it, and no copy."""
    if np.isnan(run.low) or np.isnan(part.low):
        ordered = run.log.container == part.log.container and np.isnan(run.low) and np.isnan(part.low)
        return bool(ordered) and not _copies(run.log.tables, part.log.tables)
    if run.log.container != part.log.container:
        return part.low > run.high
    shared = min(run.high, part.high) - part.low
    before = run.low < part.low or run.low == run.high
    beyond = run.high < part.high or part.low == part.high
    return before and beyond and shared < SAME_STEPS * (part.high - run.low)


def _copies(ours: Sequence[Table], theirs: Sequence[Table]) -> bool:
    """Return whether two files hold the same numbers in the same order."""
    if [table.columns.keys() for table in ours] != [table.columns.keys() for table in theirs]:
        return False
    pairs = ((a.columns[key], b.columns[key]) for a, b in zip(ours, theirs, strict=True) for key in a.columns)
    return all(np.array_equal(one, other, equal_nan=True) for one, other in pairs)


def _follows(run: _Part, part: _Part) -> bool:
    """Return whether a log goes on where another ended, or from a checkpoint; a log from step 0 is a run of its own."""
    return part.low > part.stride and part.low > (run.low + run.high) / 2 and part.high > run.high


def _of_one_run(one: Log, other: Log) -> bool:
    """Return whether folders, settings and columns of run names allow that two logs are of one run."""
    places = {(log.container, Path(log.path).parent) for log in (one, other)}
    if len(places) > 1 or one.container in (*SINGLE_RUN, NOTEBOOK):
        return False  # event files were linked by their age already
    settings = [[found.values for found in log.embedded] for log in (one, other)]
    if all(settings) and settings[0][-1] != settings[1][0]:
        return False
    both = one.copy()
    both.extend(other)
    return len(by_name(both.tables)) == 1


def _alike(one: Log, other: Log, profile: Profile) -> bool:
    """Return whether half of the columns of the log with fewer are in the other, columns of steps aside."""
    clocks = {key for keys in profile.axis.values() for key in keys}
    ours, theirs = one.keys - clocks, other.keys - clocks
    return 2 * len(ours & theirs) >= min(len(ours), len(theirs))


def _give_headers(logs: Sequence[Log], *, together: bool) -> None:
    """Name the columns of a table without a header after a table of the same width in the same folder."""
    headers: dict[tuple[object, int], tuple[str, ...]] = {}
    bare: list[tuple[Log, int]] = []
    for log in (log for log in logs if log.container == "csv"):
        width = numbered_columns(log.keys)
        if width:
            bare.append((log, width))
        else:
            headers.setdefault((_place_of(log, together=together), len(log.header)), log.header)
    for log, width in bare:
        if header := headers.get((_place_of(log, together=together), width)):
            names = {f"column_{number}": name for number, name in enumerate(header, 1)}
            log.tables = [renamed(table, names) for table in log.tables]


def _place_of(log: Log, *, together: bool) -> object:
    return None if together else Path(log.path).parent
