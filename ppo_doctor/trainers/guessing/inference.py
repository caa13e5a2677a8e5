"""Decide whether the metrics inferred for columns are together those of a policy's training."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.trainers.guessing import value_forms
from ppo_doctor.trainers.guessing.abbreviations import Reading, of_other_tasks, of_others, readings
from ppo_doctor.trainers.guessing.column_names import (
    FRACTIONS,
    LOGGED,
    PLAINLY,
    UNUSUAL,
    UNUSUALLY_LARGE,
    ColumnName,
    alike,
    by_words,
    is_outside,
    names_metric,
    parse_column_name,
    plain,
    says,
    written,
)
from ppo_doctor.trainers.guessing.hints import MARKED, OF_NO_METRIC
from ppo_doctor.trainers.guessing.leftovers import (
    EARNINGS,
    ENOUGH,
    MOVEMENTS,
    counted,
    left_for_the_return,
    still,
    without_numbers,
)
from ppo_doctor.trainers.guessing.matching import MOST_COLUMNS, OPEN, Candidates, best, looks_like_ppo, solved
from ppo_doctor.trainers.guessing.relations import related
from ppo_doctor.trainers.guessing.value_forms import LEAST, Numbers, counts_up, described, numbers
from ppo_doctor.trainers.units import FAR, THOUSANDTH

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray

#: Metrics of what moved the policy.
_MOVING = frozenset(
    {"policy_loss", "loss", "value_loss", "explained_variance", "grad_norm", "learning_rate", "optimizer_steps"}
)
#: What only the update of a policy by ratios has.
_OF_UPDATES = frozenset({"clip_fraction", "approx_kl", "ratio_abs_dev", "ratio_mean"})
#: What policies have and other models have not, or seldom under such names.
_OF_POLICIES = MOVEMENTS | frozenset(
    {"policy_loss", "value_loss", "entropy", "action_std", "explained_variance", "reward_std", "ratio_max", "ratio_min"}
    | {"frac_reward_zero_std", "kl_term", "advantages_std"}
)
#: Of these four parts all, or three where so many metrics are hinted at by names or shown by others.
PARTS, MANY = 4, 6
#: Metrics that only policies have, of which names or other columns tell: with what is earned, and with any other.
TOLD, TOLD_AND_EARNED = 5, 4
#: Of these, at least, in names that mean one thing, and what is earned, beside words of other tasks.
PLAIN_ENOUGH = 2


def is_of_a_policy(keys: Collection[str], named: Collection[str]) -> bool:
    """Tell whether names say plainly that a log holds several metrics that only a policy has."""
    plain = {one.metric for key in keys for one in readings(key)[:1] if one.cost <= PLAINLY}
    metrics = plain | set(named)
    return not EARNINGS.isdisjoint(metrics) and len(metrics & _OF_POLICIES) >= PLAIN_ENOUGH


def is_policy_training(
    chosen: Mapping[str, Reading],
    told: Mapping[str, ColumnName],
    company: Mapping[tuple[str, str], float],
    named: Collection[str],
) -> bool:
    """Tell whether metrics together are those of a policy's training, and something speaks for it but their forms."""
    metrics = {reading.metric for reading in chosen.values()} | set(named)
    sure = not metrics.isdisjoint({"entropy", "action_std"}) or metrics >= {
        "value_loss",
        "explained_variance",
        "policy_loss",
    }
    parts = sure + sum(bool(metrics & part) for part in (EARNINGS, MOVEMENTS, _MOVING))
    by_name = _by_name(chosen, told)
    shown = {r.metric for key, r in chosen.items() if company.get((key, r.metric))}
    ours = shown & {"approx_kl", "clip_fraction", "ratio_abs_dev"}
    told_of = by_name | shown | set(named)
    if parts < PARTS:
        return (parts == PARTS - 1 and len(told_of) >= MANY) or (len(by_name) >= ENOUGH and bool(by_name & _OF_UPDATES))
    return len(metrics) >= ENOUGH and (len(ours) > 1 or (len(told_of) >= 3 and not MOVEMENTS.isdisjoint(told_of)))


def is_named_policy_training(
    chosen: Mapping[str, Reading], told: Mapping[str, ColumnName], named: Collection[str]
) -> bool:
    """Tell whether names alone speak for so many metrics of a policy that no other log has them."""
    by_name = _by_name(chosen, told) | set(named)
    enough = TOLD_AND_EARNED if by_name & EARNINGS else TOLD
    return bool(by_name & MOVEMENTS) and len(by_name & _OF_POLICIES) >= enough


