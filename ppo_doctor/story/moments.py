"""The table of a story: the metrics that matter, at the moments that tell."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.evidence import drawn
from ppo_doctor.model import OUTCOMES
from ppo_doctor.story.model import Course, Moment, Row, Table
from ppo_doctor.story.numbers import short
from ppo_doctor.story.usual import usual

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ppo_doctor.model import Finding, Run, Series
    from ppo_doctor.model.run import IntArray

#: Rows of a table, and how many of them the evidence of the leading cause may take.
MOST_ROWS, MOST_OF_EVIDENCE = 6, 4
#: What every run is judged by: of each the first that is logged.
MATTERS = (
    OUTCOMES["reward"],
    ("policy_loss", "loss"),
    ("approx_kl", "approx_kl_k2", "approx_kl_k1", "ref_kl"),
    ("clip_fraction",),
    OUTCOMES["entropy"],
    ("explained_variance", "value_loss"),
    ("response_length", "episode_length"),
    ("grad_norm",),
    ("learning_rate",),
)
#: Metrics that only count, and tell nothing beside the step.
COUNTERS = ("env_steps", "optimizer_steps_total")
#: A table begins where all of its metrics are logged, if that leaves at least this share of the run's records.
MOST_OF_THE_RUN = 0.8
#: So many records whose steps end within this share of the run are counted by another clock.
MANY, OTHERWISE = 8, 0.1
#: Numbers that make a course, and records of a run of which a metric with fewer of them tells none.
COURSE, LONG = 2, 12
#: Longest gaps between two of its records after which a metric is not logged any more.
ENDED = 2
#: By this factor a metric has grown from its first number to its last.
GROWS = 1.2
#: Numbers at moments are alike within this share of the largest; a metric swings by so many times more than that.
FEWEST_ALIKE, ALIKE, SWINGS = 3, 0.1, 1.0
#: How far behind the onset to look again, as a share of what is left of the run.
AFTER = 0.25


def table(
    run: Run,
    telling: Sequence[Finding],
    onset: int | None,
    *,
    updates: float | None,
    expected: Iterable[Finding],
    calm: bool,
) -> Table | None:
    """Return the table of a run with so many updates per batch; None where no metric is logged.

    What lies outside its usual range is remarked on, and so is that it is to be expected, or that a `calm` run shows no
    harm of it.
    """
    chosen = [run.series[name] for name in _chosen(run, telling)]
    if not chosen:
        return None
    moments = _moments(_steps(chosen), onset)
    explained = {name for finding in expected for e in finding.evidence for name in drawn(e, run)}
    rows = []
    for series in chosen:
        range_, held = usual(run, series.name, updates), values(series, moments)
        off = range_.remark(held) if range_ is not None else ""
        word = off and ("expected" if series.name in explained else f"{off}, no harm seen" if calm else off)
        rows.append(Row(name=series.name, key=series.raw, values=held, usual=str(range_ or ""), remark=word))
    told = {row.name: row for row in rows}
    return Table(
        moments=moments, rows=tuple(replace(row, remark=row.remark or _asked(row, told, run, updates)) for row in rows)
    )


def _asked(row: Row, told: Mapping[str, Row], run: Run, updates: float | None) -> str:
    """Return what people ask about a row: why an entropy rises, or a KL while less is clipped; what a norm is of."""
    if row.name == "entropy" and _grew(row) > GROWS:
        return "rises: more random"
    if row.name == "clip_fraction" and 0 < _grew(row) < 1 / GROWS and _grew(told.get("approx_kl")) > GROWS:
        return "falls, KL rises: few move far"
    if spread := _swings(row, run.series[row.name]):
        return spread
    if row.name == "grad_norm" and updates != 1 and (run.series["grad_norm"].aggregation or "").startswith("last"):
        return "of the last update only"
    return ""


def _swings(row: Row, series: Series) -> str:
    """Return the range of a metric whose numbers at the moments are alike by chance; nothing where they tell it."""
    held = series.values[np.isfinite(series.values)]
    known = [value for value in row.values if value is not None]
    if len(known) < FEWEST_ALIKE or not len(held):
        return ""
    size, low, high = max(map(abs, known)), float(held.min()), float(held.max())
    alike = max(known) - min(known) <= ALIKE * size
    return f"ranges {short(low)} to {short(high)}" if alike and high - low >= SWINGS * size > 0 else ""


def _grew(row: Row | None) -> float:
    """Return the last number of a row over its first, where both are above 0; else 0."""
    known = [value for value in row.values if value is not None] if row is not None else []
    return known[-1] / known[0] if known and min(known[0], known[-1]) > 0 else 0.0


def _chosen(run: Run, telling: Iterable[Finding]) -> list[str]:
    """Return the metrics of the evidence, then those that matter to every run."""
    held = {name for name, series in run.series.items() if len(series) and series.how == "observed"}
    logged = held.difference(COUNTERS)
    spoken = dict.fromkeys(name for f in telling for e in f.evidence for name in drawn(e, run) if name in logged)
    followed = {name for name in logged if name in OUTCOMES["reward"] or not _once(run.series[name], run)}
    usual = [name for names in MATTERS for name in [n for n in names if n in followed][:1]]
    if (reward := run.outcome([name for name in OUTCOMES["reward"] if name in logged])) is not None:
        usual[0] = reward.name
    twins = {name for name in spoken if reward is not None and _equal(run.series[name], reward)}
    first = [name for name in spoken if name not in twins][:MOST_OF_EVIDENCE]
    by_key: dict[str, str] = {}  # one column may be two metrics
    for name in (*first, *usual):
        by_key.setdefault(run.series[name].raw, name)
    return list(by_key.values())[:MOST_ROWS]


def _once(series: Series, run: Run) -> bool:
    """Tell whether a metric has one number where others have many: that is no course of it."""
    most = max(map(len, run.series.values()))
    return int(np.isfinite(series.values).sum()) < COURSE and most >= LONG


def _equal(one: Series, other: Series) -> bool:
    """Tell whether a metric is another one's numbers under another name; what never varies is equal by chance."""
    return one is not other and np.array_equal(one.values, other.values) and bool(np.ptp(one.values) > 0)


