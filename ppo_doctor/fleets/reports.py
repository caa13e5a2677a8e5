"""The HTML reports of the runs of a fleet, a file for each, which its page links."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.report import RenderOptions, render

if TYPE_CHECKING:
    from ppo_doctor.fleets.unit import Unit
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.run import Run


class ReportError(DoctorError):
    """The report of a run cannot be written."""


def report_name(fingerprint: str, run: str) -> str:
    """Return the name of the file with the report of a run, by its unit's fingerprint and its name in the table."""
    told = f"{fingerprint} {run}".encode("utf-8", "surrogateescape")
    return f"{blake2b(told, digest_size=10).hexdigest()}.html"


@dataclass(frozen=True, slots=True)
class Reports:
    """Writes the report of each run of a unit into a folder; without one it writes none."""

    unit: Unit
    folder: Path | None

    def write(self, run: Run, diagnosis: Diagnosis) -> None:
        """Write the report of a run, whole or not at all.

        Raises:
            ReportError: the folder cannot be written (exit code 2).
        """
        if self.folder is None:
            return
        path = self.folder / report_name(self.unit.fingerprint, run.id)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        text = render(diagnosis, run, RenderOptions(), "html")
        try:
            unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")
            unfinished.replace(path)
        except OSError as error:
            raise ReportError(f"{path}: cannot write: {error.strerror}", code=ExitCode.USAGE) from error
