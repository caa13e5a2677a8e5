"""What an agent may name: files and folders below the allowed folders, and the runs in them."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from ppo_doctor.cli.options import gather_runs
from ppo_doctor.diagnosis.analyze import runs_of
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.opening import is_outside, plain_file
from ppo_doctor.report.escape import plain

if TYPE_CHECKING:
    from ppo_doctor.model.request import Request
    from ppo_doctor.model.run import Run


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


@dataclass(frozen=True, slots=True)
class Read:
    """The runs in some files and folders, and why others could not be read."""

    runs: list[Run]
    failed: list[DoctorError]

    def name(self, run: Run) -> str:
        """Return the name of a run: its path below the folder that all runs share, if there are several."""
        if len(self.runs) == 1:
            return plain(run.id)
        shared = os.path.commonprefix([each.id for each in self.runs])
        return plain(run.id[shared.rfind("/") + 1 :])


def runs_at(paths: Sequence[Path], request: Request) -> Read:
    """Return the runs in files and folders; one that cannot be read does not hide the others.

    Raises:
        DoctorError: there is none that can be read, or a configuration is among several logs.
    """
    found, failed = gather_runs([str(path) for path in paths])
    runs: list[Run] = []
    for source in found:
        try:
            runs += runs_of(source, request)
        except DoctorError as error:
            failed.append(error)
    if not runs:
        raise failed[0] if failed else DoctorError(f"{paths[0]}: no run is there")
    return Read(runs, failed)
