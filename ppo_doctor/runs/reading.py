"""Read one file into a `Log`: its tables, notes and settings, in the names of the trainer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor import readers
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.model.run import Note, SourceRef
from ppo_doctor.readers.table import (
    RUN_KEYS,
    SECTION,
    EmbeddedConfig,
    ScriptPlaces,
    Table,
    numbered_columns,
    of_several,
)
from ppo_doctor.runs import columns
from ppo_doctor.runs.log import Log, rows_of_table
from ppo_doctor.trainers import configuration, detection
from ppo_doctor.trainers.configuration import Found
from ppo_doctor.trainers.names import is_settings

if TYPE_CHECKING:
    from ppo_doctor.model.request import Request
    from ppo_doctor.model.run import CodePlace, FloatArray, IntArray
    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.readers import Item

#: Records from which on columns without a meaning are dropped.
LONG = 1_000
#: Columns of steps by which the files of one run are ordered, for any trainer.
STEP_KEYS = ("step", "_step", "global_step")
#: Containers of one run each: steps that start over are no second run in them.
SINGLE_RUN = ("tfevents", "wandb", "mlflow", "sqlite")
NOTEBOOK = "notebook"
#: A column that Hugging Face's trainers write once, at the end, together with means over the whole run.
_SUMMARY = "train_runtime"
#: Columns of every Monitor file: return, length, and seconds since the start.
RETURN, LENGTH, SECONDS = "r", "l", "t"
COLUMNS = frozenset({RETURN, LENGTH, SECONDS})
#: The added column of environment steps, and the setting with the start of the clock.
STEP, START = "step", "t_start"
#: "kl*1e3", "kl_x1000": the numbers are a multiple of the quantity.
_TIMES = lazy_pattern(
    r"[ _]?[(\[]?(?:(?<![A-Za-z\d])x|[×*·⋅]) ?(?:(10{2,8}|1k)|1e\+?(\d)|10\^\+?(\d))[)\]]?\Z", re.IGNORECASE
)
#: "lr [1e-4]", "lr ×10^-4": the numbers are in this unit.
_SMALL = lazy_pattern(r" ?(?:[(\[](?:[x×*·⋅] ?)?|[×*·⋅] ?)(?:1e|10\^)-(\d)[)\]]?\Z", re.IGNORECASE)
#: Names of counts after a prefix for thousands or millions: "ksteps", "M_frames".
_COUNTED = r"(?:env_?)?(?:time)?(?:steps?|fr(?:ames?)?|ticks?|samples?|interactions?)\Z"
#: Prefixes of units and their powers of 10. A Greek mu after Greek letters is not one: it may be a mean.
_PREFIXES = (
    (lazy_pattern(r"[ _]?[(\[]\u00b5[)\]]\Z|(?<=[A-Za-z])[ _]?[(\[]\u03bc[)\]]\Z"), -6),
    (lazy_pattern(r"(?:(?<=\blr)|(?<=\beta)|(?<=rate)|(?<=alpha))_(?:u|mu|micro)\Z", re.IGNORECASE), -6),
    (lazy_pattern(r"[ _]?[(\[]‰[)\]]\Z|[ _]?[(\[]?(?<![a-z])milli(?![a-z])[)\]]?"), -3),
    (lazy_pattern(r"(?<![a-z])(?:m|milli_?)(?=(?:nat|bit)s?(?![a-z]))"), -3),
    (lazy_pattern(r"(?<![a-z])(?:[\u00b5\u03bcu]|micro_?)(?=(?:nat|bit)s?(?![a-z]))"), -6),
    (lazy_pattern(r"(?<=[a-z])(?:Milli|_milli)(?![a-z])|(?<=[A-Za-z])_(?:e3|pm|permille|promille)\Z"), -3),
    (lazy_pattern(r"(?<=[A-Za-z])_(?:e6|ppm)\Z|(?<=[a-z])Ppm\Z"), -6),
    (lazy_pattern(rf"[ _]?[(\[]k[)\]]\Z|(?<![A-Za-z])k_?(?={_COUNTED})"), 3),
    (lazy_pattern(rf"[ _]?[(\[]M[)\]]\Z|(?<![A-Za-z])M_?(?={_COUNTED})"), 6),
)


def read_file(path: str, folders: tuple[Path, ...], request: Request, *, growing: bool = False) -> Log:
    """Read one file or store into a `Log`; with `growing`, a last line without an end is left out.

    Raises:
        DoctorError: as `readers.read`.
    """
    if path != "-" and Path(path).is_dir():
        from ppo_doctor.readers import metric_files

        if metric_files.is_mlflow_run(Path(path)):
            return collect(path, "mlflow", metric_files.read_mlflow_run(Path(path)), folders, request)
        return collect(path, "csv", metric_files.read_csv_run(Path(path)), folders, request)
    container, stream = readers.read(path, growing=growing)
    return collect(path, container, stream, folders, request)


def collect(path: str, container: str, items: Iterable[Item], folders: tuple[Path, ...], request: Request) -> Log:
    """Return the items of one reader as a `Log`, secrets in settings and notes redacted.

    Raises:
        DoctorError: the file of aliases next to it cannot be read or is invalid (exit code 2).
    """
    named = columns.aliases_of(path, request.project_aliases, request.aliases)
    log = Log(path=path, container=container, folders=folders, named=named)
    factors: dict[str, str] = {}
    for item in items:
        if isinstance(item, Table):
            table, sentences = without_factors(item, named)
            factors |= sentences
            log.header = max(log.header, tuple(table.columns), key=len)
            log.tables.append(_lean(table, named))
        elif isinstance(item, EmbeddedConfig) and SECTION in item.values:
            log.sections.append((item.source.line or 0, str(item.values[SECTION])))
        elif isinstance(item, EmbeddedConfig):
            redacted = {key: configuration.redact(key, value) for key, value in item.values.items()}
            log.embedded.append(Found(values=redacted, source=item.source))
        elif isinstance(item, ScriptPlaces):
            log.places |= {name: _redacted(place) for name, place in item.places.items()}
        else:
            log.notes.append(replace(item, text=configuration.redact_text(item.text)))
    source = SourceRef(path=path)
    log.notes += [Note(text=text, source=source) for text in factors.values()]
    log.tables, closing = summaries_apart(log.tables)
    if closing:
        text = "a summary of the whole training is no record, and is not used"
        log.notes.insert(0, Note(text=text, source=SourceRef(path=path, line=closing[0])))
    log.tables, settings = settings_apart(of_several(log.tables))
    for line, values in settings:
        redacted = {key: configuration.redact(key, value) for key, value in values.items()}
        log.embedded.append(Found(values=redacted, source=SourceRef(path=path, line=line)))
    if are_monitor_tables(log.tables):
        log.tables = with_steps(log.tables)
    return log


def _redacted(place: CodePlace) -> CodePlace:
    text, also = configuration.redact_text(place.text), tuple(map(_redacted, place.also))
    return replace(place, text=text, also=also)


def _lean(table: Table, named: Iterable[str]) -> Table:
    """Return a long table without the columns that no trainer uses as a metric; their names stay in `others`.

    Short tables stay as they are: loading the names of all trainers takes longer than reading them.
    """
    if len(table.records) < LONG or numbered_columns(table.columns):
        return table
    wanted = detection.meaningful(frozenset(table.columns)).union(RUN_KEYS, STEP_KEYS, named)
    # Copies, because columns are rows of one matrix, which would stay in memory as a whole.
    kept = {key: values.copy() for key, values in table.columns.items() if key in wanted}
    return replace(table, columns=kept, others=frozenset(table.columns.keys() - kept.keys()))


def settings_apart(tables: list[Table]) -> tuple[list[Table], list[tuple[int, Mapping[str, ConfigValue]]]]:
    """Return tables without printed configurations, and these with their lines.

    A configuration is a single record whose columns are settings and occur in no other record.
    """
    written = Counter(frozenset(table.columns) for table in tables)
    once = [t for t in tables if len(t.records) == 1 == written[frozenset(t.columns)]]
    found = [table for table in once if is_settings(table.columns)] if len(once) < len(tables) else []
    kept = [table for table in tables if table not in found]
    return kept, [(int(table.lines[0]), _cells(table)) for table in found]


def summaries_apart(tables: Sequence[Table]) -> tuple[list[Table], list[int]]:
    """Return tables without the closing summary of a training, and its lines."""
    closing = [t for t in tables if any(key.rpartition("/")[2] == _SUMMARY for key in (*t.columns, *t.texts))]
    kept = [table for table in tables if not any(table is one for one in closing)]
    return kept, [int(line) for table in closing for line in table.lines]


def _cells(table: Table) -> dict[str, ConfigValue]:
    """Return the single record of a table, whole numbers as integers."""
    numbers = {key: int(n) if (n := float(column[0])) % 1 == 0 else n for key, column in table.columns.items()}
    return numbers | {key: cells[0][1] for key, cells in table.texts.items() if cells}


@lru_cache(maxsize=1 << 12)
def name_and_power(key: str) -> tuple[str, int]:
    """Return a column name without the factor in it, and the power of 10 to multiply its numbers by."""
    has_one = "1" in key  # as all factors of `_TIMES` and `_SMALL` have
    if has_one and (found := _TIMES.search(key)):
        power = -(round(log10(int(found[1].lower().replace("k", "000")))) if found[1] else int(found[2] or found[3]))
    elif has_one and (found := _SMALL.search(key)):
        power = -int(found[1])
    else:
        found, power = next(((m, power) for sign, power in _PREFIXES if (m := sign.search(key))), (None, 0))
    bare = key if found is None else (key[: found.start()] + key[found.end() :]).strip(" _")
    return (bare, power) if any(map(str.isalpha, bare)) else (key, 0)


def without_factors(table: Table, named: Collection[str]) -> tuple[Table, dict[str, str]]:
    """Return a table in which the factors in column names are applied, and a sentence on each by its former name.

    A column with an alias in `named` keeps its name. Two columns that would get the same name stay as they are.
    """
    keys = {key: name_and_power(key) for key in table.columns}
    bare = Counter(name for name, _ in keys.values())
    keys = {key: (key, 0) if bare[name] > 1 else (name, power) for key, (name, power) in keys.items()}
    if not any(power for _, power in keys.values()):
        return table, {}
    names = {key: key if key in named else name for key, (name, _) in keys.items()}
    columns = {names[key]: _shifted(values, keys[key][1]) for key, values in table.columns.items()}
    decimals = {names[key]: max(0, places - keys[key][1]) for key, places in table.decimals.items()}
    sentences = {
        key: f"'{key}' is read as '{name}': its name says that it is written times 1e{-power}"
        for key, (name, power) in keys.items()
        if power
    }
    return replace(table, columns=columns, decimals=decimals), sentences


def _shifted(values: FloatArray, power: int) -> FloatArray:
    # By division, because 0.001 is not exact in binary: 26.4 / 1000 is 0.0264, 26.4 * 0.001 is not.
    return values / 10.0**-power if power < 0 else values * 10.0**power


def are_monitor_tables(tables: Sequence[Table]) -> bool:
    """Return whether every table has the columns of a Monitor file."""
    return bool(tables) and all(table.columns.keys() >= COLUMNS for table in tables)


def merged_monitors(parts: Sequence[tuple[Table, float]]) -> list[Table]:
    """Return the tables of several Monitor files, each with its Unix start, with episodes in order of their ends."""
    ended = np.concatenate([table.columns[SECONDS] + start for table, start in parts])
    return _numbered([table for table, _ in parts], np.argsort(ended, kind="stable"))


def with_steps(tables: Sequence[Table]) -> list[Table]:
    """Return the tables of a Monitor file with the number of environment steps at the end of each episode."""
    records = np.concatenate([table.records for table in tables])
    return _numbered(tables, np.argsort(records, kind="stable"))


def monitor_start(settings: Iterable[Mapping[str, object]]) -> float:
    """Return the Unix time at which the clock of a Monitor file starts; 0 if its first line does not contain it."""
    found = (values.get(START) for values in settings)
    return next((float(value) for value in found if isinstance(value, int | float)), 0.0)


def _numbered(tables: Sequence[Table], order: IntArray) -> list[Table]:
    """Return tables with their records renumbered by an order of all rows, and with environment steps."""
    lengths: FloatArray = np.concatenate([table.columns[LENGTH] for table in tables])
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    steps = np.empty(len(order))
    steps[order] = np.cumsum(np.nan_to_num(lengths[order]))
    ends = np.cumsum([len(table.records) for table in tables])[:-1]
    rows = zip(tables, np.split(places, ends), np.split(steps, ends), strict=True)
    return [_at(table, place, step) for table, place, step in rows]


def _at(table: Table, places: IntArray, steps: FloatArray) -> Table:
    """Return a table with new record numbers, in their order, and steps."""
    order = np.argsort(places, kind="stable")
    moved = rows_of_table(table, order, places[order])
    return replace(moved, columns={**moved.columns, STEP: steps[order]})
