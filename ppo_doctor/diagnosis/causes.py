"""Score causes by the answers of checks, group those that compete, and rank them.

A weight is 10·log10 P(answer | cause) / P(answer | sound run) in decibans. Cause files give it in words (`usual`,
`sometimes`), and `rules/rates.toml` counts how often sound runs of many trainers give the same answer; see
`checks.rulepack`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ppo_doctor.checks.statistics import ways
from ppo_doctor.model.diagnosis import LedgerEntry, RankedCause
from ppo_doctor.model.evidence import says
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.metrics import METRICS, OBSERVED, loggable
from ppo_doctor.model.rules import Measurement
from ppo_doctor.model.words import CONFIDENCES, RULED_OUT_DB, Severity

if TYPE_CHECKING:
    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.model.rules import Cause, Finding, Weight
    from ppo_doctor.model.words import Confidence, Role, Verdict

#: A cause is considered from this score on, and is likely from the second: decibans against a sound run.
CONSIDERED_DB, LIKELY_DB = -2, 9
#: The best cause of a severe finding that no considered cause explains is considered down to this score.
FAINT_DB = -12
#: Such a finding has to weigh at least this share of what it weighs for the cause that it supports most.
USUALLY = 0.75
#: The evidence against such a cause has to stay below this, or below this share of what the finding weighs for it.
DOUBT_DB, MOSTLY = 8, 0.6
#: A cause that no log can prove is considered from this score on.
UNPROVABLE_DB = 1
#: Causes whose scores are this close to that of the leader are level with it.
LEVEL_DB = 4
#: Causes of one group that are reported, and measurements that a cause asks for.
LONGEST_LIST, MOST_ASKED = 5, 3
#: Complaints of a run in which too little happens.
STANDING = ("policy-does-not-move", "no-signal")
#: A check that fewer sound runs than this share answer with yes shows a fault, even if no cause explains it.
SELDOM = 0.02


class Line(NamedTuple):
    """The weight of the answer of one check for a cause."""

    finding: Finding
    db: int


@frozen
class Account:
    """A cause with the answers that count for or against it; its score is the prior plus the sum of the lines."""

    cause: Cause
    score: int
    lines: tuple[Line, ...]
    proven: bool

    @property
    def support(self) -> frozenset[str]:
        """The checks whose yes supports the cause."""
        return frozenset(line.finding.rule for line in self.lines if line.db > 0 and line.finding.status == "fired")


def account(
    cause: Cause, findings: Mapping[str, Finding], guessed: Set[str] = frozenset(), odd: str | None = None
) -> Account | None:
    """Return the account of a cause, or None if an answer rules it out or none of its `needs` was answered yes.

    If a proof of the cause was answered yes, and `odd` (a check that no other cause explains) is among its proofs or
    needs, no answer rules it out. If the proof was observed in the running script, only another proof does. A check
    whose evidence is from one of the `guessed` keys weighs as usual but proves nothing, unless it is about non-finite
    numbers, which are a fault whatever the metric is.
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
    observed = any(_is_observed(f) for f in shown)
    proven = sure and (observed or not cause.never_proven)
    if observed:  # what the metrics suggest does not contradict what the script's own operations show
        lines = tuple(line for line in lines if line.db > RULED_OUT_DB or _excludes(line.finding))
    if not (shown and odd in {*cause.proof, *cause.needs}) and any(line.db <= RULED_OUT_DB for line in lines):
        return None
    return Account(cause=cause, score=cause.prior + sum(line.db for line in lines), lines=lines, proven=proven)


def _is_observed(finding: Finding) -> bool:
    """Return whether a finding is about a metric that only a running script shows, or a statistic of one."""
    names = (name for entry in finding.evidence for way in ways(entry.metric) for name in way)
    return not OBSERVED.isdisjoint(names)


def _excludes(finding: Finding) -> bool:
    """Return whether a finding that rules a cause out is a proof itself."""
    return finding.status == "fired" and finding.proves


def _fired(findings: Mapping[str, Finding], name: str) -> bool:
    return name in findings and findings[name].status == "fired"


def _db(weight: Weight, finding: Finding) -> int:
    if finding.status == "fired":
        return weight.fired
    return weight.clear if finding.status == "clear" else 0


@frozen
class CauseGroup:
    """Causes that compete to explain one complaint, best first; no answer separates those that lead."""

    id: str
    complaint: str
    #: link of the mechanism
    link: str
    causes: tuple[RankedCause, ...]
    #: checks answered yes that the leading causes account for
    openers: tuple[str, ...]

    @property
    def leader(self) -> RankedCause:
        """The first of the causes, which does not lead if another group has a sure fault."""
        return self.causes[0]

    @property
    def verdict(self) -> Verdict:
        """The verdict that the leading causes imply; "healthy" if none leads."""
        leading = [cause for cause in self.causes if cause.leader]
        if all(cause.benign for cause in leading):
            return "healthy"
        if any(cause.benign for cause in leading):
            return "inconclusive"
        grave = any(c.confidence != "suspected" and c.severity.at_least(Severity.HIGH) for c in leading)
        return "unhealthy" if grave else "warning"

    @property
    def firm(self) -> bool:
        """Whether a leading fault is established or likely."""
        return any(c.leader and not c.benign and c.confidence != "suspected" for c in self.causes)


