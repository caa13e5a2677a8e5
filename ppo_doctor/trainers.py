"""Records of several trainers in one log: sections are logs of their own, and a few records in another's are left out.

A log is read by one profile. That of a trainer that wrote one record of a hundred would understand none of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor import frameworks
from ppo_doctor.builder import RunBuilder
from ppo_doctor.model import Note, SourceRef
from ppo_doctor.reading import TOLD_APART, Content, Request, own_content, told_apart

if TYPE_CHECKING:
    from ppo_doctor.table import Table

#: Records of a section that is judged by itself: fewer answer no check.
LEAST_RECORDS = 8
#: At most so large a part of a log by nobody's trainer that speaks of so many metrics is another trainer's.
A_FEW, HANDFUL = 0.05, 5


def contents_in(content: Content, request: Request) -> list[Content]:
    """Return the logs in a content: runs of a database, cells of a notebook, sections of several trainers."""
    parts = told_apart(content)
    if len(parts) > 1 or request.framework is not None:
        return parts
    return _by_trainer(content)


def _by_trainer(content: Content) -> list[Content]:
    if content.container in TOLD_APART:
        return [content]
    counts: Counter[frozenset[str]] = Counter()
    for table in content.builder.tables:
        counts[_layout(table)] += len(table.records)
    found = [_parted(content.builder.tables, of_one) for of_one in _trainers(counts)] if len(counts) > 1 else []
    if not found:
        return [content]
    for first, second in found:
        if min(_records(first), _records(second)) >= LEAST_RECORDS and _lines(first)[1] < _lines(second)[0]:
            return _sections(content, (first, second))
    less, more = sorted(found[0], key=_records)
    return _by_trainer(_without(content, less, more))


def _parted(tables: Sequence[Table], of_one: Collection[frozenset[str]]) -> tuple[list[Table], list[Table]]:
    """Return the tables of some layouts and the others, first those that begin first."""
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
    """Yield the layouts of each trainer where the others are of another, first of the one that has fewest records.

    Layouts are of another trainer where neither knows a metric of the other's. What is of none is of the larger part.
    """
    keys = frozenset().union(*counts)
    told = frameworks.trainers_in(counts)
    records = {name: sum(counts[layout] for layout in told if told[layout] == name) for name in set(told.values())}
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
    """Return the keys that are metrics of a trainer's by its profile, guesses aside."""
    metrics = frameworks.profile(name).resolved(keys).metrics.values()
    return keys.intersection(key for metric in metrics for key in (*metric.keys, *metric.columns))


def _metrics_of_others(name: str, layouts: Collection[frozenset[str]], *, few: bool) -> frozenset[str]:
    """Return the metrics in layouts that are of another trainer than `name`, or of nobody's where that one has few."""
    keys = frozenset().union(*layouts)
    other = frameworks.trainer_of(keys)
    if other is not None:
        return _metrics(other, keys) if other != name else frozenset()
    own = frameworks.detect(keys) if few else None
    found = frozenset(key for metric in own.metrics.values() for key in metric.keys) & keys if own else frozenset()
    return found if len(found) >= HANDFUL else frozenset()


def _title(tables: Sequence[Table]) -> str:
    found = frameworks.detect(frozenset().union(*map(_layout, tables)))
    return found.title if found is not None and found.name != frameworks.CANONICAL else "no trainer that we know"


def _sections(content: Content, parts: Sequence[Sequence[Table]]) -> list[Content]:
    begins = _lines(parts[1])[0]
    titles = " and ".join(map(_title, parts))
    text = f"it holds logs of two trainers, {titles}, the second from line {begins} on; each is judged by itself"
    note = Note(text=text, source=SourceRef(path=content.path, line=begins), kind="said")
    found = []
    for number, tables in enumerate(parts, start=1):
        part = own_content(content, list(tables), f"{content.suffix}#{number}")
        part.builder.notes.insert(0, note)
        found += _by_trainer(part)
    return found


def _without(content: Content, less: Sequence[Table], more: Sequence[Table]) -> Content:
    (first, last), count = _lines(less), _records(less)
    where = f"line {first}" if first == last else f"lines {first} to {last}"
    what = "1 record" if count == 1 else f"{count} records"
    text = f"{what} of {where} left out: of {_title(less)}, and the log is of {_title(more)}"
    note = Note(text=text, source=SourceRef(path=content.path, line=first), count=count, kind="said")
    builder = RunBuilder(path=content.path, tables=list(more), notes=[*content.builder.notes, note])
    return replace(content, builder=builder)
