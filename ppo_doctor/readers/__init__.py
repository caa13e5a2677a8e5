"""Readers turn bytes into columns. A reader knows one container; only those of console text know metric names.

Importing this package costs the standard library only; the module of a container is imported on demand.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.run import Note
from ppo_doctor.readers.sniffing import sniff
from ppo_doctor.readers.source import Source
from ppo_doctor.readers.table import EmbeddedConfig, ScriptPlaces, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["READERS", "Item", "holds_records", "read", "read_source", "sniff"]

#: Least records of a log: fewer are a table of results, or an example line.
FEWEST = 3

#: What a source holds. A reader yields tables, configurations and lines of a script, and adds its notes to those of
#: the source.
Item = Table | EmbeddedConfig | ScriptPlaces | Note

#: Container → "module:function", resolved only when chosen.
READERS: Mapping[str, str] = MappingProxyType(
    {
        "jsonl": "ppo_doctor.readers.jsonl:read",
        "json": "ppo_doctor.readers.json_log:read",
        "csv": "ppo_doctor.readers.csv_log:read",
        "console": "ppo_doctor.readers.console:read",
        "stream-log": "ppo_doctor.readers.notebook:read_streams",
        "notebook": "ppo_doctor.readers.notebook:read",
        "tfevents": "ppo_doctor.readers.tfevents:read",
        "wandb": "ppo_doctor.readers.wandb_log:read",
        "sqlite": "ppo_doctor.readers.sqlite_log:read",
        "npz-evaluations": "ppo_doctor.readers.sb3_files:read_evaluations",
        "sb3-zip": "ppo_doctor.readers.sb3_files:read_model",
        "parquet": "ppo_doctor.readers.parquet_log:read",
    }
)


def read(path: str | Path, *, growing: bool = False) -> tuple[str, Iterator[Item]]:
    """Return the name of the container of a file ("-" is stdin), and what it holds as a stream.

    A last line without an end is ignored if the file is `growing`: its writer may not have finished it.

    Raises DoctorError (exit code 3) for a file that is missing, empty, unreadable or of no known kind. The stream
    raises it for a file that becomes unreadable half way.
    """
    return read_source(Source(path, growing=growing))


def read_source(source: Source) -> tuple[str, Iterator[Item]]:
    """Return the name of the container of a source, and what it holds as a stream, as `read` does."""
    head = source.head()
    if not head.strip(b" \t\r\n\0"):
        raise DoctorError(f"{source.path} is empty", hint="did the run crash before its first update?")
    container = sniff(head, source.path)
    if container is None:
        hint = "give the file that the trainer logs its metrics to"
        if source.blank:
            hint = f"its first {source.blank:,} bytes are NULs or blank, as a crash leaves them; copy it again"
        raise DoctorError(f"{source.path} is of no known kind: neither JSON, CSV nor console text", hint=hint)
    return container, items_in(source, container)


def items_in(source: Source, container: str) -> Iterator[Item]:
    """Yield what the reader of a container finds in a source, then the notes on what could not be read."""
    module, _, function = READERS[container].partition(":")
    yield from getattr(import_module(module), function)(source)
    yield from source.notes.notes()


def holds_records(path: Path) -> bool:
    """Return whether a file holds at least three records of one layout."""
    try:
        _, stream = read(path)
        return any(isinstance(item, Table) and len(item.records) >= FEWEST for item in stream)
    except DoctorError:
        return False
