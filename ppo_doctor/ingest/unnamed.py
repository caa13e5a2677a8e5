"""Logs whose words are a script's own: each column by its form, accepted where together they are a policy's training.

Letters and the words that are known are hints, no more. What comes of it is a guess on a whole: a log of which too
little is clear, or that shows no relation that only a policy's update has, is left unread.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.ingest.assignment import MOST_COLUMNS, OPEN, Fates, solved
from ppo_doctor.ingest.forms import FORMS, LEAST, Form, form_of
from ppo_doctor.ingest.readings import Reading, of_others, readings, words_of
from ppo_doctor.ingest.relations import extends, related
from ppo_doctor.ingest.settings_words import CLOCKS
from ppo_doctor.ingest.shapes import SHAPES
from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from ppo_doctor.model import FloatArray

#: Nats that a form has to weigh to be better than none, and what a reading of the name weighs, less its cost.
BAR, NAMED = 0.7, 2.6
#: A name that may mean something, of which the metric is nothing.
OTHERWISE = 0.8
#: What a unit or a word that is known weighs for the metrics that it may be said of.
HINTED = 1.1
#: What it weighs for a return that a column is the first of a log.
FIRST = 0.5
#: Metrics that make the picture: what it earns, how sure it is, how far it moved, and what moved it.
_EARNED = frozenset({"episode_return", "reward_mean", "returns_mean", "reward_total", "success_rate"})
_MOVED = frozenset({"approx_kl", "clip_fraction", "ratio_abs_dev", "ratio_mean", "approx_kl_k1", "probe_kl", "ref_kl"})
_MOVING = frozenset(
    {"policy_loss", "loss", "value_loss", "explained_variance", "grad_norm", "learning_rate", "optimizer_steps"}
)
_ENOUGH = 5
#: What may be 0 throughout, the likeliest first.
_ZEROS = ("approx_kl", "clip_fraction", "policy_loss", "grad_norm")
#: Optimizer steps of a batch, at most, that are told from a count of samples.
FEW_STEPS = 12
#: Columns that say that groups of samples are compared: then the return is a reward.
_OF_GROUPS = frozenset({"ref_kl", "reward_std", "frac_reward_zero_std"})
_OF_CRITICS = frozenset({"value_loss", "explained_variance"})
_FRACTIONS = frozenset({"clip_fraction", "explained_variance", "ratio_abs_dev", "frac_reward_zero_std"})
_IN_NATS = frozenset({"entropy", "approx_kl", "ref_kl"})
_OF_POLICY = frozenset({"policy_loss", "approx_kl", "ref_kl", "entropy", "clip_fraction", "grad_norm", "ratio_abs_dev"})
#: word or sign of a name → the metrics that it may be said of; all others are out.
_SAID_OF: Mapping[str, frozenset[str]] = {
    "%": _FRACTIONS,
    "pct": _FRACTIONS,
    "percent": _FRACTIONS,
    "nat": _IN_NATS,
    "nats": _IN_NATS,
    "bit": _IN_NATS,
    "bits": _IN_NATS,
    "critic": _OF_CRITICS,
    "value": _OF_CRITICS,
    "actor": frozenset({"policy_loss", "grad_norm", "entropy", "learning_rate"}),
    "policy": _OF_POLICY,
    "sample": frozenset({"clip_fraction"}),
    "samples": frozenset({"clip_fraction"}),
    "tokens": frozenset({"clip_fraction"}),
    "groups": frozenset({"frac_reward_zero_std"}),
}
#: Letters by the convention of papers, beyond those that stand in names: a divergence, and what is to be maximised.
_BY_CONVENTION = {
    "D": Reading(metric="approx_kl", cost=0.8),
    "U": Reading(metric="policy_loss", cost=0.8, scale=-1.0),
}
#: A letter, perhaps with the base of the logarithm behind it.
_LETTER = re.compile(r"([A-Z])[b2]?")
_UNITS = frozenset({"%", "pct", "percent", "nat", "nats", "bit", "bits"})
_SIGNED = re.compile(r"%|[^\W\d_]+")
#: The logarithm to the base 10, and what it is taken of.
_LOGARITHM = re.compile(r"(?<![a-z])(?:lg|log_?10)(?![a-z])", re.IGNORECASE)
_LOGGED = frozenset({"grad_norm", "learning_rate"})
_SQUARED = re.compile(r"[^\W\d_]2\Z|\u00b2|(?<![a-z])sq(?![a-z])", re.IGNORECASE)
#: What the second number of "3 of 40 steps" is called: what was planned, and not what was done.
PLANNED = "planned"
_PLANNED = re.compile(rf" {PLANNED}\Z")
_OUTSIDE = frozenset({"seconds", "sec", "secs", "ms", "minutes", "hours", "time", "fps", "sps", "gb", "mb"})


@frozen
class _Named:
    """What a name says of a column: what it may mean, what it is said of, and how its numbers are written."""

    meant: Mapping[str, Reading]
    allowed: frozenset[str] | None
    #: the name says a unit, which few metrics have
    united: bool
    percent: bool
    squared: bool
    logarithm: bool
    #: another column of the same name holds what was planned
    executed: bool


def by_form(
    columns: Mapping[str, FloatArray], named: Collection[str], keys: Collection[str], *, language: bool = False
) -> Mapping[str, Reading]:
    """Return key → reading of the columns of a log that looks like a policy's training, nothing where it does not.

    Columns hold a number for each record of the log, NaN where there is none; `named` are metrics that names settled.
    """
    if any(map(of_others, keys)):
        return {}
    told = {key: _told(key, keys, language) for key in columns if not _is_outside(key)}
    plain = {key: _plain(columns[key], name) for key, name in list(told.items())[:MOST_COLUMNS]}
    forms = {key: form for key, values in plain.items() if (form := form_of(values)) is not None}
    company = related({key: plain[key] for key in forms})
    if forms and _EARNED.isdisjoint(named):
        first = next(iter(forms)), "episode_return"  # scripts print first what they are for
        company[first] = company.get(first, 0.0) + FIRST
    held = {key: fates for key, form in forms.items() if (fates := _weighed(key, form, told[key], company, named))}
    chosen = dict(solved(held))
    chosen |= _still(forms, told, chosen, named, _open(held, chosen))
    chosen |= _counted(columns, chosen, named)
    return _as_rewards(chosen) if _is_a_picture(chosen, told, company, named) else {}


def _told(key: str, keys: Collection[str], language: bool) -> _Named:
    bare = _LOGARITHM.sub(" ", key.replace("%", " "))
    both = set(readings(bare, language=language))
    if bare.strip() or bare == key:
        both |= set(readings(key, language=language))
    meant = {reading.metric: reading for reading in sorted(both, key=lambda each: -each.cost)}
    signs = [sign.lower() for sign in _SIGNED.findall(key)]
    words = {word for part in words_of(key) for word in part} | set(signs)
    sets = [_SAID_OF[word] for word in words if word in _SAID_OF]
    if any(extends(key, other) for other in keys):  # a statistic of what that is
        sets = [frozenset({"reward_std"})]
    allowed = frozenset.intersection(*sets) if sets else None
    if (letter := _LETTER.fullmatch(key)) and letter[1] in _BY_CONVENTION:
        meant = {one.metric: one for one in (*meant.values(), _BY_CONVENTION[letter[1]])}
    percent = "%" in key or not words.isdisjoint({"pct", "percent"})
    if percent and not _OF_CRITICS.isdisjoint(meant):
        allowed, meant = frozenset({"explained_variance"}), {}
    return _Named(
        meant=meant,
        allowed=allowed,
        united=not words.isdisjoint(_UNITS),
        percent=percent,
        squared=_SQUARED.search(key) is not None,
        logarithm=_LOGARITHM.search(key) is not None,
        executed=f"{key} {PLANNED}" in keys,
    )


def _is_outside(key: str) -> bool:
    """Tell whether a column is a clock, a time of the machine, or what was planned."""
    words = {word for part in words_of(key) for word in part}
    return not words.isdisjoint(_OUTSIDE) or _PLANNED.search(key) is not None or key.lower() in CLOCKS


def _plain(values: FloatArray, name: _Named) -> FloatArray:
    """Return numbers without the unit that their name says."""
    if name.logarithm:
        return np.power(10.0, np.clip(values, -30, 30))
    return values / 100 if name.percent else values


def _weighed(
    key: str, form: Form, name: _Named, company: Mapping[tuple[str, str], float], named: Collection[str]
) -> Fates:
    fates: dict[str, tuple[float, Reading]] = {}
    for metric, weigh in FORMS.items():
        reading = name.meant.get(metric) or (_alike(metric, name) if name.meant else None)
        earned = metric == "episode_return" and not _EARNED.isdisjoint(named)
        if metric in named or earned or (name.allowed is not None and metric not in name.allowed):
            continue
        turned = form if reading is None or reading.scale > 0 else form_of(-form.known)
        weight = weigh(turned) if turned is not None else None
        if weight is None or (name.logarithm and metric not in _LOGGED):
            continue
        weight += company.get((key, metric), 0.0)
        if metric == "approx_kl":  # a loss that holds a KL looks like one
            weight -= company.get((key, "policy_loss"), 0.0) / 2
        if reading is not None:
            weight += max(NAMED - reading.cost, 0.3)
        elif name.meant:
            weight -= OTHERWISE
        weight += HINTED * (name.allowed is not None) * (1 + (name.united and metric != "frac_reward_zero_std"))
        weight += HINTED * (name.logarithm + (name.squared and metric == "value_loss"))
        weight += 0.5 * (name.logarithm and metric == "grad_norm")
        weight += 2.2 * (name.executed and metric == "optimizer_steps")
        scale = (reading.scale if reading is not None else 1.0) * (0.01 if _in_percent(metric, name) else 1.0)
        if weight > BAR:
            written = Reading(metric=metric, cost=0.0, scale=scale, antilog=name.logarithm)
            fates[metric] = (weight - BAR + OPEN, written)
    return fates


#: metric → others by which a name may mean it here: a reward is told from a return at the end.
_FOR = {"episode_return": ("reward_mean", "returns_mean", "reward_total"), "ratio_abs_dev": ("ratio_mean",)}


def _alike(metric: str, name: _Named) -> Reading | None:
    return next((name.meant[other] for other in _FOR.get(metric, ()) if other in name.meant), None)


def _in_percent(metric: str, name: _Named) -> bool:
    """Tell whether numbers have to be divided; a share that is told in percent is found out by its numbers later."""
    return name.percent and metric in ("explained_variance", "ratio_abs_dev")


def _open(held: Mapping[str, Fates], chosen: Mapping[str, Reading]) -> set[str]:
    """Return the metrics that a column which stays open may well be."""
    return {metric for key, fates in held.items() if key not in chosen for metric in fates}


def _still(
    forms: Mapping[str, Form],
    told: Mapping[str, _Named],
    chosen: Mapping[str, Reading],
    named: Collection[str],
    open_ones: Collection[str],
) -> dict[str, Reading]:
    """Return what columns of zeros are: as their names hint, else by what is missing, if none of these is left over.

    A policy that stands still, or a ratio of one policy with itself, has a KL and a share of clipped samples of 0.
    Which column is which says nothing then.
    """
    held = {reading.metric for reading in chosen.values()} | set(named)
    zeros = [key for key, form in forms.items() if form.zero and key not in chosen]
    found: dict[str, Reading] = {}
    for metric in (m for m in (*_ZEROS, "learning_rate") if m not in held):
        hinted = [
            key
            for key in zeros
            if key not in found and (metric in told[key].meant or metric in (told[key].allowed or ()))
        ]
        if hinted:  # the name that can mean the least else
            key = min(hinted, key=lambda key: (metric not in told[key].meant, len(told[key].allowed or FORMS)))
            found[key] = told[key].meant.get(metric) or Reading(metric=metric, cost=0.0)
    held |= {reading.metric for reading in found.values()}
    plain = [key for key in zeros if key not in found and not told[key].meant and told[key].allowed is None]
    missing = [metric for metric in _ZEROS if metric not in held and metric not in open_ones]
    some = missing if len(plain) >= len(missing) else missing[:2]
    if some[:2] != list(_ZEROS[:2]) or len(plain) < len(some):
        return found
    return found | {key: Reading(metric=metric, cost=0.0) for key, metric in zip(plain, some, strict=False)}


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
    told: Mapping[str, _Named],
    company: Mapping[tuple[str, str], float],
    named: Collection[str],
) -> bool:
    """Tell whether metrics together are those of a policy's training, and something speaks for it but their forms."""
    metrics = {reading.metric for reading in _as_rewards(chosen).values()} | set(named)
    policy = "entropy" in metrics or (metrics >= _OF_CRITICS and "policy_loss" in metrics)
    whole = policy and all(metrics & part for part in (_EARNED, _MOVED, _MOVING))
    by_name = {r.metric for key, r in chosen.items() if r.metric in told[key].meant or told[key].allowed}
    shown = {r.metric for key, r in chosen.items() if company.get((key, r.metric))}
    settled = {metric for metric in named if metric in SHAPES and metric not in _EARNED}
    if len(chosen) <= len(settled):  # where names say more than forms, what they leave open is none of ours
        return False
    ours = shown & {"approx_kl", "clip_fraction", "ratio_abs_dev"}
    return whole and len(metrics) >= _ENOUGH and (len(ours) > 1 or len(by_name | shown | set(named)) >= 3)


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
        if before is None or not extends(key, norm) or len(cut) != len(before) or len(cut) < LEAST:
            continue
        if (cut <= before * 1.01).all() and (before > cut[0]).all() and (cut == cut[0]).all() and cut[0] > 0:
            shown["max_grad_norm"] = float(cut[0])
    return shown
