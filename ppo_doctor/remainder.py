"""The causes of all complaints in order, with those that speak for what the leaders leave unexplained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor.accounts import account
from ppo_doctor.complaints import excusing, told_by
from ppo_doctor.model import CONFIDENCES
from ppo_doctor.ranking import LEVEL_DB, LIKELY_DB, beside

if TYPE_CHECKING:
    from ppo_doctor.accounts import Account
    from ppo_doctor.complaints import Explanation
    from ppo_doctor.model import Cause, Finding, RankedCause
    from ppo_doctor.rulepack import Pack

#: So many causes of what remains are named at most: with the leader of the first complaint they are three.
MOST = 2


def in_order(explanations: Sequence[Explanation], findings: Sequence[Finding], pack: Pack) -> tuple[RankedCause, ...]:
    """Return the causes to print, best first: of every complaint, and of what their leaders leave unexplained."""
    further = of_what_remains(explanations, _numbered(explanations), findings, pack)
    return _numbered(explanations, further)


def _numbered(explanations: Sequence[Explanation], further: Sequence[RankedCause] = ()) -> tuple[RankedCause, ...]:
    """Number the causes of all complaints; a cause that several complaints name keeps its best place."""
    leaders = [cause for e in explanations for cause in e.causes if cause.leader]
    if any(cause.score_db > 0 for cause in leaders):  # beside a cause that stands, one that health outweighs is noise
        leaders = [cause for cause in leaders if cause.score_db > 0]
    # A rival's chance is by how far it stands behind its own complaint's leader, not by the score that both have.
    rivals = [(e.causes[0].score_db - c.score_db, c) for e in explanations for c in e.causes if not c.leader]
    rivals.sort(key=lambda rival: rival[0])
    # What explains what the leaders leave comes before their rivals where it would be likely alone, and else before
    # those that are far behind.
    likely = [cause for cause in further if cause.score_db >= LIKELY_DB]
    near = [cause for behind, cause in rivals if behind <= LIKELY_DB]
    doubtful = [cause for cause in further if cause.score_db < LIKELY_DB]
    others = [*likely, *near, *doubtful, *(cause for _, cause in rivals[len(near) :])]
    # The first of each complaint comes before those level with it, which tell of the same fault; of either what stands
    # firm before what is suspected, and harmless explanations last; else complaints keep their order.
    ahead = {id(e.causes[0]) for e in explanations if e.causes}
    ordered = sorted(leaders, key=lambda c: (c.benign, id(c) not in ahead, c.confidence == "suspected")) + others
    unique: dict[str, RankedCause] = {}
    for cause in ordered:
        kept = unique.setdefault(cause.id, cause)
        if CONFIDENCES.index(cause.confidence) < CONFIDENCES.index(kept.confidence):
            unique[cause.id] = cause
    return tuple(replace(cause, rank=rank) for rank, cause in enumerate(unique.values(), start=1))


def of_what_remains(
    explanations: Sequence[Explanation], named: Sequence[RankedCause], findings: Sequence[Finding], pack: Pack
) -> tuple[RankedCause, ...]:
    """Return causes that findings speak for which no leading fault explains, the best explanation of them first.

    One is chosen after the other, of those that are not `named` already: each explains what those before it left, and
    what they make fire, or keep from firing, speaks against none. A second fault need not be surer than that health
    does not outweigh it, for it leads nothing; where no fault leads nothing is added.
    """
    chosen = [entry.leader for entry in explanations if entry.names_a_fault and not entry.folded_into]
    taken = {name for cause in named for name in _and_twins(cause.id, pack)}
    by_rule = {finding.rule: finding for finding in findings}
    found: list[RankedCause] = []
    while chosen and len(found) < MOST:
        level = _level(chosen, taken, by_rule, pack)
        if not level:
            break
        found += [beside(entry, pack, by_rule) for entry in level]
        chosen.append(level[0].cause.id)
        taken |= {name for entry in level for name in _and_twins(entry.cause.id, pack)}
    return tuple(found[:MOST])


def _and_twins(name: str, pack: Pack) -> set[str]:
    cause = pack.cause(name)
    return {name, *(cause.twins if cause else ())}


def _level(chosen: Sequence[str], taken: set[str], findings: Mapping[str, Finding], pack: Pack) -> list[Account]:
    """Return the account that outweighs health by most in what some causes leave, and those level with it.

    Those are within 3 dB of it, and something that fired speaks for both.
    """
    told, excused = told_by(chosen, pack), excusing(chosen, findings, pack)
    left = {name: found for name, found in findings.items() if found.status != "fired" or name not in told}
    others = (cause for cause in pack.causes if cause.id not in taken and not cause.benign)
    accounts = [account(cause, _to_explain(cause, left), excused) for cause in others]
    ranked = sorted(
        (entry for entry in accounts if entry.score >= -LEVEL_DB),
        key=lambda a: (-a.score, a.cause.severity.rank, a.cause.rarer_twin, a.cause.id),
    )
    near = [entry for entry in ranked if ranked[0].score - entry.score <= LEVEL_DB]
    return [entry for entry in near if _speaking(entry) & _speaking(ranked[0])]


def _speaking(entry: Account) -> set[str]:
    return {line.finding.rule for line in entry.lines if line.counted and line.db > 0}


def _to_explain(cause: Cause, findings: Mapping[str, Finding]) -> dict[str, Finding]:
    """Return findings without those that are clear and speak for a cause: what is not there needs no explanation."""
    absent = {w.finding for w in cause.weights if w.clear > 0}
    return {name: found for name, found in findings.items() if found.status != "clear" or name not in absent}
