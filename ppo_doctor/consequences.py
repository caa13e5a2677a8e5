"""What is a consequence of what: complaints that the leader of another one already accounts for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor.accounts import clearly_before
from ppo_doctor.complaints import onset

if TYPE_CHECKING:
    from ppo_doctor.complaints import Explanation
    from ppo_doctor.model import Finding
    from ppo_doctor.rulepack import Pack

#: A leader accounts for another complaint when each of its openers weighs at least this for it.
FOLD_DB = 5


def folded(explained: Sequence[Explanation], pack: Pack) -> tuple[Explanation, ...]:
    """Return the explanations with those folded that another one's leader already accounts for.

    Between two that account for each other the one with the higher score stands, the earlier one where they are equal.
    """
    kept: list[Explanation] = []
    for index, entry in enumerate(explained):
        into = next((e for e in kept if _accounts_for(e, entry, pack)), None) or next(
            (e for e in explained[index + 1 :] if _weighs(e, entry, pack) and not _stands(entry, e, pack)), None
        )
        kept.append(_consequence(entry, into) if into else entry)
    kept = [_of_several(entry, kept, pack) for entry in kept]
    return tuple(_since_its_first(entry, explained) for entry in kept)


def _consequence(entry: Explanation, of: Explanation) -> Explanation:
    return replace(entry, causes=(), verdict="healthy", folded_into=of.leader)


def _of_several(entry: Explanation, explained: Sequence[Explanation], pack: Pack) -> Explanation:
    """Fold a suspected explanation of what several other faults have led to, each to a part of it.

    What the firm leaders of other complaints account for is taken out; what is left folds as a complaint would, and
    where one symptom has no explanation the complaint stands.
    """
    if entry.folded_into or entry.firm:
        return entry
    others = [e for e in explained if e is not entry and e.leader != entry.leader and not e.folded_into]
    told = {
        o.rule: e for e in others if e.firm for o in entry.openers if _weighs(e, replace(entry, openers=(o,)), pack)
    }
    rest = tuple(opener for opener in entry.openers if opener.rule not in told)
    if not told:
        return entry
    if not rest:
        return _consequence(entry, next(iter(told.values())))
    into = next((e for e in others if _accounts_for(e, replace(entry, openers=rest), pack)), None)
    return _consequence(entry, into) if into else entry


def _since_its_first(entry: Explanation, explained: Sequence[Explanation]) -> Explanation:
    """Let a leading cause begin where the first complaint that it leads began, be that one folded or not."""
    leaders = [e.causes[0] for e in explained if e.causes and e.leader == entry.leader]
    first = min((cause.onset_step for cause in leaders if cause.onset_step is not None), default=None)
    if not entry.causes or entry.causes[0].onset_step is None or first is None:
        return entry
    return replace(entry, causes=(replace(entry.causes[0], onset_step=first), *entry.causes[1:]))


def _stands(entry: Explanation, later: Explanation, pack: Pack) -> bool:
    """Tell whether an explanation stands against a later one that accounts for it: the surer, then the stronger.

    Of two with one cause and equally sure the earlier stands: it knows the onset.
    """
    if _surer_and_earlier(entry, later) or _broke_first(entry, later):
        return True
    if not _weighs(entry, later, pack) or entry.doubt != later.doubt:
        return _weighs(entry, later, pack) and entry.doubt < later.doubt
    return entry.leader == later.leader or _score(entry) >= _score(later)


def _surer_and_earlier(entry: Explanation, other: Explanation) -> bool:
    """Tell whether a proof was there clearly before what another leader, only suspected, is to have led to it by."""
    surer = entry.names_a_fault and entry.doubt == 0 and other.names_a_fault and not other.firm
    return surer and not all(_follows(opener, other) for opener in entry.openers)


def _broke_first(entry: Explanation, other: Explanation) -> bool:
    """Tell whether numbers provably broke before all that another explanation, only suspected, has to go by."""
    return entry.doubt == 0 and not other.firm and _after_the_break(entry, other.openers)


def _score(explanation: Explanation) -> int:
    return explanation.causes[0].score_db if explanation.causes else 0


def _accounts_for(first: Explanation, other: Explanation, pack: Pack) -> bool:
    """Tell whether an earlier leader accounts for another complaint.

    It does when each opener weighs for it, or when numbers broke before: what is read after that is no measurement. A
    suspected leader makes no consequence of what is established and was there clearly before.
    """
    cause = pack.cause(first.leader)
    known = cause is not None and not cause.benign and not first.folded_into
    weighs = _weighs(first, other, pack) and not _surer_and_earlier(other, first)
    return known and (weighs or _after_the_break(first, other.openers))


def _weighs(first: Explanation, other: Explanation, pack: Pack) -> bool:
    """Tell whether each opener of one complaint weighs for the leader of another, or is what that cause leads to.

    What began clearly before a cause's own complaint is nothing that it led to.
    """
    cause = pack.cause(first.leader)
    if cause is None or cause.benign:
        return False
    if first.leader == other.leader:
        return True
    weighed = {weight.finding for weight in cause.weights if weight.fired >= FOLD_DB}
    return all(o.rule in weighed or (o.rule in cause.leads_to and _follows(o, first)) for o in other.openers)


def _follows(finding: Finding, first: Explanation) -> bool:
    """Tell whether a finding may be what an explanation's cause led to: unless it was there clearly before."""
    return not all(clearly_before(finding, opener) for opener in first.openers)


def _after_the_break(explanation: Explanation, openers: Sequence[Finding]) -> bool:
    if explanation.complaint != "numbers-break" or explanation.verdict != "unhealthy":
        return False
    onsets = [opener.onset_step for opener in openers if opener.onset_step is not None]
    return bool(onsets) and min(onsets) >= onset(explanation.openers)
