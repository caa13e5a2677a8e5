"""SARIF 2.1.0: every rule and leading cause, with its result on the run and its place in the script or the log.

A leading cause is a result beside the findings. Fingerprints hold rule, file and metric, but neither line nor number,
so that a re-run of the same training keeps its alerts. GitHub raises an alert for every result, passed ones included
(microsoft/PSRule issue 955): `quiet` writes failures only.
"""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING
from urllib.parse import quote

from ppo_doctor.model.evidence import says
from ppo_doctor.model.opening import is_url
from ppo_doctor.model.words import Severity
from ppo_doctor.report.escape import plain, prose, slashes
from ppo_doctor.report.json_report import Flow, Json, element
from ppo_doctor.report.phrases import capital, remedy_says, stopped
from ppo_doctor.report.summary import support

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ppo_doctor.diagnosis.gate_result import GateResult
    from ppo_doctor.model.diagnosis import Diagnosis, RankedCause
    from ppo_doctor.model.rules import Evidence, Finding
    from ppo_doctor.model.run import CodePlace
    from ppo_doctor.report import RenderOptions

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS: Mapping[Severity, str] = {
    Severity.CRITICAL: "error",
    Severity.HIGH: "error",
    Severity.MEDIUM: "warning",
    Severity.LOW: "note",
    Severity.INFO: "note",
}
#: Containers whose places are lines; elsewhere a place is a record's number.
LINES = ("jsonl", "csv", "console", "json", "notebook")
KINDS = {"fired": "fail", "clear": "pass", "skipped": "notApplicable"}


def render_error(message: str, hint: str, code: int) -> str:
    """Return an error as a SARIF log whose invocation did not succeed."""
    from ppo_doctor import __version__

    notice: Json = {"level": "error", "message": {"text": prose(f"{message}. {hint}" if hint else message)}}
    invocation: Json = {
        "executionSuccessful": False,
        "exitCode": code,
        "toolExecutionNotifications": [notice],
    }
    failed: Json = {"tool": _tool(__version__, []), "invocations": [invocation], "results": []}
    return FLOW.opening + element(failed) + FLOW.closing


def gate(result: GateResult) -> str:
    """Return the result of the gate of a fleet's table: a result for each budget and run that does not pass."""
    from ppo_doctor import __version__

    kinds = list(dict.fromkeys(item.kind for item in result.items))
    rules: list[Json] = [{"id": kind, "name": kind} for kind in kinds]
    results: list[Json] = [
        {
            "ruleId": item.kind,
            "ruleIndex": kinds.index(item.kind),
            "kind": "fail" if item.outcome == "failed" else "open",
            "level": "error" if item.outcome == "failed" else "none",
            "message": {"text": prose(item.message)},
            "partialFingerprints": {"gate/v1": hashlib.sha256(item.name.encode("utf-8", "replace")).hexdigest()[:32]},
        }
        for item in result.of("failed", "open")
    ]
    invocation: Json = {"executionSuccessful": True, "exitCode": int(result.code)}
    whole: Json = {"tool": _tool(__version__, rules), "invocations": [invocation], "results": results}
    return FLOW.opening + element(whole) + FLOW.closing


def _of_many(diagnosis: Diagnosis, options: RenderOptions) -> str:
    return element(_run(diagnosis, options.gate_result(diagnosis), failures_only=options.quiet))


FLOW = Flow(opening=f'{{\n  "$schema": "{SCHEMA}",\n  "version": "2.1.0",\n  "runs": [', element=_of_many)


def _tool(version: str, rules: list[Json]) -> Json:
    return {"driver": {"name": "ppo-doctor", "version": plain(version), "rules": rules}}


def _run(diagnosis: Diagnosis, gate: GateResult | None, *, failures_only: bool) -> Json:
    judged = [finding for finding in diagnosis.findings if finding.status != "errored"]
    ours = [cause for cause in diagnosis.causes if cause.leader and not cause.benign]
    rules = [_rule(finding) for finding in diagnosis.findings] + [_cause_rule(cause) for cause in ours]
    place = {finding.rule: index for index, finding in enumerate(diagnosis.findings)}
    results = [_finding(finding, place[finding.rule], diagnosis) for finding in judged]
    first = len(diagnosis.findings)
    results += [_cause(cause, first + index, diagnosis, gate) for index, cause in enumerate(ours)]
    kept: list[Json] = [result for result in results if not failures_only or result["kind"] == "fail"]
    return {
        "tool": _tool(diagnosis.tool_version, rules),
        "invocations": [_invocation(diagnosis, gate)],
        "artifacts": [{"location": location(source.path)} for source in diagnosis.run.sources],
        "results": kept,
        "columnKind": "unicodeCodePoints",
        "properties": {"verdict": diagnosis.verdict, "because": prose(diagnosis.verdict_because)},
    }


