"""Find the settings in which broken runs differ from the others: counts, an exact test, and an interval.

Names of settings say nothing here. What identifies a run, as a seed, a name or a path does, shows by having nearly as
many values as there are runs, and is left out. What is found is an association: a fleet is no experiment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from itertools import accumulate
from random import Random
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ppo_doctor.model.evidence import number
from ppo_doctor.model.frozen import frozen

#: Settings of a fleet that are looked at, and distinct values of each that are kept.
MOST_SETTINGS, MOST_VALUES = 3000, 400
#: A setting with more values than this share of its runs identifies them, unless they are measured on a scale.
UNIQUE = 0.5
#: Up to so many numbers are looked at one by one, more in so many bins with about as many runs each.
MOST_NUMBERS, BINS = 8, 4
#: The least runs that have a value, and that have another one.
LEAST = 5
#: A setting separates if the corrected probability is below this; the score of the interval's 95 %.
LEVEL, Z = 0.05, 1.959963984540054
#: The most settings that are given, and the most others of each with the same runs.
MOST_FOUND, MOST_ALSO = 20, 5
#: Numbers of broken runs and of all in a set of runs, and a sum over their marks that no other set has.
Group: TypeAlias = tuple[int, int, int]
NONE: Group = (0, 0, 0)
ASSOCIATION = "association, not cause: what differs may come with what breaks a run"


@dataclass(slots=True)
class Values:
    """The runs by the values of one setting; memory is bounded, for which numbers are rounded more and more."""

    groups: dict[float | str, Group] = field(default_factory=dict)
    identifies: bool = False
    whole: bool = True
    digits: int = 0

    def add(self, text: str, run: Group) -> None:
        """Add a run with a value."""
        if self.identifies:
            return
        value = _value(text)
        if isinstance(value, float):
            self.whole = self.whole and value.is_integer()
            value = _rounded(value, self.digits)
        self.groups[value] = _plus(self.groups.get(value, NONE), run)
        while len(self.groups) > MOST_VALUES and not self.identifies:
            self._shrink()

    def _shrink(self) -> None:
        """Round the numbers to fewer digits; texts and numbers without end identify runs."""
        texts = sum(isinstance(value, str) for value in self.groups)
        self.identifies = self.unique() or 2 * texts > len(self.groups) or self.digits == 1
        self.digits = self.digits - 1 if self.digits else 3
        kept, self.groups = {} if self.identifies else self.groups, {}
        for value, group in kept.items():
            rounded = _rounded(value, self.digits) if isinstance(value, float) else value
            self.groups[rounded] = _plus(self.groups.get(rounded, NONE), group)

    def unique(self) -> bool:
        """Return whether nearly every run has a value of its own, and the values are no measures on a scale."""
        runs = sum(runs for _, runs, _ in self.groups.values())
        scale = not self.whole and all(isinstance(value, float) for value in self.groups)
        return len(self.groups) > UNIQUE * runs and not scale


def _plus(one: Group, other: Group) -> Group:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


@lru_cache(maxsize=8192)
def _value(text: str) -> float | str:
    """Return a setting's value as a number if it is one."""
    try:
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits - 1}e}") if digits else value


@frozen
class Separator:
    """A setting with the value in which broken runs differ most from others, among the runs that have the setting.

    `difference` is the share of broken runs among those with the value less that among those with another one, with
    its 95 % interval; `probability` is Fisher's, corrected. `also` are settings whose values part the same runs.
    """

    setting: str
    value: str
    broken: int
    runs: int
    broken_others: int
    runs_others: int
    difference: float
    low: float
    high: float
    probability: float
    #: whether the value is that of the runs themselves and no range of numbers
    exact: bool
    also: tuple[str, ...] = ()

    @property
    def nearest(self) -> float:
        """Return the end of the interval that is nearest to no difference."""
        return min(abs(self.low), abs(self.high)) if self.low * self.high > 0 else 0.0


@frozen
class Separation:
    """What was looked at, what was found, the strongest first, and how many more settings were."""

    settings: int = 0
    values: int = 0
    broken: int = 0
    runs: int = 0
    found: tuple[Separator, ...] = ()
    more: int = 0


