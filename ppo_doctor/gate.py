"""The gate: a diagnosis held against a policy and a baseline, for one run or for the seeds of one configuration.

Leading causes, findings that make a run unhealthy without one, budgets and questions that stay open fail a gate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import date
from typing import TYPE_CHECKING

from ppo_doctor.budgets import hold
from ppo_doctor.errors import ExitCode
from ppo_doctor.judgement import NEVER, makes_unhealthy
from ppo_doctor.model import ASKED, QUESTIONS, Severity
from ppo_doctor.ruling import Allowance, Held, Ruling, contested, faults

if TYPE_CHECKING:
    from ppo_doctor.baseline import Baseline, Known
    from ppo_doctor.model import Confidence, Diagnosis, Problem, RankedCause, Run
    from ppo_doctor.policy import Allowed, Policy
    from ppo_doctor.ruling import Against, Outcome

#: A likely cause fails a group when it leads in at least this share of its seeds; a proven one fails it in any seed.
GROUP_SHARE = 0.5


def rule_on(
    judged: Sequence[tuple[Run, Diagnosis]], policy: Policy, baseline: Baseline | None = None, today: date | None = None
) -> Ruling:
    """Return what the policy says of a run, or of several seeds of one configuration taken together."""
    diagnoses = [diagnosis for _, diagnosis in judged]
    known = baseline.of_all(diagnosis.run.id for diagnosis in diagnoses) if baseline else None
    today = today or date.today()
    held = [
        *_causes(diagnoses, policy, known, today),
        *_findings(diagnoses, policy, known, today),
        *_questions(diagnoses, policy),
        *_failed_checks(diagnoses),
        *(hold(budget, [run for run, _ in judged]) for budget in policy.budgets),
    ]
    notes = [f"the baseline does not hold {diagnoses[0].run.id}"] if baseline and known is None else []
    return Ruling(
        code=_code(held, policy),
        held=tuple(held),
        fixed=_fixed(diagnoses, known or {}),
        suppressed=tuple(dict.fromkeys(name for diagnosis in diagnoses for name in diagnosis.suppressed)),
        notes=(*notes, *_unused(diagnoses, policy)),
        runs=tuple(diagnosis.run.id for diagnosis in diagnoses),
        policy=str(policy.source) if policy.source else None,
        fail_on=policy.fail_on,
        require=policy.require,
        allowances=tuple(_used(allowed, diagnoses, today) for allowed in policy.allow),
        baseline=str(baseline.path) if baseline else None,
        in_baseline=known is not None,
    )


def _used(allowed: Allowed, diagnoses: Sequence[Diagnosis], today: date) -> Allowance:
    return Allowance(
        cause=allowed.cause,
        reason=allowed.reason,
        expires=allowed.expires.isoformat(),
        expired=allowed.expired(today),
        used=allowed.cause in _leading(diagnoses),
    )


def _code(held: Sequence[Held], policy: Policy) -> ExitCode:
    outcomes = {entry.outcome for entry in held}
    if "failed" in outcomes:
        return ExitCode.SICK
    # A gate that never fails says so of open questions too; only a question or budget asked for by name counts.
    named = policy.require is not None or any(e.kind == "budget" and e.outcome == "open" for e in held)
    if "open" in outcomes and (policy.fail_on != NEVER or named):
        return ExitCode.INCONCLUSIVE
    return ExitCode.OK


def _causes(diagnoses: Sequence[Diagnosis], policy: Policy, known: Known | None, today: date) -> list[Held]:
    """Hold every fault at or above the bound, worst first; of several seeds each cause once."""
    if policy.fail_on == NEVER:
        return []
    bound = Severity(policy.fail_on)
    seen = [cause for diagnosis in diagnoses for cause in faults(diagnosis) if cause.severity.at_least(bound)]
    best: dict[str, RankedCause] = {}
    for cause in sorted(seen, key=lambda cause: (cause.severity.rank, cause.confidence != "established", cause.rank)):
        best.setdefault(cause.id, cause)
    count = Counter(cause.id for cause in seen)
    return [_cause(cause, count[cause.id], len(diagnoses), policy, known, today) for cause in best.values()]


def _cause(cause: RankedCause, leads: int, seeds: int, policy: Policy, known: Known | None, today: date) -> Held:
    against, words = _against(cause.id, cause.severity, cause.confidence, known)
    share = 1.0 if cause.confidence == "established" else leads / seeds
    outcome, because = _outcome((cause.id,), share, policy, (against, words), today)
    often = _often(leads, seeds)
    says = f"{cause.id}: {cause.title} ({cause.confidence}, {cause.severity.value}{often}){because}"
    return Held(kind="cause", name=cause.id, outcome=outcome, says=says, against=against)


def _findings(diagnoses: Sequence[Diagnosis], policy: Policy, known: Known | None, today: date) -> list[Held]:
    """Hold what makes a run unhealthy though no fault explains it; of several seeds each finding once."""
    if policy.fail_on == NEVER:
        return []
    bound = Severity(policy.fail_on)
    shown = [(problem.name, problem) for diagnosis in diagnoses for problem in _unexplained(diagnosis, bound)]
    worst = dict(sorted(shown, key=lambda entry: -entry[1].severity.rank))
    count = Counter(name for name, _ in shown)
    return [_finding(problem, count[name], len(diagnoses), policy, known, today) for name, problem in worst.items()]


def _unexplained(diagnosis: Diagnosis, bound: Severity) -> list[Problem]:
    explained = {cause.problem for cause in faults(diagnosis) if cause.severity.at_least(bound)}
    return [p for p in diagnosis.problems if makes_unhealthy(p, bound) and p.id not in explained]


def _finding(problem: Problem, shows: int, seeds: int, policy: Policy, known: Known | None, today: date) -> Held:
    against = _against(problem.name, problem.severity, "likely", known)
    outcome, because = _outcome(problem.causes, shows / seeds, policy, against, today)
    says = f"{problem.name}: {problem.title} ({problem.severity.value}{_often(shows, seeds)}){because}"
    return Held(kind="finding", name=problem.name, outcome=outcome, says=says, against=against[0])


def _often(runs: int, seeds: int) -> str:
    return f" in {runs} of {seeds} runs" if seeds > 1 else ""


def _against(name: str, severity: Severity, confidence: Confidence, known: Known | None) -> tuple[Against | None, str]:
    """Return how a cause or a finding stands to the baseline, in a word and in several; None: it lacks the run."""
    if known is None:
        return None, ""
    if name not in known:
        return "new", "; not in the baseline"
    worse = known[name].worse(severity, confidence)
    return ("worse", f"; worse than in the baseline: {worse}") if worse else ("known", "; as in the baseline")


def _outcome(
    causes: Collection[str], share: float, policy: Policy, against: tuple[Against | None, str], today: date
) -> tuple[Outcome, str]:
    allowed = _allowance(causes, policy)
    if allowed is not None and not allowed.expired(today):
        return "allowed", f"; allowed until {allowed.expires}: {allowed.reason}"
    if allowed is not None:  # in the baseline or not: an allowance that ran out asks for a decision
        return "failed", f"; it was allowed until {allowed.expires} ({allowed.reason}), which has passed"
    if share < GROUP_SHARE:
        return "seldom", "; too few runs to blame the configuration"
    stands, words = against
    return ("known" if stands == "known" else "failed"), words


def _allowance(causes: Collection[str], policy: Policy) -> Allowed | None:
    """Return the allowance that runs longest."""
    return max((a for a in policy.allow if a.cause in causes), key=lambda a: a.expires, default=None)


def _questions(diagnoses: Sequence[Diagnosis], policy: Policy) -> list[Held]:
    """Hold the questions of coverage: those the policy requires, else those that leave a verdict inconclusive."""
    held = [_contested(diagnosis, policy) for diagnosis in diagnoses]
    asked = QUESTIONS if policy.require is None else policy.require
    for question in asked:
        silent = [d for d in diagnoses if not getattr(d.coverage, question) and _counts(d, policy)]
        if silent:
            held.append(_open(question, silent[0], len(silent), len(diagnoses)))
    return [entry for entry in held if entry is not None]


def _failed_checks(diagnoses: Sequence[Diagnosis]) -> list[Held]:
    """Hold the checks that failed to run: what they would have found is open, whatever else was found."""
    failed = {name: why for diagnosis in diagnoses for name, why in diagnosis.coverage.failed.items()}
    return [
        Held(kind="question", name=name, outcome="open", says=f"the check {name} failed to run: {why}")
        for name, why in failed.items()
    ]


def _counts(diagnosis: Diagnosis, policy: Policy) -> bool:
    """Without a list of its own a gate goes by the verdict, in which a positive finding beats thin coverage."""
    return policy.require is not None or diagnosis.verdict == "inconclusive"


def _open(question: str, diagnosis: Diagnosis, silent: int, seeds: int) -> Held:
    reasons = tuple(dict.fromkeys(diagnosis.coverage.unanswered.get(question, ())))[:3]
    because = f": {'; '.join(reasons)}" if reasons else ""
    often = f" in {silent} of {seeds} runs" if seeds > 1 else ""
    says = f"the log does not show {ASKED[question]}{often}{because}"
    return Held(kind="question", name=question, outcome="open", says=says)


def _contested(diagnosis: Diagnosis, policy: Policy) -> Held | None:
    """Hold a problem in which a fault is level with something harmless, unless the fault is allowed anyway."""
    disputed = contested(diagnosis)
    rivals = [c for c in diagnosis.causes if c.leader and c.problem in disputed and not c.benign]
    allowed = {a.cause for a in policy.allow}
    if not disputed or (rivals and all(cause.id in allowed for cause in rivals)):
        return None
    return Held(kind="question", name="cause", outcome="open", says=diagnosis.verdict_because)


def _fixed(diagnoses: Sequence[Diagnosis], known: Known) -> tuple[str, ...]:
    leading = _leading(diagnoses)
    return tuple(name for name, before in known.items() if before.is_cause and name not in leading)


def _unused(diagnoses: Sequence[Diagnosis], policy: Policy) -> list[str]:
    """Tell allowances that this run does not need, so that they are taken out before they hide something."""
    leading = _leading(diagnoses)
    return [f"{a.cause} is allowed and does not lead here" for a in policy.allow if a.cause not in leading]


def _leading(diagnoses: Sequence[Diagnosis]) -> set[str]:
    return {cause.id for diagnosis in diagnoses for cause in diagnosis.causes if cause.leader}
