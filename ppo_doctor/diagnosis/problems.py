"""The problems of a run, the verdict that follows from them, and the share of samples that a problem wastes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ppo_doctor.diagnosis.causes import STANDING
from ppo_doctor.diagnosis.chain import links_killed_by
from ppo_doctor.model.arrays import finite_of, mean_of
from ppo_doctor.model.diagnosis import Cost, Problem
from ppo_doctor.model.evidence import UNREWARDED, became, gone
from ppo_doctor.model.words import ASKED, CHAIN, QUESTIONS, Severity

if TYPE_CHECKING:
    from ppo_doctor.diagnosis.causes import CauseGroup
    from ppo_doctor.model.diagnosis import ChainLink, Coverage, Outcome, RankedCause
    from ppo_doctor.model.rules import Finding
    from ppo_doctor.model.run import Run
    from ppo_doctor.model.words import Break, LinkState, Verdict

#: Verdicts, the most severe first.
GRAVEST: tuple[Verdict, ...] = ("unhealthy", "warning", "inconclusive", "healthy")
#: State of a link → how a problem in it breaks it.
SHOWN: Mapping[LinkState, Break] = {"dead": "dead", "wrong": "wrong", "weak": "weak"}
#: Complaints of a run that gets worse gradually.
COURSES = ("policy-degenerates", "steps-too-large", "proxy-diverges")
#: Outcome of the reward that is a problem by itself → its severity.
GONE: Mapping[str, Severity] = {"lost": Severity.CRITICAL, "fell": Severity.HIGH}
#: Checks that report a falling reward; a lost reward includes their problems.
OF_A_FALL = frozenset(
    (
        *("reward-declines", "reward-below-its-start", "reward-collapses-late", "reward-gone"),
        "reward-falls-as-policy-moves",
    )
)
#: A check that reports a reward that stays level, which is not reported where the reward fell.
OF_A_LEVEL = frozenset({"moves-without-gain"})
#: Outcomes of the reward that are a problem only if a cause is suspected.
STOOD = ("flat", "never_earned")
#: The link of the problem of a lost reward, and its id before problems are numbered.
REWARDS, OUTCOME = "rewards", "outcome"
#: If one of these links is dead, nothing is learned; without a ratio there is still a policy gradient.
PATH = frozenset(CHAIN) - {"ratio"}
#: An onset within this share of the run counts as its start, because metrics of updates are logged from later on.
EARLY = 0.1
EQUAL, CUT, CLIPPED = "generations without a gradient", "completions that were cut", "samples that were clipped"
_FLAT = "frac_reward_zero_std"
#: Check → the metric whose mean over the run is the wasted share, and what it is a share of.
COSTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    dict.fromkeys(("groups-mostly-flat", "groups-alike-at-first", "advantages-all-zero"), (_FLAT, EQUAL))
    | dict.fromkeys(("most-completions-cut", "completions-grow-into-limit"), ("truncated_fraction", CUT))
    | dict.fromkeys(("clipped-much", "clipped-from-the-start", "first-update-clipped"), ("clip_fraction", CLIPPED))
)


def problems(
    groups: Sequence[CauseGroup], findings: Iterable[Finding], outcome: Outcome, links: Sequence[ChainLink]
) -> tuple[Problem, ...]:
    """Return the problems in the order of reports: sure or critical ones first, then by severity."""
    excused = frozenset(rule for group in groups if group.verdict == "healthy" for rule in group.openers)
    excused |= OF_A_LEVEL if outcome.what in GONE else frozenset()
    fired = {f.rule: f for f in findings if f.status == "fired" and f.rule not in excused}
    grave = {name: f for name, f in fired.items() if f.severity.at_least(Severity.MEDIUM)}
    led = [group for group in groups if any(c.leader and not c.benign for c in group.causes)]
    with_findings = [(group, _own_findings(group, fired, grave)) for group in led]
    kept = [(group, own) for group, own in with_findings if group.firm or any(f.rule in grave for f in own)]
    explained = {finding.rule for _, own in kept for finding in own}
    made = _joined([_problem_of_group(group, own, links) for group, own in kept])
    made += _problems_without_cause([f for name, f in grave.items() if name not in explained], links)
    loose = [group for group in led if all(group is not other for other, _ in kept)]
    if outcome.what in GONE:
        # A policy that does not move cannot be why the reward fell.
        loose = [group for group in loose if group.complaint not in STANDING]
        falls = [problem for problem in made if problem.findings and OF_A_FALL.issuperset(problem.findings)]
        made = [_problem_of_outcome(outcome, falls, loose, links), *(p for p in made if p not in falls)]
    elif outcome.what in STOOD and loose:
        made.append(_problem_of_outcome(outcome, [], loose, links))
    firm = {group.id for group, _ in kept if group.firm}
    ordered = sorted(made, key=lambda p: _order(p, firm))
    return tuple(replace(problem, id=f"p{number}") for number, problem in enumerate(ordered, start=1))


def _joined(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems, those with the same first finding joined to one."""
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


