"""Problems: causes that compete to explain one complaint, in order, each with its confidence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor.diagnose.accounts import account
from ppo_doctor.metrics import METRICS, loggable
from ppo_doctor.model import CONFIDENCES, Measurement, OpenComplaint, RankedCause, Severity
from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from ppo_doctor.diagnose.accounts import Account
    from ppo_doctor.model import Cause, Confidence, Finding, Verdict

#: A cause is spoken of from this score on, and is likely from there: decibans against a sound run.
SPEAKS_DB, LIKELY_DB = 0, 9
#: What no log can prove has to be this likely to be spoken of.
UNPROVABLE_DB = 2
#: What stands so near to the leader of its problem is level with it.
LEVEL_DB = 4
#: Causes printed for a problem, and measurements asked for.
LONGEST_LIST, MOST_ASKED = 5, 3


@frozen
class Problem:
    """A complaint with the causes that explain it, best first; those that lead cannot be told apart."""

    id: str
    causes: tuple[RankedCause, ...]
    openers: tuple[str, ...]

    @property
    def leader(self) -> RankedCause:
        """The first of the causes."""
        return self.causes[0]

    @property
    def verdict(self) -> Verdict:
        """What this problem makes of the run."""
        leading = [cause for cause in self.causes if cause.leader]  # none, beside a surer problem
        if all(cause.benign for cause in leading):
            return "healthy"
        if any(cause.benign for cause in leading):
            return "inconclusive"
        grave = any(c.confidence != "suspected" and c.severity.at_least(Severity.HIGH) for c in leading)
        return "unhealthy" if grave else "warning"

    def open(self, titles: Mapping[str, str]) -> OpenComplaint:
        """Return the problem as reports show it."""
        title = titles.get(self.id, self.id)
        return OpenComplaint(
            id=self.id,
            title=title,
            openers=self.openers,
            leader=self.leader.id,
            verdict=self.verdict,
        )


def problems(causes: Iterable[Cause], findings: Sequence[Finding], *, planned: bool = False) -> tuple[Problem, ...]:
    """Return the problems that findings show, of causes that such a run can have: proven first, then by score.

    Of a run that is only `planned`, a configuration without a log, what is not proven is a suspicion.
    """
    by_rule = {finding.rule: finding for finding in findings}
    groups: dict[str, list[Account]] = {}
    for cause in causes:
        told = account(cause, by_rule)
        if told is not None and _speaks(told):
            groups.setdefault(cause.complaints[0], []).append(told)
    likely = math.inf if planned else LIKELY_DB
    found = [_problem(name, sorted(group, key=_place), by_rule, likely) for name, group in groups.items()]
    return _beside_each_other(sorted(found, key=_rank))


def _speaks(entry: Account) -> bool:
    least = UNPROVABLE_DB if entry.cause.never_proven else SPEAKS_DB
    return bool(entry.support) and (entry.proven or entry.score >= least)


def _rank(problem: Problem) -> tuple[bool, int, int]:
    leader = problem.leader
    return leader.benign, CONFIDENCES.index(leader.confidence), -leader.score_db


def _beside_each_other(found: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return problems; beside a fault that is established or likely no suspicion leads, and nothing harmless."""
    firm = [problem for problem in found if not problem.leader.benign and problem.leader.confidence != "suspected"]
    return tuple(p if not firm or p in firm else _without_leaders(p) for p in found)


def _without_leaders(problem: Problem) -> Problem:
    return replace(problem, causes=tuple(replace(c, leader=False, level_with=()) for c in problem.causes), openers=())


def _place(entry: Account) -> tuple[int, int, int, int, int, str]:
    """Return the order within a problem; of two alike the one that is met in more ways comes first."""
    return (
        not entry.proven,
        entry.cause.never_proven,
        -entry.score,
        entry.cause.severity.rank,
        -len(entry.cause.remedies),
        entry.cause.id,
    )


def _problem(name: str, accounts: Sequence[Account], findings: Mapping[str, Finding], likely: float) -> Problem:
    level = [entry for entry in accounts if _level(entry, accounts[0])]
    shown = [*level, *(entry for entry in accounts if entry not in level)][:LONGEST_LIST]
    sure = {entry.cause.id: _confidence(entry, level, likely) for entry in shown}
    causes = tuple(_ranked(entry, name, level, sure[entry.cause.id], accounts, findings) for entry in shown)
    openers = tuple(sorted(frozenset().union(*(entry.support for entry in level))))
    return Problem(id=name, causes=causes, openers=openers)


