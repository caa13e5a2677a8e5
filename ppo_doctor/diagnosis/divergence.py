"""Group runs by configuration, and find the step from which metrics of two groups differ."""

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

#: Matches settings in which runs of one configuration differ: the seed, names, paths and dates of a run.
_OWN = re.compile(
    r"(?:^|[._/-])(?:\w*seed\w*|(?:run|exp|experiment|job|log|output|save|wandb|tensorboard|logging|checkpoint)"
    r"[._-]?(?:name|id|dir|path|folder|group|root|log)|exp|name|timestamp|date|time|hostname|pid|start[._-]?time)$",
    re.IGNORECASE,
)


def is_own(key: str) -> bool:
    """Return whether a setting belongs to a single run rather than to its configuration."""
    return _OWN.search(key) is not None


def shared(config: dict[str, ConfigValue]) -> frozenset[tuple[str, str]]:
    """Return the settings that runs of one configuration have in common, as (key, value) pairs."""
    return frozenset((key, repr(value)) for key, value in config.items() if not is_own(key))


def grouped(judged: Sequence[tuple[Run, Diagnosis]]) -> list[list[tuple[Run, Diagnosis]]]:
    """Return runs grouped by framework and configuration, in the order in which these first appear.

    Runs without any configuration form one group.
    """
    groups: dict[tuple[str, frozenset[tuple[str, str]]], list[tuple[Run, Diagnosis]]] = {}
    for run, diagnosis in judged:
        groups.setdefault((run.framework, shared(dict(run.config_raw))), []).append((run, diagnosis))
    return list(groups.values())


