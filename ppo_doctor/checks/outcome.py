"""Determine the outcome of the reward from its levels at the start, at its best and at the end.

All levels are medians, so that single records do not matter. A change counts if it exceeds three standard errors of
both levels and a fair share of the range of the reward.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.rewards import spread_inside
from ppo_doctor.checks.series import blocks, fact, thinned
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model.arrays import distinct, median, running_medians, same, scatter_of
from ppo_doctor.model.diagnosis import Outcome
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.model.run import Fact
from ppo_doctor.model.words import OUTCOMES

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import FloatArray, IntArray, Run, Series
    from ppo_doctor.model.words import OutcomeKind

_EARNED = lazy_pattern(r"reward|return|score", re.IGNORECASE)
_OF_THE_BEST = lazy_pattern(r"best|max|min|std|deviation", re.IGNORECASE)
#: Fewest finite records of an outcome.
FEWEST = 5
#: Standard errors by which two levels differ.
ERRORS = 3.0
#: Standard errors by which the best of a dozen stretches has to exceed the others to be more than chance.
PEAK_ERRORS = 4.0
#: Fewest records for a rise by a straight line.
MANY = 20
#: Most different values of a reward whose median leaps between them.
FEW_NUMBERS = 5
#: Least shares of the reward's range and of its size that are a change.
OF_RANGE, OF_SIZE = 0.4, 0.005
#: Share of the reward over its floor that has to be gone for good for the reward to be lost.
LOST = 0.6
#: Share of its rise that a reward that levelled off reached before half of the run.
REACHED = 0.9
#: Records at the very start, and share of the range by which the halves of a level differ if it leans upward.
VERY_FIRST, LEANS = 2, 0.25
#: Share of earlier levels as low as the end above which a reward only wanders.
WANDERED = 0.05
#: Share of the ceiling from which on hardly anything is left to earn.
FULL = 0.97
#: Metrics of an evaluation; the first that is logged counts.
EVALUATIONS = ("eval_return",)


def outcome(run: Run, *, target: float | None = None) -> Outcome:
    """Return the outcome of the training reward, with that of the evaluation, or that no reward is logged."""
    series = run.outcome(OUTCOMES["reward"])
    evaluation = run.outcome(EVALUATIONS)
    if series is None:
        # a column named "reward" with other words of the task may be the reward if the user names it
        parts = (one.raw for name, one in run.series.items() if name.startswith("reward_component"))
        named = (key for key in (*run.not_understood, *parts) if _EARNED.search(key) and not _OF_THE_BEST.search(key))
        return Outcome(what="not_logged", key=next(named, ""))
    judged = _judged(series, _ceiling(run, series))
    if judged.what == "never_earned" and spread_inside(run, series) is not None:
        judged = replace(judged, what="flat")  # rewards were centred
    if run.steps is not None and len(series) and 2 * int(series.axis.steps[-1]) < run.steps[1]:
        judged = replace(judged, best_step=None)  # its steps are another unit, such as episodes
    if evaluation is not None and evaluation is not series:
        judged = replace(judged, evaluation=_judged(evaluation, None, least=1))  # each is a mean of many episodes
    if target is None or judged.end is None:
        return judged
    return replace(judged, target=target, reached=judged.end >= target)


def _ceiling(run: Run, series: Series) -> float | None:
    """Return the most that can be earned if it is known: 1 for a share, an episode's limit for one per step."""
    values = series.values[np.isfinite(series.values)]
    if not len(values):
        return None
    shares = values.min() >= 0 and values.max() <= 1
    named = any(word in series.raw.lower() for word in ("acc", "success", "win", "correct", "solve"))
    if shares and (named or (series.name == "reward_mean" and "reward_std" in run.series)):
        return 1.0
    lengths = run.series.get("episode_length")
    limit = float(np.nanmax(lengths.values)) if lengths is not None and len(lengths) else 0.0
    return limit if limit > 1 and bool(same(values[-1:], limit)[0]) and values.max() <= limit else None


@lru_cache(maxsize=8)  # several checks use it
def _judged(series: Series, ceiling: float | None, least: int = 2) -> Outcome:
    """Return the outcome of one series, given its ceiling and the fewest records of a level."""
    steps, values = thinned(series)
    records = int(np.isfinite(series.values).sum())
    judged = Outcome(what="too_short", metric=series.name, key=series.raw, records=records)
    if not len(values):
        return judged
    levels = Levels(values, least, series.resolution.absolute)
    early, late = (round(of * records / len(values)) for of in (levels.early, levels.late))
    peak = _shown_at(series, levels.best, *sorted((steps[levels.best_from], steps[levels.best_to])))
    judged = replace(
        judged, start=levels.start, best=levels.best, end=levels.end, best_step=peak, early=early, late=late
    )
    if records > len(values):  # reported levels are medians of records, not of the means that represent a long log
        known = series.values[np.isfinite(series.values)]
        start, end = median(known[:early]), median(known[-late:])
        if (end > start) == (levels.end > levels.start):  # episodes of different lengths have other weights by step
            judged = replace(judged, start=start, end=end)
    if not values.any():
        return replace(judged, what="never_earned" if len(values) >= FEWEST else "too_short")
    if ceiling is not None and levels.end >= FULL * ceiling and len(values) >= FEWEST:
        return replace(judged, what="at_ceiling")
    if 1 + np.count_nonzero(np.diff(steps)) < FEWEST:  # repeated records do not count
        return judged
    what, at = levels.course()
    leans = what == "flat" and levels.leans()
    if leans and levels.climbs():
        what = "learned"
    judged = replace(judged, first=levels.first(what), leans=leans, peaks=levels.peaks())
    judged = replace(judged, kept_below=levels.limit if what == "lost" else None)
    since = None if at is None else int(steps[at])
    place = 0 if since is None else int(np.searchsorted(series.axis.steps, since))
    return replace(judged, what=what, since_step=since, source=series.source(min(place, len(series) - 1)))