def _steps(chosen: Sequence[Series]) -> IntArray:
    """Return the steps of metrics, from where all of them are logged if that is near the start."""
    axes = {id(series.axis): series.axis for series in chosen}
    steps: IntArray = np.unique(np.concatenate([axis.steps for axis in axes.values()]))
    common = steps[steps >= max(int(axis.steps[0]) for axis in axes.values())]
    return common if len(common) >= MOST_OF_THE_RUN * len(steps) else steps


def _moments(steps: IntArray, onset: int | None) -> tuple[Moment, ...]:
    """Return start, before, onset, after and end; of a run without an onset, or with one at its start, its middle."""
    last = len(steps) - 1
    at = int(np.searchsorted(steps, onset)) if onset is not None else 0
    if 0 < at <= last:
        after = min(at + max(1, round(AFTER * (last - at))), last)
        spots = {0: "start", at - 1: "before", after: "after", last: "end", at: "onset"} | {0: "start"}
    else:
        spots = {last // 2: "middle", last: "end", 0: "start"}
    return tuple(Moment(name=spots[index], step=int(steps[index])) for index in sorted(spots))


def entropy(run: Run, moments: Sequence[Moment]) -> Course | None:
    """Return what became of the entropy, from the first of the moments, or where it begins, to the last."""
    series = run.outcome(OUTCOMES["entropy"])
    if series is None or not len(series) or series.how != "observed" or _once(series, run):
        return None
    first, last = values(series, (moments[0], moments[-1]))
    if last is None:
        return None
    return Course(word="entropy", key=series.raw, first=float(series.values[0]) if first is None else first, last=last)


def values(series: Series, moments: Sequence[Moment]) -> tuple[float | None, ...]:
    """Return what was last logged of a metric at each moment, nothing where it ended long before.

    A metric of many records whose steps all lie in the first tenth counts another way, updates beside environment
    steps: of it what stands as far into its records as the moment into the run.
    """
    steps = np.asarray([moment.step for moment in moments])
    places = np.searchsorted(series.axis.steps, steps, side="right") - 1
    if len(series) >= MANY and len(steps) > 1 and series.axis.steps[-1] < steps[-1] * OTHERWISE:
        places = np.rint((len(series) - 1) * steps / steps[-1]).astype(np.int64)
        return tuple(float(series.values[place]) for place in places.tolist())
    logged = series.axis.steps
    kept = ENDED * int(np.diff(logged).max()) if len(logged) > 1 else int(steps.max(initial=0))
    ends = steps - logged[np.maximum(places, 0)] > kept
    known = [place >= 0 and not ended for place, ended in zip(places.tolist(), ends.tolist(), strict=True)]
    held = zip(places.tolist(), known, strict=True)
    return tuple(float(series.values[place]) if shown else None for place, shown in held)