def cause_groups(
    causes: Sequence[Cause],
    findings: Sequence[Finding],
    *,
    guessed: Set[str] = frozenset(),
    planned: bool = False,
    learned: bool = False,
    odd: str | None = None,
) -> tuple[CauseGroup, ...]:
    """Return the groups of `causes` that the findings support: proven first, then by score.

    Evidence from `guessed` keys proves nothing. If the run is `planned` (a configuration without a log), causes that
    are not proven are only suspected. If it `learned` (its reward rose), so are causes in critic or reference and those
    by which the policy does not move or degenerates. `odd` is a check whose yes shows by itself that the run is not
    sound: each cause that it supports is considered, whatever its score.
    """
    by_rule = {finding.rule: finding for finding in findings}
    accounts = [entry for cause in causes if (entry := account(cause, by_rule, guessed, odd)) is not None]
    considered = [entry for entry in accounts if _is_considered(entry, odd)]
    # Without a proven or likely fault, which the other findings may follow from, severe findings need a cause.
    if all(entry.cause.benign or _confidence(entry, frozenset()) == "suspected" for entry in considered):
        considered += _causes_of_unexplained(causes, accounts, considered, findings)
    proven = {entry.cause.id: entry.cause for entry in considered if entry.proven}
    competing: dict[str, list[Account]] = {}
    for entry in considered:
        mechanism = next((proven[name] for name in entry.cause.root_of if name in proven), entry.cause)
        competing.setdefault(mechanism.complaints[0], []).append(entry)
    unsure = frozenset(e.cause.id for e in considered if planned or (learned and _contradicted(e.cause)))
    best_first = {complaint: sorted(entries, key=_order) for complaint, entries in competing.items()}
    ordered = sorted(best_first.items(), key=lambda item: _group_order(item[1][0], unsure))
    groups = [
        _group(f"p{number}", complaint, entries, by_rule, unsure)
        for number, (complaint, entries) in enumerate(ordered, start=1)
    ]
    # Beside an established or likely fault no suspicion leads, and no harmless cause.
    sure = [group for group in groups if not group.leader.benign and group.leader.confidence != "suspected"]
    return tuple(group if not sure or group in sure else _without_leaders(group) for group in groups)


def _contradicted(cause: Cause) -> bool:
    """Return whether a reward that rose is evidence against a cause."""
    return cause.link in ("critic", "reference") or cause.complaints[0] in (*STANDING, "policy-degenerates")


def _is_considered(entry: Account, odd: str | None) -> bool:
    least = UNPROVABLE_DB if entry.cause.never_proven else CONSIDERED_DB
    return bool(entry.support) and (entry.proven or entry.score >= least or odd in {*entry.support, *entry.cause.needs})


def _causes_of_unexplained(
    causes: Sequence[Cause], accounts: Sequence[Account], considered: Sequence[Account], findings: Sequence[Finding]
) -> list[Account]:
    """Return the best cause of each severe finding that no considered cause explains, if it is usual for that cause.

    Such a finding shows that the run is not sound, so that a score against sound runs says little. A cause with clear
    evidence against it is left out.
    """
    explained = {name for entry in considered for name in entry.support}
    most: dict[str, int] = {}  # check → the most that its yes weighs for a cause
    for cause in causes:
        for weight in cause.weights:
            most[weight.finding] = max(most.get(weight.finding, 0), weight.fired)
    best: dict[str, Account] = {}
    for finding in findings:
        if finding.status != "fired" or not finding.severity.at_least(Severity.MEDIUM) or finding.rule in explained:
            continue
        usual = USUALLY * most.get(finding.rule, 0)
        supported = [
            entry
            for entry in accounts
            if entry.score >= FAINT_DB
            and (support := sum(line.db for line in entry.lines if line.finding.rule == finding.rule)) >= max(usual, 1)
            and -sum(line.db for line in entry.lines if line.db < 0) < max(DOUBT_DB, MOSTLY * support)
        ]
        if supported:
            first = min(supported, key=_order)
            best[first.cause.id] = first
    return list(best.values())


def _group_order(best: Account, unsure: Set[str]) -> tuple[bool, int, bool, int]:
    """Return the sort key of a group with this best account."""
    cause = best.cause
    return cause.benign, CONFIDENCES.index(_confidence(best, unsure)), cause.never_proven, -best.score


def _without_leaders(group: CauseGroup) -> CauseGroup:
    return replace(group, causes=tuple(replace(c, leader=False, level_with=()) for c in group.causes), openers=())


