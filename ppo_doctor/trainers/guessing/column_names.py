"""Parse the names of columns of unknown scripts: metrics they may mean, metrics their words suggest, and units."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.trainers.guessing.abbreviations import NEUTRAL_WORDS, Reading, readings, words_of
from ppo_doctor.trainers.guessing.hints import CLIPPED, apart, by_word, hinted, hints_of, marked, words_for
from ppo_doctor.trainers.guessing.relations import extends
from ppo_doctor.trainers.guessing.weights import (
    GROUP_HINTED,
    GROUP_SIZE,
    HINTED,
    MISSED,
    MOST_COST,
    NAMED,
    OTHER_THAN_READ,
    PLAIN_COST,
    PLANNED_BESIDE,
    UNIT_MATCHES,
)
from ppo_doctor.trainers.phrases import PLANNED

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray

#: Words for a return that is to be minimised.
COSTS = frozenset({"cost", "costs", "coste", "costo", "costi", "custo", "cout", "couts", "kosten", "regret"})
#: Words that do not distinguish metrics.
_STATISTIC_WORDS = (
    "mean bar hat mu train training episode episodes episodio ep eps iter rollout batch pct percent perc prozent"
)
_NEUTRAL = NEUTRAL_WORDS | frozenset(_STATISTIC_WORDS.split())
#: Metrics of groups of answers.
_OF_GROUPS = frozenset({"frac_reward_zero_std", "reward_std"})
#: Metrics that may be in percent.
FRACTIONS = frozenset(
    {"clip_fraction", "explained_variance", "ratio_abs_dev", "frac_reward_zero_std", "success_rate"}
    | {"truncated_fraction"}
)
#: Shares that few logs have, so that a percent sign alone does not suggest them.
RARE_SHARES = frozenset({"frac_reward_zero_std", "success_rate", "truncated_fraction", "ratio_abs_dev"})
#: Shares whose unit cannot be inferred from their numbers later.
SHARES_BY_NAME = frozenset({"explained_variance", "ratio_abs_dev"})
PERCENT, PER_MILLE = 100.0, "\u2030"
_IN_NATS = frozenset({"entropy", "approx_kl", "ref_kl", "probe_kl"})
#: Units of a task's own quantities, which no metric has.
_OF_TASKS = (
    "mm cm km um nm deg degrees celsius kelvin px kg tonnes kwh mwh kw mw watts volts amps newtons hz khz rpm"
    " kpa psi mbar arcsec arcmin kmh mph degc litre litres liters ppm lux"
)
#: word or sign of a name → the metrics that may have it
_UNITS: Mapping[str, frozenset[str]] = {
    "%": FRACTIONS,
    PER_MILLE: FRACTIONS,
    "pct": FRACTIONS,
    "percent": FRACTIONS,
    "nat": _IN_NATS,
    "nats": _IN_NATS,
    "bit": _IN_NATS,
    "bits": _IN_NATS,
    **dict.fromkeys(_OF_TASKS.split(), frozenset()),
}
#: Letters of papers that no abbreviation has: a divergence, and an objective that is maximised.
_BY_CONVENTION = {
    "D": Reading(metric="approx_kl", cost=0.8),
    "U": Reading(metric="policy_loss", cost=0.8, scale=-1.0),
}
#: A letter, perhaps with the base of the logarithm or another word behind it.
_LETTER = lazy_pattern(r"([A-Z])[b2]?(?:(_?)([a-z]{2,}))?")
#: A mean as papers write it: "Gbar", "J_hat", "mu_R".
_ACCENT = lazy_pattern(r"(?<![^\W\d_])(?P<of>[A-Z]|[\u03b1-\u03c9]|[^\W\d_]{1,3}(?=_))_?(?:bar|hat)(?![^\W\d_])")
_MEAN = lazy_pattern(r"\Amu_?(?P<of>[GJR])\Z|\A(?P<stem>[GJR])_mu\Z")
_SIGNED = lazy_pattern(r"[%\u2030]|[^\W\d_]+")
#: base → names of a logarithm to it
_LOGARITHMS: Mapping[float, re.Pattern[str]] = {
    10.0: lazy_pattern(r"(?<![a-z])(?:lg|log_?10)(?![a-z])", re.IGNORECASE),
    math.e: lazy_pattern(
        r"(?<![a-z])(?:ln_?|log_?|l(?=s(?:td|ig)))(?=s(?:td|d|ig|igma)?(?![a-z])|\u03c3)|\Als(?=_|\Z)", re.I
    ),
}
#: base → metrics that are logged as a logarithm to it
LOGGED = {10.0: frozenset({"grad_norm", "learning_rate", "approx_kl", "action_std"}), math.e: frozenset({"action_std"})}
#: Thousandths of a unit: "leash_mnat", "kl_milli", "rate x1e3".
_THOUSANDTHS = lazy_pattern(
    r"(?<![a-z])(?:m(?=(nats?|bits?|KL)(?![a-z]))|milli_?|x_?1(?:000|e3)(?!\d))"
    r"|\u2030|(?:[\[(_ ]|(?<=KL))mn(?:[\])]|\Z)|_mb\Z",
    re.IGNORECASE,
)
#: A power of ten that numbers were multiplied by: "lr_e5", "kl x1e4".
_POWER = lazy_pattern(r"[_x* ]1?e([2-6])\Z")
_SQUARED = lazy_pattern(r"[^\W\d_]2\Z|\u00b2|(?<![a-z])(?<!\br_)sq(?![a-z])", re.IGNORECASE)
#: A rate per second or minute.
_PACE = lazy_pattern(r"[^\W\d_]{2,}/(?:s|sec|min|h)\Z", re.IGNORECASE)
_PLANNED = lazy_pattern(rf" {PLANNED}\Z")
#: Words of clocks, of the machine and of the sampler.
_OUTSIDE_WORDS = "seconds sec secs ms minutes hours time fps sps gb mb idx index nan sampler"
_OUTSIDE = frozenset(_OUTSIDE_WORDS.split())
#: metric → metrics that have the same names; a reward is told from a return at the end.
_SAME_NAMES = {"episode_return": ("reward_mean", "returns_mean", "reward_total"), "ratio_abs_dev": ("ratio_mean",)}


@frozen
class ColumnName:
    """What the name of a column says about its metric and its unit."""

    #: metric → how its letters and abbreviations may mean it
    meant: Mapping[str, Reading]
    #: the metrics that have the unit of the name, None if it has none
    allowed: frozenset[str] | None
    #: the metrics that each word suggests; those that two words together distinguish from others
    hints: tuple[frozenset[str], ...]
    marks: frozenset[str]
    #: the metrics that a word suggests with which many columns begin
    group: frozenset[str]
    #: it is to be maximised; it is to be minimised; it is squared
    gain: bool
    cost: bool
    squared: bool
    #: the factor from the metric's unit to the logged one, and the base of the logarithm, 0 if it is none
    unit: float
    base: float
    #: another column of the same name holds what was planned
    executed: bool

    @property
    def percent(self) -> bool:
        """Tell whether the column is a share in percent."""
        return self.unit == PERCENT


def parse_column_name(key: str, keys: Collection[str], language: bool) -> ColumnName:
    """Return what a name says; `keys` are all names of the log."""
    base = next((base for base, sign in _LOGARITHMS.items() if sign.search(key)), 0.0)
    meant, words = _abbreviated(key, language), {word for part in words_of(key) for word in part}
    plain_entropy = "entropy" in meant and meant["entropy"].cost <= PLAIN_COST
    words |= {sign.lower() for sign in _SIGNED.findall(_THOUSANDTHS.sub(_without_factor, key))}
    sets = [_UNITS[word] for word in words if word in _UNITS]
    if any(extends(key, other) for other in keys):  # a statistic of the other column
        sets = [frozenset({"reward_std", CLIPPED, "kl_term"})]
    allowed = frozenset.intersection(*sets) if sets else None
    meant = _by_convention(key, meant)
    if base:
        meant = {metric: reading for metric, reading in meant.items() if metric in LOGGED[base]}
    groups = _groups(frozenset(keys))
    every = [word for part in words_of(key) for whole in part if whole not in _NEUTRAL for word in apart(whole)]
    own = _without_owners([word for word in every if word not in groups] or every[-1:])
    if len(own) < len(every) and "g" in every and "g" not in own:
        meant = {}  # "g" is for groups and not for a gradient
    if len(own) == 1 and len(own[0]) > 2 and by_word().get(own[0], meant.keys()).isdisjoint(meant):
        meant = {}  # a word, and not the letters that it can be cut into: "sat", "wall", "gate"
    percent = "%" in key or not words.isdisjoint({"pct", "percent", "prozent", "perc"})
    if percent and not meant.keys().isdisjoint({"value_loss", "explained_variance"}):
        meant = {}
        allowed = frozenset({"explained_variance"}).union(*_hints(own, meant)) & FRACTIONS
    if percent and plain_entropy:
        allowed = frozenset({"entropy"})  # of its maximum
    return ColumnName(
        meant=meant,
        allowed=allowed,
        hints=_hints(own, meant),
        marks=marked(own),
        group=frozenset[str]().union(*(hint for word in set(every) - set(own) for hint in hints_of(word))),
        gain=not words_for("gain").isdisjoint(own),
        cost=not COSTS.isdisjoint(own),
        squared=_SQUARED.search(key) is not None,
        unit=_unit(key, percent=percent),
        base=base,
        executed=f"{key} {PLANNED}" in keys,
    )


def _abbreviated(key: str, language: bool) -> dict[str, Reading]:
    """Return metric → the cheapest reading of a name, with and without the signs of units, means and logarithms."""
    bare = _ACCENT.sub(r"\g<of>", _MEAN.sub(r"\g<of>\g<stem>", key)).replace("%", " ")
    for sign in _LOGARITHMS.values():
        bare = sign.sub(" ", bare)
    bare = _THOUSANDTHS.sub(_without_factor, _POWER.sub(" ", bare))
    both = set(readings(bare, language=language))
    if bare.strip() or bare == key:
        both |= set(readings(key, language=language))
    return {one.metric: one for one in sorted(both, key=lambda each: -each.cost) if one.cost <= MOST_COST}


def _unit(key: str, *, percent: bool) -> float:
    """Return the factor from a metric's unit to the unit that a name says."""
    if power := _POWER.search(key):
        return 10.0 ** int(power[1])
    return PERCENT if percent else 1000.0 if _THOUSANDTHS.search(key) else 1.0


