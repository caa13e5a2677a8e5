"""Read runs that are folders with one file per metric: MLflow's file store and the CSV files of TorchRL's CSVLogger.

Sources: mlflow/store/tracking/file_store.py, torchrl/record/loggers/csv.py.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.opening import plain_file
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.model.run import SourceRef
from ppo_doctor.readers.notes import Ledger
from ppo_doctor.readers.points import Points, within
from ppo_doctor.readers.source import Source
from ppo_doctor.readers.table import EmbeddedConfig, Table
from ppo_doctor.readers.values import value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ppo_doctor.model.run import FloatArray
    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.readers import Item

    Parser = Callable[[bytes, bool], tuple[float, float, int]]

#: Largest number of metric or parameter files read of one run, and longest parameter in bytes (MLflow allows 8,000).
MOST_FILES = 20_000
_LONGEST_PARAMETER = 1 << 16
_SUFFIX = ".csv"
#: Number of CSV files of a folder whose first line is checked, and bytes read of each.
_LOOKED_AT, _HEAD = 3, 256
_LINE = lazy_pattern(rb"\s*\d+(?:\.0*)?\s*,\s*(?:[-+]?[\d.]+(?:[eE][-+]?\d+)?|[-+]?inf|nan)\s*(?:\r?\n|\Z)")
#: Columns of the rows of a metric: time in s, value, step, tag, line.
_TIME, _VALUE, _STEP, _TAG, _LINE_NUMBER = range(5)


def is_mlflow_run(path: Path) -> bool:
    """Return whether a folder is a run of MLflow's file store, which may have lost its meta.yaml."""
    return (path / "metrics").is_dir() and (
        (path / "meta.yaml").is_file() or all((path / name).is_dir() for name in ("params", "tags"))
    )


def is_csv_run(files: Iterable[Path]) -> bool:
    """Return whether files are the metrics of a run: several CSV files that begin with a step and a value."""
    tables = [file for file in files if file.suffix == _SUFFIX]
    return len(tables) > 1 and all(map(_begins_with_step, sorted(tables)[:_LOOKED_AT]))


def _begins_with_step(file: Path) -> bool:
    try:
        with plain_file(file) as stream:
            return _LINE.match(stream.read(_HEAD)) is not None
    except (OSError, DoctorError):
        return False


def read_mlflow_run(path: Path) -> Iterator[Item]:
    """Yield the metrics of an MLflow run by step, in the order of their timestamps, then its parameters and notes.

    The line of a record is that of its first value in the file of the metric.
    """
    notes = Ledger(str(path))
    yield from _tables(path, _files_below(path / "metrics", notes), _mlflow_point, "“time value step”", _TIME, notes)
    settings = _parameters(path / "params", notes)
    if settings:
        yield EmbeddedConfig(values=settings, source=SourceRef(path=str(path / "params")))
    yield from notes.notes()


def read_csv_run(path: Path) -> Iterator[Item]:
    """Yield the metrics of a folder of CSV files by step, then notes.

    Each line is “step,value”. Metrics with slashes in their names are in subfolders. The line of a record is that of
    its first value in the file of the metric.
    """
    notes = Ledger(str(path))
    files = [(key.removesuffix(_SUFFIX), file) for key, file in _files_below(path, notes) if key.endswith(_SUFFIX)]
    yield from _tables(path, files, _csv_point, "“step,value”", _LINE_NUMBER, notes)
    yield from notes.notes()


def _tables(
    path: Path, files: list[tuple[str, Path]], point: Parser, form: str, order: int, notes: Ledger
) -> Iterator[Table]:
    """Yield the values of all metrics, sorted by the column `order` of their rows."""
    points = Points(str(path), notes)
    parts = [part for key, file in files if len(part := _metric(file, points.tag(key), point, form, notes))]
    if parts:
        rows = np.concatenate(parts)
        rows = rows[np.argsort(rows[:, order], kind="stable")]
        points.add(rows[:, _TAG], rows[:, _STEP], rows[:, _VALUE], rows[:, _TIME], rows[:, _LINE_NUMBER])
        yield from points.tables()


def _files_below(folder: Path, notes: Ledger) -> list[tuple[str, Path]]:
    """Return (path relative to the folder, file) of the files below a folder, sorted, at most MOST_FILES."""
    files: list[tuple[str, Path]] = []
    for parent, _, names in os.walk(folder):  # follows no links to folders
        for name in names:
            file = Path(parent) / name
            files.append((file.relative_to(folder).as_posix(), file))
    if len(files) > MOST_FILES:
        notes.tell("many", f"{folder.name}: only the first {MOST_FILES:,} of {len(files):,} files are read")
    return sorted(files)[:MOST_FILES]


def _metric(file: Path, tag: int, point: Parser, form: str, notes: Ledger) -> FloatArray:
    """Return the rows of a metric, of shape [rows, 5]; a last line without a newline is skipped as cut off."""
    rows: list[tuple[float, float, int, int, int]] = []
    has_steps = False
    source = Source(file)
    source.notes = notes
    with notes.about(str(file)):
        try:
            for number, line in source.numbered():
                if not line.strip():
                    continue
                if not source.ended:
                    notes.skip("the last line is cut off", number)
                    continue
                has_steps = has_steps or len(line.split()) > 2
                try:
                    rows.append((*point(line, has_steps), tag, number))
                except (ValueError, OverflowError):
                    notes.skip(f"not {form}", number)
        except DoctorError as error:
            notes.skip("a metric cannot be read", detail=error.message)
        if not rows:
            notes.tell("no value", "no value of this metric can be read", kind="lost")
    return np.array(rows, dtype=np.float64).reshape(-1, 5)


def _mlflow_point(line: bytes, has_steps: bool) -> tuple[float, float, int]:
    """Return time in s, value and step of a line.

    Old versions of MLflow write no step; new ones add a data set and its digest. `has_steps` says that this file has
    steps, so that a line without one was cut off.

    Raises:
        ValueError: the line has another form.
    """
    cells = line.split()
    if len(cells) == 2 and not has_steps:
        cells = [*cells, b"0"]
    if len(cells) not in (3, 5) or (len(cells) == 5 and _is_number(cells[3])):
        raise ValueError("another number of cells")
    return float(cells[0]) / 1000, float(cells[1]), within(int(cells[2]))


def _csv_point(line: bytes, _: bool) -> tuple[float, float, int]:
    step, _mark, value = line.partition(b",")
    return 0.0, float(value), within(int(float(step)))


def _is_number(cell: bytes) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _parameters(folder: Path, notes: Ledger) -> dict[str, ConfigValue]:
    """Return the parameters of an MLflow run, one file each; unreadable ones become notes."""
    settings: dict[str, ConfigValue] = {}
    for key, file in _files_below(folder, notes):
        try:
            with plain_file(file) as stream:
                text = stream.read(_LONGEST_PARAMETER)
        except (OSError, DoctorError) as error:
            why = error.message if isinstance(error, DoctorError) else error.strerror
            notes.tell("parameters", f"the parameter {key} cannot be read: {why}")
            continue
        if b"\0" in text:
            notes.tell("parameters", f"the parameter {key} is lost: its file holds NULs", kind="lost")
        else:
            settings[key] = value_of(text.decode("utf-8", "replace"))
    return settings