def _order(entry: Account) -> tuple[int, int, int, int, int, str]:
    """Return the sort key of an account; of two with one score the cause with more remedies comes first."""
    return (
        not entry.proven,
        entry.cause.never_proven,
        -entry.score,
        entry.cause.severity.rank,
        -len(entry.cause.remedies),
        entry.cause.id,
    )


def _group(
    name: str, complaint: str, accounts: Sequence[Account], findings: Mapping[str, Finding], unsure: Set[str]
) -> CauseGroup:
    """Return a group of causes: the first, its proven mechanism or its roots, those level with it, and the others."""
    best = accounts[0]
    mechanism = next((entry for entry in accounts if entry.proven and entry.cause.id in best.cause.root_of), best)
    roots = [entry for entry in accounts if mechanism.proven and mechanism.cause.id in entry.cause.root_of]
    first = next((entry for entry in roots if entry.proven), mechanism)
    kin = [mechanism, *(entry for entry in roots if entry is not mechanism)]
    level = [entry for entry in accounts if _level(entry, first) and (entry is first or entry not in kin)]
    shown = list({id(e): e for e in (first, *sorted(kin, key=_order), *level, *accounts)}.values())[:LONGEST_LIST]
    roles = {id(entry): _role(entry, mechanism, roots) for entry in shown}
    sure = {id(e): _confidence(e, unsure) if e in level or e in kin else "suspected" for e in shown}
    causes = [_ranked(e, name, roles[id(e)], level, sure[id(e)], accounts, findings) for e in shown]
    openers = tuple(sorted(frozenset().union(*(entry.support for entry in (*level, mechanism)))))
    return CauseGroup(id=name, complaint=complaint, link=mechanism.cause.link, causes=tuple(causes), openers=openers)


def _role(entry: Account, mechanism: Account, roots: Sequence[Account]) -> Role:
    if entry in roots:
        return "root"
    if entry.cause.benign or entry.cause.severity.rank > Severity.MEDIUM.rank:
        return "context"
    return "mechanism" if entry is mechanism else "alternative"


def _level(entry: Account, first: Account) -> bool:
    """Return whether a cause is as sure as the leader and either close to its score or declared its twin."""
    near = first.score - entry.score <= LEVEL_DB
    alike = (entry.proven, entry.cause.never_proven) == (first.proven, first.cause.never_proven)
    return alike and (near or entry.cause.id in first.cause.twins)


def _confidence(entry: Account, unsure: Set[str]) -> Confidence:
    if entry.proven:
        return "established"
    likely = entry.score >= LIKELY_DB and not entry.cause.never_proven and entry.cause.id not in unsure
    return "likely" if likely else "suspected"


def _ranked(
    entry: Account,
    group: str,
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
        problem=group,
        role=role,
        says=cause.says,
        level_with=tuple(other.cause.id for other in level if other is not entry) if leads else (),
        onset_step=min((step for step in onsets if step is not None), default=None),
        ledger=tuple(
            LedgerEntry(finding=f.rule, status=f.status, db=db, link=f.link, says=says(f), title=f.title)
            for f, db in entry.lines
        ),
        remedies=cause.remedies,
        would_change_my_mind=_asked(level if leads else [entry], accounts, findings),
        avoid=cause.avoid,
        leader=leads,
    )


def ranked_causes(groups: Sequence[CauseGroup]) -> tuple[RankedCause, ...]:
    """Return the causes of all groups: leaders with their roots, group by group, then the others by score."""
    heads = [cause for group in groups for cause in _heads(group)]
    level = [cause for group in groups for cause in group.causes if cause.leader and cause not in heads]
    rest = [cause for group in groups for cause in group.causes if not cause.leader and cause not in heads]
    first = sorted((*heads, *level), key=lambda cause: cause.benign)
    ordered = [*first, *sorted(rest, key=lambda cause: -cause.score_db)]
    return tuple(replace(cause, rank=rank) for rank, cause in enumerate(ordered, start=1))


def _heads(group: CauseGroup) -> list[RankedCause]:
    """Return the leader of a group with its roots, or with the mechanism that it is the root of."""
    if not group.leader.leader:
        return []
    return [cause for cause in group.causes if cause is group.leader or cause.role in ("mechanism", "root")]


def _asked(
    level: Sequence[Account], accounts: Sequence[Account], findings: Mapping[str, Finding]
) -> tuple[Measurement, ...]:
    """Return what to log: what the level causes ask for, then the inputs of the heaviest checks that were skipped."""
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


def unexplained(findings: Sequence[Finding], pack: Pack, groups: Sequence[CauseGroup]) -> Finding | None:
    """Return the most severe check answered yes that sound runs almost never answer so and that no leader explains."""
    explained = {name for group in groups for name in group.openers}
    fired = [finding for finding in findings if finding.status == "fired"]
    seldom = [f for f in fired if f.rule not in explained and pack.rates.get(f.rule, 1.0) < SELDOM]
    severe = [f for f in seldom if pack.by_name[f.rule].severity.at_least(Severity.HIGH)]
    return min(severe, key=lambda finding: finding.severity.rank, default=None)
