"""Find the order of records: columns that count up (or down, newest first), and Unix times."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import by_value
from ppo_doctor.readers.table import RUN_KEYS
from ppo_doctor.trainers.names import is_settings

if TYPE_CHECKING:
    from ppo_doctor.model.run import BoolArray, FloatArray, IntArray
    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.readers.table import Table

#: A column of fewer numbers is not asked whether it counts up; one that does falls in at most this share of its rises.
LEAST_STEPS, MOST_RESTARTS = 5, 0.4
#: The same share in a log written newest first, which few are; lengths of episodes that shrink fall as often.
MOST_RESTARTS_BACK = 0.05
#: A column of whole numbers that only falls in so many records counts what was added up, newest record first.
SURELY_BACK = 20

#: So few steps, each of so many records, order a log no more than its lines do.
FEW_STEPS, RECORDS_PER_STEP = 10, 50
#: Columns of the time at which a record was written, in seconds since 1970, and the least that is one.
UNIX_TIMES = ("wall_time", "_timestamp", "timestamp", "time")
YEAR_2001 = 1e9


def counts(parts: Sequence[FloatArray]) -> bool:
    """Tell whether a column counts steps in each file, up or, where the newest stands first, down.

    Few values that change may.
    """
    known = [values[np.isfinite(values)] for values in parts]
    steps = np.concatenate(known)
    if len(steps) < LEAST_STEPS:
        return len(steps) < 2 or bool((steps != steps[0]).any())
    return _rises(known, MOST_RESTARTS) or _rises([-values for values in known], MOST_RESTARTS_BACK)


def possible(columns: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Return the columns that may count steps: what stays below 1 and does not rise is the size of a step."""
    return {key: values for key, values in columns.items() if not is_size(values)}


def is_size(values: FloatArray) -> bool:
    """Tell whether the numbers of a column that is called after steps are their size, a learning rate."""
    known = values[np.isfinite(values)]
    return len(known) >= LEAST_STEPS and 0 < known.max() < 1 and not _rises([known], MOST_RESTARTS)


def added_up(columns: Iterable[FloatArray], begins: Sequence[int]) -> FloatArray | None:
    """Return a column of any name that mostly rises and never falls in any file, of whole numbers if there is one.

    In a log whose newest record stands first, one of whole numbers that mostly falls and never rises.
    """
    rising: list[FloatArray] = []
    falling: list[FloatArray] = []
    for values in columns:
        if _never_falls(np.split(values, begins)):
            rising.append(values)
        elif len(values) >= SURELY_BACK and not _fractional(values) and _never_falls(np.split(-values, begins)):
            falling.append(values)
    return min([*rising, *falling], key=_fractional, default=None)


def _fractional(values: FloatArray) -> bool:
    return bool((values[np.isfinite(values)] % 1 != 0).any())


def _never_falls(parts: Sequence[FloatArray]) -> bool:
    known = [values[np.isfinite(values)] for values in parts]
    if not all(map(len, known)) or max(map(len, known)) < LEAST_STEPS:
        return False
    change = np.concatenate([np.diff(values) for values in known])
    return bool((change >= 0).all() and np.mean(change > 0) >= 0.5)


def _rises(parts: Sequence[FloatArray], most_falls: float) -> bool:
    """Tell whether values rise in nearly all of their changes, as steps do, save where a run begins again."""
    change = np.concatenate([np.diff(values) for values in parts])
    return bool((change > 0).any() and (change < 0).sum() <= most_falls * (change > 0).sum())


def falls(values: FloatArray) -> bool:
    """Tell whether values fall as the steps of a log do whose newest record stands first."""
    return _rises([-values[np.isfinite(values)]], MOST_RESTARTS_BACK)


def taken(table: Table, rows: IntArray, records: IntArray | None = None) -> Table:
    """Return some rows of a table in this order, with other places of their records where `records` gives them."""
    kept = table.records[rows]
    records = kept if records is None else records
    texts = table.texts
    if texts:
        places = dict(zip(kept.tolist(), records.tolist(), strict=True))
        cells = ((key, [(places[at], text) for at, text in held if at in places]) for key, held in texts.items())
        texts = {key: tuple(sorted(held)) for key, held in cells}
    columns = {key: values[rows] for key, values in table.columns.items()}
    return replace(table, records=records, lines=table.lines[rows], columns=columns, texts=texts)


