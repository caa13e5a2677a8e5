"""The signal chain, the problems of a run, and its verdict.

`rules/chain.toml` lists which checks make a link alive, weak, wrong or dead. Links after a dead one are dead too, until
one is shown alive or may be fed by something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ppo_doctor.diagnosis.problems import STANDING, named
from ppo_doctor.model.arrays import finite_of, mean_of
from ppo_doctor.model.diagnosis import ChainLink, Cost, Problem
from ppo_doctor.model.evidence import became, gone, says
from ppo_doctor.model.rules import Link
from ppo_doctor.model.words import ASKED, CHAIN, QUESTIONS, SIDE_LINKS, Severity

if TYPE_CHECKING:
    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.diagnosis.problems import Group
    from ppo_doctor.model.diagnosis import Coverage, Outcome, RankedCause
    from ppo_doctor.model.rules import Finding
    from ppo_doctor.model.run import Run
    from ppo_doctor.model.words import Break, LinkState, Verdict

#: What feeds a link of which no setting tells.
ALWAYS = "always"
BROKEN: tuple[LinkState, ...] = ("dead", "wrong", "weak")


def chain(
    links: Mapping[str, Link],
    findings: Sequence[Finding],
    *,
    feeds: Callable[[str], bool],
    broken: frozenset[str],
    steps: tuple[int, int] | None,
) -> tuple[ChainLink, ...]:
    """Return the chain and the side links of which something is known.

    `feeds` tells whether a quantity may feed a link; what rests on a metric of `broken`, whose last number is NaN, is
    not alive.
    """
    by_rule = {finding.rule: finding for finding in findings}
    names = (*CHAIN, *SIDE_LINKS)
    told = {name: _own(links.get(name, Link(name=name)), by_rule, broken, steps) for name in names}
    for killer in [link for link in told.values() if link.state == "dead"]:
        for name in links[killer.link].kills:
            told[name] = told[name] if told[name].state == "dead" else _entailed(told[name], killer)
    _follow(told, links, feeds)
    return tuple(link for name, link in told.items() if name in CHAIN or link.state != "unknown")


def _follow(told: dict[str, ChainLink], links: Mapping[str, Link], feeds: Callable[[str], bool]) -> None:
    """Carry death along the chain, up to a link that is shown to live or may be fed by something else."""
    dead: ChainLink | None = None
    for name in CHAIN:
        link = told[name]
        if link.state == "dead":
            told[name] = replace(link, entailed_by=link.entailed_by or (dead.link if dead else None))
            dead = dead or link
        elif link.state != "unknown" or any(map(feeds, links[name].fed_by if name in links else ())):
            dead = None
        elif dead is not None:
            told[name] = _entailed(link, dead)


def _entailed(link: ChainLink, dead: ChainLink) -> ChainLink:
    witness = f"nothing is left for it where {dead.link} is dead: {dead.witness}"
    return replace(link, state="dead", witness=witness, steps=dead.steps, entailed_by=dead.link)


def _own(
    link: Link, findings: Mapping[str, Finding], broken: frozenset[str], steps: tuple[int, int] | None
) -> ChainLink:
    """Return what the checks of a link say of it, the gravest first."""
    yes = {name for name, finding in findings.items() if finding.status == "fired"}
    excused = not yes.isdisjoint(link.excused_by)
    for state in BROKEN:
        shown = [findings[name] for name in getattr(link, state) if name in yes]
        if shown and not (state == "dead" and excused):
            return _witnessed(link.name, state, shown, steps)
    no = [name for name in link.alive_unless if name in findings and findings[name].status == "clear"]
    living = [findings[name] for name in (*(name for name in link.alive if name in yes), *no)]
    sound = [finding for finding in living if not any(evidence.raw in broken for evidence in finding.evidence)]
    return _witnessed(link.name, "alive", sound, steps) if sound else ChainLink(link=link.name, state="unknown")


def _witnessed(name: str, state: LinkState, shown: Sequence[Finding], steps: tuple[int, int] | None) -> ChainLink:
    """Return a link with the first witness that has a place in a file."""
    first = next((finding for finding in shown if any(evidence.source for evidence in finding.evidence)), shown[0])
    # the numbers in a condition that does not hold are what shows that the link is alive
    evidence = tuple(replace(entry, denied=False) for entry in first.evidence)
    witness = says(replace(first, evidence=evidence))
    return ChainLink(link=name, state=state, witness=witness, steps=_span(first, steps))


def _span(finding: Finding, steps: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the steps that a finding speaks of: those of its evidence, else the run from its onset on."""
    spans = [evidence.steps for evidence in finding.evidence if evidence.steps]
    if spans:
        return min(first for first, _ in spans), max(last for _, last in spans)
    if steps is None or finding.onset_step is None:
        return steps
    return finding.onset_step, steps[1]


