"""Read the files of a source, join the parts of one log, and separate several runs in one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor import readers
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.run import Note, SourceRef
from ppo_doctor.readers.methods import PPO, method_of
from ppo_doctor.readers.table import METHOD_KEYS
from ppo_doctor.runs import splitting as monitors
from ppo_doctor.runs.builder import RunBuilder
from ppo_doctor.runs.folders import role_of
from ppo_doctor.runs.joining import contents_in, joined, linked
from ppo_doctor.runs.reading import Content, collect, parts_of
from ppo_doctor.trainers import detection as frameworks

if TYPE_CHECKING:
    from ppo_doctor.readers.table import Table
    from ppo_doctor.runs.layouts import RunSource
    from ppo_doctor.runs.reading import Request


def read_file(path: str, folders: tuple[Path, ...], request: Request, *, growing: bool = False) -> Content:
    """Read one file or store; of text that is `growing`, a last line without an end is left out.

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


#: How a file is read: its path, further places of its configuration, and the request.
ReadFile = Callable[[str, tuple[Path, ...], "Request"], Content]


def contents_of(
    source: RunSource, request: Request, read: ReadFile = read_file
) -> tuple[list[Content], dict[str, DoctorError]]:
    """Return what the files of a source hold, parts of one log joined, and why some of them cannot be read."""
    contents: list[Content] = []
    failed: dict[str, DoctorError] = {}
    for chain in _chains([*source.logs, *source.perhaps]):
        links: list[Content] = []
        for path in chain:
            try:
                links.append(read(path, source.folders, request))
            except DoctorError as error:
                failed[path] = error
        if len(links) > 1 and all(monitors.is_monitor(link.builder.tables) for link in links):
            contents.append(_woven(links))
            continue
        contents += [part for link in linked(links, together=source.together) for part in contents_in(link, request)]
    if request.framework is None:
        contents = [_without_other_methods(_of_the_family(content)) for content in contents]
    return joined(contents, request.framework, together=source.together), failed


def _woven(links: Sequence[Content]) -> Content:
    """Return the Monitor files of one folder as one content."""
    starts = [(link, monitors.start_of(found.values for found in link.embedded)) for link in links]
    tables = monitors.woven([(table, start) for link, start in starts for table in link.builder.tables])
    first, *others = links
    for link in others:
        first.extend(link)
    first.builder.tables = tables
    return first


def _of_the_family(content: Content) -> Content:
    """Return a content without the records that columns or headings say are of a method outside the PPO family.

    Each such method is a note. A heading tells only where others are of the family, and of records that hold no metric
    of PPO alone. A content of nothing else stays as it is.
    """
    told = [_methods(table, content.sections) for table in content.builder.tables]
    names = {name for of in told for name in of}
    others = sorted(name for name in names if name is not None and name != PPO)
    if not others or len(others) == len(names) or (PPO not in names and content.sections):
        return content
    notes = list(content.builder.notes)
    tables = list(content.builder.tables)
    for other in others:
        parts = [_rows(table, [name == other for name in of]) for table, of in zip(tables, told, strict=True)]
        held = [part for part in parts if len(part.records)]
        if _holds_ppo(held):
            continue
        first, last = min(int(t.lines[0]) for t in held), max(int(t.lines[-1]) for t in held)
        count = sum(len(part.records) for part in held)
        text = f"{other}: {count} records of lines {first} to {last} left out, for they are not of the PPO family"
        notes.append(Note(text=text, source=SourceRef(path=content.path, line=first), kind="said"))
        tables = [_rows(table, [name != other for name in of]) for table, of in zip(tables, told, strict=True)]
        told = [[name for name in of if name != other] for of in told]
    kept = [table for table in tables if len(table.records)]
    return replace(content, builder=RunBuilder(path=content.path, tables=kept, notes=notes))


def _methods(table: Table, sections: Sequence[tuple[int, str]]) -> list[str | None]:
    """Return the method of each record of a table: as a column of it says, else as the last heading above it does."""
    begins = np.array([line for line, _ in sections], dtype=np.int64)
    at = np.searchsorted(begins, table.lines, side="right") - 1
    headed = [sections[place][1] if place >= 0 else None for place in at.tolist()]
    written = {record: text for key in METHOD_KEYS for record, text in table.texts.get(key, ())}
    said = (method_of(written[record]) if record in written else None for record in table.records.tolist())
    return [of or above for of, above in zip(said, headed, strict=True)]


def _holds_ppo(tables: Sequence[Table]) -> bool:
    """Tell whether records hold a metric that no method outside the PPO family logs."""
    keys = {key for table in tables for key in table.columns}
    profile = frameworks.detect(keys)
    return profile is not None and profile.ppo_family and frameworks.speaks_of_ppo(profile, keys)


def _without_other_methods(content: Content) -> Content:
    """Return a content without the sections of methods outside the PPO family, each of them a note.

    One that holds nothing else stays as it is, for `runs_in` to refuse.
    """
    profile = frameworks.detect(content.builder.keys)
    if profile is not None and not profile.ppo_family:  # which knows no clocks
        profile = frameworks.as_written(frameworks.CANONICAL, content.builder.keys)
    parts = parts_of(content, profile) if profile is not None else []
    shown = [frameworks.detect({key for table in part for key in table.columns}) for part in parts]
    others = [each is not None and not each.ppo_family for each in shown]
    if len(parts) < 2 or not any(others) or all(others):
        return content
    tables: list[Table] = []
    notes = list(content.builder.notes)
    for part, found, other in zip(parts, shown, others, strict=True):
        first, last = min(int(t.lines[0]) for t in part), max(int(t.lines[-1]) for t in part)
        if other and found is not None:
            text = f"not judged: lines {first} to {last} are of {found.title}, not of the PPO family"
            notes.append(Note(text=text, source=SourceRef(path=content.path, line=first), kind="said"))
        else:
            within = (_between(table, first, last) for table in content.builder.tables)
            tables += [table for table in within if len(table.records)]
    return replace(content, builder=RunBuilder(path=content.path, tables=tables, notes=notes))


def _between(table: Table, first: int, last: int) -> Table:
    """Return the records of a table that stand between two lines."""
    return _rows(table, ((table.lines >= first) & (table.lines <= last)).tolist())


def _rows(table: Table, chosen: Sequence[bool]) -> Table:
    """Return some records of a table."""
    rows = np.flatnonzero(chosen)
    kept = set(table.records[rows].tolist())
    return replace(
        table,
        records=table.records[rows],
        lines=table.lines[rows],
        columns={key: values[rows] for key, values in table.columns.items()},
        texts={key: tuple(cell for cell in cells if cell[0] in kept) for key, cells in table.texts.items()},
    )


def _chains(paths: Sequence[str]) -> Iterator[list[str]]:
    """Yield the files that may be parts of one log: event files, tables and monitors of a folder, one W&B run's."""
    events = [Path(path) for path in paths if "tfevents" in Path(path).name]
    if events:
        from ppo_doctor.readers.tfevents import order

        yield from ([str(path) for path in chain] for chain in order(events))
    chains: dict[object, list[str]] = {}
    for path in paths:
        file = Path(path)
        if file not in events:
            alike = {".wandb": file.name, ".parquet": (file.parent, file.suffix)}.get(file.suffix, file)
            key = (file.parent, "episodes") if role_of(file) == "episodes" else alike
            chains.setdefault(key, []).append(path)
    yield from map(sorted, chains.values())
