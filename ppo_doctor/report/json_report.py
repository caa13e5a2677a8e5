"""The JSON report: the contract's object, field by field, in the contract's order."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ppo_doctor.evidence import says
from ppo_doctor.model import Severity
from ppo_doctor.model.frozen import frozen
from ppo_doctor.report.json_text import dump, element
from ppo_doctor.report.words import to_do

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ppo_doctor.model import (
        ChainLink,
        Coverage,
        Diagnosis,
        Evidence,
        Finding,
        LedgerEntry,
        Outcome,
        Problem,
        RankedCause,
        Remedy,
        Run,
        RunSummary,
        SourceSummary,
        Status,
        Unjudged,
    )
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.json_text import Json

SCHEMA_VERSION = "3"
#: What a check answers, by the status of its finding.
ANSWERS: Mapping[Status, str] = {"fired": "yes", "clear": "no", "skipped": "unknown", "errored": "errored"}


@frozen
class Flow:
    """A document that ends with a list of runs: its text before the list, for each run, and after it.

    Whoever writes it piece by piece, with commas between the runs, need keep none of them.
    """

    opening: str
    element: Callable[[Diagnosis, RenderOptions], str]
    closing: str = "\n  ]\n}\n"

    def whole(self, diagnoses: Iterable[Diagnosis], options: RenderOptions) -> str:
        """Return the document of several runs."""
        return self.opening + ",".join(self.element(diagnosis, options) for diagnosis in diagnoses) + self.closing


def render(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> str:  # noqa: ARG001 (the form of a renderer)
    """Return one diagnosis as a JSON object."""
    return dump(_ruled(diagnosis, options))


def render_many(diagnoses: Sequence[Diagnosis], options: RenderOptions) -> str:
    """Return the diagnoses of several runs as one JSON object."""
    return FLOW.whole(diagnoses, options)


def render_error(message: str, hint: str, code: int) -> str:
    """Return an error as a JSON object; `code` is the exit code."""
    return dump({"schema_version": SCHEMA_VERSION, "error": {"code": code, "message": message, "hint": hint}})


def _ruled(diagnosis: Diagnosis, options: RenderOptions) -> dict[str, Json]:
    """Return a diagnosis, in a gate with what was ruled."""
    ours = payload(diagnosis, everything=options.all)
    result = options.gate_results.get(diagnosis.run.id)
    if result is None:
        return ours
    from ppo_doctor.report.gate import as_json

    return ours | {"gate": as_json(result)}


def payload(diagnosis: Diagnosis, *, everything: bool = True) -> dict[str, Json]:
    """Return a diagnosis as plain dicts and lists; numbers may still be non-finite (`dump` writes those as null).

    `everything` lists checks that answered no, or could not be asked, too; `coverage` counts them in any case.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": tool(diagnosis),
        "run": run_of(diagnosis.run),
        "verdict": diagnosis.verdict,
        "headline": diagnosis.headline,
        "first_step": diagnosis.first_step or None,
        "outcome": outcome(diagnosis.outcome),
        "findings": [_finding(f, diagnosis) for f in shown(diagnosis)],
        "problems": [_problem(problem) for problem in diagnosis.problems],
        "causes": [_cause(cause, diagnosis) for cause in diagnosis.causes],
        "chain": [_link(link) for link in diagnosis.chain],
        "checks": [_check(f) for f in diagnosis.findings if everything or f.status in ("fired", "errored")],
        "not_ruled_out": [unjudged(cause) for cause in diagnosis.not_ruled_out],
        "coverage": _coverage(diagnosis.coverage),
        "suppressed": _strings(diagnosis.suppressed),
    }


def tool(diagnosis: Diagnosis) -> dict[str, Json]:
    """Return which edition judged, by which packs."""
    packs: list[Json] = [
        {
            "name": pack.name,
            "origin": pack.origin,
            "path": pack.path,
            "rules": _strings(pack.rules),
            "causes": _strings(pack.causes),
            "overrides": pack.overrides,
            "retired": _strings(pack.retired),
        }
        for pack in diagnosis.packs
    ]
    return {"name": "ppo-doctor", "version": diagnosis.tool_version, "packs": packs}


