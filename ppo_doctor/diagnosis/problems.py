"""Score causes by the answers of checks, and group those that compete into problems.

A weight is 10·log10 P(answer | cause) / P(answer | sound run) in decibans. Cause files give it in words (`usual`,
`sometimes`), and `rules/rates.toml` counts how often sound runs of many trainers give the same answer; see
`checks.rulepack`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ppo_doctor.model.diagnosis import LedgerEntry, RankedCause
from ppo_doctor.model.evidence import says
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.metrics import METRICS, loggable
from ppo_doctor.model.rules import Measurement
from ppo_doctor.model.words import CONFIDENCES, RULED_OUT_DB, Severity

if TYPE_CHECKING:
    from ppo_doctor.model.rules import Cause, Finding, Weight
    from ppo_doctor.model.words import Confidence, Role, Verdict


class Line(NamedTuple):
    """What one check weighs for a cause."""

    finding: Finding
    db: int


@frozen
class Account:
    """A cause with what was answered of it; its score is the prior and the sum of the lines."""

    cause: Cause
    score: int
    lines: tuple[Line, ...]
    proven: bool

    @property
    def support(self) -> frozenset[str]:
        """The checks that speak for the cause by their yes."""
        return frozenset(line.finding.rule for line in self.lines if line.db > 0 and line.finding.status == "fired")

    @property
    def ledger(self) -> tuple[LedgerEntry, ...]:
        """The lines in words."""
        return tuple(_entry(line) for line in self.lines)


def account(
    cause: Cause, findings: Mapping[str, Finding], guessed: Set[str] = frozenset(), odd: str | None = None
) -> Account | None:
    """Return a cause's account; None where an answer rules it out, or nothing that it takes was found.

    A cause with a proof that takes the check `odd`, which nothing else explains, no answer rules out.

    A check that rests on one of the keys that were `guessed` weighs as usual and proves nothing, but for numbers that
    are not finite, which are that by any name.
    """
    if cause.needs and not any(_fired(findings, name) for name in cause.needs):
        return None
    lines = tuple(
        Line(found, db)
        for weight in cause.weights
        if (found := findings.get(weight.finding)) and (db := _db(weight, found))
    )
    shown = [findings[name] for name in cause.proof if _fired(findings, name)]
    sure = any(f.link == "numerics" or guessed.isdisjoint(e.raw for e in f.evidence) for f in shown)
    proven = sure and not cause.never_proven
    if not (shown and odd in {*cause.proof, *cause.needs}) and any(line.db <= RULED_OUT_DB for line in lines):
        return None
    return Account(cause=cause, score=cause.prior + sum(line.db for line in lines), lines=lines, proven=proven)


def _fired(findings: Mapping[str, Finding], name: str) -> bool:
    return name in findings and findings[name].status == "fired"


def _db(weight: Weight, finding: Finding) -> int:
    if finding.status == "fired":
        return weight.fired
    return weight.clear if finding.status == "clear" else 0


def _entry(line: Line) -> LedgerEntry:
    found = line.finding
    return LedgerEntry(
        finding=found.rule, status=found.status, db=line.db, link=found.link, says=says(found), title=found.title
    )


#: A cause is spoken of from this score on, and is likely from there: decibans against a sound run.
SPEAKS_DB, LIKELY_DB = -2, 9
#: Down to this score the best cause of a grave finding is spoken of, where no cause that speaks explains it.
FAINT_DB = -12
#: The finding is usual for it: of what it weighs for the cause that it speaks for most.
USUALLY = 0.75
#: What may speak against it, in all, and as a share of what the finding says for it.
DOUBT_DB, MOSTLY = 8, 0.6
#: What no log can prove has to be this likely to be spoken of.
UNPROVABLE_DB = 1
#: What stands so near to the leader of its problem is level with it.
LEVEL_DB = 4
#: Causes printed for a problem, and measurements asked for.
LONGEST_LIST, MOST_ASKED = 5, 3
#: Complaints of a run in which too little happens.
STANDING = ("policy-does-not-move", "no-signal")


@frozen
class Group:
    """The causes that compete to explain one problem, best first; those that lead cannot be told apart."""

    id: str
    complaint: str
    #: link of the cause that says what is broken
    link: str
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

    @property
    def firm(self) -> bool:
        """Tell whether a fault leads that is more than suspected."""
        return any(c.leader and not c.benign and c.confidence != "suspected" for c in self.causes)


def problems(
    causes: Sequence[Cause],
    findings: Sequence[Finding],
    *,
    guessed: Set[str] = frozenset(),
    planned: bool = False,
    learned: bool = False,
    odd: str | None = None,
) -> tuple[Group, ...]:
    """Return the problems that findings show, of causes that such a run can have: proven first, then by score.

    What rests on keys that were `guessed` proves nothing. Of a run that is only `planned`, a configuration without a
    log, what is not proven is a suspicion. `odd` is a check by whose yes the run is no sound one: what it speaks for is
    spoken of, whatever the odds against a sound run. Where the reward rose, statistics of a critic or a reference, or
    of a policy that does not move or degenerates, are a suspicion: `learned`.
    """
    by_rule = {finding.rule: finding for finding in findings}
    accounts = [entry for cause in causes if (entry := account(cause, by_rule, guessed, odd)) is not None]
    told = [entry for entry in accounts if _speaks(entry, odd)]
    if not any(_is_firm(entry) for entry in told):
        told += _best_of_unexplained(accounts, told, findings, _most_said_for(causes))
    proven = {entry.cause.id: entry.cause for entry in told if entry.proven}
    groups: dict[str, list[Account]] = {}
    for entry in told:
        mechanism = next((proven[name] for name in entry.cause.root_of if name in proven), entry.cause)
        groups.setdefault(mechanism.complaints[0], []).append(entry)
    unsure = frozenset(e.cause.id for e in told if planned or (learned and _contradicted(e.cause)))
    best = {name: sorted(entries, key=_place) for name, entries in groups.items()}
    found = [
        _group(name, best[name], by_rule, unsure) for name in sorted(best, key=lambda n: _rank(best[n][0], unsure))
    ]
    ordered = _beside_each_other(found)
    return tuple(_named(f"p{number}", group) for number, group in enumerate(ordered, start=1))


def _contradicted(cause: Cause) -> bool:
    """Tell whether a reward that rose speaks against a cause."""
    return cause.link in ("critic", "reference") or cause.complaints[0] in (*STANDING, "policy-degenerates")


def _named(name: str, group: Group) -> Group:
    return replace(group, id=name, causes=tuple(replace(cause, problem=name) for cause in group.causes))


def _speaks(entry: Account, odd: str | None) -> bool:
    least = UNPROVABLE_DB if entry.cause.never_proven else SPEAKS_DB
    return bool(entry.support) and (entry.proven or entry.score >= least or odd in {*entry.support, *entry.cause.needs})


def _most_said_for(causes: Iterable[Cause]) -> dict[str, int]:
    """Return check → what its yes weighs for the cause that it speaks for most."""
    most: dict[str, int] = {}
    for cause in causes:
        for weight in cause.weights:
            most[weight.finding] = max(most.get(weight.finding, 0), weight.fired)
    return most


def _is_firm(entry: Account) -> bool:
    """Tell whether a fault is proven or likely: what else is shown may follow from it."""
    return not entry.cause.benign and _confidence(entry, frozenset()) != "suspected"


def _best_of_unexplained(
    accounts: Sequence[Account], told: Sequence[Account], findings: Sequence[Finding], most: Mapping[str, int]
) -> list[Account]:
    """Return the best cause that it is usual for of each grave finding that no cause explains which speaks by itself.

    The finding says that this is no sound run, so the odds against one do not count. A cause against which other
    answers speak clearly is none.
    """
    explained = {name for entry in told for name in entry.support}
    best: dict[str, Account] = {}
    for finding in findings:
        if finding.status != "fired" or not finding.severity.at_least(Severity.MEDIUM) or finding.rule in explained:
            continue
        usual = USUALLY * most.get(finding.rule, 0)
        supported = [
            entry
            for entry in accounts
            if entry.score >= FAINT_DB
            and _said_for(entry, finding.rule) >= max(usual, 1)
            and not _spoken_against(entry, finding.rule)
        ]
        if supported:
            first = min(supported, key=_place)
            best[first.cause.id] = first
    return list(best.values())


def _said_for(entry: Account, rule: str) -> int:
    return sum(line.db for line in entry.lines if line.finding.rule == rule)


def _spoken_against(entry: Account, rule: str) -> bool:
    """Tell whether what speaks against a cause outweighs a small doubt, or most of what a check says for it."""
    against = -sum(line.db for line in entry.lines if line.db < 0)
    return against >= max(DOUBT_DB, MOSTLY * _said_for(entry, rule))


def _rank(best: Account, unsure: Set[str]) -> tuple[bool, int, bool, int]:
    """Return the order of problems, by the best account of each."""
    cause = best.cause
    return cause.benign, CONFIDENCES.index(_confidence(best, unsure)), cause.never_proven, -best.score


def _beside_each_other(found: Sequence[Group]) -> tuple[Group, ...]:
    """Return problems; beside a fault that is established or likely no suspicion leads, and nothing harmless."""
    firm = [problem for problem in found if not problem.leader.benign and problem.leader.confidence != "suspected"]
    return tuple(p if not firm or p in firm else _without_leaders(p) for p in found)


def _without_leaders(problem: Group) -> Group:
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


def _group(name: str, accounts: Sequence[Account], findings: Mapping[str, Finding], unsure: Set[str]) -> Group:
    """Return the causes of a problem: the first, its proven mechanism or its roots, what is level with it, the rest."""
    best = accounts[0]
    mechanism = next((entry for entry in accounts if entry.proven and entry.cause.id in best.cause.root_of), best)
    roots = [entry for entry in accounts if mechanism.proven and mechanism.cause.id in entry.cause.root_of]
    first = next((entry for entry in roots if entry.proven), mechanism)
    kin = [mechanism, *(entry for entry in roots if entry is not mechanism)]
    level = [entry for entry in accounts if _level(entry, first) and (entry is first or entry not in kin)]
    shown = list({id(e): e for e in (first, *sorted(kin, key=_place), *level, *accounts)}.values())[:LONGEST_LIST]
    roles = {id(entry): _role(entry, mechanism, roots) for entry in shown}
    sure = {id(e): _confidence(e, unsure) if e in level or e in kin else "suspected" for e in shown}
    causes = [_ranked(e, roles[id(e)], level, sure[id(e)], accounts, findings) for e in shown]
    openers = tuple(sorted(frozenset().union(*(entry.support for entry in (*level, mechanism)))))
    return Group(id="", complaint=name, link=mechanism.cause.link, causes=tuple(causes), openers=openers)


def _role(entry: Account, mechanism: Account, roots: Sequence[Account]) -> Role:
    if entry in roots:
        return "root"
    if entry.cause.benign or entry.cause.severity.rank > Severity.MEDIUM.rank:
        return "context"
    return "mechanism" if entry is mechanism else "alternative"


def _level(entry: Account, first: Account) -> bool:
    """Tell whether a cause cannot be told from the leader: as sure, and near; or a declared twin as sure."""
    near = first.score - entry.score <= LEVEL_DB
    alike = (entry.proven, entry.cause.never_proven) == (first.proven, first.cause.never_proven)
    return alike and (near or entry.cause.id in first.cause.twins)


def _confidence(entry: Account, unsure: Set[str]) -> Confidence:
    if entry.proven:
        return "established"
    told = entry.score >= LIKELY_DB and not entry.cause.never_proven and entry.cause.id not in unsure
    return "likely" if told else "suspected"


def _ranked(
    entry: Account,
    role: Role,
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
        problem="",
        role=role,
        says=cause.says,
        level_with=tuple(other.cause.id for other in level if other is not entry) if leads else (),
        onset_step=min((step for step in onsets if step is not None), default=None),
        ledger=entry.ledger,
        remedies=cause.remedies,
        would_change_my_mind=_asked(level if leads else [entry], accounts, findings),
        avoid=cause.avoid,
        leader=leads,
    )


def in_order(found: Sequence[Group]) -> tuple[RankedCause, ...]:
    """Return the causes of all problems: what leads with its roots, problem by problem, then rivals by score."""
    heads = [cause for group in found for cause in _heads(group)]
    level = [cause for group in found for cause in group.causes if cause.leader and cause not in heads]
    rest = [cause for group in found for cause in group.causes if not cause.leader and cause not in heads]
    first = sorted((*heads, *level), key=lambda cause: cause.benign)
    ordered = [*first, *sorted(rest, key=lambda cause: -cause.score_db)]
    return tuple(replace(cause, rank=rank) for rank, cause in enumerate(ordered, start=1))


def _heads(group: Group) -> list[RankedCause]:
    """Return the cause that leads a problem, and beneath it its roots, or the mechanism that it is the root of."""
    if not group.leader.leader:
        return []
    return [cause for cause in group.causes if cause is group.leader or cause.role in ("mechanism", "root")]


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
    because = f"it would decide {finding.rule}: {finding.title}"
    return Measurement(log=log, because=because, check_title=finding.title)


def named(found: Iterable[Group]) -> frozenset[str]:
    """Return the checks that some leading cause accounts for."""
    return frozenset(name for problem in found for name in problem.openers)
