"""Reports as JSON: of one run and of several, and the encoder that all JSON output uses."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from ppo_doctor.model.errors import ExitCode
from ppo_doctor.model.evidence import says
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.run import SourceRef
from ppo_doctor.model.words import Severity
from ppo_doctor.report.escape import unsafe
from ppo_doctor.report.phrases import to_do

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ppo_doctor.diagnosis.gate_result import GateItem, GateResult
    from ppo_doctor.model.diagnosis import Checkpoint, Diagnosis, LedgerEntry, Outcome, Problem, RankedCause, RunSummary
    from ppo_doctor.model.rules import Evidence, Finding
    from ppo_doctor.model.run import Run, SourceSummary
    from ppo_doctor.model.words import Status
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.patch import Change, Patch

Json: TypeAlias = "str | int | float | bool | None | list[Json] | dict[str, Json]"

#: What is given of a line of code.
_LINE = "file line function text role"
_NOT_ASCII = re.compile(r"[^\x00-\x7e]")


def element(value: Json) -> str:
    """Return a value as an indented element of a list in a document."""
    return "\n    " + dump(value).rstrip("\n").replace("\n", "\n    ")


def dump(value: Json) -> str:
    """Return a value as indented JSON with a final newline; control and invisible characters are escaped."""
    try:
        text = _by_orjson(value)  # writes NaN and infinities as null; replacing them first would take 3 ms
    except (ImportError, TypeError):  # TypeError: undecodable bytes of a path, or an integer beyond 64 bits
        text = _encoded(_finite(value))
    # The regular expression takes 1 ms for a report of 160 kB, this test 20 µs.
    plain = text.isascii() and "\x7f" not in text
    return (text if plain else _NOT_ASCII.sub(_escaped, text)) + "\n"


def _finite(value: Json) -> Json:
    """Return a value without what JSON does not allow: NaN and infinities become null, undecodable bytes escapes."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {str(_finite(key)): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return value


def _by_orjson(value: Json) -> str:
    import orjson

    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def _encoded(value: Json) -> str:
    try:
        return _by_orjson(value)
    except (ImportError, TypeError):
        import json

        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def _escaped(match: re.Match[str]) -> str:
    """Return a character, as a JSON escape if it must not reach a terminal; a parser reads the same text."""
    character = match.group()
    return _escape(character) if unsafe(character) else character