def turned(table: Table, size: int) -> Table:
    """Return a table of a log of `size` records whose last record is put first."""
    rows = np.arange(len(table.records))[::-1]
    return taken(table, rows, size - 1 - table.records[rows])


def too_coarse(steps: FloatArray, records: int) -> bool:
    """Tell whether steps, of which there may be none, hardly count: few for a thing that hundreds of records are of."""
    known = np.sort(steps[np.isfinite(steps)])
    told = len(known) and 1 + int(np.count_nonzero(np.diff(known)))
    return told == 0 or (told <= FEW_STEPS and told * RECORDS_PER_STEP < records)


def once_more(steps: FloatArray) -> FloatArray:
    """Return steps with those of each row of records on the row of as many after it that have none."""
    known = np.isfinite(steps)
    begins = [0, *(np.flatnonzero(np.diff(known)) + 1).tolist(), len(steps)]
    filled = steps.copy()
    for first, middle, end in zip(begins, begins[1:], begins[2:], strict=False):
        if known[first] and middle - first == end - middle > 1:
            filled[middle:end] = steps[first:middle]
    return filled


def are_dates(values: FloatArray) -> bool:
    """Tell Unix times from durations."""
    return bool((values[np.isfinite(values)] > YEAR_2001).all())


def ranked(columns: Sequence[FloatArray]) -> FloatArray:
    """Return the rank of each record by some columns, the first before the next, from 0 to below 1; NaN goes first."""
    cells = np.nan_to_num(np.stack(columns), nan=-1.0)
    order = np.lexsort(cells[::-1])
    rank = np.zeros(len(order))
    rank[order] = np.cumsum(np.append(False, (np.diff(cells[:, order]) != 0).any(axis=0)))
    return np.asarray(rank / (1.0 + rank.max(initial=0.0)))


#: A run that is told apart by its records alone has at least this many.
LEAST_RECORDS = 3


def split(tables: Sequence[Table], steps: FloatArray, config_lines: Sequence[int]) -> list[list[Table]]:
    """Return the tables of each run, in the order of the log.

    `steps` has shape [records of the source], NaN where a record is absent or has no step; `config_lines` are the
    lines at which a configuration stands.
    """
    run_of = _named(tables, len(steps), LEAST_RECORDS)
    if run_of is None:
        run_of = np.maximum(_restarted(steps), _configured(tables, len(steps), config_lines))
    return _parts(tables, run_of)


def settings_apart(tables: list[Table]) -> tuple[list[Table], list[tuple[int, Mapping[str, ConfigValue]]]]:
    """Return tables without printed configurations, and these with their lines: layouts of their own, printed once."""
    written = Counter(frozenset(table.columns) for table in tables)
    once = [t for t in tables if len(t.records) == 1 == written[frozenset(t.columns)]]
    found = [table for table in once if is_settings(table.columns)] if len(once) < len(tables) else []
    kept = [table for table in tables if table not in found]
    return kept, [(int(table.lines[0]), _cells(table)) for table in found]


#: What Hugging Face's trainers write once at the end, beside means over the whole run.
_SUMMARY = "train_runtime"


def summaries_apart(tables: Sequence[Table]) -> tuple[list[Table], list[int]]:
    """Return tables without the closing summary of a training, which is no record of it, and the lines of these."""
    closing = [t for t in tables if any(key.rpartition("/")[2] == _SUMMARY for key in (*t.columns, *t.texts))]
    kept = [table for table in tables if not any(table is one for one in closing)]
    return kept, [int(line) for table in closing for line in table.lines]


def _cells(table: Table) -> dict[str, ConfigValue]:
    """Return the one record of a table, its whole numbers as such."""
    numbers = {key: int(n) if (n := float(column[0])) % 1 == 0 else n for key, column in table.columns.items()}
    return numbers | {key: cells[0][1] for key, cells in table.texts.items() if cells}


def by_lines(tables: Sequence[Table], lines: Sequence[int]) -> list[list[Table]]:
    """Return the tables of each stretch between lines that holds a run's records; shorter ones join the last."""
    held = np.sort(np.concatenate([table.lines for table in tables])) if tables else np.zeros(0, dtype=np.int64)
    counts = np.diff(np.searchsorted(held, [*sorted(lines), np.iinfo(np.int64).max]))
    begins = [line for line, count in zip(sorted(lines), counts, strict=True) if count >= LEAST_RECORDS]
    size = 1 + max((int(table.records[-1]) for table in tables if len(table.records)), default=-1)
    return _parts(tables, _configured(tables, size, begins)) if begins else [list(tables)]


