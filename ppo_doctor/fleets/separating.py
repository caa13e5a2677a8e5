"""Find the settings in which broken runs differ from the others: counts, an exact test, and an interval.

Names of settings say nothing here. What identifies a run, as a seed, a name or a path does, shows by having nearly as
many values as there are runs, and is left out. What is found is an association: a fleet is no experiment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random

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
ASSOCIATION = "association, not cause: what differs may come with what breaks a run"


@dataclass(slots=True)
class Group:
    """Numbers of broken runs and of others, and a sum over their marks that no other set of runs has."""

    broken: int = 0
    others: int = 0
    marks: int = 0

    @property
    def runs(self) -> int:
        """Return the number of runs."""
        return self.broken + self.others

    def put(self, broken: int, others: int, marks: int) -> None:
        """Add runs."""
        self.broken += broken
        self.others += others
        self.marks += marks


@dataclass(slots=True)
class Values:
    """The runs by the values of one setting; memory is bounded, for which numbers are rounded more and more."""

    groups: dict[float | str, Group] = field(default_factory=dict)
    identifies: bool = False
    whole: bool = True
    digits: int = 0

    def add(self, text: str, *, broken: bool, mark: int) -> None:
        """Add a run with a value."""
        if self.identifies:
            return
        value = _value(text)
        if isinstance(value, float):
            self.whole = self.whole and value.is_integer()
            value = _rounded(value, self.digits)
        self._group(value).put(broken, not broken, mark)
        while len(self.groups) > MOST_VALUES and not self.identifies:
            self._shrink()

    def _group(self, value: float | str) -> Group:
        return self.groups.setdefault(value, Group())

    def _shrink(self) -> None:
        """Round the numbers to fewer digits; texts and numbers without end identify runs."""
        texts = sum(isinstance(value, str) for value in self.groups)
        if self.unique() or 2 * texts > len(self.groups) or self.digits == 1:
            self.identifies = True
            self.groups.clear()
            return
        self.digits = self.digits - 1 if self.digits else 3
        kept, self.groups = self.groups, {}
        for value, group in kept.items():
            rounded = _rounded(value, self.digits) if isinstance(value, float) else value
            self._group(rounded).put(group.broken, group.others, group.marks)

    def unique(self) -> bool:
        """Return whether nearly every run has a value of its own, and the values are no measures on a scale."""
        runs = sum(group.runs for group in self.groups.values())
        scale = not self.whole and all(isinstance(value, float) for value in self.groups)
        return len(self.groups) > UNIQUE * runs and not scale


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


@frozen
class _Division:
    """The runs with a value of a setting, and all runs that have the setting."""

    setting: str
    value: str
    exact: bool
    inside: Group
    all: Group

    def outside(self) -> Group:
        inside, everything = self.inside, self.all
        return Group(everything.broken - inside.broken, everything.others - inside.others)

    def probability(self) -> float:
        outside = self.outside()
        return fisher(self.inside.broken, self.inside.others, outside.broken, outside.others)


class Separating:
    """Counts runs by their settings, one after the other."""

    def __init__(self) -> None:
        self._settings: dict[str, Values] = {}
        self._all = Group()
        self._random = Random(0)  # noqa: S311 - marks that tell sets of runs apart

    def add(self, settings: Mapping[str, str], *, broken: bool) -> None:
        """Add a run."""
        mark = self._random.getrandbits(62)
        self._all.put(broken, not broken, mark)
        for name, value in settings.items():
            values = self._settings.get(name)
            if values is None:
                if len(self._settings) >= MOST_SETTINGS:
                    continue
                values = self._settings[name] = Values()
            values.add(value, broken=broken, mark=mark)

    def result(self) -> Separation:
        """Return the settings that separate."""
        divisions = [each for name, values in self._settings.items() for each in _divisions(name, values)]
        probabilities = holm([each.probability() for each in divisions])
        best: dict[str, tuple[Separator, _Division]] = {}
        for division, probability in zip(divisions, probabilities, strict=True):
            if probability < LEVEL:
                made = _separator(division, probability)
                known = best.get(division.setting)
                if known is None or made.nearest > known[0].nearest:
                    best[division.setting] = made, division
        found = _joined(sorted(best.values(), key=lambda pair: (-pair[0].nearest, pair[0].setting)))
        return Separation(
            settings=len({each.setting for each in divisions}),
            values=len(divisions),
            broken=self._all.broken,
            runs=self._all.runs,
            found=tuple(found[:MOST_FOUND]),
            more=len(found[MOST_FOUND:]),
        )


def _divisions(name: str, values: Values) -> Iterator[_Division]:
    """Yield the divisions of the runs by a setting; of two values, that with the greater share of broken runs."""
    if values.identifies or len(values.groups) < 2 or values.unique():
        return
    everything = _sum(list(values.groups.values()))
    parts = [part for part in _parts(values.groups) if LEAST <= part[2].runs <= everything.runs - LEAST]
    if len(parts) == 2 and parts[0][2].runs + parts[1][2].runs == everything.runs:
        parts = [max(parts, key=lambda part: (part[2].broken / part[2].runs, part[0]))]
    for label, exact, group in parts:
        yield _Division(setting=name, value=label, exact=exact, inside=group, all=everything)


def _parts(groups: Mapping[float | str, Group]) -> list[tuple[str, bool, Group]]:
    """Return each value with its runs, and whether it is one value; numbers in bins if they are many."""
    texts = [(value, True, group) for value, group in groups.items() if isinstance(value, str)]
    numbers = sorted((value, group) for value, group in groups.items() if isinstance(value, float))
    if len(numbers) <= MOST_NUMBERS:
        return texts + [(number(value), True, group) for value, group in numbers]
    return texts + _bins(numbers)


def _bins(numbers: Sequence[tuple[float, Group]]) -> list[tuple[str, bool, Group]]:
    """Return numbers in order in up to `BINS` bins, each with about as many runs."""
    total = sum(group.runs for _, group in numbers)
    bins: dict[int, list[tuple[float, Group]]] = {}
    before = 0
    for value, group in numbers:
        bins.setdefault(int(BINS * (before + group.runs / 2) / total), []).append((value, group))
        before += group.runs
    return [
        (f"{number(part[0][0])} to {number(part[-1][0])}", False, _sum([group for _, group in part]))
        for part in bins.values()
    ]


def _sum(groups: Sequence[Group]) -> Group:
    total = Group()
    for group in groups:
        total.put(group.broken, group.others, group.marks)
    return total


def _separator(division: _Division, probability: float) -> Separator:
    inside, outside = division.inside, division.outside()
    low, high = newcombe(inside.broken, inside.runs, outside.broken, outside.runs)
    return Separator(
        setting=division.setting,
        value=division.value,
        broken=inside.broken,
        runs=inside.runs,
        broken_others=outside.broken,
        runs_others=outside.runs,
        difference=inside.broken / inside.runs - outside.broken / outside.runs,
        low=low,
        high=high,
        probability=probability,
        exact=division.exact,
    )


def _joined(found: Sequence[tuple[Separator, _Division]]) -> list[Separator]:
    """Return separators in order; those that part the same runs are named with the first of them."""
    alike: dict[tuple[int, int], list[Separator]] = {}
    for separator, division in found:
        alike.setdefault((division.inside.marks, division.all.marks), []).append(separator)
    return [
        replace(first, also=tuple(f"{each.setting} = {each.value}" for each in rest[:MOST_ALSO]))
        for first, *rest in alike.values()
    ]


def holm(probabilities: Sequence[float]) -> list[float]:
    """Return probabilities corrected by Holm for how many there are."""
    order = sorted(range(len(probabilities)), key=probabilities.__getitem__)
    corrected = [1.0] * len(probabilities)
    greatest = 0.0
    for rank, at in enumerate(order):
        greatest = max(greatest, min(1.0, (len(order) - rank) * probabilities[at]))
        corrected[at] = greatest
    return corrected


def fisher(a: int, b: int, c: int, d: int) -> float:
    """Return the two-sided probability of Fisher's exact test for the table ((a, b), (c, d)).

    It is the sum over all tables with these margins that are at most as probable as this one.
    """
    table = _Table(a + b, a + c, a + b + c + d)
    bound = table.log(a) + 1e-7  # equal probabilities are not computed as equal
    if table.log(table.mode) <= bound:
        return 1.0
    above = _first(table.mode, table.high + 1, lambda x: table.log(x) <= bound)
    below = -_first(-table.mode, 1 - table.low, lambda x: table.log(-x) <= bound)
    return min(1.0, table.tail(above, 1) + table.tail(below, -1))


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the least number from `low` on for which something holds that stays so, or `high`."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


class _Table:
    """The 2×2 tables with given margins, by their first cell."""

    def __init__(self, row: int, column: int, total: int) -> None:
        self._row, self._column, self._rest = row, column, total - row - column
        self.low, self.high = max(0, -self._rest), min(row, column)
        self.mode = min(max((row + 1) * (column + 1) // (total + 2), self.low), self.high)
        ends = (row, total - row, column, total - column)
        self._constant = sum(math.lgamma(n + 1) for n in ends) - math.lgamma(total + 1)

    def _cells(self, x: int) -> tuple[int, int, int, int]:
        return x, self._row - x, self._column - x, self._rest + x

    def log(self, x: int) -> float:
        """Return the logarithm of the probability of a table."""
        return self._constant - sum(math.lgamma(n + 1) for n in self._cells(x))

    def tail(self, x: int, step: int) -> float:
        """Return the sum of probabilities from a table outwards; the terms fall faster than geometrically."""
        if not self.low <= x <= self.high:
            return 0.0
        term = total = 1.0
        first = self.log(x)
        while term > total * 1e-17 and self.low <= x + step <= self.high:
            a, b, c, d = self._cells(x)
            term *= b * c / ((a + 1) * (d + 1)) if step > 0 else a * d / ((b + 1) * (c + 1))
            total += term
            x += step
        return math.exp(first + math.log(total))


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
