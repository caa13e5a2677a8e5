"""How ranked causes stand to one another, in the words of every report that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.model import Severity
from ppo_doctor.report.escape import plain
from ppo_doctor.report.words import bound, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppo_doctor.model import Diagnosis, LedgerEntry, RankedCause, Verdict

#: The gravest verdict first.
VERDICTS: Mapping[Verdict, int] = {"unhealthy": 0, "warning": 1, "inconclusive": 2, "healthy": 3}
#: What the numbers of an account are.
UNIT = "dB against a healthy run"


def gravity(diagnosis: Diagnosis) -> tuple[int, int]:
    """Return what sorts runs, the gravest first: the verdict, then how grave the fault is that leads."""
    faults = [cause.severity.rank for cause in diagnosis.causes if cause.leader and not cause.benign]
    return VERDICTS[diagnosis.verdict], min(faults, default=len(Severity))


def behind(diagnosis: Diagnosis, cause: RankedCause) -> str:
    """Return how a cause stands to what leads its problem: as its root, as what follows, or how far behind."""
    ahead = [c for c in diagnosis.causes if c.leader and c.problem == cause.problem]
    if cause.leader or not ahead:
        return ""
    if cause.role in ("root", "mechanism"):
        return bound(f"{'may be why' if cause.role == 'root' else 'follows from'} {ahead[0].rank}")
    best = max(ahead, key=lambda leader: leader.score_db)
    return bound(f"{best.score_db - cause.score_db} dB behind {best.rank}")


def level_with(diagnosis: Diagnosis, cause: RankedCause) -> str:
    """Return which causes this log cannot tell a cause from; nothing where there is none."""
    if not cause.level_with:
        return ""
    ranks = {c.id: c.rank for c in diagnosis.causes}
    names = [bound(f"{ranks[i]} ({plain(i)})" if i in ranks else plain(i)) for i in cause.level_with]
    return f"Cannot be told apart from {listed(names)} by this log."


def weighed(cause: RankedCause) -> list[LedgerEntry]:
    """Return the account of a cause, what speaks for it first, the weightiest first."""
    return sorted(cause.ledger, key=lambda entry: -entry.db)


def in_favour(cause: RankedCause) -> list[LedgerEntry]:
    """Return what speaks for a cause, the weightiest first."""
    return [entry for entry in weighed(cause) if entry.db > 0]