def _rule(finding: Finding) -> Json:
    return {
        "id": plain(finding.code),
        "name": plain(finding.rule),
        "shortDescription": {"text": plain(finding.rule).replace("-", " ")},
        "help": {"text": f"ppo-doctor explain {plain(finding.rule)}"},
        "defaultConfiguration": {"level": LEVELS[finding.severity]},
        "properties": {"link": finding.link, "severity": finding.severity.value},
    }


def _cause_rule(cause: RankedCause) -> Json:
    return {
        "id": plain(cause.id),
        "name": plain(cause.id),
        "shortDescription": {"text": prose(cause.title)},
        "fullDescription": {"text": prose(cause.says or cause.title)},
        "help": {"text": f"ppo-doctor explain {plain(cause.id)}"},
        "defaultConfiguration": {"level": LEVELS[cause.severity]},
        "properties": {"family": plain(cause.family), "severity": cause.severity.value},
    }


def _finding(finding: Finding, index: int, diagnosis: Diagnosis) -> dict[str, Json]:
    evidence = _located([finding])
    # What is merely worth knowing is no failure: `single-update-per-batch` describes a sound run.
    informs = finding.status == "fired" and finding.severity is Severity.INFO
    kind = "informational" if informs else KINDS[finding.status]
    message = finding.reason if finding.status == "skipped" else f"{finding.title}: {says(finding)}"
    result: dict[str, Json] = {
        "ruleId": plain(finding.code),
        "ruleIndex": index,
        "kind": kind,
        "level": LEVELS[finding.severity] if kind == "fail" else "none",
        "message": {"text": prose(message or finding.title)},
        "locations": locations(finding.evidence, diagnosis),
        "partialFingerprints": _fingerprints(finding.code, evidence, diagnosis),
        "properties": {"onsetStep": finding.onset_step},
    }
    if finding.place is None:
        return result
    related = _related(finding.place, [finding], diagnosis)
    return result | {"locations": [_code(finding.place)], "relatedLocations": related}


def _cause(cause: RankedCause, index: int, diagnosis: Diagnosis, gate: GateResult | None) -> dict[str, Json]:
    supporting = support(cause, diagnosis)
    evidence = _located(supporting)
    code = next((finding.place for finding in supporting if finding.place is not None), None)
    logged = locations((evidence,) if evidence else (), diagnosis)
    result: dict[str, Json] = {
        "ruleId": plain(cause.id),
        "ruleIndex": index,
        "kind": "fail" if cause.confidence != "suspected" else "review",
        "level": LEVELS[cause.severity] if cause.confidence != "suspected" else "none",
        "message": {"text": _message(cause)},
        "locations": [_code(code)] if code is not None else logged,
        "relatedLocations": _related(code, supporting, diagnosis),
        "partialFingerprints": _fingerprints(cause.id, None, diagnosis),
        "properties": {"confidence": cause.confidence, "scoreDb": cause.score_db, "onsetStep": cause.onset_step},
    }
    return result | _standing(cause, gate)


def _related(code: CodePlace | None, supporting: Sequence[Finding], diagnosis: Diagnosis) -> list[Json]:
    """Return the further lines of code, and where each supporting finding shows; an id makes each entry unique."""
    lines = [(_code(each), each.does) for each in code.also] if code is not None else []
    shown = [(place, f.title) for f in supporting for place in locations(f.evidence[:1], diagnosis)]
    return [
        place | {"id": number, "message": {"text": prose(words)}}
        for number, (place, words) in enumerate((*lines, *shown), start=1)
        if isinstance(place, dict)
    ]


def _message(cause: RankedCause) -> str:
    parts = [stopped(prose(cause.title)), stopped(capital(prose(cause.says)))]
    parts += [f"Try first: {remedy_says(remedy)}" for remedy in cause.remedies[:1]]
    return prose(" ".join(part for part in parts if part))


