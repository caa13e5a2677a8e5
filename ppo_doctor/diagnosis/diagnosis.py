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
from ppo_doctor.checks.engine import FROM_SETTINGS, is_observed
from ppo_doctor.checks.outcome import outcome
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.diagnosis.causes import cause_groups, ranked_causes, unexplained
from ppo_doctor.diagnosis.chain import ALWAYS, chain
from ppo_doctor.diagnosis.first_step import first_step, remedies_for, step_of_problem
from ppo_doctor.diagnosis.going_back import checkpoint_before
from ppo_doctor.diagnosis.problems import costs, problems, verdict
from ppo_doctor.model.arrays import finite_of
from ppo_doctor.model.diagnosis import Coverage, Diagnosis, RunSummary, Unjudged, UpdatesPerBatch
from ppo_doctor.model.evidence import UNREWARDED, became, number
from ppo_doctor.model.metrics import METRICS, OBSERVED, loggable
from ppo_doctor.model.run import Fact, Series
from ppo_doctor.model.words import OUTCOMES, QUESTIONS

if TYPE_CHECKING:
    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.model.diagnosis import Outcome, Problem, RankedCause
    from ppo_doctor.model.rules import Cause, Finding, Rule
    from ppo_doctor.model.run import Run

#: A check that weighs at least this for a cause, or as much against it, can show the cause.
LOOKS_DB = 6
#: A check answers a question of the coverage over at least this many records of a log; one of a running script is
#: enough.
LEAST_UPDATES = 8
#: Metrics that are named of those that would answer a question.
MOST_ASKED = 3
#: Settings of a configuration without a log that the verdict names; a note lists all of them.
MOST_NAMES = 8


def _summary(view: RunView, pack: Pack) -> RunSummary:
    """Return what was read of a run: its files, settings, notes and optimizer steps per batch."""
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
        observed=_observed(run),
    )


def _observed(run: Run) -> int:
    """Return the number of updates that `ppo-doctor run` observed."""
    return len({place for name in OBSERVED & run.series.keys() for place in run.series[name].axis.places.tolist()})


def _headline(run: Run, outcome: Outcome, because: str) -> str:
    """Return the course of reward and entropy, and the reason of the verdict unless it is that course."""
    if because.endswith(UNREWARDED):
        return f"{because[:1].upper()}{because[1:]}."
    reward = courses = became(outcome)
    series = run.outcome(OUTCOMES["entropy"])
    entropy = finite_of(series.values) if series is not None else np.empty(0)
    if series is not None and len(entropy):  # it ends as the last record does, even with NaN
        courses += f"; entropy {number(float(entropy[0]))} → {number(float(series.values[-1]))}"
    return f"{courses}." if because == reward else f"{courses}. {because[:1].upper()}{because[1:]}."


def _updates(view: RunView) -> UpdatesPerBatch:
    configured = _number(view, "updates_configured")
    observed = _number(view, "updates_observed")
    effective = _known_fact(view, "updates_effective")
    if effective is None or not isinstance(effective.value, int | float):
        asked = _known_fact(view, "updates_asked")
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


def _known_fact(view: RunView, name: str) -> Fact | None:
    """Return a fact, or None if computing it fails: the rules that need it report the error."""
    try:
        return view.fact(name)
    except Exception:  # noqa: BLE001 - the rules report it
        return None


def _number(view: RunView, name: str) -> float | None:
    fact = _known_fact(view, name)
    return fact.number if fact is not None else None


def _not_ruled_out(
    pack: Pack, causes: Sequence[Cause], findings: Iterable[Finding], named: Sequence[str]
) -> tuple[Unjudged, ...]:
    """Return the faults that this input gives no evidence for or against, each with what is missing.

    `causes` are those that such a run can have, `named` those that are reported.
    """
    by_rule = {finding.rule: finding for finding in findings}
    impossible = {cause.id for cause in pack.causes} - {cause.id for cause in causes}
    never = [unjudged for unjudged in pack.unjudged if unjudged.id not in impossible.union(named)]
    listed = {*named, *(unjudged.id for unjudged in pack.unjudged)}
    faults = [cause for cause in causes if not cause.benign and cause.id not in listed]
    unseen = [_unjudged(cause.id, why) for cause in faults if (why := _why_unseen(cause, by_rule)) is not None]
    return (*unseen, *never)


def _why_unseen(cause: Cause, findings: Mapping[str, Finding]) -> str | None:
    """Return why no check could show a cause; None if one was answered, or if none applies to the run."""
    showing = [weight.finding for weight in cause.weights if weight.fired >= LOOKS_DB]
    checks = [findings[name] for name in showing if name in findings]
    if any(finding.status in ("fired", "clear") for finding in checks):
        return None
    lacking = next((finding for finding in checks if finding.missing or finding.applies), None)
    return lacking.reason if lacking else None


