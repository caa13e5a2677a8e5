"""The registry: a fault is a named function from a sound Setup to a faulty one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from ..settings import Setup

Inject = Callable[[Setup, int], Setup]
#: A later version of a framework shows what the earlier one does, unless a fault says otherwise.
_LIKE = {"trl-grpo-027": "trl-grpo"}
Verdict = Literal["healthy", "warning", "unhealthy", "inconclusive", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    name: str
    cause: str
    """An id of causes.csv, or "healthy"."""
    description: str
    verdict: Verdict
    severities: str
    """What severity 1, 2 and 3 mean."""
    default_severity: int
    level_with: Mapping[str, tuple[str, ...]]
    """Dialect → causes that its logs can't separate from this one; the key "*" holds for every other dialect."""
    inject: Inject
    sound_in: tuple[str, ...] | None = None
    """Of what is sound: the dialects whose settings say so (None: all). Elsewhere they promise what it lacks."""
    elsewhere: str = ""
    """The cause that it is where it is not sound."""

    def sound(self, dialect: str | None = None) -> bool:
        """Tell whether nothing may be alarmed of: in a dialect, or (None) in any."""
        return self.verdict == "healthy" and (self.sound_in is None or dialect is None or dialect in self.sound_in)

    def cause_in(self, dialect: str) -> str:
        """Return the cause that the logs of a dialect show."""
        return self.elsewhere if self.verdict == "healthy" and not self.sound(dialect) else self.cause

    def twins(self, dialect: str) -> tuple[str, ...]:
        if dialect.startswith("recorder"):  # it is there to tell apart what others leave level
            return self.level_with.get(dialect, self.level_with.get("recorder", ()))
        alike = self.level_with.get(_LIKE.get(dialect, dialect), self.level_with.get("*", ()))
        return self.level_with.get(dialect, alike)


FAULTS: dict[str, Fault] = {}


def fault(
    name: str,
    *,
    description: str,
    severities: str,
    cause: str | None = None,
    verdict: Verdict = "unhealthy",
    default_severity: int = 2,
    level_with: Mapping[str, tuple[str, ...]] | None = None,
    sound_in: tuple[str, ...] | None = None,
    elsewhere: str = "",
) -> Callable[[Inject], Inject]:
    """Register the decorated injection under `name`."""

    def register(inject: Inject) -> Inject:
        FAULTS[name] = Fault(
            name=name,
            cause=cause or name,
            description=description,
            verdict=verdict,
            severities=severities,
            default_severity=default_severity,
            level_with=level_with or {},
            inject=inject,
            sound_in=sound_in,
            elsewhere=elsewhere,
        )
        return inject

    return register


def onset(severity: int) -> float:
    """Where in the run a fault begins that would otherwise hold from the start."""
    return {1: 0.6, 2: 0.3}.get(severity, 0.0)
