"""From a diagnosis to an exit code: what makes a run unhealthy fails a gate, and so do leading causes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.errors import ExitCode
from ppo_doctor.model import Severity

if TYPE_CHECKING:
    from ppo_doctor.model import Diagnosis, Problem, RankedCause

NEVER = "never"
FAIL_ON = ("critical", "high", "medium", "low", NEVER)


def exit_code(diagnosis: Diagnosis, fail_on: str = NEVER) -> ExitCode:
    """Return 1 for what is unhealthy or leads at or above `fail_on`, 4 for an inconclusive run under a gate, else 0.

    A leader that is level with a benign cause, or with health, is contested: its problem is inconclusive.
    """
    if fail_on == NEVER:
        return ExitCode.OK
    bound = Severity(fail_on)
    if diagnosis.verdict == "unhealthy" and any(makes_unhealthy(p, bound) for p in diagnosis.problems):
        return ExitCode.SICK
    contested = {problem.id for problem in diagnosis.problems if problem.verdict == "inconclusive"}
    if any(fails(cause, bound) and cause.problem not in contested for cause in diagnosis.causes):
        return ExitCode.SICK
    return ExitCode.INCONCLUSIVE if diagnosis.verdict == "inconclusive" else ExitCode.OK


def makes_unhealthy(problem: Problem, bound: Severity) -> bool:
    """Tell whether what a problem shows makes the run unhealthy, whatever its cause, and is severe enough."""
    return problem.verdict == "unhealthy" and problem.severity.at_least(bound)


def fails(cause: RankedCause, bound: Severity) -> bool:
    """Tell whether a cause is one that fails a gate: a leader, not benign, established or likely, severe enough."""
    return cause.leader and not cause.benign and cause.confidence != "suspected" and cause.severity.at_least(bound)