def _by_name(chosen: Mapping[str, Reading], told: Mapping[str, ColumnName]) -> set[str]:
    """Return the metrics that names speak for; letters alone are also those of other things, but for a whole of them.

    Open, high, low, close and volume are letters too, of which none is a KL and a share of samples.
    """
    named_so = {key: r.metric for key, r in chosen.items() if says(told[key], r.metric)}
    metrics = set(named_so.values())
    whole = len(metrics) >= ENOUGH and metrics >= {"approx_kl", "clip_fraction"}
    return metrics if whole or any(len(key) > 1 for key in named_so) else set()


#: Against numbers that have to be turned, or divided by 100, without a word that says so.
TURNED = 1.0
#: What it weighs that a log holds a return, and that scripts print it first.
EARNED, FIRST = 1.0, 0.5
#: What it weighs that a column's spread is logged beside it, and how that is called.
SPREAD, _SPREAD_OF = 1.5, ("±{}", "{} std", "{}_std", "std_{}", "{}_sd")
#: How much of how common a metric is counts: authors of scripts log what trainers log, and less of it.
COMMON = 0.5
#: How much rarer than others a metric is taken for at most, where a name speaks of both.
RAREST = -2.0
#: Columns that say that groups of samples are compared: then the return is a reward.
_OF_GROUPS = frozenset({"ref_kl", "reward_std", "frac_reward_zero_std", "response_length", "truncated_fraction"})
_OF_CRITICS = frozenset({"value_loss", "explained_variance", "values_mean", "episode_length", "action_std"})
_LENGTHS = frozenset({"episode_length", "response_length"})
_NO_ANSWERS = _OF_CRITICS | {"reward_mean", "returns_mean"}  # their reward is told from a return at the end
#: By how much rarer a metric is in logs of the other kind of training.
OTHER_KIND = 1.5
_OF_LANGUAGE = frozenset({"reward_mean", "response_length", "ref_kl", "returns_mean"})
#: At most this share of numbers may be beyond what a metric can be.
DAMAGED = 0.02
#: Metrics that a column may be by its numbers alone: what nearly every log of a policy's training holds.
_BY_NUMBERS = (
    *("episode_return", "entropy", "approx_kl", "clip_fraction", "explained_variance", "value_loss", "policy_loss"),
    *("learning_rate", "ratio_mean"),
)
#: Those that something has to be said of: a word of the name, or another column beside it.
_BY_WORDS = (
    *("ref_kl", "kl_term", "optimizer_steps", "epochs_executed", "ratio_abs_dev", "ratio_max", "ratio_min", "loss"),
    *("reward_std", "frac_reward_zero_std", "action_std", "episode_length", "response_length", "values_mean"),
    *("success_rate", "advantages_std", "grad_norm", "probe_kl", "truncated_fraction", *OF_NO_METRIC),
)
ASKED = (*_BY_NUMBERS, *_BY_WORDS)
#: Shares of samples: 0, or at least one of so many.
_COUNTED, ONE_OF = frozenset({"clip_fraction", "frac_reward_zero_std", "success_rate", "truncated_fraction"}), 1e-7
#: No mean entropy of an action, or of an answer, is as large, in nats.
MOST_NATS = 500.0
#: The least and the most that metrics can be by what they are.
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
#: From here on a ratio that is never below 1 is the largest of a batch.
ABOVE_ONE = 1.01
#: What it counts that a name does not speak of a metric among names that do; how many names of none speak of one.
SILENT, SPEAKING = 0.4, 0.4
#: The most of what numbers by themselves are taken for.
_MOST = {"learning_rate": 0.1}
#: What it weighs that a script names its policy's loss and its critic's alike: "La" beside "Lc".
PAIRED, _PAIR = 1.2, ("policy_loss", "value_loss")


