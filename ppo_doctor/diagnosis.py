"""Put a diagnosis together: coverage, the signal chain, and the verdict over all complaints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor import __version__
from ppo_doctor.companions import in_order
from ppo_doctor.cutting import since, until
from ppo_doctor.derive import Observations
from ppo_doctor.derive.domains import judged
from ppo_doctor.derive.leaps import leap_step
from ppo_doctor.derive.onset import collapse_step
from ppo_doctor.derive.rewards import PEAK_BEFORE
from ppo_doctor.earlier import break_step, joined, numbers_broke
from ppo_doctor.engine import FROM_SETTINGS, run_rules
from ppo_doctor.evidence import says
from ppo_doctor.metrics import METRICS, loggable
from ppo_doctor.model import (
    ASKED,
    CHAIN,
    QUESTIONS,
    SIDE_LINKS,
    ChainLink,
    Coverage,
    Diagnosis,
    Fact,
    OpenComplaint,
    RunSummary,
    Series,
    Severity,
    UpdatesPerBatch,
)
from ppo_doctor.not_ruled_out import not_ruled_out
from ppo_doctor.ranking import explain

if TYPE_CHECKING:
    from ppo_doctor.complaints import Explanation
    from ppo_doctor.model import Finding, Rule, Verdict
    from ppo_doctor.rulepack import Pack

#: A question counts as answered over at least this many updates: checks for faults of each kind run from there on.
LEAST_UPDATES = 12
#: The part of a run after the onset of a complaint is judged by itself from this many records on.
LEAST_AFTER = 5
#: A complaint that begins within this share of the run is judged by the whole of it.
EARLIER_SHARE = 0.1
#: The part of a run before it broke is judged by itself from this many records on, and this share of its steps.
LEAST_BEFORE, BEFORE_SHARE = 15, 0.2
#: Settings of a configuration alone that are told by name; a note lists all of them.
MOST_NAMES = 8
WORST_VERDICT: tuple[Verdict, ...] = ("unhealthy", "warning", "inconclusive", "healthy")


def assemble(
    observations: Observations, pack: Pack, findings: Sequence[Finding], suppressed: tuple[str, ...] = ()
) -> Diagnosis:
    """Return the diagnosis that findings add up to."""
    rules = pack.by_name
    explanations = explain(pack, findings, partial(_since, observations, pack, findings))
    explanations = _with_earlier(explanations, observations, pack, findings)
    said = [*findings, *_later(explanations)]
    coverage = replace(cover(observations, rules, findings), failed=_failed(pack, said))
    alone = FROM_SETTINGS in observations.run.facts
    verdict, because = _verdict(explanations, coverage, pack, findings)
    if alone and verdict not in ("unhealthy", "warning"):
        verdict, because = "inconclusive", _of_settings(observations, findings)
    lost = next((note for note in observations.run.notes if note.kind == "lost"), None)
    if lost is not None and verdict == "healthy":
        verdict, because = "inconclusive", f"nothing was found in what could be read, and that is not all: {lost}"
    causes = in_order(explanations, findings, pack, logged=not alone)
    return Diagnosis(
        tool_version=__version__,
        run=_summary(observations, pack),
        verdict=verdict,
        verdict_because=because,
        causes=causes,
        findings=tuple(findings),
        chain=_chain(rules, said),
        coverage=coverage,
        complaints=tuple(_complaint(explanation, pack) for explanation in explanations),
        not_ruled_out=not_ruled_out(pack, findings, [cause.id for cause in causes], observations.fact("completions")),
        suppressed=suppressed,
        packs=pack.further,
    )


def _complaint(explanation: Explanation, pack: Pack) -> OpenComplaint:
    return OpenComplaint(
        id=explanation.complaint,
        title=_title(explanation, pack),
        openers=tuple(opener.rule for opener in explanation.openers),
        leader=explanation.leader,
        verdict=explanation.verdict,
        folded_into=explanation.folded_into,
        since_step=explanation.since_step,
        until_step=explanation.until_step,
        scores=explanation.scores,
    )


def _since(observations: Observations, pack: Pack, findings: Sequence[Finding], step: int) -> Sequence[Finding] | None:
    """Return what the rules say of the run from a step on; None where that is nearly all of it, or too little."""
    axis = max((s.axis for s in observations.run.series.values()), key=len)
    before = int(np.searchsorted(axis.steps, step))
    if before < EARLIER_SHARE * len(axis) or len(axis) - before < LEAST_AFTER:
        return None
    judged = {finding.rule for finding in findings}
    later, peak = since(observations.run, step), observations.fact("reward_peak")
    if peak is not None:
        later = replace(later, facts={**later.facts, PEAK_BEFORE: replace(peak, name=PEAK_BEFORE)})
    return run_rules(Observations(later), [rule for rule in pack.rules if rule.name in judged])


def _with_earlier(
    explanations: tuple[Explanation, ...], observations: Observations, pack: Pack, findings: Sequence[Finding]
) -> tuple[Explanation, ...]:
    """Return the explanations, with what was wrong already before the run broke, where it did and enough was logged.

    What broke first is asked first; where numbers stopped being finite later, what was wrong until then as well.
    """
    step, broke = break_step(explanations, _collapse(observations, findings)), numbers_broke(explanations)
    for at in dict.fromkeys(at for at in (step, broke) if at is not None):
        explanations = _with_the_part_before(explanations, at, observations, pack, findings)
    return explanations


def _with_the_part_before(
    explanations: tuple[Explanation, ...],
    step: int,
    observations: Observations,
    pack: Pack,
    findings: Sequence[Finding],
) -> tuple[Explanation, ...]:
    """Return the explanations, with what was wrong already before a step where enough was logged before it."""
    steps = max((s.axis for s in observations.run.series.values()), key=len).steps
    share = (step - steps[0]) / max(1, steps[-1] - steps[0])  # of the steps: short episodes are many records
    if np.searchsorted(steps, step) < LEAST_BEFORE or share < BEFORE_SHARE:
        return explanations
    judged = {finding.rule for finding in findings}
    part = Observations(until(observations.run, step))
    earlier = explain(pack, run_rules(part, [rule for rule in pack.rules if rule.name in judged]))
    return joined(explanations, earlier, step, pack)


def _collapse(observations: Observations, findings: Sequence[Finding]) -> int | None:
    """Return the first step at which the reward or a part of it was lost for good, or the learning rate leapt, or None.

    Without one of its parts a reward asks for something else. One that is lost because it stops is lost where it stops,
    however late a mean over episodes shows that.
    """
    fired = {finding.rule: finding for finding in findings if finding.status == "fired"}
    lost = collapse_step(observations) if "reward-collapses-late" in fired else None
    stopped = fired["reward-stops-at-once"].onset_step if lost is not None and "reward-stops-at-once" in fired else None
    leapt = leap_step(observations) if "learning-rate-leaps" in fired else None
    part = fired["part-of-reward-stops"].onset_step if "part-of-reward-stops" in fired else None
    return min((step for step in (lost, stopped, leapt, part) if step is not None), default=None)


def _later(explanations: Sequence[Explanation]) -> list[Finding]:
    """Return what was found of the later part of the run where a complaint was judged by that part."""
    return [finding for e in explanations if e.since_step is not None for finding in e.findings.values()]


def _title(explanation: Explanation, pack: Pack) -> str:
    return next((c.title for c in pack.complaints if c.id == explanation.complaint), explanation.complaint)


def _of_settings(observations: Observations, findings: Sequence[Finding]) -> str:
    """Return what is said of a configuration that no cause is named of."""
    noted = any(finding.status == "fired" and finding.severity != "info" for finding in findings)
    names = [setting.key.rpartition(".")[2] for setting in judged(observations)]
    listed = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    sound = (
        f"what it sets is possible, of use and not unusual ({listed})" if names else "none of its settings is judged"
    )
    return f"{'what the configuration shows names no cause' if noted else sound}; whether it trains takes a log"


def _verdict(
    explanations: Sequence[Explanation], coverage: Coverage, pack: Pack, findings: Sequence[Finding]
) -> tuple[Verdict, str]:
    """Return the verdict, and why."""
    worst = min(explanations, key=lambda e: WORST_VERDICT.index(e.verdict), default=None)
    if worst is not None and worst.verdict in ("unhealthy", "warning"):
        return worst.verdict, _named(worst, pack)
    if worst is not None and worst.verdict == "inconclusive":
        return "inconclusive", f"the log cannot tell a fault from a harmless explanation: {_named(worst, pack)}"
    if coverage.failed:
        return "inconclusive", f"nothing found, but {' and '.join(coverage.failed)} failed to run"
    if not coverage.complete:
        open_questions = [ASKED[q] for q in QUESTIONS if not getattr(coverage, q)]
        return "inconclusive", f"nothing found, but the log does not show {', nor '.join(open_questions)}"
    benign = [e for e in explanations if e.causes]
    return "healthy", _named(benign[0], pack) if benign else _nothing(findings)


def _nothing(findings: Sequence[Finding]) -> str:
    """Say that no cause was found, and the worst of what was seen without one, from medium severity on."""
    seen = [f for f in findings if f.status == "fired" and f.severity.at_least(Severity.MEDIUM)]
    if not seen:
        return "every question was asked and nothing was found"
    worst = min(seen, key=lambda finding: finding.severity.rank)
    return f"no fault was found that explains what was seen: {worst.title}"


def _named(explanation: Explanation, pack: Pack) -> str:
    if explanation.leader == "unknown":
        return f"{_title(explanation, pack)}, and no cause that we know explains it"
    leaders = [cause.title for cause in explanation.causes if cause.leader]
    return "; or: ".join(leaders) if leaders else explanation.complaint


def cover(observations: Observations, rules: Mapping[str, Rule], findings: Sequence[Finding]) -> Coverage:
    """Return which of the three questions were answered, and the count of rules by status."""
    asked = [(rule, finding) for finding in findings if (rule := rules[finding.rule]).answers]
    answered = {rule.answers for rule, finding in asked if _answers(observations, rule, finding)}
    count = Counter([finding.status for finding in findings])
    missing = dict.fromkeys(chain.from_iterable([finding.missing for finding in findings]))
    silent = {question: _why_not(asked, question) for question in QUESTIONS if question not in answered}
    hidden = _fact(observations, "passes_hidden")
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
    )


def _failed(pack: Pack, findings: Sequence[Finding]) -> dict[str, str]:
    """Return the rules that failed to run, with the reason of each, where they bear on coverage or on a problem."""
    broken = {finding.rule: finding.reason or "" for finding in findings if finding.status == "errored"}
    if not broken:
        return broken
    weighed = {weight.finding for cause in pack.causes for weight in cause.weights}
    rules = pack.by_name
    return {n: why for n, why in broken.items() if rules[n].answers or rules[n].opens or n in weighed}


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


def _chain(rules: Mapping[str, Rule], findings: Sequence[Finding]) -> tuple[ChainLink, ...]:
    states: dict[str, ChainLink] = {}
    for finding in findings:
        if finding.status not in ("fired", "clear"):
            continue
        rule = rules[finding.rule]
        state = rule.state_if_fired if finding.status == "fired" else rule.state_if_clear
        if state != "unknown" and (state == "dead" or finding.link not in states):
            states[finding.link] = ChainLink(link=finding.link, state=state, evidence=says(finding))
    known = {link: ChainLink(link=link, state="unknown") for link in CHAIN if link not in states} | states
    return tuple(known[link] for link in (*CHAIN, *SIDE_LINKS) if link in known)


def _summary(observations: Observations, pack: Pack) -> RunSummary:
    run = observations.run
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
    )


def _updates(observations: Observations) -> UpdatesPerBatch:
    configured = run_fact(observations, "updates_configured")
    observed = run_fact(observations, "updates_observed")
    effective = _fact(observations, "updates_effective")
    if effective is None or not isinstance(effective.value, int | float):
        return UpdatesPerBatch()
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


def _fact(observations: Observations, name: str) -> Fact | None:
    """Return a fact for the summary; one whose computation fails is missing here, and errored in its rules."""
    try:
        return observations.fact(name)
    except Exception:  # noqa: BLE001 - the rules that need it report the error, each by name
        return None


def run_fact(observations: Observations, name: str) -> float | None:
    """Return a fact as a number, None when it is unknown or no number."""
    fact = _fact(observations, name)
    return float(fact.value) if fact is not None and isinstance(fact.value, int | float) else None
