"""Weigh which metric a column is by its values, counted over columns of many trainers.

A column is described by some properties, each in few classes: sign, size, course, resolution. `forms.json` holds how
often a metric's columns have each; `python -m lab.forms` counts it over runs of the lab, published runs and our
samples. Properties depend on each other, so the sum of their log-odds is multiplied by `TEMPER`, which was fitted with
the other weights to logs of people's own scripts.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.frozen import frozen
from ppo_doctor.trainers.readings import Reading

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray

#: Records from which on a column has a form.
LEAST = 16
#: Columns that are none of the metrics counted.
OTHER = "other"
#: By how much the sum of the log-odds of properties is too sure, and what is added to each count of a class.
TEMPER, SMOOTHING = 0.37, 0.5
#: How many runs have a column of no form of its metric's: what is wrong with a run is what is unusual in its numbers.
UNUSUAL = 0.12
#: Entropy of a normal distribution with a deviation of 1, in nats.
_UNIT_GAUSSIAN = 0.5 * math.log(2 * math.pi * math.e)

#: property → classes of a column that has them: metric → property → class → weighted number of columns
Counts = Mapping[str, Mapping[str, Mapping[str, float]]]


@frozen
class Numbers:
    """The finite numbers of a column, and what is asked of them more than once."""

    known: FloatArray
    size: float
    start: float
    end: float
    step: float

    @property
    def still(self) -> bool:
        """Tell whether one number stands in every record."""
        return bool(self.known.min() == self.known.max())

    @property
    def zero(self) -> bool:
        """Tell whether it is 0 in every record, but for what float64 leaves of a sum."""
        return bool((np.abs(self.known) < 1e-12).all())


def numbers(values: FloatArray) -> Numbers | None:
    """Return the numbers of a column, None where there are none, they only count, or say yes and no."""
    known = values[np.isfinite(values)]
    return None if not len(known) or counts_up(known) or ticks(known) or is_flag(known) else described(known)


def described(known: FloatArray) -> Numbers:
    """Return what is asked of finite numbers more than once."""
    part = max(3, len(known) // 10)
    return Numbers(
        known=known,
        size=float(np.median(np.abs(known))),
        start=float(np.median(known[:part])),
        end=float(np.median(known[-part:])),
        step=float(np.median(np.abs(np.diff(known)))) if len(known) > 1 else 0.0,
    )


def counts_up(known: FloatArray) -> bool:
    """Tell whether a column counts what is done: whole numbers, each above the one before but for a restart."""
    return len(known) > 1 and bool((known % 1 == 0).all()) and bool((np.diff(known) > 0).mean() > 0.9)


def ticks(known: FloatArray) -> bool:
    """Tell whether a column is a clock: it begins at a multiple of what it grows by, which is one number throughout."""
    each = float(known[-1] - known[0]) / (len(known) - 1) if len(known) >= LEAST else 0.0
    if not each > 0 or not np.isfinite(each):
        return False
    beside = np.abs(known - known[0] - each * np.arange(len(known)))
    return bool((beside < 0.15 * each).all()) and abs(float(known[0]) / each % 1 - 0.5) > 0.4


def is_flag(known: FloatArray) -> bool:
    """Tell whether a column says yes and no: 1 in some records and 0 in all others."""
    return len(known) >= LEAST and bool(((known == 0) | (known == 1)).all()) and bool(np.ptp(known))


def _rough(n: Numbers) -> float:
    """Return von Neumann's ratio: 0 for a smooth course, 1 for noise."""
    return float(np.square(np.diff(n.known)).mean() / (2.0 * n.known.var()))


#: No entropy begins higher.
LARGEST_START = 1e6


def _fresh(n: Numbers) -> float:
    """Return 1 where the start is the entropy of n even actions, 2 where that of a Gaussian of a round deviation."""
    start = float(np.median(n.known[:3]))
    if not abs(start) < LARGEST_START:  # a sum of two huge numbers may be infinite
        return 0.0
    if start > 0 and any(
        abs(start / math.log(k) - 1) < 0.015 or abs(start / math.log2(k) - 1) < 0.005 for k in range(2, 33)
    ):
        return 1.0
    each = ((start / k - _UNIT_GAUSSIAN, 0.0006 / k) for k in range(1, 9))
    return 2.0 * any(abs(log * 10 - round(log * 10)) < 10 * room and -3 < log < 1 for log, room in each)


