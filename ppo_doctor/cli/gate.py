"""Decide for CI whether runs pass: by a policy, and by comparison with a baseline."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.cli.judge import judge_runs
from ppo_doctor.cli.options import gather_runs
from ppo_doctor.cli.policy import (
    PERCENTILE,
    applied,
    find_policy,
    known_rules,
    parse_budget,
    read_baseline,
    read_policy,
)
from ppo_doctor.diagnosis.divergence import grouped
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
from ppo_doctor.model.errors import ExitCode, worst
from ppo_doctor.model.evidence import number
from ppo_doctor.model.words import ASKED, QUESTIONS, Severity

if TYPE_CHECKING:
    from ppo_doctor.cli.policy import Baseline, Budget, KnownFaults, Policy
    from ppo_doctor.diagnosis.gate_result import BaselineState, Outcome
    from ppo_doctor.model.diagnosis import Diagnosis, Problem, RankedCause
    from ppo_doctor.model.request import Request
    from ppo_doctor.model.run import Run

#: A likely cause fails a group when it leads in at least this share of its seeds; a proven one fails it in any seed.
GROUP_SHARE = 0.5
OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def policy_for(
    path: Path | None,
    *,
    fail_on: str | None = None,
    baseline: Path | None = None,
    rules: Sequence[Path] = (),
    budgets: Sequence[str] = (),
) -> Policy:
    """Return the policy of a gate: the file named, else the nearest one, with what the caller adds.

    Raises:
        DoctorError: the policy cannot be read or means nothing (exit code 2).
    """
    policy = read_policy(path) if path else find_policy(Path())
    return replace(
        policy,
        fail_on=fail_on or policy.fail_on,
        baseline=baseline or policy.baseline,
        rules=(*policy.rules, *rules),
        budgets=(*policy.budgets, *(parse_budget(text, "--budget") for text in budgets)),
    )


def run_gate(
    sources: Sequence[str], policy: Policy, request: Request, *, group: bool = False
) -> tuple[list[tuple[Run, Diagnosis]], Mapping[str, GateResult], ExitCode]:
    """Judge sources by a policy; return the judged runs, the result of each by its id, and the exit code over all.

    Raises:
        DoctorError: a policy that names what does not exist, or nothing that could be judged.
    """
    pack = applied(policy, load_pack(policy.rules))
    known_rules(pack, (*request.select, *request.ignore))
    baseline = read_baseline(policy.baseline) if policy.baseline else None
    runs, errors = gather_runs(sources)
    judged = list(judge_runs(runs, errors, _with_policy(request, policy), pack))
    results: dict[str, GateResult] = {}
    for seeds in grouped(judged) if group else [[pair] for pair in judged]:
        result = decide(seeds, policy, baseline)
        results |= {run.id: result for run, _ in seeds}
    return judged, results, worst([error.code for error in errors] + [result.code for result in results.values()])


def _with_policy(request: Request, policy: Policy) -> Request:
    """Return the request with the policy's rules; the caller's selection replaces, what it ignores adds."""
    return replace(
        request,
        select=tuple(request.select) or policy.select,
        ignore=(*policy.ignore, *request.ignore),
        framework=request.framework or policy.framework,
        target_return=policy.target_return if request.target_return is None else request.target_return,
        project_aliases=policy.alias,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gate:
    """What a decision depends on; `known` is None if the baseline does not contain the runs."""

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
    items = (
        *_faults(gate),
        *_questions(gate),
        *_failed_checks(gate),
        *(check_budget(budget, [run for run, _ in judged]) for budget in policy.budgets if not budget.counts_runs),
    )
    lacking = [f"the baseline does not hold {diagnoses[0].run.id}"] if baseline and known is None else []
    # Allowances that a run does not need should be removed before they hide something.
    unused = [f"{a.cause} is allowed and does not lead here" for a in policy.allow if a.cause not in gate.leading]
    return GateResult(
        code=_code(items, policy),
        items=items,
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


def _faults(gate: _Gate) -> list[GateItem]:
    """Check the causes, and the findings that no cause explains, at or above the bound; of several seeds each once."""
    if gate.policy.fail_on == NEVER:
        return []
    bound = Severity(gate.policy.fail_on)
    causes: list[RankedCause] = []
    unexplained: list[Problem] = []
    for diagnosis in gate.diagnoses:
        blamed = [cause for cause in faults(diagnosis) if cause.severity.at_least(bound)]
        explained = {cause.problem for cause in blamed}
        causes += blamed
        unexplained += [p for p in diagnosis.problems if makes_unhealthy(p, bound) and p.id not in explained]
    causes.sort(key=lambda cause: (cause.severity.rank, cause.confidence != "established", cause.rank))
    counts = Counter([cause.id for cause in causes] + [problem.name for problem in unexplained])
    worst_causes = {cause.id: cause for cause in reversed(causes)}
    worst_problems = {p.name: p for p in sorted(unexplained, key=lambda problem: -problem.severity.rank)}
    return [
        *(_of_cause(worst_causes[name], counts[name], gate) for name in dict.fromkeys(cause.id for cause in causes)),
        *(_of_problem(problem, counts[name], gate) for name, problem in worst_problems.items()),
    ]


def _of_cause(cause: RankedCause, runs: int, gate: _Gate) -> GateItem:
    text = f"{cause.id}: {cause.title} ({cause.confidence}, {cause.severity.value}{gate.in_runs(runs)})"
    seldom = cause.confidence != "established" and runs / len(gate.diagnoses) < GROUP_SHARE
    state, words = _compared(cause.id, cause.severity, cause.confidence, gate.known)
    outcome, because = _outcome((cause.id,), state, words, gate, seldom=seldom)
    return GateItem(kind="cause", name=cause.id, outcome=outcome, message=text + because, baseline_state=state)


def _of_problem(problem: Problem, runs: int, gate: _Gate) -> GateItem:
    text = f"{problem.name}: {problem.title} ({problem.severity.value}{gate.in_runs(runs)})"
    state, words = _compared(problem.name, problem.severity, "likely", gate.known)
    outcome, because = _outcome(problem.causes, state, words, gate, seldom=runs / len(gate.diagnoses) < GROUP_SHARE)
    return GateItem(kind="finding", name=problem.name, outcome=outcome, message=text + because, baseline_state=state)


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
    causes: Collection[str], state: BaselineState | None, words: str, gate: _Gate, *, seldom: bool
) -> tuple[Outcome, str]:
    """Return the outcome of a fault and why; an allowance counts before the number of runs, and both before a baseline.

    An allowance that has expired needs a decision, whatever the baseline says.
    """
    allowed = max((a for a in gate.policy.allow if a.cause in causes), key=lambda a: a.expires, default=None)
    if allowed is not None and not allowed.expired(gate.today):
        return "allowed", f"; allowed until {allowed.expires}: {allowed.reason}"
    if allowed is not None:
        return "failed", f"; it was allowed until {allowed.expires} ({allowed.reason}), which has passed"
    if seldom:
        return "seldom", "; too few runs to blame the configuration"
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
    """Return the statistic of a run, None if it has no such metric.

    `first` and `last` are values of single records, even if they are NaN, which breaks every budget; the other
    statistics ignore values that are not finite, and are NaN without any finite value.
    """
    import numpy as np

    series = run.series.get(budget.metric)
    if series is None or not len(series):
        return None
    if budget.statistic in ("first", "last"):
        return float(series.values[0 if budget.statistic == "first" else -1])
    finite = series.values[np.isfinite(series.values)]
    if not finite.size:
        return math.nan
    if percentile := PERCENTILE.match(budget.statistic):
        return float(np.percentile(finite, int(percentile[1])))
    return float(getattr(np, budget.statistic)(finite))
