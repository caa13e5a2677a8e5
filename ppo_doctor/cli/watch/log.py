"""The log of a watched run: detect changes, and read it as `analyze` does."""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ppo_doctor.cli.watch.monitor import Event
from ppo_doctor.diagnosis.analyze import runs_of
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.opening import plain_file
from ppo_doctor.runs.discover import is_dump, sources_in
from ppo_doctor.runs.layouts import RunSource
from ppo_doctor.runs.reading import read_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model.request import Request
    from ppo_doctor.model.run import Run
    from ppo_doctor.runs.log import Log

#: Containers that grow at their end; trainers rewrite all others as a whole.
GROWING = ("jsonl", "csv", "console", "tfevents", "wandb")
#: Looks after which a rewritten file is read although it is still changing.
MOST_LOOKS = 5
#: Bytes before the former end of a file that are compared to recognise a rewritten one.
MARK = 64
#: Searching a folder may take one part in this many of a processor's time, at one look a second.
SHARE = 50


class SeveralRuns(Exception):  # noqa: N818 - no error: another way to watch
    """The folder to follow holds several runs."""


@dataclass(frozen=True, slots=True)
class FileState:
    """A file at one moment: which one it is (device and inode), its size in bytes, when it was modified, in ns."""

    identity: tuple[int, int]
    size: int
    modified: int


