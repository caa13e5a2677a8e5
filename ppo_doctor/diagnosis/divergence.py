"""Group seeds of one configuration, and find the step from which metrics of two groups differ."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import running_medians
from ppo_doctor.model.metrics import METRICS

if TYPE_CHECKING:
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.run import BoolArray, FloatArray, IntArray, Run
    from ppo_doctor.model.words import ConfigValue

#: Settings in which seeds of one configuration differ: the seed, and what names or dates a run.
_OWN = re.compile(
    r"(?:^|[._/-])(?:\w*seed\w*|(?:run|exp|experiment|job|log|output|save|wandb|tensorboard|logging|checkpoint)"
    r"[._-]?(?:name|id|dir|path|folder|group|root|log)|exp|name|timestamp|date|time|hostname|pid|start[._-]?time)$",
    re.IGNORECASE,
)


def is_own(key: str) -> bool:
    """Tell whether a setting belongs to one run rather than to its configuration."""
    return _OWN.search(key) is not None


def shared(config: dict[str, ConfigValue]) -> frozenset[tuple[str, str]]:
    """Return the settings that seeds of one configuration have in common."""
    return frozenset((key, repr(value)) for key, value in config.items() if not is_own(key))


def grouped(judged: Sequence[tuple[Run, Diagnosis]]) -> list[list[tuple[Run, Diagnosis]]]:
    """Return runs by configuration, in the order in which configurations first appear.

    Runs without any configuration are taken to belong together: whoever asks for groups says so.
    """
    groups: dict[tuple[str, frozenset[tuple[str, str]]], list[tuple[Run, Diagnosis]]] = {}
    for run, diagnosis in judged:
        groups.setdefault((run.framework, shared(dict(run.config_raw))), []).append((run, diagnosis))
    return list(groups.values())


#: A gap counts beyond this many standard deviations of what both sides wander from record to record.
NOISES = 4.0
#: It also has to be beyond this many standard deviations of a walk that diffuses as the gap itself does.
WALKS = 3.0
#: Where a setting acts, the level has to differ by this many of its Allan deviations.
LEVELS = 4.0
#: Lags, and averages, reach up to this share of the records. A single jump of the gap is what we look for: it touches
#: one lag in seven of the longest, and one in five pairs of neighbouring averages, and may not count as its spread.
LONGEST, WIDEST = 1 / 8, 1 / 12
#: Quantile of squared jumps that stands for their variance, and its value for a normal variable.
QUANTILE, CHI_SQUARE = 0.75, 1.3233
#: A gap below this share of the larger value is none, however quiet the metric.
LEAST_SHARE = 0.02
#: From the step of parting on, at least this share of the records has to be apart.
FOR_GOOD = 0.9
#: Fewer common records tell nothing.
LEAST_RECORDS = 5
#: Clocks and counters, which differ between any two runs.
_IDLE = frozenset(
    name
    for name in METRICS
    if name.startswith("time_") or name in ("fps", "mfu", "num_tokens", "env_steps", "iteration")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A metric that parts: from which step, and the median of each side from there on."""

    metric: str
    step: int
    a: float
    b: float
    #: whether it was looked for because a setting that differs acts on it
    expected: bool = False


def divergences(
    a: Sequence[Run], b: Sequence[Run], expected: Collection[str] = (), exact: Collection[str] = ()
) -> tuple[Divergence, ...]:
    """Return the metrics that part, in the order in which they do.

    `expected` are metrics on which a setting acts that differs; `exact` are settings in force, which do not wander.
    """
    names = [name for name in METRICS if name not in _IDLE and _held(name, a) and _held(name, b)]
    found = [_parting(name, a, b, expected=name in expected, exact=name in exact) for name in names]
    return tuple(sorted(filter(None, found), key=lambda divergence: divergence.step))


def _held(name: str, runs: Sequence[Run]) -> bool:
    return all(name in run.series and len(run.series[name]) for run in runs)