def ascii_only(text: str) -> str:
    """Return JSON text with every non-ASCII character as an escape, for output in any encoding."""
    return _NOT_ASCII.sub(lambda match: _escape(match.group()), text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


SCHEMA_VERSION = "3"
#: The answer of a check by the status of its finding.
ANSWERS: Mapping[Status, str] = {"fired": "yes", "clear": "no", "skipped": "unknown", "errored": "errored"}


@frozen
class Flow:
    """The parts of a document with a list of runs: the text before the list, of each element, and after the list.

    They can be written piece by piece, with commas between the elements, so that no run has to be kept in memory.
    """

    opening: str
    element: Callable[[Diagnosis, RenderOptions], str]
    closing: str = "\n  ]\n}\n"

    def whole(self, diagnoses: Iterable[Diagnosis], options: RenderOptions) -> str:
        """Return the document of several runs."""
        return self.opening + ",".join(self.element(diagnosis, options) for diagnosis in diagnoses) + self.closing


def render(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> str:  # noqa: ARG001 (the form of a renderer)
    """Return one diagnosis as a JSON object."""
    return dump(_with_gate(diagnosis, options))


def render_error(message: str, hint: str, code: int) -> str:
    """Return an error as a JSON object; `code` is the exit code."""
    return dump({"schema_version": SCHEMA_VERSION, "error": {"code": code, "message": message, "hint": hint}})


def _with_gate(diagnosis: Diagnosis, options: RenderOptions) -> dict[str, Json]:
    """Return a diagnosis as plain dicts and lists, with the result of the gate and the patch if there are such."""
    content = payload(diagnosis, everything=options.all)
    result, patch = options.gate_result(diagnosis), options.patches.get(diagnosis.run.id)
    if result is not None:
        content |= {"gate": gate_payload(result)}
    return content if patch is None else content | {"patch": patch_payload(patch)}


def patch_payload(patch: Patch) -> dict[str, Json]:
    """Return the changes of configurations as plain dicts and lists."""
    return {
        "diff": patch.diff,
        "files": [file.path for file in patch.files],
        "changes": [_change(change) for change in patch.changes],
        **fields(patch, "notes"),
    }


def _change(change: Change) -> dict[str, Json]:
    return {
        "cause": change.cause or None,
        "key": change.key,
        "from": change.old,
        "to": change.new,
        "at": change.place or None,
        "in_diff": not change.reason,
        "reason": change.reason or None,
    }


def gate_payload(result: GateResult) -> dict[str, Json]:
    """Return the result of a gate as plain dicts and lists."""
    items = result.items
    return {
        "passed": result.code == ExitCode.OK,
        "result": result.word,
        "code": int(result.code),
        **fields(result, "policy fail_on require runs"),
        "reasons": [item.message for item in result.reasons],
        "held": [{"kind": i.kind, "name": i.name, "outcome": i.outcome, "says": i.message} for i in items],
        "allowances": [asdict(allowance) for allowance in result.allowances],
        "budgets": [{"budget": i.name, **asdict(i.budget), "outcome": i.outcome} for i in items if i.budget],
        "baseline": None if result.baseline is None else _baseline(result),
        **fields(result, "suppressed notes"),
    }


def _baseline(result: GateResult) -> dict[str, Json]:
    by_state: dict[str, list[GateItem]] = {"new": [], "worse": [], "known": []}
    for item in result.items:
        if item.baseline_state is not None:
            by_state[item.baseline_state].append(item)
    return {
        "path": result.baseline,
        "holds_run": result.in_baseline,
        "new": [item.name for item in by_state["new"]],
        "worse": [{"cause": item.name, "says": item.message} for item in by_state["worse"]],
        "known": [item.name for item in by_state["known"]],
        "fixed": list(result.fixed),
    }


def payload(diagnosis: Diagnosis, *, everything: bool = True) -> dict[str, Json]:
    """Return a diagnosis as plain dicts and lists; numbers may still be non-finite (`dump` writes those as null).

    `everything` includes checks that answered no or did not run; `coverage` counts them in any case.
    """
    packs: list[Json] = [fields(pack, "name path rules causes") for pack in diagnosis.packs]
    coverage = diagnosis.coverage
    listed = [f for f in diagnosis.findings if everything or f.status in ("fired", "errored")]
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "ppo-doctor", "version": diagnosis.tool_version, "packs": packs},
        "run": _run(diagnosis.run),
        "verdict": diagnosis.verdict,
        "headline": diagnosis.headline,
        "first_step": diagnosis.first_step or None,
        "checkpoint": _checkpoint(diagnosis.checkpoint),
        "outcome": _outcome(diagnosis.outcome),
        "findings": [_finding(f, diagnosis) for f in shown(diagnosis)],
        "problems": [_problem(problem) for problem in diagnosis.problems],
        "causes": [_cause(cause, diagnosis) for cause in diagnosis.causes],
        "chain": [fields(link, "link state steps witness") for link in diagnosis.chain],
        "checks": [_check(finding) for finding in listed],
        "not_ruled_out": [fields(cause, "id because a_fuller_log_could") for cause in diagnosis.not_ruled_out],
        "coverage": fields(coverage, "movement signal numerics")
        | {"yes": coverage.fired, "no": coverage.clear, "unknown": coverage.skipped, "errored": coverage.errored}
        | fields(coverage, "missing_metrics unanswered failed"),
        "suppressed": _json(diagnosis.suppressed),
    }


def fields(value: object, names: str) -> dict[str, Json]:
    """Return attributes of an object as JSON values; `names` has them in order, separated by spaces."""
    return {name: _json(getattr(value, name)) for name in names.split()}