def _level(entry: Account, first: Account) -> bool:
    """Tell whether a cause cannot be told from the leader: as sure, and near; or a declared twin as sure."""
    near = first.score - entry.score <= LEVEL_DB
    alike = (entry.proven, entry.cause.never_proven) == (first.proven, first.cause.never_proven)
    return alike and (near or entry.cause.id in first.cause.twins)


def _confidence(entry: Account, level: Sequence[Account], likely: float) -> Confidence:
    if entry not in level:
        return "suspected"
    if entry.proven:
        return "established"
    return "likely" if entry.score >= likely and not entry.cause.never_proven else "suspected"


def _ranked(
    entry: Account,
    problem: str,
    level: Sequence[Account],
    sure: Confidence,
    accounts: Sequence[Account],
    findings: Mapping[str, Finding],
) -> RankedCause:
    cause, leads = entry.cause, entry in level
    onsets = [line.finding.onset_step for line in entry.lines if line.db > 0 and line.finding.status == "fired"]
    return RankedCause(
        id=cause.id,
        rank=0,
        title=cause.title,
        family=cause.family,
        severity=cause.severity,
        benign=cause.benign,
        confidence=sure,
        score_db=entry.score,
        prior_db=cause.prior,
        complaint=problem,
        says=cause.says,
        level_with=tuple(other.cause.id for other in level if other is not entry) if leads else (),
        onset_step=min((step for step in onsets if step is not None), default=None),
        ledger=entry.ledger,
        remedies=cause.remedies,
        would_change_my_mind=_asked(level if leads else [entry], accounts, findings),
        leader=leads,
    )


def in_order(found: Sequence[Problem]) -> tuple[RankedCause, ...]:
    """Return the causes of all problems: what leads, problem by problem, then their rivals by score."""
    leaders = [cause for problem in found for cause in problem.causes if cause.leader]
    rivals = [cause for problem in found for cause in problem.causes if not cause.leader]
    heads = {id(problem.leader) for problem in found}
    first = sorted(leaders, key=lambda cause: (cause.benign, id(cause) not in heads))
    ordered = [*first, *sorted(rivals, key=lambda cause: -cause.score_db)]
    return tuple(replace(cause, rank=rank) for rank, cause in enumerate(ordered, start=1))


def _asked(
    level: Sequence[Account], accounts: Sequence[Account], findings: Mapping[str, Finding]
) -> tuple[Measurement, ...]:
    """Return what to log: what the level causes ask for, then what would answer the heaviest unanswered checks."""
    named = [measure for entry in level for measure in entry.cause.measure]
    heaviest: dict[str, int] = {}
    for entry in accounts[:LONGEST_LIST]:
        for weight in entry.cause.weights:
            if _could_be_logged(findings.get(weight.finding)):
                size = max(abs(weight.fired), abs(weight.clear))
                heaviest[weight.finding] = max(heaviest.get(weight.finding, 0), size)
    skipped = sorted(heaviest, key=lambda name: (-heaviest[name], name))
    asked = [*named, *(_measurement(findings[name]) for name in skipped)]
    return tuple({measure.log: measure for measure in reversed(asked)}.values())[::-1][:MOST_ASKED]


def _could_be_logged(finding: Finding | None) -> bool:
    return (
        finding is not None
        and finding.status == "skipped"
        and bool(finding.missing)
        and all(map(loggable, finding.missing))
    )


def _measurement(finding: Finding) -> Measurement:
    metrics = [name for name in finding.missing if name in METRICS]
    settings = [f"--set {name}=…" for name in finding.missing if name not in METRICS]
    log = ", and tell ".join(part for part in (", ".join(metrics), " ".join(settings)) if part)
    return Measurement(log=log, because=f"it would decide {finding.rule}: {finding.title}")


def named(found: Iterable[Problem]) -> frozenset[str]:
    """Return the checks that some leading cause accounts for."""
    return frozenset(name for problem in found for name in problem.openers)
