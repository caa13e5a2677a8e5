"""Decide whether a gate passes: causes, findings, budgets and allowances, compared with a baseline."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias

from ppo_doctor.cli.policy import PERCENTILE
from ppo_doctor.diagnosis.gate_result import (
    NEVER,
    Allowance,
    BudgetValue,
    GateItem,
    GateResult,
    contested,
    faults,
    makes_unhealthy,
)
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.evidence import number
from ppo_doctor.model.opening import contents
from ppo_doctor.model.words import ASKED, QUESTIONS, Severity

if TYPE_CHECKING:
    from ppo_doctor.cli.policy import Budget, Policy
    from ppo_doctor.diagnosis.gate_result import BaselineState, Kind, Outcome
    from ppo_doctor.model.diagnosis import Diagnosis, Problem, RankedCause
    from ppo_doctor.model.run import FloatArray, Run

#: Versions of our reports that have what a baseline needs.
READABLE = ("1", "2", "3")
#: Bytes of a report; one of a thousand runs has some 50 MiB.
LARGEST = 256 << 20


HINT = "write one with: ppo-doctor analyze RUN --format json -o main.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFault:
    """A cause that led, or a finding that made the run unhealthy, in the baseline."""

    severity: Severity
    confidence: str
    is_cause: bool = True

    def worse(self, severity: Severity, confidence: str) -> str:
        """Return how a cause has become worse, empty if it has not.

        A longer log proves more, so a likely cause that is now established is no worse; a suspicion that has become
        likely is, because a suspicion never failed the gate.
        """
        if severity.rank < self.severity.rank:
            return f"{self.severity.value} then, {severity.value} now"
        if self.confidence == "suspected" and confidence != "suspected":
            return f"suspected then, {confidence} now"
        return ""


KnownFaults: TypeAlias = Mapping[str, KnownFault]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The faults of earlier runs, by run."""

    path: Path
    runs: Mapping[str, KnownFaults] = field(default_factory=dict)

    def known(self, runs: Iterable[str]) -> KnownFaults | None:
        """Return the faults of any of several seeds, each as it was at its worst; None if it has none of the seeds."""
        found = [known for run in runs if (known := self._of(run)) is not None]
        entries = [entry for known in found for entry in known.items()]
        # The worst comes last and stays.
        entries.sort(key=lambda entry: (-entry[1].severity.rank, entry[1].confidence != "suspected"))
        return dict(entries) if found else None

    def _of(self, run: str) -> KnownFaults | None:
        """Return a run's faults: by its path, else of the only run, else by a path that ends alike."""
        if run in self.runs:
            return self.runs[run]
        if len(self.runs) == 1:
            return next(iter(self.runs.values()))
        alike = [known for name, known in self.runs.items() if _tail(name) == _tail(run)]
        return alike[0] if len(alike) == 1 else None


def _tail(run: str) -> tuple[str, ...]:
    """Return folder and file, which stay the same when a job works elsewhere."""
    return PurePosixPath(run.replace("\\", "/")).parts[-2:]


def read_baseline(path: Path) -> Baseline:
    """Read a JSON report as a baseline.

    Raises:
        DoctorError: it cannot be read, or is no report of ours (exit code 2).
    """
    return Baseline(path=path, runs={d["run"]["id"]: _faults(d) for d in read_report(path)})


def read_report(path: Path) -> list[Mapping[str, Any]]:
    """Return the diagnoses of a JSON report.

    Raises:
        DoctorError: it cannot be read, or is no report of ours (exit code 2).
    """
    import json

    try:
        raw = json.loads(contents(path, LARGEST, pipes=True))
    except DoctorError as error:
        raise DoctorError(error.message, hint=HINT, code=ExitCode.USAGE) from error
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not JSON"
        raise DoctorError(f"{path}: cannot read: {reason}", hint=HINT, code=ExitCode.USAGE) from error
    if why := _unusable(raw):
        raise DoctorError(f"{path}: {why}", hint=HINT, code=ExitCode.USAGE)
    return list(raw.get("diagnoses", [raw]))


