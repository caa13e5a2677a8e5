"""The unit of work of a fleet: the files of one source, what tells whether they changed, and those below folders."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ppo_doctor import __version__
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.report.escape import prose
from ppo_doctor.runs.discover import sources_if_any
from ppo_doctor.runs.layouts import RunSource, role_of
from ppo_doctor.runs.walking import Walker

#: Files of one source that are looked at for a change; more are as good as changed when one of these is.
MOST_FILES = 20_000


@dataclass(frozen=True, slots=True)
class Unit:
    """A source to judge: its key, its files, when the latest was changed (seconds, UTC), and their size in bytes.

    `fingerprint` is another one as soon as a file is added, removed or written, or this package has another version.
    """

    key: str
    #: None of what is behind a URL, of which only names are known before it is fetched
    source: RunSource | None
    fingerprint: str
    modified: float
    size: int
    #: the folder behind a URL, and the paths below it of the files to fetch; of a run of a service, its URL
    url: str = ""
    files: tuple[str, ...] = ()


class StorageError(DoctorError):
    """A storage or a service that fails, perhaps for a while."""


@dataclass(frozen=True, slots=True)
class Found:
    """The files of a run: a key that tells nothing of their place, a name for people, and the files."""

    key: str
    name: str
    unit: Unit


def unit_of(source: RunSource) -> Unit:
    """Return the unit of the files of a source."""
    key = os.path.abspath(source.home or source.log)  # noqa: PTH100 - as it is named, links not followed
    digest = hashlib.sha256(f"{__version__}\0{key}".encode("utf-8", "surrogateescape"))
    modified, size = 0.0, 0
    for path in sorted(set(_files(source))):
        try:
            found = path.stat()
        except OSError:  # deleted since it was listed; reading it fails with a message
            continue
        text = f"\0{os.path.abspath(path)}\0{found.st_size}\0{found.st_mtime_ns}"  # noqa: PTH100
        digest.update(text.encode("utf-8", "surrogateescape"))
        modified, size = max(modified, found.st_mtime), size + found.st_size
    return Unit(key, source, digest.hexdigest()[:32], modified, size)


def found_below(places: Mapping[Path, str], notes: list[str]) -> Iterator[Found]:
    """Yield the runs below folders; sentences on what was not looked into are added to `notes`."""
    for folder, name in places.items():
        walker = Walker()
        names: Counter[str] = Counter()
        for source in sources_if_any(folder, walker):
            unit = unit_of(source)
            key = hashlib.sha256(unit.key.encode("utf-8", "surrogateescape")).hexdigest()[:16]
            shown = _name(source, folder, name)
            names[shown] += 1
            if names[shown] > 1:
                shown = f"{shown}/{Path(source.log).name}"
            yield Found(key, prose(shown, 300), unit)
        notes += [prose(text, 300) for text in walker.skipped]


def _name(source: RunSource, place: Path, name: str) -> str:
    """Return the name of a run: its folder below the place, after the name of that, as TensorBoard has it."""
    folder = Path(source.log)
    relative = os.path.relpath(folder if folder.is_dir() else folder.parent, place)
    return name if name and relative == "." else f"{name}/{relative}" if name else relative


def _files(source: RunSource) -> Iterator[Path]:
    """Yield the files of a source that are read, and the configurations in its folders."""
    for path in (*map(Path, (*source.logs, *source.perhaps)), *source.tensors, *source.config):
        yield from _below(path) if path.is_dir() else (path,)
    for folder in source.folders:
        yield from (each for each in _listed(folder) if role_of(each) == "config")


def _below(folder: Path) -> Iterable[Path]:
    """Return the files below the folder of a run with a file per metric."""
    found = [Path(place) / name for place, _, names in os.walk(folder) for name in names]
    return sorted(found)[:MOST_FILES]


def _listed(folder: Path) -> Iterable[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return ()
