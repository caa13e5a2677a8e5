"""Pages of text into which somebody copied a log: read where a folder holds nothing better."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from ppo_doctor.readers import holds_records
from ppo_doctor.readers.sniffing import holds_lines_of_numbers
from ppo_doctor.sources.naming import NOT_LOGS, of_a_project
from ppo_doctor.sources.walking import Folder


def with_records(pages: Sequence[Path]) -> list[Path]:
    """Return the pages that hold records."""
    return [page for page in pages if holds_records(page)]


def instead(files: Sequence[Path], pages: Sequence[Path]) -> list[Path]:
    """Return the pages that hold records where none of some files does, the files else."""
    if not pages or any(map(holds_records, files)):
        return list(files)
    return with_records(pages) or list(files)


def of_a_run(folder: Folder) -> list[Path]:
    """Return the pages in a folder or below it that are not those of a project."""
    return [page for below in folder.walk() for page in below.of("page") if not of_a_project(page)]


def of_projects(folder: Folder) -> list[Path]:
    """Return the pages in a folder or below it that are those of a project."""
    return [page for below in folder.walk() for page in below.of("page") if of_a_project(page)]


def of_numbers(tree: Folder, most: int) -> list[Path]:
    """Return the files of a suffix that says nothing, in a folder without any log, that are lines of numbers.

    So many are opened at most.
    """
    files = (path for below in tree.walk() for path in below.of("junk") if not NOT_LOGS.fullmatch(path.name))
    return [path for path in islice(files, most) if holds_lines_of_numbers(path)]
