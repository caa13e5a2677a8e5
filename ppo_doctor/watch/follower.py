"""From a path that may not exist yet to what its log holds now, through whatever happens to the file."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ppo_doctor import readers
from ppo_doctor.errors import DoctorError
from ppo_doctor.model import Note, SourceRef
from ppo_doctor.sources import sources_in
from ppo_doctor.table import Table
from ppo_doctor.watch.events import Event
from ppo_doctor.watch.growing import STREAMED, Growing, Reading
from ppo_doctor.watch.tail import Cut, Tail, identity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppo_doctor.sources import RunSource

#: Looks after which a document is read although it is still changing.
MOST_LOOKS = 5
#: Searching a folder may take one part in this many of the time, at one look a second.
SHARE = 50


class Feed(Protocol):
    """Where a watcher gets its log from; other containers may bring a feed of their own."""

    @property
    def changed(self) -> bool:
        """Tell whether there is something that the last `reading` did not hold."""

    @property
    def arrivals(self) -> int:
        """Return how many times something new was found."""

    @property
    def former(self) -> Reading | None:
        """Return what stood in the file before another took its place, until `settle` decides about it."""

    def poll(self) -> list[Event]:
        """Look once, read what is new, and tell what happened to the file."""

    def reading(self) -> Reading:
        """Return what the log holds, with a former part that belongs to it; raises DoctorError as readers do."""

    def settle(self, *, belongs: bool) -> None:
        """Decide whether the former part is of the same run."""

    def finish(self) -> Reading:
        """Return what the log holds now that nobody will look again; raises DoctorError as readers do."""

    def close(self) -> None:
        """Let go of the log."""


class Follower:
    """Follows a log, or a folder in which one lies or will lie.

    Text, event files and W&B files grow at their end and are read byte by byte, each byte once. A document that its
    trainer writes anew (such as trainer_state.json) and other binary containers are read anew whenever they change.
    """

    def __init__(self, target: str | Path) -> None:
        self.target = Path(target)
        self.changed = False
        self.arrivals = 0
        self.former: Reading | None = None
        self._kept: Reading | None = None
        self._tail: Tail | None = None
        self._growing: Growing | None = None
        self._document: _Document | None = None
        self._trouble: str | None = None
        self._folders: tuple[Path, ...] = ()
        #: where relative names were meant
        self._place: Path | None = None
        if not self.target.is_absolute():
            with suppress(OSError):  # a working directory that is gone already
                self._place = Path.cwd()
        #: looks until the folder is searched again
        self._pause = 0
        self._told_absent = False
        self._told_document = False

    @property
    def path(self) -> Path | None:
        """Return the log that is followed, None as long as there is none."""
        return self._tail.path if self._tail else None

    @property
    def read(self) -> int:
        """Return the bytes read so far as a stream."""
        return self._tail.read if self._tail else 0

    def poll(self) -> list[Event]:
        """Look once; what cannot be read is an event, and tried again at the next look."""
        try:
            events = self._look()
        except OSError as error:
            return self._once(f"{self._name()} cannot be read: {error.strerror or error}")
        return events

    def reading(self) -> Reading:
        """Return what the log holds in whole lines.

        Raises:
            DoctorError: nothing that we can read, or nothing yet.
        """
        self.changed = False
        if self._document is None:
            return self._placed(_joined(self._kept, self._stream().snapshot()))
        reading = self._placed(self._document.read())
        if reading.container in STREAMED:  # its first bytes looked like a document
            self._open(self._document.path)
        return reading

    def finish(self) -> Reading:
        """Return what the log holds, its last line too if it has no end.

        Raises:
            DoctorError: nothing that we can read.
        """
        reading = self._document.read() if self._document else self._stream().finish()
        return self._placed(_joined(self._kept, reading))

    def _placed(self, reading: Reading) -> Reading:
        return replace(reading, folders=self._folders)

    def settle(self, *, belongs: bool) -> None:
        """Keep the former part for good, or forget it."""
        self._kept = self.former if belongs else None
        self.former = None
        self.changed = True

    def _stream(self) -> Growing:
        if self._growing is None:
            raise DoctorError(f"{self.target}: no log there yet", hint="nothing was written while we watched")
        return self._growing

    def _look(self) -> list[Event]:
        self._stay()
        found = self._choose()
        if self._tail is None:
            return found
        if self._document is not None:
            return found + self._changes(self._document)
        for part in self._tail.poll():
            found += self._take(part)
            if self._document is not None:
                return found
        return found + self._presence()

    def _stay(self) -> None:
        """Go where another folder took the place of the one that we work in, which a move took along."""
        with suppress(OSError):
            if self._place is not None and not self._place.samefile("."):
                os.chdir(self._place)

    def _choose(self) -> list[Event]:
        """Choose the log; in a folder again when there is a newer checkpoint, or none was readable."""
        if self._tail is not None and not (self.target.is_dir() and self._may_move()):
            return []
        if self._pause > 0:
            self._pause -= 1
            return []
        path = self._there()
        if path is None or (self._tail is not None and path == self._tail.path):
            return [] if path else self._waiting()
        checkpoint = self._tail is not None and _are_checkpoints(self._tail.path, path)
        self._open(path)
        return [] if checkpoint else [Event(kind="file", text=f"following {path}")]

    def _may_move(self) -> bool:
        """Tell whether another file of the folder may be the one to follow by now."""
        return self._tail is not None and (
            not self._tail.present or self._tail.path.parent.name.startswith("checkpoint-") or not self._readable()
        )

    def _readable(self) -> bool:
        return self._document is not None or (self._growing is not None and self._growing.container() is not None)

    def _there(self) -> Path | None:
        """Return the log to follow; in a folder that of its first run, with the places of its configuration."""
        if not self.target.is_dir():
            return self.target if self.target.exists() else None
        started = time.perf_counter()
        try:
            source = next(filter(self._is_another, sources_in(self.target)), None)
        except DoctorError:
            return None
        finally:
            # A look into a large folder takes its time; so many looks at the file alone make up for it.
            self._pause = int((time.perf_counter() - started) * SHARE)
        if source is None or Path(source.likeliest).is_dir():
            return None
        self._folders = source.folders
        return Path(source.likeliest)

    def _is_another(self, source: RunSource) -> bool:
        """Tell whether a log is none that was moved away under our eyes: another will take its place."""
        held = self._document or self._tail
        if held is None or held.present:
            return True
        try:
            return identity(Path(source.likeliest).stat()) != held.identity
        except OSError:
            return True

    def _waiting(self) -> list[Event]:
        if self._told_absent or self._tail is not None:
            return []
        self._told_absent = True
        what = "no log in this folder yet" if self.target.is_dir() else "does not exist yet"
        return [Event(kind="file", text=f"{self.target}: {what}; waiting")]

    def _open(self, path: Path) -> None:
        self.close()
        self._tail = Tail(path)
        self._growing, self._document = Growing(str(path)), None
        self.changed = False

    def close(self) -> None:
        """Let go of the file and of its reader."""
        if self._tail:
            self._tail.close()
        if self._growing:
            self._growing.close()

    def _take(self, part: bytes | Cut) -> Iterator[Event]:
        if isinstance(part, Cut):
            yield self._cut(part)
            return
        growing = self._stream()
        growing.feed(part)
        self._arrived()
        container = growing.container()
        if container is not None and container not in STREAMED and self._tail is not None:
            self._document = _Document(self._tail.path)
            self._tail.close()
            growing.close()
            if not self._told_document:
                self._told_document = True
                yield Event(
                    kind="file", text=f"{self._name()} is {container}, so it is read whole each time it changes"
                )

    def _arrived(self) -> None:
        self.changed, self._trouble = True, None
        self.arrivals += 1

    def _cut(self, why: Cut) -> Event:
        """Set aside what stood in the file, under the name that the file has now."""
        tail, growing = self._tail, self._stream()
        path = growing.path
        before = self.former or self._kept  # two files may have come and gone before anybody judged
        try:
            former: Reading | None = _joined(before, growing.finish())
        except DoctorError:
            former = before
        growing.close()
        self.former, self._kept = former, None
        self._growing = Growing(path)
        former_name = tail.moved_to if tail and why is Cut.ROTATED else None
        if former is not None and former_name is not None:
            self.former = _renamed(former, path, str(former_name))
        return Event(kind="file", text=f"{self._name()}: {why.value}" + (f" ({former_name})" if former_name else ""))

    def _presence(self) -> list[Event]:
        if self._tail is None or self._tail.present:
            return []
        return self._once(f"{self._name()} is gone; waiting for it to come back")

    def _changes(self, document: _Document) -> list[Event]:
        if document.changed():
            self._arrived()
        return [] if document.present else self._once(f"{self._name()} is gone; waiting for it to come back")

    def _once(self, text: str) -> list[Event]:
        """Return a trouble as an event the first time in a row that it is met."""
        if text == self._trouble:
            return []
        self._trouble = text
        return [Event(kind="problem", text=text)]

    def _name(self) -> str:
        return str(self.path or self.target)


class _Document:
    """A file that its writer replaces or rewrites as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.present = True
        self._read: object = None
        self._last: tuple[object, ...] = ()
        self._looks = 0

    @property
    def identity(self) -> object:
        """Return which file was there at the last look."""
        return self._last and self._last[0]

    def changed(self) -> bool:
        """Tell whether the file is another than the one read, and at rest, or has been changing for long."""
        try:
            status = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            self.present = False
            return False
        self.present = True
        now = (identity(status), status.st_size, status.st_mtime_ns)
        rests, self._last = now == self._last, now
        if now == self._read:
            self._looks = 0
            return False
        self._looks += 1
        return rests or self._looks % MOST_LOOKS == 0

    def read(self) -> Reading:
        """Read it whole."""
        container, items = readers.read(self.path)
        reading = Reading(path=str(self.path), container=container, items=tuple(items))
        self._read, self._looks = self._last, 0
        return reading


