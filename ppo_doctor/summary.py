"""What a diagnosis tells of the run itself: what was read, what became of reward and entropy, and K."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.evidence import became, number
from ppo_doctor.model import OUTCOMES, Fact, RunSummary, UpdatesPerBatch

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Outcome, Run
    from ppo_doctor.rulepack import Pack


def summary(observations: Observations, pack: Pack) -> RunSummary:
    """Return what was read of a run: its files, settings, notes and steps per batch."""
    run = observations.run
    used = [use for use in run.keys.values() if use != "unknown"]
    guessed = used.count("guessed")
    return RunSummary(
        id=run.id,
        sources=run.sources,
        framework=run.framework,
        algorithm=run.algorithm,
        steps=run.steps,
        records=sum(source.records - source.skipped for source in run.sources if not source.again),
        updates_per_batch=_updates(observations),
        config=run.config_raw,
        notes=tuple(map(str, (*pack.further, *run.notes))),
        samples=observations.kind.facet("samples").value,
        keys={"mapped": len(used) - guessed, "guessed": guessed, "unknown": len(run.unknown_keys)},
        inferred=run.inferred,
        not_understood=run.not_understood,
    )


def headline(run: Run, outcome: Outcome, because: str) -> str:
    """Return what became of reward and entropy, and why the run was judged so."""
    course = became(outcome)
    told = "; ".join(filter(None, (course, _entropy(run))))
    return f"{told}." if because == course else f"{told}. {because[:1].upper()}{because[1:]}."


def _entropy(run: Run) -> str:
    """Return the entropy from its first number to its last."""
    series = run.outcome(OUTCOMES["entropy"])
    values = series.values[np.isfinite(series.values)] if series is not None else np.empty(0)
    return f"entropy {number(float(values[0]))} → {number(float(values[-1]))}" if len(values) else ""


def _updates(observations: Observations) -> UpdatesPerBatch:
    configured = _number(observations, "updates_configured")
    observed = _number(observations, "updates_observed")
    effective = known_fact(observations, "updates_effective")
    if effective is None or not isinstance(effective.value, int | float):
        asked = known_fact(observations, "updates_asked")
        return UpdatesPerBatch(ask=str(asked.value) if asked is not None else "")
    how = effective.how
    key = effective.source.key if effective.source and effective.source.key else effective.name
    prefix = {"configured": "config", "default": "default"}.get(how, "log")
    is_default = observations.run.facts.get("updates_configured")
    return UpdatesPerBatch(
        configured=configured if is_default and is_default.how == "configured" else None,
        observed=observed,
        effective=float(effective.value),
        origin=f"{prefix}:{key}",
        how=how,
    )


def known_fact(observations: Observations, name: str) -> Fact | None:
    """Return a fact for the summary; one whose computation fails is missing here, and errored in its rules."""
    try:
        return observations.fact(name)
    except Exception:  # noqa: BLE001 - the rules that need it report the error, each by name
        return None


def _number(observations: Observations, name: str) -> float | None:
    """Return a fact as a number, None when it is unknown or no number."""
    fact = known_fact(observations, name)
    return float(fact.value) if fact is not None and isinstance(fact.value, int | float) else None
