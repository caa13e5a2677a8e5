"""A cause's account: its prior, and what each finding weighs for or against it.

A weight is 10·log10 P(finding | cause) / P(finding | healthy) in decibans; `healthy` scores 0. Per link of the signal
chain a cause counts its largest positive and its largest negative weight, because findings on one link repeat each
other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple

from ppo_doctor.evidence import says
from ppo_doctor.model import LedgerEntry
from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from ppo_doctor.model import Cause, Finding, Fitted, Weight
    from ppo_doctor.rulepack import Pack

#: A finding that fired for more than this share of its time before a cause began is not its work.
EARLIER_SHARE = 0.1


class Line(NamedTuple):
    """What one finding weighs for a cause, and whether that counts."""

    finding: Finding
    db: int
    counted: bool


@frozen
class Account:
    """A cause's score with the lines that it is the sum of."""

    cause: Cause
    score: int
    lines: tuple[Line, ...]

    @property
    def gained(self) -> int:
        """By how much what was found moves the score from where it begins."""
        return sum(line.db for line in self.lines if line.counted)

    @property
    def ledger(self) -> tuple[LedgerEntry, ...]:
        """The lines in words: put when asked for, since of twenty accounts a complaint shows a few."""
        return tuple(_entry(line) for line in self.lines)


def candidates(
    pack: Pack,
    complaint: str,
    findings: Mapping[str, Finding],
    openers: Sequence[Finding] = (),
    excused: Set[str] = frozenset(),
) -> list[Account]:
    """Return the accounts of every cause that names a complaint, best first.

    What provably began clearly after that which opened the complaint by itself speaks against no cause of it: that is
    another fault's. Nor do the `excused` findings, which another fault is known to account for.
    """
    rules = pack.by_name
    first = [opener for opener in openers if rules[opener.rule].opens_alone]
    later = {
        name
        for name, found in findings.items()
        if found.status == "fired" and rules[name].opens and rules[name].proves and later_than(first, found)
    }
    accounts = [account(cause, findings, later | excused) for cause in pack.causes if complaint in cause.complaints]
    return sorted(accounts, key=lambda a: (-a.score, a.cause.severity.rank, a.cause.rarer_twin, a.cause.id))


def account(cause: Cause, findings: Mapping[str, Finding], later: Set[str] = frozenset()) -> Account:
    """Add up one cause: prior, and per link the largest weight for and the largest against.

    A cause explains nothing that was there clearly before it began; the findings of `later` do not speak against it.
    """
    began = [findings[name] for name in cause.begins_with if name in findings and findings[name].status == "fired"]
    weighed = [
        (finding, db)
        for weight in cause.weights
        if (finding := findings.get(weight.finding)) is not None
        and (db := _db(weight, finding))
        and not (db > 0 and began and any(clearly_before(finding, first) for first in began))
        and not (db < 0 and weight.finding in later)
    ]
    counted = _counted(weighed)
    lines = tuple(Line(finding=f, db=db, counted=index in counted) for index, (f, db) in enumerate(weighed))
    return Account(cause=cause, score=cause.prior + sum(weighed[index][1] for index in counted), lines=lines)


def fitted_account(cause: Cause, fitted: Fitted, findings: Mapping[str, Finding]) -> Account:
    """Add up the log odds that a cause is there, whatever else is wrong: a base, and what each finding adds to it."""
    weighed = [(findings[w.finding], _db(w, findings[w.finding])) for w in fitted.weights if w.finding in findings]
    lines = tuple(Line(finding=finding, db=db, counted=True) for finding, db in weighed if db)
    return Account(cause=cause, score=fitted.base + sum(line.db for line in lines), lines=lines)


def later_than(openers: Sequence[Finding], finding: Finding) -> bool:
    """Tell whether a finding began clearly after each of some others; False where there is none."""
    return bool(openers) and all(clearly_before(opener, finding) for opener in openers)


def clearly_before(finding: Finding, other: Finding) -> bool:
    """Tell whether a finding had fired for a good part of its time before another one's onset."""
    if finding.status != "fired" or finding.onset_step is None or other.onset_step is None:
        return False
    last = max((evidence.steps[1] for evidence in finding.evidence if evidence.steps), default=finding.onset_step)
    return other.onset_step - finding.onset_step > EARLIER_SHARE * (last - finding.onset_step)


def _db(weight: Weight, finding: Finding) -> int:
    if finding.status == "fired":
        return weight.fired
    return weight.clear if finding.status == "clear" else 0


def _entry(line: Line) -> LedgerEntry:
    finding = line.finding
    return LedgerEntry(
        finding=finding.rule,
        status=finding.status,
        db=line.db,
        link=finding.link,
        says=says(finding),
        counted=line.counted,
        title=finding.title,
    )


def _counted(weighed: Sequence[tuple[Finding, int]]) -> set[int]:
    """Return the places of the largest weight for and the largest against on each link, of equal ones the first."""
    best: dict[tuple[str, bool], int] = {}
    for index, (finding, db) in enumerate(weighed):
        side = (finding.link, db > 0)
        if side not in best or abs(db) > abs(weighed[best[side]][1]):
            best[side] = index
    return set(best.values())