def infer_columns(
    columns: Mapping[str, FloatArray], named: Collection[str], keys: Collection[str], *, language: bool = False
) -> Mapping[str, Reading]:
    """Return key → reading of the columns of a log that looks like a policy's training, nothing where it does not.

    Columns hold a number for each record of the log, NaN where there is none; `named` are metrics that names settled.
    """
    if any(map(of_others, keys)) or (any(map(of_other_tasks, keys)) and not is_of_a_policy(keys, named)):
        return {}
    lasting = [k for k in keys if k not in columns or not counts_up(columns[k][np.isfinite(columns[k])])]
    told = {
        k: parse_column_name(k, lasting, language) for k in columns if not (is_outside(k, keys) or of_other_tasks(k))
    }
    values = {key: plain(columns[key], name) for key, name in list(told.items())[:MOST_COLUMNS]}
    held_numbers = {key: found for key, each in values.items() if (found := numbers(each)) is not None}
    company = related({key: values[key] for key in held_numbers})
    if held_numbers and EARNINGS.isdisjoint(named):
        first = next(iter(held_numbers)), "episode_return"  # scripts print first what they are for
        company[first] = company.get(first, 0.0) + FIRST
    for key in held_numbers:  # whose spread is logged beside is what earns
        if any(form.format(key) in keys for form in _SPREAD_OF):
            company[key, "episode_return"] = company.get((key, "episode_return"), 0.0) + SPREAD
    silent = _silent([told[key] for key in held_numbers])
    held = {
        key: candidates
        for key, found in held_numbers.items()
        if (candidates := _weighed(key, found, told[key], company, named, silent, language=language))
    }
    held = _paired(_of_one_kind(held, named))
    spoken = {key: {m for m in candidates if names_metric(told[key], m)} for key, candidates in held.items()}
    chosen = solved(held, spoken)
    chosen |= still(held_numbers, told, chosen, named, _open(held, chosen))
    chosen |= counted(columns, told, chosen, named)
    chosen |= without_numbers(columns, told, chosen, named)
    formed = any(len(found.known) >= LEAST for found in held_numbers.values())
    if formed and is_policy_training(_as_rewards(chosen), told, company, named):
        pass
    elif formed and is_named_policy_training(chosen, told, named):  # what forms alone say is none of ours then
        chosen = {k: one for k, one in chosen.items() if says(told[k], one.metric) or (k, one.metric) in company}
    else:  # what names mean in all may be clear nonetheless
        chosen = solved(
            {key: {m: of for m, of in candidates.items() if m in told[key].meant} for key, candidates in held.items()}
        )
        clear = {*named, *(reading.metric for reading in chosen.values())}
        if not looks_like_ppo(clear) or not any(len(key) > 1 for key in (*chosen, *named)):
            return {}
    chosen |= left_for_the_return(held_numbers, told, chosen, named)
    settled = {metric for metric in named if metric in ASKED and metric not in EARNINGS}
    if len(chosen) <= len(settled):  # where names say more than forms, what forms alone say is none of ours
        chosen = {key: reading for key, reading in chosen.items() if names_metric(told[key], reading.metric)}
    paid = _paid_for_success(chosen, told) if EARNINGS.isdisjoint(named) else chosen
    chosen = _without_costs(_as_rewards(paid), told, columns)
    return {key: one for key, one in chosen.items() if one.metric not in OF_NO_METRIC}


def _paired(columns: Mapping[str, Candidates]) -> dict[str, Candidates]:
    """Return the columns with more weight where one is named for the policy as another is for the critic."""
    forms_of = {
        metric: {(candidates[metric][1].form, key) for key, candidates in columns.items() if metric in candidates}
        for metric in _PAIR
    }
    alike = {
        metric: {key for form, key in forms_of[metric] if form and any(form == f and key != k for f, k in forms_of[o])}
        for metric, o in (_PAIR, _PAIR[::-1])
    }
    return {
        key: {m: (weight + PAIRED * (key in alike.get(m, ())), reading) for m, (weight, reading) in candidates.items()}
        for key, candidates in columns.items()
    }


def _of_one_kind(held: Mapping[str, Candidates], named: Collection[str]) -> Mapping[str, Candidates]:
    """Return the columns with the metrics of one kind of training: with a critic, or by groups of samples.

    The kind is that of which names have settled a metric, else the one with the heavier assignment. Lengths are of
    either: a bare "length" is said of episodes and of answers.
    """
    named = set(named) - _LENGTHS
    kinds = [
        {key: {m: fate for m, fate in candidates.items() if m not in left} for key, candidates in held.items()}
        for left, others, ours in ((_OF_GROUPS, _OF_GROUPS, _OF_CRITICS), (_NO_ANSWERS, _OF_CRITICS, _OF_GROUPS))
        if ours.isdisjoint(named) <= others.isdisjoint(named)
    ]
    return max(kinds, key=lambda kind: best(kind)[1]) if kinds else held


