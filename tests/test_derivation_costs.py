"""What deriving costs: each quantity at most n·log n in steps and n in memory, with every canonical metric logged.

Counted, not timed: the peak of what is allocated, and as work the values that numpy is handed and the lines of Python
that run in the rooms that compute.
"""

from __future__ import annotations

import math
import sys
import tracemalloc
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ppo_doctor.derive import Observations
from ppo_doctor.derive.table import DERIVED
from ppo_doctor.model import Run, Series
from tests.every_metric import NAMES, axis_of, derive_all, observe_all

FEW, MANY = 1_500, 6_000
#: Arrays of n float64 values that a quantity may hold at once: a window of 20 batches sorted side by side leads.
MOST_ARRAYS = 24
#: What does not grow with n: runs are read at 400 points, series up to 512 records are sorted in one table.
#: Bytes that a quantity takes to say that it cannot tell.
NOTHING_TOLD = 2_000
FIXED_BYTES, FIXED_WORK = 300_000, 150_000
#: Names that are interned at once, how often at most, and bytes that only a table that is rebuilt takes.
NAMES_IN_BLOCK, MOST_BLOCKS, TABLE_OF_NAMES = 1_000, 500, 500_000
#: How much faster than n work may grow from FEW to MANY: log n does by 1.2, and a search ends early or late.
SLACK = 1.6

SHAPES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "noise": lambda time, unit: 0.1 + 0.5 * unit + 0 * time,
    "falling": lambda time, unit: (1 - 0.9 * time) * (1 + 0.1 * unit),
    "rising": lambda time, unit: (0.1 + 0.9 * time) * (1 + 0.1 * unit),
    "whole": lambda time, unit: np.round(5 * unit + 0 * time),
    "leaping": lambda time, unit: np.where(unit < 0.5, 10 + time, 0.1 * unit),
    "climbing": lambda time, unit: np.where(np.arange(len(unit)) % 2, 6 + time, 1.19 + 0.2 * time),
    "signed": lambda time, unit: unit - 0.5 + 0 * time,
    "broken": lambda time, unit: np.where((unit < 0.1) | (time > 0.9), np.nan, unit),
    "stopping": lambda time, unit: np.where(time < 0.5, unit, 0.0),
}
#: Kinds of runs: what a metric of the others shows keeps some quantities from being computed.
KINDS: dict[str, dict[str, Any]] = {
    "k3": {"estimator": "k3"},
    "k1": {"estimator": "k1", "algorithm": "grpo"},
    "torn": {"estimator": "k3"},
}


def observed(records: int, shape: str, kind: str) -> Observations:
    time, chance = np.linspace(0, 1, records), np.random.default_rng(0)
    columns = {name: SHAPES[shape](time, chance.random(records)) for name in NAMES}
    found = observe_all(axis_of(records), columns.__getitem__, **KINDS[kind])
    return torn(found.run) if kind == "torn" else found


def torn(run: Run) -> Observations:
    """Return observations of a run in which each metric lacks a record of its own, so that no two share an axis."""
    series = {name: without(one, at) for at, (name, one) in enumerate(run.series.items(), start=1)}
    return Observations(replace(run, series=series))


def without(series: Series, record: int) -> Series:
    kept = np.delete(np.arange(len(series)), record % len(series))
    return replace(series, axis=series.axis.take(kept), values=series.values[kept])


class Counted(np.ndarray):
    """An array that counts the values handed to numpy's functions, whichever arrays they make of it."""

    work = 0

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, out: Any = (), **options: Any) -> Any:
        if out:
            options["out"] = tuple(map(plain, out))
        return self.counted(getattr(function, method), inputs, options)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        return self.counted(function, inputs, options)

    def counted(self, function: Any, inputs: Any, options: Any) -> Any:
        sizes = [part.size for part in flat(inputs) if isinstance(part, np.ndarray)]
        folded = getattr(function, "__name__", "") in ("convolve", "correlate", "outer")
        Counted.work += math.prod(sizes) if folded else sum(sizes)
        made = function(*map(plain, inputs), **{key: plain(value) for key, value in options.items()})
        return made.view(Counted) if type(made) is np.ndarray else made


