"""Divide the records of one file by trainer and run, and leave out those of methods outside the PPO family."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import by_value
from ppo_doctor.model.run import Note, SourceRef
from ppo_doctor.readers.methods import PPO, method_of
from ppo_doctor.readers.table import CELL, METHOD_KEYS, RUN_KEYS
from ppo_doctor.runs.log import rows_of_table
from ppo_doctor.runs.reading import NOTEBOOK, SINGLE_RUN
from ppo_doctor.trainers import detection

if TYPE_CHECKING:
    from ppo_doctor.model.run import BoolArray, FloatArray, IntArray
    from ppo_doctor.readers.table import Table
    from ppo_doctor.runs.log import Log
    from ppo_doctor.trainers.configuration import Found
    from ppo_doctor.trainers.profiles import Profile

#: Fewest records of a run that is found in the middle of a file.
LEAST_RECORDS = 3
#: Fewest records of a section of another trainer that is judged by itself: fewer answer no check.
LEAST_JUDGED = 8
#: Records of a known trainer are left out of a log of no known trainer if they are at most this share of it, and the
#: others have so many metrics.
A_FEW, HANDFUL = 0.05, 5


def logs_in(log: Log, framework: str | None) -> list[Log]:
    """Return the logs in a file: runs of a database, cells of a notebook, or sections of several trainers."""
    parts = _divided(log)
    return parts if len(parts) > 1 or framework is not None else _by_trainer(log)


def of_the_family(log: Log) -> Log:
    """Return a log without the records of methods outside the PPO family, each method a note."""
    return _without_other_sections(_without_other_methods(log))


def _divided(log: Log) -> list[Log]:
    """Return the runs of a tracker's database, or the cells of a notebook, as logs; their trainers may differ."""
    if log.container == NOTEBOOK:
        parts = by_lines(log.tables, [found.source.line or 0 for found in log.embedded if CELL in found.values])
    else:
        parts = by_name(log.tables) if log.container == "sqlite" else []
    if len(parts) < 2:
        return [log]
    return [_own_log(log, tables, f"#{number}") for number, tables in enumerate(parts, start=1)]


def _own_log(log: Log, tables: list[Table], suffix: str) -> Log:
    """Return some tables of a log, with the notes and settings between their lines, as a log."""
    first, last = _lines(tables)
    # The lines of a notebook's cell before its first record belong to it.
    first = max(
        (line for f in log.embedded if CELL in f.values and (line := f.source.line or 0) < first), default=first
    )

    def within(source: SourceRef | None) -> bool:
        return source is None or source.line is None or first <= source.line <= last

    notes = [note for note in log.notes if within(note.source)]
    embedded = [found for found in log.embedded if within(found.source)]
    return replace(log, tables=tables, notes=notes, embedded=embedded, suffix=suffix, header=(), sections=[], joined=())


def _by_trainer(log: Log) -> list[Log]:
    if log.container in SINGLE_RUN or log.one_run:
        return [log]
    counts: Counter[frozenset[str]] = Counter()
    for table in log.tables:
        counts[_layout(table)] += len(table.records)
    found = [_parted(log.tables, of_one) for of_one in _trainers(counts)] if len(counts) > 1 else []
    if not found:
        return [log]
    for first, second in found:
        if min(_records(first), _records(second)) >= LEAST_JUDGED and _lines(first)[1] < _lines(second)[0]:
            return _sections(log, (first, second))
    less, more = sorted(found[0], key=_records)
    return _by_trainer(_without(log, less, more))


def _parted(tables: Sequence[Table], of_one: Collection[frozenset[str]]) -> tuple[list[Table], list[Table]]:
    """Return the tables of some layouts and the other tables, those first that begin first."""
    ours = [table for table in tables if _layout(table) in of_one]
    others = [table for table in tables if _layout(table) not in of_one]
    first, second = sorted((ours, others), key=lambda tables: _lines(tables)[0])
    return first, second


def _layout(table: Table) -> frozenset[str]:
    return frozenset(table.columns) | table.others


def _records(tables: Sequence[Table]) -> int:
    return sum(len(table.records) for table in tables)


def _lines(tables: Sequence[Table]) -> tuple[int, int]:
    return min(int(table.lines.min()) for table in tables), max(int(table.lines.max()) for table in tables)


def _trainers(counts: Counter[frozenset[str]]) -> Iterator[frozenset[frozenset[str]]]:
    """Yield the layouts of each trainer that shares no metric with the others, the one with fewest records first.

    Layouts without metrics of either belong to the larger part.
    """
    keys = frozenset().union(*counts)
    trainers = detection.trainers_in(counts)
    records: Counter[str] = Counter()
    for layout, name in trainers.items():
        records[name] += counts[layout]
    for name in sorted(records, key=lambda name: (records[name], name)):
        known = _metrics(name, keys)
        ours = {layout for layout in counts if not known.isdisjoint(layout)}
        rest = counts.keys() - ours
        theirs = _metrics_of_others(name, rest, few=_share(ours, counts) <= A_FEW) if rest else frozenset()
        if theirs and theirs.isdisjoint(frozenset().union(*ours)):
            of_none = {layout for layout in rest if theirs.isdisjoint(layout)}
            larger = _share(ours, counts) >= _share(rest - of_none, counts)
            yield frozenset(ours | of_none if larger else ours)


