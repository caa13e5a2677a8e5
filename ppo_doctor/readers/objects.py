"""Read what a Python session holds: frames, arrays by name, records, and runs of W&B and TensorBoard.

An object is known by what it can do; none of the libraries that make such objects is imported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.run import SourceRef
from ppo_doctor.readers.json_log import read_values
from ppo_doctor.readers.points import Points, written
from ppo_doctor.readers.source import Source
from ppo_doctor.readers.table import METHOD_KEYS, RUN_KEYS, EmbeddedConfig, Table
from ppo_doctor.readers.values import DEEPEST, config_values
from ppo_doctor.readers.wandb_log import OWN, drop_media
from ppo_doctor.trainers.phrases import CLOCKS

if TYPE_CHECKING:
    from ppo_doctor.model.run import BoolArray
    from ppo_doctor.readers import Item
    from ppo_doctor.readers.notes import Ledger

#: Rows that are Python objects at a time.
ROWS = 16_384
#: Numbers of a column from which on it is known in which records it is logged, and the most ends of columns looked at.
FEWEST, MOST_ENDS = 3, 64
#: Characters of the id of a run.
LONGEST_ID = 64
_GIVEN = "a path, a URL, a DataFrame of pandas or polars, a dict of columns, a list of dicts, a run of W&B, or"


class Frame(Protocol):
    """A DataFrame of pandas or polars."""

    @property
    def columns(self) -> Any:  # noqa: ANN401 - an index or a list
        """Return the names of the columns."""


class History(Protocol):
    """A run of W&B's public API."""

    @property
    def config(self) -> Any:  # noqa: ANN401 - a mapping
        """Return the configuration."""

    def scan_history(self) -> Any:  # noqa: ANN401 - an iterator of records
        """Return every record."""


class LiveRun(Protocol):
    """A run that W&B writes in this process."""

    @property
    def dir(self) -> str:
        """Return the folder of its files."""

    @property
    def id(self) -> Any:  # noqa: ANN401 - a text
        """Return its name in the path of its file."""


class Accumulator(Protocol):
    """An EventAccumulator of TensorBoard."""

    def Tags(self) -> Any:  # noqa: ANN401, N802 - a name of TensorBoard's
        """Return the tags by kind."""

    def Scalars(self, tag: str, /) -> Any:  # noqa: ANN401, N802 - a name of TensorBoard's
        """Return the events of a tag."""


#: The cells of a row by column, None for a row that is no record.
Record = dict[str, Any] | None
#: What can be analyzed.
Given = str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]] | Frame | History | LiveRun | Accumulator


@frozen(eq=False)
class Held:
    """The name of an object in notes and reports, what it is, and the items in it."""

    name: str
    container: str
    items: Iterator[Item]


def find(given: object) -> str | Held:
    """Return the items of an object, or the path of the file that it stands for.

    Raises:
        DoctorError: the object is of no kind that can be read, or cannot be read (exit code 2).
    """
    if isinstance(given, Mapping):
        return _held("dict", "dict", lambda source: read_values(_columns(given, source.notes), source))
    if _can(given, "iloc", "isna", "columns"):
        return _held("DataFrame", "DataFrame", lambda source: read_values(_pandas_rows(given, source.notes), source))
    if _can(given, "iter_slices", "get_columns", "columns"):
        return _held("DataFrame", "DataFrame", lambda source: read_values(_polars_rows(given, source.notes), source))
    if _can(given, "scan_history", "config"):
        name = re.sub(r"[^\w-]", "", str(getattr(given, "id", "")))[:LONGEST_ID]
        return _held(f"W&B run {name}", "wandb", lambda source: _wandb(given, source))
    if _package(given) == "wandb" and _can(given, "log", "dir"):
        return _file_of_live_run(given)
    if _can(given, "Tags", "Scalars"):
        return _file_of_accumulator(given) or _held("EventAccumulator", "tfevents", lambda s: _tensorboard(given, s))
    if isinstance(given, list | tuple) and all(isinstance(record, Mapping) for record in given):
        return _held("list", "list of records", lambda source: read_values(map(_record, given), source))
    raise DoctorError(
        f"an object of type {type(given).__qualname__} cannot be analyzed",
        hint=f"give {_GIVEN} an EventAccumulator of TensorBoard",
        code=ExitCode.USAGE,
    )