def _standing(cause: RankedCause, gate: GateResult | None) -> dict[str, Json]:
    """Return what the gate knows of a cause: allowed by its policy, or known from its baseline."""
    item = next((h for h in (gate.items if gate else ()) if h.kind == "cause" and h.name == cause.id), None)
    if item is None:
        return {}
    if item.outcome == "allowed":
        return {"suppressions": [{"kind": "external", "status": "accepted", "justification": prose(item.message)}]}
    return {"baselineState": "unchanged"} if item.outcome == "known" else {}


def _invocation(diagnosis: Diagnosis, gate: GateResult | None) -> Json:
    crashed: list[Json] = [_crash(finding) for finding in diagnosis.findings if finding.status == "errored"]
    notes: list[Json] = [{"level": "note", "message": {"text": prose(note)}} for note in diagnosis.run.notes]
    code: dict[str, Json] = {} if gate is None else {"exitCode": int(gate.code)}
    outcome: dict[str, Json] = {"executionSuccessful": not crashed, "toolExecutionNotifications": [*crashed, *notes]}
    return outcome | code


def _crash(finding: Finding) -> Json:
    return {
        "level": "error",
        "message": {"text": prose(f"{finding.rule}: {finding.reason}")},
        "associatedRule": {"id": plain(finding.code)},
    }


def _located(findings: Iterable[Finding]) -> Evidence | None:
    """Return the first evidence that has a place in a log."""
    return next((evidence for finding in findings for evidence in finding.evidence if evidence.source), None)


def location(path: str) -> dict[str, Json]:
    """Return the location of a file or of what is behind a URL; a relative path is so to the root of the sources."""
    if is_url(path):
        return {"uri": quote(path.encode("utf-8", "backslashreplace"), safe="/:+%")}
    posix = slashes("stdin" if path == "-" else path)
    quoted = quote(posix.encode("utf-8", "backslashreplace"), safe="/:" if PureWindowsPath(posix).drive else "/")
    if PurePosixPath(posix).is_absolute():
        return {"uri": f"file://{quoted}"}
    if PureWindowsPath(posix).drive:
        return {"uri": f"file:///{quoted}"}
    return {"uri": quoted, "uriBaseId": "%SRCROOT%"}


def locations(evidence: Iterable[Evidence], diagnosis: Diagnosis) -> list[Json]:
    """Return the place of each piece of evidence, each once; without any, the run's first file."""
    lined = {source.path for source in diagnosis.run.sources if source.container in LINES}
    found = [_place(e, lined) for e in evidence if e.source]
    unique = [place for index, place in enumerate(found) if place not in found[:index]]
    if unique:
        return [*unique]
    return [{"physicalLocation": {"artifactLocation": location(s.path)}} for s in diagnosis.run.sources[:1]]


def _place(evidence: Evidence, lined: set[str]) -> dict[str, Json]:
    source = evidence.source
    path = source.path if source else "-"
    physical: dict[str, Json] = {"artifactLocation": location(path)}
    if source and source.line and (path in lined or path.endswith((".json", ".toml", ".yaml", ".yml"))):
        physical["region"] = {"startLine": source.line}
    metric: Json = {"name": plain(evidence.metric), "fullyQualifiedName": plain(evidence.raw or evidence.metric)}
    return {"physicalLocation": physical, "logicalLocations": [metric]}


def _code(place: CodePlace) -> Json:
    """Return the location of a line of the training script, with its text as a snippet."""
    region: dict[str, Json] = {"startLine": place.line}
    if place.text:
        region["snippet"] = {"text": prose(place.text)}
    physical: Json = {"artifactLocation": location(place.file), "region": region}
    names: list[Json] = [{"name": plain(place.function)}] if place.function else []
    return {"physicalLocation": physical, "logicalLocations": names}


def _fingerprints(name: str, evidence: Evidence | None, diagnosis: Diagnosis) -> Json:
    """Return a hash over rule, file and metric, under our name and under the one that GitHub reads."""
    path = slashes(diagnosis.run.id)
    metric = evidence.metric if evidence else ""
    identity = "\0".join((name, path, metric)).encode("utf-8", "backslashreplace")
    digest = hashlib.sha256(identity).hexdigest()[:32]
    # Without this key GitHub's upload hashes the log's line, which is another number in every run.
    return {"ppoDoctor/v1": digest, "primaryLocationLineHash": f"{digest[:16]}:1"}
