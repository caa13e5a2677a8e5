"""Open files and pipes as streams of bytes, and refuse those that may block or never end.

All untrusted files are opened here: logs, settings, policies, baselines and rules.
"""

from __future__ import annotations

import errno
import os
import re
import select
import stat
from pathlib import Path
from typing import BinaryIO

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.patterns import lazy_pattern

#: The seconds to wait for the first data of a named pipe.
PATIENCE = 10.0
_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_URL = lazy_pattern(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def is_url(text: str) -> bool:
    """Return whether a source is a URL, of which nothing is opened here."""
    return _URL.match(text) is not None


def opened(path: Path) -> tuple[BinaryIO, bool]:
    """Return a file or a pipe opened for reading, and whether it is a plain file, which is seekable.

    Raises:
        DoctorError: it is a device, or a pipe to which nothing was written within `PATIENCE` seconds.
        OSError: it cannot be opened.
    """
    handle = os.open(path, os.O_RDONLY | _AT_ONCE)
    try:
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
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise DoctorError(f"{path} is no file, but a device or a pipe, which may never end")


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
