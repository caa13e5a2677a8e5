"""What a command reads, so that no report takes its place: files that were named, and every file that was opened.

Files are told apart by device and inode: a hard link or a symbolic link to an input is that input.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterable

_HINT = "name another file for the report"
#: Paths that were opened to be read since `keep_track`; None until then.
_opened: set[str] | None = None
#: Files that a command names, whether or not it comes to reading them.
_named: list[str] = []


def somewhere() -> bool:
    """Tell whether the working directory still exists."""
    try:
        os.getcwd()  # noqa: PTH109 - only to see whether it fails
    except OSError:
        return False
    return True


def keep_track() -> None:
    """Note from now on which files this process opens to read them.

    An audit hook sees every reader, those of libraries too; one that forgets to tell of itself would cost somebody a
    log. There is one hook for as long as the process lives, for Python cannot take any out.
    """
    global _opened  # noqa: PLW0603 - a process has one set of open files
    if _opened is None:
        sys.addaudithook(_hook)
    _opened = set()
    _named.clear()


def _hook(event: str, details: tuple[object, ...]) -> None:
    if event == "open" and _opened is not None:
        path, mode, flags = details
        if isinstance(path, str | bytes | os.PathLike) and _reads(mode, flags):
            _opened.add(os.fsdecode(path))


def _reads(mode: object, flags: object) -> bool:
    """Tell whether a file is opened for nothing but to be read; `os.open` has no mode."""
    if isinstance(mode, str):
        return "r" in mode and "+" not in mode
    return isinstance(flags, int) and not flags & (os.O_WRONLY | os.O_RDWR)


def taken() -> tuple[str, ...]:
    """Return the paths that were opened to be read since the last call, for another process to `add`."""
    found = tuple(_opened or ())
    if _opened is not None:
        _opened.clear()
    return found


def add(paths: Iterable[str | Path | None]) -> None:
    """Count files as read: those that a command names, and those that another process opened for us."""
    _named.extend(str(path) for path in paths if path is not None)


def refuse(target: Path) -> None:
    """Refuse to write a report where an input lies.

    Raises:
        DoctorError: the target is a file that was named or read (exit code 2).
    """
    there = _stat(target)
    if there is None or not stat.S_ISREG(there.st_mode):
        return
    if _is_stdin(there) or any(_holds(path, there) for path in (*_named, *(_opened or ()))):
        raise DoctorError(f"{target} is an input, which a report would replace", hint=_HINT, code=ExitCode.USAGE)


def _holds(path: str, there: os.stat_result) -> bool:
    found = _stat(path)
    return found is not None and os.path.samestat(found, there)


def _is_stdin(there: os.stat_result) -> bool:
    with suppress(OSError, ValueError, AttributeError):  # closed, or no file of the system's
        return os.path.samestat(os.fstat(sys.stdin.fileno()), there)
    return False


def _stat(path: str | Path) -> os.stat_result | None:
    with suppress(OSError, ValueError):
        return Path(path).stat()
    return None