@lru_cache(maxsize=1024)  # the runs of a sweep lack the same
def _unjudged(cause: str, because: str) -> Unjudged:
    return Unjudged(id=cause, because=because, a_fuller_log_could=True)


def assemble(
    view: RunView,
    pack: Pack,
    findings: Sequence[Finding],
    suppressed: tuple[str, ...] = (),
    target: float | None = None,
) -> Diagnosis:
    """Return the diagnosis of a run from the findings of its checks; `target` is the reward that the user asks for."""
    run, rules, samples = view.run, pack.by_name, view.kind.samples.value
    possible = [cause for cause in pack.causes if not view.kind.excludes(cause.kind)]
    alone = FROM_SETTINGS in run.facts
    reward = outcome(run, target=target)
    learned = reward.clear and not _weights_stand_still(rules, findings)
    grouped = partial(cause_groups, possible, findings, guessed=_unproven_keys(view), planned=alone, learned=learned)
    groups = grouped()
    odd = unexplained(findings, pack, groups)
    if odd is not None and all(group.leader.benign for group in groups):
        groups = grouped(odd=odd.rule)
    coverage = replace(
        _cover(view, rules, findings),
        failed=_failed(pack, findings),
        left_to_run=len(rules) - len(findings) - len(suppressed),
    )
    links = chain(pack.chain, findings, feeds=partial(_feeds, view), broken=_broken(view), steps=run.steps)
    shown = tuple(
        replace(problem, next_step=step_of_problem(problem, reward, rules, run, samples))
        for problem in problems(groups, findings, reward, links)
    )
    word, because, left_open = verdict(shown, reward, coverage, links, run.steps, _observed(run))
    if alone and word not in ("unhealthy", "warning"):
        word, because, left_open = "inconclusive", _of_settings(view, findings), False
    if word == "healthy" and (short := _ends_early(run)):
        word, because = "inconclusive", short
    causes = tuple(
        replace(cause, remedies=remedies_for(cause.remedies, run, samples))
        for cause in _with_problems(ranked_causes(groups), shown)
        if cause.benign or word != "healthy"
    )
    step = "" if word == "healthy" else first_step(shown, causes, links, findings, rules, coverage, reward, view)
    return Diagnosis(
        tool_version=__version__,
        run=_summary(view, pack),
        verdict=word,
        verdict_because=because,
        headline=_headline(run, reward, because),
        causes=causes,
        findings=tuple(findings),
        chain=links,
        coverage=coverage,
        left_open=left_open,
        outcome=reward,
        problems=shown,
        first_step=step,
        costs=costs(findings, run),
        checkpoint=checkpoint_before(run, shown, reward) if word == "unhealthy" else None,
        not_ruled_out=_not_ruled_out(pack, possible, findings, [cause.id for cause in causes]),
        suppressed=suppressed,
        packs=pack.further,
    )


def _unproven_keys(view: RunView) -> set[str]:
    """Return the keys of columns and settings whose evidence cannot prove a cause."""
    run = view.run
    unproven = {key for key, use in run.keys.items() if use == "guessed"}
    if run.keys:  # several columns read as one metric by their names
        unproven |= {series.raw for series in run.series.values() if series.raw not in run.keys}
    updates = _known_fact(view, "updates_effective")
    if updates is None or updates.how == "configured":  # the trainer may not have followed the configuration
        unproven.add("several_updates")
    spent = _known_fact(view, "rate_spent_at")
    if spent is not None and spent.how == "configured" and spent.source:  # no logged rate shows the decay
        unproven.add(spent.source.key or "")
    return unproven


def _ends_early(run: Run) -> str:
    """Return why a log without findings does not show a sound run, or "" if it was read to the end of training."""
    lost = next((note for note in run.notes if note.kind == "lost"), None)
    if lost is not None:
        return f"nothing was found in what could be read, and that is not all: {lost}"
    died = next((note.text for note in run.notes if note.died), None)
    return f"nothing was found in what was logged before {died}" if died is not None else ""


def _with_problems(ordered: Sequence[RankedCause], shown: Sequence[Problem]) -> list[RankedCause]:
    """Return the causes with the ids of their problems; a fault that is in none does not lead and comes last."""
    where = {name: problem.id for problem in shown for name in problem.causes}
    placed = [replace(c, problem=where.get(c.id, "")) for c in ordered if c.benign or c.id in where]
    loose = [c for c in ordered if not c.benign and c.id not in where]
    placed += [replace(cause, problem="", leader=False, level_with=()) for cause in loose]
    return [replace(cause, rank=rank) for rank, cause in enumerate(placed, start=1)]


