"""What a fleet's table holds of one run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from ppo_doctor import __version__
from ppo_doctor.model.words import Severity

if TYPE_CHECKING:
    from ppo_doctor.fleets.unit import Unit
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.run import Run

#: Names of settings that name the model or the environment, as trainers write them, the most usual first.
MODELS = ("model_name_or_path", "model", "model_name", "actor_rollout_ref.model.path", "pretrain", "base_model")
ENVIRONMENTS = ("env_id", "env", "env_name", "environment", "task")
#: Longest text of a setting that is kept, and most settings of a run.
LONGEST, MOST_SETTINGS = 200, 500


@dataclass(frozen=True, slots=True)
class FindingOf:
    """A finding of a run, of at least medium severity."""

    id: str
    severity: str
    since_step: int | None
    title: str


@dataclass(frozen=True, slots=True)
class CauseOf:
    """A cause of a run, in its rank."""

    id: str
    confidence: str
    severity: str
    benign: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A run in the table: as judged, or as failed with its reason.

    Steps are as logged, `modified` and `seconds` in seconds (the first since 1970, UTC), `size` in bytes.
    `wasted` is the share of compute that taught nothing, where the log tells.
    """

    key: str
    run: str
    source: str
    fingerprint: str
    status: Literal["judged", "failed"]
    modified: float
    size: int
    tool_version: str = __version__
    error: str = ""
    #: whether the next call should try it again although nothing changed: the storage or a process failed
    again: bool = False
    verdict: str = ""
    headline: str = ""
    outcome: str = ""
    outcome_metric: str = ""
    outcome_start: float | None = None
    outcome_best: float | None = None
    outcome_end: float | None = None
    evaluation: str = ""
    findings: tuple[FindingOf, ...] = ()
    causes: tuple[CauseOf, ...] = ()
    cause: str = ""
    confidence: str = ""
    onset_step: int | None = None
    updates_per_batch: float | None = None
    trainer: str = ""
    algorithm: str = ""
    model: str = ""
    environment: str = ""
    records: int = 0
    first_step: int | None = None
    last_step: int | None = None
    metrics_start: Mapping[str, float] = field(default_factory=dict)
    metrics_end: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    wasted: float | None = None
    movement: bool = False
    signal: bool = False
    numerics: bool = False
    checks_yes: int = 0
    checks_no: int = 0
    checks_unknown: int = 0
    checks_errored: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain values."""
        values = {name: getattr(self, name) for name in _NAMES}
        return values | {"findings": list(map(asdict, self.findings)), "causes": list(map(asdict, self.causes))}


_NAMES = tuple(each.name for each in fields(Row))


def failed(unit: Unit, reason: str, *, run: str = "", again: bool = False) -> Row:
    """Return the row of a source that could not be judged."""
    name = run or unit.key
    return Row(**_of(unit), run=name, source=name, status="failed", error=reason, again=again)


def _of(unit: Unit) -> dict[str, Any]:
    return {name: getattr(unit, name) for name in ("key", "fingerprint", "modified", "size")}


def judged(unit: Unit, run: Run, diagnosis: Diagnosis, seconds: float) -> Row:
    """Return the row of a run that was judged."""
    summary, coverage, outcome = diagnosis.run, diagnosis.coverage, diagnosis.outcome
    leader = next((cause for cause in diagnosis.causes if cause.leader), None)
    shown = sorted(
        (f for f in diagnosis.findings if f.status == "fired" and f.severity.at_least(Severity.MEDIUM)),
        key=lambda each: each.severity.rank,
    )
    onsets = [cause.onset_step for cause in diagnosis.causes if cause.leader and cause.onset_step is not None]
    settings = {str(name): str(value)[:LONGEST] for name, value in list(summary.config.items())[:MOST_SETTINGS]}
    return Row(
        **_of(unit),
        run=run.id,
        source=summary.sources[0].path if summary.sources else unit.key,
        status="judged",
        verdict=str(diagnosis.verdict),
        headline=diagnosis.headline,
        outcome=str(outcome.what),
        outcome_metric=outcome.metric,
        outcome_start=outcome.start,
        outcome_best=outcome.best,
        outcome_end=outcome.end,
        evaluation=str(outcome.evaluation.what) if outcome.evaluation is not None else "",
        findings=tuple(FindingOf(f.rule, f.severity.value, f.onset_step, f.title) for f in shown),
        causes=tuple(CauseOf(c.id, str(c.confidence), c.severity.value, c.benign) for c in diagnosis.causes),
        cause=leader.id if leader is not None else "",
        confidence=str(leader.confidence) if leader is not None else "",
        onset_step=min(onsets, default=None),
        updates_per_batch=summary.updates_per_batch.effective,
        trainer=summary.framework,
        algorithm=summary.algorithm,
        model=_first(settings, MODELS),
        environment=_first(settings, ENVIRONMENTS),
        records=summary.records,
        first_step=summary.steps[0] if summary.steps else None,
        last_step=summary.steps[1] if summary.steps else None,
        metrics_start=_values(run, 0),
        metrics_end=_values(run, -1),
        settings=settings,
        wasted=max((cost.share for cost in diagnosis.costs.values()), default=None),
        movement=coverage.movement,
        signal=coverage.signal,
        numerics=coverage.numerics,
        checks_yes=coverage.fired,
        checks_no=coverage.clear,
        checks_unknown=coverage.skipped,
        checks_errored=coverage.errored,
        seconds=seconds,
    )


def _first(settings: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((settings[name] for name in names if settings.get(name)), "")


def _values(run: Run, at: int) -> dict[str, float]:
    """Return the first or last finite value of each metric."""
    found: dict[str, float] = {}
    for name, series in run.series.items():
        finite = [value for value in (series.values if at == 0 else series.values[::-1])[:50] if math.isfinite(value)]
        if finite:
            found[name] = float(finite[0])
    return found
