"""Budgets of a policy: `approx_kl.p95 < 0.05` holds one statistic of one metric against one number."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.evidence import number
from ppo_doctor.metrics import METRICS
from ppo_doctor.ruling import Held, Spent

if TYPE_CHECKING:
    from ppo_doctor.model import FloatArray, Run
    from ppo_doctor.ruling import Outcome

STATISTICS = ("first", "last", "min", "max", "mean", "median")
OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_BUDGET = re.compile(r"\s*(\w+)\.(\w+)\s*(<=|>=|<|>)\s*([+-]?[\d.]+(?:[eE][+-]?\d+)?)\s*\Z")
_PERCENTILE = re.compile(r"p(\d{1,2}|100)\Z")
FORM = "write METRIC.STATISTIC < NUMBER, for example approx_kl.p95 < 0.05"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A bound on one statistic of one metric."""

    text: str
    metric: str
    statistic: str
    op: str
    bound: float


def parse_budget(text: str, where: str) -> Budget:
    """Return the budget that a line of a policy states.

    Raises:
        DoctorError: it is none, or names no metric or statistic of ours (exit code 2).
    """
    match = _BUDGET.match(text)
    if match is None:
        raise DoctorError(f"{where}: budget '{text}' is none", hint=FORM, code=ExitCode.USAGE)
    metric, statistic, op, bound = match.groups()
    if metric not in METRICS:
        raise _unknown(where, text, "metric", metric, list(METRICS))
    if statistic not in STATISTICS and not _PERCENTILE.match(statistic):
        raise _unknown(where, text, "statistic", statistic, [*STATISTICS, "p95"])
    try:
        return Budget(text=text.strip(), metric=metric, statistic=statistic, op=op, bound=float(bound))
    except ValueError:
        raise DoctorError(f"{where}: budget '{text}': '{bound}' is no number", hint=FORM, code=ExitCode.USAGE) from None


def _unknown(where: str, text: str, what: str, name: str, known: Sequence[str]) -> DoctorError:
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else FORM if what == "metric" else f"one of {', '.join(known)}"
    return DoctorError(f"{where}: budget '{text}': no {what} '{name}'", hint=hint, code=ExitCode.USAGE)


def hold(budget: Budget, runs: Sequence[Run]) -> Held:
    """Hold a budget against a run; against several seeds, by the median of their statistics.

    A budget that no run can answer stays open: what could not be checked never looks like what passed.
    """
    import statistics

    values = [value for run in runs if (value := measured(budget, run)) is not None]
    if not values:
        says = f"budget {budget.text} cannot be checked: the log has no {budget.metric}"
        return _held(budget, "open", says, None, 0)
    value = statistics.median(values) if all(map(math.isfinite, values)) else math.nan
    over = f", median of {len(values)} runs" if len(runs) > 1 else ""
    holds = OPERATORS[budget.op](value, budget.bound)
    says = f"budget {budget.text} {'holds' if holds else 'is broken'}: {budget.statistic} is {number(value)}{over}"
    return _held(budget, "passed" if holds else "failed", says, value, len(values))


def _held(budget: Budget, outcome: Outcome, says: str, value: float | None, runs: int) -> Held:
    spent = Spent(
        metric=budget.metric, statistic=budget.statistic, op=budget.op, bound=budget.bound, value=value, runs=runs
    )
    return Held(kind="budget", name=budget.text, outcome=outcome, says=says, spent=spent)


def measured(budget: Budget, run: Run) -> float | None:
    """Return the statistic of a run, None where it has no such metric.

    `first` and `last` are the records themselves, NaN included, which breaks every budget; the others leave out what
    is not finite, unless nothing else is there.
    """
    series = run.series.get(budget.metric)
    if series is None or not len(series):
        return None
    if budget.statistic in ("first", "last"):
        return float(series.values[0 if budget.statistic == "first" else -1])
    return _statistic(budget.statistic, series.values)


def _statistic(name: str, values: FloatArray) -> float:
    import numpy as np

    finite = values[np.isfinite(values)]
    if not finite.size:
        return math.nan
    percentile = _PERCENTILE.match(name)
    if percentile:
        return float(np.percentile(finite, int(percentile[1])))
    return float(getattr(np, name)(finite))
