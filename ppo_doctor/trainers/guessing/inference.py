"""Infer what the columns of an unknown script mean, if together they are the metrics of a policy's training."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import median
from ppo_doctor.trainers.guessing import value_forms
from ppo_doctor.trainers.guessing.abbreviations import Reading, of_other_tasks, of_others, readings
from ppo_doctor.trainers.guessing.column_names import (
    FRACTIONS,
    LOGGED,
    ColumnName,
    factor_of,
    in_plain_units,
    is_outside,
    name_weight,
    names_metric,
    parse_column_name,
    reading_of,
    suggests,
)
from ppo_doctor.trainers.guessing.hints import MARKED, OF_NO_METRIC
from ppo_doctor.trainers.guessing.leftovers import (
    EARNINGS,
    MOVEMENTS,
    return_left_over,
    run_counters,
    unfilled_columns,
    zero_columns,
)
from ppo_doctor.trainers.guessing.matching import Candidates, best_assignment, looks_like_ppo, solved
from ppo_doctor.trainers.guessing.relations import related
from ppo_doctor.trainers.guessing.value_forms import Numbers, counts_up, described, numbers
from ppo_doctor.trainers.guessing.weights import (
    COMMON,
    CONVERTED,
    DAMAGED,
    EARNED,
    ENOUGH_METRICS,
    ENOUGH_NAMED,
    ENOUGH_NAMED_WITH_RETURN,
    ENOUGH_PLAIN,
    FIRST,
    LARGE_VALUES,
    LEAST_IF_NAMED,
    LEAST_RECORDS,
    MANY_SUGGESTED,
    MOST_COLUMNS,
    NAMED_SHARE,
    OPEN,
    OTHER_KIND,
    PAIRED,
    PLAIN_COST,
    RAREST,
    SPREAD_BESIDE,
    UNNAMED,
)
from ppo_doctor.trainers.units import FAR, THOUSANDTH

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray

#: Losses that scripts name alike.
_LOSSES = ("policy_loss", "value_loss")
#: Metrics of what changes a policy.
_TRAINING = frozenset(
    {"policy_loss", "loss", "value_loss", "explained_variance", "grad_norm", "learning_rate", "optimizer_steps"}
)
#: Metrics that only a policy's update by ratios has.
_OF_UPDATES = frozenset({"clip_fraction", "approx_kl", "ratio_abs_dev", "ratio_mean"})
#: Metrics that other models have not, or seldom under such names.
_OF_POLICIES = MOVEMENTS | frozenset(
    {"policy_loss", "value_loss", "entropy", "action_std", "explained_variance", "reward_std", "ratio_max", "ratio_min"}
    | {"frac_reward_zero_std", "kl_term", "advantages_std"}
)
#: Names of the column that holds another one's deviation.
_SPREAD_OF = ("±{}", "{} std", "{}_std", "std_{}", "{}_sd")
#: Metrics of groups of answers that are compared: the return is a reward there.
_OF_GROUPS = frozenset({"ref_kl", "reward_std", "frac_reward_zero_std", "response_length", "truncated_fraction"})
_OF_CRITICS = frozenset({"value_loss", "explained_variance", "values_mean", "episode_length", "action_std"})
#: A bare "length" is that of episodes or of answers.
_LENGTHS = frozenset({"episode_length", "response_length"})
#: Metrics that logs with groups of answers do not have; their reward is inferred as a return and renamed at the end.
_NOT_WITH_GROUPS = _OF_CRITICS | {"reward_mean", "returns_mean"}
_OF_LANGUAGE = frozenset({"reward_mean", "response_length", "ref_kl", "returns_mean"})
#: Metrics that a column may be by its numbers alone, because nearly every log has them.
_BY_NUMBERS = (
    *("episode_return", "entropy", "approx_kl", "clip_fraction", "explained_variance", "value_loss", "policy_loss"),
    *("learning_rate", "ratio_mean"),
)
#: Metrics that need a word of the name or a relation to another column.
_BY_WORDS = (
    *("ref_kl", "kl_term", "optimizer_steps", "epochs_executed", "ratio_abs_dev", "ratio_max", "ratio_min", "loss"),
    *("reward_std", "frac_reward_zero_std", "action_std", "episode_length", "response_length", "values_mean"),
    *("success_rate", "advantages_std", "grad_norm", "probe_kl", "truncated_fraction", *OF_NO_METRIC),
)
_INFERRED = (*_BY_NUMBERS, *_BY_WORDS)
#: Shares of counted samples: 0, or at least one in ten million.
_COUNTED, ONE_OF = frozenset({"clip_fraction", "frac_reward_zero_std", "success_rate", "truncated_fraction"}), 1e-7
#: No mean entropy of an action or an answer is as large, in nats.
MOST_NATS = 500.0
#: metric → its least and largest possible value
_LIMITS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(_COUNTED, (0.0, 1.0)),
    **dict.fromkeys(("value_loss", "grad_norm", "actor_grad_norm", "critic_grad_norm"), (0.0, np.inf)),
    "learning_rate": (0.0, 1.0),
    "entropy": (-MOST_NATS, MOST_NATS),
    **dict.fromkeys(("ratio_abs_dev", "ratio_mean", "ratio_std", "update_norm", "action_std"), (0.0, np.inf)),
    **dict.fromkeys(("reward_std", "advantages_std", "returns_std", "values_std", *OF_NO_METRIC), (0.0, np.inf)),
    **dict.fromkeys(("episode_length", "response_length", "optimizer_steps", "epochs_executed"), (0.0, np.inf)),
    "explained_variance": (-np.inf, 1.0),
    **dict.fromkeys(("approx_kl", "ref_kl", "probe_kl"), (-1.0, np.inf)),
    "ratio_max": (0.9, np.inf),
    "ratio_min": (0.0, 1.1),
}
#: A ratio that is never below 1 and whose median is above this is the largest of a batch.
ABOVE_ONE = 1.01
#: A learning rate that only its numbers suggest is not larger.
LARGEST_RATE = 0.1


def infer_columns(
    columns: Mapping[str, FloatArray], named: Collection[str], keys: Collection[str], *, language: bool = False
) -> Mapping[str, Reading]:
    """Return key → reading of the columns of a log that looks like a policy's training, otherwise nothing.

    Columns hold a number for each record of the log, NaN where there is none. `named` are the metrics whose names are
    known, `keys` all names of the log, and `language` tells that a language model is trained.
    """
    if any(map(of_others, keys)) or (any(map(of_other_tasks, keys)) and not _names_policy_metrics(keys, named)):
        return {}
    lasting = [k for k in keys if k not in columns or not counts_up(columns[k][np.isfinite(columns[k])])]
    names = {
        k: parse_column_name(k, lasting, language) for k in columns if not (is_outside(k, keys) or of_other_tasks(k))
    }
    values = {key: in_plain_units(columns[key], name) for key, name in list(names.items())[:MOST_COLUMNS]}
    measured = {key: each for key, of_key in values.items() if (each := numbers(of_key)) is not None}
    relations = _relations({key: values[key] for key in measured}, named, keys)
    unnamed = _unnamed_weight([names[key] for key in measured])
    weighed = {
        key: found
        for key, each in measured.items()
        if (found := _weighed(key, each, names[key], relations, named, unnamed, language=language))
    }
    candidates = _paired(_of_one_kind(weighed, named))
    chosen = solved(candidates, {key: {m for m in of if names_metric(names[key], m)} for key, of in candidates.items()})
    open_metrics = {metric for key, of in candidates.items() if key not in chosen for metric in of}
    chosen |= zero_columns(measured, names, chosen, named, open_metrics)
    chosen |= run_counters(columns, names, chosen, named)
    chosen |= unfilled_columns(columns, names, chosen, named)
    formed = any(len(each.known) >= LEAST_RECORDS for each in measured.values())
    if formed and _is_policy_training(_as_rewards(chosen), names, relations, named):
        pass
    elif formed and _is_named_policy_training(chosen, names, named):  # columns that only their form suggests are others
        chosen = {k: one for k, one in chosen.items() if suggests(names[k], one.metric) or (k, one.metric) in relations}
    else:  # what names abbreviate may be clear nonetheless
        chosen = solved({key: {m: of[m] for m in of if m in names[key].meant} for key, of in candidates.items()})
        clear = {*named, *(reading.metric for reading in chosen.values())}
        if not looks_like_ppo(clear) or not any(len(key) > 1 for key in (*chosen, *named)):
            return {}
    chosen |= return_left_over(measured, names, chosen, named)
    if len(chosen) <= len({metric for metric in named if metric in _INFERRED and metric not in EARNINGS}):
        # the log has known names, so that unknown ones are other quantities
        chosen = {key: reading for key, reading in chosen.items() if names_metric(names[key], reading.metric)}
    chosen = _without_costs(_as_rewards(chosen), names, columns)
    return {key: one for key, one in chosen.items() if one.metric not in OF_NO_METRIC}


def _names_policy_metrics(keys: Collection[str], named: Collection[str]) -> bool:
    """Tell whether names plainly mean a return and several metrics that only a policy has."""
    plain = {one.metric for key in keys for one in readings(key)[:1] if one.cost <= PLAIN_COST}
    metrics = plain | set(named)
    return not EARNINGS.isdisjoint(metrics) and len(metrics & _OF_POLICIES) >= ENOUGH_PLAIN


def _relations(
    columns: Mapping[str, FloatArray], named: Collection[str], keys: Collection[str]
) -> dict[tuple[str, str], float]:
    """Return (column, metric) → weight by the other columns and by the order of the log, in nats."""
    weights = related(columns)
    returns = {next(iter(columns)): FIRST} if columns and EARNINGS.isdisjoint(named) else dict[str, float]()
    for key in columns:
        if any(form.format(key) in keys for form in _SPREAD_OF):
            returns[key] = returns.get(key, 0.0) + SPREAD_BESIDE
    for key, weight in returns.items():
        weights[key, "episode_return"] = weights.get((key, "episode_return"), 0.0) + weight
    return weights


def _is_policy_training(
    chosen: Mapping[str, Reading],
    names: Mapping[str, ColumnName],
    relations: Mapping[tuple[str, str], float],
    named: Collection[str],
) -> bool:
    """Tell whether metrics together are those of a policy's training, by more than the form of their values.

    The four parts of a training are what it earns, how far the policy moves, what changes it, and its own entropy or
    deviation (or the losses of actor and critic).
    """
    metrics = {reading.metric for reading in chosen.values()} | set(named)
    has_policy = not metrics.isdisjoint({"entropy", "action_std"}) or metrics >= {
        "value_loss",
        "explained_variance",
        "policy_loss",
    }
    parts = has_policy + sum(bool(metrics & part) for part in (EARNINGS, MOVEMENTS, _TRAINING))
    by_name = _suggested_by_names(chosen, names)
    by_relation = {r.metric for key, r in chosen.items() if relations.get((key, r.metric))}
    suggested = by_name | by_relation | set(named)
    if parts < 4:
        return (parts == 3 and len(suggested) >= MANY_SUGGESTED) or (
            len(by_name) >= ENOUGH_METRICS and bool(by_name & _OF_UPDATES)
        )
    return len(metrics) >= ENOUGH_METRICS and (
        len(by_relation & {"approx_kl", "clip_fraction", "ratio_abs_dev"}) > 1
        or (len(suggested) >= 3 and not MOVEMENTS.isdisjoint(suggested))
    )


def _is_named_policy_training(
    chosen: Mapping[str, Reading], names: Mapping[str, ColumnName], named: Collection[str]
) -> bool:
    """Tell whether names alone suggest more metrics of a policy than any other log has."""
    by_name = _suggested_by_names(chosen, names) | set(named)
    enough = ENOUGH_NAMED_WITH_RETURN if by_name & EARNINGS else ENOUGH_NAMED
    return bool(by_name & MOVEMENTS) and len(by_name & _OF_POLICIES) >= enough


def _suggested_by_names(chosen: Mapping[str, Reading], names: Mapping[str, ColumnName]) -> set[str]:
    """Return the metrics that names suggest, nothing if all these names are single letters.

    Open, high, low, close and volume are letters too. A whole set of letters with a KL and a clip fraction counts.
    """
    suggested = {key: r.metric for key, r in chosen.items() if suggests(names[key], r.metric)}
    metrics = set(suggested.values())
    whole = len(metrics) >= ENOUGH_METRICS and metrics >= {"approx_kl", "clip_fraction"}
    return metrics if whole or any(len(key) > 1 for key in suggested) else set()


def _paired(columns: Mapping[str, Candidates]) -> dict[str, Candidates]:
    """Return the candidates with more weight for losses of policy and critic that are named alike, as "La" and "Lc"."""
    forms = {
        metric: {(candidates[metric][1].form, key) for key, candidates in columns.items() if metric in candidates}
        for metric in _LOSSES
    }
    pairs = {
        metric: {key for form, key in forms[metric] if form and any(form == f and key != k for f, k in forms[other])}
        for metric, other in (_LOSSES, _LOSSES[::-1])
    }
    return {
        key: {m: (weight + PAIRED * (key in pairs.get(m, ())), reading) for m, (weight, reading) in candidates.items()}
        for key, candidates in columns.items()
    }


def _of_one_kind(columns: Mapping[str, Candidates], named: Collection[str]) -> Mapping[str, Candidates]:
    """Return the candidates of one kind of training: with a critic, or with groups of answers.

    The kind is that of the named metrics, otherwise the one with the better assignment.
    """
    named = set(named) - _LENGTHS
    kinds = [
        {key: {m: each for m, each in of.items() if m not in excluded} for key, of in columns.items()}
        for excluded, others, ours in (
            (_OF_GROUPS, _OF_GROUPS, _OF_CRITICS),
            (_NOT_WITH_GROUPS, _OF_CRITICS, _OF_GROUPS),
        )
        if ours.isdisjoint(named) <= others.isdisjoint(named)
    ]
    return max(kinds, key=lambda kind: best_assignment(kind)[1]) if kinds else columns


def _weighed(
    key: str,
    values: Numbers,
    name: ColumnName,
    relations: Mapping[tuple[str, str], float],
    named: Collection[str],
    unnamed: float,
    *,
    language: bool,
) -> Candidates:
    """Return the metrics that a column may be; nothing if it is likelier a second column of a named metric."""
    candidates: dict[str, tuple[float, Reading]] = {}
    fits = _Fits(values)
    second = 0.0
    by_relation = {metric for of, metric in relations if of == key}
    suggested = [m for m in dict.fromkeys((*_INFERRED, *name.meant)) if suggests(name, m) or m in by_relation]
    commonest = max((_expected(metric, language) for metric in suggested), default=0.0)
    for metric in dict.fromkeys((*_BY_NUMBERS, *suggested)):
        reading = reading_of(metric, name)
        if _is_excluded(metric, fits, name, reading, suggested, by_relation):
            continue
        weight, scale = _form_weight(metric, fits, name, reading, related=metric in by_relation)
        common = _expected(metric, language)
        weight += COMMON * (max(common - commonest, RAREST) if metric in suggested else common)
        weight += relations.get((key, metric), 0.0) + name_weight(metric, name, reading)
        weight += unnamed * (metric not in suggested)
        if metric in named or (metric == "episode_return" and not EARNINGS.isdisjoint(named)):
            second = max(second, weight if metric in name.meant else 0.0)
            continue
        weight += EARNED * (metric in EARNINGS and EARNINGS.isdisjoint(named))
        offset = reading.offset if reading is not None else 0.0
        form = reading.form if reading is not None else frozenset[str]()
        converted = Reading(metric=metric, cost=0.0, scale=scale, offset=offset, antilog=name.base, form=form)
        candidates[metric] = (weight + OPEN, converted)
    return {metric: each for metric, each in candidates.items() if each[0] - OPEN > second}


def _is_excluded(
    metric: str,
    fits: _Fits,
    name: ColumnName,
    reading: Reading | None,
    suggested: Collection[str],
    by_relation: Collection[str],
) -> bool:
    """Tell whether the unit of a name, a word that it lacks, or the range of its numbers rules out a metric."""
    if (name.allowed is not None and metric not in name.allowed) or (name.base and metric not in LOGGED[name.base]):
        return True
    if metric in MARKED - name.marks - name.meant.keys() and metric not in by_relation:
        return True
    if metric == "optimizer_steps" and name.executed and fits.known.min() < 1:
        return True  # a progress bar that is printed at 0 counts no steps
    if metric == "learning_rate" and metric not in suggested and fits.most > LARGEST_RATE:
        return True
    # "rho-1" that is never negative is a mean distance from 1
    return reading is not None and bool(reading.offset) and bool(fits.known.min() >= 0)


def _unnamed_weight(names: Sequence[ColumnName]) -> float:
    """Return the weight of metrics that a column's name does not suggest, in nats, 0 or less.

    Where most names of a log suggest metrics, a column whose name suggests none belongs to the task.
    """
    share = (1 + sum(bool(name.meant or any(name.hints)) for name in names)) / (2 + len(names))
    return UNNAMED * min(0.0, math.log((1.0 - share) / (1.0 - NAMED_SHARE)))


def _expected(metric: str, language: bool) -> float:
    """Return how common a metric is in logs of this kind, in nats below the commonest."""
    other = metric in (_OF_CRITICS if language else _OF_LANGUAGE)
    return value_forms.expected(metric) - OTHER_KIND * other


class _Fits:
    """How well the numbers of a column fit metrics; the form in each unit is computed once."""

    def __init__(self, values: Numbers) -> None:
        self._in_unit: dict[tuple[float, float], Numbers] = {(1.0, 0.0): values}
        self._forms: dict[tuple[float, float], Mapping[str, int]] = {}
        self.known = values.known
        self.most = float(values.known.max())

    def of(self, metric: str, scale: float, offset: float = 0.0) -> float:
        """Return the weight of the numbers in another unit in nats, -inf if they cannot be the metric."""
        if (values := self._in_unit.get((scale, offset))) is None:
            values = self._in_unit[scale, offset] = described(self.known * scale + offset)
        known = values.known
        low, high = _LIMITS.get(metric, (-np.inf, np.inf))
        if (
            ((known < low - 1e-6) | (known > high + 1e-3)).mean() > DAMAGED
            or (metric == "optimizer_steps" and (known % 1 != 0).mean() > DAMAGED)
            # the mean ratio of a batch lies on both sides of 1
            or (metric == "ratio_mean" and known.min() >= 1 and median(known) > ABOVE_ONE)
            or (metric in _COUNTED and known.max() > 0 and known[known > 0].min() < ONE_OF)
        ):
            return -np.inf
        if (form := self._forms.get((scale, offset))) is None:
            form = self._forms[scale, offset] = value_forms.form(values) if len(known) >= LEAST_RECORDS else {}
        fit = value_forms.support(metric, form)
        # whatever stops an update changes how many steps it has
        return max(fit, 0.0) if metric == "optimizer_steps" and known.min() >= 1 else fit


def _form_weight(
    metric: str, fits: _Fits, name: ColumnName, reading: Reading | None, *, related: bool
) -> tuple[float, float]:
    """Return the weight of a column's numbers for a metric in nats, and the factor that converts them to it.

    `related` tells that a relation to another column suggests the metric.
    """
    scale, offset = (reading.scale, reading.offset) if reading is not None else (1.0, 0.0)
    scales = [(scale, 0.0)]
    if metric == "value_loss" and fits.most < 0 and any(metric in hint for hint in name.hints):
        return 0.0, scale  # its sign is wrong
    if reading is None and metric == "policy_loss":
        scales = [(1.0, CONVERTED * name.gain), (-1.0, CONVERTED * (not name.gain))]
    elif (
        metric in FRACTIONS
        and not name.percent
        and fits.most > 1.5
        and (metric == "clip_fraction" or suggests(name, metric))
    ):
        scales = [(0.01 * scale, CONVERTED)]
    elif metric == "approx_kl" and related and name.unit == 1 and fits.most > FAR and suggests(name, metric):
        scales.append((THOUSANDTH * scale, CONVERTED))  # too large for an update's KL in nats
    if name.percent and metric not in FRACTIONS and reading is None:
        scales = [(scale * 100.0, cost) for scale, cost in scales]
    weight, scale = max((fits.of(metric, scale, offset) - cost, scale) for scale, cost in scales)
    if reading is not None and weight > -np.inf and (metric in FRACTIONS or fits.most > LARGE_VALUES):
        weight = max(weight, LEAST_IF_NAMED)
    return weight, factor_of(metric, scale, name)


def _without_costs(
    chosen: Mapping[str, Reading], names: Mapping[str, ColumnName], columns: Mapping[str, FloatArray]
) -> dict[str, Reading]:
    """Return readings in which a cost that is logged instead of a return has its sign turned."""
    return {
        key: replace(one, scale=-one.scale)
        if one.metric in EARNINGS and key in names and names[key].cost and not (columns[key] < 0).any()
        else one
        for key, one in chosen.items()
    }


def _as_rewards(chosen: Mapping[str, Reading]) -> dict[str, Reading]:
    """Return readings with a reward for a return if groups of answers are compared without a critic.

    Without groups there is no share of equal groups and no KL to a reference.
    """
    metrics = {reading.metric for reading in chosen.values()}
    if not metrics & _OF_GROUPS or metrics & _OF_CRITICS:
        return {key: one for key, one in chosen.items() if one.metric not in ("frac_reward_zero_std", "ref_kl")}
    return {
        key: Reading(metric="reward_mean", cost=one.cost, scale=one.scale) if one.metric == "episode_return" else one
        for key, one in chosen.items()
    }
