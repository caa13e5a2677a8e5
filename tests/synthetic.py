"""Hand-made rules, causes, findings and runs: small enough that a reader can add them up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ppo_doctor.checks.rulepack import Pack
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.model.diagnosis import Problem
from ppo_doctor.model.rules import Cause, Clause, Complaint, Evidence, Finding, Measurement, Rule, Weight
from ppo_doctor.model.run import EXACT, Axis, Fact, Resolution, Run, Series, Setting, SourceRef, SourceSummary
from ppo_doctor.model.words import Severity, Verdict

EVIDENCE = Evidence(metric="m", raw="m", statistic="", observed=1.0, op=">", bound=0.0, satisfied=1, of=1)


def a_rule(name: str, *, link: str = "ratio", severity: str = "high", **fields: Any) -> Rule:
    """Return a rule over a series that no run holds."""
    return Rule(
        code=name.upper(),
        name=name,
        title=f"{name} fired",
        pass_title=f"{name} clear",
        link=link,
        severity=Severity(severity),
        when=fields.pop("when", (Clause(quantity="nothing", test="above", bound=0.0),)),
        **fields,
    )


def a_finding(rule: Rule, status: str = "fired", *, onset: int | None = None, missing: Sequence[str] = ()) -> Finding:
    """Return what a rule said, with what its status obliges it to carry."""
    return Finding(
        rule=rule.name,
        code=rule.code,
        title=rule.title,
        link=rule.link,
        status=status,  # type: ignore[arg-type]
        severity=rule.severity,
        evidence=(EVIDENCE,) if status in ("fired", "clear") else (),
        onset_step=onset,
        reason="not logged" if status in ("skipped", "errored") else None,
        missing=tuple(missing),
    )


def a_cause(
    name: str,
    weights: Mapping[str, int | tuple[int, int]] | None = None,
    *,
    prior: int = 0,
    severity: str = "high",
    complaints: Iterable[str] = ("policy-does-not-move",),
    measure: Iterable[tuple[str, str]] = (),
    **fields: Any,
) -> Cause:
    """Return a cause; a weight is (fired, clear), or the weight of a fired finding."""
    pairs = {key: value if isinstance(value, tuple) else (value, 0) for key, value in (weights or {}).items()}
    return Cause(
        id=name,
        title=f"the {name}",
        family=fields.pop("family", "identity"),
        severity=Severity(severity),
        prior=prior,
        benign=fields.pop("benign", False),
        link=fields.pop("link", "ratio"),
        complaints=tuple(complaints),
        weights=tuple(Weight(finding=key, fired=f, clear=c, source="test") for key, (f, c) in pairs.items()),
        measure=tuple(Measurement(log=log, because=because) for log, because in measure),
        **fields,
    )


def a_problem(name: str, *, leader: str, verdict: Verdict = "healthy") -> Problem:
    """Return a problem of the ratio, explained by one cause."""
    return Problem(
        id=name,
        title="x",
        link="ratio",
        state="wrong",
        severity=Severity.HIGH,
        complaint="policy-does-not-move",
        leader=leader,
        verdict=verdict,
    )


def a_pack(rules: Iterable[Rule], causes: Iterable[Cause], rates: Mapping[str, float] | None = None) -> Pack:
    """Return a pack whose complaints are those that its rules and causes speak of."""
    rules, causes = tuple(rules), tuple(causes)
    named = dict.fromkeys(c for cause in causes for c in cause.complaints)
    complaints = tuple(Complaint(id=name, title=name) for name in named)
    return Pack(rules=rules, causes=causes, complaints=complaints, unjudged=(), rates=rates or {})


def an_axis(steps: Iterable[int], path: str = "log") -> Axis:
    """Return the axis of these steps, one line per record."""
    held = np.array(list(steps), dtype=np.int64)
    return Axis(path=path, steps=held, lines=np.arange(1, len(held) + 1, dtype=np.int64))


def a_series(
    name: str, values: Iterable[float], *, steps: Iterable[int] | None = None, axis: Axis | None = None, **fields: Any
) -> Series:
    """Return a series, one record per step unless told otherwise; `absolute` is its resolution."""
    held = np.array(list(values), dtype=np.float64)
    absolute = fields.pop("absolute", 0.0)
    resolution = Resolution(absolute=absolute) if absolute else EXACT
    on = axis or an_axis(steps if steps is not None else range(1, len(held) + 1))
    return Series(name=name, raw=f"raw/{name}", axis=on, values=held, resolution=resolution, **fields)


def a_run(
    *series: Series,
    config: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    algorithm: str = "ppo",
) -> Run:
    """Return a run of these series; `config` was found, `defaults` are the framework's."""
    origin = SourceRef(path="config")
    settings = {k: Setting(key=k, value=v, how="default", source=origin) for k, v in (defaults or {}).items()}
    settings |= {k: Setting(key=k, value=v, how="configured", source=origin) for k, v in (config or {}).items()}
    named = {k: v if isinstance(v, Fact) else Fact(name=k, value=v, how="default") for k, v in (facts or {}).items()}
    records = max((len(s) for s in series), default=0)
    return Run(
        id="run",
        framework="canonical",
        algorithm=algorithm,
        sources=(SourceSummary(path="log", container="jsonl", records=records),),
        series={s.name: s for s in series},
        facts=named,
        config=settings,
    )


def observe(*series: Series, **fields: Any) -> RunView:
    """Return the observations on such a run."""
    return RunView(a_run(*series, **fields))


def configured(updates: float, how: str = "configured") -> Fact:
    """Return K as a configuration, or a framework's default, states it."""
    return Fact(name="updates_configured", value=updates, how=how)  # type: ignore[arg-type]


NAN = math.nan