#: property → its value for a column that moves, and between which bounds its classes lie.
_MOVING: Mapping[str, tuple[Callable[[Numbers], float], Sequence[float]]] = {
    "negative": (lambda n: float((n.known < 0).mean()), (1e-9, 0.1, 0.9, 1.0)),
    "zeros": (lambda n: float((n.known == 0).mean()), (1e-9, 0.1, 0.5)),
    "rough": (_rough, (0.01, 0.03, 0.08, 0.2, 0.5, 0.9)),
    "spread": (lambda n: float(n.known.std()) / n.size if n.size else 99.0, (0.003, 0.03, 0.1, 0.3, 0.6, 1, 3)),
    "top": (lambda n: float(n.known.max()), (1e-6, 0.02, 0.2, 0.5, 1.0000001, 1.5, 3, 8, 100)),
    "bottom": (
        lambda n: float(n.known.min()),
        (-100, -8, -1.0000001, -0.1, -1e-6, -1e-300, 1e-6, 0.02, 0.2, 0.5, 0.9999999, 8),
    ),
    "whole": (lambda n: float((n.known % 1 == 0).mean()), (0.2, 1.0)),
    "drift": (lambda n: (n.end - n.start) / (n.step + 1e-300), (-20, -5, -1.5, 1.5, 5, 20)),
    "grown": (
        lambda n: (n.end + 1e-12) / (n.start + 1e-12) if n.known.min() >= 0 else -1.0,
        (0, 0.1, 0.5, 0.8, 1.25, 2, 10),
    ),
    "distinct": (lambda n: len(set(n.known.tolist())) / len(n.known), (0.05, 0.3, 0.9)),
    "rises": (lambda n: float((np.diff(n.known) > 0).mean()), (1e-9, 1.0)),
}
#: The same for every column.
_ALL: Mapping[str, tuple[Callable[[Numbers], float], Sequence[float]]] = {
    "still": (lambda n: (1.0 + math.copysign(1.0, n.end) * (n.end != 0)) if n.still else 3.0, (0.5, 1.5, 2.5)),
    "size": (lambda n: 2 * math.log10(n.size) if n.size else -99.0, tuple(range(-14, 13))),
    "one": (lambda n: abs(float(np.median(n.known)) - 1.0), (0.005, 0.05, 0.25)),
    "fresh": (_fresh, (0.5, 1.5)),
}


def form(n: Numbers) -> dict[str, int]:
    """Return property → class of a column."""
    asked = _ALL if n.still else {**_ALL, **_MOVING}
    return {name: bisect_right(bounds, value(n)) for name, (value, bounds) in asked.items()}


@cache
def _counts() -> Counts:
    counts: Counts = json.loads(Path(__file__).with_name("forms.json").read_text(encoding="utf-8"))
    return counts


@cache
def _log_odds() -> Mapping[str, Mapping[str, Mapping[int, float]]]:
    return log_odds(_counts())


#: What people's own scripts log more often than trainers do: the logarithm of the share of 58 scripts that log it.
IN_SCRIPTS = {
    "optimizer_steps": -0.6,
    "ratio_max": -0.85,
    "success_rate": -1.5,
    "grad_norm": 0.0,
}


@cache
def expected(metric: str) -> float:
    """Return how common a metric's columns are, in nats below the commonest; one that was never counted is rare."""
    common = {name: sum(of_metric["still"].values()) for name, of_metric in _counts().items() if name != OTHER}
    known = math.log(common.get(metric, min(common.values())) / max(common.values()))
    return max(known, IN_SCRIPTS.get(metric, known))


def log_odds(counts: Counts) -> dict[str, dict[str, dict[int, float]]]:
    """Return metric → property → class → log-odds of a metric's columns against those of something else."""
    classes = {name: len(bounds) + 1 for name, (_, bounds) in {**_ALL, **_MOVING}.items()}
    logs = {
        metric: {name: _logs(of_metric.get(name, {}), size) for name, size in classes.items()}
        for metric, of_metric in counts.items()
    }
    others = logs[OTHER]
    return {
        metric: {
            name: {k: (logs[metric][name][k] - others[name][k]) for k in range(size)} for name, size in classes.items()
        }
        for metric in counts
        if metric != OTHER
    }


def _logs(counted: Mapping[str, float], classes: int) -> list[float]:
    total = sum(counted.values()) + SMOOTHING * classes
    return [math.log((counted.get(str(k), 0.0) + SMOOTHING) / total) for k in range(classes)]


def support(metric: str, form_of: Mapping[str, int]) -> float:
    """Return how much likelier numbers of a form are a metric's than something else's, in nats.

    Of a metric of which no columns were counted, and of no form, numbers say nothing. What is unusual speaks against a
    metric only so far as runs are rare in which it is unusual.
    """
    odds = _log_odds().get(metric)
    if odds is None or not form_of:
        return 0.0
    told = TEMPER * sum(odds[name][k] for name, k in form_of.items())
    return math.log(UNUSUAL + (1.0 - UNUSUAL) * math.exp(min(told, 50.0)))


