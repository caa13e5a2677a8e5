"""Exit codes of diagnoses, and the result of a gate with everything that it checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ppo_doctor.model.errors import ExitCode
from ppo_doctor.model.words import Severity

if TYPE_CHECKING:
    from ppo_doctor.model.diagnosis import Diagnosis, Problem, RankedCause

NEVER = "never"
FAIL_ON = ("critical", "high", "medium", "low", NEVER)
BaselineState = Literal["new", "worse", "known"]
#: `run` only in the gate of a fleet's table
Kind = Literal["cause", "finding", "budget", "question", "run"]
Outcome = Literal["failed", "passed", "allowed", "known", "seldom", "open"]
#: Outcomes in the order in which they are printed; items that passed are not printed.
PRINTED: tuple[Outcome, ...] = ("failed", "open", "allowed", "known", "seldom")
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
class BudgetValue:
    """A budget in numbers: the value that was compared with the bound, None where no run has the metric."""

    metric: str
    statistic: str
    op: str
    bound: float
    value: float | None
    #: runs that have the metric
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GateItem:
    """One thing that the gate checked, its outcome, and why."""

    kind: Kind
    name: str
    outcome: Outcome
    message: str
    #: of a cause or a finding: how it compares with a baseline that has this run
    baseline_state: BaselineState | None = None
    #: of a budget: its numbers
    budget: BudgetValue | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The gate's answer for one run, or for the seeds of one configuration."""

    code: ExitCode
    items: tuple[GateItem, ...] = ()
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
    #: file of the baseline, and whether it has this run
    baseline: str | None = None
    in_baseline: bool = False

    @property
    def reasons(self) -> tuple[GateItem, ...]:
        """Return what kept the run from passing: what failed, or else the questions that stayed open."""
        if self.code == ExitCode.OK:
            return ()
        return self.of("failed") or self.of("open")

    @property
    def word(self) -> str:
        """Return "passed", "failed" or "inconclusive"."""
        return WORDS.get(self.code, "failed")

    def of(self, *outcomes: Outcome, kind: Kind | None = None) -> tuple[GateItem, ...]:
        """Return the items with one of some outcomes, in the order in which they were checked."""
        return tuple(item for item in self.items if item.outcome in outcomes and kind in (None, item.kind))

    def lines(self) -> list[tuple[str, str]]:
        """Return (word, sentence) for everything that was checked and did not pass, the worst first, and the notes."""
        lines = [(f"{outcome}:", item.message) for outcome in PRINTED for item in self.of(outcome)]
        lines += [("fixed:", f"{name}, which led in the baseline, does not lead here") for name in self.fixed]
        if self.suppressed:
            left_out = f"{len(self.suppressed)} by select or ignore: {', '.join(self.suppressed)}"
            lines.append(("left out:", left_out))
        return lines + [("note:", note) for note in self.notes]


def exit_code(diagnosis: Diagnosis, fail_on: str = NEVER) -> ExitCode:
    """Return 1 for what is unhealthy or leads at or above `fail_on`, 4 for an inconclusive run under a gate, else 0."""
    if fail_on == NEVER:
        return ExitCode.OK
    bound = Severity(fail_on)
    if diagnosis.verdict == "unhealthy" and any(makes_unhealthy(p, bound) for p in diagnosis.problems):
        return ExitCode.SICK
    if any(cause.severity.at_least(bound) for cause in faults(diagnosis)):
        return ExitCode.SICK
    return ExitCode.INCONCLUSIVE if diagnosis.verdict == "inconclusive" else ExitCode.OK


def makes_unhealthy(problem: Problem, bound: Severity) -> bool:
    """Return whether what a problem shows makes the run unhealthy, whatever its cause, and is severe enough."""
    return problem.verdict == "unhealthy" and problem.severity.at_least(bound)


def fails(cause: RankedCause, bound: Severity) -> bool:
    """Return whether a cause fails a gate: a leader, not benign, established or likely, severe enough."""
    return cause.leader and not cause.benign and cause.confidence != "suspected" and cause.severity.at_least(bound)


def contested(diagnosis: Diagnosis) -> frozenset[str]:
    """Return the problems in which a harmless explanation, or health, is tied with a fault."""
    return frozenset(problem.id for problem in diagnosis.problems if problem.verdict == "inconclusive")


def faults(diagnosis: Diagnosis) -> tuple[RankedCause, ...]:
    """Return the leading causes that a run can be blamed for: not benign, not merely suspected, not contested."""
    disputed = contested(diagnosis)
    return tuple(c for c in diagnosis.causes if fails(c, Severity.INFO) and c.problem not in disputed)


def failing(diagnosis: Diagnosis, result: GateResult | None) -> tuple[RankedCause, ...]:
    """Return the causes that fail a run: those that the gate failed, else every fault that leads."""
    if result is None:
        return faults(diagnosis)
    failed = {item.name for item in result.of("failed", kind="cause")}
    return tuple(cause for cause in diagnosis.causes if cause.id in failed)
