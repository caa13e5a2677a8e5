"""The files of a source, read: those that are parts of one log are joined, those that hold several are told apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor import monitors, readers
from ppo_doctor.errors import DoctorError
from ppo_doctor.joining import joined, linked
from ppo_doctor.reading import Content, collect, told_apart
from ppo_doctor.sources.naming import role_of

if TYPE_CHECKING:
    from ppo_doctor.reading import Request
    from ppo_doctor.sources import RunSource


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