def _can(given: object, *names: str) -> bool:
    return not isinstance(given, type) and all(hasattr(given, name) for name in names)


def _package(given: object) -> str:
    return type(given).__module__.partition(".")[0]


def _held(name: str, container: str, read: Any) -> Held:  # noqa: ANN401 - makes items of a source
    source = Source(f"<{name}>", BytesIO())
    return Held(name=source.path, container=container, items=_told(read(source), source.notes))


def _told(items: Iterable[Item], notes: Ledger) -> Iterator[Item]:
    """Yield items, and then the notes, also on columns that hold nothing but text."""
    texts: dict[str, int] = {}
    numbers: set[str] = {*RUN_KEYS, *METHOD_KEYS}
    for item in items:
        if isinstance(item, Table):
            numbers |= item.columns.keys()
            for key, cells in item.texts.items():
                texts.setdefault(key, int(item.lines[np.searchsorted(item.records, cells[0][0])]))
        yield item
    for key, first in texts.items():
        if key not in numbers:
            notes.tell_once("they hold text", key, f"{key} holds text, which is no measurement", first)
    yield from notes.notes()


# Cells


def _plain(cell: Any, depth: int = 0) -> Any:  # noqa: ANN401 - a cell is anything
    """Return a cell as what JSON has: a number, a text, None, a dict, or a list."""
    if cell is None or cell.__class__ in (float, int, str, bool):
        return cell
    if isinstance(cell, float | int | str):
        return next(kind(cell) for kind in (float, int, str) if isinstance(cell, kind))
    if isinstance(cell, Mapping):
        return {} if depth > DEEPEST else {str(key): _plain(value, depth + 1) for key, value in cell.items()}
    if isinstance(cell, list | tuple):
        return [_plain(value, depth + 1) for value in cell[:ROWS]] if depth <= DEEPEST else []
    kind = type(cell).__name__
    if cell is np.ma.masked or kind in ("NAType", "NaTType"):
        return None
    try:
        return _value(cell, kind)
    except Exception:  # noqa: BLE001 - its own code fails, as that of an array whose memory was given back: no value
        return kind


def _value(cell: Any, kind: str) -> Any:  # noqa: ANN401 - a cell is anything
    """Return the value of a scalar of some library, the items of none of its arrays, and else the name of its type."""
    if isinstance(cell, np.floating | Decimal):
        return float(cell)
    if isinstance(shape := getattr(cell, "shape", None), tuple) and hasattr(cell, "item"):
        held = cell.item() if math.prod(shape) == 1 else []
        return kind if type(held) is type(cell) else _plain(held, DEEPEST)
    return str(cell.isoformat()) if hasattr(cell, "isoformat") else kind


def _record(given: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): _plain(value) for key, value in given.items()}


def _name(column: object) -> str:
    """Return the name of a column as a text; the levels of a name are joined as nested keys are."""
    return "/".join(str(part) for part in column if part != "") if isinstance(column, tuple) else str(column)


def _rows(names: Sequence[str], parts: Iterable[Sequence[Iterable[Any]]], notes: Ledger) -> Iterator[Record]:
    """Yield the records of parts of a frame, each of which has the cells of every column."""
    header, row = tuple(names), 0
    for name in sorted({name for name in names if names.count(name) > 1}):
        notes.tell_once("they are names of several columns", name, f"{name} names several columns; the last is read")
    for part in parts:
        for row, cells in enumerate(zip(*part, strict=True), row + 1):  # noqa: B020 - counted over all parts
            if cells == header:
                notes.tell("header", "the header is repeated here, as when a run is resumed", row)
            yield None if cells == header else dict(zip(names, cells, strict=True))