def flat(thing: Any) -> Iterator[Any]:
    for part in thing:
        yield from flat(part) if isinstance(part, list | tuple) else (part,)


def plain(thing: Any) -> Any:
    if isinstance(thing, list | tuple):
        return type(thing)(map(plain, thing))
    return thing.view(np.ndarray) if isinstance(thing, Counted) else thing


@contextmanager
def lines_counted() -> Iterator[None]:
    """Count lines that run in the rooms that compute, comprehensions by their turns."""

    def trace(frame: Any, event: str, _: object) -> Any:
        if event == "line":
            Counted.work += 1
        ours = "ppo_doctor" in frame.f_code.co_filename
        return trace if ours else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def work_of(records: int, shape: str, names: Collection[str], kind: str) -> dict[str, int]:
    """Return the work of quantities, without that of those before each in the table, which are not computed again."""
    run = observed(records, shape, kind).run
    series = {name: replace(held, values=held.values.view(Counted)) for name, held in run.series.items()}
    observations, found = Observations(replace(run, series=series)), {}
    for name in DERIVED:
        Counted.work = 0
        with lines_counted() if name in names else nullcontext():
            observations.get(f"series.{name}")
        found[name] = Counted.work
    return {name: found[name] for name in names}


FIRST = next(iter(KINDS))


def shapes_of(kind: str) -> list[str]:
    """Return the shapes in which a kind is measured: another than the first differs in few quantities.

    Torn records cost what it takes to match them, whatever their values are.
    """
    return [*SHAPES][:: {FIRST: 1, "torn": len(SHAPES)}.get(kind, 3)]


def own(kind: str, shape: str) -> list[str]:
    """Return the quantities to measure for a kind: all for the first, of another those that come out otherwise."""
    if kind == FIRST:
        return [*DERIVED]
    ours, theirs = (observed(FEW, shape, held) for held in (kind, FIRST))
    return [name for name in DERIVED if (told := content(ours, name)) and told != content(theirs, name)]


def content(observations: Observations, name: str) -> object:
    """Return what a quantity tells, None where it tells nothing."""
    fact, series = observations.fact(name), observations.series(name)
    return repr(fact.value) if fact else series.values.tobytes() if series else None


def make_room_for_names() -> None:
    """Have the interpreter rebuild its table of interned names before anything is measured.

    It does so when the table is full, whoever happens to add a name: 3.8 MB at the 87,381st, which a process that has
    run half of the suite reaches. A table that was just rebuilt is half empty.
    """
    for block in range(MOST_BLOCKS):
        tracemalloc.start()
        for number in range(NAMES_IN_BLOCK):
            sys.intern(f"{block} of {number}")
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        if taken > TABLE_OF_NAMES:
            return


def memory_of(records: int, shape: str, names: Collection[str], kind: str) -> dict[str, int]:
    """Return the peak of bytes that quantities take while they are computed."""
    observations, found = observed(records, shape, kind), {}
    for name in DERIVED:
        if name in names:
            tracemalloc.start()
        observations.get(f"series.{name}")
        if name in names:
            found[name] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    return found


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_memory_is_linear_in_the_records(kind):
    derive_all(observed(60, "noise", kind))  # imports
    make_room_for_names()
    over = {}
    for shape in shapes_of(kind):
        names = own(kind, shape)
        few, many = (memory_of(records, shape, names, kind) for records in (FEW, MANY))
        for name in names:
            told = few[name] > NOTHING_TOLD  # what is None of few records says nothing of growth
            bound = min(MOST_ARRAYS * 8 * MANY, 1.1 * MANY / FEW * few[name] if told else math.inf) + FIXED_BYTES
            if many[name] > bound:
                over[name, shape] = (few[name], many[name])
    assert over == {}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_work_grows_as_n_log_n_at_most(kind):
    derive_all(observed(60, "noise", kind))
    over = {}
    for shape in shapes_of(kind):
        names = own(kind, shape)
        few, many = (work_of(records, shape, names, kind) for records in (FEW, MANY))
        for name in names:
            if many[name] > SLACK * MANY / FEW * few[name] + FIXED_WORK:
                over[name, shape] = (few[name], many[name])
    assert over == {}
