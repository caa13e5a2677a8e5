"""Training configurations checked before anything is trained, as linters do: a line per finding, and an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.config_runs import known_settings, run_of_settings
from ppo_doctor.derive import Observations
from ppo_doctor.derive.domains import judged
from ppo_doctor.engine import check
from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.evidence import says, sentence
from ppo_doctor.judgement import NEVER
from ppo_doctor.model import Severity
from ppo_doctor.reading import Request

if TYPE_CHECKING:
    from ppo_doctor.model import Finding
    from ppo_doctor.rulepack import Pack


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was found in one configuration; `known` is how many of its settings we know, `why` why it is none.

    `judged` are the keys of those that were held against what is impossible, pointless and unusual.
    """

    path: Path
    known: int
    framework: str = ""
    judged: tuple[str, ...] = ()
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
        """Return one line for each place that a finding names.

        Where none says more than what is so, another tells what was checked, or why nothing was.
        """
        fired = [finding for finding in self.findings if finding.status == "fired"]
        told = [
            f"{place}: {f.severity}: {f.title}: {words} ({f.rule})" for f in fired for place, words in self._told(f)
        ]
        if any(finding.severity != "info" for finding in fired):
            return told
        return [*told, self._clean() if self.known else self.why]

    def _told(self, finding: Finding) -> list[tuple[str, str]]:
        """Return the places of a finding with what is said of each; what is said of one place is one sentence."""
        places = list(dict.fromkeys(str(e.source) for e in finding.evidence if e.source is not None))
        if len(places) < 2:
            return [(places[0] if places else str(self.path), says(finding))]
        return [(str(e.source or self.path), sentence(e)) for e in finding.evidence]

    def _clean(self) -> str:
        if not self.judged:
            return f"{self.path}: nothing found; none of its settings has a range that we know"
        against = "nothing impossible, pointless or unusual"
        return f"{self.path}: {against} in {len(self.judged)} settings of {self.framework}: {', '.join(self.judged)}"


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
    return Checked(
        path=path,
        known=known_settings(run.config.values()),
        framework=run.framework,
        judged=tuple(setting.key for setting in judged(observations)),
        findings=findings,
    )


def worst_code(checked: Sequence[Checked], fail_on: str) -> ExitCode:
    """Return the exit code over several configurations."""
    return max((entry.code(fail_on) for entry in checked), default=ExitCode.OK)
