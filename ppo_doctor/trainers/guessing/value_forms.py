"""Weigh which metric a column is by its values, counted over columns of many trainers.

A column is described by some properties, each in few classes: sign, size, course, resolution. `forms.json` holds how
often a metric's columns have each; `python -m lab.forms` counts it over runs of the lab, published runs and our
samples. Properties depend on each other, so the sum of their log-odds is multiplied by `TEMPER`.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import GAUSSIAN_ENTROPY, median
from ppo_doctor.model.frozen import frozen
from ppo_doctor.trainers.guessing.weights import LEAST_RECORDS, SMOOTHING, TEMPER, UNUSUAL_RUNS

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray

#: Columns that are none of the metrics counted.
OTHER = "other"

#: property → classes of a column that has them: metric → property → class → weighted number of columns
Counts = Mapping[str, Mapping[str, Mapping[str, float]]]


@frozen
class Numbers:
    """The finite numbers of a column, with their median size, start, end and step."""

    known: FloatArray
    size: float
    start: float
    end: float
    step: float

    @property
    def still(self) -> bool:
        """Tell whether all numbers are the same."""
        return bool(self.known.min() == self.known.max())

    @property
    def zero(self) -> bool:
        """Tell whether all numbers are 0, up to rounding in float64."""
        return bool((np.abs(self.known) < 1e-12).all())


def numbers(values: FloatArray) -> Numbers | None:
    """Return the numbers of a column, None if there are none or it is a counter, a clock or a flag."""
    known = values[np.isfinite(values)]
    return None if not len(known) or counts_up(known) or ticks(known) or is_flag(known) else described(known)


def described(known: FloatArray) -> Numbers:
    """Return finite numbers with their median size, start, end and step."""
    part = max(3, len(known) // 10)
    return Numbers(
        known=known,
        size=median(np.abs(known)),
        start=median(known[:part]),
        end=median(known[-part:]),
        step=median(np.abs(np.diff(known))) if len(known) > 1 else 0.0,
    )


def counts_up(known: FloatArray) -> bool:
    """Tell whether a column is a counter: whole numbers that grow in nine of ten records."""
    return len(known) > 1 and bool((known % 1 == 0).all()) and bool((np.diff(known) > 0).mean() > 0.9)


def ticks(known: FloatArray) -> bool:
    """Tell whether a column is a clock: it grows evenly, and starts at a multiple of its step."""
    each = float(known[-1] - known[0]) / (len(known) - 1) if len(known) >= LEAST_RECORDS else 0.0
    if not each > 0 or not np.isfinite(each):
        return False
    beside = np.abs(known - known[0] - each * np.arange(len(known)))
    return bool((beside < 0.15 * each).all()) and abs(float(known[0]) / each % 1 - 0.5) > 0.4


def is_flag(known: FloatArray) -> bool:
    """Tell whether a column is a flag: 1 in some records and 0 in all others."""
    return len(known) >= LEAST_RECORDS and bool(((known == 0) | (known == 1)).all()) and bool(np.ptp(known))


def _rough(n: Numbers) -> float:
    """Return von Neumann's ratio: 0 for a smooth course, 1 for noise."""
    return float(np.square(np.diff(n.known)).mean() / (2.0 * n.known.var()))


#: No entropy begins higher.
LARGEST_START = 1e6


def _fresh(n: Numbers) -> float:
    """Return 1 if the start is the entropy of n equal actions, 2 if of a Gaussian with a round deviation, else 0."""
    start = median(n.known[:3])
    if not abs(start) < LARGEST_START:  # a sum of two huge numbers may be infinite
        return 0.0
    if start > 0 and any(
        abs(start / math.log(k) - 1) < 0.015 or abs(start / math.log2(k) - 1) < 0.005 for k in range(2, 33)
    ):
        return 1.0
    each = ((start / k - GAUSSIAN_ENTROPY, 0.0006 / k) for k in range(1, 9))
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
    "one": (lambda n: abs(median(n.known) - 1.0), (0.005, 0.05, 0.25)),
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


#: Metrics that scripts log more often than trainers do: the logarithm of the share of 58 scripts that log them.
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
    """Return how much likelier a form is for a metric than for something else, in nats.

    It is 0 if no columns of the metric were counted, or the column has no form. An unusual form counts against a
    metric only as far as runs with unusual columns are rare.
    """
    odds = _log_odds().get(metric)
    if odds is None or not form_of:
        return 0.0
    weight = TEMPER * sum(odds[name][k] for name, k in form_of.items())
    return math.log(UNUSUAL_RUNS + (1.0 - UNUSUAL_RUNS) * math.exp(min(weight, 50.0)))