#: Two sides are apart if their gap exceeds this many standard deviations of the noise of both.
NOISES = 4.0
#: The gap also has to exceed this many standard deviations of a random walk that diffuses as the gap does.
WALKS = 3.0
#: For a metric on which a setting acts, the level has to differ by this many of its Allan deviations.
LEVELS = 4.0
#: The longest lag, and the longest averages, as shares of the records. A single jump of the gap affects one in seven of
#: the longest lags and one in five pairs of neighbouring averages, few enough not to count as the spread of the gap.
LONGEST, WIDEST = 1 / 8, 1 / 12
#: The variance of jumps is estimated by this quantile of their squares, divided by its value for a standard normal.
QUANTILE, CHI_SQUARE = 0.75, 1.3233
#: A gap below this share of the larger value does not count, however little noise the metric has.
LEAST_SHARE = 0.02
#: From the step of divergence on, at least this share of the records has to be apart.
FOR_GOOD = 0.9
#: The fewest common records from which a divergence can be found.
LEAST_RECORDS = 5
#: Clocks and counters, which differ between any two runs.
_IDLE = frozenset(
    name
    for name in METRICS
    if name.startswith("time_") or name in ("fps", "mfu", "num_tokens", "env_steps", "iteration")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A metric that differs from `step` on, with the median of each side from there on."""

    metric: str
    step: int
    a: float
    b: float
    #: whether only the weaker test of its level found it, which is for metrics on which a setting that differs acts
    expected: bool = False


@np.errstate(all="ignore")  # numbers of broken logs overflow
def divergences(
    a: Sequence[Run], b: Sequence[Run], expected: Collection[str] = (), exact: Collection[str] = ()
) -> tuple[Divergence, ...]:
    """Return the metrics in which two sides differ from some step on, the earliest first.

    `expected` names metrics on which a setting that differs acts; `exact` names settings in force, which have no noise.
    """
    names = [n for n in METRICS if n not in _IDLE and all(n in r.series and len(r.series[n]) for r in (*a, *b))]
    candidates = [_divergence(name, a, b, expected=name in expected, exact=name in exact) for name in names]
    return tuple(sorted(filter(None, candidates), key=lambda divergence: divergence.step))


def _divergence(name: str, a: Sequence[Run], b: Sequence[Run], *, expected: bool, exact: bool) -> Divergence | None:
    steps = _common_steps(name, [*a, *b])
    if len(steps) < LEAST_RECORDS:
        return None
    left, right = (np.stack([_at(run, name, steps) for run in side]) for side in (a, b))
    if _counts(left) and _counts(right):
        # The gap of two counters grows with every record, so their increments are compared.
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
    """Return whether a metric is a counter: whole numbers that never fall and mostly rise."""
    jumps = np.diff(side, axis=1)
    return bool(np.array_equal(side, np.round(side)) and (jumps >= 0).all() and (jumps > 0).mean() > 0.5)


def _common_steps(name: str, runs: Sequence[Run]) -> IntArray:
    """Return the steps at which every run has a record of a metric."""
    common = np.unique(runs[0].series[name].axis.steps)
    for run in runs[1:]:
        common = np.intersect1d(common, run.series[name].axis.steps)
    return common


def _at(run: Run, name: str, steps: IntArray) -> FloatArray:
    """Return the mean of a run's records at each step; there are several if each minibatch is logged."""
    series = run.series[name]
    keep = np.isin(series.axis.steps, steps)
    place = np.searchsorted(steps, series.axis.steps[keep])
    total = np.bincount(place, weights=series.values[keep], minlength=len(steps))
    size = np.bincount(place, minlength=len(steps))
    mean: FloatArray = total / size
    return mean


def first_apart(a: FloatArray, b: FloatArray, *, wander: bool = True) -> int | None:
    """Return the first record from which two sides [seeds, records] stay apart, or None.

    A finite and a non-finite value are apart. Without `wander` the noise of the sides is ignored, and every gap beyond
    `LEAST_SHARE` counts.
    """
    left, right, finite = _means(a, b)
    gap = np.abs(left - right)
    # Values without noise, such as those of a schedule, are still rounded.
    bound = LEAST_SHARE * np.maximum(np.abs(left), np.abs(right))
    if wander:
        noise = np.full(len(gap), NOISES * np.hypot(_noise(a), _noise(b)))
        bound = np.maximum.reduce([bound, noise, WALKS * _walked(left - right)])
    apart = (_smoothed(gap) > bound) & (gap > 0) | ~finite
    dead = _stuck(left, right) | _stuck(right, left)
    return _lasting(apart | dead)


def _stuck(side: FloatArray, other: FloatArray) -> BoolArray:
    """Return where a side stays at one value for at least half the run and differs from the other side, which varies.

    A constant side, such as 0 in every record, is apart from a varying one even if it is within its noise.
    """
    changes = np.flatnonzero(np.diff(side))
    start = int(changes[-1]) + 1 if len(changes) else 0
    tail = np.arange(len(side)) >= start
    varies = len(np.unique(other[start:])) > (len(side) - start) / 2
    stuck: BoolArray = tail & (other != side[-1]) & (varies and len(side) - start >= len(side) / 2)
    return stuck


def _means(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return both means over seeds, 0 where either is not finite, and where both or neither of them are finite."""
    left, right = a.mean(axis=0), b.mean(axis=0)
    finite = np.isfinite(left) & np.isfinite(right)
    alike: BoolArray = np.isfinite(left) == np.isfinite(right)
    return np.where(finite, left, 0.0), np.where(finite, right, 0.0), alike


def _walked(gap: FloatArray) -> FloatArray:
    """Return one standard deviation of how far a gap may have diffused by each record.

    The squared jumps over short lags grow as lag ** exponent: 0 for noise around a level, 1 for a random walk. Steeper
    growth, as of a smooth curve, counts as 1.
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
    """Return the exponent with which a variance grows from one lag to another, between `least` and 1."""
    if shortest == longest or near <= 0 or far <= 0:
        return 1.0
    return float(np.clip(np.log(far / near) / np.log(longest / shortest), least, 1.0))


def other_level(a: FloatArray, b: FloatArray) -> int | None:
    """Return the first record from which the levels of two sides differ, by the Allan variance of their relative gap.

    The Allan variance of averages does not depend on their level. It falls as 1/length for noise and grows for a random
    walk, and thus gives the uncertainty of the mean over the rest of the run (Allan 1966). None if they do not differ.
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
    """Return the standard error of the level of a side from its seeds, 0 for a single seed."""
    return float(side.mean(axis=1).std(ddof=1) / np.sqrt(len(side))) if len(side) > 1 else 0.0


def _unsure(gap: FloatArray, length: int, window: int) -> float:
    """Return the standard deviation of a mean of `length` records of a gap."""
    shortest = max(window // 4, 1)
    far, near = _allan(gap, window), _allan(gap, shortest)
    exponent = _exponent(near, far, shortest, window, least=-1.0)
    # A walk that begins before the stretch has up to three times the variance of one that begins with it.
    reach, before = (length, 1.0) if exponent <= 0 else (len(gap), 1 + 2 * exponent)
    return float(max(np.sqrt(far * before * (reach / window) ** exponent), np.finfo(float).tiny))


def _allan(values: FloatArray, length: int) -> float:
    total = np.cumsum(np.insert(values, 0, 0.0))
    means = (total[length:] - total[:-length]) / length
    return _spread(means[length:] - means[:-length]) / 2


def _averaged(values: FloatArray, window: int) -> FloatArray:
    """Return the running mean over a window; the first and last values are repeated at the ends."""
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
    """Return the standard deviation of the mean of a side: its scatter between records and between seeds."""
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
    """Return the first record that is apart and from which on `FOR_GOOD` of at least three records are, or None."""
    share_apart = np.cumsum(apart[::-1])[::-1] / np.arange(len(apart), 0, -1)
    starts = np.flatnonzero(apart & (share_apart >= FOR_GOOD))
    if not len(starts) or len(apart) - starts[0] < 3:
        return None
    return int(starts[0])
