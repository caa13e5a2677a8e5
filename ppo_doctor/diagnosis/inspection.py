"""Inspect a run: names, settings, updates per batch, gaps, and the causes that its log can decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.engine import run_rules
from ppo_doctor.checks.outcome import Phase, holes, schedule_phases
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.run import Fact
from ppo_doctor.trainers.detection import near_misses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.model.rules import Finding, Weight
    from ppo_doctor.model.run import Run, Series

#: The most metrics that are recommended to be logged.
MOST_WANTED = 5


@dataclass(frozen=True, slots=True)
class Mapped:
    """A metric of the log: raw name, canonical name, semantics, number of records, first and last value."""

    raw: str
    name: str
    semantics: str
    records: int
    not_finite: int
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """A metric that is not in the log, the weight in dB that it would add, and the causes that it would help judge."""

    metric: str
    decibans: int
    causes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """The content of the output of `inspect`."""

    run: Run
    mapped: tuple[Mapped, ...]
    unknown: tuple[tuple[str, tuple[str, ...]], ...]
    updates: tuple[Fact, ...]
    read_off: tuple[Fact, ...]
    phases: tuple[Phase, ...]
    holes: tuple[tuple[int, int], ...]
    #: the setting that determines the updates per batch, if they are unknown
    asked: tuple[Fact, ...]
    judged: tuple[str, ...]
    not_judged: tuple[tuple[str, tuple[str, ...]], ...]
    wanted: tuple[Wanted, ...]


def inspect(run: Run, pack: Pack) -> Inspection:
    """Return what was read from a run, and which causes of a pack can be judged from it."""
    view = RunView(run)
    findings = {finding.rule: finding for finding in run_rules(view, pack.rules)}
    longest = max(run.series.values(), key=len, default=None)
    judged = {cause.id: _needs(cause.weights, findings) for cause in pack.causes}
    return Inspection(
        run=run,
        mapped=tuple(sorted((_mapped(s) for s in run.series.values()), key=lambda m: m.name)),
        unknown=tuple((key, tuple(near_misses(key))) for key in run.unknown_keys),
        updates=_facts(view, ("updates_planned", "updates_observed", "epochs_share")),
        asked=_facts(view, ("updates_asked",)),
        read_off=_facts(view, ("kl_coef_implied", "schedule_end_step")),
        phases=schedule_phases(view),
        holes=holes(longest) if longest is not None else (),
        judged=tuple(sorted(cause for cause, needs in judged.items() if not needs)),
        not_judged=tuple(sorted((cause, needs) for cause, needs in judged.items() if needs)),
        wanted=wanted(pack, findings),
    )


def _mapped(series: Series) -> Mapped:
    qualifiers = [series.estimator, series.aggregation, series.reference and f"against {series.reference}", series.unit]
    if not series.resolution.exact:
        qualifiers.append(f"±{series.resolution.absolute:.0e}")
    return Mapped(
        raw=series.raw,
        name=series.name,
        semantics=", ".join(q for q in qualifiers if q),
        records=len(series),
        not_finite=int((~np.isfinite(series.values)).sum()),
        first=float(series.values[0]),
        last=float(series.values[-1]),
    )


def _facts(view: RunView, names: Sequence[str]) -> tuple[Fact, ...]:
    return tuple(fact for name in names if (fact := view.fact(name)) is not None)


def _needs(weights: Sequence[Weight], findings: dict[str, Finding]) -> tuple[str, ...]:
    """Return the metrics that a cause lacks; empty if one of its two heaviest findings could be evaluated.

    Lighter findings alone are not enough to judge a cause. If no metric is missing, the reason is returned.
    """
    supporting = [weight for weight in weights if weight.fired > 0 and weight.finding in findings]
    heaviest = [findings[w.finding] for w in sorted(supporting, key=lambda w: -w.fired)[:2]]
    if any(finding.status in ("fired", "clear") for finding in heaviest):
        return ()
    missing = tuple(dict.fromkeys(metric for finding in heaviest for metric in finding.missing))
    return missing or tuple(finding.reason or finding.rule for finding in heaviest[:1])


def wanted(pack: Pack, findings: dict[str, Finding]) -> tuple[Wanted, ...]:
    """Return the `MOST_WANTED` metrics that would add most, by the weight of the skipped findings that need them.

    The weight of a finding that needs several metrics is divided among them.
    """
    skipped = {name: f for name, f in findings.items() if f.status == "skipped" and f.missing}
    gains: dict[str, Wanted] = {}
    for metric in dict.fromkeys(m for f in skipped.values() for m in f.missing):
        decibans, causes = 0.0, []
        for cause in pack.causes:
            freed = [w for w in cause.weights if w.finding in skipped and metric in skipped[w.finding].missing]
            if freed:
                decibans += max(abs(w.fired) / len(skipped[w.finding].missing) for w in freed)
                causes.append(cause.id)
        gains[metric] = Wanted(metric, round(decibans), tuple(sorted(causes)))
    gains = {name: gain for name, gain in gains.items() if name in METRICS}
    best = sorted(gains.values(), key=lambda w: (-w.decibans, w.metric))
    return tuple(w for w in best if w.causes)[:MOST_WANTED]