def _are_checkpoints(former: Path, path: Path) -> bool:
    """Tell whether a file is that of a run's next checkpoint, or of its end."""
    return path.name == former.name and any(each.parent.name.startswith("checkpoint-") for each in (former, path))


def _joined(former: Reading | None, now: Reading) -> Reading:
    """Return two parts of one run; the records of the second follow those of the first."""
    if former is None:
        return now
    ours = 1 + max((int(item.records[-1]) for item in former.items if isinstance(item, Table)), default=-1)
    items = [*former.items, *(_moved(item, ours) for item in now.items)]
    return Reading(path=now.path, container=now.container, items=tuple(items))


def _moved(item: readers.Item, by: int) -> readers.Item:
    if not isinstance(item, Table):
        return item
    texts = {key: tuple((record + by, text) for record, text in cells) for key, cells in item.texts.items()}
    return replace(item, records=item.records + by, texts=texts)


def _renamed(reading: Reading, old: str, new: str) -> Reading:
    return replace(reading, items=tuple(_under(item, old, new) for item in reading.items))


def _under(item: readers.Item, old: str, new: str) -> readers.Item:
    """Return an item under the name that its file has now; where it stood says nothing about lines of the next file."""
    if isinstance(item, Table):
        return replace(item, path=new) if item.path == old else item
    where = item.source
    if where is None or where.path != old:
        return item
    named = SourceRef(path=new, line=where.line if isinstance(item, Note) else None, key=where.key)
    return replace(item, source=named)