#: What it counts, in nats, that a column is none of our metrics, and by how much a reading has to beat all others.
OPEN, MARGIN = -1.3, 1.3
#: Columns that are assigned; a script's own log has no more of its own names.
MOST_COLUMNS = 24
#: Metrics that only a policy trained by its own old samples has, and those of any method with a policy and a critic.
_OF_PPO = frozenset(
    {"approx_kl", "approx_kl_k1", "approx_kl_max", "probe_kl", "clip_fraction", "ratio_mean", "ratio_max", "ratio_min"}
    | {"ratio_std", "ratio_abs_dev", "clip_range", "ref_kl"}
)
_OF_POLICIES = frozenset({"policy_loss", "entropy", "entropy_loss", "value_loss", "explained_variance"})
#: Metrics that differ in how they are taken, of which a wrong one is no wrong guess.
_ALIKE = (
    frozenset({"approx_kl", "approx_kl_k1", "approx_kl_k2", "probe_kl"}),
    frozenset({"reward_std", "reward_group_std"}),
    frozenset({"episode_return", "reward_mean", "returns_mean", "reward_total"}),
)
#: metric → weight and reading of a column
Fates = Mapping[str, tuple[float, Reading]]
#: So many metrics of a policy, or one of PPO among so many, make a log one of PPO.
ENOUGH, ENOUGH_WITH_PPO = 3, 2


def solved(held: Mapping[str, Fates], spoken: Mapping[str, Collection[str]] | None = None) -> dict[str, Reading]:
    """Return key → reading of the heaviest assignment, without the columns for which another one is nearly as heavy.

    `spoken` are the metrics that the name of each column speaks of. What a name speaks of is not made unclear by
    columns whose names do not.
    """
    named = spoken or {}
    while True:
        heaviest, total = best(held)
        clear = {
            key: metric
            for key, metric in heaviest.items()
            if total - best(_otherwise(held, key, metric, named))[1] >= MARGIN
        }
        if not (dropped := heaviest.keys() - clear.keys()):
            return {key: held[key][metric][1] for key, metric in clear.items()}
        # what an unclear column is likeliest is not given to one that is less like it
        claimed = {heaviest[key]: held[key][heaviest[key]][0] for key in dropped}
        held = {
            key: {m: fate for m, fate in fates.items() if fate[0] >= claimed.get(m, fate[0])}
            for key, fates in held.items()
            if key not in dropped
        }


def _otherwise(
    held: Mapping[str, Fates], key: str, metric: str, spoken: Mapping[str, Collection[str]]
) -> dict[str, Fates]:
    """Return the columns, one of them without a metric; of one whose name speaks of it, those that do not as well."""
    if metric not in spoken.get(key, ()):
        return {**held, key: _without(held[key], metric)}
    return {
        of: fates if of != key and metric in spoken.get(of, ()) else _without(fates, metric)
        for of, fates in held.items()
    }


def looks_like_ppo(metrics: Collection[str]) -> bool:
    """Tell whether metrics are those of PPO or its kin: its ratio, clipping or KL, or a policy's several losses."""
    ours, policies = _OF_PPO.intersection(metrics), _OF_POLICIES.intersection(metrics)
    return len(policies) >= ENOUGH or (bool(ours) and len(ours) + len(policies) >= ENOUGH_WITH_PPO)


def _without(fates: Fates, metric: str) -> Fates:
    """Return the candidates of a column without a metric, and without what is the same by another estimator."""
    same = next((alike for alike in _ALIKE if metric in alike), {metric})
    return {name: fate for name, fate in fates.items() if name not in same}


def best(columns: Mapping[str, Fates]) -> tuple[dict[str, str], float]:
    """Return column → metric of the heaviest assignment, and what it weighs; columns may stay open.

    Kuhn's and Munkres' algorithm, by shortest augmenting paths; each column has an open place of its own.
    """
    keys = list(columns)
    metrics = sorted({metric for fates in columns.values() for metric in fates})
    costs = [
        [-fates[m][0] if m in fates else _NEVER for m in metrics]
        + [-OPEN if place == row else _NEVER for place in range(len(keys))]
        for row, fates in enumerate(columns.values())
    ]
    rows = _matched(costs)
    total = -sum(costs[row][at] for row, at in enumerate(rows))
    return {keys[row]: metrics[at] for row, at in enumerate(rows) if at < len(metrics)}, total


_NEVER = 1e6


def _matched(costs: list[list[float]]) -> list[int]:
    """Return the place of each row in the cheapest assignment of all rows to different places."""
    places = len(costs[0]) if costs else 0
    row_price, place_price = [0.0] * (len(costs) + 1), [0.0] * (places + 1)
    taken_by = [0] * (places + 1)  # rows and places count from 1; 0 is none
    for row in range(1, len(costs) + 1):
        taken_by[0], at = row, 0
        least, before, visited = [float("inf")] * (places + 1), [0] * (places + 1), [False] * (places + 1)
        while taken_by[at]:
            visited[at] = True
            here, step, following = taken_by[at], float("inf"), 0
            for place in range(1, places + 1):
                if visited[place]:
                    continue
                reduced = costs[here - 1][place - 1] - row_price[here] - place_price[place]
                if reduced < least[place]:
                    least[place], before[place] = reduced, at
                if least[place] < step:
                    step, following = least[place], place
            for place in range(places + 1):
                if visited[place]:
                    row_price[taken_by[place]] += step
                    place_price[place] -= step
                else:
                    least[place] -= step
            at = following
        while at:
            taken_by[at], at = taken_by[before[at]], before[at]
    found = {row: place for place, row in enumerate(taken_by) if place and row}
    return [found[row] - 1 for row in range(1, len(costs) + 1)]
