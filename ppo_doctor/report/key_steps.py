"""The table of a summary: metrics at the key steps of a run, usual ranges, and the first non-finite number."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

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
#: Counters, which repeat the step.
COUNTERS = ("env_steps", "optimizer_steps_total")
#: A table begins where all of its metrics are logged, if that leaves at least this share of the run's records.
MOST_OF_THE_RUN = 0.8
#: So many records whose steps end within this share of the run are counted by another clock.
MANY, OTHERWISE = 8, 0.1
#: A metric with fewer numbers than `TREND` has no trend if another one has `LONG` records.
TREND, LONG = 2, 12
#: Longest gaps between two of its records after which a metric is not logged any more.
ENDED = 2
#: By this factor a metric has grown from its first number to its last.
GROWS = 1.2
#: Numbers at key steps are alike within this share of the largest; a metric swings by so many times more than that.
FEWEST_ALIKE, ALIKE, SWINGS = 3, 0.1, 1.0
#: How far behind the onset to look again, as a share of what is left of the run.
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
    """Return the table of a run with so many updates per batch; None where no metric is logged.

    A remark names what lies outside its usual range, and whether that is expected, or harmless in a `calm` run.
    """
    chosen = [run.series[name] for name in _chosen(run, evidence)]
    if not chosen:
        return None
    key_steps = _key_steps(_steps(chosen), onset)
    explained = {name for finding in expected for e in finding.evidence for name in drawn(e, run)}
    rows: dict[str, Row] = {}
    for series in chosen:
        range_, shown = usual(run, series.name, updates), values(series, key_steps)
        off = range_.remark(shown) if range_ is not None else ""
        word = off and ("expected" if series.name in explained else f"{off}, no harm seen" if calm else off)
        rows[series.name] = Row(name=series.name, key=series.raw, values=shown, usual=str(range_ or ""), remark=word)
    remarked = (replace(row, remark=row.remark or _remark(row, rows, run, updates)) for row in rows.values())
    return Table(key_steps=key_steps, rows=tuple(remarked))


def _remark(row: Row, rows: Mapping[str, Row], run: Run, updates: float | None) -> str:
    """Return what needs a word: a rising entropy, a KL that rises while less is clipped, the norm of one update."""
    if row.name == "entropy" and _grew(row) > GROWS:
        return "rises: more random"
    if row.name == "clip_fraction" and 0 < _grew(row) < 1 / GROWS and _grew(rows.get("approx_kl")) > GROWS:
        return "falls, KL rises: few move far"
    if spread := _swings(row, run.series[row.name]):
        return spread
    if row.name == "grad_norm" and updates != 1 and (run.series["grad_norm"].aggregation or "").startswith("last"):
        return "of the last update only"
    return ""


def _swings(row: Row, series: Series) -> str:
    """Return the range of a metric whose numbers at the key steps are alike by chance, else nothing."""
    finite = series.values[np.isfinite(series.values)]
    known = [value for value in row.values if value is not None]
    if len(known) < FEWEST_ALIKE or not len(finite):
        return ""
    size, low, high = max(map(abs, known)), float(finite.min()), float(finite.max())
    alike = max(known) - min(known) <= ALIKE * size
    return f"ranges {short(low)} to {short(high)}" if alike and high - low >= SWINGS * size > 0 else ""


def _grew(row: Row | None) -> float:
    """Return the last number of a row over its first, where both are above 0; else 0."""
    known = [value for value in row.values if value is not None] if row is not None else []
    return known[-1] / known[0] if known and min(known[0], known[-1]) > 0 else 0.0


def _chosen(run: Run, evidence: Iterable[Finding]) -> list[str]:
    """Return the metrics of the evidence, then those that matter to every run."""
    observed = {name for name, series in run.series.items() if len(series) and series.how == "observed"}
    logged = observed.difference(COUNTERS)
    spoken = dict.fromkeys(name for f in evidence for e in f.evidence for name in drawn(e, run) if name in logged)
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
    """Tell whether a metric has one number where others have many: that is no trend."""
    most = max(map(len, run.series.values()))
    return int(np.isfinite(series.values).sum()) < TREND and most >= LONG


def _equal(one: Series, other: Series) -> bool:
    """Tell whether a metric is another one's numbers under another name; what never varies is equal by chance."""
    return one is not other and np.array_equal(one.values, other.values) and bool(np.ptp(one.values) > 0)


def _steps(chosen: Sequence[Series]) -> IntArray:
    """Return the steps of metrics, from where all of them are logged if that is near the start."""
    axes = {id(series.axis): series.axis for series in chosen}
    steps: IntArray = np.unique(np.concatenate([axis.steps for axis in axes.values()]))
    common = steps[steps >= max(int(axis.steps[0]) for axis in axes.values())]
    return common if len(common) >= MOST_OF_THE_RUN * len(steps) else steps