def _parting(name: str, a: Sequence[Run], b: Sequence[Run], *, expected: bool, exact: bool) -> Divergence | None:
    steps = _common_steps(name, [*a, *b])
    if len(steps) < LEAST_RECORDS:
        return None
    left, right = (np.stack([_at(run, name, steps) for run in side]) for side in (a, b))
    if _counts(left) and _counts(right):
        # The gap of two counters grows with every record; what can part is how fast they count.
        left, right, steps = np.diff(left, axis=1), np.diff(right, axis=1), steps[1:]
    start = first_apart(left, right, wander=not exact)
    looked_for = start is None and expected
    if looked_for:
        start = other_level(left, right)
    if start is None:
        return None
    return Divergence(
        metric=name,
        step=int(steps[start]),
        a=float(np.nanmedian(left[:, start:])) if np.isfinite(left[:, start:]).any() else float("nan"),
        b=float(np.nanmedian(right[:, start:])) if np.isfinite(right[:, start:]).any() else float("nan"),
        expected=looked_for,
    )


def _counts(side: FloatArray) -> bool:
    """Tell whether a metric is a counter: whole numbers that never fall, and rise more often than not."""
    jumps = np.diff(side, axis=1)
    return bool(np.array_equal(side, np.round(side)) and (jumps >= 0).all() and (jumps > 0).mean() > 0.5)


def _common_steps(name: str, runs: Sequence[Run]) -> IntArray:
    """Return the steps that every run has; runs that count differently have few or none in common."""
    common = np.unique(runs[0].series[name].axis.steps)
    for run in runs[1:]:
        common = np.intersect1d(common, run.series[name].axis.steps)
    return common


def _at(run: Run, name: str, steps: IntArray) -> FloatArray:
    """Return the mean of a run's records at each step; a step of several minibatches has several."""
    series = run.series[name]
    keep = np.isin(series.axis.steps, steps)
    place = np.searchsorted(steps, series.axis.steps[keep])
    total = np.bincount(place, weights=series.values[keep], minlength=len(steps))
    size = np.bincount(place, minlength=len(steps))
    mean: FloatArray = total / size
    return mean


def first_apart(a: FloatArray, b: FloatArray, *, wander: bool = True) -> int | None:
    """Return the first record from which two sides (seeds × records) stay apart; finite against not counts as apart.

    Without `wander` a gap counts as soon as it is no rounding.
    """
    left, right, finite = _means(a, b)
    gap = np.abs(left - right)
    # A run without any noise, such as a schedule, still has the rounding of its numbers.
    bound = LEAST_SHARE * np.maximum(np.abs(left), np.abs(right))
    if wander:
        noise = np.full(len(gap), NOISES * np.hypot(_noise(a), _noise(b)))
        bound = np.maximum.reduce([bound, noise, WALKS * _walked(left - right)])
    apart = (_smoothed(gap) > bound) & (gap > 0) | ~finite
    dead = _stuck(left, right) | _stuck(right, left)
    return _lasting(apart | dead)


def _stuck(side: FloatArray, other: FloatArray) -> BoolArray:
    """Return the records in which a side stays at one number for half the run or more, and the other is elsewhere.

    A metric that died needs no noise to tell: 0 in every record is no low value of what varies.
    """
    changes = np.flatnonzero(np.diff(side))
    start = int(changes[-1]) + 1 if len(changes) else 0
    tail = np.arange(len(side)) >= start
    varies = len(np.unique(other[start:])) > (len(side) - start) / 2
    stuck: BoolArray = tail & (other != side[-1]) & (varies and len(side) - start >= len(side) / 2)
    return stuck