def _json(value: object) -> Json:
    """Return a value for JSON: tuples become lists, mappings dicts, enumerations values, and places "file:line"."""
    match value:
        case Enum():
            return str(value.value)
        case None | str() | bool() | int() | float():
            return value
        case tuple() | list():
            return [_json(each) for each in value]
        case Mapping():
            return {str(key): _json(each) for key, each in value.items()}
        case SourceRef():
            return str(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


def _run(run: RunSummary) -> dict[str, Json]:
    """Return the facts about the run."""
    k = run.updates_per_batch
    return {
        "id": run.id,
        "sources": [_source(source, run) for source in run.sources],
        **fields(run, "framework algorithm samples steps records keys inferred not_understood"),
        "updates_per_batch": {
            "configured": _whole(k.configured),
            "observed": _whole(k.observed),
            "effective": _whole(k.effective),
            "from": k.origin,
            "how": k.how,
        },
        **fields(run, "config notes"),
    }


def _checkpoint(checkpoint: Checkpoint | None) -> Json:
    return None if checkpoint is None else fields(checkpoint, "path step size modified reward last")


def _source(source: SourceSummary, run: RunSummary) -> dict[str, Json]:
    """Return an input; it has the use of keys only if it is the only one, because keys are counted per run."""
    keys = _json(run.keys) if len(run.sources) == 1 else None
    return fields(source, "path container records skipped again") | {"keys": keys}


def _outcome(reward: Outcome) -> dict[str, Json]:
    """Return the outcome of the reward, and that of the evaluation if there is one."""
    return {
        "what": reward.what,
        "metric": reward.metric or None,
        "key": reward.key or None,
        **fields(reward, "start best end best_step first leans since_step"),
        "at": _json(reward.source),
        **fields(reward, "records target reached"),
        "evaluation": _outcome(reward.evaluation) if reward.evaluation is not None else None,
    }


def shown(diagnosis: Diagnosis) -> list[Finding]:
    """Return the fired findings that belong to a problem or are of at least medium severity, by severity."""
    named = {name for problem in diagnosis.problems for name in problem.findings}
    fired = [f for f in diagnosis.findings if f.status == "fired"]
    shown = [f for f in fired if f.rule in named or f.severity.at_least(Severity.MEDIUM)]
    return sorted(shown, key=lambda finding: finding.severity.rank)


def _finding(finding: Finding, diagnosis: Diagnosis) -> dict[str, Json]:
    cost = diagnosis.costs.get(finding.rule)
    source = next((e.source for e in finding.evidence if e.source is not None), None)
    place = place_payload(finding)
    code: dict[str, Json] = {} if place is None else {"at": str(finding.place), "place": place}
    return {
        "id": finding.rule,
        "says": f"{finding.title}: {says(finding)}",
        "severity": finding.severity.value,
        "exact": finding.proves,
        "link": finding.link,
        "problem": next((p.id for p in diagnosis.problems if finding.rule in p.findings), None),
        "since_step": finding.onset_step,
        "at": _json(source),
        "cost": None if cost is None else fields(cost, "what share"),
        **code,
    }


def place_payload(finding: Finding) -> dict[str, Json] | None:
    """Return the line of the training script that a finding is about, with the further ones; None without any."""
    if finding.place is None:
        return None
    also: list[Json] = [fields(each, _LINE) for each in finding.place.also]
    return {**fields(finding.place, _LINE), "also": also}


def _problem(problem: Problem) -> dict[str, Json]:
    return {
        "id": problem.id,
        "finding": problem.findings[0] if problem.findings else None,
        **fields(problem, "findings severity link state since_step proven title verdict causes openers follows"),
    }


def _cause(cause: RankedCause, diagnosis: Diagnosis) -> dict[str, Json]:
    measure = next(iter(cause.would_change_my_mind), None)
    support = {entry.finding for entry in cause.ledger if entry.db > 0}
    severe = [f for f in diagnosis.findings if f.status == "fired" and f.severity.at_least(Severity.HIGH)]
    return {
        **fields(cause, "id rank role leader"),
        "problem": cause.problem or None,
        **fields(cause, "title says family severity benign confidence"),
        "probability": None if cause.probability is None else round(cause.probability, 4),
        **fields(cause, "score_db prior_db level_with onset_step"),
        "for": [_entry(entry) for entry in cause.ledger if entry.db > 0],
        "against": [_entry(entry) for entry in cause.ledger if entry.db < 0],
        "unexplained": [finding.rule for finding in severe if finding.rule not in support],
        "apart_from_next_by": None if measure is None else fields(measure, "log because"),
        "do": [{"say": r.do, "key": r.key, "from": r.now, "to": r.then} for r in cause.remedies],
        "check": None if measure is None else f"{to_do(measure)} {measure.log}: {measure.because}",
        "not": cause.avoid or None,
    }


def _entry(entry: LedgerEntry) -> dict[str, Json]:
    return {"check": entry.finding, "answer": ANSWERS[entry.status], "db": entry.db, "says": entry.says}


def _check(finding: Finding) -> dict[str, Json]:
    minor = not finding.severity.at_least(Severity.MEDIUM)
    return {
        "name": finding.rule,
        **fields(finding, "code title link"),
        "answer": ANSWERS[finding.status],
        "role": "proof" if finding.proves else "context" if minor else "symptom",
        **fields(finding, "severity onset_step"),
        "evidence": [evidence_payload(evidence) for evidence in finding.evidence],
        **fields(finding, "reason missing"),
    }


def evidence_payload(evidence: Evidence) -> dict[str, Json]:
    """Return a piece of evidence: the number, the bound that it was compared with, and its place."""
    numbers = "observed op bound bound_source unit satisfied of steps source"
    return {**fields(evidence, "metric raw"), "statistic": evidence.claim, **fields(evidence, numbers)}


def _whole(value: float | None) -> float | int | None:
    """Return a whole number as an int; other values, such as a fractional K, are unchanged."""
    return int(value) if value is not None and float(value).is_integer() else value


def _of_many(diagnosis: Diagnosis, options: RenderOptions) -> str:
    return element(_with_gate(diagnosis, options))


FLOW = Flow(opening=f'{{\n  "schema_version": "{SCHEMA_VERSION}",\n  "diagnoses": [', element=_of_many)
