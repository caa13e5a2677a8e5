"""Compare two runs or two groups of seeds: settings that differ, metrics that diverge, and possible explanations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import numpy as np

from ppo_doctor.diagnosis.divergence import is_own
from ppo_doctor.model.diagnosis import Outcome as RewardOutcome
from ppo_doctor.model.rules import Remedy
from ppo_doctor.model.words import CONFIDENCES, Severity, Verdict
from ppo_doctor.report.summary import Checks, ProblemSummary, Summary, Why, summarize

if TYPE_CHECKING:
    from ppo_doctor.diagnosis.divergence import Divergence
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.run import Run
    from ppo_doctor.model.words import ConfigValue

_T = TypeVar("_T")
#: Matches the address of an object, as in "<function f at 0x7f91778aa158>", which is not a setting.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
#: Canonical setting → the metrics on which it acts first.
ACTS_ON: Mapping[str, tuple[str, ...]] = {
    "learning_rate": ("learning_rate", "update_norm", "approx_kl", "clip_fraction", "ratio_std", "ref_kl"),
    "critic_learning_rate": ("critic_learning_rate", "value_loss", "explained_variance", "critic_grad_norm"),
    "ppo_epochs": (
        "optimizer_steps",
        "epochs_executed",
        "epochs_executed_total",
        "approx_kl",
        "clip_fraction",
        "ratio_std",
    ),
    "num_minibatches": ("optimizer_steps", "approx_kl", "clip_fraction", "ratio_std"),
    "minibatch_size": ("optimizer_steps", "approx_kl", "clip_fraction", "ratio_std", "grad_norm"),
    "updates_per_batch": ("optimizer_steps", "approx_kl", "clip_fraction", "ratio_std"),
    "clip_range": ("clip_range", "clip_fraction", "policy_loss", "approx_kl"),
    "clip_range_high": ("clip_fraction_high", "clip_fraction", "entropy"),
    "clip_range_vf": ("value_clip_fraction", "value_loss", "explained_variance"),
    "ent_coef": ("entropy_coef", "entropy", "entropy_loss"),
    "kl_coef": ("kl_coef", "ref_kl", "kl_penalty_reward", "reward_total", "loss"),
    "kl_loss_coef": ("kl_coef", "ref_kl", "loss"),
    "target_kl": ("epochs_executed", "epochs_executed_total", "optimizer_steps", "approx_kl"),
    "vf_coef": ("value_loss", "explained_variance", "loss", "grad_norm"),
    "gamma": ("returns_mean", "returns_std", "values_mean", "value_loss", "explained_variance"),
    "gae_lambda": ("advantages_raw_std", "returns_std", "value_loss", "explained_variance"),
    "normalize_advantages": ("advantages_std", "advantages_mean", "policy_loss", "approx_kl"),
    "normalize_rewards": ("reward_std", "returns_std", "value_loss"),
    "scale_rewards": ("advantages_std", "policy_loss", "grad_norm"),
    "whiten_rewards": ("advantages_std", "returns_std"),
    "max_grad_norm": ("update_norm", "grad_norm", "approx_kl"),
    "num_generations": ("frac_reward_zero_std", "reward_std", "reward_group_std", "advantages_std"),
    "temperature": ("entropy", "response_length", "rollout_kl", "reward_std"),
    "max_response_length": ("truncated_fraction", "response_length"),
    "rollout_steps": ("optimizer_steps", "epochs_executed_total", "explained_variance", "approx_kl"),
    "num_envs": ("optimizer_steps", "explained_variance", "fps"),
    "precision": ("rollout_kl", "ratio_std", "approx_kl", "loss_scale"),
}
#: The metrics of the reward, the preferred one first.
REWARDS = ("episode_return", "reward_mean", "reward_total")
#: Metric that logs the value of a setting → that setting.
LOGGED: Mapping[str, str] = {
    "learning_rate": "learning_rate",
    "critic_learning_rate": "critic_learning_rate",
    "clip_range": "clip_range",
    "entropy_coef": "ent_coef",
    "kl_coef": "kl_coef",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison: a run, several seeds of one configuration, or a JSON report without its log."""

    name: str
    config: Mapping[str, ConfigValue]
    #: key as written → canonical setting
    canonical: Mapping[str, str] = field(default_factory=dict)
    #: leading cause → the number of runs that have it
    causes: Mapping[str, int] = field(default_factory=dict)
    #: a summary per run; those of a JSON report have only the verdict and the problems
    summaries: tuple[Summary, ...] = ()
    #: empty for a JSON report
    runs: tuple[Run, ...] = ()

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Return the verdict of each run."""
        return tuple(summary.verdict for summary in self.summaries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The first, last and best value of a side's reward; medians over seeds."""

    metric: str
    first: float
    last: float
    best: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A setting that differs; the value is None on a side that does not have it."""

    key: str
    canonical: str | None
    a: ConfigValue
    b: ConfigValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A difference that may explain divergences: the metrics on which it acts, and the reason as a sentence."""

    difference: Difference
    metrics: tuple[str, ...]
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The differences of two sides."""

    a: Side
    b: Side
    differences: tuple[Difference, ...]
    #: the earliest first; None if a side has no series
    divergences: tuple[Divergence, ...] | None
    explanations: tuple[Explanation, ...]

    @property
    def outcomes(self) -> tuple[Outcome | None, Outcome | None]:
        """Return the reward of each side, by the same metric if both have one; None if a side logs no reward."""
        for metric in REWARDS:
            both = outcome(metric, self.a.runs), outcome(metric, self.b.runs)
            if all(both):
                return both
        return _first_outcome(self.a.runs), _first_outcome(self.b.runs)

    @property
    def different(self) -> bool:
        """Return whether the sides differ: in a setting, in a metric beyond its scatter, or in a leading cause."""
        return bool(self.differences or self.divergences) or set(self.a.causes) != set(self.b.causes)


def _first_outcome(runs: Sequence[Run]) -> Outcome | None:
    return next((reward for metric in REWARDS if (reward := outcome(metric, runs)) is not None), None)


def outcome(metric: str, runs: Sequence[Run]) -> Outcome | None:
    """Return the first, last and best finite value of a metric as medians over runs; None if a run has none."""
    logged = [run.series[metric].values for run in runs if metric in run.series]
    finite = [values[np.isfinite(values)] for values in logged]
    if not finite or len(finite) < len(runs) or not all(map(len, finite)):
        return None
    return Outcome(
        metric=metric,
        first=float(np.median([values[0] for values in finite])),
        last=float(np.median([values[-1] for values in finite])),
        best=float(np.median([values.max() for values in finite])),
    )


def side_of(judged: Sequence[tuple[Run, Diagnosis]]) -> Side:
    """Return the side of one run, or of several seeds of one configuration."""
    first = judged[0][0]
    leading = [c.id for _, d in judged for c in d.causes if c.leader and not c.benign]
    more = f" and {len(judged) - 1} more" if len(judged) > 1 else ""
    return Side(
        name=first.id + more,
        config=first.config_raw,
        canonical={setting.key: name for name, setting in first.config.items() if setting.how != "default"},
        causes={name: leading.count(name) for name in leading},
        summaries=tuple(summarize(diagnosis, run) for run, diagnosis in judged),
        runs=tuple(run for run, _ in judged),
    )


def side_of_report(diagnoses: Sequence[Mapping[str, Any]]) -> Side:
    """Return the side of a JSON report, which has settings and causes but no series."""
    summaries = tuple(map(_reported, diagnoses))
    leading = [problem.cause for summary in summaries for problem in summary.problems]
    run = diagnoses[0]["run"]
    return Side(
        name=run["id"],
        config=dict(run.get("config") or {}),
        causes={name: leading.count(name) for name in leading},
        summaries=summaries,
    )


def _reported(diagnosis: Mapping[str, Any]) -> Summary:
    """Return a summary with the parts of a JSON report that a comparison needs: verdict and leading causes."""
    leading = [c for c in diagnosis["causes"] if c.get("leader") and not c.get("benign")]
    return Summary(
        verdict=_one_of(get_args(Verdict), diagnosis.get("verdict"), "inconclusive"),
        outcome=RewardOutcome(what="not_logged"),
        checks=Checks(clear=0, not_run=0),
        problems=tuple(_problem(cause) for cause in leading),
    )


def _problem(cause: Mapping[str, Any]) -> ProblemSummary:
    since = cause.get("onset_step")
    title = str(cause.get("title") or cause["id"])
    confidence = _one_of(CONFIDENCES, cause.get("confidence"), "suspected")
    return ProblemSummary(
        rank=0,
        title=title,
        why=(Why(cause=cause["id"], title=title, confidence=confidence),),
        severity=Severity(cause["severity"]),
        since=since if isinstance(since, int) else None,
        do=tuple(Remedy(do=str(each.get("say", ""))) for each in cause.get("do") or () if isinstance(each, dict))[:1],
    )


def _one_of(known: Sequence[_T], value: object, default: _T) -> _T:
    return next((word for word in known if word == value), default)


def compare(a: Side, b: Side) -> Comparison:
    """Return the comparison of two sides; metrics on which a setting that differs acts diverge by a weaker test."""
    differing = differences(a, b)
    diverged: tuple[Divergence, ...] | None = None
    if a.runs and b.runs:
        from ppo_doctor.diagnosis.divergence import divergences

        diverged = divergences(a.runs, b.runs, exact=LOGGED)
        differing = (*differing, *_logged(differing, diverged))
        affected = {metric for difference in differing for metric in ACTS_ON.get(difference.canonical or "", ())}
        diverged = divergences(a.runs, b.runs, expected=affected, exact=LOGGED) if affected else diverged
    explained = explanations(differing, diverged or ())
    return Comparison(a=a, b=b, differences=differing, divergences=diverged, explanations=explained)


def _logged(known: Sequence[Difference], diverged: Sequence[Divergence]) -> list[Difference]:
    """Return the settings whose logged values diverged although the configurations do not show a difference."""
    canonical = {difference.canonical for difference in known}
    return [
        Difference(key=divergence.metric, canonical=name, a=divergence.a, b=divergence.b)
        for divergence in diverged
        if (name := LOGGED.get(divergence.metric)) is not None and name not in canonical
    ]


def differences(a: Side, b: Side) -> tuple[Difference, ...]:
    """Return the settings that differ, known ones first; seeds, names and paths of runs do not count."""
    keys = [key for key in dict.fromkeys((*a.config, *b.config)) if not (is_own(key) or _ADDRESS.search(key))]
    names = {**a.canonical, **b.canonical}
    differing = [
        Difference(key=key, canonical=_canonical(key, names), a=a.config.get(key), b=b.config.get(key))
        for key in keys
        if _unlike(a.config.get(key), b.config.get(key))
    ]
    return tuple(sorted(differing, key=lambda difference: (difference.canonical is None, difference.key)))


def _canonical(key: str, names: Mapping[str, str]) -> str | None:
    """Return the canonical name of a setting, or None; JSON reports have no such names, so known keys count as well."""
    tail = key.rpartition(".")[2]
    return names.get(key) or (tail if tail in ACTS_ON else None)


def _unlike(a: ConfigValue, b: ConfigValue) -> bool:
    """Return whether two values differ as settings: 1 equals 1.0 but not True, and addresses are ignored."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is not b
    return a != b and (not isinstance(a, str) or not isinstance(b, str) or _ADDRESS.sub("", a) != _ADDRESS.sub("", b))


def explanations(candidates: Iterable[Difference], diverged: Sequence[Divergence]) -> tuple[Explanation, ...]:
    """Return the differences that act on metrics that diverged, the one that acts on the earliest first.

    If no difference acts on them and there is only one, it may explain them nevertheless.
    """
    differing = list(candidates)
    order = {divergence.metric: place for place, divergence in enumerate(diverged)}
    ranked: list[tuple[int, int, Explanation]] = []
    for difference in differing:
        affected = tuple(m for m in order if m in ACTS_ON.get(difference.canonical or "", ()) and m != difference.key)
        if affected:
            step = diverged[order[affected[0]]].step
            says = f"it acts on {', '.join(affected[:4])}, and {affected[0]} parts from step {step}"
            explanation = Explanation(difference=difference, metrics=affected, says=says)
            ranked.append((order[affected[0]], -len(affected), explanation))
    if not ranked and len(differing) == 1 and diverged:
        only = Explanation(difference=differing[0], metrics=(), says="it is the only setting that differs")
        ranked.append((0, 0, only))
    return tuple(entry for _, _, entry in sorted(ranked, key=lambda row: row[:2]))
