"""Candidates for a name of a script's own: what it may mean, what its words suggest, and its unit."""

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
from ppo_doctor.trainers.guessing.abbreviations import SAYS_NOTHING, Reading, readings, words_of
from ppo_doctor.trainers.guessing.hints import CLIPPED, apart, by_word, hinted, hints_of, marked, words_for
from ppo_doctor.trainers.guessing.relations import extends
from ppo_doctor.trainers.phrases import PLANNED

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray

#: Nats that a reading of the name weighs, less its cost.
NAMED = 3.2
#: The least that possible numbers weigh for what a name means, shares and numbers above so many: a sick run's are
#: unlike all others.
UNUSUAL, UNUSUALLY_LARGE = -0.5, 1e3
#: A name that may mean something, of which the metric is nothing.
OTHERWISE = 0.8
#: A name that may mean something at no more than this cost speaks for it, and at more than that for nothing.
PLAINLY, FAR_FETCHED = 0.5, 2.4
#: What a script that makes costs small logs for its return.
COSTS = frozenset({"cost", "costs", "coste", "costo", "costi", "custo", "cout", "couts", "kosten", "regret"})
#: Words that say nothing of what a number is.
_NEUTRAL = SAYS_NOTHING | frozenset(
    [
        "mean",
        "bar",
        "hat",
        "mu",
        "train",
        "training",
        "episode",
        "episodes",
        "episodio",
        "ep",
        "eps",
        "iter",
        "rollout",
        "batch",
        "pct",
        "percent",
        "perc",
        "prozent",
    ]
)
#: What a word weighs for the metrics that it hints at, and against all others.
HINTED, MISSED = 2.5, 1.3
#: What a word weighs that so many names begin with: "brain/tug" beside "brain/drift" and "guess/err".
GROUP_HINTED, GROUPED = 1.2, 3
#: What a unit or a sign that only some metrics have weighs for them.
UNITED = 2.6
#: What groups of samples are logged for.
_OF_GROUPS = frozenset({"frac_reward_zero_std", "reward_std"})
FRACTIONS = frozenset(
    {"clip_fraction", "explained_variance", "ratio_abs_dev", "frac_reward_zero_std", "success_rate"}
    | {"truncated_fraction"}
)
#: Shares that few logs hold, so that a percent sign alone does not speak for them.
RARE_SHARES = frozenset({"frac_reward_zero_std", "success_rate", "truncated_fraction", "ratio_abs_dev"})
#: Those of which a share in percent is not found out by its numbers later.
SHARES_BY_NAME = frozenset({"explained_variance", "ratio_abs_dev"})
PERCENT, PER_MILLE = 100.0, "\u2030"
_IN_NATS = frozenset({"entropy", "approx_kl", "ref_kl", "probe_kl"})
#: Units of the task's own quantities.
_OF_TASKS = (
    "mm cm km um nm deg degrees celsius kelvin px kg tonnes kwh mwh kw mw watts volts amps newtons hz khz rpm"
    " kpa psi mbar arcsec arcmin kmh mph degc litre litres liters ppm lux"
)
#: word or sign of a name → the metrics that it may be said of; all others are out.
_SAID_OF: Mapping[str, frozenset[str]] = {
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
#: Letters by the convention of papers, beyond those that stand in names: a divergence, and what is to be maximised.
_BY_CONVENTION = {
    "D": Reading(metric="approx_kl", cost=0.8),
    "U": Reading(metric="policy_loss", cost=0.8, scale=-1.0),
}
#: A letter, perhaps with the base of the logarithm or another word behind it.
_LETTER = re.compile(r"([A-Z])[b2]?(?:(_?)([a-z]{2,}))?")
#: A mean as papers write it: "Gbar", "J_hat", "mu_R".
_ACCENT = re.compile(r"(?<![^\W\d_])(?P<of>[A-Z]|[\u03b1-\u03c9]|[^\W\d_]{1,3}(?=_))_?(?:bar|hat)(?![^\W\d_])")
_MEAN = re.compile(r"\Amu_?(?P<of>[GJR])\Z|\A(?P<stem>[GJR])_mu\Z")
_SIGNED = re.compile(r"[%\u2030]|[^\W\d_]+")
#: Bases of logarithms, and how a name says of its number that it is one.
_LOGARITHMS: Mapping[float, re.Pattern[str]] = {
    10.0: re.compile(r"(?<![a-z])(?:lg|log_?10)(?![a-z])", re.IGNORECASE),
    math.e: re.compile(
        r"(?<![a-z])(?:ln_?|log_?|l(?=s(?:td|ig)))(?=s(?:td|d|ig|igma)?(?![a-z])|\u03c3)|\Als(?=_|\Z)", re.I
    ),
}
#: What is taken as a logarithm; to the base e a policy's deviation alone, which is a weight of it as such.
LOGGED = {10.0: frozenset({"grad_norm", "learning_rate", "approx_kl", "action_std"}), math.e: frozenset({"action_std"})}
#: Thousandths of a unit: "leash_mnat", "kl_milli", "rate x1e3".
_THOUSANDTHS = re.compile(
    r"(?<![a-z])(?:m(?=(nats?|bits?|KL)(?![a-z]))|milli_?|x_?1(?:000|e3)(?!\d))"
    r"|\u2030|(?:[\[(_ ]|(?<=KL))mn(?:[\])]|\Z)|_mb\Z",
    re.IGNORECASE,
)
#: A power of ten that numbers were multiplied by: "lr_e5", "kl x1e4".
_POWER = re.compile(r"[_x* ]1?e([2-6])\Z")
_SQUARED = re.compile(r"[^\W\d_]2\Z|\u00b2|(?<![a-z])(?<!\br_)sq(?![a-z])", re.IGNORECASE)
#: So many each second, or minute.
_PACE = re.compile(r"[^\W\d_]{2,}/(?:s|sec|min|h)\Z", re.IGNORECASE)
_PLANNED = re.compile(rf" {PLANNED}\Z")
_OUTSIDE = frozenset(
    {
        "seconds",
        "sec",
        "secs",
        "ms",
        "minutes",
        "hours",
        "time",
        "fps",
        "sps",
        "gb",
        "mb",
        "idx",
        "index",
        "nan",
        "sampler",
    }
)
#: metric → others by which a name may mean it here: a reward is told from a return at the end.
_FOR = {"episode_return": ("reward_mean", "returns_mean", "reward_total"), "ratio_abs_dev": ("ratio_mean",)}


@frozen
class ColumnName:
    """What a name says of a column: what it may mean, what it is said of, and how its numbers are written."""

    meant: Mapping[str, Reading]
    allowed: frozenset[str] | None
    #: what each of its words hints at, what two of them mark, and whether one says that it is to be made large
    hints: tuple[frozenset[str], ...]
    marks: frozenset[str]
    #: what the words hint at that many columns begin with: they say nothing of one column among these
    group: frozenset[str]
    gain: bool
    #: whether one says that it is to be made small
    cost: bool
    squared: bool
    #: how often its unit goes into the metric's own, and the base of its logarithm if it is one
    unit: float
    base: float
    #: another column of the same name holds what was planned
    executed: bool

    @property
    def percent(self) -> bool:
        """Tell whether it is a share in percent."""
        return self.unit == PERCENT


def parse_column_name(key: str, keys: Collection[str], language: bool) -> ColumnName:
    """Return what a name says; `keys` are all names of the log."""
    bare = _ACCENT.sub(r"\g<of>", _MEAN.sub(r"\g<of>\g<stem>", key)).replace("%", " ")
    for sign in _LOGARITHMS.values():
        bare = sign.sub(" ", bare)
    bare = _THOUSANDTHS.sub(_without_factor, _POWER.sub(" ", bare))
    both = set(readings(bare, language=language))
    if bare.strip() or bare == key:
        both |= set(readings(key, language=language))
    meant = {one.metric: one for one in sorted(both, key=lambda each: -each.cost) if one.cost <= FAR_FETCHED}
    signs = [sign.lower() for sign in _SIGNED.findall(_THOUSANDTHS.sub(_without_factor, key))]
    words = {word for part in words_of(key) for word in part} | set(signs)
    sets = [_SAID_OF[word] for word in words if word in _SAID_OF]
    if any(extends(key, other) for other in keys):  # a statistic of what that is
        sets = [frozenset({"reward_std", CLIPPED, "kl_term"})]
    allowed = frozenset.intersection(*sets) if sets else None
    meant = _by_convention(key, meant)
    percent = "%" in key or not words.isdisjoint({"pct", "percent", "prozent", "perc"})
    unit = PERCENT if percent else 1000.0 if _THOUSANDTHS.search(key) else 1.0
    if power := _POWER.search(key):
        unit = 10.0 ** int(power[1])
    base = next((base for base, sign in _LOGARITHMS.items() if sign.search(key)), 0.0)
    if base:
        meant = {metric: reading for metric, reading in meant.items() if metric in LOGGED[base]}
    groups = _groups(frozenset(keys))
    every = [word for part in words_of(key) for whole in part if whole not in _NEUTRAL for word in apart(whole)]
    said = _without_owners([word for word in every if word not in groups] or every[-1:])
    if len(said) < len(every) and "g" in every and "g" not in said:
        meant = {}  # the letter of the groups, and no gradient
    if len(said) == 1 and len(said[0]) > 2 and by_word().get(said[0], meant.keys()).isdisjoint(meant):
        meant = {}  # a word that people use, not the letters that it can be taken apart into: "sat", "wall", "gate"
    if percent and not meant.keys().isdisjoint({"value_loss", "explained_variance"}):
        meant = {}
        allowed = frozenset({"explained_variance"}).union(*_hints(said, meant)) & FRACTIONS
    hints = _hints(said, meant)
    if percent and any(one.metric == "entropy" and one.cost <= PLAINLY for one in both):
        allowed = frozenset({"entropy"})  # of the most that it can be
    return ColumnName(
        meant=meant,
        allowed=allowed,
        hints=hints,
        marks=marked(said),
        group=frozenset[str]().union(*(hint for word in set(every) - set(said) for hint in hints_of(word))),
        gain=not words_for("gain").isdisjoint(said),
        cost=not COSTS.isdisjoint(said),
        squared=_SQUARED.search(key) is not None,
        unit=unit,
        base=base,
        executed=f"{key} {PLANNED}" in keys,
    )


def _by_convention(key: str, meant: dict[str, Reading]) -> dict[str, Reading]:
    """Return what a name may mean with what its letter stands for in papers, alone or before a word: "D", "D_old"."""
    letter = _LETTER.fullmatch(key)
    convention = _BY_CONVENTION.get(letter[1]) if letter else None
    if letter is None or convention is None:
        return meant
    behind = hints_of(letter[3]) if letter[3] else ()
    if letter[3] and not (letter[2] or any(behind)):
        return meant  # a word, and no letter before another
    if letter[1] == "D" and behind and all("ref_kl" in hint and "approx_kl" not in hint for hint in behind):
        return {"ref_kl": replace(convention, metric="ref_kl")}
    if (letter[3] and meant) or not all(convention.metric in hint for hint in behind if hint):
        return meant
    return {one.metric: one for one in (*meant.values(), convention)}


def _without_owners(words: list[str]) -> list[str]:
    """Return words without those that say only whose the thing is: of groups that are flat, a ratio's clipped share."""
    of_groups = any(not _OF_GROUPS.isdisjoint(hint) for word in words for hint in hints_of(word))
    kept = [word for word in words if word != "g"] if of_groups else words
    if any("clip_fraction" in hint for word in kept for hint in hints_of(word)):
        kept = [word for word in kept if not any("ratio_mean" in hint for hint in hints_of(word))] or kept
    return kept


def _without_factor(factor: re.Match[str]) -> str:
    """Return what is left of a unit without what makes it thousandths of one: of shares the sign itself."""
    return f" {factor[1] or ''}{factor[0] if factor[0] == PER_MILLE else ''} "


def _hints(words: Sequence[str], meant: Mapping[str, Reading]) -> tuple[frozenset[str], ...]:
    """Return what each word of a name hints at; one that stands alone and means something hints at nothing else."""
    hints = tuple(hint for word in words for hint in hints_of(word))
    return tuple(hint & meant.keys() for hint in hints) if len(words) == 1 and meant else hints


@lru_cache(maxsize=64)
def _groups(keys: frozenset[str]) -> frozenset[str]:
    """Return the words for a part of the model that so many names begin with that they tell none from another."""
    first = Counter(parts[0][0] for parts in map(words_of, keys) if sum(map(len, parts)) > 1)
    parts = words_for("policy") | words_for("critic")
    return frozenset(word for word, count in first.items() if count >= GROUPED and word in parts)


def is_outside(key: str, keys: Collection[str]) -> bool:
    """Tell whether a column is a clock, a time of the machine, an index, of the sampler, or what was planned."""
    if f"{key} {PLANNED}" in keys:
        return False  # minibatches of so many, and no megabytes
    words = {word for part in words_of(key) for word in part}
    if "mb" in words and any(map(hinted, words - {"mb"})):
        words.discard("mb")  # thousandths of a bit
    told = _PLANNED.search(key) is not None or _PACE.search(key) is not None
    return told or not words.isdisjoint(_OUTSIDE)


def plain(values: FloatArray, name: ColumnName) -> FloatArray:
    """Return numbers without the unit that their name says."""
    if name.base:
        return np.power(name.base, np.clip(values, -30, 30))
    return values / name.unit


def by_words(metric: str, name: ColumnName, reading: Reading | None) -> float:
    """Return what a name says for a metric: by what it may mean in all, or by what its words hint at."""
    weight = sum(HINTED if metric in hint else -MISSED for hint in name.hints if hint)
    if name.group:
        weight += GROUP_HINTED * (1 if metric in name.group else -1)
    if reading is not None:
        weight = max(weight, NAMED - reading.cost)
    elif name.meant and (weight <= 0 or any(one.cost <= PLAINLY for one in name.meant.values())):
        weight = -OTHERWISE
    if name.allowed is not None:  # beside a word that nobody knows it may be a share of anything
        weight += UNITED if name.meant or all(name.hints) else UNITED / 2
    weight += HINTED * ((name.base > 0) + (name.squared and metric == "value_loss"))
    return weight + 3.0 * HINTED * (name.executed and metric in ("optimizer_steps", "epochs_executed"))


def alike(metric: str, name: ColumnName) -> Reading | None:
    """Return what a name may mean that is another word for a metric here."""
    return next((name.meant[other] for other in _FOR.get(metric, ()) if other in name.meant), None)


def written(metric: str, scale: float, name: ColumnName) -> float:
    """Return the factor for numbers as they are logged: a share in percent is mostly found out by its numbers later."""
    return scale if name.percent and metric not in SHARES_BY_NAME else scale / name.unit


def names_metric(name: ColumnName, metric: str) -> bool:
    """Tell whether a word of a name speaks for a metric, or a count of what was planned beside it."""
    done = name.executed and metric == "optimizer_steps"
    return done or metric in name.meant or metric in LOGGED.get(name.base, ()) or any(metric in h for h in name.hints)


def says(name: ColumnName, metric: str) -> bool:
    """Tell whether anything in a name speaks for a metric, its unit too where that tells enough."""
    return names_metric(name, metric) or (metric in (name.allowed or ()) and metric not in RARE_SHARES)
