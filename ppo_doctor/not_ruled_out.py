"""Which causes this input cannot speak about: a check that could not run never looks like one that passed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ppo_doctor.model import Unjudged

if TYPE_CHECKING:
    from ppo_doctor.model import Fact, Finding, Rule, Weight
    from ppo_doctor.rulepack import Pack

#: A finding that weighs at least this for a cause, or by its silence against it, has looked for it.
LOOKS_DB = 6


def not_ruled_out(
    pack: Pack, findings: Iterable[Finding], named: Sequence[str], completions: Fact | None = None
) -> tuple[Unjudged, ...]:
    """Return the harmful causes that nothing in this input speaks for or against, each with what it would take.

    A cause counts as looked for when a finding that could have opened its complaint was evaluated, and either spoke for
    it or weighs against it by its silence. Causes in `named` are spoken of already; `completions` says what the samples
    are, where that is known, and causes that only other samples have are none to rule out.
    """
    by_rule = {finding.rule: finding for finding in findings}
    samples = "" if completions is None else "completions" if completions.value else "steps"
    beside = {cause.id for cause in pack.causes if samples and cause.samples not in ("", samples)}
    never = [unjudged for unjudged in pack.unjudged if unjudged.id not in beside.union(named)]
    spoken = {*named, *beside, *(unjudged.id for unjudged in pack.unjudged)}
    harmful = [cause for cause in pack.causes if not cause.benign and cause.id not in spoken]
    unseen = [
        _unseen(cause.id, why)
        for cause in harmful
        if (why := _why_unseen(pack.openers[cause.id], by_rule, pack.by_name)) is not None
    ]
    return (*unseen, *never)


def _why_unseen(openers: Sequence[Weight], findings: Mapping[str, Finding], rules: Mapping[str, Rule]) -> str | None:
    """Return what it would take to look for a cause; None where something did, or where it does not apply.

    A soft symptom that fired without another beside it asks a question, and answers none.
    """
    fired: list[tuple[Weight, Finding]] = []
    lacking: Finding | None = None
    for weight in openers:
        found = findings.get(weight.finding)
        if found is None:
            continue
        if found.status == "clear":
            if -weight.clear >= LOOKS_DB:
                return None
        elif found.status == "fired":
            fired.append((weight, found))
        elif lacking is None and (found.missing or _unreadable(found)):
            lacking = found
    alone = len({f.link for _, f in fired}) == 1 and not any(rules[f.rule].opens_alone for _, f in fired)
    if not alone and any(weight.fired >= LOOKS_DB for weight, _ in fired):
        return None
    return lacking.reason if lacking else None


def _unreadable(finding: Finding) -> bool:
    """Tell a check that was not made for want of something from one for another algorithm or another K."""
    return not (finding.reason or "").startswith(("not for ", "constant by construction"))


@lru_cache(maxsize=1024)  # the runs of a sweep lack the same
def _unseen(cause: str, because: str) -> Unjudged:
    return Unjudged(id=cause, because=because, a_fuller_log_could=True)
