"""Find and fetch runs behind a URL: of a storage that fsspec opens (s3://, gs://, file://), of W&B and of MLflow."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from glob import has_magic
from importlib import import_module
from inspect import signature
from itertools import chain, groupby, islice
from os.path import commonprefix
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from ppo_doctor import __version__
from ppo_doctor.diagnosis.analyze import only_of, runs_of
from ppo_doctor.fleets.folders import temporary
from ppo_doctor.fleets.unit import StorageError, Unit
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.runs.discover import MOST_LOOKED_INTO, sources_if_any
from ppo_doctor.runs.layouts import (
    Role,
    RunSource,
    holds_others,
    own_of,
    regrouped,
    role_of,
    runs_in,
)
from ppo_doctor.runs.walking import DEEPEST, Folder, Walker, is_searched

if TYPE_CHECKING:
    from ppo_doctor.model.request import Request
    from ppo_doctor.model.run import Run

#: Pauses between tries of one access to a storage, in seconds.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
#: Most bytes of one run that are fetched.
MOST_BYTES = 4 << 30
#: Runs of one folder up to which they are fetched together, because contents decide how files belong to runs.
TOGETHER = 8
#: Runs that are fetched together, where they are judged one after the other.
MOST_OPENED = 200
#: Protocol → the module that reads a service which keeps runs.
SERVICES = {
    "wandb": "ppo_doctor.fleets.wandb_runs",
    **dict.fromkeys(("mlflow", "mlflow+http", "mlflow+https"), "ppo_doctor.fleets.mlflow_runs"),
}
#: Protocol → the extra that brings its client.
EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
#: Runs whose files are listed at once, about.
MOST_PARTS = 1000
#: Files that a run is read from, apart from its last saved model; checkpoints are not fetched.
READ: tuple[Role, ...] = ("log", "events", "wandb", "database", "text", "console", "table", "config")
#: Where paths of a listing are put, lest a local file of the same name is taken for one of them.
_NOWHERE = Path(os.devnull)
#: A URL with a name and a password before its host; GitHub's have an owner and a repository there.
_PASSWORD = lazy_pattern(r"(?!github:)[^:/]+://[^/@]*:[^/@]+@", re.IGNORECASE)
#: Parts of a path that are no names.
_NO_NAMES = frozenset({"", ".", ".."})
_T = TypeVar("_T")
#: A folder, and the files of a unit that is named after it.
_Group = tuple[str, list[str]]


@dataclass(frozen=True, slots=True)
class Stored:
    """A file of a storage: bytes, when it was written (seconds, UTC), and what changes with its contents."""

    size: int
    modified: float
    stamp: str


@dataclass(frozen=True, slots=True)
class _Place:
    """A folder or a file of a storage; `base` is that folder, or the one that the file is in."""

    url: str
    storage: Any
    path: str
    base: str


def units_at(url: str) -> Iterator[Unit]:
    """Yield the units below a URL, or below each that a pattern names; each run of a service is one.

    Raises:
        DoctorError: the client of the storage is not installed, it cannot be listed, or no run is there (exit code 2
            or 3).
    """
    service = _service(url)
    if service is not None:
        yield from service.units_at(url)
        return
    storage, root = _storage(url)
    root = root.rstrip("/")
    places = [
        _Place(url, storage, path, path if _listed(url, partial(storage.isdir, path)) else path.rpartition("/")[0])
        for path in (_listed(url, partial(storage.glob, root)) if has_magic(root) else [root])
    ]
    found = False
    for place in places:
        for tree, files in _trees(place):
            for folder, paths in _below(tree, []):
                found = True
                yield _unit(place, folder, paths, files)
    if not found:
        yield from _of_no_layout(url, places)


def _of_no_layout(url: str, places: Sequence[_Place]) -> Iterator[Unit]:
    """Yield the files of places where no run was found by its layout, if they are few; their contents decide."""
    found = []
    for place in places:
        files = _stored_in(place, place.path)
        if 0 < len(files) <= MOST_LOOKED_INTO:
            found.append(_unit(place, "", sorted(files), files))
    if not found:
        exists = any(_listed(url, partial(place.storage.exists, place.path)) for place in places)
        raise DoctorError(f"{url}: {'no run there' if exists else 'no such file or folder'}")
    yield from found


def _trees(place: _Place) -> Iterator[tuple[Folder, dict[str, Stored]]]:
    """Yield the listing of a place piece by piece, as folders and by path."""
    whole = iter([_stored_in(place, place.path)]) if place.path != place.base else _listings(place, place.path, {})
    for files in whole:
        yield _tree(files), files


def _stored_in(place: _Place, part: str, **only: str) -> dict[str, Stored]:
    """Return the files below a part of a place, by their paths below the place, if a folder can hold these.

    A storage of objects knows names such as `a/../../b`, which would lead out of the folder that they are fetched to.
    """
    found = _listed(place.url, partial(place.storage.find, part, detail=True, **only))
    held = ((path[len(place.base) :].lstrip("/"), each) for path, each in found.items())
    return {path: _stored(each) for path, each in held if not _NO_NAMES & set(path.split("/"))}


def _listings(place: _Place, path: str, above: Mapping[str, Stored]) -> Iterator[dict[str, Stored]]:
    """Yield the files below a folder with the configurations above them, of a bounded number of runs at a time.

    How many runs a folder holds is estimated by the first one in it. Where folders hold few, a storage that finds by
    the beginning of a name is asked for many at once, which takes the fewest requests.
    """
    level = _level(place, path)
    if level is None:
        yield {**above, **_stored_in(place, path)}
        return
    names, above = level[0], {**above, **level[1]}
    most = MOST_PARTS // _estimated(place, _joined(path, names[0]))
    finds_by_name = "prefix" in signature(getattr(place.storage, "_find", place.storage.find)).parameters
    for group in _groups(names, most if finds_by_name else 1):
        if len(group) > 1:
            start, inside = len(path) - len(place.base), set(group)
            found = _stored_in(place, path, prefix=commonprefix(group))
            kept = {p: each for p, each in found.items() if p[start:].lstrip("/").partition("/")[0] in inside}
            yield {**above, **kept}
        elif most:
            yield {**above, **_stored_in(place, _joined(path, group[0]))}
        else:
            yield from _listings(place, _joined(path, group[0]), above)


def _level(place: _Place, path: str) -> tuple[list[str], dict[str, Stored]] | None:
    """Return the names of the folders in a folder, and its configurations; None if these are not runs of their own."""
    listed = _listed(place.url, partial(place.storage.ls, path, detail=True))
    held = {Path(each["name"]).name: each for each in listed if each["name"].strip("/") != path.strip("/")}
    tree = _tree(name for name, each in held.items() if each["type"] != "directory")
    folders = (name for name, each in held.items() if each["type"] == "directory")
    tree.folders = [Folder(path=_NOWHERE / name) for name in sorted(folders) if is_searched(name)]
    below = [child.path for child in tree.folders]
    if own_of(tree, ()) is not None or _is_named_as_by_mlflow(tree) or not holds_others(tree, below):
        return None
    start = path[len(place.base) :].lstrip("/")
    return [each.name for each in below], {_joined(start, p.name): _stored(held[p.name]) for p in tree.of("config")}


def _estimated(place: _Place, path: str) -> int:
    """Return how many runs a folder holds if all folders in it are as the first one."""
    runs = 1
    for _ in range(DEEPEST):
        level = _level(place, path)
        if level is None or runs > MOST_PARTS:
            break
        runs, path = runs * len(level[0]), _joined(path, level[0][0])
    return runs


def _groups(names: list[str], most: int) -> Iterator[list[str]]:
    """Yield sorted names in groups, if possible of at most so many, whose common beginning no other name has."""
    if len(names) <= max(most, 1):
        yield names
        return
    at = len(commonprefix([names[0], names[-1]]))
    for _, group in groupby(names, lambda name: name[at : at + 1]):
        yield from _groups(list(group), most)


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _listed(url: str, action: Callable[[], _T]) -> _T:
    try:
        return _tried(action)
    except Exception as error:
        hint = "check the URL and the credentials"
        raise DoctorError(f"{url} cannot be listed: {_reason(error)}", hint=hint) from error


def _unit(place: _Place, folder: str, paths: Sequence[str], files: Mapping[str, Stored]) -> Unit:
    protocol = place.url.partition("://")[0]
    home = f"{protocol}://{place.base.lstrip('/') if protocol == 'memory' else place.base}"
    key = f"{home}/{folder}".rstrip("/")
    digest = hashlib.sha256(f"{__version__}\0{key}".encode("utf-8", "surrogateescape"))
    for path in paths:
        digest.update(f"\0{path}\0{files[path].size}\0{files[path].stamp}".encode("utf-8", "surrogateescape"))
    held = [files[path] for path in paths]
    return Unit(
        key=key,
        source=None,
        fingerprint=digest.hexdigest()[:32],
        modified=max(each.modified for each in held),
        size=sum(each.size for each in held),
        url=home,
        files=tuple(paths),
    )


@contextmanager
def opened(url: str) -> Iterator[list[RunSource]]:
    """Fetch all that is behind a URL into temporary folders; yield its sources.

    Raises:
        DoctorError: as `units_at` and `fetched`; or there are too many runs or bytes, or no run (exit code 3).
    """
    hint = "ppo-doctor fleet judges any number of runs; or name one of them"
    size, sources = 0, []
    with ExitStack() as stack:
        for number, unit in enumerate(units_at(url)):
            size += unit.size
            if number >= MOST_OPENED or size > MOST_BYTES:
                text = f"more than {MOST_OPENED} runs" if number >= MOST_OPENED else f"more than {_mib(MOST_BYTES)}"
                raise DoctorError(f"{url}: {text} are not fetched at once", hint=hint)
            sources += stack.enter_context(fetched(unit))
        if not sources:
            raise DoctorError(f"{url}: no run there")
        yield sources


def read_run(path: str, request: Request) -> Run:
    """Read the run that is behind a URL.

    Raises:
        DoctorError: as `opened`; or there are several (exit code 2).
    """
    with opened(path) as sources:
        return only_of(path, [run for source in sources for run in runs_of(source, request)], "name one of them")


@contextmanager
def fetched(unit: Unit) -> Iterator[list[RunSource]]:
    """Fetch the files of a unit into a temporary folder, laid out as below the URL; yield the sources that they are.

    Raises:
        DoctorError: they are too many bytes, or the storage fails for half a minute.
    """
    if unit.size > MOST_BYTES:
        text = f"{unit.key}: {_mib(unit.size)} are not fetched, the bound is {_mib(MOST_BYTES)}"
        raise DoctorError(text, hint="copy it to a disk and name its folder")
    service = _service(unit.url)
    with temporary() as folder:
        if service is not None:
            file, remarks = service.fetch(unit.url, folder, MOST_BYTES)
            yield [RunSource(logs=(str(file),), remarks=remarks, fetched=((str(file), unit.url),), one_run=True)]
            return
        _fetch(unit, folder)
        found = sources_if_any(folder, Walker())
        yield [replace(source, fetched=((str(folder), unit.url),)) for source in found]


def _fetch(unit: Unit, folder: Path) -> None:
    storage, root = _storage(unit.url)
    for path in unit.files:
        target = folder / path
        source = f"{root.rstrip('/')}/{path}"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _tried(lambda source=source, target=target: storage.get_file(source, str(target)))  # type: ignore[misc]
        except Exception as error:
            raise StorageError(f"{unit.url}/{path} cannot be read: {_reason(error)}") from error


def _mib(size: int) -> str:
    return f"{size >> 20:,} MiB"


def _service(url: str) -> ModuleType | None:
    """Return the module that reads the service of a URL, None for a storage."""
    name = SERVICES.get(url.partition("://")[0].lower())
    return import_module(name) if name is not None else None


def _storage(url: str) -> tuple[Any, str]:
    """Return the client of a storage and the path there."""
    if _PASSWORD.match(url):
        text = "a password does not belong into a URL, which reports and tables would name"
        hint = "leave it to the client of the storage, which takes it from its environment or a file of its own"
        raise DoctorError(text, hint=hint, code=ExitCode.USAGE)
    try:
        import fsspec

        storage, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        hint = f"pip install 'ppo-doctor[{EXTRAS.get(url.partition(':')[0], 'fleet')}]'"
        raise DoctorError(f"{url} cannot be opened: {error}", hint=hint, code=ExitCode.USAGE) from error
    except ValueError as error:
        raise DoctorError(f"{url} cannot be opened: {error}", code=ExitCode.USAGE) from error
    return storage, str(path)


def _tried(action: Callable[[], _T]) -> _T:
    """Return what an access returns; one that fails is tried again, unless a file is missing or closed to the user."""
    for pause in PAUSES:
        try:
            return action()
        except (FileNotFoundError, PermissionError):
            raise
        except Exception:  # noqa: BLE001 - clients of storages raise exceptions of their own; the last one is raised
            time.sleep(pause)
    return action()


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _stored(found: Mapping[str, Any]) -> Stored:
    """Return what a listing tells of a file; each storage has names of its own for when it was written."""
    when = next((found[name] for name in ("LastModified", "mtime", "updated", "created") if found.get(name)), 0.0)
    if isinstance(when, str):
        when = datetime.fromisoformat(when)
    seconds = when.timestamp() if isinstance(when, datetime) else float(when)
    return Stored(int(found.get("size") or 0), seconds, str(found.get("ETag") or found.get("etag") or seconds))


def _tree(files: Iterable[str]) -> Folder:
    """Return the folders of a listing as the walker would read them, below a place where no local file is."""
    root = Folder(path=_NOWHERE)
    known: dict[tuple[str, ...], Folder] = {(): root}
    for text in sorted(files):
        parts = Path(text).parts
        if all(map(is_searched, parts[:-1])) and not parts[-1].startswith("."):
            _folder(known, parts[:-1]).files.setdefault(role_of(Path(text)), []).append(_NOWHERE / text)
    return root


def _folder(known: dict[tuple[str, ...], Folder], parts: tuple[str, ...]) -> Folder:
    if parts not in known:
        known[parts] = Folder(path=_NOWHERE.joinpath(*parts))
        _folder(known, parts[:-1]).folders.append(known[parts])
    return known[parts]


def _below(folder: Folder, above: list[Path]) -> Iterator[_Group]:
    names = [child.path for child in folder.folders]
    if _is_named_as_by_mlflow(folder):
        yield _of_mlflow(folder, above)
    elif holds_others(folder, names):
        own = own_of(folder, ())
        settings = [*above, *folder.of("config")]
        below = chain.from_iterable(_below(child, settings) for child in folder.folders)
        yield from below if own is None else _with_own(folder, own, settings, below)
    else:
        yield from _whole(folder, above)


def _is_named_as_by_mlflow(folder: Folder) -> bool:
    names = {path.name for path in (*folder.of("config"), *(child.path for child in folder.folders))}
    return "metrics" in names and ("meta.yaml" in names or {"params", "tags"} <= names)


def _of_mlflow(folder: Folder, above: list[Path]) -> _Group:
    held = [path for below in folder.walk() for role in below.files for path in below.of(role)]
    return _group(folder.path, [*above, *held])


def _taken_out(folder: Folder, above: list[Path]) -> list[_Group]:
    """Take the runs of MLflow, whose files only their folders name, out of a folder."""
    settings = [*above, *folder.of("config")]
    found = [_of_mlflow(child, settings) for child in folder.folders if _is_named_as_by_mlflow(child)]
    folder.folders = [child for child in folder.folders if not _is_named_as_by_mlflow(child)]
    return found + [group for child in folder.folders for group in _taken_out(child, settings)]


def _with_own(folder: Folder, own: RunSource, settings: list[Path], below: Iterator[_Group]) -> Iterator[_Group]:
    """Yield the files of a folder itself and those below it as units, as `layouts.with_own` yields their sources."""
    files = [*settings, *map(Path, (*own.logs, *own.perhaps))]
    first = list(islice(below, 2))
    if len(first) == 1 and not folder.of("log"):
        home, held = first[0]
        yield home, sorted({*held, *_group(folder.path, files)[1]})
        return
    yield _group(folder.path, files)
    yield from first
    yield from below


def _whole(folder: Folder, above: list[Path]) -> Iterator[_Group]:
    """Yield the units of a folder that may be of one run, in one if they are few, for contents may show they are."""
    yield from _taken_out(folder, above)
    sources = regrouped(list(runs_in(folder)))
    if 0 < len(sources) <= TOGETHER:
        read = [path for below in folder.walk() for path in (*below.of(*READ), *below.of("model")[-1:])]
        yield _group(folder.path, [*above, *read])
        return
    for source in sources:
        configs = [path for below in folder.walk() if below.path in source.folders for path in below.of("config")]
        yield _group(source.home or folder.path, [*above, *map(Path, (*source.logs, *source.perhaps)), *configs])


def _group(home: Path, paths: Iterable[Path]) -> _Group:
    below = home.relative_to(_NOWHERE).as_posix()
    return "" if below == "." else below, sorted({path.relative_to(_NOWHERE).as_posix() for path in paths})
