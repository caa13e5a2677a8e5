"""Hand-made diagnoses: one per kind of report that people will meet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ppo_doctor.model.diagnosis import (
    ChainLink,
    Coverage,
    Diagnosis,
    LedgerEntry,
    Outcome,
    Problem,
    RankedCause,
    RunSummary,
    Unjudged,
    UpdatesPerBatch,
)
from ppo_doctor.model.evidence import says
from ppo_doctor.model.rules import Evidence, Finding, Measurement, Remedy
from ppo_doctor.model.run import CodePlace, SourceRef, SourceSummary
from ppo_doctor.model.words import CHAIN, Severity

LOG = "runs/exp1/run.jsonl"
UNJUDGED = (
    Unjudged(
        id="reward-hacking",
        because="needs a judgement of the same outputs that is independent of the training reward",
    ),
    Unjudged(id="generalisation-gap", because="needs rewards on held-out prompts or environments"),
    Unjudged(id="alignment-tax", because="needs an evaluation of general ability"),
)
SINGLE_UPDATE = "constant by construction: one optimizer step per batch (K = 1, num_iterations, config.json:7)"


def counted(raw: str, op: Any, bound: float, satisfied: int, of: int, line: int, **more: Any) -> Evidence:
    return Evidence(
        metric=more.pop("metric", raw),
        raw=raw,
        statistic=more.pop("statistic", f"over {of} records"),
        observed=more.pop("observed", bound),
        op=op,
        bound=bound,
        satisfied=satisfied,
        of=of,
        steps=more.pop("steps", (line, 412)),
        source=SourceRef(path=more.pop("path", LOG), line=line, key=raw),
        **more,
    )


def finding(rule: str, code: str, title: str, link: str, status: Any = "clear", **more: Any) -> Finding:
    return Finding(
        rule=rule,
        code=code,
        title=title,
        link=link,
        status=status,
        severity=more.pop("severity", Severity.HIGH),
        **more,
    )


def entry(source: Finding, db: int) -> LedgerEntry:
    values: dict[str, Any] = {"finding": source.rule, "status": source.status, "link": source.link}
    return LedgerEntry(db=db, says=says(source), title=source.title, **values)


def outcome(what: Any, start: float, end: float, **more: Any) -> Outcome:
    """Return what became of the reward of 411 records."""
    values: dict[str, Any] = {"metric": "reward_mean", "key": "reward_mean", "records": 411, "best_step": 412}
    return Outcome(what=what, start=start, best=max(start, end), end=end, **(values | more))


def problem(found: Finding, cause: RankedCause | None, **more: Any) -> Problem:
    """Return a problem that is shown by a finding, with the cause that leads it."""
    values: dict[str, Any] = {
        "id": "p1",
        "title": found.title,
        "link": found.link,
        "state": "wrong",
        "severity": found.severity,
        "findings": (found.rule,),
        "verdict": "warning",
        "since_step": found.onset_step,
    }
    if cause is not None:
        values |= {"leader": cause.id, "causes": (cause.id,), "openers": (found.rule,)}
    return Problem(**(values | more))


def chain(**states: Any) -> tuple[ChainLink, ...]:
    links = (*CHAIN, *(name for name in states if name not in CHAIN))
    return tuple(
        ChainLink(link=link, state=states[link][0], witness=states[link][1])
        if link in states
        else ChainLink(link=link, state="unknown")
        for link in links
    )


def coverage(findings: tuple[Finding, ...], **answered: Any) -> Coverage:
    size = {s: sum(f.status == s for f in findings) for s in ("clear", "fired", "skipped", "errored")}
    missing = tuple(dict.fromkeys(name for f in findings for name in f.missing))
    answers = {"movement": True, "signal": True, "numerics": True} | answered
    failed = {f.rule: f.reason or "" for f in findings if f.status == "errored"}
    return Coverage(**answers, evaluated=size["clear"] + size["fired"], missing_metrics=missing, failed=failed, **size)


def summary(**more: Any) -> RunSummary:
    values: dict[str, Any] = {
        "id": LOG,
        "sources": (SourceSummary(path=LOG, container="jsonl", records=412, skipped=1),),
        "framework": "trl-grpo",
        "algorithm": "grpo",
        "steps": (1, 412),
        "records": 411,
        "updates_per_batch": UpdatesPerBatch(
            configured=4.0, effective=4.0, origin="config:num_iterations", how="configured"
        ),
        "config": {"num_iterations": 4, "num_generations": 8, "learning_rate": 1e-6},
        "notes": (f"{LOG}:101: truncated record skipped",),
    }
    return RunSummary(**(values | more))


def diagnosis(findings: tuple[Finding, ...], **more: Any) -> Diagnosis:
    values: dict[str, Any] = {
        "tool_version": "0.2.0",
        "run": summary(),
        "verdict": "healthy",
        "verdict_because": "The reward (reward_mean) rises: 0.1 → 0.9",
        "headline": "The reward (reward_mean) rises: 0.1 → 0.9.",
        "causes": (),
        "findings": findings,
        "chain": chain(),
        "coverage": coverage(findings),
        "outcome": outcome("learned", 0.1, 0.9),
        "not_ruled_out": UNJUDGED,
    }
    return Diagnosis(**(values | more))


ZERO = finding(
    "advantages-all-zero",
    "ADV001",
    "Every advantage is zero",
    "advantages",
    "fired",
    severity=Severity.CRITICAL,
    onset_step=12,
    evidence=(
        counted(
            "frac_reward_zero_std", ">=", 0.95, 400, 401, 12, unit="fraction", bound_source="expert: 95 of 100 groups"
        ),
    ),
)
FLAT_LOSS = finding(
    "policy-loss-exactly-zero",
    "LOS001",
    "The policy loss is exactly zero",
    "loss",
    "fired",
    onset_step=12,
    evidence=(counted("loss", "==", 0.0, 398, 401, 12),),
)
FLAT_REWARD = finding(
    "rewards-equal-in-group",
    "REW002",
    "Rewards do not differ within a group",
    "advantages",
    "fired",
    onset_step=12,
    evidence=(counted("reward_std", "<=", 1e-6, 400, 401, 12),),
)
LEARNS = finding(
    "learning-rate-zero",
    "OPT001",
    "The learning rate is above zero",
    "step",
    evidence=(counted("learning_rate", "<=", 0.0, 0, 412, 1),),
)
FINITE = finding(
    "metric-not-finite",
    "NUM001",
    "Every metric is finite",
    "numerics",
    evidence=(Evidence(metric="non_finite", raw="non_finite", statistic="count", observed=0.0, op=">", bound=0.0),),
)
FAR = finding(
    "policy-moves-far",
    "POL009",
    "The policy moves far in one update",
    "policy",
    "fired",
    severity=Severity.MEDIUM,
    onset_step=213,
    evidence=(counted("kl", ">", 0.1, 180, 412, 213, unit="nats"),),
)
MOVES = finding(
    "policy-does-not-move",
    "POL001",
    "The policy moves",
    "policy",
    evidence=(counted("kl", "<=", 1e-8, 2, 412, 1, unit="nats"),),
)
NO_RATIO = finding(
    "ratio-identically-one",
    "RAT001",
    "The ratio is one throughout",
    "ratio",
    "skipped",
    reason="needs ratio_std, ratio_max or clip_fraction",
    missing=("ratio_std", "ratio_max", "clip_fraction"),
)
NO_CLIP = finding(
    "clip-saturated",
    "CLP001",
    "Most samples are clipped",
    "ratio",
    "skipped",
    reason="needs clip_fraction",
    missing=("clip_fraction",),
)
NO_NORM = finding(
    "weights-do-not-move",
    "GRA001",
    "The weights do not move",
    "weights",
    "skipped",
    reason="needs update_norm",
    missing=("update_norm",),
)
BROKEN = finding(
    "kl-runaway",
    "KL001",
    "Policy KL grew past its bound",
    "policy",
    "errored",
    reason="ZeroDivisionError: division by zero",
)
SETTLE = Measurement(log="the rewards of one group", because="they tell an equal reward from a lost one")

FLAT_GROUPS = RankedCause(
    id="adv-exactly-zero",
    rank=1,
    title="Advantages are exactly zero: rewards are equal within every group",
    family="no-signal",
    severity=Severity.CRITICAL,
    benign=False,
    confidence="likely",
    score_db=30,
    prior_db=-10,
    problem="p1",
    role="mechanism",
    says="nothing tells good samples from bad ones, so the policy gradient is zero and the run learns nothing",
    level_with=("reward-constant",),
    onset_step=12,
    ledger=(entry(ZERO, 18), entry(FLAT_REWARD, 9), entry(FLAT_LOSS, 13)),
    remedies=(
        Remedy(do="raise the number of generations per prompt", key="num_generations", now=8, then=16),
        Remedy(do="print the rewards of one group and see whether they differ at all"),
        Remedy(do="drop prompts that are always right or always wrong"),
    ),
    would_change_my_mind=(
        SETTLE,
        Measurement(log="ratio_std", because="a spread would show that the policy moves all the same"),
    ),
    leader=True,
)
CONSTANT = replace(
    FLAT_GROUPS,
    id="reward-constant",
    rank=2,
    title="The reward function returns one value for everything",
    score_db=19,
    prior_db=-15,
    level_with=("adv-exactly-zero",),
    says="the reward does not depend on the output",
    ledger=(entry(ZERO, 18), entry(FLAT_LOSS, 13), entry(MOVES, -4), entry(LEARNS, 7)),
    remedies=(Remedy(do="call the reward function by hand on one good and one bad output"),),
)
RIVAL = replace(
    FLAT_GROUPS,
    id="reward-function-crashes",
    rank=3,
    title="The reward function fails and a default is used",
    confidence="suspected",
    severity=Severity.HIGH,
    score_db=4,
    prior_db=-22,
    level_with=(),
    says="",
    ledger=(entry(ZERO, 18), entry(FLAT_LOSS, 13), entry(MOVES, -5)),
    remedies=(Remedy(do="look for exceptions of the reward function in the console output"),),
    would_change_my_mind=(),
    leader=False,
)
NOTHING_TO_LEARN = problem(
    ZERO,
    FLAT_GROUPS,
    state="dead",
    complaint="no-signal",
    causes=(FLAT_GROUPS.id, CONSTANT.id, RIVAL.id),
    openers=(ZERO.rule, FLAT_LOSS.rule, FLAT_REWARD.rule),
    findings=(ZERO.rule, FLAT_LOSS.rule, FLAT_REWARD.rule),
    verdict="unhealthy",
    follows=("loss",),
)
SINGLE = RankedCause(
    id="benign-single-update",
    rank=1,
    title="One optimizer step per rollout batch: the ratio is 1 by construction",
    family="benign",
    severity=Severity.INFO,
    benign=True,
    confidence="established",
    score_db=40,
    prior_db=-10,
    problem="",
    role="context",
    says="with K = 1 the ratio is 1 and the clip idle as a theorem; this is the plain policy gradient, and it is sound",
    ledger=(
        LedgerEntry(
            finding="single-update-per-batch",
            status="fired",
            db=50,
            link="configuration",
            title="One optimizer step per rollout batch",
            says="updates_known 1 is 1 [configured] (runs/exp1/config.json:7)",
        ),
    ),
    remedies=(Remedy(do="nothing has to change", framework=None),),
    leader=True,
)


def healthy() -> Diagnosis:
    findings = (FINITE, MOVES, LEARNS, NO_RATIO)
    states = chain(
        rewards=("alive", "reward_std is above 0"),
        advantages=("alive", "x"),
        step=("alive", "x"),
        policy=("alive", says(MOVES)),
        numerics=("alive", says(FINITE)),
    )
    return diagnosis(findings, chain=states, run=summary(notes=()))


def benign() -> Diagnosis:
    skipped = tuple(replace(f, reason=SINGLE_UPDATE, missing=()) for f in (NO_RATIO, NO_CLIP))
    k = UpdatesPerBatch(configured=1.0, effective=1.0, origin="config:num_iterations", how="configured")
    return diagnosis(
        (FINITE, MOVES, LEARNS, *skipped),
        causes=(SINGLE,),
        run=summary(updates_per_batch=k, config={"num_iterations": 1}),
    )


def unhealthy() -> Diagnosis:
    findings = (FINITE, ZERO, FLAT_REWARD, LEARNS, FLAT_LOSS, MOVES, NO_RATIO, NO_CLIP, NO_NORM)
    states = chain(
        rewards=("alive", "reward_mean differs between records"),
        advantages=("dead", says(ZERO)),
        loss=("dead", says(FLAT_LOSS)),
        step=("alive", says(LEARNS)),
        policy=("alive", says(MOVES)),
        numerics=("alive", says(FINITE)),
    )
    return diagnosis(
        findings,
        verdict="unhealthy",
        verdict_because=ZERO.title,
        causes=(FLAT_GROUPS, CONSTANT, RIVAL),
        problems=(NOTHING_TO_LEARN,),
        outcome=outcome("flat", 0.5, 0.5),
        headline="The reward (reward_mean) does not rise: 0.5 throughout; every advantage is zero.",
        chain=states,
    )


CODE = CodePlace(file="train.py", line=205, function="update", text="loss = -torch.min(a, b).mean()")


SET = CodePlace(file="conf.py", line=26, text="EPS = 2e-6", role="set")
CALLED = CodePlace(file="train.py", line=231, function="main", text="self.sync()", role="called")
CHANGED = CodePlace(file="train.py", line=88, function="anneal", text="eps *= decay", role="changed")
#: a line of code with three others
TOGETHER = replace(CODE, role="used", also=(SET, CALLED, CHANGED))


def observed(code: CodePlace = CODE) -> Diagnosis:
    """Return the diagnosis of an observed script: the finding of its problem is about a line of code."""
    sick = unhealthy()
    return replace(sick, findings=tuple(replace(f, place=code) if f.rule == ZERO.rule else f for f in sick.findings))


def warning() -> Diagnosis:
    cause = replace(
        FLAT_GROUPS,
        id="lr-too-high",
        title="The learning rate is too high",
        says="every update takes the policy farther than its surrogate can see",
        severity=Severity.MEDIUM,
        confidence="suspected",
        role="mechanism",
        level_with=(),
        onset_step=213,
        ledger=(entry(FAR, 11), entry(FINITE, -3)),
        remedies=(Remedy(do="lower the learning rate by 3×", key="actor.optim.lr"),),
        would_change_my_mind=(),
        score_db=-2,
    )
    observed = UpdatesPerBatch(
        configured=4.0, observed=3.0, effective=3.0, origin="log:optimizer_steps", how="observed"
    )
    return diagnosis(
        (FINITE, MOVES, FAR),
        verdict="warning",
        verdict_because=FAR.title,
        problems=(problem(FAR, cause, complaint="steps-too-large"),),
        causes=(cause, replace(SINGLE, rank=2, confidence="suspected", leader=False)),
        run=summary(updates_per_batch=observed),
        suppressed=("kl-runaway",),
    )


def inconclusive() -> Diagnosis:
    findings = (FINITE, NO_RATIO, NO_CLIP, NO_NORM)
    return diagnosis(
        findings,
        verdict="inconclusive",
        verdict_because="nothing found, but the log does not show whether the policy moves",
        left_open=True,
        coverage=coverage(
            findings,
            movement=False,
            signal=False,
            unanswered={"movement": (NO_RATIO.reason or "", NO_CLIP.reason or ""), "signal": ("needs a reward",)},
            would_answer={"movement": ("ratio_std", "ratio_max", "clip_fraction")},
        ),
        outcome=Outcome(what="not_logged"),
        first_step="Log the mean reward of the completions as reward_mean.",
        run=summary(
            updates_per_batch=UpdatesPerBatch(),
            framework="canonical",
            config={},
            notes=tuple(f"{LOG}:{i}: record without a step" for i in range(3, 11)),
        ),
    )


def errored() -> Diagnosis:
    return diagnosis(
        (FINITE, MOVES, LEARNS, BROKEN, NO_RATIO),
        verdict="inconclusive",
        verdict_because=f"nothing found, but {BROKEN.rule} failed to run",
        run=summary(
            sources=(
                SourceSummary(path=LOG, container="jsonl", records=412, skipped=1),
                SourceSummary(path="runs/exp1/dump_000100.npz", container="npz", records=1, again=True),
            )
        ),
    )


#: ANSI colours, an OSC 8 link, a bell, C1 CSI, bidi override and isolate, zero width, tag, a lone surrogate of a path.
ATTACK = (
    "\x1b[31mred\x1b]8;;http://e.vil\x07 \x9b2J [bold red]x[/] \u202etxt\u2066 a\u200bb\ufeff \U000e0041 \udcff\r\n\x7f"
)
ZALGO = "z" + "\u0301" * 200
LONG = "k" * 10_000


def hostile() -> Diagnosis:
    """Return a diagnosis in which every string that comes from outside attacks the terminal."""

    def bad(name: str) -> str:
        return f"{name} {ATTACK}{ZALGO}{LONG}"

    evidence = replace(ZERO.evidence[0], raw=bad("raw"), metric=bad("metric"), observed=math.nan)
    evil = replace(evidence, source=SourceRef(path=bad("path"), line=3, key=bad("key")), unit=bad("unit"))
    fired = replace(ZERO, evidence=(evil,), title=bad("title"))
    skipped = replace(NO_RATIO, reason=bad("reason"), missing=(bad("missing"),))
    broken = replace(BROKEN, reason=bad("crash"), rule=bad("rule"), code=bad("code"))
    cause = replace(
        FLAT_GROUPS,
        title=bad("title"),
        says=bad("says"),
        level_with=(bad("level"),),
        ledger=(replace(entry(ZERO, 18), says=bad("says")),),
        remedies=(Remedy(do=bad("do"), framework=bad("framework"), key=bad("key"), now=bad("now"), then=bad("then")),),
        would_change_my_mind=(Measurement(log=bad("log"), because=bad("because")),),
    )
    run = RunSummary(
        id=bad("id"),
        sources=(SourceSummary(path=bad("path"), container=bad("container"), records=5),),
        framework=bad("framework"),
        algorithm=bad("algorithm"),
        steps=(0, 4),
        records=5,
        updates_per_batch=UpdatesPerBatch(effective=math.inf, origin=bad("config:origin"), how="configured"),
        config={bad("key"): bad("value"), "nan": math.nan, "huge": 10**40},
        notes=(bad("note"),),
    )
    return diagnosis(
        (fired, skipped, broken, replace(fired, rule="other")),
        run=run,
        verdict="unhealthy",
        verdict_because=bad("because"),
        causes=(cause,),
        problems=(replace(NOTHING_TO_LEARN, title=bad("title"), findings=(ZERO.rule,)),),
        outcome=outcome("flat", 0.5, 0.5, key=bad("key"), evaluation=outcome("flat", 0.5, 0.5, key=bad("key"))),
        chain=chain(advantages=("dead", bad("evidence"))),
        not_ruled_out=(Unjudged(id=bad("id"), because=bad("because")),),
        suppressed=(bad("rule"),),
        coverage=coverage((fired, skipped, broken), signal=False),
    )


CASES: Mapping[str, Diagnosis] = {
    "healthy": healthy(),
    "benign": benign(),
    "unhealthy": unhealthy(),
    "observed": observed(),
    "warning": warning(),
    "inconclusive": inconclusive(),
    "errored": errored(),
    "hostile": hostile(),
}