def run_of(run: RunSummary) -> dict[str, Json]:
    """Return what was judged."""
    k = run.updates_per_batch
    return {
        "id": run.id,
        "sources": [_source(source, run) for source in run.sources],
        "framework": run.framework,
        "algorithm": run.algorithm,
        "samples": run.samples,
        "steps": _span(run.steps),
        "records": run.records,
        "keys": dict(run.keys),
        "inferred": dict(run.inferred),
        "not_understood": _strings(run.not_understood),
        "updates_per_batch": {
            "configured": _whole(k.configured),
            "observed": _whole(k.observed),
            "effective": _whole(k.effective),
            "from": k.origin,
            "how": k.how,
        },
        "config": dict(run.config),
        "notes": _strings(run.notes),
    }


def _source(source: SourceSummary, run: RunSummary) -> dict[str, Json]:
    """Return an input; keys are counted by run, so that of several files none has counts of its own."""
    return {
        "path": source.path,
        "container": source.container,
        "records": source.records,
        "skipped": source.skipped,
        "again": source.again,
        "keys": dict(run.keys) if len(run.sources) == 1 else None,
    }


def outcome(reward: Outcome) -> dict[str, Json]:
    """Return what became of the reward, and of the evaluation beside it."""
    return {
        "what": reward.what,
        "metric": reward.metric or None,
        "key": reward.key or None,
        "start": reward.start,
        "best": reward.best,
        "end": reward.end,
        "best_step": reward.best_step,
        "first": reward.first,
        "leans": reward.leans,
        "since_step": reward.since_step,
        "at": str(reward.source) if reward.source is not None else None,
        "records": reward.records,
        "target": reward.target,
        "reached": reward.reached,
        "evaluation": outcome(reward.evaluation) if reward.evaluation is not None else None,
    }


def shown(diagnosis: Diagnosis) -> list[Finding]:
    """Return the checks that answered yes and matter: those of problems, and all of medium severity or more."""
    named = {name for problem in diagnosis.problems for name in problem.findings}
    fired = [f for f in diagnosis.findings if f.status == "fired"]
    ours = [f for f in fired if f.rule in named or f.severity.at_least(Severity.MEDIUM)]
    return sorted(ours, key=lambda finding: finding.severity.rank)


def _finding(finding: Finding, diagnosis: Diagnosis) -> dict[str, Json]:
    problem = next((p.id for p in diagnosis.problems if finding.rule in p.findings), None)
    cost = diagnosis.costs.get(finding.rule)
    source = next((e.source for e in finding.evidence if e.source is not None), None)
    return {
        "id": finding.rule,
        "says": f"{finding.title}: {says(finding)}",
        "severity": finding.severity.value,
        "exact": finding.proves,
        "link": finding.link,
        "problem": problem,
        "since_step": finding.onset_step,
        "at": str(source) if source is not None else None,
        "cost": None if cost is None else {"what": cost.what, "share": cost.share},
    }


def _problem(problem: Problem) -> dict[str, Json]:
    return {
        "id": problem.id,
        "finding": problem.findings[0] if problem.findings else None,
        "findings": _strings(problem.findings),
        "severity": problem.severity.value,
        "link": problem.link,
        "state": problem.state,
        "since_step": problem.since_step,
        "proven": problem.proven,
        "title": problem.title,
        "verdict": problem.verdict,
        "causes": _strings(problem.causes),
        "openers": _strings(problem.openers),
        "follows": _strings(problem.follows),
    }


