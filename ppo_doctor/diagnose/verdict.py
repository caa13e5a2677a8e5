"""Is the run broken? Asked of facts first, and apart from the question why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ppo_doctor.diagnose.problems import RISES, named
from ppo_doctor.model import ASKED, CHAIN, LEFT_OPEN, QUESTIONS, Severity

if TYPE_CHECKING:
    from ppo_doctor.diagnose.problems import Group
    from ppo_doctor.model import ChainLink, Coverage, Finding, Verdict
    from ppo_doctor.rulepack import Pack

#: The gravest first.
GRAVEST: tuple[Verdict, ...] = ("unhealthy", "warning", "inconclusive", "healthy")
#: A check that sound runs answer with yes less often than this tells that something is wrong, whatever the why.
SELDOM = 0.02
#: Where one of these links is dead, nothing is learnt; a ratio that stands still leaves a policy gradient.
PATH = frozenset(CHAIN) - {"ratio"}
#: A reward that neither rose nor was at its best leaves open whether anything was learned.
STAYED, BEST = "reward-level", "reward-at-ceiling"


def verdict(
    found: Sequence[Group],
    coverage: Coverage,
    links: Sequence[ChainLink],
    pack: Pack,
    findings: Sequence[Finding],
) -> tuple[Verdict, str]:
    """Return the verdict, and why."""
    worst = min(found, key=lambda p: GRAVEST.index(p.verdict), default=None)
    dead = next((link for link in links if link.state == "dead" and link.entailed_by is None), None)
    stands = dead is not None and dead.link in PATH
    if worst is not None and worst.verdict in ("unhealthy", "warning"):
        return "unhealthy" if stands else worst.verdict, _leading(worst)
    if dead is not None and stands and not found:
        return "unhealthy", f"nothing gets past {dead.link}: {dead.witness}"
    odd = unexplained(findings, pack, named(found))
    if odd is not None:
        learns = any(finding.rule == RISES and finding.status == "fired" for finding in findings)
        mild = learns and odd.severity is not Severity.CRITICAL  # it does not say that nothing is learnt
        return "inconclusive" if mild else "warning", f"{odd.title}, and no known cause explains it"
    if worst is not None and worst.verdict == "inconclusive":
        return "inconclusive", f"the log cannot tell a fault from a harmless explanation: {_leading(worst)}"
    if dead is not None:
        return "inconclusive", f"no cause is named, but something is wrong at {dead.link}: {dead.witness}"
    open_question = _open(coverage, {finding.rule: finding for finding in findings})
    if open_question:
        return "inconclusive", open_question
    return "healthy", _leading(found[0]) if found else _nothing(findings)


def _leading(problem: Group) -> str:
    return "; or: ".join(cause.title for cause in problem.causes if cause.leader)


def unexplained(findings: Sequence[Finding], pack: Pack, told: frozenset[str]) -> Finding | None:
    """Return the gravest check that answers yes, which sound runs hardly ever do, and that no cause accounts for."""
    fired = [finding for finding in findings if finding.status == "fired"]
    seldom = [f for f in fired if f.rule not in told and pack.rates.get(f.rule, 1.0) < SELDOM]
    loud = [f for f in seldom if pack.by_name[f.rule].severity.at_least(Severity.HIGH)]
    return min(loud, key=lambda finding: finding.severity.rank, default=None)


def _open(coverage: Coverage, findings: Mapping[str, Finding]) -> str:
    """Return what keeps a run without a problem from being called healthy, or nothing."""
    if coverage.failed:
        return f"nothing found, but {' and '.join(coverage.failed)} failed to run"
    if not coverage.complete:
        unanswered = [ASKED[question] for question in QUESTIONS if not getattr(coverage, question)]
        return f"{LEFT_OPEN} {', nor '.join(unanswered)}"
    told = {name for name in (STAYED, BEST, RISES) if name in findings and findings[name].status == "fired"}
    if told == {STAYED}:
        return "nothing found, but the reward does not rise: the log does not show whether the policy learns"
    return ""


def _nothing(findings: Sequence[Finding]) -> str:
    """Say that no cause was found, and the worst of what was seen without one, from medium severity on."""
    seen = [f for f in findings if f.status == "fired" and f.severity.at_least(Severity.MEDIUM)]
    if not seen:
        return "every question was asked and nothing was found"
    worst = min(seen, key=lambda finding: finding.severity.rank)
    return f"no fault was found; noted: {worst.title}"
