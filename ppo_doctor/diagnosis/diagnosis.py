"""Assemble the diagnosis of a run: summary, causes, problems, coverage and verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor import __version__
from ppo_doctor.checks.config import judged
from ppo_doctor.checks.engine import FROM_SETTINGS
from ppo_doctor.checks.outcome import outcome
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.diagnosis.findings import ALWAYS, chain, costs, problems_shown, unexplained, verdict
from ppo_doctor.diagnosis.first_step import fitting, of_outcome, of_problem, of_what_stands
from ppo_doctor.diagnosis.first_step import told as first_told
from ppo_doctor.diagnosis.problems import in_order, problems
from ppo_doctor.model.diagnosis import Coverage, Diagnosis, RunSummary, Unjudged, UpdatesPerBatch
from ppo_doctor.model.evidence import became, number
from ppo_doctor.model.metrics import METRICS, loggable
from ppo_doctor.model.run import Fact, Series
from ppo_doctor.model.words import OUTCOMES, QUESTIONS

if TYPE_CHECKING:
    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.model.diagnosis import Outcome, Problem, RankedCause
    from ppo_doctor.model.rules import Cause, Finding, Rule
    from ppo_doctor.model.run import Run


def summary(view: RunView, pack: Pack) -> RunSummary:
    """Return what was read of a run: its files, settings, notes and steps per batch."""
    run = view.run
    used = [use for use in run.keys.values() if use != "unknown"]
    guessed = used.count("guessed")
    return RunSummary(
        id=run.id,
        sources=run.sources,
        framework=run.framework,
        algorithm=run.algorithm,
        steps=run.steps,
        records=sum(source.records - source.skipped for source in run.sources if not source.again),
        updates_per_batch=_updates(view),
        config=run.config_raw,
        notes=tuple(map(str, (*pack.further, *run.notes))),
        died=tuple((str(note), note.message) for note in run.notes if note.died),
        several_runs=tuple(str(note) for note in run.notes if note.event == "several_runs"),
        samples=view.kind.facet("samples").value,
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


def _updates(view: RunView) -> UpdatesPerBatch:
    configured = _number(view, "updates_configured")
    observed = _number(view, "updates_observed")
    effective = known_fact(view, "updates_effective")
    if effective is None or not isinstance(effective.value, int | float):
        asked = known_fact(view, "updates_asked")
        return UpdatesPerBatch(ask=str(asked.value) if asked is not None else "")
    how = effective.how
    key = effective.source.key if effective.source and effective.source.key else effective.name
    prefix = {"configured": "config", "default": "default"}.get(how, "log")
    is_default = view.run.facts.get("updates_configured")
    return UpdatesPerBatch(
        configured=configured if is_default and is_default.how == "configured" else None,
        observed=observed,
        effective=float(effective.value),
        origin=f"{prefix}:{key}",
        how=how,
    )


def known_fact(view: RunView, name: str) -> Fact | None:
    """Return a fact for the summary; one whose computation fails is missing here, and errored in its rules."""
    try:
        return view.fact(name)
    except Exception:  # noqa: BLE001 - the rules that need it report the error, each by name
        return None


def _number(view: RunView, name: str) -> float | None:
    """Return a fact as a number, None when it is unknown or no number."""
    fact = known_fact(view, name)
    return float(fact.value) if fact is not None and isinstance(fact.value, int | float) else None


#: A finding that weighs at least this for a cause, or by its silence against it, has looked for it.
LOOKS_DB = 6


def not_ruled_out(
    pack: Pack, causes: Sequence[Cause], findings: Iterable[Finding], named: Sequence[str]
) -> tuple[Unjudged, ...]:
    """Return the harmful causes that nothing in this input speaks for or against, each with what it would take.

    A cause counts as looked for when a check that could prove it, or that usually goes with it, was answered. Causes in
    `named` are spoken of already; of those in the pack that are not among `causes`, which such a run can have, there is
    nothing to rule out.
    """
    by_rule = {finding.rule: finding for finding in findings}
    beside = {cause.id for cause in pack.causes} - {cause.id for cause in causes}
    never = [unjudged for unjudged in pack.unjudged if unjudged.id not in beside.union(named)]
    spoken = {*named, *(unjudged.id for unjudged in pack.unjudged)}
    harmful = [cause for cause in causes if not cause.benign and cause.id not in spoken]
    unseen = [_unseen(cause.id, why) for cause in harmful if (why := _why_unseen(cause, by_rule)) is not None]
    return (*unseen, *never)


def _why_unseen(cause: Cause, findings: Mapping[str, Finding]) -> str | None:
    """Return what it would take to look for a cause; None where something did, or where it does not apply."""
    looking = [weight.finding for weight in cause.weights if weight.fired >= LOOKS_DB]
    asked = [findings[name] for name in looking if name in findings]
    if any(found.status in ("fired", "clear") for found in asked):
        return None
    lacking = next((found for found in asked if found.missing or found.applies), None)
    return lacking.reason if lacking else None


@lru_cache(maxsize=1024)  # the runs of a sweep lack the same
def _unseen(cause: str, because: str) -> Unjudged:
    return Unjudged(id=cause, because=because, a_fuller_log_could=True)


#: A question counts as answered over at least this many records: from there on what stands still says something.
LEAST_UPDATES = 8
#: Metrics that are named of those that would answer a question.
MOST_ASKED = 3
#: Settings of a configuration alone that are told by name; a note lists all of them.
MOST_NAMES = 8


def assemble(
    view: RunView,
    pack: Pack,
    findings: Sequence[Finding],
    suppressed: tuple[str, ...] = (),
    target: float | None = None,
) -> Diagnosis:
    """Return the diagnosis that findings add up to; `target` is the reward that the user asks for."""
    rules = pack.by_name
    possible = [cause for cause in pack.causes if not view.kind.excludes(cause.kind)]
    alone = FROM_SETTINGS in view.run.facts
    keys = view.run.keys
    guessed = {key for key, use in keys.items() if use == "guessed"}
    if keys:  # several columns that are read as one by their names
        guessed |= {series.raw for series in view.run.series.values() if series.raw not in keys}
    updates = known_fact(view, "updates_effective")
    if updates is None or updates.how == "configured":
        guessed.add("several_updates")  # what the user believes, or what movement tells, is to be shown
    if (spent := known_fact(view, "rate_spent_at")) is not None and spent.how == "configured" and spent.source:
        guessed.add(spent.source.key or "")  # so is a decay that no logged rate shows
    became = outcome(view.run, target=target)
    found = problems(possible, findings, guessed=guessed, planned=alone, learned=became.clear)
    odd = unexplained(findings, pack, found)
    if odd is not None and all(group.leader.benign for group in found):
        found = problems(possible, findings, guessed=guessed, planned=alone, learned=became.clear, odd=odd.rule)
    coverage = replace(cover(view, rules, findings), failed=_failed(pack, findings))
    feeds = partial(_feeds, view)
    links = chain(pack.chain, findings, feeds=feeds, broken=_broken(view), steps=view.run.steps)
    run, samples = view.run, view.kind.samples.value
    told = tuple(
        replace(problem, next_step=of_problem(problem, became, rules, run, samples))
        for problem in problems_shown(found, findings, became, links)
    )
    said, because, left_open = verdict(told, became, coverage, links, view.run.steps)
    if alone and said not in ("unhealthy", "warning"):
        said, because, left_open = "inconclusive", _of_settings(view, findings), False
    if said == "healthy" and (short := _ends_early(run)):
        said, because = "inconclusive", short
    shown = (cause for cause in _placed(in_order(found), told) if cause.benign or said != "healthy")
    causes = tuple(replace(cause, remedies=fitting(cause.remedies, view.run, samples)) for cause in shown)
    step = first_told(told, causes) or of_what_stands(links, findings, rules, coverage)
    step = step or of_outcome(became, coverage.would_answer, run, samples, alone=alone)
    return Diagnosis(
        tool_version=__version__,
        run=summary(view, pack),
        verdict=said,
        verdict_because=because,
        headline=headline(view.run, became, because),
        causes=causes,
        findings=tuple(findings),
        chain=links,
        coverage=coverage,
        left_open=left_open,
        outcome=became,
        problems=told,
        first_step="" if said == "healthy" else step,
        costs=costs(findings, view.run),
        not_ruled_out=not_ruled_out(pack, possible, findings, [cause.id for cause in causes]),
        suppressed=suppressed,
        packs=pack.further,
    )


def _ends_early(run: Run) -> str:
    """Return why a log in which nothing was found is none of a sound run; nothing where it was read to its end."""
    lost = next((note for note in run.notes if note.kind == "lost"), None)
    if lost is not None:
        return f"nothing was found in what could be read, and that is not all: {lost}"
    died = next((note.text for note in run.notes if note.died), None)
    return f"nothing was found in what was logged before {died}" if died is not None else ""


def _placed(ordered: Sequence[RankedCause], told: Sequence[Problem]) -> list[RankedCause]:
    """Return causes under the problems that are told; one of none leads nothing and comes last."""
    where = {name: problem.id for problem in told for name in problem.causes}
    placed = [replace(c, problem=where.get(c.id, "")) for c in ordered if c.benign or c.id in where]
    loose = [c for c in ordered if not c.benign and c.id not in where]
    placed += [replace(cause, problem="", leader=False, level_with=()) for cause in loose]
    return [replace(cause, rank=rank) for rank, cause in enumerate(placed, start=1)]


def _of_settings(view: RunView, findings: Sequence[Finding]) -> str:
    """Return what is said of a configuration that no cause is named of."""
    noted = any(finding.status == "fired" and finding.severity != "info" for finding in findings)
    names = [setting.key.rpartition(".")[2] for setting in judged(view)]
    listed = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    sound = (
        f"what it sets is possible, of use and not unusual ({listed})" if names else "none of its settings is judged"
    )
    return f"{'what the configuration shows names no cause' if noted else sound}; whether it trains takes a log"


def cover(view: RunView, rules: Mapping[str, Rule], findings: Sequence[Finding]) -> Coverage:
    """Return which of the three questions were answered, and the count of rules by status."""
    asked = [(rule, finding) for finding in findings if (rule := rules[finding.rule]).answers]
    answered = {rule.answers for rule, finding in asked if _answers(view, rule, finding)}
    count = Counter([finding.status for finding in findings])
    missing = dict.fromkeys(name for finding in findings for name in finding.missing)
    silent = {question: _why_not(asked, question) for question in QUESTIONS if question not in answered}
    hidden = known_fact(view, "passes_hidden")
    if hidden is not None:  # that the policy moves says nothing about the passes that no record shows
        silent["movement"] = (hidden.says,)
    return Coverage(
        movement="movement" not in silent,
        signal="signal" not in silent,
        numerics="numerics" not in silent,
        evaluated=count["clear"] + count["fired"],
        clear=count["clear"],
        fired=count["fired"],
        skipped=count["skipped"],
        errored=count["errored"],
        missing_metrics=tuple(name for name in missing if name in METRICS and loggable(name)),
        unanswered=silent,
        would_answer={question: _would_answer(findings, reasons) for question, reasons in silent.items()},
    )


def _would_answer(findings: Sequence[Finding], reasons: Sequence[str]) -> tuple[str, ...]:
    """Return metrics that a log can hold, whose absence is why a question stays open."""
    named = dict.fromkeys(name for finding in findings if finding.reason in reasons for name in finding.missing)
    return tuple(name for name in named if name in METRICS and loggable(name))[:MOST_ASKED]


def _failed(pack: Pack, findings: Sequence[Finding]) -> dict[str, str]:
    """Return the rules that failed to run, with the reason of each, where they bear on coverage or on a problem."""
    broken = {finding.rule: finding.reason or "" for finding in findings if finding.status == "errored"}
    if not broken:
        return broken
    weighed = {weight.finding for cause in pack.causes for weight in cause.weights}
    rules = pack.by_name
    return {n: why for n, why in broken.items() if rules[n].answers or n in weighed}


def _why_not(asked: Sequence[tuple[Rule, Finding]], question: str) -> tuple[str, ...]:
    """Return, for a question that stays open, what each rule that could answer it says."""
    silent = (finding for rule, finding in asked if rule.answers == question)
    reasons = (f.reason or f"{f.rule} was evaluated, and its outcome does not answer this" for f in silent)
    return tuple(dict.fromkeys(reasons))


def _answers(view: RunView, rule: Rule, finding: Finding) -> bool:
    if finding.status not in ("fired", "clear") or rule.answers_when not in ("any", finding.status):
        return False
    needed = [quantity for need in rule.needs if isinstance(quantity := view.get(need), Series)]
    updates = min((int(np.isfinite(s.values).sum()) for s in needed), default=_longest(view))
    return updates >= LEAST_UPDATES


def _longest(view: RunView) -> int:
    return max((len(series) for series in view.run.series.values()), default=0)


def _feeds(view: RunView, quantity: str) -> bool:
    """Tell whether a setting or a facet of the run may feed a link; what nobody knows may."""
    found = view.get(quantity) if quantity != ALWAYS else None
    if found is None or not isinstance(found, Fact) or found.how == "default":
        return True
    return found.value not in (None, 0, "no")


def _broken(view: RunView) -> frozenset[str]:
    """Return the keys of metrics whose last number is none."""
    held = [series for series in view.run.series.values() if len(series)]
    return frozenset(series.raw for series in held if not np.isfinite(series.values[-1]))