def _order(problem: Problem, firm: set[str]) -> tuple[bool, int]:
    """Return the sort key: first severe problems with a sure cause, which may explain a lost reward; `firm` are ids."""
    known, grave = problem.id in firm, problem.severity.at_least(Severity.HIGH)
    sure = known or problem.severity is Severity.CRITICAL
    return not sure, int(not (known and grave)) if sure else problem.severity.rank


def _own_findings(group: CauseGroup, fired: Mapping[str, Finding], grave: Mapping[str, Finding]) -> list[Finding]:
    """Return the findings that the leading causes account for: by severity, weight and place in the account.

    Findings of low severity are left out if there are more severe ones.
    """
    ledger = _first_fault(group).ledger
    weights = {line.finding: line.db for line in ledger}
    order = {line.finding: place for place, line in enumerate(ledger)}
    ours = [fired[name] for name in group.openers if name in fired]
    loud = [finding for finding in ours if finding.rule in grave]
    return sorted(loud or ours, key=lambda f: (f.severity.rank, -weights.get(f.rule, 0), order.get(f.rule, len(order))))


def _first_fault(group: CauseGroup) -> RankedCause:
    return next(cause for cause in group.causes if cause.leader and not cause.benign)


def _problem_of_group(group: CauseGroup, own: Sequence[Finding], links: Sequence[ChainLink]) -> Problem:
    leading = [cause for cause in group.causes if cause.leader]
    proven = any(cause.confidence == "established" for cause in leading)
    onsets = [cause.onset_step for cause in leading if cause.onset_step is not None]
    lead = _first_fault(group)
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
        follows=links_killed_by(links, group.link),
    )


def _problems_without_cause(rest: Sequence[Finding], links: Sequence[ChainLink]) -> list[Problem]:
    """Return a problem for each link with findings that no leading cause explains."""
    by_link: dict[str, list[Finding]] = {}
    for finding in sorted(rest, key=lambda f: f.severity.rank):
        by_link.setdefault(finding.link, []).append(finding)
    return [_problem_of_link(link, findings, links) for link, findings in by_link.items()]


def _problem_of_link(link: str, findings: Sequence[Finding], links: Sequence[ChainLink]) -> Problem:
    onsets = [finding.onset_step for finding in findings if finding.onset_step is not None]
    severity = findings[0].severity
    return Problem(
        id=f"f-{findings[0].rule}",
        title=findings[0].title,
        link=link,
        state=_break(link, links, "", proven=False),
        severity=severity,
        findings=tuple(finding.rule for finding in findings),
        verdict="unhealthy" if severity is Severity.CRITICAL else "warning",
        since_step=min(onsets, default=None),
    )