def _by_convention(key: str, meant: dict[str, Reading]) -> dict[str, Reading]:
    """Return readings with that of a letter as papers use it, alone or before a word: "D", "D_old"."""
    letter = _LETTER.fullmatch(key)
    convention = _BY_CONVENTION.get(letter[1]) if letter else None
    if letter is None or convention is None:
        return meant
    behind = hints_of(letter[3]) if letter[3] else ()
    if letter[3] and not (letter[2] or any(behind)):
        return meant  # one word
    if letter[1] == "D" and behind and all("ref_kl" in hint and "approx_kl" not in hint for hint in behind):
        return {"ref_kl": replace(convention, metric="ref_kl")}
    if (letter[3] and meant) or not all(convention.metric in hint for hint in behind if hint):
        return meant
    return {one.metric: one for one in (*meant.values(), convention)}


def _without_owners(words: list[str]) -> list[str]:
    """Return words without those of the owner: groups in "flat_groups", the ratio in "ratio_clipped"."""
    of_groups = any(not _OF_GROUPS.isdisjoint(hint) for word in words for hint in hints_of(word))
    kept = [word for word in words if word != "g"] if of_groups else words
    if any("clip_fraction" in hint for word in kept for hint in hints_of(word)):
        kept = [word for word in kept if not any("ratio_mean" in hint for hint in hints_of(word))] or kept
    return kept


