"""Open files and pipes as streams of bytes, and refuse those that may block or never end.

All untrusted files are opened here: logs, settings, policies, baselines and rules. `confined` limits what may be opened
to some folders.
"""

from __future__ import annotations

import errno
import os
import re
import select
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.patterns import lazy_pattern

#: The seconds to wait for the first data of a named pipe.
PATIENCE = 10.0
_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_URL = lazy_pattern(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def is_url(text: str) -> bool:
    """Return whether a source is a URL, of which nothing is opened here."""
    return _URL.match(text) is not None


@frozen
class Confines:
    """The folders, all links resolved, below which files may be opened, and the most bytes that one may have."""

    folders: tuple[str, ...]
    most_bytes: int


_CONFINES: ContextVar[Confines | None] = ContextVar("confines", default=None)


@contextmanager
def confined(folders: Sequence[Path], most_bytes: int) -> Iterator[None]:
    """Let only plain files below some folders be opened, wherever links lead, and only up to a size."""
    token = _CONFINES.set(Confines(folders=tuple(map(os.path.realpath, folders)), most_bytes=most_bytes))
    try:
        yield
    finally:
        _CONFINES.reset(token)


def is_outside(path: str | os.PathLike[str]) -> bool:
    """Return whether a path, all links resolved, lies outside the folders that `confined` names."""
    confines = _CONFINES.get()
    if confines is None:
        return False
    real = Path(os.path.realpath(path))
    return not any(map(real.is_relative_to, confines.folders))


def opened(path: Path) -> tuple[BinaryIO, bool]:
    """Return a file or a pipe opened for reading, and whether it is a plain file, which is seekable.

    Raises:
        DoctorError: it is a device, or a pipe to which nothing was written within `PATIENCE` seconds.
        OSError: it cannot be opened.
    """
    handle = os.open(path, os.O_RDONLY | _AT_ONCE)
    try:
        _check(handle, path)
        plain = _is_file(handle, path)
    except BaseException:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb"), plain


def contents(path: Path, limit: int, *, pipes: bool = False) -> bytes:
    """Return the bytes of a plain file, or if `pipes` is True also of a pipe.

    Raises:
        DoctorError: it is not such a file, or has more than `limit` bytes.
        OSError: it cannot be opened or read.
    """
    stream, plain = opened(path) if pipes else (plain_file(path), True)
    with stream:
        data = stream.read(limit + 1) if plain else _drained(stream, limit + 1)
    if len(data) > limit:
        raise DoctorError(f"{path} is larger than {limit >> 20:,} MiB", hint="is it the file that was meant?")
    return data


def plain_file(path: Path) -> BinaryIO:
    """Return a plain file opened for reading.

    Raises:
        DoctorError: it is a device or a pipe.
        OSError: it cannot be opened.
    """
    handle = os.open(path, os.O_RDONLY | _AT_ONCE)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        try:
            _check(handle, path)
        except BaseException:
            os.close(handle)
            raise
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise DoctorError(f"{path} is no file, but a device or a pipe, which may never end")


def _check(handle: int, path: Path) -> None:
    """Refuse a file that `confined` does not allow.

    Raises:
        DoctorError: it lies elsewhere, is no plain file, or is too large.
    """
    confines = _CONFINES.get()
    status = os.fstat(handle)
    if confines is None or stat.S_ISDIR(status.st_mode):
        return
    # What is open is compared with what the path leads to, because a link may be changed between the two.
    if is_outside(path) or not os.path.samestat(status, Path(os.path.realpath(path)).stat()):
        raise DoctorError(f"{path} lies outside the allowed folders", hint=f"they are {', '.join(confines.folders)}")
    if not stat.S_ISREG(status.st_mode):
        raise DoctorError(f"{path} is no plain file", hint="name a log, a run folder or a configuration")
    if status.st_size > confines.most_bytes:
        size = f"{path} has {status.st_size >> 20:,} MiB; at most {confines.most_bytes >> 20:,} MiB are read here"
        raise DoctorError(size, hint="ppo-doctor analyze reads it from a shell")


def _drained(stream: BinaryIO, most: int) -> bytes:
    """Return the bytes of a pipe until its writer closes it, but at most `most` bytes."""
    parts: list[bytes] = []
    size = 0
    while size < most and (block := stream.read(min(1 << 16, most - size))):
        parts.append(block)
        size += len(block)
    return b"".join(parts)


def _is_file(handle: int, path: Path) -> bool:
    """Return True for a plain file and False for a pipe that has data; raise for everything else."""
    mode = os.fstat(handle).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISFIFO(mode):
        _await_writer(handle, path)
    elif not stat.S_ISREG(mode):
        hint = "name a file or a pipe; - reads standard input"
        raise DoctorError(f"{path} is a device, which may never end, and no log", hint=hint)
    return stat.S_ISREG(mode)


def _await_writer(handle: int, path: Path) -> None:
    """Wait until a pipe has data or its writer closes it, for at most `PATIENCE` seconds; then make it blocking."""
    if not hasattr(select, "poll"):
        return
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    if not poll.poll(PATIENCE * 1000):
        why = f"{path} is a pipe that nothing was written to within {PATIENCE:g} s"
        raise DoctorError(why, hint="start its writer first")
    os.set_blocking(handle, True)
