"""A run folder as a tree of files by role: bounded in depth and number, safe against links that lead in circles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ppo_doctor.sources.naming import Role, is_read, role_of

#: Folders below this depth are not looked into, nor more folders than this, nor more entries of one of them; of more
#: names than are listed nobody knows which are logs.
DEEPEST = 12
MOST_FOLDERS = 5_000
MOST_ENTRIES = 20_000
MOST_LISTED = 400_000
#: Folders that never hold a run's log: caches, environments, what trackers keep of images and models.
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "artifacts", "media"})
#: Hidden folders that hold logs all the same (Sample Factory).
NOT_HIDDEN = frozenset({".summary"})


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class Folder:
    """One folder: its files by role in the order of their names, and the folders in it."""

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
    """Reads folders once; `told` says afterwards what was not looked at."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._seen: set[str] = set()
        self._missed = 0

    def read(self, path: Path, depth: int = 0) -> Folder:
        """Return a folder with everything below it that may matter."""
        folder = Folder(path=path)
        self._seen.add(os.path.realpath(path))
        below: list[Path] = []
        for entry in self._scanned(path):
            if _is_folder(entry):
                below.append(path / entry.name)
            elif _is_file(entry):
                folder.files.setdefault(role_of(path / entry.name), []).append(path / entry.name)
        # Links last: of a folder and a link to it the folder itself is kept (W&B's latest-run).
        for child in sorted(below, key=lambda p: (p.is_symlink(), p.name)):
            if os.path.realpath(child) in self._seen:
                continue
            if not os.access(child, os.R_OK | os.X_OK):  # who asked for what lies in it would be refused
                self.told.append(f"{child} is closed to this user and was not looked into")
            elif depth >= DEEPEST:
                self.told.append(f"{child} lies too deep and was not looked into")
            elif len(self._seen) >= MOST_FOLDERS:
                self._missed += 1
            else:
                folder.folders.append(self.read(child, depth + 1))
        if not depth and self._missed:
            self.told.append(f"{self._missed} folders below {path} were not looked into, for there are too many")
        return folder

    def _scanned(self, path: Path) -> list[os.DirEntry[str]]:
        entries: list[os.DirEntry[str]] = []
        try:
            with os.scandir(path) as scan:
                entries = list(islice(scan, MOST_LISTED))
        except OSError as error:
            self.told.append(f"{path} cannot be listed: {error.strerror}")
        if len(entries) > MOST_ENTRIES:
            self.told.append(f"{path} holds more than {MOST_ENTRIES} files; the rest was not looked at")
            entries.sort(key=lambda entry: (not _is_folder(entry) and not is_read(Path(entry.name)), entry.name))
        return sorted(entries[:MOST_ENTRIES], key=lambda entry: entry.name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    if entry.name in SKIPPED or (entry.name.startswith(".") and entry.name not in NOT_HIDDEN):
        return False
    return _safely(entry.is_dir)


def _is_file(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith(".") and _safely(entry.is_file)


def _safely(test: object) -> bool:
    """Tell what a test of an entry tells, and False for a link that leads in a circle."""
    try:
        return bool(test()) if callable(test) else False
    except OSError:
        return False
