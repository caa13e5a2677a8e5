"""The JSON report as it was in version 1, for one more release: `--format json1`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.report.json_report import Flow, Json, dump, element, evidence_of, run_of, tool, unjudged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import Coverage, Diagnosis, Finding, RankedCause, Run
    from ppo_doctor.report import RenderOptions


def render(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> str:  # noqa: ARG001 (the form of a renderer)
    """Return one diagnosis as a JSON object of version 1."""
    return dump(_ruled(diagnosis, options))


def render_many(diagnoses: Sequence[Diagnosis], options: RenderOptions) -> str:
    """Return the diagnoses of several runs as one JSON object of version 1."""
    return FLOW.whole(diagnoses, options)


def render_error(message: str, hint: str, code: int) -> str:
    """Return an error as a JSON object of version 1."""
    return dump({"schema_version": "1", "error": {"code": code, "message": message, "hint": hint}})


def _ruled(diagnosis: Diagnosis, options: RenderOptions) -> dict[str, Json]:
    from ppo_doctor.report.gate_json import gate

    ruling = options.rulings.get(diagnosis.run.id)
    return payload(diagnosis, everything=options.all) | ({} if ruling is None else {"gate": gate(ruling)})


def payload(diagnosis: Diagnosis, *, everything: bool = True) -> dict[str, Json]:
    """Return a diagnosis as version 1 had it."""
    complaints = {problem.id: problem.complaint for problem in diagnosis.problems}
    listed = [f for f in diagnosis.findings if everything or f.status in ("fired", "errored")]
    return {
        "schema_version": "1",
        "tool": tool(diagnosis),
        "run": run_of(diagnosis.run),
        "verdict": diagnosis.verdict,
        "verdict_because": diagnosis.verdict_because,
        "causes": [_cause(cause, complaints) for cause in diagnosis.causes],
        "chain": [
            {"link": c.link, "state": c.state if c.state == "dead" else "alive", "evidence": c.witness}
            if c.state != "unknown"
            else {"link": c.link, "state": "unknown", "evidence": None}
            for c in diagnosis.chain
        ],
        "findings": [_finding(finding) for finding in listed],
        "complaints": [
            {"id": p.complaint, "title": p.title, "openers": [*p.openers], "leader": p.leader, "verdict": p.verdict}
            for p in diagnosis.problems
        ],
        "not_ruled_out": [unjudged(cause) for cause in diagnosis.not_ruled_out],
        "coverage": _coverage(diagnosis.coverage),
        "suppressed": [*diagnosis.suppressed],
    }


def _cause(cause: RankedCause, complaints: dict[str, str]) -> dict[str, Json]:
    names = ("id", "rank", "leader", "title", "says", "family", "benign", "confidence", "probability", "score_db")
    return {name: getattr(cause, name) for name in (*names, "prior_db", "onset_step")} | {
        "severity": cause.severity.value,
        "level_with": [*cause.level_with],
        "complaint": complaints.get(cause.problem),
        "ledger": [
            {"finding": e.finding, "status": e.status, "db": e.db, "counted": True, "link": e.link, "says": e.says}
            for e in cause.ledger
        ],
        "remedies": [{"do": r.do, "framework": r.framework, "key": r.key} for r in cause.remedies],
        "would_change_my_mind": [{"log": m.log, "because": m.because} for m in cause.would_change_my_mind],
    }


def _finding(finding: Finding) -> dict[str, Json]:
    names = ("rule", "code", "title", "link", "status", "onset_step", "reason")
    return {name: getattr(finding, name) for name in names} | {
        "severity": finding.severity.value,
        "evidence": [evidence_of(evidence) for evidence in finding.evidence],
        "missing": [*finding.missing],
    }


def _coverage(coverage: Coverage) -> dict[str, Json]:
    names = ("movement", "signal", "numerics", "evaluated", "clear", "fired", "skipped", "errored")
    return {name: getattr(coverage, name) for name in names} | {
        "missing_metrics": [*coverage.missing_metrics],
        "unanswered": {question: [*reasons] for question, reasons in coverage.unanswered.items()},
        "failed": dict(coverage.failed),
    }


FLOW = Flow(
    opening='{\n  "schema_version": "1",\n  "diagnoses": [',
    element=lambda diagnosis, options: element(_ruled(diagnosis, options)),
)
