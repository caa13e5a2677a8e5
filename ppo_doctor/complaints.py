"""Complaints: what findings open, which openers belong together, and how each was settled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from ppo_doctor.model import CONFIDENCES, RankedCause
from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from ppo_doctor.model import Finding, Verdict
    from ppo_doctor.rulepack import Pack


@frozen
class Explanation:
    """How one complaint was settled: its leader (a cause id, "healthy" or "unknown") and what to print."""

    complaint: str
    openers: tuple[Finding, ...]
    leader: str
    causes: tuple[RankedCause, ...]
    verdict: Verdict
    folded_into: str | None = None
    #: first step of the records that it was judged by; None for the whole run
    since_step: int | None = None
    #: step before which the records lie that it was judged by; None for the whole run
    until_step: int | None = None
    findings: Mapping[str, Finding] = field(default_factory=dict)
    #: candidate → decibans: every cause that was weighed, `healthy` and `unknown`; none where nothing leads
    scores: Mapping[str, int] = field(default_factory=dict)

    @property
    def names_a_fault(self) -> bool:
        """Whether a cause leads that is not harmless."""
        return bool(self.causes) and self.leader == self.causes[0].id and not self.causes[0].benign

    @property
    def doubt(self) -> int:
        """How unsure the leader is: 0 when established."""
        return min((CONFIDENCES.index(cause.confidence) for cause in self.causes), default=len(CONFIDENCES))

    @property
    def firm(self) -> bool:
        """Whether a fault leads that is established or likely."""
        return self.names_a_fault and self.doubt < CONFIDENCES.index("suspected")


def open_complaints(pack: Pack, findings: Iterable[Finding]) -> list[tuple[str, tuple[Finding, ...]]]:
    """Return the open complaints with their fired openers, worst first, then by onset.

    A proof opens alone; a soft symptom needs another on a different link.
    """
    rules = pack.by_name
    fired: dict[str, list[Finding]] = {}
    for finding in findings:
        opens = rules[finding.rule].opens
        if finding.status == "fired" and opens:
            fired.setdefault(opens, []).append(finding)
    apart = one_by_one(pack)
    opened = [
        (complaint, group)
        for complaint, openers in fired.items()
        for group in (_groups(openers, pack) if complaint in apart else [tuple(openers)])
        if enough(group, pack)
    ]
    return sorted(opened, key=lambda entry: (_worst(entry[1]), onset(entry[1]), entry[0]))


def enough(openers: Sequence[Finding], pack: Pack) -> bool:
    """Tell whether openers open their complaint: a proof alone, or symptoms on two links."""
    rules = pack.by_name
    return any(rules[opener.rule].opens_alone for opener in openers) or len({opener.link for opener in openers}) > 1


def one_by_one(pack: Pack) -> set[str]:
    """Return the complaints whose openers are settled apart where no cause explains both."""
    return {complaint.id for complaint in pack.complaints if complaint.one_by_one}


def spoken_for(openers: Iterable[Finding], pack: Pack) -> list[set[str]]:
    """Return, for each opener, the causes that it speaks for."""
    return [
        {cause.id for cause in pack.causes if any(w.finding == opener.rule and w.fired > 0 for w in cause.weights)}
        for opener in openers
    ]


def told_by(causes: Sequence[str], pack: Pack) -> set[str]:
    """Return the findings that speak for some causes, or that they lead to."""
    found = [cause for cause in pack.causes if cause.id in causes]
    return {w.finding for cause in found for w in cause.weights if w.fired > 0} | {
        name for cause in found for name in cause.leads_to
    }


def excusing(known: Sequence[str], findings: Mapping[str, Finding], pack: Pack) -> frozenset[str]:
    """Return the findings that are as some known causes make them: fired by them, or kept from firing."""
    made = told_by(known, pack)
    kept_off = {w.finding for cause in pack.causes if cause.id in known for w in cause.weights if w.fired < 0}
    return frozenset(
        name
        for name, finding in findings.items()
        if (finding.status == "fired" and name in made) or (finding.status == "clear" and name in kept_off)
    )


def _groups(openers: Sequence[Finding], pack: Pack) -> list[tuple[Finding, ...]]:
    """Return openers in groups that share a cause which they speak for."""
    groups: list[tuple[set[str], list[Finding]]] = []
    for opener, causes in zip(openers, spoken_for(openers, pack), strict=True):
        joined = [group for group in groups if group[0] & causes]
        merged = (causes.union(*(g[0] for g in joined)), [*(f for g in joined for f in g[1]), opener])
        groups = [group for group in groups if group not in joined] + [merged]
    return [tuple(found) for _, found in groups]


def _worst(findings: Iterable[Finding]) -> int:
    return min(finding.severity.rank for finding in findings)


def onset(findings: Iterable[Finding]) -> int:
    """Return the first onset of some findings; 0 where none tells."""
    return min((f.onset_step for f in findings if f.onset_step is not None), default=0)
