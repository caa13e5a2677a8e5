"""What an agent may name: files and folders below the allowed folders."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path, PurePath

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.opening import is_outside, plain_file


def resolved(text: str, roots: Sequence[Path]) -> Path:
    """Return the file or folder that an agent names, absolute or relative to a root, links resolved.

    Raises:
        DoctorError: it is a URL, has "..", is missing, lies outside the roots, is no plain file, or is too large.
    """
    if "://" in text:
        hint = "ppo-doctor fleet URL --out runs.parquet reads it from a shell; fleet_query reads that table"
        raise DoctorError(f"{text}: URLs are not read here", hint=hint, code=ExitCode.USAGE)
    if not text or "\0" in text or ".." in PurePath(text.replace("\\", "/")).parts:
        hint = "name it by its whole path, or relative to an allowed folder"
        raise DoctorError(f"{text!r}: no path with '..' and no empty one", hint=hint, code=ExitCode.USAGE)
    # Of a place outside nothing is told, not even whether something is there.
    inside = [path for path in (root / text for root in roots) if not is_outside(path)]
    if not inside:
        hint = f"allowed: {', '.join(map(str, roots))}"
        raise DoctorError(f"{text} lies outside the allowed folders", hint=hint, code=ExitCode.USAGE)
    path = next((path for path in inside if os.path.exists(path)), None)  # noqa: PTH110 - any text, however long
    if path is None:
        raise DoctorError(f"{text}: no such file or folder", hint=f"looked in {', '.join(map(str, roots))}")
    path = path.resolve()
    if not path.is_dir():
        _check(path)
    return path


def _check(path: Path) -> None:
    """Raise DoctorError if a file is none that may be read."""
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe must not even be opened: its writer would notice
        raise DoctorError(f"{path} is no plain file", hint="name a log, a run folder or a configuration")
    try:
        plain_file(path).close()
    except OSError as error:
        raise DoctorError(f"{path} cannot be read: {error.strerror}") from error
