"""The numbers of a summary: the table of metrics at key steps, their usual ranges, and the first non-finite number."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import distinct, median
from ppo_doctor.model.evidence import drawn
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.words import OUTCOMES
from ppo_doctor.report.phrases import short
from ppo_doctor.report.summary import FirstNonFinite, KeyStep, Row, Table, Trend
from ppo_doctor.trainers.detection import profile_of_settings
from ppo_doctor.trainers.settings import IN_FORCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ppo_doctor.model.rules import Finding
    from ppo_doctor.model.run import IntArray, Run, Series

#: The most rows of a table, and the most of them for the metrics of the evidence.
MOST_ROWS, MOST_OF_EVIDENCE = 6, 4
#: Metrics that matter in every run; of each row the first that is logged is used.
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
#: Counters, which repeat the step.
COUNTERS = ("env_steps", "optimizer_steps_total")
#: A table begins where all of its metrics are logged, if that leaves at least this share of the run's records.
MOST_OF_THE_RUN = 0.8
#: The steps of a metric count something else if at least `MANY` records end within the share `OTHERWISE` of the run.
MANY, OTHERWISE = 8, 0.1
#: A metric with fewer than `TREND` finite values is left out if another one has at least `LONG` records.
TREND, LONG = 2, 12
#: A metric has ended when no record follows for this many times the longest gap between two of its records.
ENDED = 2
#: A metric has risen if its last value exceeds its first by this factor.
GROWS = 1.2
#: At least `FEWEST_ALIKE` values at key steps are alike if their range is at most `ALIKE` times the largest of them;
#: the metric swings if its range over the run is at least `SWINGS` times that value.
FEWEST_ALIKE, ALIKE, SWINGS = 3, 0.1, 1.0
#: The distance of the key step "after" from the onset, as a share of the rest of the run.
AFTER = 0.25


def table(
    run: Run,
    evidence: Sequence[Finding],
    onset: int | None,
    *,
    updates: float | None,
    expected: Iterable[Finding],
    calm: bool,
) -> Table | None:
    """Return the table of a run, or None if no metric is logged.

    `updates` is the number of updates per batch. A remark says that a metric is outside its usual range, and whether
    a finding in `expected` explains it or nothing is wrong with the run (`calm`).
    """
    chosen = [run.series[name] for name in _chosen(run, evidence)]
    if not chosen:
        return None
    key_steps = _key_steps(_steps(chosen), onset)
    explained = {name for finding in expected for e in finding.evidence for name in drawn(e, run)}
    rows: dict[str, Row] = {}
    for series in chosen:
        range_, shown = usual(run, series.name, updates), values(series, key_steps)
        side = range_.remark(shown) if range_ is not None else ""
        remark = side and ("expected" if series.name in explained else f"{side}, no harm seen" if calm else side)
        rows[series.name] = Row(name=series.name, key=series.raw, values=shown, usual=str(range_ or ""), remark=remark)
    remarked = (replace(row, remark=row.remark or _remark(row, rows, run, updates)) for row in rows.values())
    return Table(key_steps=key_steps, rows=tuple(remarked))


def _remark(row: Row, rows: Mapping[str, Row], run: Run, updates: float | None) -> str:
    """Return a remark on the course of a metric, or "" if there is nothing remarkable about it."""
    if row.name == "entropy" and _grew(row) > GROWS:
        return "rises: more random"
    if row.name == "clip_fraction" and 0 < _grew(row) < 1 / GROWS and _grew(rows.get("approx_kl")) > GROWS:
        return "falls, KL rises: few move far"
    if spread := _hidden_range(row, run.series[row.name]):
        return spread
    if row.name == "grad_norm" and updates != 1 and (run.series["grad_norm"].aggregation or "").startswith("last"):
        return "of the last update only"
    return ""


def _hidden_range(row: Row, series: Series) -> str:
    """Return the range of a metric that varies although its values at the key steps are alike, else ""."""
    finite = series.values[np.isfinite(series.values)]
    known = [value for value in row.values if value is not None]
    if len(known) < FEWEST_ALIKE or not len(finite):
        return ""
    size, low, high = max(map(abs, known)), float(finite.min()), float(finite.max())
    alike = max(known) - min(known) <= ALIKE * size
    return f"ranges {short(low)} to {short(high)}" if alike and high - low >= SWINGS * size > 0 else ""


def _grew(row: Row | None) -> float:
    """Return the ratio of the last value of a row to its first, or 0 unless both are positive."""
    known = [value for value in row.values if value is not None] if row is not None else []
    return known[-1] / known[0] if known and min(known[0], known[-1]) > 0 else 0.0


def _chosen(run: Run, evidence: Iterable[Finding]) -> list[str]:
    """Return the metrics of the table: those of the evidence, then those that matter in every run."""
    observed = {name for name, series in run.series.items() if len(series) and series.how == "observed"}
    logged = observed.difference(COUNTERS)
    of_evidence = dict.fromkeys(name for f in evidence for e in f.evidence for name in drawn(e, run) if name in logged)
    trends = {name for name in logged if name in OUTCOMES["reward"] or not _once(run.series[name], run)}
    common = [name for names in MATTERS for name in [n for n in names if n in trends][:1]]
    if (reward := run.outcome([name for name in OUTCOMES["reward"] if name in logged])) is not None:
        common[0] = reward.name
    twins = {name for name in of_evidence if reward is not None and _equal(run.series[name], reward)}
    first = [name for name in of_evidence if name not in twins][:MOST_OF_EVIDENCE]
    by_key: dict[str, str] = {}  # one column may be two metrics
    for name in (*first, *common):
        by_key.setdefault(run.series[name].raw, name)
    return list(by_key.values())[:MOST_ROWS]


def _once(series: Series, run: Run) -> bool:
    """Return whether a metric has at most one finite value while another metric has many records."""
    most = max(map(len, run.series.values()))
    return int(np.isfinite(series.values).sum()) < TREND and most >= LONG


def _equal(one: Series, other: Series) -> bool:
    """Return whether two series have the same values; constant ones do not count, they may be equal by chance."""
    return one is not other and np.array_equal(one.values, other.values) and bool(np.ptp(one.values) > 0)


def _steps(chosen: Sequence[Series]) -> IntArray:
    """Return the steps of all metrics, beginning where every metric is logged if few steps are lost by that."""
    axes = {id(series.axis): series.axis for series in chosen}
    steps: IntArray = distinct(np.concatenate([axis.steps for axis in axes.values()]))
    common = steps[steps >= max(int(axis.steps[0]) for axis in axes.values())]
    return common if len(common) >= MOST_OF_THE_RUN * len(steps) else steps


def _key_steps(steps: IntArray, onset: int | None) -> tuple[KeyStep, ...]:
    """Return the key steps: start, before, onset, after and end.

    Without an onset after the first step: start, middle and end.
    """
    last = len(steps) - 1
    at = int(np.searchsorted(steps, onset)) if onset is not None else 0
    if 0 < at <= last:
        after = min(at + max(1, round(AFTER * (last - at))), last)
        spots = {0: "start", at - 1: "before", after: "after", last: "end", at: "onset"} | {0: "start"}
    else:
        spots = {last // 2: "middle", last: "end", 0: "start"}
    return tuple(KeyStep(name=spots[index], step=int(steps[index])) for index in sorted(spots))


def entropy(run: Run, key_steps: Sequence[KeyStep]) -> Trend | None:
    """Return the entropy at the first key step, or its first value if that comes later, and at the last key step.

    None if the entropy is not logged, was logged once, or ended before the last key step.
    """
    series = run.outcome(OUTCOMES["entropy"])
    if series is None or not len(series) or series.how != "observed" or _once(series, run):
        return None
    first, last = values(series, (key_steps[0], key_steps[-1]))
    if last is None:
        return None
    return Trend(word="entropy", key=series.raw, first=float(series.values[0]) if first is None else first, last=last)


def values(series: Series, key_steps: Sequence[KeyStep]) -> tuple[float | None, ...]:
    """Return the last value logged at or before each key step; None before the first and long after the last.

    If a metric has many records that all lie in the first tenth of the run, its steps count something else, such as
    updates rather than environment steps. Then the records are taken to be spread evenly over the run.
    """
    steps = np.asarray([each.step for each in key_steps])
    places = np.searchsorted(series.axis.steps, steps, side="right") - 1
    if len(series) >= MANY and len(steps) > 1 and series.axis.steps[-1] < steps[-1] * OTHERWISE:
        places = np.rint((len(series) - 1) * steps / steps[-1]).astype(np.int64)
        return tuple(float(series.values[place]) for place in places.tolist())
    logged = series.axis.steps
    kept = ENDED * int(np.diff(logged).max()) if len(logged) > 1 else int(steps.max(initial=0))
    ends = steps - logged[np.maximum(places, 0)] > kept
    return tuple(
        float(series.values[place]) if place >= 0 and not ended else None
        for place, ended in zip(places.tolist(), ends.tolist(), strict=True)
    )


@frozen(kw_only=False)
class Usual:
    """A usual range with its source; without bounds, `source` is the text to print, such as "default 0.0003"."""

    low: float | None
    high: float | None
    source: str

    def __str__(self) -> str:
        """Return the range as text, such as "0.001–0.03"."""
        if self.low is None or self.high is None:
            return self.source
        return short(self.low) if self.low == self.high else f"{short(self.low)}–{short(self.high)}"

    def remark(self, values: Sequence[float | None]) -> str:
        """Return "above" or "below" if all values are outside on that side, "ends above" if only the last; else ""."""
        known = [value for value in values if value is not None]
        sides = [self._side(value) for value in known]
        if not sides or not sides[-1]:
            return ""
        return sides[-1] if set(sides) == {sides[-1]} else f"ends {sides[-1]}"

    def _side(self, value: float) -> str:
        room = TOLERANCE * max(abs(self.low or 0), abs(self.high or 0), LEAST)
        if self.high is not None and value > self.high + room:
            return "above"
        return "below" if self.low is not None and value < self.low - room else ""


#: A value is outside a range if it is more than `TOLERANCE` times the larger bound beyond it; that bound counts as at
#: least `LEAST`.
TOLERANCE, LEAST = 0.02, 0.01
_DETAILS = "Huang et al. 2022, The 37 Implementation Details of PPO"
_SPINNING_UP = "OpenAI Spinning Up, PPO: target_kl 0.01 to 0.05, stopping at 1.5 times of it"
_DEFINITION = "by definition"
USUAL = MappingProxyType(
    {
        "approx_kl": Usual(0.001, 0.03, f"{_DETAILS}: usually below 0.02; {_SPINNING_UP}"),
        "clip_fraction": Usual(
            0.01, 0.3, "practice; nineteen of twenty sound runs of ten trainers have less than 0.33 in the median"
        ),
        "explained_variance": Usual(0.0, 1.0, f"{_DEFINITION}: 0 is as good as a constant, 1 is perfect"),
        "ratio_mean": Usual(1.0, 1.0, f"{_DEFINITION}: its expectation under the old policy is 1"),
        "rollout_ratio_mean": Usual(1.0, 1.0, f"{_DEFINITION}: sampler and trainer give the same probabilities"),
        "advantages_mean": Usual(0.0, 0.0, f"{_DEFINITION}, where advantages are normalised"),
        "advantages_std": Usual(1.0, 1.0, f"{_DEFINITION}, where advantages are normalised"),
    }
)
#: With one update per batch the policy has not moved when the loss is computed, so the ratio is exactly 1.
_ONCE = f"{_DEFINITION}: one update per batch"
USUAL_ONCE = MappingProxyType({"approx_kl": Usual(0.0, 0.0, _ONCE), "clip_fraction": Usual(0.0, 0.0, _ONCE)})
SETTINGS = MappingProxyType({metric: setting for setting, metric in IN_FORCE.items()})


def usual(run: Run, metric: str, updates: float | None) -> Usual | None:
    """Return the usual range of a metric, or None if no source documents one; `updates` is updates per batch."""
    if metric in SETTINGS:
        profile = profile_of_settings(run.framework)
        default = profile.defaults.get(SETTINGS[metric]) if profile is not None else None
        return Usual(None, None, f"default {short(default)}") if isinstance(default, float) else None
    if metric.startswith("advantages") and not _normalised(run):
        return None
    return {**USUAL, **(USUAL_ONCE if updates == 1 else {})}.get(metric)


def _normalised(run: Run) -> bool:
    setting = run.config.get("normalize_advantages")
    return setting is not None and setting.value is True


#: Metrics that can grow until they overflow.
OVERFLOWS = (
    *("grad_norm", "value_loss", "policy_loss", "loss", "ratio_max"),
    *("approx_kl", "approx_kl_k1", "approx_kl_k2", "ref_kl", "update_norm"),
)
#: Growth is measured in the last `LAST` records before the break, if at least `EARLIER` records precede them.
LAST, EARLIER = 3, 5
#: A metric grew if the largest of the last records is at least this many times the median of those before.
GREW = 10


def first_non_finite(run: Run, findings: Iterable[Finding]) -> FirstNonFinite | None:
    """Return the metrics of numerical findings that were the first to be non-finite, or None if all are finite."""
    names = dict.fromkeys(name for f in findings if f.link == "numerics" for e in f.evidence for name in drawn(e, run))
    breaks = {name: place for name in names if (place := _first_break(run.series[name])) is not None}
    if not breaks:
        return None
    steps = {name: int(run.series[name].axis.steps[place]) for name, place in breaks.items()}
    step = min(steps.values())
    first = [run.series[name] for name in breaks if steps[name] == step]
    logged = [run.series[name] for name in OVERFLOWS if name in run.series]
    grown = [growth for series in logged for growth in _growth(series, step)]
    return FirstNonFinite(
        step=step,
        keys=tuple(series.raw for series in first),
        value=float(first[0].values[breaks[first[0].name]]),
        grew=max(grown, key=lambda pair: pair[0])[1] if grown else None,
    )


def _first_break(series: Series) -> int | None:
    """Return the index of the first value that is not finite."""
    places = np.flatnonzero(~np.isfinite(series.values))
    return int(places[0]) if len(places) else None


def _growth(series: Series, step: int) -> Iterable[tuple[float, Trend]]:
    """Yield the factor by which a metric grew right before a step, with its values, if it grew."""
    before = np.abs(series.values[(series.axis.steps < step) & np.isfinite(series.values)])
    if len(before) < LAST + EARLIER:
        return
    usual, last = median(before[:-LAST]), float(before[-LAST:].max())
    if last >= GREW * usual > 0:
        yield last / usual, Trend(word=series.name, key=series.raw, first=usual, last=last)