def _shown_at(series: Series, level: float, first: float, last: float) -> int:
    """Return the step between `first` and `last` whose record is nearest to a level."""
    logged = series.axis.steps
    off = np.where((first <= logged) & (logged <= last), np.abs(series.values - level), np.inf)
    return int(logged[np.nanargmin(off)])


class Levels:
    """Levels of a reward, shape [records], and the scatter around them, at least the last printed digit."""

    def __init__(self, values: FloatArray, least: int = 2, resolution: float = 0.0) -> None:
        size = len(values)
        self.values = values
        self.early, self.late = max(least, size // 20), max(least, size // 10)
        width = min(size, max(3, size // 12))
        self.smooth = running_medians(values, width)
        self._shift = width // 2
        self.start, self.end = median(values[: self.early]), median(values[-self.late :])
        self.best_from = int(np.argmax(self.smooth))
        self.best_to = min(self.best_from + width, size) - 1
        self.best = max(float(self.smooth.max()), self.end)
        self.scatter = max(scatter_of(values) / np.sqrt(2), resolution) if size > 1 else 0.0
        self.limit = self._limit()

    @property
    def range(self) -> float:
        """Return how far apart the lowest and the highest level lie."""
        levels = (float(self.smooth.min()), float(self.smooth.max()), self.start, self.end)
        return max(levels) - min(levels)

    def counts(self, change: float) -> bool:
        """Return whether a change of level is more than scatter, and a fair share of the reward's range."""
        error = 1.2533 * self.scatter * np.sqrt(1 / self.early + 1 / self.late)
        few = len(self.values) >= MANY and len(distinct(self.values)) <= FEW_NUMBERS
        if few and np.ptp(self.values[-self.late :]):
            # a median of few different values leaps between them
            ends = self.values[: self.early], self.values[-self.late :]
            within = sum(float(np.square(end - end.mean()).sum()) for end in ends) / (self.early + self.late)
            error = max(error, np.sqrt(within * (1 / self.early + 1 / self.late)))
        size = float(np.abs(self.values).max())
        return bool(abs(change) > max(ERRORS * error, OF_RANGE * self.range, OF_SIZE * size))

    def course(self) -> tuple[OutcomeKind, int | None]:
        """Return what the levels did, and the record from which on they did it."""
        if self.limit is not None and (at := self._gone(self.limit)) is not None:
            return "lost", at
        rise = self.end - self.start
        if not self.counts(rise):
            return "flat", None
        if rise < 0:
            at = self._for_good(self.smooth <= self.start + rise / 2)
            return ("flat", None) if self._had_been_there(at) else ("fell", at)
        at = self._for_good(self.smooth >= self.start + REACHED * rise)
        level = at is not None and at < len(self.values) / 2
        return ("levelled_off", at) if level else ("learned", None)

    def _had_been_there(self, at: int | None) -> bool:
        """Return whether the reward was as low before, as a mean of few episodes wanders more than its records show."""
        before = self.smooth[: len(self.smooth) if at is None else max(1, at - self._shift)]
        return bool((before <= self.end).mean() > WANDERED)

    def first(self, what: OutcomeKind) -> float | None:
        """Return the level of the very first records if the reward rose from it before it fell or was constant."""
        first = median(self.values[:VERY_FIRST])
        reached = {"fell": self.best, "lost": self.best, "flat": self.end}.get(what, first)
        error = 1.2533 * self.scatter * np.sqrt(1 / VERY_FIRST + 1 / self.late)
        return first if reached - first > max(ERRORS * error, OF_RANGE * max(self.range, self.best - first)) else None

    def leans(self) -> bool:
        """Return whether the second half is above the first by more than scatter, and the end above the start."""
        half = len(self.values) // 2
        rise = median(self.values[half:]) - median(self.values[:half])
        error = 1.2533 * self.scatter * np.sqrt(2 / half)
        return bool(min(rise, self.end - self.start) > LEANS * self.range and rise > ERRORS * error)

    def climbs(self) -> bool:
        """Return whether a straight line through the means of equal spans rises by more than their scatter about it."""
        if len(self.values) < MANY:
            return False
        means = blocks(self.values)
        places = np.arange(len(means)) - (len(means) - 1) / 2
        slope = float(places @ means / (places @ places))
        off = means - means.mean() - slope * places
        error = float(np.sqrt(off @ off / (len(means) - 2) / (places @ places)))
        return slope > ERRORS * error

    def peaks(self) -> bool:
        """Return whether the best stretch exceeds start and end by more than the best of so many does by chance."""
        over = self.best - max(self.start, self.end)
        error = 1.2533 * self.scatter * np.sqrt(1 / (self.best_to - self.best_from + 1) + 1 / self.late)
        return bool(over > max(PEAK_ERRORS * error, OF_RANGE * self.range))

    def _limit(self) -> float | None:
        """Return the level below which most of the reward is lost; None if the run shows no floor or no gain."""
        best = self.best
        floor = _floor(float(self.values.min()), self.start, best)
        if floor == self.start and best - floor <= max(2 * ERRORS * self.scatter, OF_RANGE * self.range):
            return None
        return best - LOST * (best - floor) if best > floor else None

    def _gone(self, limit: float) -> int | None:
        """Return the record from which on the reward stays below a limit, after a stretch above it."""
        last = max(3, len(self.values) // 10)
        above = int(np.count_nonzero(self.values > limit))
        if above < max(3, len(self.values) // 20) or median(self.values[-last:]) > limit:
            return None
        if np.mean(self.values[-last:] > limit) > 0.25 or self.best - self.end < ERRORS * self.scatter:
            return None
        return self._for_good(self.smooth <= limit)

    def _for_good(self, holds: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int | None:
        """Return the first record from which on `holds` is true of all levels."""
        broken = np.flatnonzero(~holds)
        first = int(broken[-1]) + 1 if len(broken) else 0
        return min(first + self._shift * bool(first), len(self.values) - 1) if first < len(holds) else None


def _floor(lowest: float, start: float, best: float) -> float:
    """Return what a reward had before it gained: its start, or 0 if it earned much from the start on."""
    return 0.0 if lowest >= 0 and start >= best / 2 else start


@statistic("episode_return", "reward_mean")
def reward_lost(view: RunView) -> Fact | None:
    """Return the share of the reward's gain that is gone at the end for good; 0 if it is not lost."""
    judged = outcome(view.run)
    if judged.what in ("not_logged", "too_short") or judged.best is None or judged.end is None or judged.start is None:
        return None
    series = view.run.series[judged.metric]
    if judged.what != "lost":
        return fact(0.0, series, "no lasting fall")
    floor = _floor(float(np.nanmin(series.values)), judged.start, judged.best)
    says = (
        f"{judged.key} fell from {judged.best:.3g} to {judged.end:.3g}; most is gone from step {judged.since_step} on"
    )
    return fact(
        (judged.best - judged.end) / (judged.best - floor), judged, says, "of the reward", since=judged.since_step
    )


#: Multiple of the usual distance between records from which on it is a hole in the log.
HOLE = 5


@frozen(kw_only=False)
class Phase:
    """A stretch of steps in which the learning rate behaves alike, and the numbers that show it."""

    name: str
    first: int
    last: int
    because: str


def schedule_phases(view: RunView) -> tuple[Phase, ...]:
    """Return the stretches in which the learning rate rises, holds and falls; a single value is one constant phase."""
    series = view.logged("learning_rate", fewest=3)
    if series is None:
        return ()
    keep = np.isfinite(series.values)
    values, steps = series.values[keep], series.axis.steps[keep]
    slack = 1e-9 * float(np.abs(values).max())
    direction = np.sign(np.where(np.abs(np.diff(values)) <= slack, 0.0, np.diff(values))).astype(np.int64)
    starts = np.flatnonzero(np.append(True, direction[1:] != direction[:-1]))
    ends = np.append(starts[1:], len(direction))
    if len(starts) > 6:
        return (Phase("controlled", int(steps[0]), int(steps[-1]), f"{series.raw} goes up and down"),)
    return tuple(
        _phase(series, steps, values, int(a), int(b), int(direction[a])) for a, b in zip(starts, ends, strict=True)
    )


def _phase(series: Series, steps: IntArray, values: object, start: int, end: int, direction: int) -> Phase:
    """Return the phase of records [start, end], by the direction of the rate."""
    name = {1: "warm-up", 0: "constant", -1: "decay"}[direction]
    rates = np.asarray(values)
    because = f"{series.raw} {rates[start]:.3g} → {rates[end]:.3g}"
    return Phase(name, int(steps[start]), int(steps[end]), because)


def holes(series: Series) -> tuple[tuple[int, int], ...]:
    """Return the (step before, step after) of stretches without a record that are far longer than usual."""
    gaps = np.diff(series.axis.steps)
    if len(gaps) < 3:
        return ()
    usual = max(1.0, median(gaps))
    return tuple(
        (int(series.axis.steps[i]), int(series.axis.steps[i + 1])) for i in np.flatnonzero(gaps > HOLE * usual)
    )
