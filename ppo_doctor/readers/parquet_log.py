"""Parquet: exported histories, one row per step, and tables of completions, many rows per step.

Reading needs pyarrow, an optional dependency of 170 MB.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.readers.pack import Packer
from ppo_doctor.readers.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ppo_doctor.model.run import BoolArray, FloatArray, IntArray
    from ppo_doctor.readers import Item
    from ppo_doctor.readers.source import Source

#: Largest file read from stdin or a compressed one, and rows read at a time.
LARGEST = 512 << 20
ROWS = 1 << 16
_STEP = "step"
#: Columns that count rows or steps, which are not summarized.
_INDEX = (_STEP, "_step", "epoch")
#: Names of the summaries of many rows of a step.
_SUMMARIES = ("mean", "std", "min", "max")


def read(source: Source) -> Iterator[Item]:
    """Yield the rows of a table of numbers, or, if many rows share a step, their mean, spread and range per step.

    Raises DoctorError if pyarrow is missing, or if the file is damaged: nothing can be read without its footer.
    """
    stream, _ = source.file(LARGEST)
    with stream:
        arrow, file = open_parquet(stream, source.path)
        columns = [field.name for field in file.schema_arrow if _is_number(arrow, field.type)]
        try:
            if _STEP in columns and _many_per_step(file):
                yield from _by_step(file, columns, source)
            else:
                yield from _by_row(file, columns, source)
        except (arrow.ArrowException, OSError) as error:
            source.notes.skip("the file is damaged from here on", detail=str(error).partition("\n")[0])


def open_parquet(file: object, path: object, **options: Any) -> tuple[Any, Any]:  # noqa: ANN401 - pyarrow has no types
    """Return the module pyarrow and the `pyarrow.parquet.ParquetFile` of a file; `path` is its name in messages.

    Raises DoctorError if pyarrow is missing or the file is damaged.
    """
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise DoctorError(
            f"{path} is Parquet, which takes pyarrow", hint='pip install "ppo-doctor[parquet]"'
        ) from error
    try:
        return arrow, parquet.ParquetFile(file, **options)
    except (arrow.ArrowException, OSError) as error:
        raise damaged(path, error) from error


def damaged(path: object, error: Exception) -> DoctorError:
    """Return the error for a file that pyarrow cannot read."""
    first_line, _, _ = str(error).partition("\n")
    return DoctorError(f"{path} is cut off or damaged: {first_line}")


def _is_number(arrow: Any, kind: Any) -> bool:  # noqa: ANN401 - pyarrow has no types
    types = arrow.types
    return bool(types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind))


def _many_per_step(file: Any) -> bool:  # noqa: ANN401 - pyarrow has no types
    first = next(file.iter_batches(batch_size=ROWS, columns=[_STEP]), None)
    if first is None:
        return False
    steps, _ = _numbers(first.column(0))
    return bool(len(steps) >= 2 * len(np.unique(steps)))


def _numbers(column: Any) -> tuple[FloatArray, BoolArray]:  # noqa: ANN401 - pyarrow has no types
    """Return the values of a column, and a mask of those that are present: a missing value is no NaN."""
    valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
    kind = import_module("pyarrow").float64()
    values: NDArray[np.float64] = column.cast(kind, safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)
    return np.array(values, dtype=np.float64), valid


def _by_row(file: Any, columns: list[str], source: Source) -> Iterator[Table]:  # noqa: ANN401 - pyarrow has no types
    packer = Packer(source.path, source.notes)
    for batch in file.iter_batches(batch_size=ROWS, columns=columns):
        cells = [_numbers(column) for column in batch.columns]
        for row in range(batch.num_rows):
            held = {key: float(values[row]) for key, (values, valid) in zip(columns, cells, strict=True) if valid[row]}
            packer.add(packer.ordinal + 1, held)
        yield from packer.flush()


def _by_step(file: Any, columns: list[str], source: Source) -> Iterator[Table]:  # noqa: ANN401 - pyarrow has no types
    batches = file.iter_batches(batch_size=ROWS, columns=columns)
    parts = [[_numbers(column) for column in batch.columns] for batch in batches]
    cells = {
        key: (np.concatenate([part[i][0] for part in parts]), np.concatenate([part[i][1] for part in parts]))
        for i, key in enumerate(columns)
    }
    steps, first, place, counts = np.unique(cells[_STEP][0], return_index=True, return_inverse=True, return_counts=True)
    summaries = {_STEP: steps, "rows": counts.astype(np.float64)}
    for key, (values, valid) in cells.items():
        if key not in _INDEX and _everywhere(place[valid], len(steps)):
            summaries |= {f"{key}/{name}": part for name, part in _summary(values[valid], place[valid], len(steps))}
    text = f"{len(place):,} rows at {len(steps):,} steps are read as their mean, std, min and max per step"
    source.notes.tell("summaries", text)
    yield Table(path=source.path, records=np.arange(len(steps)), lines=first + 1, columns=summaries)


def _everywhere(place: IntArray, steps: int) -> bool:
    return len(np.unique(place)) == steps


def _summary(values: FloatArray, place: IntArray, steps: int) -> Iterator[tuple[str, FloatArray]]:
    """Yield mean, std, min and max of the values at each step; `place` is the index of the step of each value."""
    count = np.bincount(place, minlength=steps)
    with np.errstate(all="ignore"):  # infinities stay what they are
        mean = np.bincount(place, values, minlength=steps) / count
        spread = np.sqrt(np.bincount(place, (values - mean[place]) ** 2, minlength=steps) / count)
    order = np.argsort(place, kind="stable")
    starts = np.append(0, np.cumsum(count)[:-1])
    least, most = (ufunc.reduceat(values[order], starts) for ufunc in (np.minimum, np.maximum))
    yield from zip(_SUMMARIES, (mean, spread, least, most), strict=True)