# Frames


def _polars_rows(frame: Any, notes: Ledger) -> Iterator[Record]:  # noqa: ANN401 - polars is not imported
    parts = ([map(_plain, column.to_list()) for column in part.get_columns()] for part in frame.iter_slices(ROWS))
    return _rows(list(frame.columns), parts, notes)


def _pandas_rows(frame: Any, notes: Ledger) -> Iterator[Record]:  # noqa: ANN401 - pandas is not imported
    """Yield the rows of a frame, without missing cells; a named index is a column of its name."""
    columns = [(_name(column), frame.iloc[:, at].array) for at, column in enumerate(frame.columns)]
    columns = [*_index(frame.index, [name for name, _ in columns], notes), *columns]
    names = [name for name, _ in columns]
    missing = np.array([np.asarray(cells.isna(), dtype=np.bool_) for _, cells in columns])
    numeric = [cells.dtype.kind in "biuf" and not _counts(name) and name not in RUN_KEYS for name, cells in columns]
    since = _went_nan(missing, numeric) if missing.size else [0] * len(names)
    for name, first in zip(names, since, strict=True):
        if first < len(frame):
            text = f"{name} holds NaN from here on, and is read so: other columns of these records hold numbers"
            notes.tell_once("they turn to NaN", name, text, first + 1)

    def cells_of(at: int, start: int) -> list[Any]:
        part = columns[at][1][start : start + ROWS]
        # Arrays of pandas make a list by way of an object for each number.
        cells = list(map(_plain, (np.asarray(part) if part.dtype.kind in "biuf" else part).tolist()))
        for row in np.flatnonzero(missing[at, start : start + ROWS]).tolist():
            cells[row] = math.nan if start + row >= since[at] else None
        return cells

    starts = range(0, len(frame), ROWS) if columns else ()
    return _rows(names, ([cells_of(at, start) for at in range(len(columns))] for start in starts), notes)


def _index(index: Any, names: Sequence[str], notes: Ledger) -> list[tuple[str, Any]]:  # noqa: ANN401 - of pandas
    """Return the levels of an index that are columns: those with a name, or steps where no column counts any."""
    levels = [(str(name), index.get_level_values(at).array) for at, name in enumerate(index.names) if name is not None]
    if levels or any(map(_counts, names)) or index.nlevels > 1 or index.dtype.kind not in "iuf":
        return [(name, cells) for name, cells in levels if name not in names]
    if not (index.is_unique and index.is_monotonic_increasing) or (np.asarray(index) == np.arange(len(index))).all():
        return []
    notes.tell("index", "no column counts steps; the index is read as the step")
    return [("step", index.array)]


def _counts(name: str) -> bool:
    letters = "".join(filter(str.isalpha, name.rpartition("/")[2])).lower()
    return letters in CLOCKS or letters in ("runtime", "timestamp", "time", "walltime", "totalflos")


def _went_nan(missing: BoolArray, measured: Sequence[bool]) -> list[int]:
    """Return for each column the row from which on its missing cells are NaN, the number of rows where there is none.

    A frame of pandas has one sign for a missing cell and for NaN. The last cells of a column are NaN if another one,
    logged in the same records before, still has numbers in some of them; only those `measured` count, and not steps,
    times or seeds. `missing` has shape [columns, rows].
    """
    rows = missing.shape[1]
    ends = [rows - int(np.argmin(column[::-1])) if not column.all() else 0 for column in missing]
    since = [rows] * len(ends)
    for end in sorted(set(ends) - {0, rows}, reverse=True)[:MOST_ENDS]:
        before = [column.tobytes() for column in np.packbits(missing[:, :end], axis=1)]
        alive = {before[at] for at in range(len(ends)) if ends[at] > end and measured[at]}
        for at in range(len(ends)):
            if ends[at] == end and measured[at] and before[at] in alive and np.count_nonzero(~missing[at]) >= FEWEST:
                since[at] = end
    return since


