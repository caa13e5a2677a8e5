"""A cause's account: what speaks for it, what speaks against it, and whether something proves it or rules it out.

A weight is 10·log10 P(answer | cause) / P(answer | sound run) in decibans. Cause files say it in words (`usual`,
`sometimes`), and `rules/rates.toml` counts how often sound runs of many trainers give the same answer; see `rulepack`.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, NamedTuple

from ppo_doctor.evidence import says
from ppo_doctor.model import RULED_OUT_DB, LedgerEntry
from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from ppo_doctor.model import Cause, Finding, Weight


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
