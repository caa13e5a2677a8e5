"""Run a rule on a case in a short notation for series, and `assert_healthy` for tests.

Notation, as in Prometheus' rule tests: `0.01x9` is a value and nine repeats (ten points), `0.02+0.03x9` starts at 0.02
and adds 0.03 nine times, `1-0.1x9` subtracts, `_` is a missing record, `nan` and `inf` are values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo_doctor.checks.engine import FROM_SETTINGS, check
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.model import arrays, metrics
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.run import Axis, Fact, Note, Resolution, Run, Series, SourceRef, SourceSummary
from ppo_doctor.model.toml_schema import Spec, validate
from ppo_doctor.trainers import detection
from ppo_doctor.trainers.configuration import Found, canonical_settings, misspelt_settings
from ppo_doctor.trainers.profiles import MetricProfile
from ppo_doctor.trainers.updates import configured_updates

if TYPE_CHECKING:
    from ppo_doctor.model.rules import Clause, Finding, Rule

_NUMBER = r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+|nan|inf)"
_ITEM = re.compile(
    rf"(?P<start>{_NUMBER})(?:(?P<step>[+-](?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)))?(?:x(?P<repeats>\d+))?\Z"
)
KINDS = ("positive", "near-miss", "benign", "missing")
CASE: dict[str, Spec] = {
    "name": str,
    "kind": KINDS,
    "expect": {"status": str, "onset?": object},
    **dict.fromkeys(("series?", "config?", "framework?", "algorithm?", "resolution?", "notes?"), object),
}
#: A case has to notice when a threshold moves by this much.
MOVED = {"down": 0.8, "up": 1.2}


def parse_series(text: str) -> list[float | None]:
    """Return the points of a series in our notation; None is a missing record.

    Raises:
        DoctorError: a word is not in the notation.
    """
    points: list[float | None] = []
    for word in text.split():
        points.extend([None] if word == "_" else _points(word))
    return points


def _points(word: str) -> list[float]:
    match = _ITEM.match(word)
    if match is None:
        raise DoctorError(f"'{word}' is no series: write 0.01x9, 0.02+0.03x9, _ or nan", code=ExitCode.USAGE)
    start, step = float(match["start"]), float(match["step"] or 0)
    # Rounded, so that 0.2-0.01x19 reads 0.01 at its end and not 0.010000000000000009.
    return [round(start + step * k, 12) if step else start for k in range(int(match["repeats"] or 0) + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """What a rule said of a case, and what was wrong with that; no problem means that the case passed."""

    rule: str
    case: str
    finding: Finding
    problems: tuple[str, ...]


def case_run(case: Mapping[str, Any]) -> Run:
    """Return the run that a case describes: canonical series, settings and facts; without series no log was given."""
    profile = detection.profile(case.get("framework", "canonical"))
    source = SourceRef(path=case.get("name", "case"))
    found = Found(values=case.get("config", {}), source=source)
    settings = canonical_settings(profile, [found] if found.values else [])
    if "framework" not in case:
        settings = {name: setting for name, setting in settings.items() if setting.how != "default"}
    facts = {name: Fact(name=name, value=value, how="default") for name, value in profile.facts.items()}
    configured = configured_updates(profile, settings)
    series = _series(case)
    if found.values and not series:
        facts[FROM_SETTINGS] = Fact(name=FROM_SETTINGS, value=True, how="computed")
    size = max((len(s) for s in series.values()), default=0)
    return Run(
        id=source.path,
        framework=profile.name,
        algorithm=case.get("algorithm", profile.algorithm),
        sources=(SourceSummary(path=source.path, container="case", records=size),),
        series=series,
        facts=facts | ({configured.name: configured} if configured else {}),
        config=settings,
        misspelt=misspelt_settings(profile, [found]),
        config_raw=found.values,
        notes=tuple(_note(entry, source) for entry in case.get("notes", ())),
    )


def _note(entry: str | Mapping[str, Any], source: SourceRef) -> Note:
    """Return a note of a case: its text, or a table with `text`, `event` and `numbers`."""
    if isinstance(entry, str):
        return Note(text=entry, source=source)
    return Note(
        text=entry.get("text", ""), source=source, event=entry.get("event"), numbers=tuple(entry.get("numbers", ()))
    )


def _series(case: Mapping[str, Any]) -> dict[str, Series]:
    points = {name: parse_series(text) for name, text in case.get("series", {}).items()}
    axes: dict[tuple[int, ...], Axis] = {}
    return {name: _one(name, values, case, axes) for name, values in points.items()}


def _one(name: str, points: list[float | None], case: Mapping[str, Any], axes: dict[tuple[int, ...], Axis]) -> Series:
    if name not in metrics.METRICS and name.partition(".")[0] not in detection.profile("canonical").components:
        raise DoctorError(f"no canonical metric '{name}'", code=ExitCode.USAGE)
    steps = tuple(step for step, value in enumerate(points) if value is not None)
    if steps not in axes:
        held = np.array(steps, dtype=np.int64)
        axes[steps] = Axis(path=case.get("name", "case"), steps=held, lines=held + 1)
    absolute = case.get("resolution", {}).get(name, 0.0)
    known = detection.profile(case.get("framework", "canonical")).metrics
    canonical = detection.profile("canonical").metrics
    spec = known.get(name) or canonical.get(name) or MetricProfile(name=name, keys=(name,))
    values = np.array([math.nan if v is None else v for v in points if v is not None], dtype=np.float64)
    least = arrays.of(name, spec.estimator, spec.aggregation, values)
    return Series(
        name=name,
        raw=name,
        axis=axes[steps],
        values=values,
        unit=metrics.unit(name),
        resolution=Resolution(absolute=absolute, rounding=least),
        estimator=spec.estimator,
        aggregation=spec.aggregation,
        reference=spec.reference,
    )


def run_case(rule: Rule, case: Mapping[str, Any]) -> CaseResult:
    """Run one rule on one of its cases and compare with what the case expects.

    Raises:
        DoctorError: the case lacks its name, kind or expectation, or expects what no finding has.
    """
    validate(f"{rule.path}: case '{case.get('name', '')}'", case, CASE)
    finding = check(RunView(case_run(case)), rule)
    expected: Mapping[str, Any] = case["expect"]
    got: dict[str, object] = {"status": finding.status, "onset": finding.onset_step}
    problems = [f"{key}: expected {want}, got {got[key]}" for key, want in expected.items() if got[key] != want]
    if problems and finding.reason:
        problems.append(finding.reason)
    return CaseResult(rule=rule.name, case=case["name"], finding=finding, problems=tuple(problems))


def clause_findings(rule: Rule, case: Mapping[str, Any]) -> list[tuple[Clause, Finding]]:
    """Return what each clause of a rule says of a case by itself: how far the case stands from each bound."""
    view = RunView(case_run(case))
    return [(clause, check(view, replace(rule, when=(clause,)))) for clause in rule.when]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A parameter of a rule, moved by a fifth where one of its clauses takes it."""

    rule: str
    clause: int
    field: str
    param: str
    direction: str

    def __str__(self) -> str:
        return f"{self.param} ({self.field} of clause {self.clause + 1}) {self.direction} by a fifth"