# Arrays by name


def _columns(given: Mapping[Any, Any], notes: Ledger) -> dict[str, Any]:
    """Return columns by name as lists, nested names joined by a slash; what is no column is a setting."""
    flat: dict[str, Any] = {}
    stack: list[tuple[str, Mapping[Any, Any], int]] = [("", given, 0)]
    while stack:
        prefix, node, depth = stack.pop()
        for key, value in node.items():
            name = f"{prefix}{key}"
            if isinstance(value, Mapping) and depth < DEEPEST and any(map(_is_column, value.values())):
                stack.append((f"{name}/", value, depth + 1))
            else:
                flat[name] = _listed(name, value, notes)
    return flat


def _is_column(value: object) -> bool:
    shape = getattr(value, "shape", None)
    return (isinstance(shape, tuple) and bool(shape)) or isinstance(value, list | tuple | range | Mapping)


def _listed(name: str, value: Any, notes: Ledger) -> Any:  # noqa: ANN401 - a value is anything
    """Return a column as a list of cells, anything else as a cell."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape and hasattr(value, "tolist"):
        if math.prod(shape) != shape[0]:
            text = f"{name} is an array of shape {tuple(shape)} and is not read: a column has one number for a record"
            notes.tell_once("they are arrays of more dimensions", name, text)
            return None
        return [_plain(cell) for cell in (value if len(shape) == 1 else value.reshape(-1)).tolist()]
    if isinstance(value, list | tuple | range):
        return [_plain(cell) for cell in value]
    return _plain(value)


# Runs of trackers


def _wandb(run: Any, source: Source) -> Iterator[Item]:  # noqa: ANN401 - wandb is not imported
    """Yield the history and the configuration of a run of W&B's public API, as they stand in the file of the run."""

    def rows() -> Iterator[dict[str, Any]]:
        for number, given in enumerate(run.scan_history(), 1):
            record = dict(sorted(_record(given).items()))
            drop_media(record, number, source.notes)
            yield record

    try:
        yield from read_values(rows(), source)
        config = dict(run.config)
    except DoctorError:
        raise
    except Exception as error:
        message = f"{source.path}: its history cannot be read: {type(error).__name__}: {error}"
        raise DoctorError(message, hint="see whether the run and the network are there") from error
    if config := _plain({key: value for key, value in config.items() if key != OWN}):
        yield EmbeddedConfig(values=config_values(config), source=SourceRef(path=source.path))


def _file_of_live_run(run: Any) -> str:  # noqa: ANN401 - wandb is not imported
    file = Path(str(run.dir)).parent / f"run-{run.id}.wandb"
    if not file.is_file():
        hint = "once it has ended, give wandb.Api().run(PATH), or its folder"
        raise DoctorError(f"the W&B run {run.id} has no file on this machine", hint=hint)
    return str(file)


def _file_of_accumulator(given: Any) -> str:  # noqa: ANN401 - TensorBoard is not imported
    """Return the file or folder that an accumulator reads, which holds more than it keeps; "" if it is not at hand."""
    path = getattr(given, "path", None)
    if not isinstance(path, str) or not path or not Path(path).exists():
        return ""
    inner = Path(path).iterdir() if Path(path).is_dir() else ()
    return path if not any(each.is_dir() for each in inner) else ""


def _tensorboard(given: Any, source: Source) -> Iterator[Item]:  # noqa: ANN401 - TensorBoard is not imported
    tags = given.Tags().get("scalars") or []
    if not tags:
        raise DoctorError("the EventAccumulator holds no scalars", hint="call its method Reload() first")
    points = Points(source.path, source.notes)
    for tag in tags:
        events = given.Scalars(tag)
        values = written(np.array([event.value for event in events], dtype=np.float32))
        steps, walls = ([getattr(event, name) for event in events] for name in ("step", "wall_time"))
        points.add(np.full(len(events), points.tag(tag)), steps, values, walls, range(1, len(events) + 1))
    yield from points.tables()