def _without_factor(factor: re.Match[str]) -> str:
    """Return a unit without the prefix that makes it thousandths; a per-mille sign stays."""
    return f" {factor[1] or ''}{factor[0] if factor[0] == PER_MILLE else ''} "


def _hints(words: Sequence[str], meant: Mapping[str, Reading]) -> tuple[frozenset[str], ...]:
    """Return the metrics that each word suggests; a single word with readings suggests only those."""
    hints = tuple(hint for word in words for hint in hints_of(word))
    return tuple(hint & meant.keys() for hint in hints) if len(words) == 1 and meant else hints


@lru_cache(maxsize=64)
def _groups(keys: frozenset[str]) -> frozenset[str]:
    """Return the words for actor or critic with which so many names begin that they distinguish none."""
    first = Counter(parts[0][0] for parts in map(words_of, keys) if sum(map(len, parts)) > 1)
    parts = words_for("policy") | words_for("critic")
    return frozenset(word for word, count in first.items() if count >= GROUP_SIZE and word in parts)


def is_outside(key: str, keys: Collection[str]) -> bool:
    """Tell whether a column is a clock, an index, a planned count, or of the machine or the sampler."""
    if f"{key} {PLANNED}" in keys:
        return False  # "mb" is for minibatches and not for megabytes
    words = {word for part in words_of(key) for word in part}
    if "mb" in words and any(map(hinted, words - {"mb"})):
        words.discard("mb")  # thousandths of a bit
    return bool(_PLANNED.search(key) or _PACE.search(key)) or not words.isdisjoint(_OUTSIDE)


