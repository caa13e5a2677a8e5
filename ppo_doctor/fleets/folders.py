"""Folders that belong to one process: to no other while it lives, and to nobody after its end, however it ends."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import gettempdir, mkdtemp

#: The file in a folder that its process has locked, and what temporary folders begin with.
LOCK, PREFIX = "lock", "ppo-doctor-of-"


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Own a folder, which is made if need be, and removed in the end unless it holds something.

    On a file system that knows no locks, other processes are not kept out.

    Raises:
        BlockingIOError: another process owns it.
        OSError: it cannot be made or written.
    """
    lock = None
    while lock is None:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _lock_of(folder)
    try:
        yield
    finally:
        _given_back(folder, lock)
        with suppress(OSError):  # it is not empty
            folder.rmdir()


@contextmanager
def temporary() -> Iterator[Path]:
    """Make a temporary folder, and remove it in the end; the first one removes those of processes that were killed."""
    _remove_left_once()
    lock = None
    while lock is None:  # another process may have taken it for one that was left
        folder = Path(mkdtemp(prefix=PREFIX))
        with suppress(BlockingIOError):
            lock = _lock_of(folder)
    try:
        held = folder / "held"
        held.mkdir()
        yield held
    finally:
        shutil.rmtree(held)
        _given_back(folder, lock)
        folder.rmdir()


def remove_left() -> None:
    """Remove the temporary folders of this user that no process owns."""
    user = getattr(os, "getuid", int)()
    for folder in Path(gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # a process owns it, or has just removed it
            about = folder.lstat()
            mine = not folder.is_symlink() and about.st_uid == user
            if mine and (folder / LOCK).exists() and (lock := _lock_of(folder)) is not None:
                shutil.rmtree(folder / "held", ignore_errors=True)
                _given_back(folder, lock)
                folder.rmdir()


_remove_left_once = cache(remove_left)


def _lock_of(folder: Path) -> int | None:
    """Return the file of a lock that this process now has, None if the folder was removed meanwhile."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except FileNotFoundError:
        return None
    try:
        _lock(lock)
        if os.path.samestat(os.fstat(lock), (folder / LOCK).stat()):
            return lock
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


def _lock(file: int) -> None:
    """Lock an open file until it is closed or the process ends; BlockingIOError if another one has locked it."""
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(*error.args) from error
    else:
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # the file system knows no locks
            return


def _given_back(folder: Path, lock: int) -> None:
    """Remove a lock before it is given back, so that nobody else can have it then; Windows removes no open file."""
    if sys.platform == "win32":
        os.close(lock)
    with suppress(OSError):
        (folder / LOCK).unlink()
    if sys.platform != "win32":
        os.close(lock)
