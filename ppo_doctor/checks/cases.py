"""Read the cases of a rule and evaluate the rule on them.

A case in the file of a rule is an entry of `[cases.fires]`, `[cases.clear]` or `[cases.skipped]`: the name of the case,
then metrics with their series, and the fields of `OPTIONS`. In Python it is a mapping with `name`, the expected
`status`, `series`, and the same fields.

A series is written as in the rule tests of Prometheus: `0.01x9` is a value and nine repeats (ten points),
`0.02+0.03x9` starts at 0.02 and adds 0.03 nine times, `1-0.1x9` subtracts, `_` is a missing record, `nan` and `inf` are
values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from ppo_doctor.checks.engine import FROM_SETTINGS, check
from ppo_doctor.checks.rulepack import ANSWERS, file_of
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.model import arrays, metrics
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.rules import SETTING
from ppo_doctor.model.run import Axis, Fact, Note, Resolution, Run, Series, SourceRef, SourceSummary
from ppo_doctor.model.toml_schema import Spec, validate
from ppo_doctor.model.words import NoteEvent
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
#: Fields of a case besides its metrics; `onset` is the step of the finding.
OPTIONS: dict[str, Spec] = {
    **dict.fromkeys(("config?", "resolution?"), dict),
    **dict.fromkeys(("framework?", "algorithm?"), str),
    "notes?": [{"text": str, "event?": get_args(NoteEvent), "numbers?": [int]}],
    "onset?": int,
}
#: Factors by which thresholds are moved to see whether a case notices.
MOVED = {"down": 0.8, "up": 1.2}


def read_cases(rule: Rule) -> list[dict[str, Any]]:
    """Return the cases in the file of a rule: those that fire, those that are clear, then those that are skipped.

    Raises:
        DoctorError: a field of a case is neither a metric nor one of `OPTIONS`, or has the wrong type (exit code 2).
    """
    groups = file_of(rule.path)["cases"]
    return [
        _case(rule, name, status, entry)
        for answer, status in ANSWERS.items()
        for name, entry in groups.get(answer, {}).items()
    ]


def _case(rule: Rule, name: str, status: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    components = detection.profile("canonical").components
    parts = [field for field in entry if field.partition(".")[0] in components]
    validate(f"{rule.path}: case '{name}'", entry, OPTIONS | {f"{m}?": str for m in (*metrics.METRICS, *parts)})
    options = {field: value for field, value in entry.items() if f"{field}?" in OPTIONS}
    series = {metric: text for metric, text in entry.items() if metric not in options}
    return {"name": name, "status": status, "series": series, **options}


def parse_series(text: str) -> list[float | None]:
    """Return the points of a series; None is a missing record.

    Raises:
        DoctorError: a word does not have the form that the module describes (exit code 2).
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
    """The finding of a rule for a case, and how it differs from what the case expects; empty: the case passed."""

    rule: str
    case: str
    finding: Finding
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.rule}: {self.case}: {'; '.join(self.problems) or 'as expected'}"


def case_run(case: Mapping[str, Any]) -> Run:
    """Return the run that a case describes; a case with settings and no series is a run without a log."""
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
        notes=tuple(
            Note(text=note["text"], source=source, event=note.get("event"), numbers=tuple(note.get("numbers", ())))
            for note in case.get("notes", ())
        ),
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
    least = arrays.rounding_of(name, spec.estimator, spec.aggregation, values)
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
    """Evaluate a rule on a case and compare the finding with what the case expects."""
    finding = check(RunView(case_run(case)), rule)
    pairs = [("status", finding.status), ("onset", finding.onset_step)]
    problems = [f"{key}: expected {case[key]}, got {got}" for key, got in pairs if case.get(key, got) != got]
    if problems and finding.reason:
        problems.append(finding.reason)
    return CaseResult(rule=rule.name, case=case["name"], finding=finding, problems=tuple(problems))


def run_cases(rules: Iterable[Rule]) -> list[CaseResult]:
    """Evaluate each of some rules on the cases in its file."""
    return [run_case(rule, case) for rule in rules for case in read_cases(rule)]


def clause_findings(rule: Rule, case: Mapping[str, Any]) -> list[tuple[Clause, Finding]]:
    """Return the finding of each condition of a rule alone, which shows how far the case is from each bound."""
    view = RunView(case_run(case))
    return [(clause, check(view, replace(rule, when=(clause,)))) for clause in rule.when]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One parameter of a rule, moved by a fifth in one of the conditions that use it."""

    rule: str
    clause: int
    field: str
    param: str
    direction: str

    def __str__(self) -> str:
        return f"{self.param} ({self.field} of clause {self.clause + 1}) {self.direction} by a fifth"


def moves(rule: Rule) -> Iterator[Move]:
    """Yield every move of the thresholds of a rule, except those that are 0."""
    for index, clause in enumerate(rule.when):
        for name, param in clause.params.items():
            if getattr(clause, name) != 0:
                for way in MOVED:
                    yield Move(rule=rule.name, clause=index, field=name, param=param, direction=way)


def moved(rule: Rule, move: Move) -> Rule:
    """Return a rule with one threshold of one condition moved."""
    clauses = list(rule.when)
    clause = clauses[move.clause]
    fields: dict[str, Any] = {move.field: getattr(clause, move.field) * MOVED[move.direction]}
    clauses[move.clause] = replace(clause, **fields)
    return replace(rule, when=tuple(clauses))


def unnoticed(rule: Rule, cases: Sequence[Mapping[str, Any]]) -> list[Move]:
    """Return the moves after which all cases of a rule still pass, because none is within a fifth of that bound."""
    return [move for move in moves(rule) if not any(run_case(moved(rule, move), case).problems for case in cases)]


def values_of(rule: Rule, cases: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield, as lines of text, how far each case of a rule is from each bound, and the moves that no case notices."""
    yield rule.name
    for case in cases:
        yield f"  {case['name']}: {run_case(rule, case).finding.status}"
        yield from (f"     {_beside(clause, finding)}" for clause, finding in clause_findings(rule, case))
    yield from (f"  no case notices {move}" for move in unnoticed(rule, cases))


def _beside(clause: Clause, finding: Finding) -> str:
    name = clause.quantity.removeprefix(SETTING)
    if not finding.evidence:
        return f"{name}: {finding.reason}"
    evidence = finding.evidence[0]
    observed = "nothing" if evidence.observed is None else f"{evidence.observed:.4g}"
    answer = "yes" if finding.status == "fired" else "no"
    return f"{name}: {observed} {evidence.op} {evidence.bound:g} {answer}; {evidence.claim}"
