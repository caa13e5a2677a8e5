"""Logs whose words are a script's own: each column by its form, accepted where together they are a policy's training.

Letters and the words that are known are hints, no more. What comes of it is a guess on a whole: a log of which too
little is clear, or that shows no relation that only a policy's update has, is left unread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.ingest import forms
from ppo_doctor.ingest.assignment import MOST_COLUMNS, OPEN, Fates, best, solved
from ppo_doctor.ingest.forms import LEAST, Numbers, form, numbers
from ppo_doctor.ingest.own_names import (
    FRACTIONS,
    LOGGED,
    Said,
    alike,
    by_words,
    is_outside,
    means,
    plain,
    says,
    told_by,
    written,
)
from ppo_doctor.ingest.readings import Reading, of_others, words_of
from ppo_doctor.ingest.relations import extends, related
from ppo_doctor.ingest.settings_words import PLANNED
from ppo_doctor.ingest.shapes import SHAPES

if TYPE_CHECKING:
    from ppo_doctor.model import FloatArray

#: Against numbers that have to be turned, or divided by 100, without a word that says so.
TURNED = 0.7
#: What it weighs that a log holds a return, and that scripts print it first.
EARNED, FIRST = 1.5, 0.5
#: How much of how common a metric is counts: authors of scripts log what trainers log, and less of it.
COMMON = 0.5
#: Metrics that make the picture: what it earns, how sure it is, how far it moved, and what moved it.
_EARNED = frozenset({"episode_return", "reward_mean", "returns_mean", "reward_total", "success_rate"})
_MOVED = frozenset({"approx_kl", "clip_fraction", "ratio_abs_dev", "ratio_mean", "approx_kl_k1", "probe_kl", "ref_kl"})
_MOVING = frozenset(
    {"policy_loss", "loss", "value_loss", "explained_variance", "grad_norm", "learning_rate", "optimizer_steps"}
)
_ENOUGH = 5
#: Of these four parts all, or three where so many metrics are hinted at by names or shown by others.
PARTS, MANY = 4, 6
#: What may be 0 throughout, the likeliest first.
_ZEROS = ("approx_kl", "clip_fraction", "policy_loss", "grad_norm")
#: Optimizer steps of a batch, at most, that are told from a count of samples.
FEW_STEPS = 12
#: Columns that say that groups of samples are compared: then the return is a reward.
_OF_GROUPS = frozenset({"ref_kl", "reward_std", "frac_reward_zero_std", "response_length"})
_OF_CRITICS = frozenset({"value_loss", "explained_variance", "values_mean", "episode_length", "action_std"})
#: At most this share of numbers may be beyond what a metric can be.
DAMAGED = 0.02
#: Metrics that a column of a name that nobody knows may be.
ASKED = (
    *("episode_return", "entropy", "approx_kl", "ref_kl", "clip_fraction", "explained_variance", "value_loss"),
    *(
        "policy_loss",
        "grad_norm",
        "learning_rate",
        "optimizer_steps",
        "epochs_executed",
        "ratio_mean",
        "ratio_abs_dev",
        "reward_std",
    ),
    *("frac_reward_zero_std", "action_std", "episode_length", "response_length", "values_mean", "loss"),
    "advantages_std",
)
#: The least and the most that they can be.
_LIMITS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("clip_fraction", "frac_reward_zero_std"), (0.0, 1.0)),
    **dict.fromkeys(
        ("value_loss", "grad_norm", "ratio_abs_dev", "reward_std", "action_std", "advantages_std"), (0.0, np.inf)
    ),
    **dict.fromkeys(("episode_length", "response_length", "optimizer_steps", "epochs_executed"), (0.0, np.inf)),
    "explained_variance": (-np.inf, 1.0),
    "learning_rate": (0.0, 0.1),
    "approx_kl": (-0.1, np.inf),
    "ref_kl": (-0.1, np.inf),
}


def by_form(
    columns: Mapping[str, FloatArray], named: Collection[str], keys: Collection[str], *, language: bool = False
) -> Mapping[str, Reading]:
    """Return key → reading of the columns of a log that looks like a policy's training, nothing where it does not.

    Columns hold a number for each record of the log, NaN where there is none; `named` are metrics that names settled.
    """
    if any(map(of_others, keys)):
        return {}
    told = {key: told_by(key, keys, language) for key in columns if not is_outside(key)}
    values = {key: plain(columns[key], name) for key, name in list(told.items())[:MOST_COLUMNS]}
    held_numbers = {key: found for key, each in values.items() if (found := numbers(each)) is not None}
    company = related({key: values[key] for key in held_numbers})
    if held_numbers and _EARNED.isdisjoint(named):
        first = next(iter(held_numbers)), "episode_return"  # scripts print first what they are for
        company[first] = company.get(first, 0.0) + FIRST
    held = {
        key: fates for key, found in held_numbers.items() if (fates := _weighed(key, found, told[key], company, named))
    }
    chosen = dict(solved(_of_one_kind(held, named)))
    chosen |= _still(held_numbers, told, chosen, named, _open(held, chosen))
    chosen |= _counted(columns, chosen, named)
    if not _is_a_picture(chosen, told, company, named):
        return {}
    settled = {metric for metric in named if metric in SHAPES and metric not in _EARNED}
    if len(chosen) <= len(settled):  # where names say more than forms, what forms alone say is none of ours
        chosen = {key: reading for key, reading in chosen.items() if means(told[key], reading.metric)}
    return _as_rewards(chosen)


def _of_one_kind(held: Mapping[str, Fates], named: Collection[str]) -> Mapping[str, Fates]:
    """Return the columns with the metrics of one kind of training: with a critic, or by groups of samples.

    The kind is that of which names have settled a metric, else the one with the heavier assignment.
    """
    kinds = [
        {key: {m: fate for m, fate in fates.items() if m not in others} for key, fates in held.items()}
        for others, ours in ((_OF_GROUPS, _OF_CRITICS), (_OF_CRITICS, _OF_GROUPS))
        if ours.isdisjoint(named) <= others.isdisjoint(named)
    ]
    return max(kinds, key=lambda kind: best(kind)[1]) if kinds else held


def _weighed(
    key: str, found: Numbers, name: Said, company: Mapping[tuple[str, str], float], named: Collection[str]
) -> Fates:
    """Return metric → weight and reading of a column, where its numbers and its name are likelier that than none."""
    fates: dict[str, tuple[float, Reading]] = {}
    for metric in ASKED:
        earned = metric == "episode_return" and not _EARNED.isdisjoint(named)
        if metric in named or earned or (name.allowed is not None and metric not in name.allowed):
            continue
        if name.logarithm and metric not in LOGGED:
            continue
        reading = name.meant.get(metric) or (alike(metric, name) if name.meant else None)
        if reading is not None and reading.offset and found.known.min() >= 0:
            continue  # never negative: a mean distance from 1, from which 1 was not taken
        weight, scale = _by_numbers(metric, found, name, reading)
        offset = reading.offset if reading is not None else 0.0
        weight += company.get((key, metric), 0.0) + by_words(metric, name, reading) + EARNED * (metric in _EARNED)
        if metric == "approx_kl":  # a loss that holds a KL looks like one
            weight -= company.get((key, "policy_loss"), 0.0) / 2
        if weight > 0:
            fates[metric] = (
                weight + OPEN,
                Reading(metric=metric, cost=0.0, scale=scale, offset=offset, antilog=name.logarithm),
            )
    return fates


def _by_numbers(metric: str, found: Numbers, name: Said, reading: Reading | None) -> tuple[float, float]:
    """Return how well numbers fit a metric, and by what they have to be multiplied to be it."""
    if reading is not None:
        return _fit(metric, found.known * reading.scale + reading.offset), written(metric, reading.scale, name)
    if metric == "policy_loss":
        scales = [(1.0, TURNED * name.gain), (-1.0, TURNED * (not name.gain))]
    elif metric in FRACTIONS and not name.percent and float(found.known.max()) > 1.5:
        scales = [(0.01, TURNED)]
    else:
        scales = [(1.0, 0.0)]
    if name.percent and metric not in FRACTIONS:
        scales = [(scale * 100.0, cost) for scale, cost in scales]
    fits = [(_fit(metric, found.known * scale) - cost, scale) for scale, cost in scales]
    weight, scale = max(fits)
    return weight, written(metric, scale, name)


def _fit(metric: str, values: FloatArray) -> float:
    low, high = _LIMITS.get(metric, (-np.inf, np.inf))
    found = numbers(values)
    if found is None or ((values < low - 1e-6) | (values > high + 1e-3)).mean() > DAMAGED:
        return -np.inf
    return forms.support(metric, form(found)) + COMMON * forms.expected(metric)


def _open(held: Mapping[str, Fates], chosen: Mapping[str, Reading]) -> set[str]:
    """Return the metrics that a column which stays open may well be."""
    return {metric for key, fates in held.items() if key not in chosen for metric in fates}


def _still(
    held: Mapping[str, Numbers],
    told: Mapping[str, Said],
    chosen: Mapping[str, Reading],
    named: Collection[str],
    open_ones: Collection[str],
) -> dict[str, Reading]:
    """Return what columns of zeros are: as their names hint, else by what is missing, if none of these is left over.

    A policy that stands still, or a ratio of one policy with itself, has a KL and a share of clipped samples of 0.
    Which column is which says nothing then.
    """
    taken = {reading.metric for reading in chosen.values()} | set(named)
    zeros = [key for key, found in held.items() if found.zero and key not in chosen]
    found: dict[str, Reading] = {}
    for metric in (m for m in (*_ZEROS, "learning_rate", "advantages_std") if m not in taken):
        named_so = [key for key in zeros if key not in found and says(told[key], metric)]
        if named_so:  # the name that can mean the least else
            key = min(named_so, key=lambda key: _hinted_less(told[key], metric))
            found[key] = told[key].meant.get(metric) or Reading(metric=metric, cost=0.0)
    taken |= {reading.metric for reading in found.values()}
    plain = [key for key in zeros if key not in found and not told[key].meant and told[key].allowed is None]
    missing = [metric for metric in _ZEROS if metric not in taken and metric not in open_ones]
    some = missing if len(plain) >= len(missing) else missing[:2]
    if not taken.issuperset(_ZEROS[:2]) and some[:2] != list(_ZEROS[:2]):
        return found
    if len(plain) < len(some):
        return found
    return found | {key: Reading(metric=metric, cost=0.0) for key, metric in zip(plain, some, strict=False)}


def _hinted_less(name: Said, metric: str) -> tuple[bool, bool, int]:
    """Return how little a name says for a metric: the name that can mean the least else comes first."""
    return metric not in name.meant, metric not in (name.allowed or ()), len(name.allowed or ASKED)


def _counted(
    columns: Mapping[str, FloatArray], chosen: Mapping[str, Reading], named: Collection[str]
) -> dict[str, Reading]:
    """Return the count of all optimizer steps: what grows by the same few in each record; samples are more."""
    if "optimizer_steps" in {reading.metric for reading in chosen.values()} | set(named):
        return {}
    for key, values in columns.items():
        change = np.diff(values[np.isfinite(values)])
        if key not in chosen and len(change) and 2 <= change[0] <= FEW_STEPS and (change == change[0]).all():
            return {key: Reading(metric="optimizer_steps_total", cost=0.0)}
    return {}


def _is_a_picture(
    chosen: Mapping[str, Reading],
    told: Mapping[str, Said],
    company: Mapping[tuple[str, str], float],
    named: Collection[str],
) -> bool:
    """Tell whether metrics together are those of a policy's training, and something speaks for it but their forms."""
    metrics = {reading.metric for reading in _as_rewards(chosen).values()} | set(named)
    sure = "entropy" in metrics or metrics >= {"value_loss", "explained_variance", "policy_loss"}
    parts = sure + sum(bool(metrics & part) for part in (_EARNED, _MOVED, _MOVING))
    by_name = {r.metric for key, r in chosen.items() if says(told[key], r.metric)}
    shown = {r.metric for key, r in chosen.items() if company.get((key, r.metric))}
    ours = shown & {"approx_kl", "clip_fraction", "ratio_abs_dev"}
    told_of = by_name | shown | set(named)
    if parts < PARTS:
        return parts == PARTS - 1 and len(told_of) >= MANY
    return len(metrics) >= _ENOUGH and (len(ours) > 1 or len(told_of) >= 3)


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


