"""The closed vocabulary of tests: a clause compared with one quantity gives yes, no or unknown, with its evidence.

A printed number is an interval; if it straddles the bound, the answer is unknown. A number nearer to a bound than its
arithmetic resolves equals the bound. Only finite values are compared, because `nan > bound` is false and would make a
ruined run clear.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from ppo_doctor.checks.run_kind import never_logged, not_for
from ppo_doctor.checks.run_view import inputs, metrics_wanted, takes_a_log
from ppo_doctor.model.arrays import median
from ppo_doctor.model.rules import Evidence, Finding
from ppo_doctor.model.run import SINGLE, Fact, Series

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.rules import Clause, Rule
    from ppo_doctor.model.run import BoolArray, FloatArray
    from ppo_doctor.model.words import Operator, Status

#: Places of records in a series.
Picked: TypeAlias = "range | npt.NDArray[np.intp]"

OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {"equals": "==", "below": "<", "at most": "<=", "above": ">", "at least": ">="}
)
#: The test that holds where another does not, for finite numbers.
OPPOSITES: Mapping[str, str] = MappingProxyType({"above": "at most", "at least": "below"})
#: Which of the values that a clause holds for is told, and where it says so: the one that comes nearest to the bound.
EXTREMES: Mapping[str, tuple[str, bool]] = MappingProxyType(
    {"below": ("max", True), "at most": ("max", True), "above": ("min", False), "at least": ("min", False)}
)
STATISTICS: Mapping[str, Callable[[FloatArray], float]] = MappingProxyType(
    {
        "median": median,
        "min": lambda v: float(v.min()),
        "max": lambda v: float(v.max()),
        "first": lambda v: float(v[0]),
        "last": lambda v: float(v[-1]),
    }
)


class Outcome(NamedTuple):
    """What one clause says: truth (None: cannot be told, see `reason`), evidence and the first step that it holds.

    `counted` replaces the evidence where it is a number of things of which each has its own.
    """

    truth: bool | None
    evidence: Evidence | None = None
    onset: int | None = None
    reason: str = ""
    counted: tuple[Evidence, ...] = ()


def evaluate(clause: Clause, quantity: Series | Fact, *, min_points: int) -> Outcome:
    """Hold one clause against one quantity."""
    if isinstance(quantity, Fact):
        return _fact(clause, quantity)
    finite = np.isfinite(quantity.values)
    usable = int(np.count_nonzero(finite))
    if usable < max(1, min_points):
        return Outcome(truth=None, reason=f"{quantity.name} has {usable} finite records, {min_points} are needed")
    chosen = window(clause.window, usable)
    if usable == len(finite):  # the usual case: a range and a view, where an index of 100,000 records takes 0.3 ms
        picked: Picked = range(usable)[chosen]
        values = quantity.values[chosen]
    else:
        picked = finite.nonzero()[0][chosen]
        values = quantity.values[picked]
    test = _each if clause.statistic == "each" else _statistic
    return test(clause, quantity, picked, values)


def window(name: str, size: int) -> slice:
    """Return the part of `size` records that a window means; a tail is cut by the test itself.

    "middle" leaves out the first and last tenth, where schedules warm up and end; "early" is the first half.
    """
    if name == "middle":
        edge = size // 10 + (size >= 3)
        return slice(edge, size - edge) if size > 2 * edge else slice(0, size)
    if name == "early":
        return slice(0, max(1, size // 2))
    return slice(0, size)


def compare(test: str, values: FloatArray, margin: float, bound: float, slack: float) -> tuple[BoolArray, BoolArray]:
    """Return (surely, possibly) per value, each printed to within ± margin; within ± slack of the bound is at it."""
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


def _slack(bound: float, rounding: float) -> float:
    return rounding + SINGLE * abs(bound)


def _each(clause: Clause, series: Series, picked: Picked, values: FloatArray) -> Outcome:
    surely, possibly = _compared(clause, series, values)
    start = _start(clause, surely)
    if start is None and _start(clause, possibly) is not None:
        return Outcome(truth=None, reason=_too_coarse(series))
    first = start or 0
    holds = surely.nonzero()[0] if not first else first + surely[first:].nonzero()[0]
    evidence = _evidence(clause, series, picked, values, first, holds)
    onset = int(series.axis.steps[picked[int(holds[0])]]) if start is not None and len(holds) else None
    return Outcome(truth=start is not None, evidence=evidence, onset=onset)


def _compared(clause: Clause, series: Series, values: FloatArray) -> tuple[BoolArray, BoolArray]:
    """Return where a clause surely and possibly holds for values of a series, as it prints them."""
    slack = _slack(clause.bound, series.resolution.rounding)
    return compare(clause.test, values, series.resolution.absolute, clause.bound, slack)


def _too_coarse(series: Series) -> str:
    return f"{series.name} is printed to ±{series.resolution.absolute:.0e}, too coarse to tell"


def _start(clause: Clause, holds: BoolArray) -> int | None:
    """Return where the clause begins to hold: 0 for the whole window, the first record of a tail, or None."""
    size = len(holds)
    if clause.window != "tail":
        count = np.count_nonzero(holds)
        return 0 if count and count >= clause.share * size - 1e-9 else None
    # A record from which the clause holds to the end is one where it holds itself: only those are asked.
    shortest = max(clause.least * size, min(clause.least_records, size))
    if np.count_nonzero(holds) < clause.share * shortest - 1e-9:
        return None
    at = holds.nonzero()[0]
    length = size - at
    # The margin keeps a share such as 0.55 of 100 from asking for one record more than 55.
    begins = (np.arange(len(at), 0, -1) >= clause.share * length - 1e-9) & (length >= shortest)
    first = int(begins.argmax()) if len(at) else 0
    return int(at[first]) if len(at) and begins[first] else None


def _evidence(
    clause: Clause, series: Series, picked: Picked, values: FloatArray, first: int, holds: npt.NDArray[np.intp]
) -> Evidence:
    """Return the evidence of the records from `first` on, of which the clause surely holds in `holds`."""
    count = len(holds)
    of = len(values) - first
    foremost = int(holds[0]) if count else first
    word, at = "value", foremost
    if clause.test in EXTREMES:
        word, highest = EXTREMES[clause.test]
        among = values[holds] if count and count < of else values[first:]
        place = int(among.argmax() if highest else among.argmin())
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


def _statistic(clause: Clause, series: Series, picked: Picked, values: FloatArray) -> Outcome:
    observed = STATISTICS[clause.statistic](values)
    sure, possible = _compared(clause, series, np.asarray(observed))
    surely = bool(sure)
    if possible and not surely:
        return Outcome(truth=None, reason=_too_coarse(series))
    steps = (int(series.axis.steps[picked[0]]), int(series.axis.steps[picked[-1]]))
    evidence = Evidence(
        metric=series.name,
        raw=series.says or series.raw,
        statistic=f"{clause.statistic} over {len(values)} records",
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
    return Outcome(truth=surely, evidence=evidence, onset=steps[0] if surely else None)


def _fact(clause: Clause, fact: Fact) -> Outcome:
    if (value := fact.number) is None:
        return Outcome(truth=None, reason=f"{fact.name} is {fact.value!r}, not a number")
    if not math.isfinite(value):
        return Outcome(truth=None, reason=f"{fact.name} is not finite")
    surely = bool(compare(clause.test, np.asarray(value), 0.0, clause.bound, _slack(clause.bound, 0.0))[0])
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
    return Outcome(truth=surely, evidence=evidence, onset=fact.since if surely else None, counted=fact.counted)


#: The facts that all records of a run were computed from tensors, and that there is a configuration and no record.
FROM_TENSORS, FROM_SETTINGS = "from_tensors", "from_settings"
NO_LOG = "needs a log, and only a configuration was given"
A_LOG = "a guess from settings alone: there is a log, which tells what happened"


def run_rules(view: RunView, rules: Iterable[Rule], *, debug: bool = False) -> tuple[Finding, ...]:
    """Return one finding per rule: numerics first, the rest in the order of their codes."""
    by_code = sorted(rules, key=attrgetter("code"))
    ordered = sorted(by_code, key=lambda rule: rule.link != "numerics")
    return tuple([_guarded(view, rule, debug) for rule in ordered])


def _guarded(view: RunView, rule: Rule, debug: bool) -> Finding:
    try:
        return check(view, rule)
    except Exception as error:  # a broken rule becomes a finding of its own; it counts as skipped, never as passed
        if debug:
            raise
        return _finding(rule, "errored", reason=f"{type(error).__name__}: {error}")


def check(view: RunView, rule: Rule) -> Finding:
    """Evaluate one rule on one run."""
    if (reason := view.kind.excludes(rule.kind) or not_for(view, rule.needs) or _constant(view, rule)) is not None:
        return _skipped(rule, reason, applies=False)
    if rule.before_training and FROM_SETTINGS not in view.run.facts:
        return _skipped(rule, A_LOG)
    get = view.get
    missing = [need for need in rule.needs if get(need) is None]
    if missing:
        return _missing(view, rule, tuple(missing))
    least = _least(view, rule)
    return _conclude(rule, [_outcome(view, clause, least) for clause in rule.when])


def _outcome(view: RunView, clause: Clause, least: int) -> Outcome:
    quantity = view.get(clause.quantity)
    if quantity is None:
        raise LookupError(f"{clause.quantity} vanished")
    return evaluate(clause, quantity, min_points=least)


def _least(view: RunView, rule: Rule) -> int:
    """Return how many records a rule needs: of a dump, which holds every sample, one may be enough."""
    if rule.min_points_tensor is None or FROM_TENSORS not in view.run.facts:
        return rule.min_points
    return rule.min_points_tensor


def _constant(view: RunView, rule: Rule) -> str | None:
    """Return why what a rule looks at cannot vary in this run; None if it can, or the rule does not ask."""
    if not rule.not_when_single_update:
        return None
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
    held = view.held
    absent = tuple([name for name in wanted if name not in held])
    if FROM_SETTINGS in view.run.facts and (not absent or any(map(takes_a_log, missing))):
        return _skipped(rule, NO_LOG)
    return _skipped(rule, needs if absent else _untold(missing), absent)


@cache  # two rules in three lack something in a usual log, and the runs of a sweep lack the same
def _needs(missing: tuple[str, ...], never: frozenset[str]) -> tuple[tuple[str, ...], str]:
    """Return the metrics that would make quantities computable, and what they need in words."""
    names = [need.partition(".")[2] for need in missing]
    wanted = dict.fromkeys(metric for name in names for metric in metrics_wanted(name, never))
    return tuple(wanted), f"needs {'; '.join(map(inputs, names))}"


@cache
def _untold(missing: tuple[str, ...]) -> str:
    """Return what cannot be told although all that it takes is there: too few records, say, or all of them alike."""
    names = [need.partition(".")[2] for need in missing]
    return "; ".join(f"the log does not hold enough to tell {name.replace('_', ' ')}" for name in names)


def _conclude(rule: Rule, outcomes: list[Outcome]) -> Finding:
    """Kleene's AND: one no is no; else one unknown is unknown; else yes."""
    truths = [outcome.truth for outcome in outcomes]
    if False not in truths and None in truths:
        return _finding(rule, "skipped", reason="; ".join(o.reason for o in outcomes if o.truth is None))
    told = [outcome.counted or (outcome.evidence,) for outcome in outcomes]
    evidence = tuple([entry for entries in told for entry in entries if entry])
    if False in truths:
        return _finding(rule, "clear", evidence=evidence)
    onsets = [outcome.onset for outcome in outcomes if outcome.onset is not None]
    return _finding(rule, "fired", evidence=evidence, onset=max(onsets, default=None))


@lru_cache(maxsize=2048)  # two rules in three, and the same ones in each run of a sweep
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
    )