def _unusable(raw: object) -> str:
    """Return why a JSON document cannot be a baseline, empty if it can."""
    match raw:
        case {"schema_version": version, **rest} if {"run", "diagnoses", "error"} & set(rest):
            diagnoses = rest.get("diagnoses", [raw])
            if version not in READABLE:
                return f"schema {version}, and this version reads {', '.join(READABLE)}"
            if isinstance(diagnoses, list) and diagnoses and all(map(_is_diagnosis, diagnoses)):
                return ""
            error = rest.get("error")
            return str(error["message"]) if isinstance(error, dict) and error.get("message") else "no diagnosis in it"
    return "no report of ppo-doctor"


def _is_diagnosis(raw: object) -> bool:
    match raw:
        case {"run": {"id": str(), **run}, "causes": [*causes]}:
            return isinstance(run.get("config") or {}, Mapping) and all(map(_is_cause, causes))
    return False


def _is_cause(raw: object) -> bool:
    return isinstance(raw, Mapping) and isinstance(raw.get("id"), str) and raw.get("severity") in list(Severity)


def _faults(diagnosis: Mapping[str, Any]) -> KnownFaults:
    problems = diagnosis.get("problems")
    known: dict[str, KnownFault] = {}
    for problem in problems if isinstance(problems, list) else ():
        match problem:  # reports before version 3 do not say what makes a run unhealthy
            case {"verdict": "unhealthy", "severity": str(severity), "link": str(link)} if severity in list(Severity):
                name = str(problem.get("finding") or link)
                known[name] = KnownFault(severity=Severity(severity), confidence="likely", is_cause=False)
    return known | {
        cause["id"]: KnownFault(severity=Severity(cause["severity"]), confidence=str(cause.get("confidence")))
        for cause in diagnosis["causes"]
        if cause.get("leader") and not cause.get("benign")
    }


#: A likely cause fails a group when it leads in at least this share of its seeds; a proven one fails it in any seed.
GROUP_SHARE = 0.5
OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gate:
    """What a decision rests on; `known` is None where the baseline lacks the runs."""

    diagnoses: Sequence[Diagnosis]
    policy: Policy
    known: KnownFaults | None
    today: date

    @property
    def leading(self) -> set[str]:
        return {cause.id for diagnosis in self.diagnoses for cause in diagnosis.causes if cause.leader}

    def in_runs(self, count: int) -> str:
        return f" in {count} of {len(self.diagnoses)} runs" if len(self.diagnoses) > 1 else ""


def decide(
    judged: Sequence[tuple[Run, Diagnosis]], policy: Policy, baseline: Baseline | None = None, today: date | None = None
) -> GateResult:
    """Return whether a run, or several seeds of one configuration taken together, pass the policy."""
    diagnoses = [diagnosis for _, diagnosis in judged]
    known = baseline.known(diagnosis.run.id for diagnosis in diagnoses) if baseline else None
    gate = _Gate(diagnoses=diagnoses, policy=policy, known=known, today=today or date.today())
    items = [
        *_causes(gate),
        *_findings(gate),
        *_questions(gate),
        *_failed_checks(gate),
        *(check_budget(budget, [run for run, _ in judged]) for budget in policy.budgets),
    ]
    lacking = [f"the baseline does not hold {diagnoses[0].run.id}"] if baseline and known is None else []
    # Allowances that a run does not need should be removed before they hide something.
    unused = [f"{a.cause} is allowed and does not lead here" for a in policy.allow if a.cause not in gate.leading]
    return GateResult(
        code=_code(items, policy),
        items=tuple(items),
        fixed=tuple(n for n, before in (known or {}).items() if before.is_cause and n not in gate.leading),
        suppressed=tuple(dict.fromkeys(name for diagnosis in diagnoses for name in diagnosis.suppressed)),
        notes=(*lacking, *unused),
        runs=tuple(diagnosis.run.id for diagnosis in diagnoses),
        policy=str(policy.source) if policy.source else None,
        fail_on=policy.fail_on,
        require=policy.require,
        allowances=_allowances(gate),
        baseline=str(baseline.path) if baseline else None,
        in_baseline=known is not None,
    )


def _allowances(gate: _Gate) -> tuple[Allowance, ...]:
    return tuple(
        Allowance(
            cause=allowed.cause,
            reason=allowed.reason,
            expires=allowed.expires.isoformat(),
            expired=allowed.expired(gate.today),
            used=allowed.cause in gate.leading,
        )
        for allowed in gate.policy.allow
    )