def moves(rule: Rule) -> Iterator[Move]:
    """Return every move of a rule's thresholds; one of 0 has no fifth."""
    for index, clause in enumerate(rule.when):
        for name, param in clause.params.items():
            if getattr(clause, name) != 0:
                for way in MOVED:
                    yield Move(rule=rule.name, clause=index, field=name, param=param, direction=way)


def moved(rule: Rule, move: Move) -> Rule:
    """Return a rule with one threshold of one clause moved."""
    clauses = list(rule.when)
    clause = clauses[move.clause]
    fields: dict[str, Any] = {move.field: getattr(clause, move.field) * MOVED[move.direction]}
    clauses[move.clause] = replace(clause, **fields)
    return replace(rule, when=tuple(clauses))


def unnoticed(rule: Rule, cases: Iterable[Mapping[str, Any]]) -> list[Move]:
    """Return the moves after which all cases of a rule still pass: none of them lies within a fifth of that bound."""
    held = list(cases)
    return [move for move in moves(rule) if not any(run_case(moved(rule, move), case).problems for case in held)]


def values_of(rule: Rule, cases: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Return, as lines of text, how far each case of a rule stands from each bound, and what no case is near."""
    held = list(cases)
    yield rule.name
    for case in held:
        yield f"  {case['name']} ({case['kind']}): {run_case(rule, case).finding.status}"
        yield from (f"     {_beside(clause, finding)}" for clause, finding in clause_findings(rule, case))
    yield from (f"  no case notices {move}" for move in unnoticed(rule, held))


def _beside(clause: Clause, finding: Finding) -> str:
    name = clause.quantity.partition(".")[2]
    if not finding.evidence:
        return f"{name}: {finding.reason}"
    told = finding.evidence[0]
    observed = "nothing" if told.observed is None else f"{told.observed:.4g}"
    return f"{name}: {observed} {told.op} {told.bound:g} {'yes' if finding.status == 'fired' else 'no'}; {told.claim}"
