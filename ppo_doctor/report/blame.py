"""Which causes a finding speaks for, and where in the log a cause shows: what reports for machines point at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.diagnose.gate_result import failing
from ppo_doctor.report.standings import weighed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppo_doctor.diagnose.gate_result import GateResult
    from ppo_doctor.model import Diagnosis, Evidence, Finding, RankedCause
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.story.model import Told


def gate_result_of(diagnosis: Diagnosis, options: RenderOptions) -> GateResult | None:
    """Return what the gate ruled about this run, None outside a gate."""
    return options.gate_results.get(diagnosis.run.id)


def suspects(diagnosis: Diagnosis, problem: Told) -> list[RankedCause]:
    """Return the cause that leads a problem, and those that cannot be told from it."""
    named = {why.cause for why in problem.why}
    return [cause for cause in diagnosis.causes if cause.id in named]


def supporters(diagnosis: Diagnosis, cause: RankedCause) -> list[Finding]:
    """Return the fired findings that speak for a cause, the weightiest first."""
    fired = {finding.rule: finding for finding in diagnosis.findings if finding.status == "fired"}
    return [fired[entry.finding] for entry in weighed(cause) if entry.db > 0 and entry.finding in fired]


def blamed(diagnosis: Diagnosis, result: GateResult | None) -> dict[str, list[RankedCause]]:
    """Return, for each fired rule that speaks for a failing cause, those causes."""
    found: dict[str, list[RankedCause]] = {}
    for cause in failing(diagnosis, result):
        for finding in supporters(diagnosis, cause):
            found.setdefault(finding.rule, []).append(cause)
    return found


def located(findings: list[Finding]) -> Evidence | None:
    """Return the first evidence that stands at a place in a log."""
    return next(_placed(findings), None)


def _placed(findings: list[Finding]) -> Iterator[Evidence]:
    return (evidence for finding in findings for evidence in finding.evidence if evidence.source)


def leaders(diagnosis: Diagnosis, *, benign: bool = False) -> list[RankedCause]:
    """Return the leading causes, faults only unless harmless explanations are asked for."""
    return [cause for cause in diagnosis.causes if cause.leader and cause.benign <= benign]
