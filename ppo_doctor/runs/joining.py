"""Join files whose steps follow each other into the log of which they are parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import distinct, median
from ppo_doctor.model.run import Note, SourceRef
from ppo_doctor.readers.table import numbered_columns
from ppo_doctor.runs.builder import RunBuilder
from ppo_doctor.runs.reading import NOTEBOOK, STEP_KEYS, TOLD_APART, Content, Request, own_content, parts_of, told_apart
from ppo_doctor.runs.splitting import by_name
from ppo_doctor.trainers import detection as frameworks

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray
    from ppo_doctor.readers.table import Table
    from ppo_doctor.trainers.profiles import Profile

#: Steps of which two files share at least this part are read twice, not in parts.
SAME_STEPS = 0.9


def linked(links: Sequence[Content], *, together: bool) -> list[Content]:
    """Join files in the order in which they were begun; one whose steps start over begins another run.

    A run that was resumed goes on from a checkpoint: beyond the middle of what was there before.
    """
    joined: list[Content] = []
    spans: list[tuple[float, float]] = []
    bare = [link for link in links if not link.builder.records]
    for link in (link for link in links if link.builder.records):
        low, high = _span_of_chain(link)
        if joined and (together or low > sum(spans[-1]) / 2):
            joined[-1].extend(link)
            spans[-1] = (spans[-1][0], max(spans[-1][1], high))
        else:
            joined.append(link)
            spans.append((low, high))
    return joined + bare


def _span_of_chain(content: Content) -> tuple[float, float]:
    """Return the first and last step of a content by the first column that counts steps, or of its records."""
    for key in STEP_KEYS:
        values = [table.columns[key] for table in content.builder.tables if key in table.columns]
        finite = [column[np.isfinite(column)] for column in values]
        if any(map(len, finite)):
            steps = np.concatenate(finite)
            return float(steps.min()), float(steps.max())
    return 0.0, float(content.builder.records)


@dataclass(slots=True, repr=False, eq=False)
class _Part:
    """A content among those that count their steps alike; its steps are NaN where nothing tells their order."""

    content: Content
    #: its place among all contents
    place: int
    low: float
    high: float
    #: the distance of two steps
    stride: float

    def add(self, later: _Part) -> None:
        self.content.extend(later.content)
        self.high = max(self.high, later.high)
        self.place = min(self.place, later.place)


def joined(contents: Sequence[Content], framework: str | None, *, together: bool) -> list[Content]:
    """Return contents with those joined that are parts of one run, whatever their names and their order.

    With `together` all are said to be of one run, and what follows by its steps is a part of it. Without, parts lie in
    one folder, hold the same columns, and one goes on where the other ended, or from a checkpoint beyond its middle.
    Whatever holds the same steps as another is not a part but the same run once more. Where nothing tells an order,
    that of the names counts, with `together` only.
    """
    contents = _one_record_each(contents)
    held = [content for content in contents if content.builder.records]
    if len(held) < 2:
        return list(contents)
    _give_headers(held, together=together)
    keys = frozenset().union(*(content.builder.keys for content in held))
    profile = _profile(keys, framework)
    parts: list[_Part] = []
    for family in _families(held, profile):
        parts += _joined(family, profile, together=together)
    parts.sort(key=lambda part: part.place)
    return [*(part.content for part in parts), *(content for content in contents if not content.builder.records)]


#: Files of one record each that make a run, and what says before a number that it is not the run that goes on.
FEWEST_FILES = 3
_OF_ANOTHER = re.compile(r"(seed|run|trial|fold|rank|worker|exp|experiment|job|agent|version)[ _.-]*$", re.I)


def _one_record_each(contents: Sequence[Content]) -> list[Content]:
    """Join files of one record each with the same keys, whose names differ in their last number, in its order."""
    alike: dict[object, list[tuple[int, Content]]] = {}
    for content in contents:
        before, number, after = re.fullmatch(r"(?s)(.*?)(\d*)(\D*)", Path(content.path).name).groups()  # type: ignore[union-attr]
        if content.builder.records == 1 and number and not _OF_ANOTHER.search(before):
            what = (Path(content.path).parent, before, after, content.container, content.builder.keys)
            alike.setdefault(what, []).append((int(number), content))
    taken: set[int] = set()
    for files in alike.values():
        if len(files) >= FEWEST_FILES:
            (_, first), *later = sorted(files, key=lambda file: file[0])
            for _, content in later:
                first.extend(content)
                taken.add(id(content))
    return [content for content in contents if id(content) not in taken]


def _profile(keys: frozenset[str], framework: str | None) -> Profile:
    if framework:
        return frameworks.as_written(framework, keys)
    return frameworks.detect(keys) or frameworks.profile(frameworks.CANONICAL)


def _families(contents: Sequence[Content], profile: Profile) -> list[list[_Part]]:
    """Return contents by the columns that may count their steps, and how far those of each reach."""
    families: dict[frozenset[str], list[tuple[int, Content]]] = {}
    for place, content in enumerate(contents):
        clocks = content.builder.keys.intersection(profile.axis.get("step", ()))
        families.setdefault(frozenset(clocks), []).append((place, content))
    return [_measured(family, profile) for family in families.values()]


def _measured(family: Sequence[tuple[int, Content]], profile: Profile) -> list[_Part]:
    """Measure contents by one clock: which column it is shows in all of them, where a short part cannot tell."""
    if len(family) == 1:
        ((place, content),) = family
        return [_Part(content, place, np.nan, np.nan, np.nan)]
    whole = RunBuilder(path="")
    ends: list[int] = []
    for _, content in family:
        content.builder.turn_forward(profile)
        whole.extend(content.builder)
        ends.append(whole.size)
    steps = np.split(whole.order(profile, ends[:-1]) + whole.within_step(profile), ends[:-1])
    return [_Part(content, place, *_reach(ours)) for (place, content), ours in zip(family, steps, strict=True)]


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
            runs.append(part)  # nothing before it, or nobody knows which of two
        else:
            near[0].add(part)
    return runs


def _goes_on(run: _Part, part: _Part, profile: Profile, *, together: bool) -> bool:
    """Tell whether a part continues a run that begins before it."""
    one, other = run.content, part.content
    if one.path == other.path or not _alike(one, other, profile):
        return False
    follows = _follows_as_told(run, part) if together else _follows(run, part) and _of_one_run(one, other)
    return follows and all(len(parts_of(content, profile)) == 1 for content in (one, other))


def _follows_as_told(run: _Part, part: _Part) -> bool:
    """Tell whether a content of the same run is a later part of it, not the same steps once more."""
    if np.isnan(run.low) or np.isnan(part.low):
        ordered = run.content.container == part.content.container and np.isnan(run.low) and np.isnan(part.low)
        return bool(ordered) and not _copies(run.content.builder.tables, part.content.builder.tables)
    if run.content.container != part.content.container:
        return part.low > run.high
    shared = min(run.high, part.high) - part.low
    before = run.low < part.low or run.low == run.high
    beyond = run.high < part.high or part.low == part.high
    return before and beyond and shared < SAME_STEPS * (part.high - run.low)


def _copies(ours: Sequence[Table], theirs: Sequence[Table]) -> bool:
    """Tell whether two files hold the same numbers in the same order."""
    if [table.columns.keys() for table in ours] != [table.columns.keys() for table in theirs]:
        return False
    pairs = ((a.columns[key], b.columns[key]) for a, b in zip(ours, theirs, strict=True) for key in a.columns)
    return all(np.array_equal(one, other, equal_nan=True) for one, other in pairs)


def _follows(run: _Part, part: _Part) -> bool:
    """Tell whether a content goes on where another ended, or from a checkpoint; one that begins at 0 is a run."""
    return part.low > part.stride and part.low > (run.low + run.high) / 2 and part.high > run.high


def _of_one_run(one: Content, other: Content) -> bool:
    """Tell whether nothing says that two contents are of different runs: their places, settings, columns of names."""
    places = {(content.container, Path(content.path).parent) for content in (one, other)}
    if len(places) > 1 or one.container in (*TOLD_APART, NOTEBOOK):
        return False  # event files were linked by their age already
    settings = [[found.values for found in content.embedded] for content in (one, other)]
    if all(settings) and settings[0][-1] != settings[1][0]:
        return False
    both = one.builder.copy()
    both.extend(other.builder)
    return len(by_name(both.tables)) == 1


def _alike(one: Content, other: Content, profile: Profile) -> bool:
    """Tell whether the one with fewer columns has half of them in common with the other, clocks aside."""
    clocks = {key for keys in profile.axis.values() for key in keys}
    ours, theirs = one.builder.keys - clocks, other.builder.keys - clocks
    return 2 * len(ours & theirs) >= min(len(ours), len(theirs))


def _give_headers(contents: Sequence[Content], *, together: bool) -> None:
    """Name the columns of a table without a header after those of the one that it was cut from: as wide, beside it."""
    headers: dict[tuple[object, int], tuple[str, ...]] = {}
    bare: list[tuple[Content, int]] = []
    for content in (content for content in contents if content.container == "csv"):
        width = numbered_columns(content.builder.keys)
        if width:
            bare.append((content, width))
        else:
            headers.setdefault((_place_of(content, together=together), len(content.header)), content.header)
    for content, width in bare:
        if names := headers.get((_place_of(content, together=together), width)):
            content.builder.tables = [_named(table, names) for table in content.builder.tables]


def _place_of(content: Content, *, together: bool) -> object:
    return None if together else Path(content.path).parent


def _named(table: Table, names: Sequence[str]) -> Table:
    new = {f"column_{number}": name for number, name in enumerate(names, 1)}
    return replace(
        table,
        columns={new[key]: values for key, values in table.columns.items()},
        decimals={new[key]: places for key, places in table.decimals.items()},
        texts={new[key]: cells for key, cells in table.texts.items()},
        texts_left={new[key]: count for key, count in table.texts_left.items()},
        others=frozenset(new[key] for key in table.others),
    )


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