def in_plain_units(values: FloatArray, name: ColumnName) -> FloatArray:
    """Return numbers without the factor and the logarithm of their name."""
    if name.base:
        return np.power(name.base, np.clip(values, -30, 30))
    return values / name.unit


def name_weight(metric: str, name: ColumnName, reading: Reading | None) -> float:
    """Return the weight of a name for a metric in nats: by its reading, or by the words that suggest it."""
    weight = sum(HINTED if metric in hint else -MISSED for hint in name.hints if hint)
    if name.group:
        weight += GROUP_HINTED * (1 if metric in name.group else -1)
    if reading is not None:
        weight = max(weight, NAMED - reading.cost)
    elif name.meant and (weight <= 0 or any(one.cost <= PLAIN_COST for one in name.meant.values())):
        weight = -OTHER_THAN_READ
    if name.allowed is not None:  # with an unknown word it may be a share of anything
        weight += UNIT_MATCHES if name.meant or all(name.hints) else UNIT_MATCHES / 2
    weight += HINTED * ((name.base > 0) + (name.squared and metric == "value_loss"))
    return weight + PLANNED_BESIDE * (name.executed and metric in ("optimizer_steps", "epochs_executed"))


def reading_of(metric: str, name: ColumnName) -> Reading | None:
    """Return how a name may mean a metric, or another metric that is called the same in such a log."""
    same = (metric, *_SAME_NAMES.get(metric, ()))
    return next((name.meant[each] for each in same if each in name.meant), None)


def factor_of(metric: str, scale: float, name: ColumnName) -> float:
    """Return the factor that converts logged numbers; most shares in percent are converted later by their numbers."""
    return scale if name.percent and metric not in SHARES_BY_NAME else scale / name.unit


def names_metric(name: ColumnName, metric: str) -> bool:
    """Tell whether a word of a name suggests a metric; a planned count beside it suggests optimizer steps."""
    done = name.executed and metric == "optimizer_steps"
    return done or metric in name.meant or metric in LOGGED.get(name.base, ()) or any(metric in h for h in name.hints)


def suggests(name: ColumnName, metric: str) -> bool:
    """Tell whether a word or the unit of a name suggests a metric."""
    return names_metric(name, metric) or (metric in (name.allowed or ()) and metric not in RARE_SHARES)
