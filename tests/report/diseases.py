"""A diagnosis for every cause of the built-in pack, made of the findings that its own file names.

The numbers come from those rules' own positive cases and the weights are the same for every cause: a report's golden
changes when a cause or a rule says something else, and not when a weight is fitted anew.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from ppo_doctor.checks.cases import case_run, read_cases, run_case
from ppo_doctor.checks.rulepack import Pack, load_pack
from ppo_doctor.model.diagnosis import (
    ChainLink,
    Diagnosis,
    LedgerEntry,
    Outcome,
    Problem,
    RankedCause,
    RunSummary,
    Unjudged,
    UpdatesPerBatch,
)
from ppo_doctor.model.evidence import says
from ppo_doctor.model.rules import Cause, Finding
from ppo_doctor.model.run import Run, SourceSummary
from ppo_doctor.model.words import CHAIN, Severity, Verdict

from .cases import coverage, diagnosis

#: Weights in the order of a cause's findings, and its prior.
WEIGHTS, PRIOR = (30, 20), -10
GRAVE = (Severity.CRITICAL, Severity.HIGH)


@cache
def pack() -> Pack:
    """Return the built-in rules and causes."""
    return load_pack()


def disease(cause: Cause) -> tuple[Diagnosis, Run]:
    """Return a diagnosis that this cause leads, and the run of the finding that its file names first."""
    path = f"runs/{cause.id}.jsonl"
    shown = [(finding, case) for finding, case in _positives(cause, path)][: len(WEIGHTS)]
    findings = tuple(finding for finding, _ in shown)
    run = case_run(shown[0][1])
    verdict: Verdict = "healthy" if cause.benign else "unhealthy" if cause.severity in GRAVE else "warning"
    found = diagnosis(
        findings,
        run=_summary(run, path),
        verdict=verdict,
        verdict_because=cause.title,
        causes=(_ranked(cause, findings),),
        chain=tuple(_link(name, cause, findings) for name in dict.fromkeys((*CHAIN, cause.link))),
        coverage=coverage(findings),
        headline=f"{cause.title}.",
        outcome=Outcome(what="not_logged"),
        problems=() if cause.benign else (_problem(cause, findings, verdict),),
        not_ruled_out=(Unjudged(id="other", because="needs another log", a_fuller_log_could=True),),
    )
    return found, run


def _positives(cause: Cause, path: str) -> list[tuple[Finding, dict[str, Any]]]:
    """Return what fires for a cause, in the order of its file, each with the case that makes it fire."""
    found = []
    for weight in cause.weights:
        rule = pack().rule(weight.finding)
        cases = read_cases(rule) if rule and weight.fired > 0 else ()
        case = next((case for case in cases if case["status"] == "fired"), None)
        if rule and case:
            case = {**case, "name": path}
            found.append((run_case(rule, case).finding, case))
    return [(finding, case) for finding, case in found if finding.status == "fired"]


def _summary(run: Run, path: str) -> RunSummary:
    size = max((len(series) for series in run.series.values()), default=0)
    return RunSummary(
        id=path,
        sources=(SourceSummary(path=path, container="jsonl", records=size),),
        framework=run.framework,
        algorithm=run.algorithm,
        steps=run.steps,
        records=size,
        updates_per_batch=UpdatesPerBatch(effective=4.0, origin="config:num_iterations", how="configured"),
        config={},
        notes=(),
    )


def _ranked(cause: Cause, findings: tuple[Finding, ...]) -> RankedCause:
    onsets = [finding.onset_step for finding in findings if finding.onset_step is not None]
    return RankedCause(
        id=cause.id,
        rank=1,
        title=cause.title,
        family=cause.family,
        severity=cause.severity,
        benign=cause.benign,
        confidence="suspected" if cause.never_proven else "likely",
        score_db=PRIOR + sum(WEIGHTS[: len(findings)]),
        prior_db=PRIOR,
        problem="" if cause.benign else "p1",
        role="mechanism",
        says=cause.says,
        level_with=cause.twins,
        onset_step=min(onsets, default=None),
        ledger=tuple(
            LedgerEntry(finding=f.rule, status=f.status, db=db, link=f.link, says=says(f), title=f.title)
            for f, db in zip(findings, WEIGHTS, strict=False)
        ),
        remedies=tuple(remedy for remedy in cause.remedies if remedy.framework is None),
        would_change_my_mind=cause.measure,
        leader=True,
    )


def _problem(cause: Cause, findings: tuple[Finding, ...], verdict: Verdict) -> Problem:
    return Problem(
        id="p1",
        title=findings[0].title,
        link=cause.link,
        state="wrong",
        severity=cause.severity,
        complaint=cause.complaints[0],
        leader=cause.id,
        causes=(cause.id,),
        openers=tuple(finding.rule for finding in findings),
        findings=tuple(finding.rule for finding in findings),
        verdict=verdict,
    )


def _link(name: str, cause: Cause, findings: tuple[Finding, ...]) -> ChainLink:
    link = ChainLink(link=name, state="unknown")
    if name != cause.link or cause.benign:
        return link
    return replace(link, state="dead", witness=says(findings[0]))


def ids() -> list[str]:
    """Return the id of every cause that has a file."""
    return sorted(path.stem for path in Path(__file__).parents[2].glob("rules/causes/*.toml"))
