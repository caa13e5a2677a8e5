"""What the leaders of all complaints leave unexplained, and the causes that it speaks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ppo_doctor.accounts import account
from ppo_doctor.complaints import excusing, told_by
from ppo_doctor.ranking import LEVEL_DB, beside

if TYPE_CHECKING:
    from ppo_doctor.accounts import Account
    from ppo_doctor.complaints import Explanation
    from ppo_doctor.model import Cause, Finding, RankedCause
    from ppo_doctor.rulepack import Pack

#: So many causes of what remains are named at most: with the leader of the first complaint they are three.
MOST = 2


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