class Separating:
    """Counts runs by their settings, one after the other."""

    def __init__(self) -> None:
        self._settings: dict[str, Values] = {}
        self._all = NONE
        self._random = Random(0)  # noqa: S311 - marks that tell sets of runs apart

    def add(self, settings: Mapping[str, str], *, broken: bool) -> None:
        """Add a run."""
        run = (int(broken), 1, self._random.getrandbits(62))
        self._all = _plus(self._all, run)
        for name, value in settings.items():
            if name in self._settings or len(self._settings) < MOST_SETTINGS:
                self._settings.setdefault(name, Values()).add(value, run)

    def result(self) -> Separation:
        """Return the settings that separate; those whose values part the same runs are named with the first of them."""
        looked = [each for name, values in self._settings.items() for each in _separators(name, values)]
        corrected = holm([each.probability for each, _ in looked])
        found = [(replace(each, probability=p), runs) for (each, runs), p in zip(looked, corrected, strict=True)]
        found = sorted((pair for pair in found if pair[0].probability < LEVEL), key=lambda pair: -pair[0].nearest)
        best = {each.setting: (each, runs) for each, runs in reversed(found)}.values()
        alike: dict[object, list[Separator]] = {}
        for each, runs in sorted(best, key=lambda pair: (-pair[0].nearest, pair[0].setting)):
            alike.setdefault(runs, []).append(each)
        joined = [
            replace(first, also=tuple(f"{each.setting} = {each.value}" for each in rest[:MOST_ALSO]))
            for first, *rest in alike.values()
        ]
        return Separation(
            settings=len({each.setting for each, _ in looked}),
            values=len(looked),
            broken=self._all[0],
            runs=self._all[1],
            found=tuple(joined[:MOST_FOUND]),
            more=len(joined[MOST_FOUND:]),
        )


def _separators(name: str, values: Values) -> Iterator[tuple[Separator, tuple[int, int]]]:
    """Yield each value of a setting, not corrected, with the marks of its runs and of all that have the setting.

    Of two values it is that with the greater share of broken runs.
    """
    if values.identifies or len(values.groups) < 2 or values.unique():
        return
    broken, runs, marks = reduce(_plus, values.groups.values())
    parts = [part for part in _parts(values.groups) if LEAST <= part[2][1] <= runs - LEAST]
    if len(parts) == 2 and parts[0][2][1] + parts[1][2][1] == runs:
        parts = [max(parts, key=lambda part: (part[2][0] / part[2][1], part[0]))]
    for label, exact, (a, m, inside) in parts:
        b, n = broken - a, runs - m
        low, high = newcombe(a, m, b, n)
        yield (
            Separator(
                setting=name,
                value=label,
                broken=a,
                runs=m,
                broken_others=b,
                runs_others=n,
                difference=a / m - b / n,
                low=low,
                high=high,
                probability=fisher(a, m - a, b, n - b),
                exact=exact,
            ),
            (inside, marks),
        )


def _parts(groups: Mapping[float | str, Group]) -> list[tuple[str, bool, Group]]:
    """Return each value with its runs, and whether it is one value; numbers in bins if they are many."""
    texts = [(value, True, group) for value, group in groups.items() if isinstance(value, str)]
    numbers = sorted((value, group) for value, group in groups.items() if isinstance(value, float))
    if len(numbers) <= MOST_NUMBERS:
        return texts + [(number(value), True, group) for value, group in numbers]
    sizes = [runs for _, (_, runs, _) in numbers]
    middles = [end - size / 2 for end, size in zip(accumulate(sizes), sizes, strict=True)]
    bins: dict[int, list[tuple[float, Group]]] = {}
    for middle, each in zip(middles, numbers, strict=True):
        bins.setdefault(int(BINS * middle / sum(sizes)), []).append(each)
    return texts + [
        (f"{number(part[0][0])} to {number(part[-1][0])}", False, reduce(_plus, (group for _, group in part)))
        for part in bins.values()
    ]


def holm(probabilities: Sequence[float]) -> list[float]:
    """Return probabilities corrected by Holm for how many there are."""
    order = sorted(range(len(probabilities)), key=probabilities.__getitem__)
    left = range(len(order), 0, -1)
    greatest = accumulate((min(1.0, n * probabilities[at]) for n, at in zip(left, order, strict=True)), max)
    return [p for _, p in sorted(zip(order, greatest, strict=True))]


def fisher(a: int, b: int, c: int, d: int) -> float:
    """Return the two-sided probability of Fisher's exact test for the table ((a, b), (c, d)).

    It is the sum over all tables with these margins that are at most as probable as this one.
    """
    logs = _log_factorials(1 << (a + b + c + d).bit_length())
    first = np.arange(max(0, a - d), min(a + b, a + c) + 1)
    each = -(logs[first] + logs[a + b - first] + logs[a + c - first] + logs[d - a + first])
    shares = np.exp(each - each.max())
    bound = each[a - first[0]] + 1e-7  # equal probabilities are not computed as equal
    return float(shares[each <= bound].sum() / shares.sum())


@lru_cache(maxsize=4)
def _log_factorials(most: int) -> NDArray[np.float64]:
    return np.cumsum(np.log(np.maximum(np.arange(most + 1), 1)))


def newcombe(a: int, m: int, b: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a/m - b/n that Newcombe composes of two Wilson intervals (his method 10)."""
    (low_a, high_a), (low_b, high_b) = _wilson(a, m), _wilson(b, n)
    p, q = a / m, b / n
    return p - q - math.hypot(p - low_a, high_b - q), p - q + math.hypot(high_a - p, q - low_b)


def _wilson(hits: int, size: int) -> tuple[float, float]:
    share, square = hits / size, Z * Z
    middle = (share + square / (2 * size)) / (1 + square / size)
    half = Z * math.sqrt(share * (1 - share) / size + square / (4 * size * size)) / (1 + square / size)
    return middle - half, middle + half
