"""Runs in MLflow's file store: one file per metric, one per parameter (mlflow/store/tracking/file_store.py)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.errors import DoctorError
from ppo_doctor.model import SourceRef
from ppo_doctor.opening import plain_file
from ppo_doctor.readers.event_settings import value_of
from ppo_doctor.readers.notes import Ledger
from ppo_doctor.readers.points import Points, within
from ppo_doctor.readers.source import Source
from ppo_doctor.table import EmbeddedConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppo_doctor.model import ConfigValue, FloatArray
    from ppo_doctor.readers import Item

#: Metrics and parameters read of one run, and the longest parameter in bytes (MLflow's own limit is 8,000).
MOST_FILES = 20_000
_LONGEST_PARAMETER = 1 << 16


def is_run(path: Path) -> bool:
    """Tell whether a folder is a run of a file store, by what it is made with; its meta.yaml may be lost."""
    return (path / "metrics").is_dir() and (
        (path / "meta.yaml").is_file() or all((path / name).is_dir() for name in ("params", "tags"))
    )


def read_folder(path: Path) -> Iterator[Item]:
    """Yield the metrics of a run folder by step, in the order of their timestamps, then its parameters and notes.

    A record's line is that of its first value in the file of that metric.
    """
    notes = Ledger(str(path))
    points = Points(str(path), notes)
    parts = [_metric(file, points.tag(key), notes) for key, file in files_below(path / "metrics", notes)]
    parts = [part for part in parts if len(part)]
    if parts:
        rows = np.concatenate(parts)
        rows = rows[np.argsort(rows[:, 0], kind="stable")]  # files are per metric; the times tell what came when
        tags, lines, steps = (rows[:, i].astype(np.int64) for i in (3, 4, 2))
        points.add(tags, steps, rows[:, 1], rows[:, 0] / 1000, lines)
        yield from points.tables()
    settings = _parameters(path / "params", notes)
    if settings:
        yield EmbeddedConfig(values=settings, source=SourceRef(path=str(path / "params")))
    yield from notes.notes()


def files_below(folder: Path, notes: Ledger) -> list[tuple[str, Path]]:
    """Return the files below a folder by their name, which may hold slashes."""
    found: list[tuple[str, Path]] = []
    for parent, _, names in os.walk(folder):  # follows no links to folders
        for name in names:
            file = Path(parent) / name
            found.append((file.relative_to(folder).as_posix(), file))
    if len(found) > MOST_FILES:
        notes.tell("many", f"{folder.name}: only the first {MOST_FILES:,} of {len(found):,} files are read")
    return sorted(found)[:MOST_FILES]


def whole_lines(file: Path, notes: Ledger) -> Iterator[tuple[int, bytes]]:
    """Yield (number, line) of a metric's file, which notes name meanwhile; a last line without an end is torn."""
    source = Source(file)
    source.notes = notes
    with notes.about(str(file)):
        try:
            for number, line in source.numbered():
                if line.strip() and not source.ended:
                    notes.skip("the last line is cut off", number)
                elif line.strip():
                    yield number, line
        except DoctorError as error:
            notes.skip("a metric cannot be read", detail=error.message)


def without_values(file: Path, notes: Ledger) -> None:
    """Tell of a metric that is there, and all of it lost."""
    with notes.about(str(file)):
        notes.tell("no value", "no value of this metric can be read", kind="lost")


def _metric(file: Path, tag: int, notes: Ledger) -> FloatArray:
    """Return the rows of a metric as (time in ms, value, step, tag, line); shape [rows, 5]."""
    rows: list[tuple[float, float, float, int, int]] = []
    stepped = False
    for number, line in whole_lines(file, notes):
        cells = line.split()
        stepped = stepped or len(cells) > 2
        try:
            rows.append((*_point(cells, stepped=stepped), tag, number))
        except ValueError:
            notes.skip("not “time value step”", number)
    if not rows:
        without_values(file, notes)
    return np.array(rows, dtype=np.float64).reshape(-1, 5)


def _point(cells: list[bytes], *, stepped: bool) -> tuple[float, float, int]:
    """Return time, value and step of a line; raise ValueError for what is none, as half a line before a whole one is.

    Old versions write no step at all, new ones a data set and its digest behind it.
    """
    if len(cells) == 2 and not stepped:
        cells = [*cells, b"0"]
    if len(cells) not in (3, 5) or (len(cells) == 5 and _is_number(cells[3])):
        raise ValueError("another number of cells")
    return float(cells[0]), float(cells[1]), within(int(cells[2]))


def _is_number(cell: bytes) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _parameters(folder: Path, notes: Ledger) -> dict[str, ConfigValue]:
    settings: dict[str, ConfigValue] = {}
    for key, file in files_below(folder, notes):
        try:
            with plain_file(file) as stream:
                text = stream.read(_LONGEST_PARAMETER)
            if b"\0" in text:
                notes.tell("parameters", f"the parameter {key} is lost: its file holds NULs", kind="lost")
            else:
                settings[key] = value_of(text.decode("utf-8", "replace"))
        except OSError as error:
            notes.tell("parameters", f"the parameter {key} cannot be read: {error.strerror}")
        except DoctorError as error:
            notes.tell("parameters", f"the parameter {key} cannot be read: {error.message}")
    return settings