def _code(items: Sequence[GateItem], policy: Policy) -> ExitCode:
    outcomes = {item.outcome for item in items}
    if "failed" in outcomes:
        return ExitCode.SICK
    # A gate that never fails reports open questions too; only a question or budget that the policy names counts.
    named = policy.require is not None or any(i.kind == "budget" and i.outcome == "open" for i in items)
    if "open" in outcomes and (policy.fail_on != NEVER or named):
        return ExitCode.INCONCLUSIVE
    return ExitCode.OK


def _causes(gate: _Gate) -> list[GateItem]:
    """Check every fault at or above the bound, worst first; of several seeds each cause once."""
    seen = [cause for diagnosis in gate.diagnoses for cause in _decision_faults(diagnosis, gate.policy)]
    worst: dict[str, RankedCause] = {}
    for cause in sorted(seen, key=lambda cause: (cause.severity.rank, cause.confidence != "established", cause.rank)):
        worst.setdefault(cause.id, cause)
    count = Counter(cause.id for cause in seen)
    return [_cause(cause, count[cause.id], gate) for cause in worst.values()]


def _decision_faults(diagnosis: Diagnosis, policy: Policy) -> list[RankedCause]:
    if policy.fail_on == NEVER:
        return []
    return [cause for cause in faults(diagnosis) if cause.severity.at_least(Severity(policy.fail_on))]


def _cause(cause: RankedCause, leads: int, gate: _Gate) -> GateItem:
    text = f"{cause.title} ({cause.confidence}, {cause.severity.value}{gate.in_runs(leads)})"
    share = 1.0 if cause.confidence == "established" else leads / len(gate.diagnoses)
    compared = _compared(cause.id, cause.severity, cause.confidence, gate.known)
    return _fault("cause", cause.id, text, (cause.id,), share, compared, gate)


def _findings(gate: _Gate) -> list[GateItem]:
    """Check what makes a run unhealthy though no fault explains it; of several seeds each finding once."""
    shown = [(problem.name, problem) for diagnosis in gate.diagnoses for problem in _unexplained(diagnosis, gate)]
    worst = dict(sorted(shown, key=lambda entry: -entry[1].severity.rank))
    count = Counter(name for name, _ in shown)
    return [_finding(problem, count[name], gate) for name, problem in worst.items()]


def _unexplained(diagnosis: Diagnosis, gate: _Gate) -> list[Problem]:
    if gate.policy.fail_on == NEVER:
        return []
    bound = Severity(gate.policy.fail_on)
    explained = {cause.problem for cause in _decision_faults(diagnosis, gate.policy)}
    return [p for p in diagnosis.problems if makes_unhealthy(p, bound) and p.id not in explained]


def _finding(problem: Problem, shows: int, gate: _Gate) -> GateItem:
    text = f"{problem.title} ({problem.severity.value}{gate.in_runs(shows)})"
    compared = _compared(problem.name, problem.severity, "likely", gate.known)
    return _fault("finding", problem.name, text, problem.causes, shows / len(gate.diagnoses), compared, gate)


def _fault(
    kind: Kind,
    name: str,
    text: str,
    causes: Collection[str],
    share: float,
    compared: tuple[BaselineState | None, str],
    gate: _Gate,
) -> GateItem:
    outcome, because = _outcome(causes, share, compared, gate)
    return GateItem(
        kind=kind, name=name, outcome=outcome, message=f"{name}: {text}{because}", baseline_state=compared[0]
    )


def _compared(
    name: str, severity: Severity, confidence: str, known: KnownFaults | None
) -> tuple[BaselineState | None, str]:
    """Return how a cause or a finding compares with the baseline, as a state and in words."""
    if known is None:
        return None, ""
    if name not in known:
        return "new", "; not in the baseline"
    worse = known[name].worse(severity, confidence)
    return ("worse", f"; worse than in the baseline: {worse}") if worse else ("known", "; as in the baseline")


