"""The causes of all complaints in order, with companions: causes that are probably there besides the leading ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor.accounts import fitted_account
from ppo_doctor.complaints import told_by
from ppo_doctor.model import CONFIDENCES
from ppo_doctor.ranking import companion

if TYPE_CHECKING:
    from ppo_doctor.accounts import Account
    from ppo_doctor.complaints import Explanation
    from ppo_doctor.model import Finding, RankedCause
    from ppo_doctor.rulepack import Pack

#: A cause is named besides where its odds, by weights fitted on runs of one and of two faults, are better than 1 to 20.
LEAST_DB = -13
#: What was found has to raise the odds by this much: fourfold. What is only common is not named for that.
RAISED_DB = 6
#: So many causes that no complaint has brought up are named at most: with the first leader they are three.
MOST = 2


def in_order(
    explanations: Sequence[Explanation], findings: Sequence[Finding], pack: Pack, *, logged: bool = True
) -> tuple[RankedCause, ...]:
    """Return the causes to print, best first: of every complaint, and those that are probably there besides.

    First the leaders of the complaints, then what is probable, the most probable first, be it level with a leader, its
    rival, or brought up by no complaint; then the rest. Where no fault leads, or nothing was `logged`, nothing is added
    and nothing moves: the odds are those of faulty runs.
    """
    leaders, rivals = _leaders(explanations), _rivals(explanations)
    named = any(entry.names_a_fault and not entry.folded_into for entry in explanations)
    odds = _odds(leaders, findings, pack) if named and logged else {}
    heads = {entry.causes[0].id for entry in explanations if entry.causes}
    ahead = [cause for cause in leaders if cause is leaders[0] or _keeps_its_place(cause, heads, odds)]
    others = [*(cause for cause in leaders if cause not in ahead), *rivals]
    return _numbered([*ahead, *_probable(odds, ahead, others, findings, pack), *others])


def _keeps_its_place(leader: RankedCause, heads: Collection[str], odds: Mapping[str, Account]) -> bool:
    """Tell whether a leader stands ahead of what is probable: the first of a complaint whose odds are not too small.

    What has no odds, since the lab cannot inject it, does as well.
    """
    return leader.id not in odds or (leader.id in heads and odds[leader.id].score > LEAST_DB)


def _leaders(explanations: Sequence[Explanation]) -> list[RankedCause]:
    """Return what leads, in order.

    The first of each complaint comes before those level with it, which tell of the same fault; of either what stands
    firm before what is suspected, and harmless explanations last; else complaints keep their order.
    """
    leaders = [cause for e in explanations for cause in e.causes if cause.leader]
    if any(cause.score_db > 0 for cause in leaders):  # beside a cause that stands, one that health outweighs is noise
        leaders = [cause for cause in leaders if cause.score_db > 0]
    ahead = {id(e.causes[0]) for e in explanations if e.causes}
    return sorted(leaders, key=lambda c: (c.benign, id(c) not in ahead, c.confidence == "suspected"))


def _rivals(explanations: Sequence[Explanation]) -> list[RankedCause]:
    """Return what does not lead: a rival's chance is by how far it stands behind its own complaint's leader."""
    rivals = [(e.causes[0].score_db - c.score_db, c) for e in explanations for c in e.causes if not c.leader]
    return [cause for _, cause in sorted(rivals, key=lambda rival: rival[0])]


def _odds(leaders: Sequence[RankedCause], findings: Sequence[Finding], pack: Pack) -> dict[str, Account]:
    """Return the fitted account of each cause that has one.

    No fitted run had a leader that the lab cannot inject: what such a one makes fire speaks for nobody else.
    """
    strangers = [cause.id for cause in leaders if not cause.benign and cause.id not in pack.fitted]
    told = told_by(strangers, pack) if strangers else set[str]()
    by_rule = {f.rule: f for f in findings if f.status != "fired" or f.rule not in told}
    known = {cause.id: cause for cause in pack.causes}
    return {name: fitted_account(known[name], fitted, by_rule) for name, fitted in pack.fitted.items() if name in known}


def _probable(
    odds: Mapping[str, Account],
    ahead: Sequence[RankedCause],
    others: Sequence[RankedCause],
    findings: Sequence[Finding],
    pack: Pack,
) -> list[RankedCause]:
    """Return the causes that are probably there besides those `ahead`, the most probable first.

    What a complaint has brought up, in `others`, keeps the account that it has; what none has is shown with the fitted
    one.
    """
    placed, by_rule = {cause.id for cause in ahead}, {finding.rule: finding for finding in findings}
    likely = sorted(filter(_speaks, odds.values()), key=lambda a: (-a.score, a.cause.id))
    known = {cause.id: cause for cause in reversed(others)}
    new = [a for a in likely if a.cause.id not in known and a.cause.id not in placed][:MOST]
    told = known | {a.cause.id: companion(a, pack, by_rule) for a in new}
    return [told[a.cause.id] for a in likely if a.cause.id in told and a.cause.id not in placed]


def _speaks(entry: Account) -> bool:
    """Tell whether a cause is probable, and not only for being common."""
    return entry.score > LEAST_DB and entry.gained >= RAISED_DB


def _numbered(ordered: Sequence[RankedCause]) -> tuple[RankedCause, ...]:
    """Number causes; one that is there several times keeps its best place, and its surest form."""
    unique: dict[str, RankedCause] = {}
    for cause in ordered:
        kept = unique.setdefault(cause.id, cause)
        if CONFIDENCES.index(cause.confidence) < CONFIDENCES.index(kept.confidence):
            unique[cause.id] = cause
    return tuple(replace(cause, rank=rank) for rank, cause in enumerate(unique.values(), start=1))
