"""Read folders: their files by role, within limits, and each once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ppo_doctor.model.opening import is_outside
from ppo_doctor.runs.layouts import Role, is_read, role_of

#: Limits of what is searched: depth of folders, their number, entries of one folder that are considered, and entries
#: that are listed.
DEEPEST = 12
MOST_FOLDERS = 5_000
MOST_ENTRIES = 20_000
MOST_LISTED = 400_000
#: Folders that never hold logs: caches, environments, images and models of trackers.
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "artifacts", "media"})
#: Hidden folders that hold logs (Sample Factory).
NOT_HIDDEN = frozenset({".summary"})


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class Folder:
    """A folder: its files by role, in order of their names, and the folders in it."""

    path: Path
    files: dict[Role, list[Path]] = field(default_factory=dict)
    folders: list[Folder] = field(default_factory=list)

    def of(self, *roles: Role) -> list[Path]:
        """Return the files of some roles."""
        return [path for role in roles for path in self.files.get(role, ())]

    def walk(self) -> Iterator[Folder]:
        """Yield this folder and all below it."""
        yield self
        for folder in self.folders:
            yield from folder.walk()


class Walker:
    """Reads folders, each once; `skipped` lists what was not searched, and why."""

    def __init__(self, most_folders: int | None = None, most_entries: int | None = None) -> None:
        self.skipped: list[str] = []
        self._most_folders = most_folders or MOST_FOLDERS
        self._most_entries = most_entries or MOST_ENTRIES
        self._seen: set[str] = set()
        self._full = False

    def read(self, path: Path, depth: int = 0) -> Folder:
        """Return a folder with the files and folders below it."""
        folder, below = self.listed(path)
        return self.completed(folder, below, depth)

    def completed(self, folder: Folder, below: Sequence[Path], depth: int) -> Folder:
        """Return a folder that was listed, with the files and folders below it."""
        folder.folders += [self.read(child, depth + 1) for child in self.entered(below, depth)]
        return folder

    def listed(self, path: Path) -> tuple[Folder, list[Path]]:
        """Return a folder with its files alone, and the folders in it."""
        folder = Folder(path=path)
        self._seen.add(os.path.realpath(path))
        below: list[Path] = []
        for entry in self._scanned(path):
            if _is_folder(entry):
                below.append(path / entry.name)
            elif not entry.name.startswith(".") and _safely(entry.is_file):
                if is_outside(entry):
                    self.skipped.append(f"{path / entry.name} leads out of the allowed folders and was not read")
                    continue
                folder.files.setdefault(role_of(path / entry.name), []).append(path / entry.name)
        return folder, below

    def entered(self, below: Sequence[Path], depth: int) -> Iterator[Path]:
        """Yield the folders to look into, each once, and take note of the others; `depth` is that of their parent."""
        # Links come last, so that of a folder and a link to it the folder is kept (W&B's latest-run).
        for child in sorted(below, key=lambda p: (p.is_symlink(), p.name)):
            if os.path.realpath(child) in self._seen:
                continue
            if is_outside(child):
                self.skipped.append(f"{child} leads out of the allowed folders and was not looked into")
            elif not os.access(child, os.R_OK | os.X_OK):  # opening its files would fail
                self.skipped.append(f"{child} is closed to this user and was not looked into")
            elif depth >= DEEPEST:
                self.skipped.append(f"{child} lies too deep and was not looked into")
            elif len(self._seen) < self._most_folders:
                yield child
            elif not self._full:
                self._full = True
                self.skipped.append(f"{child} and further folders were not looked into, for there are too many")

    def _scanned(self, path: Path) -> list[os.DirEntry[str]]:
        entries: list[os.DirEntry[str]] = []
        try:
            with os.scandir(path) as scan:
                entries = list(islice(scan, max(MOST_LISTED, self._most_entries)))
        except OSError as error:
            self.skipped.append(f"{path} cannot be listed: {error.strerror}")
        if len(entries) > self._most_entries:
            self.skipped.append(f"{path} holds more than {self._most_entries} files; the rest was not looked at")
            entries.sort(key=lambda entry: (not _is_folder(entry) and not is_read(Path(entry.name)), entry.name))
        return sorted(entries[: self._most_entries], key=lambda entry: entry.name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return is_searched(entry.name) and _safely(entry.is_dir)


def is_searched(name: str) -> bool:
    """Return whether a folder of a name may hold logs: it is neither a cache nor hidden."""
    return name not in SKIPPED and (not name.startswith(".") or name in NOT_HIDDEN)


def _safely(test: Callable[[], bool]) -> bool:
    """Return the result of a test of an entry; False if it fails, as for a link that leads in a circle."""
    try:
        return test()
    except OSError:
        return False
