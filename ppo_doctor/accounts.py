"""A cause's account: its prior, and what each finding weighs for or against it.

A weight is 10·log10 P(finding | cause) / P(finding | healthy) in decibans; `healthy` scores 0. Per link of the signal
chain a cause counts its largest positive and its largest negative weight, because findings on one link repeat each
other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor.evidence import says
from ppo_doctor.model import LedgerEntry
from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from ppo_doctor.model import Cause, Finding, Weight
    from ppo_doctor.rulepack import Pack

#: A finding that fired for more than this share of its time before a cause began is not its work.
EARLIER_SHARE = 0.1


@frozen
class Account:
    """A cause's score with its ledger."""

    cause: Cause
    score: int
    ledger: tuple[LedgerEntry, ...]


def candidates(
    pack: Pack, complaint: str, findings: Mapping[str, Finding], openers: Sequence[Finding] = ()
) -> list[Account]:
    """Return the accounts of every cause that names a complaint, best first.

    What provably began clearly after that which opened the complaint by itself speaks against no cause of it: that is
    another fault's.
    """
    rules = {rule.name: rule for rule in pack.rules}
    first = [opener for opener in openers if rules[opener.rule].opens_alone]
    later = {
        name
        for name, found in findings.items()
        if rules[name].opens and rules[name].proves and later_than(first, found)
    }
    accounts = [account(cause, findings, later) for cause in pack.causes if complaint in cause.complaints]
    return sorted(accounts, key=lambda a: (-a.score, a.cause.severity.rank, a.cause.rarer_twin, a.cause.id))


def account(cause: Cause, findings: Mapping[str, Finding], later: Set[str] = frozenset()) -> Account:
    """Add up one cause: prior, and per link the largest weight for and the largest against.

    A cause explains nothing that was there clearly before it began; the findings of `later` do not speak against it.
    """
    began = [findings[name] for name in cause.begins_with if name in findings and findings[name].status == "fired"]
    entries = [
        _entry(weight, finding)
        for weight in cause.weights
        if (finding := findings.get(weight.finding)) is not None
        and _db(weight, finding)
        and not (_db(weight, finding) > 0 and any(clearly_before(finding, first) for first in began))
        and not (_db(weight, finding) < 0 and weight.finding in later)
    ]
    counted = _counted(entries)
    ledger = tuple(replace(entry, counted=index in counted) for index, entry in enumerate(entries))
    score = cause.prior + sum(entry.db for entry in ledger if entry.counted)
    return Account(cause=cause, score=score, ledger=ledger)


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
    return {"fired": weight.fired, "clear": weight.clear}.get(finding.status, 0)


def _entry(weight: Weight, finding: Finding) -> LedgerEntry:
    return LedgerEntry(
        finding=finding.rule,
        status=finding.status,
        db=_db(weight, finding),
        link=finding.link,
        says=says(finding),
        title=finding.title,
    )


def _counted(entries: Sequence[LedgerEntry]) -> set[int]:
    best: dict[tuple[str, bool], int] = {}
    for index, entry in enumerate(entries):
        side = (entry.link, entry.db > 0)
        if side not in best or abs(entry.db) > abs(entries[best[side]].db):
            best[side] = index
    return set(best.values())
