"""The files of a source, read: those that are parts of one log are joined, those that hold several are told apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor import frameworks, monitors, readers
from ppo_doctor.builder import RunBuilder
from ppo_doctor.errors import DoctorError
from ppo_doctor.joining import joined, linked
from ppo_doctor.model import Note, SourceRef
from ppo_doctor.reading import Content, collect, parts_of, told_apart
from ppo_doctor.sources.naming import role_of

if TYPE_CHECKING:
    from ppo_doctor.reading import Request
    from ppo_doctor.sources import RunSource
    from ppo_doctor.table import Table


def contents_of(source: RunSource, request: Request) -> tuple[list[Content], dict[str, DoctorError]]:
    """Return what the files of a source hold, parts of one log joined, and why some of them cannot be read."""
    contents: list[Content] = []
    failed: dict[str, DoctorError] = {}
    for chain in _chains([*source.logs, *source.perhaps]):
        links: list[Content] = []
        for path in chain:
            try:
                links.append(_read(path, source.folders, request))
            except DoctorError as error:
                failed[path] = error
        if len(links) > 1 and all(monitors.is_monitor(link.builder.tables) for link in links):
            contents.append(_woven(links))
            continue
        contents += [content for link in linked(links, together=source.together) for content in told_apart(link)]
    if request.framework is None:
        contents = [_without_other_methods(content) for content in contents]
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
    rows = np.flatnonzero((table.lines >= first) & (table.lines <= last))
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


def _read(path: str, folders: tuple[Path, ...], request: Request) -> Content:
    if path != "-" and Path(path).is_dir():
        from ppo_doctor.readers import mlflow_store, scalar_files

        if mlflow_store.is_run(Path(path)):
            return collect(path, "mlflow", mlflow_store.read_folder(Path(path)), folders, request)
        return collect(path, "csv", scalar_files.read_folder(Path(path)), folders, request)
    container, stream = readers.read(path)
    return collect(path, container, stream, folders, request)
