"""Is the run broken? Told from what is shown and from what became of the reward, apart from the question why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ppo_doctor.diagnose.problems import named
from ppo_doctor.diagnose.shown import GRAVEST
from ppo_doctor.evidence import became
from ppo_doctor.model import ASKED, CHAIN, LEFT_OPEN, QUESTIONS, Severity

if TYPE_CHECKING:
    from ppo_doctor.diagnose.problems import Group
    from ppo_doctor.model import ChainLink, Coverage, Finding, Outcome, Problem, Verdict
    from ppo_doctor.rulepack import Pack

#: A check that sound runs answer with yes less often than this tells that something is wrong, whatever the why.
SELDOM = 0.02
#: Where one of these links is dead, nothing is learnt; a ratio that stands still leaves a policy gradient.
PATH = frozenset(CHAIN) - {"ratio"}
#: What is so from within this share of a run on is so from its start: what is logged per update begins later.
EARLY = 0.1


def verdict(
    problems: Sequence[Problem],
    outcome: Outcome,
    coverage: Coverage,
    links: Sequence[ChainLink],
    steps: tuple[int, int] | None = None,
) -> tuple[Verdict, str]:
    """Return the verdict, and why; `steps` are the first and the last of the run."""
    worst = min((_weighed(problem, outcome, steps) for problem in problems), key=GRAVEST.index, default=None)
    dead = next((link for link in links if link.state == "dead" and link.entailed_by is None), None)
    stands = dead is not None and dead.link in PATH and not outcome.clear
    if worst in ("unhealthy", "warning"):
        return ("unhealthy" if stands else worst), problems[0].title
    if dead is not None and stands and worst is None:
        return "unhealthy", f"nothing gets past {dead.link}: {dead.witness}"
    if worst == "inconclusive":
        return "inconclusive", problems[0].title
    if dead is not None:
        return "inconclusive", f"no cause is named, but something is wrong at {dead.link}: {dead.witness}"
    if coverage.failed:
        return "inconclusive", f"nothing found, but {' and '.join(coverage.failed)} failed to run"
    if outcome.sound:
        return "healthy", became(outcome)
    return "inconclusive", _open(coverage, outcome)


def _weighed(problem: Problem, outcome: Outcome, steps: tuple[int, int] | None) -> Verdict:
    """Return what a problem makes of the run.

    Where the reward clearly rose, what stands still did not stop it; but where it is proven, critical and so from the
    start, what rose is scatter. A critical finding says that the run is broken, however unsure its cause, unless it
    rose.
    """
    critical = problem.severity is Severity.CRITICAL
    if not outcome.clear:
        return "unhealthy" if critical and problem.verdict == "warning" else problem.verdict
    stood = problem.state in ("dead", "weak") and problem.link in PATH
    never = critical and problem.proven and _from_the_start(problem, steps)
    return "warning" if stood and not never and problem.verdict == "unhealthy" else problem.verdict


def _from_the_start(problem: Problem, steps: tuple[int, int] | None) -> bool:
    if problem.since_step is None or steps is None:
        return False
    first, last = steps
    return problem.since_step <= first + EARLY * (last - first)


def _open(coverage: Coverage, outcome: Outcome) -> str:
    """Return why nothing is said of a run in which nothing was found."""
    unanswered = [ASKED[question] for question in QUESTIONS if not getattr(coverage, question)]
    if unanswered:
        return f"{LEFT_OPEN} {', nor '.join(unanswered)}"
    return f"nothing found, but the log does not show that the policy learns: {became(outcome)}"


def unexplained(findings: Sequence[Finding], pack: Pack, told: Sequence[Group]) -> Finding | None:
    """Return the gravest check that answers yes, which sound runs hardly ever do, and that no cause accounts for."""
    spoken = named(told)
    fired = [finding for finding in findings if finding.status == "fired"]
    seldom = [f for f in fired if f.rule not in spoken and pack.rates.get(f.rule, 1.0) < SELDOM]
    loud = [f for f in seldom if pack.by_name[f.rule].severity.at_least(Severity.HIGH)]
    return min(loud, key=lambda finding: finding.severity.rank, default=None)