class WatchedLog:
    """A log, or a folder that contains or will contain one; each reading reads the whole log, as `analyze` does.

    `changed` is whether there is anything new since the last reading, `arrivals` counts how often something new was
    found, and `former` is the content of a file that another one replaced, until `settle` is called. `given` are the
    files of the run where somebody else searches the folder.
    """

    def __init__(self, target: str | Path, request: Request, given: RunSource | None = None) -> None:
        self.given = given
        self.target = Path(target)
        self.changed = False
        self.arrivals = 0
        self.former: Log | None = None
        #: the file by which the run is known
        self.path: Path | None = None
        self._request = request
        self._source: RunSource | None = None
        self._states: dict[str, FileState] = {}
        #: all files that were ever of the run
        self._identities: set[tuple[int, int]] = set()
        #: content of the file at the last reading, the bytes before its end then with their offset, and the content
        #: of files before it that belong to the run
        self._last: Log | None = None
        self._mark = (0, b"")
        self._kept: Log | None = None
        #: looks in a row that found something new since the last reading
        self._restless = 0
        #: looks until the folder is searched again
        self._pause = 0
        self._trouble: str | None = None
        #: the working directory at the start, which a relative target refers to
        self._folder: Path | None = None
        if not self.target.is_absolute():
            with suppress(OSError):  # a working directory that is gone already
                self._folder = Path.cwd()

    @property
    def ready(self) -> bool:
        """Return whether to read the log now: it changed, and if it is a document, it is not being written."""
        grows = self._last is None or self._last.container in GROWING
        return self.changed and (grows or not self._restless or self._restless >= MOST_LOOKS)

    @property
    def whole(self) -> bool:
        """Return whether the last reading has all that was written: nothing came since, and lines have their ends."""
        if self.changed or not self._states or self._last is None:
            return False
        try:
            return all(_bytes_before(path, state.size)[-1:] in (b"\n", b"") for path, state in self._states.items())
        except (OSError, DoctorError):
            return False

    def look(self) -> list[Event]:
        """Look at the files once without reading them; a file that cannot be read is an event.

        Raises:
            SeveralRuns: the folder holds several.
        """
        try:
            self._stay()
            return self._search() + self._compare()
        except OSError as error:
            return self._once("problem", f"{self.path or self.target} cannot be read: {error.strerror or error}")

    def runs(self) -> list[Run]:
        """Return the runs in the log as far as its lines are whole.

        Raises:
            DoctorError: nothing that we can read, or nothing yet.
        """
        self.changed, self._restless = False, 0
        return self._runs(growing=True)

    def former_runs(self) -> list[Run]:
        """Return the runs in the former file; raises DoctorError if it holds none."""
        if (former := self.former) is None:
            return []
        return runs_of(RunSource(logs=(former.path,)), self._request, lambda *_: former.copy())

    def settle(self, *, belongs: bool) -> None:
        """Keep the former file for good if the log goes on with its run, or forget it."""
        self._kept = self.former if belongs else None
        self.former = None

    def finish(self) -> list[Run]:
        """Return the runs in the log now that nothing follows, its last line too if it has no end.

        Raises:
            DoctorError: nothing that we can read.
        """
        if not self._states:
            raise DoctorError(f"{self.target}: no log there yet", hint="nothing was written while we watched")
        return self._runs(growing=False)

    def _stay(self) -> None:
        """Return to the path of the working directory if that was moved away and another took its path."""
        with suppress(OSError):
            if self._folder is not None and not self._folder.samefile("."):
                os.chdir(self._folder)

    def _runs(self, *, growing: bool) -> list[Run]:
        if self._source is None:
            raise DoctorError(f"{self.target}: no log there yet")

        def read(path: str, folders: tuple[Path, ...], request: Request) -> Log:
            if path != str(self.path):
                return read_file(path, folders, request, growing=growing)
            log = self._read(path, folders, request, growing=growing)
            self._last = log.copy()
            return _joined(self._kept, log)

        runs = runs_of(self._source, self._request, read)
        if not runs:
            raise DoctorError(f"{self.target}: no run in it")
        return runs

    def _read(self, path: str, folders: tuple[Path, ...], request: Request, *, growing: bool) -> Log:
        """Read the log where it lies now; if it is gone, return what it held."""
        place = path if Path(path).exists() else self._moved_to(path)
        if place is None and self._last is not None:
            return self._last.copy()
        log = read_file(place or path, folders, request, growing=growing)
        if path in self._states:  # else it is a folder
            end = self._states[path].size
            self._mark = end, _bytes_before(place or path, end)
        return log

    def _search(self) -> list[Event]:
        """Find the log; in a folder, look which files its run has by now."""
        if self.given is not None:
            self._source = self.given
            return self._follow(self.given)
        folder = self.target.is_dir()
        if folder and self._pause > 0:
            self._pause -= 1
            return []
        started = time.process_time()
        found = self._in_folder() if folder else _of_file(self.target)
        self._pause = int((time.process_time() - started) * SHARE)
        if found is not None:
            self._source = found
            return self._follow(found)
        if self._source is not None:
            return []
        what = "no log in this folder yet" if folder else "does not exist yet"
        return self._once("file", f"{self.target}: {what}; waiting")

    def _in_folder(self) -> RunSource | None:
        """Return the run of a folder: the followed one, else the first whose file was not just renamed.

        Raises:
            SeveralRuns: there are several.
        """
        try:
            sources = [source for source in sources_in(self.target) if source.logs or source.perhaps or source.tensors]
        except DoctorError:
            return None
        ours = [source for source in sources if str(self.path) in source.logs + source.perhaps]
        if self._are_several(sources, ours):
            raise SeveralRuns
        gone = self._states.get(str(self.path)) if self.path is not None and not self.path.exists() else None
        others = (source for source in sources if gone is None or not _is(source.likeliest, gone))
        return ours[0] if ours else next(others, None)

    def _are_several(self, sources: Sequence[RunSource], ours: Sequence[RunSource]) -> bool:
        """Return whether there are several runs; once one is followed, one in another folder that it was not before."""
        certain = [source for source in sources if not source.doubtful]
        if self.path is None:
            return len(certain) > 1
        others = [source for source in certain if ours and source.home not in (None, ours[0].home)]
        states = (_state_of(source.likeliest) for source in others)
        return any(state is not None and state.identity not in self._identities for state in states)

    def _follow(self, source: RunSource) -> list[Event]:
        """Follow the likeliest file of a run, unless one of its files is followed already."""
        before, path = self.path, Path(source.likeliest)
        if before == path or (before is not None and str(before) in source.logs + source.perhaps):
            return []
        self.path = path
        if before is not None and _are_checkpoints(before, path):
            return []
        self._set_aside(self._last)
        self._last = None
        return [Event(kind="file", text=f"following {path}")]

    def _compare(self) -> list[Event]:
        """Compare the files with what they were at the last look."""
        source = self._source
        if source is None:
            return []
        events: list[Event] = []
        fresh = False
        for path in _files(source):
            state, before = self._state(path), self._states.get(path)
            if state is None or state == before:
                continue
            if path == str(self.path) and before is not None:
                events += self._cut(path, before, state)
            fresh = fresh or before is not None or state.size > 0
            self._states[path] = state
            self._identities.add(state.identity)
        self._restless = self._restless + 1 if fresh else 0
        self.changed, self.arrivals = self.changed or fresh, self.arrivals + fresh
        if self.path is not None and not self.path.exists():
            return events + self._once("problem", f"{self.path} is gone; waiting for it to come back")
        self._trouble = None
        return events

    def _state(self, path: str) -> FileState | None:
        state = _state_of(path)
        moved = self._moved_to(path) if state is None else None
        return _state_of(moved) if moved is not None else state

    def _cut(self, path: str, before: FileState, state: FileState) -> list[Event]:
        """Set the content of a file aside if the file was replaced, cut or rewritten, and return the event."""
        moved, log = None, self._last
        if state.identity != before.identity:
            moved, why = self._moved_to(path), "another file took its place"
        elif state.size < before.size:
            why = "it was cut to a shorter length"
        elif self._last is not None and _bytes_before(path, self._mark[0]) != self._mark[1]:
            why = "it was written anew"
        else:
            return []
        if moved is not None:
            with suppress(DoctorError):  # an empty file
                log = read_file(moved, self._source.folders if self._source else (), self._request)
        if not self._set_aside(log) and self.former is None:
            return []
        return [Event(kind="file", text=f"{path}: {why}" + (f" ({moved})" if moved else ""))]

    def _set_aside(self, log: Log | None) -> bool:
        """Make the content of a file the former part, unless it is a document; return whether it was done."""
        if log is None or log.container not in GROWING:
            return False
        # Several files may have come and gone before anybody judged.
        self.former = _joined(self.former or self._kept, log)
        self._kept = self._last = None
        return True

    def _moved_to(self, path: str) -> str | None:
        """Return the new path, in the same folder, of a file that was renamed."""
        before = self._states.get(path)
        try:
            with os.scandir(Path(path).parent) as entries:
                moved = [entry.path for entry in entries if before and entry.path != path and _is(entry.path, before)]
        except OSError:
            return None
        return str(Path(moved[0])) if moved else None

    def _once(self, kind: Literal["file", "problem"], text: str) -> list[Event]:
        """Return an event, or nothing if the event before had the same text."""
        before, self._trouble = self._trouble, text
        return [] if text == before else [Event(kind=kind, text=text)]