def _cause(cause: RankedCause, diagnosis: Diagnosis) -> dict[str, Json]:
    settles = next(iter(cause.would_change_my_mind), None)
    told = {entry.finding for entry in cause.ledger if entry.db > 0}
    return {
        "id": cause.id,
        "rank": cause.rank,
        "role": cause.role,
        "leader": cause.leader,
        "problem": cause.problem or None,
        "title": cause.title,
        "says": cause.says,
        "family": cause.family,
        "severity": cause.severity.value,
        "benign": cause.benign,
        "confidence": cause.confidence,
        "probability": None if cause.probability is None else round(cause.probability, 4),
        "score_db": cause.score_db,
        "prior_db": cause.prior_db,
        "level_with": _strings(cause.level_with),
        "onset_step": cause.onset_step,
        "for": [_entry(entry) for entry in cause.ledger if entry.db > 0],
        "against": [_entry(entry) for entry in cause.ledger if entry.db < 0],
        "unexplained": [f.rule for f in diagnosis.findings if _grave(f) and f.rule not in told],
        "apart_from_next_by": None if settles is None else {"log": settles.log, "because": settles.because},
        "do": [_do(remedy) for remedy in cause.remedies],
        "check": None if settles is None else f"{to_do(settles)} {settles.log}: {settles.because}",
        "not": cause.avoid or None,
    }


def _grave(finding: Finding) -> bool:
    return finding.status == "fired" and finding.severity.at_least(Severity.HIGH)


def _entry(entry: LedgerEntry) -> dict[str, Json]:
    return {"check": entry.finding, "answer": ANSWERS[entry.status], "db": entry.db, "says": entry.says}


def _do(remedy: Remedy) -> dict[str, Json]:
    """Return what to do, with the value that the key has in this run, and the one to set."""
    return {"say": remedy.do, "key": remedy.key, "from": remedy.now, "to": remedy.then}


def _link(link: ChainLink) -> dict[str, Json]:
    return {"link": link.link, "state": link.state, "steps": _span(link.steps), "witness": link.witness}


def _check(finding: Finding) -> dict[str, Json]:
    quiet = not finding.severity.at_least(Severity.MEDIUM)
    return {
        "name": finding.rule,
        "code": finding.code,
        "title": finding.title,
        "link": finding.link,
        "answer": ANSWERS[finding.status],
        "role": "proof" if finding.proves else "context" if quiet else "symptom",
        "severity": finding.severity.value,
        "onset_step": finding.onset_step,
        "evidence": [evidence_of(evidence) for evidence in finding.evidence],
        "reason": finding.reason,
        "missing": _strings(finding.missing),
    }


def evidence_of(evidence: Evidence) -> dict[str, Json]:
    """Return a number with the bound that it was held against, and where it stands."""
    return {
        "metric": evidence.metric,
        "raw": evidence.raw,
        "statistic": evidence.statistic,
        "observed": evidence.observed,
        "op": evidence.op,
        "bound": evidence.bound,
        "bound_source": evidence.bound_source,
        "unit": evidence.unit,
        "satisfied": evidence.satisfied,
        "of": evidence.of,
        "steps": _span(evidence.steps),
        "source": str(evidence.source) if evidence.source else None,
    }


def unjudged(cause: Unjudged) -> dict[str, Json]:
    """Return a cause that this input does not speak about."""
    return {"id": cause.id, "because": cause.because, "a_fuller_log_could": cause.a_fuller_log_could}


def _coverage(coverage: Coverage) -> dict[str, Json]:
    return {
        "movement": coverage.movement,
        "signal": coverage.signal,
        "numerics": coverage.numerics,
        "yes": coverage.fired,
        "no": coverage.clear,
        "unknown": coverage.skipped,
        "errored": coverage.errored,
        "missing_metrics": _strings(coverage.missing_metrics),
        "unanswered": {question: _strings(reasons) for question, reasons in coverage.unanswered.items()},
        "failed": dict(coverage.failed),
    }


def _strings(values: Iterable[str]) -> list[Json]:
    return list(values)


def _span(steps: tuple[int, int] | None) -> list[Json] | None:
    return None if steps is None else list(steps)


def _whole(value: float | None) -> float | int | None:
    """Return a count without its decimal point; K may still be a fraction where batches do not divide evenly."""
    return int(value) if value is not None and math.isfinite(value) and value == int(value) else value


def _of_many(diagnosis: Diagnosis, options: RenderOptions) -> str:
    return element(_ruled(diagnosis, options))


FLOW = Flow(opening=f'{{\n  "schema_version": "{SCHEMA_VERSION}",\n  "diagnoses": [', element=_of_many)
