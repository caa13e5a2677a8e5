"""What a gate ruled about a run: each cause, budget and question that it held against the policy, and the exit code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ppo_doctor.errors import ExitCode
from ppo_doctor.judgement import fails
from ppo_doctor.model import Severity

if TYPE_CHECKING:
    from ppo_doctor.model import Diagnosis, RankedCause

Against = Literal["new", "worse", "known"]
Kind = Literal["cause", "finding", "budget", "question"]
Outcome = Literal["failed", "passed", "allowed", "known", "seldom", "open"]

WORDS = {ExitCode.OK: "passed", ExitCode.SICK: "failed", ExitCode.INCONCLUSIVE: "inconclusive"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """A cause that the policy allows to lead until a day (ISO 8601), and whether this run makes use of it."""

    cause: str
    reason: str
    expires: str
    expired: bool
    used: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """A budget in numbers: the value that was held against the bound, None where no run has the metric."""

    metric: str
    statistic: str
    op: str
    bound: float
    value: float | None
    #: runs that have the metric
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One thing that was held against the policy, how that ended, and why."""

    kind: Kind
    name: str
    outcome: Outcome
    says: str
    #: of a cause or a finding: how it stands to a baseline that holds this run
    against: Against | None = None
    #: of a budget: its numbers
    spent: Spent | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """The gate's answer for one run, or for the seeds of one configuration."""

    code: ExitCode
    held: tuple[Held, ...] = ()
    #: causes of the baseline that no longer lead
    fixed: tuple[str, ...] = ()
    suppressed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    #: the runs that were judged together
    runs: tuple[str, ...] = ()
    #: file of the policy, None for the defaults
    policy: str | None = None
    fail_on: str = "high"
    require: tuple[str, ...] | None = None
    allowances: tuple[Allowance, ...] = ()
    #: file of the baseline, and whether it holds this run
    baseline: str | None = None
    in_baseline: bool = False

    @property
    def reasons(self) -> tuple[Held, ...]:
        """Return what kept the run from passing: what failed, or else the questions that stayed open."""
        if self.code == ExitCode.OK:
            return ()
        return self.of("failed") or self.of("open")

    @property
    def word(self) -> str:
        """Return "passed", "failed" or "inconclusive"."""
        return WORDS.get(self.code, "failed")

    def of(self, *outcomes: Outcome, kind: Kind | None = None) -> tuple[Held, ...]:
        """Return what ended so, in the order in which it was held."""
        return tuple(held for held in self.held if held.outcome in outcomes and kind in (None, held.kind))


def contested(diagnosis: Diagnosis) -> frozenset[str]:
    """Return the problems in which a harmless explanation is level with a fault."""
    return frozenset(problem.id for problem in diagnosis.problems if problem.verdict == "inconclusive")


def faults(diagnosis: Diagnosis) -> tuple[RankedCause, ...]:
    """Return the leading causes that a run can be blamed for: not benign, not merely suspected, not contested."""
    disputed = contested(diagnosis)
    return tuple(c for c in diagnosis.causes if fails(c, Severity.INFO) and c.problem not in disputed)


def failing(diagnosis: Diagnosis, ruling: Ruling | None) -> tuple[RankedCause, ...]:
    """Return the causes that fail a run: those that the gate failed, else every fault that leads."""
    if ruling is None:
        return faults(diagnosis)
    failed = {held.name for held in ruling.of("failed", kind="cause")}
    return tuple(cause for cause in diagnosis.causes if cause.id in failed)