def _outcome(
    causes: Collection[str], share: float, compared: tuple[BaselineState | None, str], gate: _Gate
) -> tuple[Outcome, str]:
    allowed = max((a for a in gate.policy.allow if a.cause in causes), key=lambda a: a.expires, default=None)
    if allowed is not None and not allowed.expired(gate.today):
        return "allowed", f"; allowed until {allowed.expires}: {allowed.reason}"
    if allowed is not None:  # in the baseline or not: an allowance that ran out needs a decision
        return "failed", f"; it was allowed until {allowed.expires} ({allowed.reason}), which has passed"
    if share < GROUP_SHARE:
        return "seldom", "; too few runs to blame the configuration"
    state, words = compared
    return ("known" if state == "known" else "failed"), words


def _questions(gate: _Gate) -> list[GateItem]:
    """Check the questions of coverage: those the policy requires, else those that leave a verdict inconclusive."""
    items = [item for diagnosis in gate.diagnoses if (item := _contested(diagnosis, gate.policy)) is not None]
    required = gate.policy.require
    counted = [d for d in gate.diagnoses if required is not None or d.verdict == "inconclusive"]
    for question in QUESTIONS if required is None else required:
        silent = [diagnosis for diagnosis in counted if not getattr(diagnosis.coverage, question)]
        if silent:
            reasons = tuple(dict.fromkeys(silent[0].coverage.unanswered.get(question, ())))[:3]
            because = f": {'; '.join(reasons)}" if reasons else ""
            message = f"the log does not show {ASKED[question]}{gate.in_runs(len(silent))}{because}"
            items.append(GateItem(kind="question", name=question, outcome="open", message=message))
    return items


def _failed_checks(gate: _Gate) -> list[GateItem]:
    """Return the checks that failed to run: what they would have found is open, whatever else was found."""
    failed = {name: why for diagnosis in gate.diagnoses for name, why in diagnosis.coverage.failed.items()}
    return [
        GateItem(kind="question", name=name, outcome="open", message=f"the check {name} failed to run: {why}")
        for name, why in failed.items()
    ]


def _contested(diagnosis: Diagnosis, policy: Policy) -> GateItem | None:
    """Return a question where a fault is tied with something harmless, unless the fault is allowed anyway."""
    disputed = contested(diagnosis)
    rivals = [c for c in diagnosis.causes if c.leader and c.problem in disputed and not c.benign]
    allowed = {a.cause for a in policy.allow}
    if not disputed or (rivals and all(cause.id in allowed for cause in rivals)):
        return None
    return GateItem(kind="question", name="cause", outcome="open", message=diagnosis.verdict_because)


def check_budget(budget: Budget, runs: Sequence[Run]) -> GateItem:
    """Check a budget on a run; on several seeds, on the median of their statistics.

    A budget whose metric no run has stays open: what could not be checked never looks like what passed.
    """
    import statistics  # fractions, decimal and random: only for those who have budgets

    values = [found for run in runs if (found := measured(budget, run)) is not None]
    value: float | None = None
    outcome: Outcome = "open"
    message = f"budget {budget.text} cannot be checked: the log has no {budget.metric}"
    if values:
        value = statistics.median(values) if all(map(math.isfinite, values)) else math.nan
        outcome = "passed" if OPERATORS[budget.op](value, budget.bound) else "failed"
        over = f", median of {len(values)} runs" if len(runs) > 1 else ""
        verb = "holds" if outcome == "passed" else "is broken"
        message = f"budget {budget.text} {verb}: {budget.statistic} is {number(value)}{over}"
    numbers = BudgetValue(
        metric=budget.metric,
        statistic=budget.statistic,
        op=budget.op,
        bound=budget.bound,
        value=value,
        runs=len(values),
    )
    return GateItem(kind="budget", name=budget.text, outcome=outcome, message=message, budget=numbers)


def measured(budget: Budget, run: Run) -> float | None:
    """Return the statistic of a run, None where it has no such metric.

    `first` and `last` are the records themselves, NaN included, which breaks every budget; the others leave out what
    is not finite, unless nothing else is there.
    """
    series = run.series.get(budget.metric)
    if series is None or not len(series):
        return None
    if budget.statistic in ("first", "last"):
        return float(series.values[0 if budget.statistic == "first" else -1])
    return _statistic(budget.statistic, series.values)


def _statistic(name: str, values: FloatArray) -> float:
    import numpy as np

    finite = values[np.isfinite(values)]
    if not finite.size:
        return math.nan
    percentile = PERCENTILE.match(name)
    if percentile:
        return float(np.percentile(finite, int(percentile[1])))
    return float(getattr(np, name)(finite))