def settings_shown(columns: Mapping[str, FloatArray], metrics: Mapping[str, str]) -> dict[str, float]:
    """Return settings that columns beside metrics show: steps that were planned, the norm that gradients are cut to.

    `columns` hold the finite numbers of each column, `metrics` are metric → column.
    """
    shown = {}
    planned = columns.get(f"{metrics.get('optimizer_steps', '')} {PLANNED}")
    if planned is not None and len(planned) and planned[0] >= 1 and (planned == planned[0]).all():
        shown["updates_per_batch"] = float(planned[0])
    norm = metrics.get("grad_norm", "")
    for key, cut in columns.items():
        before = columns.get(norm)
        # A rate is constant and below every norm too: the name has to say that it is the same norm.
        other = key in metrics.values() or not _is_kin(key, norm)
        if before is None or other or len(cut) != len(before) or len(cut) < LEAST:
            continue
        if (
            (cut <= before * 1.01).all()
            and (before > cut[0]).all()
            and np.allclose(cut, cut[0], rtol=1e-3, atol=0)
            and cut[0] > 0
        ):
            shown["max_grad_norm"] = float(cut[0])
    return shown


def _is_kin(key: str, norm: str) -> bool:
    """Tell whether a name is another one and more words, or begins with the same one behind its groups."""
    ours, theirs = words_of(key), words_of(norm)
    return extends(key, norm) or (key != norm and bool(ours and theirs) and ours[-1][:1] == theirs[-1][:1])
