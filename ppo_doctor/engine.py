"""Observations × rules → findings; owns skipping, crashing and order, and knows no metric by name."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING

from ppo_doctor.derive import inputs, metrics_wanted, takes_a_log
from ppo_doctor.derive.foreign import never_logged, not_for
from ppo_doctor.model import Fact, Finding
from ppo_doctor.predicates import Outcome, evaluate

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Clause, Evidence, Rule, Status


#: The facts that all records of a run were computed from tensors, and that there is a configuration and no record.
FROM_TENSORS, FROM_SETTINGS = "from_tensors", "from_settings"
NO_LOG = "needs a log, and only a configuration was given"
A_LOG = "a guess from settings alone: there is a log, which tells what happened"


def run_rules(observations: Observations, rules: Iterable[Rule], *, debug: bool = False) -> tuple[Finding, ...]:
    """Return one finding per rule: numerics first, the rest in the order of their codes."""
    by_code = sorted(rules, key=attrgetter("code"))
    ordered = sorted(by_code, key=lambda rule: rule.link != "numerics")
    return tuple([_guarded(observations, rule, debug) for rule in ordered])


def _guarded(observations: Observations, rule: Rule, debug: bool) -> Finding:
    try:
        return check(observations, rule)
    except Exception as error:  # a broken rule becomes a finding of its own; it counts as skipped, never as passed
        if debug:
            raise
        return _finding(rule, "errored", reason=f"{type(error).__name__}: {error}")


def check(observations: Observations, rule: Rule) -> Finding:
    """Evaluate one rule on one run."""
    if (reason := _not_applicable(observations, rule)) is not None:
        return _skipped(rule, reason)
    get = observations.get
    missing = [need for need in rule.needs if get(need) is None]
    if missing:
        return _missing(observations, rule, tuple(missing))
    least = _least(observations, rule)
    return _conclude(rule, [_outcome(observations, clause, least) for clause in rule.when])


def _outcome(observations: Observations, clause: Clause, least: int) -> Outcome:
    quantity = observations.get(clause.quantity)
    if quantity is None:
        raise LookupError(f"{clause.quantity} vanished")
    return evaluate(clause, quantity, min_points=least)


def _least(observations: Observations, rule: Rule) -> int:
    """Return how many records a rule needs: of a dump, which holds every sample, one may be enough."""
    if rule.min_points_tensor is None or FROM_TENSORS not in observations.run.facts:
        return rule.min_points
    return rule.min_points_tensor


def _not_applicable(observations: Observations, rule: Rule) -> str | None:
    if rule.algorithms and observations.run.algorithm not in rule.algorithms:
        return f"not for {observations.run.algorithm}"
    reason = observations.kind.excludes(rule.kind) or not_for(observations, rule.needs)
    if reason is not None:
        return reason
    if rule.before_training and FROM_SETTINGS not in observations.run.facts:
        return A_LOG
    if rule.not_when_single_update:
        updates = observations.fact("updates_effective")
        single = updates is not None and updates.how != "default" and 0.0 < float(str(updates.value)) <= 1.0
        if updates is not None and single and observations.fact("apart_before_the_step") is None:
            return f"constant by construction: one optimizer step per batch ({_origin(updates)})"
    return None


def _origin(fact: Fact) -> str:
    where = f", {fact.source}" if fact.source else ""
    return f"K = {fact.value:g}, {fact.says or fact.how}{where}" if isinstance(fact.value, float) else fact.how


def _missing(observations: Observations, rule: Rule, missing: tuple[str, ...]) -> Finding:
    wanted, needs = _needs(missing, never_logged(observations))
    held = observations.held
    absent = tuple([name for name in wanted if name not in held])
    if FROM_SETTINGS in observations.run.facts and (not absent or any(map(takes_a_log, missing))):
        return _skipped(rule, NO_LOG)
    return _skipped(rule, needs if absent else _untold(missing), absent)


@cache  # two rules in three lack something in a usual log, and the runs of a sweep lack the same
def _needs(missing: tuple[str, ...], never: frozenset[str]) -> tuple[tuple[str, ...], str]:
    """Return the metrics that would make quantities computable, and what they need in words."""
    names = [need.partition(".")[2] for need in missing]
    wanted = dict.fromkeys(metric for name in names for metric in metrics_wanted(name, never))
    return tuple(wanted), f"needs {'; '.join(map(inputs, names))}"


@cache
def _untold(missing: tuple[str, ...]) -> str:
    """Return what cannot be told although all that it takes is there: too few records, say, or all of them alike."""
    names = [need.partition(".")[2] for need in missing]
    return "; ".join(f"the log does not hold enough to tell {name.replace('_', ' ')}" for name in names)


def _conclude(rule: Rule, outcomes: list[Outcome]) -> Finding:
    """Kleene's AND: one no is no; else one unknown is unknown; else yes."""
    truths = [outcome.truth for outcome in outcomes]
    if False not in truths and None in truths:
        return _finding(rule, "skipped", reason="; ".join(o.reason for o in outcomes if o.truth is None))
    told = [outcome.counted or (outcome.evidence,) for outcome in outcomes]
    evidence = tuple([entry for entries in told for entry in entries if entry])
    if False in truths:
        return _finding(rule, "clear", evidence=evidence)
    onsets = [outcome.onset for outcome in outcomes if outcome.onset is not None]
    return _finding(rule, "fired", evidence=evidence, onset=max(onsets, default=None))


@lru_cache(maxsize=2048)  # two rules in three, and the same ones in each run of a sweep
def _skipped(rule: Rule, reason: str, missing: tuple[str, ...] = ()) -> Finding:
    return _finding(rule, "skipped", reason=reason, missing=missing)


def _finding(
    rule: Rule,
    status: Status,
    *,
    evidence: tuple[Evidence, ...] = (),
    onset: int | None = None,
    reason: str | None = None,
    missing: tuple[str, ...] = (),
) -> Finding:
    return Finding(
        rule=rule.name,
        code=rule.code,
        title=rule.title if status != "clear" else rule.pass_title,
        link=rule.link,
        status=status,
        severity=rule.severity,
        evidence=evidence,
        onset_step=onset,
        reason=reason,
        missing=missing,
        proves=rule.proves,
    )