def _share(layouts: Collection[frozenset[str]], counts: Counter[frozenset[str]]) -> float:
    return sum(counts[layout] for layout in layouts) / sum(counts.values())


def _metrics(name: str, keys: frozenset[str]) -> frozenset[str]:
    """Return the keys that are metrics in the profile of a trainer, without guessed ones."""
    metrics = detection.profile(name).resolved(keys).metrics.values()
    return keys.intersection(key for metric in metrics for key in (*metric.keys, *metric.columns))


def _metrics_of_others(name: str, layouts: Collection[frozenset[str]], *, few: bool) -> frozenset[str]:
    """Return the metrics in layouts of another trainer than `name`; with `few`, also those of no known trainer."""
    keys = frozenset().union(*layouts)
    other = detection.trainer_of(keys)
    if other is not None:
        return _metrics(other, keys) if other != name else frozenset()
    own = detection.detect(keys) if few else None
    found = frozenset(key for metric in own.metrics.values() for key in metric.keys) & keys if own else frozenset()
    return found if len(found) >= HANDFUL else frozenset()


def _title(tables: Sequence[Table]) -> str:
    found = detection.detect(frozenset().union(*map(_layout, tables)))
    return found.title if found is not None and found.name != detection.CANONICAL else "no trainer that we know"


def _sections(log: Log, parts: Sequence[Sequence[Table]]) -> list[Log]:
    begins = _lines(parts[1])[0]
    titles = " and ".join(map(_title, parts))
    text = f"it holds logs of two trainers, {titles}, the second from line {begins} on; each is judged by itself"
    note = Note(text=text, source=SourceRef(path=log.path, line=begins), kind="said")
    found = []
    for number, tables in enumerate(parts, start=1):
        part = _own_log(log, list(tables), f"{log.suffix}#{number}")
        part.notes.insert(0, note)
        found += _by_trainer(part)
    return found


def _without(log: Log, less: Sequence[Table], more: Sequence[Table]) -> Log:
    (first, last), count = _lines(less), _records(less)
    where = f"line {first}" if first == last else f"lines {first} to {last}"
    what = "1 record" if count == 1 else f"{count} records"
    text = f"{what} of {where} left out: of {_title(less)}, and the log is of {_title(more)}"
    note = Note(text=text, source=SourceRef(path=log.path, line=first), count=count, kind="said")
    return replace(log, tables=list(more), notes=[*log.notes, note])


def _without_other_methods(log: Log) -> Log:
    """Return a log without the records that a column or a heading assigns to a method outside the PPO family.

    Records with a metric that only PPO logs are kept. Headings count only if another heading names PPO. A log of such
    methods alone stays as it is.
    """
    methods = [_methods(table, log.sections) for table in log.tables]
    names = {name for of_table in methods for name in of_table}
    others = sorted(name for name in names if name is not None and name != PPO)
    if not others or len(others) == len(names) or (PPO not in names and log.sections):
        return log
    left_out: set[str] = set()
    notes = list(log.notes)
    for other in others:
        held = _with(log.tables, [[name == other for name in of_table] for of_table in methods])
        if _holds_ppo(held):
            continue
        left_out.add(other)
        first, last = _lines(held)
        text = (
            f"{other}: {_records(held)} records of lines {first} to {last} left out, for they are not of the PPO family"
        )
        notes.append(Note(text=text, source=SourceRef(path=log.path, line=first), kind="said"))
    return replace(
        log,
        tables=_with(log.tables, [[name not in left_out for name in of_table] for of_table in methods]),
        notes=notes,
    )


def _with(tables: Sequence[Table], chosen: Sequence[Sequence[bool] | BoolArray]) -> list[Table]:
    """Return the chosen records of each table; tables without any are left out."""
    rows = [np.flatnonzero(mask) for mask in chosen]
    return [rows_of_table(table, at) for table, at in zip(tables, rows, strict=True) if len(at)]


def _methods(table: Table, sections: Sequence[tuple[int, str]]) -> list[str | None]:
    """Return the method of each record of a table: by a column that names it, or else by the last heading above it."""
    begins = np.array([line for line, _ in sections], dtype=np.int64)
    at = np.searchsorted(begins, table.lines, side="right") - 1
    headed = [sections[place][1] if place >= 0 else None for place in at.tolist()]
    written = {record: text for key in METHOD_KEYS for record, text in table.texts.get(key, ())}
    named = (method_of(written[record]) if record in written else None for record in table.records.tolist())
    return [name or above for name, above in zip(named, headed, strict=True)]