def _problem_of_outcome(
    outcome: Outcome, falls: Sequence[Problem], loose: Sequence[CauseGroup], links: Sequence[ChainLink]
) -> Problem:
    """Return the outcome of the reward as a problem; it takes over the problems `falls` and the suspects of `loose`."""
    led = next((problem for problem in falls if problem.leader), None)
    causes = [name for problem in falls for name in problem.causes]
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
        openers=tuple(dict.fromkeys(name for problem in falls for name in problem.openers)),
        findings=tuple(dict.fromkeys(name for problem in falls for name in problem.findings)),
        verdict="unhealthy" if outcome.what in GONE else "inconclusive",
        since_step=outcome.since_step,
        follows=links_killed_by(links, REWARDS),
    )


def _break(link: str, links: Sequence[ChainLink], complaint: str, *, proven: bool) -> Break:
    """Return how a link is broken: as the chain shows, else by what its causes do."""
    if link == "configuration":
        return "configuration"
    for entry in links:
        if entry.link == link and (shown := SHOWN.get(entry.state)):
            return shown
    if complaint in STANDING:
        return "dead" if proven else "weak"
    return "course" if complaint in COURSES else "wrong"


class Judgement(NamedTuple):
    """A verdict, the reason, and whether it is inconclusive only because questions of the coverage are open."""

    verdict: Verdict
    because: str
    left_open: bool = False


def verdict(
    problems: Sequence[Problem],
    outcome: Outcome,
    coverage: Coverage,
    links: Sequence[ChainLink],
    steps: tuple[int, int] | None = None,
    observed: int = 0,
) -> Judgement:
    """Return the verdict, and why; `steps` are the first and the last of the run, `observed` its observed updates."""
    worst = min((_weighed(problem, outcome, steps) for problem in problems), key=GRAVEST.index, default=None)
    dead = next((link for link in links if link.state == "dead" and link.entailed_by is None), None)
    stands = dead is not None and dead.link in PATH and not outcome.clear
    if worst in ("unhealthy", "warning"):
        return Judgement("unhealthy" if stands else worst, problems[0].title)
    if dead is not None and stands and worst is None:
        return Judgement("unhealthy", f"nothing gets past {dead.link}: {dead.witness}")
    if worst == "inconclusive":
        return Judgement("inconclusive", problems[0].title)
    if dead is not None:
        return Judgement("inconclusive", f"no cause is named, but something is wrong at {dead.link}: {dead.witness}")
    updates = f"{observed} update{'' if observed == 1 else 's'}"
    nothing = f"nothing wrong was found in what was observed of {updates}" if observed else "nothing found"
    if coverage.failed:
        return Judgement("inconclusive", f"{nothing}, but {' and '.join(coverage.failed)} failed to run")
    if outcome.sound:
        return Judgement("healthy", became(outcome))
    not_shown = ", nor ".join(ASKED[question] for question in QUESTIONS if not getattr(coverage, question))
    if observed and outcome.what == "not_logged" and not outcome.key:
        nothing += f", but it does not show {not_shown}" if not_shown else ""
        return Judgement("inconclusive", f"{nothing}; {UNREWARDED}", left_open=bool(not_shown))
    learns = f"that the policy learns: {became(outcome)}"
    because = f"{nothing}, but the log does not show {not_shown or learns}"
    return Judgement("inconclusive", because, left_open=bool(not_shown))


def _weighed(problem: Problem, outcome: Outcome, steps: tuple[int, int] | None) -> Verdict:
    """Return the verdict that a problem implies, given the outcome of the reward.

    If the reward clearly rose, a link that stands still did not prevent that, unless it is proven, critical and so
    from the start, because then the rise is scatter. Unless it rose, a critical finding makes the run unhealthy even
    if its cause is unsure.
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


def costs(findings: Iterable[Finding], run: Run) -> dict[str, Cost]:
    """Return check → cost for the checks answered yes whose cost the log shows."""
    shares: dict[str, Cost] = {}
    for finding in findings:
        metric, what = COSTS.get(finding.rule, ("", ""))
        series = run.series.get(metric)
        if finding.status == "fired" and series is not None and len(values := finite_of(series.values)):
            shares[finding.rule] = Cost(what=what, share=mean_of(values))
    return shares