def _key_steps(steps: IntArray, onset: int | None) -> tuple[KeyStep, ...]:
    """Return start, before, onset, after and end; of a run without an onset, or with one at its start, its middle."""
    last = len(steps) - 1
    at = int(np.searchsorted(steps, onset)) if onset is not None else 0
    if 0 < at <= last:
        after = min(at + max(1, round(AFTER * (last - at))), last)
        spots = {0: "start", at - 1: "before", after: "after", last: "end", at: "onset"} | {0: "start"}
    else:
        spots = {last // 2: "middle", last: "end", 0: "start"}
    return tuple(KeyStep(name=spots[index], step=int(steps[index])) for index in sorted(spots))


def entropy(run: Run, key_steps: Sequence[KeyStep]) -> Trend | None:
    """Return what became of the entropy, from the first of the key steps, or where it begins, to the last."""
    series = run.outcome(OUTCOMES["entropy"])
    if series is None or not len(series) or series.how != "observed" or _once(series, run):
        return None
    first, last = values(series, (key_steps[0], key_steps[-1]))
    if last is None:
        return None
    return Trend(word="entropy", key=series.raw, first=float(series.values[0]) if first is None else first, last=last)


def values(series: Series, key_steps: Sequence[KeyStep]) -> tuple[float | None, ...]:
    """Return what was last logged of a metric at each key step, nothing where it ended long before.

    A metric of many records whose steps all lie in the first tenth counts another way, updates beside environment
    steps: its value is the one as far into its records as the key step is into the run.
    """
    steps = np.asarray([each.step for each in key_steps])
    places = np.searchsorted(series.axis.steps, steps, side="right") - 1
    if len(series) >= MANY and len(steps) > 1 and series.axis.steps[-1] < steps[-1] * OTHERWISE:
        places = np.rint((len(series) - 1) * steps / steps[-1]).astype(np.int64)
        return tuple(float(series.values[place]) for place in places.tolist())
    logged = series.axis.steps
    kept = ENDED * int(np.diff(logged).max()) if len(logged) > 1 else int(steps.max(initial=0))
    ends = steps - logged[np.maximum(places, 0)] > kept
    known = [place >= 0 and not ended for place, ended in zip(places.tolist(), ends.tolist(), strict=True)]
    return tuple(float(series.values[at]) if shown else None for at, shown in zip(places.tolist(), known, strict=True))


@frozen(kw_only=False)
class Usual:
    """A range, with where it comes from; without bounds it only says what a framework sets."""

    low: float | None
    high: float | None
    source: str

    def __str__(self) -> str:
        """Return the range as it is printed."""
        if self.low is None or self.high is None:
            return self.source
        return short(self.low) if self.low == self.high else f"{short(self.low)}–{short(self.high)}"

    def remark(self, values: Sequence[float | None]) -> str:
        """Return on which side a metric ends, if it is outside, and whether it is so at all moments."""
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


#: What is outside by less than this share of a bound, or of the least number that it can be a share of, is not outside.
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
#: Where each batch is used for one optimizer step, every log-prob is the stored one.
_ONCE = f"{_DEFINITION}: one update per batch"
USUAL_ONCE = MappingProxyType({"approx_kl": Usual(0.0, 0.0, _ONCE), "clip_fraction": Usual(0.0, 0.0, _ONCE)})
SETTINGS = MappingProxyType({metric: setting for setting, metric in IN_FORCE.items()})


def usual(run: Run, metric: str, updates: float | None) -> Usual | None:
    """Return where a metric of a run with so many updates per batch usually lies; None where no source documents it."""
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


#: Metrics that overflow: each grows until it is no longer finite.
OVERFLOWS = (
    *("grad_norm", "value_loss", "policy_loss", "loss", "ratio_max"),
    *("approx_kl", "approx_kl_k1", "approx_kl_k2", "ref_kl", "update_norm"),
)
#: The last records before the break in which growth shows, and how many come before them at least.
LAST, EARLIER = 3, 5
#: Growth: the largest of the last records, against the median of all before them.
GREW = 10


def first_non_finite(run: Run, shown: Iterable[Finding]) -> FirstNonFinite | None:
    """Return which metrics of some checks were not finite first; None where these checks are of finite numbers."""
    spoken = dict.fromkeys(name for f in shown if f.link == "numerics" for e in f.evidence for name in drawn(e, run))
    ends = {name: place for name in spoken if (place := _end(run.series[name])) is not None}
    if not ends:
        return None
    steps = {name: int(run.series[name].axis.steps[place]) for name, place in ends.items()}
    step = min(steps.values())
    first = [run.series[name] for name in ends if steps[name] == step]
    logged = [run.series[name] for name in OVERFLOWS if name in run.series]
    grown = [found for series in logged for found in _growth(series, step)]
    return FirstNonFinite(
        step=step,
        keys=tuple(series.raw for series in first),
        value=float(first[0].values[ends[first[0].name]]),
        grew=max(grown, key=lambda pair: pair[0])[1] if grown else None,
    )


def _end(series: Series) -> int | None:
    """Return the place of the first number that is not finite."""
    places = np.flatnonzero(~np.isfinite(series.values))
    return int(places[0]) if len(places) else None


def _growth(series: Series, step: int) -> Iterable[tuple[float, Trend]]:
    """Yield how many times larger a metric was right before a step than before that, if it had grown."""
    before = np.abs(series.values[(series.axis.steps < step) & np.isfinite(series.values)])
    if len(before) < LAST + EARLIER:
        return
    usual, last = float(np.median(before[:-LAST])), float(before[-LAST:].max())
    if last >= GREW * usual > 0:
        yield last / usual, Trend(word=series.name, key=series.raw, first=usual, last=last)