def _of_settings(view: RunView, findings: Sequence[Finding]) -> str:
    """Return the reason of the verdict on a configuration without a log for which no fault is reported."""
    noted = any(finding.status == "fired" and finding.severity != "info" for finding in findings)
    names = [setting.key.rpartition(".")[2] for setting in judged(view)]
    listed = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    sound = (
        f"what it sets is possible, of use and not unusual ({listed})" if names else "none of its settings is judged"
    )
    return f"{'what the configuration shows names no cause' if noted else sound}; whether it trains takes a log"


def _weights_stand_still(rules: Mapping[str, Rule], findings: Sequence[Finding]) -> bool:
    """Return whether the weights themselves show that the policy does not change, whatever its reward does."""
    fired = (rules[finding.rule] for finding in findings if finding.status == "fired")
    return any(rule.answers == "movement" and rule.proof == "tensor" for rule in fired)


def _cover(view: RunView, rules: Mapping[str, Rule], findings: Sequence[Finding]) -> Coverage:
    """Return which of the three questions were answered, and the number of rules by status."""
    asked = [(rule, finding) for finding in findings if (rule := rules[finding.rule]).answers]
    answered = {rule.answers for rule, finding in asked if _answers(view, rule, finding)}
    count = Counter([finding.status for finding in findings])
    missing = dict.fromkeys(name for finding in findings for name in finding.missing)
    unanswered = {question: _why_not(asked, question) for question in QUESTIONS if question not in answered}
    hidden = _known_fact(view, "passes_hidden")
    if hidden is not None:  # the log does not show the passes in which the policy may not move
        unanswered["movement"] = (hidden.says,)
    return Coverage(
        movement="movement" not in unanswered,
        signal="signal" not in unanswered,
        numerics="numerics" not in unanswered,
        evaluated=count["clear"] + count["fired"],
        clear=count["clear"],
        fired=count["fired"],
        skipped=count["skipped"],
        errored=count["errored"],
        missing_metrics=tuple(name for name in missing if name in METRICS and loggable(name)),
        unanswered=unanswered,
        would_answer={question: _would_answer(findings, reasons) for question, reasons in unanswered.items()},
    )


def _would_answer(findings: Sequence[Finding], reasons: Sequence[str]) -> tuple[str, ...]:
    """Return the loggable metrics whose absence is one of the reasons why a question is open."""
    named = dict.fromkeys(name for finding in findings if finding.reason in reasons for name in finding.missing)
    return tuple(name for name in named if name in METRICS and loggable(name))[:MOST_ASKED]


def _failed(pack: Pack, findings: Sequence[Finding]) -> dict[str, str]:
    """Return rule → error for rules that failed to run and bear on the coverage or on a cause."""
    errors = {finding.rule: finding.reason or "" for finding in findings if finding.status == "errored"}
    if not errors:
        return errors
    weighed = {weight.finding for cause in pack.causes for weight in cause.weights}
    return {name: error for name, error in errors.items() if pack.by_name[name].answers or name in weighed}


def _why_not(asked: Sequence[tuple[Rule, Finding]], question: str) -> tuple[str, ...]:
    """Return why each rule that could have answered an open question did not."""
    silent = (finding for rule, finding in asked if rule.answers == question)
    reasons = (f.reason or f"{f.rule} was evaluated, and its outcome does not answer this" for f in silent)
    return tuple(dict.fromkeys(reasons))


def _answers(view: RunView, rule: Rule, finding: Finding) -> bool:
    if finding.status not in ("fired", "clear") or rule.answers_when not in ("any", finding.status):
        return False
    needed = [quantity for need in rule.needs if isinstance(quantity := view.get(need), Series)]
    longest = max((len(series) for series in view.run.series.values()), default=0)
    least = 1 if is_observed(view) else LEAST_UPDATES
    return min((int(np.isfinite(s.values).sum()) for s in needed), default=longest) >= least


def _feeds(view: RunView, quantity: str) -> bool:
    """Return whether a setting or a facet of the run may feed a link; an unknown one may."""
    value = view.get(quantity) if quantity != ALWAYS else None
    return not isinstance(value, Fact) or value.how == "default" or value.value not in (None, 0, "no")


def _broken(view: RunView) -> frozenset[str]:
    """Return the keys of metrics whose last number is not finite."""
    logged = [series for series in view.run.series.values() if len(series)]
    return frozenset(series.raw for series in logged if not np.isfinite(series.values[-1]))