def follows(links: Iterable[ChainLink], broken: str) -> tuple[str, ...]:
    """Return the links that are dead because one is."""
    return tuple(link.link for link in links if link.entailed_by == broken)


EQUAL, CUT, CLIPPED = "generations without a gradient", "completions that were cut", "samples that were clipped"
_FLAT = "frac_reward_zero_std"
#: Check → the metric whose mean over the run is the share, and of what.
COSTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    dict.fromkeys(("groups-mostly-flat", "groups-alike-at-first", "advantages-all-zero"), (_FLAT, EQUAL))
    | dict.fromkeys(("most-completions-cut", "completions-grow-into-limit"), ("truncated_fraction", CUT))
    | dict.fromkeys(("clipped-much", "clipped-from-the-start", "first-update-clipped"), ("clip_fraction", CLIPPED))
)


def costs(findings: Iterable[Finding], run: Run) -> dict[str, Cost]:
    """Return what each check that answered yes costs, of those whose cost the log counts."""
    told: dict[str, Cost] = {}
    for finding in findings:
        metric, what = COSTS.get(finding.rule, ("", ""))
        series = run.series.get(metric)
        if finding.status == "fired" and series is not None and len(values := finite_of(series.values)):
            told[finding.rule] = Cost(what=what, share=mean_of(values))
    return told


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
    told = [(group, _own_findings(group, fired, grave)) for group in led]
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


def _own_findings(group: Group, fired: Mapping[str, Finding], grave: Mapping[str, Finding]) -> list[Finding]:
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


#: A check that sound runs answer with yes less often than this tells that something is wrong, whatever the why.
SELDOM = 0.02
#: Where one of these links is dead, nothing is learnt; a ratio that stands still leaves a policy gradient.
PATH = frozenset(CHAIN) - {"ratio"}
#: What is so from within this share of a run on is so from its start: what is logged per update begins later.
EARLY = 0.1


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
) -> Judgement:
    """Return the verdict, and why; `steps` are the first and the last of the run."""
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
    if coverage.failed:
        return Judgement("inconclusive", f"nothing found, but {' and '.join(coverage.failed)} failed to run")
    if outcome.sound:
        return Judgement("healthy", became(outcome))
    not_shown = [ASKED[question] for question in QUESTIONS if not getattr(coverage, question)]
    if not not_shown:
        because = f"nothing found, but the log does not show that the policy learns: {became(outcome)}"
        return Judgement("inconclusive", because)
    because = f"nothing found, but the log does not show {', nor '.join(not_shown)}"
    return Judgement("inconclusive", because, left_open=True)


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


def unexplained(findings: Sequence[Finding], pack: Pack, told: Sequence[Group]) -> Finding | None:
    """Return the gravest check that answers yes, which sound runs hardly ever do, and that no cause accounts for."""
    spoken = named(told)
    fired = [finding for finding in findings if finding.status == "fired"]
    seldom = [f for f in fired if f.rule not in spoken and pack.rates.get(f.rule, 1.0) < SELDOM]
    loud = [f for f in seldom if pack.by_name[f.rule].severity.at_least(Severity.HIGH)]
    return min(loud, key=lambda finding: finding.severity.rank, default=None)
