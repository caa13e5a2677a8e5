"""Print a patch of configurations on standard output, and apply it, with a copy of each file beside it."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.cli.output import print_error
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.opening import contents

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ppo_doctor.report.patch import FileChange, Patch


def finish_patch(patches: Iterable[Patch], *, apply: bool, diff: bool = True) -> None:
    """Print the patch of all runs, the diff only with `diff`, and apply it if that was asked for.

    Raises:
        DoctorError: as `apply_patch`.
    """
    from ppo_doctor.report.patch import combined

    patch = combined(patches)
    print_patch(patch, diff=diff)
    if apply:
        apply_patch(patch)


def print_patch(patch: Patch, *, diff: bool = True) -> None:
    """Print the diff on standard output, byte for byte, and on stderr what is changed and what is not."""
    from ppo_doctor.report.escape import prose

    if diff and patch.diff:
        text = visible(patch.diff) if sys.stdout.isatty() else patch.diff
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()
    lines = [change.says for change in patch.changes] + [f"note: {note}" for note in patch.notes]
    if not patch.files:
        lines.append("no file is changed")
    sys.stderr.write("".join(f"ppo-doctor: {prose(line)}\n" for line in lines))


def visible(text: str) -> str:
    """Return a diff for a terminal, with control characters as escapes."""
    from ppo_doctor.report.escape import plain

    def shown(line: str) -> str:
        end = "\r" if line.endswith("\r") else ""
        return "\t".join(plain(part, 10 * len(line)) for part in line.removesuffix("\r").split("\t")) + end

    return "\n".join(shown(line) for line in text.split("\n"))


def apply_patch(patch: Patch) -> None:
    """Write the changed files and print where the copies of the earlier ones are.

    Raises:
        DoctorError: a file has changed since it was read, or cannot be written (exit code 2); none is written if one
            has changed.
    """
    for file in patch.files:
        _check(file)
    for file in patch.files:
        kept = _replace(file)
        print_error(DoctorError(f"{file.path} is changed; the earlier file is {kept}"))


def _check(file: FileChange) -> None:
    """Refuse a file that is not as it was when it was read."""
    path = Path(file.path)
    try:
        same = contents(path, len(file.before)) == file.before
        writable = os.access(path, os.W_OK)
    except (OSError, DoctorError):
        same, writable = False, True
    if not same:
        hint = "it is left as it is; ask for the patch again"
        raise DoctorError(f"{path} has changed since it was read", hint=hint, code=ExitCode.USAGE)
    if not writable:
        raise DoctorError(f"{path}: cannot write: permission denied", hint="nothing is written", code=ExitCode.USAGE)


def _replace(file: FileChange) -> Path:
    """Replace a file atomically, keep its permissions, and return the path of the copy of the earlier one."""
    path = Path(os.path.realpath(file.path))
    try:
        before = path.stat()
        kept = _copy(path, file.before, before)
        part = path.with_name(f".ppo-doctor-{os.urandom(6).hex()}.part")
        try:
            _create(part, file.after, before)
            _check(file)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise DoctorError(f"{file.path}: cannot write: {error.strerror or error}", code=ExitCode.USAGE) from error
    return kept


def _copy(path: Path, data: bytes, like: os.stat_result) -> Path:
    """Write a copy under a name that no file has: `NAME.bak`, else `NAME.bak1` and so on."""
    for number in count():
        copy = path.with_name(f"{path.name}.bak{number or ''}")
        with suppress(FileExistsError):
            _create(copy, data, like)
            return copy
    raise AssertionError  # the loop does not end otherwise


def _create(path: Path, data: bytes, like: os.stat_result) -> None:
    """Write a new file with the permissions of another, and its owner where that is allowed."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if hasattr(os, "chown") and (like.st_uid, like.st_gid) != (path.stat().st_uid, path.stat().st_gid):
        with suppress(OSError):  # only the superuser may give files away
            os.chown(path, like.st_uid, like.st_gid)
    path.chmod(stat.S_IMODE(like.st_mode))
