"""Does a log say what the dumps of the same updates show? Their common metrics, held against each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model import EXACT, Note, Series

if TYPE_CHECKING:
    from ppo_doctor.model import Run

#: Metric → what is too small to differ by: a gap is measured against the larger of the two values and of this. Only
#: metrics with one meaning: trainers log rewards, KL to the reference and token counts of many kinds under one name.
COMPARED: Mapping[str, float] = {
    "approx_kl": 1e-4,
    "clip_fraction": 0.01,
    "clip_fraction_low": 0.01,
    "clip_fraction_high": 0.01,
    "ratio_std": 1e-3,
    "effective_sample_size": 0.1,
}
#: Tokens weigh alike in a dump and minibatches in a log, which makes a tenth; a factor of two is no matter of weights.
FACTOR = 0.5
#: Where a log does not say over which minibatches it averages, it may be the last ones, which are several times larger.
LOOSE = 5.0
WINDOWS = (None, "all minibatches", "last epoch", "last minibatch")
GAP = "log_dump_gap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One metric at the records that log and dumps have in common: arrays of one shape, gaps as fractions."""

    name: str
    logged: Series
    computed: Series
    places: tuple[tuple[int, int], ...]
    gaps: tuple[float, ...]

    @property
    def differs(self) -> bool:
        """Tell whether the two differ in most of their common records."""
        return float(np.median(self.gaps)) > FACTOR


def compared(log: Run, dumps: Run, comparable: Sequence[int]) -> tuple[Compared, ...]:
    """Return the metrics that a log and the dumps of its updates have in common, at the steps that are comparable.

    `comparable` are the steps of dumps that hold all that a record of the log is a mean of. Metrics that are other
    estimates, as k1 beside k3, are left out.
    """
    found = (_one(name, log.series[name], dumps.series[name], set(comparable)) for name in _common(log, dumps))
    return tuple(one for one in found if one is not None)


def _common(log: Run, dumps: Run) -> Iterator[str]:
    for name in COMPARED:
        if name in log.series and name in dumps.series:
            one, other = log.series[name], dumps.series[name]
            if one.estimator == other.estimator and one.aggregation in WINDOWS:
                yield name


def _one(name: str, logged: Series, dumped: Series, steps: set[int]) -> Compared | None:
    at = {int(step): place for place, step in enumerate(_numbers(logged, steps))}
    places, gaps = [], []
    for place, step in enumerate(dumped.axis.steps.tolist()):
        if step in steps and step in at:
            gap = _gap(name, logged, at[step], float(dumped.values[place]))
            if not math.isnan(gap):
                places.append((at[step], place))
                gaps.append(gap)
    if not places:
        return None
    return Compared(name=name, logged=logged, computed=dumped, places=tuple(places), gaps=tuple(gaps))


def _numbers(series: Series, steps: set[int]) -> list[int]:
    """Return what numbers the log's records: its steps, or its updates where only they are the dumps' numbers."""
    own: list[int] = series.axis.steps.tolist()
    if series.axis.update is not None and not steps & set(own):
        own = series.axis.update.tolist()
    return own


def _gap(name: str, logged: Series, place: int, computed: float) -> float:
    """Return by which share of the larger two values differ, beyond what was printed; nan where one is not finite."""
    value = float(logged.values[place])
    if not (math.isfinite(value) and math.isfinite(computed)):
        return math.nan
    off = max(0.0, abs(value - computed) - logged.resolution.absolute) / max(abs(value), abs(computed), COMPARED[name])
    loose = LOOSE if logged.aggregation != "all minibatches" else 1.0
    return off if off >= 1 else max(0.0, 1 - loose * (1 - off))


def with_agreement(run: Run, found: Sequence[Compared]) -> Run:
    """Return a run in which computed values stand for logged ones that they contradict, and the largest gap is told."""
    if not found:
        return run
    wrong = [one for one in found if one.differs]
    worst = max(found, key=lambda one: float(np.median(one.gaps)))
    series = {**run.series, GAP: _gap_series(worst)} | {one.name: one.computed for one in wrong}
    return replace(run, series=series, notes=(*run.notes, *map(_told, wrong)))


def _gap_series(one: Compared) -> Series:
    places = np.array([place for place, _ in one.places], dtype=np.int64)
    order = np.argsort(places, kind="stable")
    return Series(
        name=GAP,
        raw=one.logged.raw,
        axis=one.logged.axis.take(places[order]),
        values=np.array(one.gaps, dtype=np.float64)[order],
        unit="fraction",
        resolution=EXACT,
        how="computed",
    )


def _told(one: Compared) -> Note:
    at, place = one.places[int(np.argmax(one.gaps))]
    said, shown = float(one.logged.values[at]), float(one.computed.values[place])
    text = f"{one.name}: {said:.4g} in the log, {shown:.4g} in {one.computed.source(place).path}, which is used"
    return Note(text=text, source=one.logged.source(at))
