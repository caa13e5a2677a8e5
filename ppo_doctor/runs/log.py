"""Hold the records of one log in native names, and make canonical `Series` of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model import arrays, metrics
from ppo_doctor.model.arrays import finite_median, finite_of, together
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.run import EXACT, Axis, Note, Resolution, Series, SourceRef, SourceSummary
from ppo_doctor.readers.table import SCIENTIFIC
from ppo_doctor.runs.step_columns import (
    UNIX_TIMES,
    added_up,
    are_dates,
    counts,
    falls,
    possible_steps,
    ranked,
    repeated_steps,
    too_coarse,
)
from ppo_doctor.trainers.column_values import (
    fits,
    inferred_decimals,
    with_common_resolution,
    with_first_minibatches,
    with_signed_zeros,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ppo_doctor.model.run import BoolArray, CodePlace, FloatArray, IntArray
    from ppo_doctor.readers.table import Table
    from ppo_doctor.trainers.configuration import Found
    from ppo_doctor.trainers.profiles import MetricProfile, Profile

#: An estimate below minus this is negative beyond float noise.
FLOAT_NOISE = 1e-5
#: Larger steps are invalid: float64 cannot count beyond this.
LARGEST_STEP = 2.0**53
#: Metrics of which all records of one step count: episodes of several environments may end in one step.
OF_EPISODES = frozenset({"episode_return", "episode_length"})
#: Records from which on a reader knows from the printed digits whether a column has a fixed number of decimals.
SILENT = 5
#: Decimals beyond which a number is printed in full precision.
IN_FULL = 7
#: How far beyond its limits a number may be because of rounding.
ROUNDED = 1e-3
#: Values beyond the limits of a metric are damaged if they are at most this part of all, or one. If there are more, the
#: name means something else, such as a percentage or a sum.
DAMAGED = 0.05


def rows_of_table(table: Table, rows: IntArray, records: IntArray | None = None) -> Table:
    """Return some rows of a table, in this order; `records` are their record numbers if these change."""
    kept = table.records[rows]
    records = kept if records is None else records
    texts = table.texts
    if texts:
        places = dict(zip(kept.tolist(), records.tolist(), strict=True))
        cells = ((key, [(places[at], text) for at, text in held if at in places]) for key, held in texts.items())
        texts = {key: tuple(sorted(held)) for key, held in cells}
    columns = {key: values[rows] for key, values in table.columns.items()}
    return replace(table, records=records, lines=table.lines[rows], columns=columns, texts=texts)


@dataclass(slots=True, repr=False, eq=False)
class Log:
    """A log, or a part of one, in native names: its records, notes, and the settings among them.

    `suffix` distinguishes the runs of one file; `folders` are further folders that may hold a configuration.
    """

    path: str
    container: str = ""
    tables: list[Table] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    embedded: list[Found] = field(default_factory=list)
    suffix: str = ""
    folders: tuple[Path, ...] = ()
    #: aliases: column or setting → what the user says that it is
    named: Mapping[str, str] = field(default_factory=dict)
    #: names of the columns of a table, in their order
    header: tuple[str, ...] = ()
    #: lines of headings that name a method, and the methods
    sections: list[tuple[int, str]] = field(default_factory=list)
    #: metric → line of the training script
    places: dict[str, CodePlace] = field(default_factory=dict)
    #: if files were joined: a summary of each
    joined: tuple[SourceSummary, ...] = ()
    #: it holds one run, whatever its steps and settings do
    one_run: bool = False
    #: True once records were numbered because they have no steps
    numbered: bool = field(default=False, init=False)

    def copy(self) -> Log:
        """Return a copy with lists and places of its own."""
        tables, notes, embedded = list(self.tables), list(self.notes), list(self.embedded)
        return replace(self, tables=tables, notes=notes, embedded=embedded, places=dict(self.places))

    def extend(self, other: Log) -> None:
        """Append the records, notes and settings of the next file of the same run."""
        self.joined = (*(self.joined or (self.summary,)), other.summary)
        ours = self.size
        self.tables += [rows_of_table(t, np.arange(len(t.records)), t.records + ours) for t in other.tables]
        self.notes += other.notes
        self.embedded += other.embedded
        self.places |= other.places

    @property
    def name(self) -> str:
        """Return the path, with the suffix of the run."""
        return self.path + self.suffix

    @property
    def summary(self) -> SourceSummary:
        """Return how many records were read and skipped."""
        skipped = sum(note.count for note in self.notes if note.kind == "skipped")
        return SourceSummary(path=self.path, container=self.container, records=self.records + skipped, skipped=skipped)

    @property
    def died_of_numbers(self) -> bool:
        """Return whether the log ends in an exception about numbers that are not finite, which is judged by itself."""
        return any(note.event == "died_of_numbers" for note in self.notes)

    @property
    def keys(self) -> frozenset[str]:
        """Return the native names of all columns."""
        return frozenset().union(*(names for table in self.tables for names in (table.columns, table.others)))

    @property
    def records(self) -> int:
        """Return the number of records."""
        return sum(len(table.records) for table in self.tables)

    @property
    def size(self) -> int:
        """Return one more than the largest record number; some numbers may be of tables that were left out."""
        return 1 + max((int(table.records[-1]) for table in self.tables if len(table.records)), default=-1)

    def series(self, profile: Profile) -> dict[str, Series]:
        """Return the canonical series; duplicates and odd steps become notes."""
        clock = self._clock(profile)
        axes: dict[tuple[object, ...], _Placement] = {}
        named: dict[str, Series] = {}
        for name, metric in profile.metrics.items():
            for key in metric.keys:
                holders = [table for table in self.tables if key in table.columns]
                if holders and name not in named:
                    named[name] = self._series(key, metric, holders, clock, axes)
        self._note_merged(axes)
        if profile.components_left:
            text = f"{profile.components_left} series of parts of the reward are beyond the limit, and left out"
            self.notes.append(Note(text=text, source=SourceRef(path=self.path)))
        return with_first_minibatches(with_signed_zeros(with_common_resolution(named)))

    def steps(self, profile: Profile) -> FloatArray:
        """Return the logged step of each record, NaN if it has none; shape [size]."""
        key = self._clock_key(profile.axis.get("step", ()))
        return self._by_record(key, self.size) if key is not None else np.full(self.size, np.nan)

    def order(self, profile: Profile, begins: Sequence[int] = ()) -> FloatArray:
        """Return the column that orders the records: steps, updates, Unix times or a counter; all NaN without any.

        Files begin at the records `begins`; a column of steps has to count in each of them. Shape [size].
        """
        size = self.size
        for keys in (profile.axis.get("step", ()), profile.axis.get("update", ()), UNIX_TIMES):
            values = self._by_record(key, size) if (key := self._clock_key(keys, begins)) is not None else None
            if values is not None and np.isfinite(values).any() and (keys is not UNIX_TIMES or are_dates(values)):
                return values
        summed = added_up((self._by_record(key, size) for key in sorted(self.keys)), begins)
        return np.full(size, np.nan) if summed is None else summed

    def within_step(self, profile: Profile) -> FloatArray | float:
        """Return the position of each record within its step by epoch and minibatch, from 0 to below 1."""
        keys = [key for name in ("epoch", "minibatch") for key in profile.axis.get(name, ()) if key in self.keys]
        if not keys:
            return 0.0
        return ranked([self._by_record(key, self.size) for key in keys])

    def turn_forward(self, profile: Profile) -> None:
        """Reverse the records of a log whose newest record comes first."""
        if falls(self.order(profile)):
            size = self.size
            self.tables = [_turned(table, size) for table in self.tables]

    def _clock_key(self, keys: Sequence[str], begins: Sequence[int] = ()) -> str | None:
        """Return the first key that counts steps in enough records, or else the first one that the log has.

        It needs half as many records as any other key, because lengths of episodes are often called "steps", and
        summaries hold totals.
        """
        known, size = self.keys, self.size
        columns = possible_steps({key: self._by_record(key, size) for key in keys if key in known})
        held = list(columns)
        if len(held) < 2:
            return next(iter(held), None)
        filled = {key: int(np.isfinite(values).sum()) for key, values in columns.items()}
        often = [key for key in held if 2 * filled[key] >= max(filled.values())]
        return next((key for key in often if counts(np.split(columns[key], begins))), often[0])

    def _clock(self, profile: Profile) -> dict[str, FloatArray]:
        """Return each quantity of the axis by record, NaN if unknown; steps are carried forward into gaps."""
        size = self.size
        clock: dict[str, FloatArray] = {}
        held = self.keys
        for name, keys in profile.axis.items():
            key = self._clock_key(keys) if name == "step" else next((key for key in keys if key in held), None)
            if key is not None:
                clock[name] = self._by_record(key, size)
        steps = clock.get("step", np.full(size, np.nan))
        steps = np.where(np.abs(steps) <= LARGEST_STEP, steps, np.nan)
        measured = self._measured(profile)
        finer = "minibatch" in clock or "epoch" in clock
        if too_coarse(steps, 0 if finer else int(measured.sum())) or _in_parts(steps):
            clock["step"] = np.maximum(np.cumsum(measured, dtype=np.float64), 1.0)
            self.numbered = True
        else:
            clock["step"] = self._carried(steps)
        return clock

    def measured(self, profile: Profile) -> int:
        """Return the number of records that hold a metric."""
        return int(np.count_nonzero(self._measured(profile)))

    def _measured(self, profile: Profile) -> BoolArray:
        keys = {key for metric in profile.metrics.values() for key in metric.keys}
        holds = np.zeros(self.size, dtype=np.bool_)
        for table in self.tables:
            if not keys.isdisjoint(table.columns):
                holds[table.records] = True
        return holds

    def finite(self, keys: Collection[str]) -> dict[str, FloatArray]:
        """Return the finite numbers of columns, in the order of their records."""
        held: dict[str, list[tuple[IntArray, FloatArray]]] = {key: [] for key in keys}
        for table in self.tables:
            for key in held.keys() & table.columns.keys():
                held[key].append((np.asarray(table.records), np.asarray(table.columns[key], dtype=np.float64)))
        return {key: _in_order_of_records(parts) for key, parts in held.items()}

    def by_record(self, key: str) -> FloatArray:
        """Return a column by record, NaN where it has no number; shape [size]."""
        return self._by_record(key, self.size)

    def _by_record(self, key: str, size: int) -> FloatArray:
        out = np.full(size, np.nan)
        for table in self.tables:
            if key in table.columns:
                out[table.records] = table.columns[key]
        return out

    def _carried(self, steps: FloatArray) -> FloatArray:
        """Return steps in which records without one have that of the record before.

        They have that of the record after if the log begins with a record of their layout. As many records in a row as
        those with steps before them are further columns of these.
        """
        present, leads = np.zeros((2, len(steps)), dtype=bool)
        for table in self.tables:
            present[table.records] = True
        steps[present] = repeated_steps(steps[present])
        known = np.isfinite(steps)
        first = int(np.argmax(known))
        ahead = {tuple(table.columns) for table in self.tables if len(table.records) and table.records[0] < first}
        for table in self.tables:
            leads[table.records] = tuple(table.columns) in ahead
        before, after = present & ~known & ~leads, present & ~known & leads
        counts = [
            f"{count} that of the record {w}" for w, at in (("before", before), ("after", after)) if (count := at.sum())
        ]
        if counts:
            text = f"records without a step are given that of another: {', '.join(counts)}"
            self.notes.append(Note(text=text, source=SourceRef(path=self.path)))
        at = np.arange(len(steps))
        last = np.maximum(np.maximum.accumulate(np.where(known, at, -1)), first)
        following = np.minimum.accumulate(np.where(known, at, len(steps))[::-1])[::-1]
        return steps[np.where(leads & (following < len(steps)), np.minimum(following, len(steps) - 1), last)]

    def _series(
        self,
        key: str,
        metric: MetricProfile,
        holders: Sequence[Table],
        clock: Mapping[str, FloatArray],
        axes: dict[tuple[object, ...], _Placement],
    ) -> Series:
        identity = (metric.name in OF_EPISODES, *map(id, holders))
        if identity not in axes:
            several = len({table.path for table in self.tables}) > 1
            axes[identity] = _place(self.path, holders, clock, repeats=metric.name in OF_EPISODES, several=several)
        placement = axes[identity]
        values = np.concatenate([_column(table, key, metric) for table in holders])[placement.order]
        axis, values = self._possible(key, metric, placement.axis, values)
        resolution = _resolution(key, metric, holders, values).scaled(metric.scale)
        values = np.square(values) if metric.root else values
        if metric.antilog:
            values = np.power(metric.antilog, values)
            resolution = resolution.scaled(math.log(metric.antilog) * finite_median(values))
        values = values if metric.scale == 1.0 else values * metric.scale
        values = values if metric.offset == 0.0 else values + metric.offset  # adding 0 would turn -0 into 0
        estimator = self._estimator(key, metric, values)
        least = arrays.rounding_of(metric.name, estimator, metric.aggregation, values)
        return Series(
            name=metric.name,
            raw=metric.called(key),
            axis=axis,
            values=values,
            unit=metrics.unit(metric.name),
            resolution=replace(resolution, rounding=least),
            estimator=estimator,
            aggregation=metric.aggregation,
            reference=metric.reference,
        )

    def _possible(self, key: str, metric: MetricProfile, axis: Axis, values: FloatArray) -> tuple[Axis, FloatArray]:
        """Return axis and values without the few values beyond the limits of the metric, which become a note."""
        if metric.antilog:
            return axis, values
        low, high = sorted((limit - metric.offset) / metric.scale for limit in metrics.limits(metric.name))
        room = ROUNDED / abs(metric.scale)
        beyond = np.isfinite(values) & ((values < low - room) | (values > high + room))
        count = int(np.count_nonzero(beyond))
        if not 0 < count <= max(1.0, DAMAGED * len(values)) or 2 * count >= len(values):
            return axis, values
        first = int(np.argmax(beyond))
        text = f"{count} of {len(values)} values of {key} left out, for it cannot be {values[first]:.6g}"
        source = SourceRef(path=axis.path_of(first), line=int(axis.lines[first]) or None, key=key)
        self.notes.append(Note(text=text, source=source, count=count, kind="dropped"))
        kept = np.flatnonzero(~beyond)
        return axis.take(kept), values[kept]

    def _estimator(self, key: str, metric: MetricProfile, values: FloatArray) -> str | None:
        other = metric.estimator_if_negative
        if other is None or not (values < -FLOAT_NOISE).any():
            return metric.estimator
        text = f"{key} is negative in places, so this version logs {other}, not {metric.estimator}"
        self.notes.append(Note(text=text, source=SourceRef(path=self.path)))
        return other

    def _note_merged(self, axes: Mapping[tuple[object, ...], _Placement]) -> None:
        merged = max((placement.merged for placement in axes.values()), default=0)
        if merged:
            text = f"{merged} records repeat a step that a later record holds too; the later one counts"
            self.notes.append(Note(text=text, source=SourceRef(path=self.path), count=merged, kind="merged"))


def _turned(table: Table, size: int) -> Table:
    """Return a table of a log of `size` records with its records reversed."""
    rows = np.arange(len(table.records))[::-1]
    return rows_of_table(table, rows, size - 1 - table.records[rows])


def _column(table: Table, key: str, metric: MetricProfile) -> FloatArray:
    """Return the column of a metric, or the combination of its several columns."""
    held = [table.columns[name] for name in metric.columns if name in table.columns]
    return together(held, metric.over) if len(held) > 1 else table.columns[key]


def _in_parts(steps: FloatArray) -> bool:
    """Return whether most steps are fractions, as epochs of a trainer that counts its data; these count no steps."""
    known = steps[np.isfinite(steps)]
    return bool(np.mean(known % 1 != 0) > 0.5)


@frozen(kw_only=False)
class _Placement:
    """The axis of some tables, the order of their cells on it, and the number of cells that a later one replaces."""

    axis: Axis
    order: IntArray
    merged: int


def _place(
    path: str, holders: Sequence[Table], clock: Mapping[str, FloatArray], *, repeats: bool, several: bool
) -> _Placement:
    records = np.concatenate([table.records for table in holders])
    lines = np.concatenate([table.lines for table in holders])
    keys = [clock[name][records] for name in ("step", "update", "epoch", "minibatch") if name in clock]
    order = np.argsort(records, kind="stable")
    rising = bool((keys[0][order][1:] > keys[0][order][:-1]).all())
    merged = 0
    if not rising:
        # By step, then by the order of the log, so that of equal keys the last one is the later record.
        order = np.lexsort((records, *[np.nan_to_num(key, nan=-1.0) for key in reversed(keys)]))
    if not rising and len(order) > 1:
        same = np.logical_and.reduce([_equal_next(key[order]) for key in keys])
        kept = _of_last_pass(_passes(keys[0], records)[order], same) if repeats else np.append(~same, True)
        merged = len(order) - int(kept.sum())
        order = order[kept]
    taken = records[order]
    files, file = _files(holders)
    axis = Axis(
        path=files[0] if len(files) == 1 and several else path,
        steps=clock["step"][taken].astype(np.int64),
        lines=lines[order],
        update=_whole(clock.get("update"), taken),
        epoch=_whole(clock.get("epoch"), taken),
        minibatch=_whole(clock.get("minibatch"), taken),
        files=files if len(files) > 1 else (),
        file=file[order] if len(files) > 1 else None,
        records=taken,
    )
    return _Placement(axis, order, merged)


def _passes(steps: FloatArray, records: IntArray) -> IntArray:
    """Return for each record how often steps have fallen back, as in a run resumed from a checkpoint."""
    order = np.argsort(records, kind="stable")
    passes = np.empty(len(steps), dtype=np.int64)
    passes[order] = np.cumsum(np.append(False, steps[order][1:] < steps[order][:-1]))
    return passes


def _of_last_pass(passes: IntArray, same: BoolArray) -> BoolArray:
    """Return which records are of the last pass over their step; `same` marks those before another of their step."""
    ends = np.flatnonzero(np.append(~same, True))
    return np.asarray(passes == np.repeat(passes[ends], np.diff(np.append(-1, ends))), dtype=np.bool_)


def _files(holders: Sequence[Table]) -> tuple[tuple[str, ...], IntArray]:
    """Return the files of some tables, and for each record the index of its file."""
    files = tuple(dict.fromkeys(table.path for table in holders))
    numbers = [files.index(table.path) for table in holders]
    return files, np.repeat(np.array(numbers, dtype=np.int64), [len(table.records) for table in holders])


def _equal_next(values: FloatArray) -> BoolArray:
    return np.asarray((values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1])), dtype=np.bool_)


def _whole(values: FloatArray | None, taken: IntArray) -> IntArray | None:
    if values is None or not np.isfinite(values[taken]).all():
        return None
    return values[taken].astype(np.int64)


def _resolution(key: str, metric: MetricProfile, holders: Sequence[Table], values: FloatArray) -> Resolution:
    printed = [table.decimals.get(key) for table in holders]
    decimals = [d for d in printed if d is not None]
    if metric.resolution:
        return Resolution(absolute=metric.resolution)
    if metric.decimals is not None and fits(values, metric.decimals):
        return Resolution(absolute=0.5 * 10.0**-metric.decimals)
    silent = [table.columns[key] for table, places in zip(holders, printed, strict=True) if places is None]
    # A few values with the same decimals prove nothing, so that short tables decide nothing.
    if decimals and all(len(column) < SILENT and fits(column, max(decimals)) for column in silent):
        return EXACT if IN_FULL < (most := max(decimals)) < SCIENTIFIC else Resolution(absolute=0.5 * 10.0**-most)
    inferred = inferred_decimals(values)
    return EXACT if inferred is None else Resolution(absolute=0.5 * 10.0**-inferred)


def _in_order_of_records(parts: Sequence[tuple[IntArray, FloatArray]]) -> FloatArray:
    """Return the finite numbers of parts of a column."""
    if not parts:
        return np.empty(0)
    values: FloatArray = np.concatenate([numbers for _, numbers in parts])
    if len(parts) > 1:
        values = values[np.argsort(np.concatenate([records for records, _ in parts]), kind="stable")]
    return finite_of(values)
