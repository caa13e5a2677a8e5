"""A training configuration checked before anything is trained: the rules that need nothing but settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.config_files import read_config
from ppo_doctor.configuration import canonical_settings, configured_updates
from ppo_doctor.derive import Observations
from ppo_doctor.engine import check
from ppo_doctor.errors import ExitCode
from ppo_doctor.evidence import says
from ppo_doctor.frameworks import profile, profiles
from ppo_doctor.judgement import NEVER
from ppo_doctor.model import Fact, Run, Severity, SourceSummary

if TYPE_CHECKING:
    from ppo_doctor.configuration import Found
    from ppo_doctor.frameworks import Profile
    from ppo_doctor.model import Finding
    from ppo_doctor.rulepack import Pack


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was found in one configuration; `known` is how many of its settings we know."""

    path: Path
    framework: str
    known: int
    findings: tuple[Finding, ...]

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
        told = [f"{self.path}: {f.severity}: {f.title}: {says(f)} ({f.rule})" for f in fired]
        return told or ([] if self.known else [f"{self.path}: no setting that we know ({self.framework})"])


def check_config(path: Path, pack: Pack, framework: str | None = None) -> Checked:
    """Check one configuration file.

    Raises:
        DoctorError: it cannot be read, or there is no such framework (exit code 2).
    """
    found = read_config(path)
    spec = profile(framework) if framework else _likeliest(found)
    run = _run(path, found, spec)
    observations = Observations(run)
    rules = [rule for rule in pack.rules if rule.needs and not any(need.startswith("series.") for need in rule.needs)]
    findings = tuple(check(observations, rule) for rule in rules)
    known = sum(setting.how == "configured" for setting in run.config.values())
    return Checked(path=path, framework=spec.name, known=known, findings=findings)


def _run(path: Path, found: Found, spec: Profile) -> Run:
    settings = canonical_settings(spec, [found])
    facts = {name: Fact(name=name, value=value, how="default") for name, value in spec.facts.items()}
    configured = configured_updates(spec, settings)
    return Run(
        id=str(path),
        framework=spec.name,
        algorithm=spec.algorithm,
        sources=(SourceSummary(path=str(path), container="configuration", records=0),),
        series={},
        facts=facts | ({configured.name: configured} if configured else {}),
        config=settings,
        config_raw=found.values,
    )


def _likeliest(found: Found) -> Profile:
    """Return the framework whose settings the file holds most of, the canonical one unless one stands out."""
    scores = {name: _known(spec, found) for name, spec in profiles().items() if spec.ppo_family}
    best = max(scores.values(), default=0)
    first = [name for name, score in scores.items() if score == best]
    return profile(first[0] if best and len(first) == 1 else "canonical")


def _known(spec: Profile, found: Found) -> int:
    return sum(any(key in found.values for key in keys) for keys in spec.config.values())


def worst_code(checked: Sequence[Checked], fail_on: str) -> ExitCode:
    """Return the exit code over several configurations."""
    return max((entry.code(fail_on) for entry in checked), default=ExitCode.OK)