def by_name(tables: Sequence[Table]) -> list[list[Table]]:
    """Return the tables of each run where a column of run names means what it says, however few records a run has."""
    size = 1 + max((int(table.records[-1]) for table in tables if len(table.records)), default=-1)
    run_of = _named(tables, size, 1)
    return [list(tables)] if run_of is None else _parts(tables, run_of)


def _parts(tables: Sequence[Table], run_of: FloatArray) -> list[list[Table]]:
    held = np.flatnonzero(_present(tables, len(run_of)))
    runs = list(by_value(run_of[held]))
    if len(runs) < 2:
        return [list(tables)]
    # Records are numbered in their own run: what is made of it is then as long as it is, and not as the log.
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
    """Return the run of each record by a column that names it, or None without one that takes several values."""
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
    """Count how often steps fell back to the first step of the log, each time after some records.

    A fall to a later step is a run resumed from a checkpoint, not another run. Runs of three records or more leave two
    steps in three to rise: where more than one in three falls, records stand in no order, and no fall tells anything.
    """
    known = np.flatnonzero(np.isfinite(steps))
    if len(known) < 2 * LEAST_RECORDS:
        return np.zeros(len(steps))
    values = steps[known]
    falls = values[1:] < values[:-1]
    if falls.sum() * LEAST_RECORDS > len(values):
        return np.zeros(len(steps))
    fell = np.append(False, falls & (values[1:] <= values[0]))
    fell[1:-1] &= values[2:] < values[:-2]  # a step that is lost for one record is damage
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
    """Yield the rows of each run that a table holds; each row and each text is looked at once, however many runs."""
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
            texts_left={},  # nobody knows of which runs they are
        )
        yield run, part


#: Return, length and seconds since the start: the columns that every Monitor writes.
RETURN, LENGTH, SECONDS = "r", "l", "t"
COLUMNS = frozenset({RETURN, LENGTH, SECONDS})
#: The count of environment steps that is made of the lengths, and where the start of the clock is written.
STEP, START = "step", "t_start"


def is_monitor(tables: Sequence[Table]) -> bool:
    """Tell whether every table holds the columns of a Monitor file."""
    return bool(tables) and all(table.columns.keys() >= COLUMNS for table in tables)


def woven(parts: Sequence[tuple[Table, float]]) -> list[Table]:
    """Return the tables of several Monitor files, each with the time of its start, as those of one run.

    Episodes stand in the order in which they ended.
    """
    ended = np.concatenate([table.columns[SECONDS] + start for table, start in parts])
    return _numbered([table for table, _ in parts], np.argsort(ended, kind="stable"))


def with_steps(tables: Sequence[Table]) -> list[Table]:
    """Return the tables of one Monitor file with the count of environment steps at the end of each episode."""
    records = np.concatenate([table.records for table in tables])
    return _numbered(tables, np.argsort(records, kind="stable"))


def start_of(settings: Iterable[Mapping[str, object]]) -> float:
    """Return the Unix time at which the clock of a Monitor file starts, 0 where its first line does not tell."""
    found = (values.get(START) for values in settings)
    return next((float(value) for value in found if isinstance(value, int | float)), 0.0)


def _numbered(tables: Sequence[Table], order: IntArray) -> list[Table]:
    """Return tables whose rows, one table after the other, have the places that an order gives them."""
    lengths: FloatArray = np.concatenate([table.columns[LENGTH] for table in tables])
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    steps = np.empty(len(order))
    steps[order] = np.cumsum(np.nan_to_num(lengths[order]))
    ends = np.cumsum([len(table.records) for table in tables])[:-1]
    rows = zip(tables, np.split(places, ends), np.split(steps, ends), strict=True)
    return [_at(table, place, step) for table, place, step in rows]


def _at(table: Table, places: IntArray, steps: FloatArray) -> Table:
    """Return a table with its rows at new places, in their order, and their steps."""
    order = np.argsort(places, kind="stable")
    moved = taken(table, order, places[order])
    return replace(moved, columns={**moved.columns, STEP: steps[order]})