def _of_file(path: Path) -> RunSource | None:
    """Return a file as the source of a run, None if there is none.

    Raises:
        OSError: it is no file that can be read twice.
    """
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not regular:  # to open a pipe would wait for its writer, and nobody could read it again
        raise OSError(errno.EINVAL, "it is no regular file, which alone can be followed")
    return RunSource(logs=(), tensors=(path,)) if is_dump(path) else RunSource(logs=(str(path),))


def _files(source: RunSource) -> list[str]:
    """Return the files that a source consists of, those in the folder of a store too."""
    named = [Path(path) for path in (*source.logs, *source.perhaps, *map(str, source.tensors))]
    return [str(file) for path in named for file in (path.rglob("*") if path.is_dir() else [path])]


def _state_of(path: str) -> FileState | None:
    try:
        status = Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return FileState((status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns)


def _is(path: str, state: FileState) -> bool:
    """Return whether the file at a path is the one of a state, by device and inode."""
    now = _state_of(path)
    return now is not None and now.identity == state.identity


def _bytes_before(path: str, end: int) -> bytes:
    with plain_file(Path(path)) as file:
        file.seek(max(0, end - MARK))
        return file.read(min(MARK, end))


def _joined(former: Log | None, log: Log) -> Log:
    """Return two parts of one log as one."""
    if former is None:
        return log
    both = former.copy()
    both.extend(log)
    return both


def _are_checkpoints(former: Path, path: Path) -> bool:
    """Return whether a file is that of a run's next checkpoint, or of its end."""
    return path.name == former.name and any(each.parent.name.startswith("checkpoint-") for each in (former, path))
