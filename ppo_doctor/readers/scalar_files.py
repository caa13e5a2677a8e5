"""Folders of headerless CSV files, one for each metric and named after it, as TorchRL's CSVLogger writes them.

A line is “step,value”; a metric whose name holds slashes lies in folders of that name (torchrl/record/loggers/csv.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.errors import DoctorError
from ppo_doctor.opening import plain_file
from ppo_doctor.readers.mlflow_store import files_below, whole_lines, without_values
from ppo_doctor.readers.notes import Ledger
from ppo_doctor.readers.points import Points, within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ppo_doctor.model import FloatArray
    from ppo_doctor.readers import Item

SUFFIX = ".csv"
#: Files of a folder whose first line is looked at, and bytes of it.
_LOOKED_AT, _HEAD = 3, 256
_LINE = re.compile(rb"\s*\d+(?:\.0*)?\s*,\s*(?:[-+]?[\d.]+(?:[eE][-+]?\d+)?|[-+]?inf|nan)\s*(?:\r?\n|\Z)")


def is_store(files: Iterable[Path]) -> bool:
    """Tell whether files are the metrics of a run: several CSV files that begin with a step and a value."""
    tables = [file for file in files if file.suffix == SUFFIX]
    return len(tables) > 1 and all(map(_begins, sorted(tables)[:_LOOKED_AT]))


def _begins(file: Path) -> bool:
    try:
        with plain_file(file) as stream:
            return _LINE.match(stream.read(_HEAD)) is not None
    except (OSError, DoctorError):
        return False


def read_folder(path: Path) -> Iterator[Item]:
    """Yield the metrics of a folder by step; a record's line is that of its first value in the file of that metric."""
    notes = Ledger(str(path))
    points = Points(str(path), notes)
    named = [(key.removesuffix(SUFFIX), file) for key, file in files_below(path, notes) if key.endswith(SUFFIX)]
    parts = [part for key, file in named if len(part := _metric(file, points.tag(key), notes))]
    if parts:
        rows = np.concatenate(parts)
        rows = rows[np.argsort(rows[:, 3], kind="stable")]  # metrics side by side, as they were written
        tags, lines, steps = (rows[:, i].astype(np.int64) for i in (2, 3, 0))
        points.add(tags, steps, rows[:, 1], np.zeros(len(rows)), lines)
        yield from points.tables()
    yield from notes.notes()


def _metric(file: Path, tag: int, notes: Ledger) -> FloatArray:
    """Return the rows of a metric as (step, value, tag, line); shape [rows, 4]."""
    rows: list[tuple[float, float, int, int]] = []
    for number, line in whole_lines(file, notes):
        step, _, value = line.partition(b",")
        try:
            rows.append((within(int(float(step))), float(value), tag, number))
        except (ValueError, OverflowError):
            notes.skip("not “step,value”", number)
    if not rows:
        without_values(file, notes)
    return np.array(rows, dtype=np.float64).reshape(-1, 4)
