"""The end of a file that somebody else writes: new bytes, each read once, and what happened to the file."""

from __future__ import annotations

import errno
import os
import stat
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO
    from pathlib import Path

BLOCK = 1 << 20
#: Bytes before the place where reading stopped, which are looked at again to tell a file that was written anew.
MARK = 64
#: On Windows nobody can rename a file that we hold open, so we hold none.
_HOLDS = os.name != "nt"


class Cut(StrEnum):
    """Why the bytes that follow begin a new file."""

    ROTATED = "another file took its place"
    TRUNCATED = "it was cut to a shorter length"
    REWRITTEN = "it was written anew"


class Tail:
    """Follows one path through growth, renaming, truncation and absence.

    The open file is held on to, so that what was written to it just before it was renamed is not lost.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        #: whether a file was there at the last look
        self.present = False
        #: bytes read, and bytes read again to tell a file that was written anew
        self.read = 0
        self.checked = 0
        #: where the file that was followed before lies now, if that is in the same folder
        self.moved_to: Path | None = None
        self._file: FileIO | None = None
        #: which file is followed
        self.identity: tuple[int, int] | None = None
        self._offset = 0
        self._mark = b""
        self._seen: tuple[int, int] | None = None

    def poll(self) -> Iterator[bytes | Cut]:
        """Yield what was added since the last look, and a `Cut` where another file begins.

        Raises:
            OSError: the file is there and cannot be read.
        """
        status = self._status()
        self.present = status is not None
        moved = self.identity is not None and (status is None or identity(status) != self.identity)
        if moved and self._file is not None:
            yield from self._rest(self._file, os.fstat(self._file.fileno()).st_size)
        if status is None:
            return
        if moved:
            self._begin_again()
            self.moved_to = self._former()
            self.close()
            self.identity = None
            yield Cut.ROTATED
        yield from self._added()

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def _former(self) -> Path | None:
        try:
            with os.scandir(self.path.parent) as entries:
                names = [entry.name for entry in entries if identity(entry.stat()) == self.identity]
        except OSError:
            return None
        return self.path.parent / names[0] if names else None

    def _status(self) -> os.stat_result | None:
        try:
            status = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(status.st_mode):  # to open a pipe would wait for its writer, and nobody could read it again
            raise OSError(errno.EINVAL, "it is no regular file, which alone can be followed")
        return status

    def _added(self) -> Iterator[bytes | Cut]:
        file = self._opened()
        if file is None:
            return
        status = os.fstat(file.fileno())
        seen = (status.st_size, status.st_mtime_ns)
        if seen != self._seen:
            if status.st_size < self._offset:
                self._begin_again()
                yield Cut.TRUNCATED
            elif not self._same(file):
                self._begin_again()
                yield Cut.REWRITTEN
            self._seen = seen
            yield from self._rest(file, status.st_size)
        if not _HOLDS:
            self.close()

    def _opened(self) -> FileIO | None:
        if self._file is None:
            try:
                self._file = open(self.path, "rb", buffering=0)  # noqa: SIM115, PTH123 - held open between looks
            except FileNotFoundError:  # it went just now
                self.present = False
                return None
            self.identity = identity(os.fstat(self._file.fileno()))
        return self._file

    def _begin_again(self) -> None:
        self._offset, self._mark, self._seen = 0, b"", None

    def _same(self, file: FileIO) -> bool:
        """Tell whether the bytes before our place are those that we read."""
        if not self._mark:
            return True
        self.checked += len(self._mark)
        file.seek(self._offset - len(self._mark))
        return file.read(len(self._mark)) == self._mark

    def _rest(self, file: FileIO, size: int) -> Iterator[bytes]:
        file.seek(self._offset)
        while self._offset < size and (block := file.read(min(BLOCK, size - self._offset))):
            self._offset += len(block)
            self.read += len(block)
            self._mark = (self._mark + block)[-MARK:]
            yield block


def identity(status: os.stat_result) -> tuple[int, int]:
    """Return what tells a file from another, whatever its name."""
    return status.st_dev, status.st_ino
