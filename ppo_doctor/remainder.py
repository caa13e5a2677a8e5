"""What the leaders of all complaints leave unexplained, and the causes that it speaks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ppo_doctor.accounts import account
from ppo_doctor.complaints import excusing, told_by
from ppo_doctor.ranking import LEVEL_DB, rival

if TYPE_CHECKING:
    from ppo_doctor.accounts import Account
    from ppo_doctor.complaints import Explanation
    from ppo_doctor.model import Cause, Finding, RankedCause
    from ppo_doctor.rulepack import Pack

#: So many causes of what remains are named at most: with the leader of the first complaint they are three.
MOST = 2


def of_what_remains(
    explanations: Sequence[Explanation], findings: Sequence[Finding], pack: Pack
) -> tuple[RankedCause, ...]:
    """Return causes that findings speak for which no leading fault explains, the best explanation of them first.

    One is chosen after the other: each explains what those before it left, and what they make fire, or keep from
    firing, speaks against none. Nothing is named beside health.
    """
    standing = [e for e in explanations if e.names_a_fault and not e.folded_into]
    chosen = [entry.leader for entry in standing]
    taken = {cause.id for e in explanations for cause in e.causes}
    taken |= {twin for name in taken if (cause := pack.cause(name)) for twin in cause.twins}
    by_rule = {finding.rule: finding for finding in findings}
    found: list[RankedCause] = []
    while standing and len(found) < MOST:
        best = _best(chosen, taken, by_rule, pack)
        if best is None:
            break
        found.append(rival(best, pack, by_rule))
        chosen.append(best.cause.id)
        taken |= {best.cause.id, *best.cause.twins}
    return tuple(found)


def _best(chosen: Sequence[str], taken: set[str], findings: Mapping[str, Finding], pack: Pack) -> Account | None:
    """Return the account that outweighs health by most in what some causes leave; None where none does."""
    told, excuses = told_by(chosen, pack), excusing(chosen, findings, pack)
    left = {name: found for name, found in findings.items() if found.status != "fired" or name not in told}
    others = (cause for cause in pack.causes if cause.id not in taken and not cause.benign)
    accounts = [e for cause in others if (e := account(cause, _to_explain(cause, left), excuses)).score >= -LEVEL_DB]
    return min(accounts, key=lambda a: (-a.score, a.cause.severity.rank, a.cause.id), default=None)


def _to_explain(cause: Cause, findings: Mapping[str, Finding]) -> dict[str, Finding]:
    """Return findings without those that are clear and speak for a cause: what is not there needs no explanation."""
    absent = {w.finding for w in cause.weights if w.clear > 0}
    return {name: found for name, found in findings.items() if found.status != "clear" or name not in absent}
