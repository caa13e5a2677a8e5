"""What a log shows, problem by problem: findings of one link that belong together, with the causes that explain them.

A problem is shown by its findings whether or not a cause is known. A suspicion without a finding is no problem: it
stands under what became of the reward, if that went wrong, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor.diagnose.chain import follows
from ppo_doctor.diagnose.problems import STANDING
from ppo_doctor.evidence import gone
from ppo_doctor.model import Problem, Severity

if TYPE_CHECKING:
    from ppo_doctor.diagnose.problems import Group
    from ppo_doctor.model import Break, ChainLink, Finding, LinkState, Outcome, RankedCause, Verdict

#: Verdicts, the gravest first.
GRAVEST: tuple[Verdict, ...] = ("unhealthy", "warning", "inconclusive", "healthy")
#: States of a link that are how a problem breaks it.
SHOWN: Mapping[LinkState, Break] = {"dead": "dead", "wrong": "wrong", "weak": "weak"}
#: Complaints of a run that goes wrong by and by.
COURSES = ("policy-degenerates", "steps-too-large", "proxy-diverges")
#: What became of a reward that is a problem by itself, and how grave it is.
GONE: Mapping[str, Severity] = {"lost": Severity.CRITICAL, "fell": Severity.HIGH}
#: Checks of a reward that falls, and one that says that it does not.
OF_A_FALL = frozenset(
    (
        *("reward-declines", "reward-below-its-start", "reward-collapses-late", "reward-gone"),
        "reward-falls-as-policy-moves",
    )
)
OF_A_LEVEL = frozenset({"moves-without-gain"})
#: What became of a reward that is no problem by itself, and that suspicions explain.
STOOD = ("flat", "never_earned")
#: The link of a reward that was lost, and what its problem is called in reports for machines.
REWARDS, OUTCOME = "rewards", "outcome"


def problems_shown(
    groups: Sequence[Group], findings: Iterable[Finding], outcome: Outcome, links: Sequence[ChainLink]
) -> tuple[Problem, ...]:
    """Return the problems in the order in which they are told: what is sure or critical first, then by severity."""
    excused = frozenset(rule for group in groups if group.verdict == "healthy" for rule in group.openers)
    excused |= OF_A_LEVEL if outcome.what in GONE else frozenset()
    fired = {f.rule: f for f in findings if f.status == "fired" and f.rule not in excused}
    grave = {name: f for name, f in fired.items() if f.severity.at_least(Severity.MEDIUM)}
    led = [group for group in groups if any(c.leader and not c.benign for c in group.causes)]
    told = [(group, _own(group, fired, grave)) for group in led]
    kept = [(group, own) for group, own in told if group.firm or any(f.rule in grave for f in own)]
    named = {finding.rule for _, own in kept for finding in own}
    made = _joined([_of_group(group, own, links) for group, own in kept])
    made += _unexplained([f for name, f in grave.items() if name not in named], links)
    loose = [group for group in led if all(group is not other for other, _ in kept)]
    if outcome.what in GONE:
        loose = [group for group in loose if group.complaint not in STANDING]  # what stands still does not fall
        made = _with_outcome(made, outcome, loose, links)
    elif outcome.what in STOOD and loose:
        made.append(_of_outcome(outcome, [], loose, links))
    firm = {group.id for group, _ in kept if group.firm}
    ordered = sorted(made, key=lambda p: _place(p, firm))
    return tuple(replace(problem, id=f"p{number}") for number, problem in enumerate(ordered, start=1))


def _joined(problems: Sequence[Problem]) -> list[Problem]:
    """Return problems, those that the same finding shows as one: its causes explain one thing."""
    by_first: dict[str, Problem] = {}
    for problem in problems:
        name = problem.findings[0] if problem.findings else problem.id
        first = by_first.get(name)
        if first is None:
            by_first[name] = problem
        else:
            by_first[name] = replace(
                first,
                causes=(*first.causes, *problem.causes),
                openers=tuple(dict.fromkeys((*first.openers, *problem.openers))),
                findings=tuple(dict.fromkeys((*first.findings, *problem.findings))),
                severity=min(first.severity, problem.severity, key=lambda severity: severity.rank),
                verdict=min(first.verdict, problem.verdict, key=GRAVEST.index),
            )
    return list(by_first.values())


def _place(problem: Problem, firm: set[str]) -> tuple[bool, int]:
    """Return the order: a grave fault with its cause, for it may be why the reward was lost, and so on downwards."""
    known, grave = problem.id in firm, problem.severity.at_least(Severity.HIGH)
    sure = known or problem.severity is Severity.CRITICAL
    return not sure, int(not (known and grave)) if sure else problem.severity.rank


def _own(group: Group, fired: Mapping[str, Finding], grave: Mapping[str, Finding]) -> list[Finding]:
    """Return the findings that the leading causes of a problem account for, the gravest and weightiest first.

    What is of low severity shows a problem only where nothing graver does. Of two alike the cause's account has one
    first.
    """
    ledger = _lead(group).ledger
    weights = {line.finding: line.db for line in ledger}
    order = {line.finding: place for place, line in enumerate(ledger)}
    ours = [fired[name] for name in group.openers if name in fired]
    loud = [finding for finding in ours if finding.rule in grave]
    return sorted(loud or ours, key=lambda f: (f.severity.rank, -weights.get(f.rule, 0), order.get(f.rule, len(order))))


def _lead(group: Group) -> RankedCause:
    return next(cause for cause in group.causes if cause.leader and not cause.benign)


def _of_group(group: Group, own: Sequence[Finding], links: Sequence[ChainLink]) -> Problem:
    leading = [cause for cause in group.causes if cause.leader]
    proven = any(cause.confidence == "established" for cause in leading)
    onsets = [cause.onset_step for cause in leading if cause.onset_step is not None]
    lead = _lead(group)
    severity = lead.severity if group.firm or not own else own[0].severity
    return Problem(
        id=group.id,
        title=own[0].title if own else lead.title,
        link=group.link,
        state=_break(group.link, links, group.complaint, proven=proven),
        severity=severity,
        complaint=group.complaint,
        leader=group.leader.id,
        causes=tuple(cause.id for cause in group.causes),
        openers=group.openers,
        findings=tuple(finding.rule for finding in own),
        verdict=group.verdict,
        since_step=min(onsets, default=None),
        proven=proven,
        follows=follows(links, group.link),
    )


def _unexplained(rest: Sequence[Finding], links: Sequence[ChainLink]) -> list[Problem]:
    """Return a problem for each link of which something grave is shown that no leading cause explains."""
    by_link: dict[str, list[Finding]] = {}
    for finding in sorted(rest, key=lambda f: f.severity.rank):
        by_link.setdefault(finding.link, []).append(finding)
    return [_without_cause(link, found, links) for link, found in by_link.items()]


def _without_cause(link: str, found: Sequence[Finding], links: Sequence[ChainLink]) -> Problem:
    onsets = [finding.onset_step for finding in found if finding.onset_step is not None]
    severity = found[0].severity
    return Problem(
        id=f"f-{found[0].rule}",
        title=found[0].title,
        link=link,
        state=_break(link, links, "", proven=False),
        severity=severity,
        findings=tuple(finding.rule for finding in found),
        verdict="unhealthy" if severity is Severity.CRITICAL else "warning",
        since_step=min(onsets, default=None),
    )


def _with_outcome(
    made: Sequence[Problem],
    outcome: Outcome,
    loose: Sequence[Group],
    links: Sequence[ChainLink],
) -> list[Problem]:
    """Return the problems with that of a lost reward, which takes the place of those that its fall shows."""
    ours = [problem for problem in made if problem.findings and OF_A_FALL.issuperset(problem.findings)]
    return [_of_outcome(outcome, ours, loose, links), *(problem for problem in made if problem not in ours)]


def _of_outcome(
    outcome: Outcome, ours: Sequence[Problem], loose: Sequence[Group], links: Sequence[ChainLink]
) -> Problem:
    """Return what became of the reward as a problem, with the causes of others and suspicions that explain it."""
    led = next((problem for problem in ours if problem.leader), None)
    causes = [name for problem in ours for name in problem.causes]
    causes += [cause.id for group in loose for cause in group.causes if cause.leader and not cause.benign]
    return Problem(
        id=OUTCOME,
        title=gone(outcome),
        link=REWARDS,
        state="course",
        severity=GONE.get(outcome.what, Severity.LOW),
        complaint=led.complaint if led is not None else "",
        leader=led.leader if led is not None else next(iter(causes), ""),
        causes=tuple(dict.fromkeys(causes)),
        openers=tuple(dict.fromkeys(name for problem in ours for name in problem.openers)),
        findings=tuple(dict.fromkeys(name for problem in ours for name in problem.findings)),
        verdict="unhealthy" if outcome.what in GONE else "inconclusive",
        since_step=outcome.since_step,
        follows=follows(links, REWARDS),
    )


def _break(link: str, links: Sequence[ChainLink], complaint: str, *, proven: bool) -> Break:
    """Return how a link is broken: what the chain shows of it, else what its causes do to it."""
    if link == "configuration":
        return "configuration"
    for entry in links:
        if entry.link == link and (shown := SHOWN.get(entry.state)):
            return shown
    if complaint in STANDING:
        return "dead" if proven else "weak"
    return "course" if complaint in COURSES else "wrong"