def _weighed(
    key: str,
    found: Numbers,
    name: ColumnName,
    company: Mapping[tuple[str, str], float],
    named: Collection[str],
    silent: float,
    *,
    language: bool,
) -> Candidates:
    """Return metric → weight and reading of a column, where its numbers and its name are likelier that than none.

    One that is likelier a metric again that names have settled is left open.
    """
    candidates: dict[str, tuple[float, Reading]] = {}
    fits = _Fits(found)
    again = 0.0
    shown = {metric for of, metric in company if of == key}
    said = [metric for metric in dict.fromkeys((*ASKED, *name.meant)) if says(name, metric) or metric in shown]
    commonest = max((_expected(metric, language) for metric in said), default=0.0)
    for metric in dict.fromkeys((*_BY_NUMBERS, *said)):
        if (name.allowed is not None and metric not in name.allowed) or (name.base and metric not in LOGGED[name.base]):
            continue
        if metric in MARKED - name.marks - shown - name.meant.keys():
            continue
        # a progress bar that is printed as it begins counts no steps
        if metric == "optimizer_steps" and name.executed and found.known.min() < 1:
            continue
        if metric not in said and fits.most > _MOST.get(metric, np.inf):
            continue
        reading = name.meant.get(metric) or (alike(metric, name) if name.meant else None)
        if reading is not None and reading.offset and found.known.min() >= 0:
            continue  # never negative: a mean distance from 1, from which 1 was not taken
        weight, scale = _by_numbers(metric, fits, name, reading, shown=metric in shown)
        common = _expected(metric, language)
        weight += COMMON * (max(common - commonest, RAREST) if metric in said else common)
        weight += company.get((key, metric), 0.0) + by_words(metric, name, reading)
        weight += SILENT * silent * (metric not in said)
        if metric == "approx_kl":  # a loss that holds a KL looks like one
            weight -= company.get((key, "policy_loss"), 0.0) / 2
        if metric in named or (metric == "episode_return" and not EARNINGS.isdisjoint(named)):
            again = max(again, weight if metric in name.meant else 0.0)
            continue
        weight += EARNED * (metric in EARNINGS and EARNINGS.isdisjoint(named))
        offset, form = (reading.offset, reading.form) if reading is not None else (0.0, frozenset[str]())
        candidates[metric] = (
            weight + OPEN,
            Reading(metric=metric, cost=0.0, scale=scale, offset=offset, antilog=name.base, form=form),
        )
    return {metric: fate for metric, fate in candidates.items() if fate[0] - OPEN > again}


def _silent(names: Sequence[ColumnName]) -> float:
    """Return what it weighs for a metric that a column's name does not speak of it, in nats, 0 or less.

    Where most names of a log say what they are, one that does not is the task's own.
    """
    speaking = (1 + sum(bool(name.meant or any(name.hints)) for name in names)) / (2 + len(names))
    return min(0.0, math.log((1.0 - speaking) / (1.0 - SPEAKING)))


def _expected(metric: str, language: bool) -> float:
    """Return how common a metric is in logs of this kind, in nats below the commonest."""
    other = metric in (_OF_CRITICS if language else _OF_LANGUAGE)
    return value_forms.expected(metric) - OTHER_KIND * other


class _Fits:
    """How well the numbers of a column fit metrics, each form taken once."""

    def __init__(self, found: Numbers) -> None:
        self._held: dict[tuple[float, float], Numbers] = {(1.0, 0.0): found}
        self._forms: dict[tuple[float, float], Mapping[str, int]] = {}

    @property
    def known(self) -> FloatArray:
        """The numbers as the name says that they are written."""
        return self._held[1.0, 0.0].known

    @property
    def most(self) -> float:
        """The largest of them."""
        return float(self.known.max())

    def of(self, metric: str, scale: float, offset: float = 0.0) -> float:
        """Return the fit of the numbers in another unit; none where they cannot be the metric."""
        if (found := self._held.get((scale, offset))) is None:
            found = self._held[scale, offset] = described(self.known * scale + offset)
        low, high = _LIMITS.get(metric, (-np.inf, np.inf))
        if metric == "optimizer_steps" and (found.known % 1 != 0).mean() > DAMAGED:
            return -np.inf  # what is done is counted
        if metric == "ratio_mean" and found.known.min() >= 1 and float(np.median(found.known)) > ABOVE_ONE:
            return -np.inf  # a mean over samples of the old policy lies on both sides of 1
        if metric in _COUNTED and found.known.max() > 0 and found.known[found.known > 0].min() < ONE_OF:
            return -np.inf
        beyond = ((found.known < low - 1e-6) | (found.known > high + 1e-3)).mean() > DAMAGED
        if beyond:
            return -np.inf
        if (form := self._forms.get((scale, offset))) is None:  # few records have none
            form = self._forms[scale, offset] = value_forms.form(found) if len(found.known) >= LEAST else {}
        fit = value_forms.support(metric, form)
        counts = metric == "optimizer_steps" and found.known.min() >= 1
        return max(fit, 0.0) if counts else fit  # whatever stops an update