def _means(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return both sides' means over seeds, 0 where either is not finite, and where they can be compared.

    Both sides broken in one record is no difference.
    """
    left, right = a.mean(axis=0), b.mean(axis=0)
    finite = np.isfinite(left) & np.isfinite(right)
    alike: BoolArray = np.isfinite(left) == np.isfinite(right)
    return np.where(finite, left, 0.0), np.where(finite, right, 0.0), alike


def _walked(gap: FloatArray) -> FloatArray:
    """Return how far a gap may have diffused by each record: one standard deviation.

    The squared jumps over short lags grow as lag ** exponent: 0 for noise around a level, 1 for a random walk. What is
    steeper is smooth rather than random, and is taken for a walk.
    """
    longest = max(int(len(gap) * LONGEST), 1)
    shortest = max(longest // 4, 1)
    far, near = (_spread(gap[lag:] - gap[:-lag]) for lag in (longest, shortest))
    exponent = _exponent(near, far, shortest, longest, least=0.0)
    lags = np.maximum(np.arange(1, len(gap) + 1), longest) / longest
    walked: FloatArray = np.sqrt(far * lags**exponent)
    return walked


def _spread(jumps: FloatArray) -> float:
    return float(np.quantile(jumps**2, QUANTILE)) / CHI_SQUARE if jumps.size else 0.0


def _exponent(near: float, far: float, shortest: int, longest: int, *, least: float) -> float:
    """Return how a variance grows from one lag to another, within what noise and walks do."""
    if shortest == longest or near <= 0 or far <= 0:
        return 1.0
    return float(np.clip(np.log(far / near) / np.log(longest / shortest), least, 1.0))


def other_level(a: FloatArray, b: FloatArray) -> int | None:
    """Return the first record from which two sides differ in level, by the Allan variance of their relative gap.

    The Allan variance of averages is free of their level: it falls as 1/length for noise and grows for a walk, so that
    it tells how well the mean over the rest of the run is known (Allan 1966).
    """
    left, right, alike = _means(a, b)
    window = max(int(len(left) * WIDEST), 1)
    if not alike.all() or len(left) < 8:
        return None
    scale = _averaged((np.abs(left) + np.abs(right)) / 2, window)
    if not (scale > 0).all():
        return None
    gap = (left - right) / scale
    starts = range(0, len(gap) - window + 1, max(window // 2, 1))
    seeds = np.hypot(_between(a / scale), _between(b / scale))
    sure = [abs(gap[start:].mean()) / np.hypot(_unsure(gap, len(gap) - start, window), seeds) for start in starts]
    best = starts[int(np.argmax(sure))]
    level = float(gap[best:].mean())
    if max(sure) < LEVELS or abs(level) < LEAST_SHARE:
        return None
    onset = _lasting(_averaged(gap, window) * np.sign(level) > abs(level) / 2)
    return best if onset is None else onset


def _between(side: FloatArray) -> float:
    """Return the standard deviation of a side's level that its seeds show, 0 for a single seed."""
    return float(side.mean(axis=1).std(ddof=1) / np.sqrt(len(side))) if len(side) > 1 else 0.0


def _unsure(gap: FloatArray, length: int, window: int) -> float:
    """Return the standard deviation of a mean of `length` records of a gap."""
    shortest = max(window // 4, 1)
    far, near = _allan(gap, window), _allan(gap, shortest)
    exponent = _exponent(near, far, shortest, window, least=-1.0)
    # A walk that begins before the stretch is further off than one that begins with it: three times in variance.
    reach, before = (length, 1.0) if exponent <= 0 else (len(gap), 1 + 2 * exponent)
    return float(max(np.sqrt(far * before * (reach / window) ** exponent), np.finfo(float).tiny))


def _allan(values: FloatArray, length: int) -> float:
    total = np.cumsum(np.insert(values, 0, 0.0))
    means = (total[length:] - total[:-length]) / length
    return _spread(means[length:] - means[:-length]) / 2


def _averaged(values: FloatArray, window: int) -> FloatArray:
    """Return the running mean over a window, the ends continued."""
    padded = np.pad(values, (window // 2, window - 1 - window // 2), mode="edge")
    mean: FloatArray = np.convolve(padded, np.full(window, 1 / window), mode="valid")
    return mean


def _smoothed(values: FloatArray) -> FloatArray:
    """Return the running median over an odd window of a twentieth of the records."""
    half = len(values) // 40
    if not half:
        return values
    padded = np.pad(values, half, mode="edge")
    return running_medians(padded, 2 * half + 1)


def _noise(side: FloatArray) -> float:
    """Return how far a side wanders: between records of a run, and between its seeds."""
    with np.errstate(invalid="ignore"):
        jumps = np.diff(side, axis=1)
    finite = jumps[np.isfinite(jumps)]
    wander = 1.4826 * float(np.median(np.abs(finite))) / np.sqrt(2.0) if finite.size else 0.0
    if len(side) < 2:
        return float(wander)
    spread = side.std(axis=0, ddof=1)
    spread = spread[np.isfinite(spread)]
    between = float(np.median(spread)) if spread.size else 0.0
    return float(np.hypot(wander, between) / np.sqrt(len(side)))


def _lasting(apart: BoolArray) -> int | None:
    """Return the first record that is apart and from which at least nine in ten are, with three or more to tell."""
    behind = np.cumsum(apart[::-1])[::-1] / np.arange(len(apart), 0, -1)
    starts = np.flatnonzero(apart & (behind >= FOR_GOOD))
    if not len(starts) or len(apart) - starts[0] < 3:
        return None
    return int(starts[0])
