"""Find and fetch runs behind a URL that fsspec opens: s3://, gs://, file://, memory:// and others."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from ppo_doctor import __version__
from ppo_doctor.fleet.unit import Unit
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.runs.layouts import Folder, holds_runs_only, is_searched, role_of, runs_in

#: Pauses between tries of one access to a storage, in seconds.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
#: Most bytes of one run that are fetched.
MOST_BYTES = 4 << 30
#: Runs of one folder up to which they are fetched together, because contents decide how files belong to runs.
TOGETHER = 8
_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Stored:
    """A file of a storage: bytes, when it was written (seconds, UTC), and what changes with its contents."""

    size: int
    modified: float
    stamp: str


def is_url(text: str) -> bool:
    """Return whether a source is a URL."""
    return _URL.match(text) is not None


def units_at(url: str) -> Iterator[Unit]:
    """Yield the units below a URL.

    Raises:
        DoctorError: the client of the storage is not installed, or it cannot be listed (exit code 2 or 3).
    """
    storage, root = _storage(url)
    try:
        found = _tried(lambda: storage.find(root, detail=True))
    except Exception as error:
        raise DoctorError(
            f"{url} cannot be listed: {_reason(error)}", hint="check the URL and the credentials"
        ) from error
    base = root.rstrip("/")
    files = {path[len(base) :].lstrip("/") or path.rpartition("/")[2]: _stored(each) for path, each in found.items()}
    if set(found) == {root}:  # the URL of a file
        base = root.rpartition("/")[0]
    if not files:
        raise DoctorError(f"{url}: no such file or folder")
    home = f"{url.partition('://')[0]}://{base.lstrip('/') if url.startswith('memory') else base}"
    for paths in _grouped(files):
        yield _unit(home, paths, files)


def _unit(home: str, paths: list[str], files: Mapping[str, Stored]) -> Unit:
    digest = hashlib.sha256(f"{__version__}\0{home}".encode())
    for path in paths:
        digest.update(f"\0{path}\0{files[path].size}\0{files[path].stamp}".encode("utf-8", "surrogateescape"))
    held = [files[path] for path in paths]
    first = next((path for path in paths if role_of(Path(path)) != "config"), paths[0])
    return Unit(
        key=f"{home}/{first}",
        source=None,
        fingerprint=digest.hexdigest()[:32],
        modified=max(each.modified for each in held),
        size=sum(each.size for each in held),
        url=home,
        files=tuple(paths),
    )


@contextmanager
def fetched(unit: Unit) -> Iterator[Path]:
    """Fetch the files of a unit into a temporary folder, laid out as below the URL.

    Raises:
        DoctorError: they are too many bytes, or the storage fails for half a minute.
    """
    if unit.size > MOST_BYTES:
        text = f"{unit.key}: {unit.size >> 20:,} MiB are not fetched, the bound is {MOST_BYTES >> 20:,} MiB"
        raise DoctorError(text, hint="copy it to a disk and name its folder")
    storage, root = _storage(unit.url)
    with TemporaryDirectory(prefix="ppo-doctor-") as temporary:
        for path in unit.files:
            target = Path(temporary) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            source = f"{root.rstrip('/')}/{path}"
            try:
                _tried(lambda source=source, target=target: storage.get_file(source, str(target)))  # type: ignore[misc]
            except Exception as error:
                raise StorageError(f"{unit.url}/{path} cannot be read: {_reason(error)}") from error
        yield Path(temporary)


class StorageError(DoctorError):
    """A storage that fails, perhaps for a while."""


def _storage(url: str) -> tuple[Any, str]:
    """Return the client of a storage and the path there."""
    try:
        import fsspec

        storage, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        name = {"gs": "gcs", "gcs": "gcs"}.get(url.partition(":")[0], "s3")
        hint = f"pip install 'ppo-doctor[{name}]'"
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


def _grouped(files: Mapping[str, Stored]) -> Iterator[list[str]]:
    """Yield the paths of each unit, in their order: the files of a run, and configurations in folders above it."""
    yield from _below(_tree(files), [])


def _tree(files: Mapping[str, Stored]) -> Folder:
    """Return the folders of a listing as the walker would read them."""
    root = Folder(path=Path())
    known: dict[tuple[str, ...], Folder] = {(): root}
    for text in sorted(files):
        parts = Path(text).parts
        if all(map(is_searched, parts[:-1])) and not parts[-1].startswith("."):
            _folder(known, parts[:-1]).files.setdefault(role_of(Path(text)), []).append(Path(text))
    return root


def _folder(known: dict[tuple[str, ...], Folder], parts: tuple[str, ...]) -> Folder:
    if parts not in known:
        known[parts] = Folder(path=Path(*parts))
        _folder(known, parts[:-1]).folders.append(known[parts])
    return known[parts]


def _below(folder: Folder, above: list[str]) -> Iterator[list[str]]:
    if holds_runs_only(folder, [child.path for child in folder.folders]):
        settings = list(map(str, folder.of("config")))
        for child in folder.folders:
            yield from _below(child, [*above, *settings])
        return
    sources = list(runs_in(folder))
    if len(sources) <= TOGETHER:
        read = [
            path for below in folder.walk() for role, held in below.files.items() if role != "junk" for path in held
        ]
        yield from [sorted([*above, *map(str, read)])] if sources else []
        return
    for source in sources:
        configs = [str(path) for below in folder.walk() if below.path in source.folders for path in below.of("config")]
        yield sorted({*above, *source.logs, *source.perhaps, *configs})
