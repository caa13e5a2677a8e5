"""Put a diagnosis together: coverage, the signal chain, the problems and the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor import __version__
from ppo_doctor.derive import Observations
from ppo_doctor.derive.domains import judged
from ppo_doctor.derive.outcome import outcome
from ppo_doctor.diagnose.chain import ALWAYS, chain
from ppo_doctor.diagnose.costs import costs
from ppo_doctor.diagnose.coverage import not_ruled_out
from ppo_doctor.diagnose.first_step import of_outcome, of_problem, of_what_stands
from ppo_doctor.diagnose.first_step import told as first_told
from ppo_doctor.diagnose.problems import in_order, problems
from ppo_doctor.diagnose.remedies import fitting
from ppo_doctor.diagnose.shown import problems_shown
from ppo_doctor.diagnose.verdict import unexplained, verdict
from ppo_doctor.engine import FROM_SETTINGS
from ppo_doctor.metrics import METRICS, loggable
from ppo_doctor.model import QUESTIONS, Coverage, Diagnosis, Fact, Series
from ppo_doctor.summary import headline, known_fact, summary

if TYPE_CHECKING:
    from ppo_doctor.model import Finding, Problem, RankedCause, Rule, Run
    from ppo_doctor.rulepack import Pack

#: A question counts as answered over at least this many records: from there on what stands still says something.
LEAST_UPDATES = 8
#: Metrics that are named of those that would answer a question.
MOST_ASKED = 3
#: Settings of a configuration alone that are told by name; a note lists all of them.
MOST_NAMES = 8


def assemble(
    observations: Observations,
    pack: Pack,
    findings: Sequence[Finding],
    suppressed: tuple[str, ...] = (),
    target: float | None = None,
) -> Diagnosis:
    """Return the diagnosis that findings add up to; `target` is the reward that the user asks for."""
    rules = pack.by_name
    possible = [cause for cause in pack.causes if not observations.kind.excludes(cause.kind)]
    alone = FROM_SETTINGS in observations.run.facts
    keys = observations.run.keys
    guessed = {key for key, use in keys.items() if use == "guessed"}
    if keys:  # several columns that are read as one by their names
        guessed |= {series.raw for series in observations.run.series.values() if series.raw not in keys}
    updates = known_fact(observations, "updates_effective")
    if updates is None or updates.how == "configured":
        guessed.add("several_updates")  # what the user believes, or what movement tells, is to be shown
    if (spent := known_fact(observations, "rate_spent_at")) is not None and spent.how == "configured" and spent.source:
        guessed.add(spent.source.key or "")  # so is a decay that no logged rate shows
    became = outcome(observations.run, target=target)
    found = problems(possible, findings, guessed=guessed, planned=alone, learned=became.clear)
    odd = unexplained(findings, pack, found)
    if odd is not None and all(group.leader.benign for group in found):
        found = problems(possible, findings, guessed=guessed, planned=alone, learned=became.clear, odd=odd.rule)
    coverage = replace(cover(observations, rules, findings), failed=_failed(pack, findings))
    feeds = partial(_feeds, observations)
    links = chain(pack.chain, findings, feeds=feeds, broken=_broken(observations), steps=observations.run.steps)
    run, samples = observations.run, observations.kind.samples.value
    told = tuple(
        replace(problem, next_step=of_problem(problem, became, rules, run, samples))
        for problem in problems_shown(found, findings, became, links)
    )
    said, because = verdict(told, became, coverage, links, observations.run.steps)
    if alone and said not in ("unhealthy", "warning"):
        said, because = "inconclusive", _of_settings(observations, findings)
    if said == "healthy" and (short := _ends_early(run)):
        said, because = "inconclusive", short
    shown = (cause for cause in _placed(in_order(found), told) if cause.benign or said != "healthy")
    causes = tuple(replace(cause, remedies=fitting(cause.remedies, observations.run, samples)) for cause in shown)
    step = first_told(told, causes) or of_what_stands(links, findings, rules, coverage)
    step = step or of_outcome(became, coverage.would_answer, run, samples, alone=alone)
    return Diagnosis(
        tool_version=__version__,
        run=summary(observations, pack),
        verdict=said,
        verdict_because=because,
        headline=headline(observations.run, became, because),
        causes=causes,
        findings=tuple(findings),
        chain=links,
        coverage=coverage,
        outcome=became,
        problems=told,
        first_step="" if said == "healthy" else step,
        costs=costs(findings, observations.run),
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


def _of_settings(observations: Observations, findings: Sequence[Finding]) -> str:
    """Return what is said of a configuration that no cause is named of."""
    noted = any(finding.status == "fired" and finding.severity != "info" for finding in findings)
    names = [setting.key.rpartition(".")[2] for setting in judged(observations)]
    listed = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    sound = (
        f"what it sets is possible, of use and not unusual ({listed})" if names else "none of its settings is judged"
    )
    return f"{'what the configuration shows names no cause' if noted else sound}; whether it trains takes a log"


def cover(observations: Observations, rules: Mapping[str, Rule], findings: Sequence[Finding]) -> Coverage:
    """Return which of the three questions were answered, and the count of rules by status."""
    asked = [(rule, finding) for finding in findings if (rule := rules[finding.rule]).answers]
    answered = {rule.answers for rule, finding in asked if _answers(observations, rule, finding)}
    count = Counter([finding.status for finding in findings])
    missing = dict.fromkeys(name for finding in findings for name in finding.missing)
    silent = {question: _why_not(asked, question) for question in QUESTIONS if question not in answered}
    hidden = known_fact(observations, "passes_hidden")
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


def _answers(observations: Observations, rule: Rule, finding: Finding) -> bool:
    if finding.status not in ("fired", "clear") or rule.answers_when not in ("any", finding.status):
        return False
    needed = [quantity for need in rule.needs if isinstance(quantity := observations.get(need), Series)]
    updates = min((int(np.isfinite(s.values).sum()) for s in needed), default=_longest(observations))
    return updates >= LEAST_UPDATES


def _longest(observations: Observations) -> int:
    return max((len(series) for series in observations.run.series.values()), default=0)


def _feeds(observations: Observations, quantity: str) -> bool:
    """Tell whether a setting or a facet of the run may feed a link; what nobody knows may."""
    found = observations.get(quantity) if quantity != ALWAYS else None
    if found is None or not isinstance(found, Fact) or found.how == "default":
        return True
    return found.value not in (None, 0, "no")


def _broken(observations: Observations) -> frozenset[str]:
    """Return the keys of metrics whose last number is none."""
    held = [series for series in observations.run.series.values() if len(series)]
    return frozenset(series.raw for series in held if not np.isfinite(series.values[-1]))
