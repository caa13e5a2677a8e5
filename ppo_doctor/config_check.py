"""Training configurations checked before anything is trained, as linters do: a line per finding, and an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.config_runs import known_settings, run_of_settings
from ppo_doctor.derive import Observations
from ppo_doctor.engine import check
from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.evidence import says
from ppo_doctor.judgement import NEVER
from ppo_doctor.model import Severity
from ppo_doctor.reading import Request

if TYPE_CHECKING:
    from ppo_doctor.model import Finding
    from ppo_doctor.rulepack import Pack


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was found in one configuration; `known` is how many of its settings we know, `why` why it is none."""

    path: Path
    known: int
    findings: tuple[Finding, ...] = ()
    why: str = ""

    def code(self, fail_on: str) -> ExitCode:
        """Return 1 for a finding at or above `fail_on`; here a finding does fail, for there is no run to lead in."""
        if fail_on == NEVER:
            return ExitCode.OK
        bound = Severity(fail_on)
        sick = any(f.status == "fired" and f.severity.at_least(bound) for f in self.findings)
        return ExitCode.SICK if sick else ExitCode.OK

    def lines(self) -> list[str]:
        """Return one line per finding that fired, and one when there was nothing to check."""
        fired = [finding for finding in self.findings if finding.status == "fired"]
        told = [f"{self._place(f)}: {f.severity}: {f.title}: {says(f)} ({f.rule})" for f in fired]
        return told or ([] if self.known else [self.why])

    def _place(self, finding: Finding) -> str:
        return next((str(e.source) for e in finding.evidence if e.source is not None), str(self.path))


def check_config(path: Path, pack: Pack, framework: str | None = None) -> Checked:
    """Check one configuration file.

    Raises:
        DoctorError: it cannot be read, or there is no such framework (exit code 2).
    """
    try:
        run = run_of_settings(path, Request(configs=(path,), framework=framework))
    except DoctorError as error:
        if error.code != ExitCode.NOTHING_TO_JUDGE:
            raise
        return Checked(path=path, known=0, why=error.message)
    observations = Observations(run)
    findings = tuple(check(observations, rule) for rule in pack.rules)
    return Checked(path=path, known=known_settings(run.config.values()), findings=findings)


def worst_code(checked: Sequence[Checked], fail_on: str) -> ExitCode:
    """Return the exit code over several configurations."""
    return max((entry.code(fail_on) for entry in checked), default=ExitCode.OK)
