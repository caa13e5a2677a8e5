"""Evaluate rules: each condition compares a quantity of a run with a bound and is true, false or unknown.

A printed number is an interval; if the interval contains the bound, the answer is unknown. A number nearer to the bound
than its arithmetic resolves equals the bound. Only finite values are compared, because `nan > bound` is false and would
make a broken run look sound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import numpy as np

from ppo_doctor.checks.run_kind import never_logged, not_for
from ppo_doctor.checks.run_view import inputs, metrics_used, metrics_wanted, takes_a_log
from ppo_doctor.checks.series import finite
from ppo_doctor.checks.statistics import ways
from ppo_doctor.model.arrays import median
from ppo_doctor.model.metrics import OBSERVED
from ppo_doctor.model.rules import OPERATORS, Evidence, Finding
from ppo_doctor.model.run import SINGLE, Fact, Series

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.rules import Clause, Rule
    from ppo_doctor.model.run import BoolArray, CodePlace, FloatArray
    from ppo_doctor.model.words import Status

#: Places of records in a series.
Picked: TypeAlias = "range | npt.NDArray[np.intp]"

#: Comparison that is true for finite numbers where the other is false.
OPPOSITES: Mapping[str, str] = MappingProxyType({"above": "at_most", "at_least": "below"})
#: Comparisons whose evidence is the largest of the values for which they hold; for the others it is the smallest.
_UPPER_BOUNDS = ("below", "at_most")


class Answer(NamedTuple):
    """The answer of one condition: truth (None: unknown, for `reason`), evidence, and the step from which it holds.

    `counted` replaces `evidence` if the number counts things that have evidence of their own.
    """

    truth: bool | None
    evidence: Evidence | None = None
    onset: int | None = None
    reason: str = ""
    counted: tuple[Evidence, ...] = ()


def evaluate(clause: Clause, quantity: Series | Fact, *, min_points: int) -> Answer:
    """Return the answer of one condition for a quantity of a run."""
    if isinstance(quantity, Fact):
        return _fact(clause, quantity)
    usable = len(finite(quantity))
    if usable < max(1, min_points):
        return Answer(truth=None, reason=f"{quantity.name} has {usable} finite records, {min_points} are needed")
    chosen = window(clause.window, usable)
    if usable == len(quantity):  # the usual case; an index array of 100,000 records takes 0.3 ms
        picked: Picked = range(usable)[chosen]
        values = quantity.values[chosen]
    else:
        picked = np.isfinite(quantity.values).nonzero()[0][chosen]
        values = quantity.values[picked]
    compare_them = _each if clause.take == "each" else _taken
    return compare_them(clause, quantity, picked, values)


def window(name: str, size: int) -> slice:
    """Return the part of `size` records that a window means; where a tail begins depends on the values."""
    return slice(0, max(1, size // 2)) if name == "early" else slice(0, size)


def compare(test: str, values: FloatArray, margin: float, bound: float, slack: float) -> tuple[BoolArray, BoolArray]:
    """Return for each value whether the comparison surely holds, and whether it possibly does; both [values].

    A value is known to ± `margin`, and equals the bound within ± `slack`.
    """
    if test in OPPOSITES:
        surely, possibly = compare(OPPOSITES[test], values, margin, bound, slack)
        return ~possibly, ~surely
    low, high = values - margin, values + margin
    least, most = bound - slack, bound + slack
    if test == "equals":
        return (low >= least) & (high <= most), (low <= most) & (high >= least)
    if test == "below":
        return high < least, low < least
    return high <= most, low <= most


def _each(clause: Clause, series: Series, picked: Picked, values: FloatArray) -> Answer:
    surely, possibly = _compared(clause, series, values)
    start = _start(clause, surely)
    if start is None and _start(clause, possibly) is not None:
        return Answer(truth=None, reason=_too_coarse(series))
    first = start or 0
    holds = surely.nonzero()[0] if not first else first + surely[first:].nonzero()[0]
    evidence = _evidence(clause, series, picked, values, first, holds)
    onset = int(series.axis.steps[picked[int(holds[0])]]) if start is not None and len(holds) else None
    return Answer(truth=start is not None, evidence=evidence, onset=onset)


def _compared(clause: Clause, series: Series, values: FloatArray) -> tuple[BoolArray, BoolArray]:
    """Return for each value of a series whether a condition surely holds, and whether it possibly does."""
    slack = series.resolution.rounding + SINGLE * abs(clause.bound)
    return compare(clause.test, values, series.resolution.absolute, clause.bound, slack)


def _one(value: float) -> FloatArray:
    """Return a number to compare in the place of an array of one, which would take five times as long."""
    return cast("FloatArray", np.float64(value))


def _too_coarse(series: Series) -> str:
    return f"{series.name} is printed to ±{series.resolution.absolute:.0e}, too coarse to tell"


def _start(clause: Clause, holds: BoolArray) -> int | None:
    """Return the record from which the condition holds (0 unless the window is a tail), or None if it does not."""
    size = len(holds)
    if clause.window != "tail":
        count = np.count_nonzero(holds)
        return 0 if count and count >= clause.share * size - 1e-9 else None
    # A tail begins with a record for which the comparison holds, so only those are examined.
    shortest = max(clause.least * size, min(clause.least_records, size))
    if np.count_nonzero(holds) < clause.share * shortest - 1e-9:
        return None
    at = holds.nonzero()[0]
    length = size - at
    # The margin prevents that 0.55 of 100 records requires 56.
    begins = (np.arange(len(at), 0, -1) >= clause.share * length - 1e-9) & (length >= shortest)
    first = int(begins.argmax()) if len(at) else 0
    return int(at[first]) if len(at) and begins[first] else None


def _evidence(
    clause: Clause, series: Series, picked: Picked, values: FloatArray, first: int, holds: npt.NDArray[np.intp]
) -> Evidence:
    """Return the evidence of the records from `first` on; the comparison surely holds for the records `holds`."""
    count = len(holds)
    of = len(values) - first
    foremost = int(holds[0]) if count else first
    word, at = "value", foremost
    if clause.test != "equals":  # state the value that is nearest to the bound
        word = "max" if clause.test in _UPPER_BOUNDS else "min"
        among = values[holds] if count and count < of else values[first:]
        place = int(among.argmax() if word == "max" else among.argmin())
        at = int(holds[place]) if count else first + place
    return Evidence(
        metric=series.name,
        raw=series.says or series.raw,
        statistic=f"{word} over {count} of {of} records",
        observed=float(values[at]),
        op=OPERATORS[clause.test],
        bound=clause.bound,
        unit=series.unit,
        bound_source=clause.bound_source,
        steps=(int(series.axis.steps[picked[first]]), int(series.axis.steps[picked[-1]])),
        satisfied=count,
        of=of,
        source=series.source(int(picked[foremost])),
    )


def _taken(clause: Clause, series: Series, picked: Picked, values: FloatArray) -> Answer:
    observed = _take(clause.take, values)
    sure, possible = _compared(clause, series, _one(observed))
    surely = bool(sure)
    if possible and not surely:
        return Answer(truth=None, reason=_too_coarse(series))
    steps = (int(series.axis.steps[picked[0]]), int(series.axis.steps[picked[-1]]))
    evidence = Evidence(
        metric=series.name,
        raw=series.says or series.raw,
        statistic=f"{clause.take} over {len(values)} records",
        observed=observed,
        op=OPERATORS[clause.test],
        bound=clause.bound,
        unit=series.unit,
        bound_source=clause.bound_source,
        steps=steps,
        satisfied=int(surely),
        of=1,
        source=series.source(int(picked[0])),
    )
    return Answer(truth=surely, evidence=evidence, onset=steps[0] if surely else None)


def _take(name: str, values: FloatArray) -> float:
    if name == "median":
        return median(values)
    if name in ("first", "last"):
        return float(values[0 if name == "first" else -1])
    return float(values.min() if name == "min" else values.max())


def _fact(clause: Clause, fact: Fact) -> Answer:
    if (value := fact.number) is None:
        return Answer(truth=None, reason=f"{fact.name} is {fact.value!r}, not a number")
    if not math.isfinite(value):
        return Answer(truth=None, reason=f"{fact.name} is not finite")
    surely = bool(compare(clause.test, _one(value), 0.0, clause.bound, SINGLE * abs(clause.bound))[0])
    evidence = Evidence(
        metric=fact.name,
        raw=(fact.source.key if fact.source and fact.source.key else fact.name),
        statistic=fact.says or ("" if fact.denied else fact.how),
        denied=fact.denied,
        observed=value,
        op=OPERATORS[clause.test],
        bound=clause.bound,
        unit=fact.unit,
        bound_source=clause.bound_source,
        satisfied=int(surely),
        of=1,
        source=fact.source,
    )
    return Answer(truth=surely, evidence=evidence, onset=fact.since if surely else None, counted=fact.counted)


#: Facts of a run: all records were computed from tensors; there is a configuration and no log.
FROM_TENSORS, FROM_SETTINGS = "from_tensors", "from_settings"
NO_LOG = "needs a log, and only a configuration was given"


def run_rules(view: RunView, rules: Iterable[Rule], *, debug: bool = False) -> tuple[Finding, ...]:
    """Return one finding per rule, in the order of their codes, those about numerics first.

    Rules about what only an observation of the running script shows are left out of any other run. A rule that raises
    an exception gives an `errored` finding; with `debug` the exception is raised.
    """
    ordered = sorted(rules, key=lambda rule: (rule.link != "numerics", rule.code))
    observed = is_observed(view)
    return tuple([_guarded(view, rule, debug) for rule in ordered if observed or not _takes_observation(rule.needs)])


def is_observed(view: RunView) -> bool:
    """Return whether metrics of a run were observed in its running script."""
    return not OBSERVED.isdisjoint(view.run.series)


@cache
def _takes_observation(needs: tuple[str, ...]) -> bool:
    """Return whether one of some quantities needs a metric that only a running script shows."""
    return any(all(not OBSERVED.isdisjoint(way) for way in ways(quantity)) for quantity in needs)


def _guarded(view: RunView, rule: Rule, debug: bool) -> Finding:
    try:
        return check(view, rule)
    except Exception as error:  # one broken rule must not stop the others; it counts as skipped, not as passed
        if debug:
            raise
        return _finding(rule, "errored", reason=f"{type(error).__name__}: {error}")


def check(view: RunView, rule: Rule) -> Finding:
    """Evaluate one rule on one run."""
    if (reason := _not_applicable(view, rule)) is not None:
        return _skipped(rule, reason, applies=False)
    missing = tuple([quantity for quantity in rule.needs if view.get(quantity) is None])
    if missing:
        return _missing(view, rule, missing)
    exact = rule.min_points_tensor is not None and is_measured(view)
    least = rule.min_points_tensor if exact else rule.min_points
    return _conclude(view, rule, [_answer(view, clause, least or 0) for clause in rule.when])


def is_measured(view: RunView) -> bool:
    """Return whether the metrics of a run were computed from tensors: of its dumps, or in its running script."""
    return FROM_TENSORS in view.run.facts or is_observed(view)


def _answer(view: RunView, clause: Clause, least: int) -> Answer:
    quantity = view.get(clause.quantity)
    if quantity is None:
        raise LookupError(f"{clause.quantity} vanished")
    return evaluate(clause, quantity, min_points=least)


def _not_applicable(view: RunView, rule: Rule) -> str | None:
    reason = (view.kind.excludes(rule.kind) if rule.kind else None) or not_for(view, rule.needs)
    if reason is not None:
        return reason
    if rule.not_when_single_update:
        updates = view.fact("updates_effective")
        single = updates is not None and updates.how != "default" and 0.0 < (updates.number or 0.0) <= 1.0
        if updates is not None and single and view.fact("apart_before_the_step") is None:
            return f"constant by construction: one optimizer step per batch ({_origin(updates)})"
    return None


def _origin(fact: Fact) -> str:
    where = f", {fact.source}" if fact.source else ""
    return f"K = {fact.value:g}, {fact.says or fact.how}{where}" if isinstance(fact.value, float) else fact.how


def _missing(view: RunView, rule: Rule, missing: tuple[str, ...]) -> Finding:
    wanted, needs = _needs(missing, never_logged(view))
    absent = tuple([name for name in wanted if name not in view.held])
    if FROM_SETTINGS in view.run.facts and (not absent or any(map(takes_a_log, missing))):
        return _skipped(rule, NO_LOG)
    return _skipped(rule, needs if absent else _not_enough(missing), absent)


@cache  # two rules in three lack something in a usual log, and all runs of a sweep lack the same
def _needs(missing: tuple[str, ...], never: frozenset[str]) -> tuple[tuple[str, ...], str]:
    """Return the metrics that would make quantities computable, and a sentence of what they need."""
    wanted = dict.fromkeys(metric for quantity in missing for metric in metrics_wanted(quantity, never))
    return tuple(wanted), f"needs {'; '.join(map(inputs, missing))}"


@cache
def _not_enough(missing: tuple[str, ...]) -> str:
    """Return the reason if all inputs are logged, but with too few records, or with values that are all the same."""
    return "; ".join(f"the log does not hold enough to tell {name.replace('_', ' ')}" for name in missing)


def _conclude(view: RunView, rule: Rule, answers: list[Answer]) -> Finding:
    """Return the finding of all conditions together: clear if one is false, else skipped if one is unknown."""
    truths = [answer.truth for answer in answers]
    if False not in truths and None in truths:
        return _finding(rule, "skipped", reason="; ".join(a.reason for a in answers if a.truth is None))
    evidence = tuple([entry for answer in answers for entry in answer.counted or (answer.evidence,) if entry])
    if False in truths:
        return _finding(rule, "clear", evidence=evidence)
    onsets = [answer.onset for answer in answers if answer.onset is not None]
    place = _place(view, rule, answers) if view.run.places else None
    return _finding(rule, "fired", evidence=evidence, onset=max(onsets, default=None), place=place)


def _place(view: RunView, rule: Rule, answers: Sequence[Answer]) -> CodePlace | None:
    """Return the line of the script of the first metric that has one, condition by condition.

    The metrics of a condition are those of its evidence, and those from which its statistic is computed.
    """
    for clause, answer in zip(rule.when, answers, strict=True):
        evidence = [entry.metric for entry in answer.counted or (answer.evidence,) if entry]
        for name in (*evidence, *metrics_used(clause.quantity, view.held)):
            if (place := view.run.places.get(name)) is not None:
                return place
    return None


@lru_cache(maxsize=2048)  # two rules in three are skipped, and the same ones in each run of a sweep
def _skipped(rule: Rule, reason: str, missing: tuple[str, ...] = (), *, applies: bool = True) -> Finding:
    return _finding(rule, "skipped", reason=reason, missing=missing, applies=applies)


def _finding(
    rule: Rule,
    status: Status,
    *,
    evidence: tuple[Evidence, ...] = (),
    onset: int | None = None,
    reason: str | None = None,
    missing: tuple[str, ...] = (),
    applies: bool = True,
    place: CodePlace | None = None,
) -> Finding:
    return Finding(
        rule=rule.name,
        code=rule.code,
        title=rule.title if status != "clear" else rule.pass_title,
        link=rule.link,
        status=status,
        severity=rule.severity,
        evidence=evidence,
        onset_step=onset,
        reason=reason,
        missing=missing,
        applies=applies,
        proves=rule.proves,
        place=place,
    )
