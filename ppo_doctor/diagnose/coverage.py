"""Which causes this input cannot speak about: a check that could not run never looks like one that passed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ppo_doctor.model import Unjudged

if TYPE_CHECKING:
    from ppo_doctor.model import Cause, Finding
    from ppo_doctor.rulepack import Pack

#: A finding that weighs at least this for a cause, or by its silence against it, has looked for it.
LOOKS_DB = 6


def not_ruled_out(
    pack: Pack, causes: Sequence[Cause], findings: Iterable[Finding], named: Sequence[str]
) -> tuple[Unjudged, ...]:
    """Return the harmful causes that nothing in this input speaks for or against, each with what it would take.

    A cause counts as looked for when a check that could prove it, or that usually goes with it, was answered. Causes in
    `named` are spoken of already; of those in the pack that are not among `causes`, which such a run can have, there is
    nothing to rule out.
    """
    by_rule = {finding.rule: finding for finding in findings}
    beside = {cause.id for cause in pack.causes} - {cause.id for cause in causes}
    never = [unjudged for unjudged in pack.unjudged if unjudged.id not in beside.union(named)]
    spoken = {*named, *(unjudged.id for unjudged in pack.unjudged)}
    harmful = [cause for cause in causes if not cause.benign and cause.id not in spoken]
    unseen = [_unseen(cause.id, why) for cause in harmful if (why := _why_unseen(cause, by_rule)) is not None]
    return (*unseen, *never)


def _why_unseen(cause: Cause, findings: Mapping[str, Finding]) -> str | None:
    """Return what it would take to look for a cause; None where something did, or where it does not apply."""
    looking = [weight.finding for weight in cause.weights if weight.fired >= LOOKS_DB]
    asked = [findings[name] for name in looking if name in findings]
    if any(found.status in ("fired", "clear") for found in asked):
        return None
    lacking = next((found for found in asked if found.missing or _unreadable(found)), None)
    return lacking.reason if lacking else None


def _unreadable(finding: Finding) -> bool:
    """Tell a check that was not made for want of something from one for another algorithm or another K."""
    return not (finding.reason or "").startswith(("not for ", "constant by construction"))


@lru_cache(maxsize=1024)  # the runs of a sweep lack the same
def _unseen(cause: str, because: str) -> Unjudged:
    return Unjudged(id=cause, because=because, a_fuller_log_could=True)