def _holds_ppo(tables: Sequence[Table]) -> bool:
    """Return whether records have a metric that no method outside the PPO family logs."""
    keys = {key for table in tables for key in table.columns}
    profile = detection.detect(keys)
    return profile is not None and profile.ppo_family and detection.speaks_of_ppo(profile, keys)


def _without_other_sections(log: Log) -> Log:
    """Return a log without the runs whose metrics are of a method outside the PPO family, each of them a note.

    A log of nothing else stays as it is, so that `runs_in` refuses it.
    """
    profile = detection.detect(log.keys)
    if profile is not None and not profile.ppo_family:  # which knows no clocks
        profile = detection.as_written(detection.CANONICAL, log.keys)
    parts = parts_of(log, profile) if profile is not None else []
    shown = [detection.detect({key for table in part for key in table.columns}) for part in parts]
    others = [each is not None and not each.ppo_family for each in shown]
    if len(parts) < 2 or not any(others) or all(others):
        return log
    tables: list[Table] = []
    notes = list(log.notes)
    for part, found, other in zip(parts, shown, others, strict=True):
        first, last = _lines(part)
        if other and found is not None:
            text = f"not judged: lines {first} to {last} are of {found.title}, not of the PPO family"
            notes.append(Note(text=text, source=SourceRef(path=log.path, line=first), kind="said"))
        else:
            tables += _with(log.tables, [(table.lines >= first) & (table.lines <= last) for table in log.tables])
    return replace(log, tables=tables, notes=notes)


def parts_of(log: Log, profile: Profile) -> list[list[Table]]:
    """Return the tables of each run in a log; joined files are one run."""
    if log.container in SINGLE_RUN or log.one_run or log.joined:
        return [log.tables]
    own = [found for found in log.embedded if found.source.path == log.path]  # settings of other files divide nothing
    lines = [found.source.line or 0 for found in own if _is_of_a_run(found, profile)]
    return split(log.tables, log.steps(profile), lines)


def _is_of_a_run(found: Found, profile: Profile) -> bool:
    """Return whether settings include one of the trainer; console logs also print thousands of dicts of samples."""
    from ppo_doctor.trainers import config_files

    return config_files.known_settings(found, profile) > 0


def split(tables: Sequence[Table], steps: FloatArray, config_lines: Sequence[int]) -> list[list[Table]]:
    """Return the tables of each run, in the order of the log.

    A column of run names divides it, or else steps that start over and configurations between records. `steps` has
    shape [records of the source], NaN if a record is absent or has no step; `config_lines` are lines of configurations.
    """
    run_of = _named(tables, len(steps), LEAST_RECORDS)
    if run_of is None:
        run_of = np.maximum(_restarted(steps), _configured(tables, len(steps), config_lines))
    return _parts(tables, run_of)


def by_lines(tables: Sequence[Table], lines: Sequence[int]) -> list[list[Table]]:
    """Return the tables between lines; a part with fewer than `LEAST_RECORDS` records joins the one before it."""
    held = np.sort(np.concatenate([table.lines for table in tables])) if tables else np.zeros(0, dtype=np.int64)
    counts = np.diff(np.searchsorted(held, [*sorted(lines), np.iinfo(np.int64).max]))
    begins = [line for line, count in zip(sorted(lines), counts, strict=True) if count >= LEAST_RECORDS]
    size = 1 + max((int(table.records[-1]) for table in tables if len(table.records)), default=-1)
    return _parts(tables, _configured(tables, size, begins)) if begins else [list(tables)]


def by_name(tables: Sequence[Table]) -> list[list[Table]]:
    """Return the tables of each run by a column of run names, however few records a run has."""
    size = 1 + max((int(table.records[-1]) for table in tables if len(table.records)), default=-1)
    run_of = _named(tables, size, 1)
    return [list(tables)] if run_of is None else _parts(tables, run_of)


def _parts(tables: Sequence[Table], run_of: FloatArray) -> list[list[Table]]:
    held = np.flatnonzero(_present(tables, len(run_of)))
    runs = list(by_value(run_of[held]))
    if len(runs) < 2:
        return [list(tables)]
    # Records are numbered within their run, so that arrays over them are as long as the run, and not as the log.
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
    """Return the run of each record by a column that names it; None if no such column has several values."""
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
    """Return for each record how often steps have fallen back to the first step of the log.

    A fall to a later step is a run resumed from a checkpoint, and no other run. In runs of three records or more at
    most one step in three falls: if more do, the records are not in order, and no run begins.
    """
    known = np.flatnonzero(np.isfinite(steps))
    if len(known) < 2 * LEAST_RECORDS:
        return np.zeros(len(steps))
    values = steps[known]
    falls = values[1:] < values[:-1]
    if falls.sum() * LEAST_RECORDS > len(values):
        return np.zeros(len(steps))
    fell = np.append(False, falls & (values[1:] <= values[0]))
    fell[1:-1] &= values[2:] < values[:-2]  # the wrong step of a single record is damage
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
    """Yield the rows of each run in a table, in time proportional to the table, however many runs there are."""
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
            texts_left={},  # it is not known of which runs they are
        )
        yield run, part