def _by_numbers(
    metric: str, fits: _Fits, name: ColumnName, reading: Reading | None, *, shown: bool
) -> tuple[float, float]:
    """Return how well numbers fit a metric, and by what they have to be multiplied to be it.

    `shown` says that another column beside them is what one beside the metric is.
    """
    scale, offset = (reading.scale, reading.offset) if reading is not None else (1.0, 0.0)
    scales = [(scale, 0.0)]
    if metric == "value_loss" and fits.most < 0 and any(metric in hint for hint in name.hints):
        return 0.0, scale  # what cannot be one is named so: its sign is wrong
    if reading is None and metric == "policy_loss":
        scales = [(1.0, TURNED * name.gain), (-1.0, TURNED * (not name.gain))]
    elif (
        metric in FRACTIONS
        and not name.percent
        and fits.most > 1.5
        and (metric == "clip_fraction" or says(name, metric))
    ):
        scales = [(0.01 * scale, TURNED)]
    elif metric == "approx_kl" and shown and name.unit == 1 and fits.most > FAR and says(name, metric):
        scales.append((THOUSANDTH * scale, TURNED))  # larger than an update's, and in thousandths not
    if name.percent and metric not in FRACTIONS and reading is None:
        scales = [(scale * 100.0, cost) for scale, cost in scales]
    weight, scale = max((fits.of(metric, scale, offset) - cost, scale) for scale, cost in scales)
    odd = reading is not None and weight > -np.inf and (metric in FRACTIONS or fits.most > UNUSUALLY_LARGE)
    weight = max(weight, UNUSUAL) if odd else weight
    return weight, written(metric, scale, name)


def _open(held: Mapping[str, Candidates], chosen: Mapping[str, Reading]) -> set[str]:
    """Return the metrics that a column which stays open may well be."""
    return {metric for key, candidates in held.items() if key not in chosen for metric in candidates}


def _paid_for_success(chosen: Mapping[str, Reading], told: Mapping[str, ColumnName]) -> dict[str, Reading]:
    """Return readings with a named share of successes as the reward, where nothing named as such is read as one."""
    earned = {key: one.metric for key, one in chosen.items() if one.metric in EARNINGS}
    share = next(
        (key for key, metric in earned.items() if metric == "success_rate" and names_metric(told[key], metric)), None
    )
    others = {key for key, metric in earned.items() if metric != "success_rate"}
    if share is None or any(names_metric(told[key], metric) for key in others for metric in EARNINGS):
        return dict(chosen)
    return {
        key: replace(one, metric="reward_mean") if key == share else one
        for key, one in chosen.items()
        if key not in others
    }


def _without_costs(
    chosen: Mapping[str, Reading], told: Mapping[str, ColumnName], columns: Mapping[str, FloatArray]
) -> dict[str, Reading]:
    """Return readings in which a cost that is logged for a return is one with its sign turned."""
    return {
        key: replace(one, scale=-one.scale)
        if one.metric in EARNINGS and key in told and told[key].cost and not (columns[key] < 0).any()
        else one
        for key, one in chosen.items()
    }


def _as_rewards(chosen: Mapping[str, Reading]) -> dict[str, Reading]:
    """Return readings with a reward instead of a return where groups of samples are compared and there is no critic."""
    metrics = {reading.metric for reading in chosen.values()}
    grouped = bool(metrics & _OF_GROUPS) and not metrics & _OF_CRITICS
    kept = {
        key: reading
        for key, reading in chosen.items()
        if grouped or reading.metric not in ("frac_reward_zero_std", "ref_kl")
    }
    if not grouped:
        return kept
    return {
        key: Reading(metric="reward_mean", cost=reading.cost, scale=reading.scale)
        if reading.metric == "episode_return"
        else reading
        for key, reading in kept.items()
    }
