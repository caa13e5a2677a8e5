"""How costs are measured and compared: processes one after the other, interleaved, medians with their spread.

Wall time for short processes, processor time (user and system, children included) for long ones; never a number alone
but its ratio to a peer or a limit of the same round, since machines differ and the same machine differs by the hour.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Clock = Literal["cpu", "wall", "peak_mb"]

#: BLAS threads that wait for work cost processor time that nobody asked for.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
SCRIPT = str(Path(sys.executable).with_name("ppo-doctor"))


@dataclass(frozen=True, slots=True)
class Cost:
    """What a piece of work cost: seconds of the processors, seconds on the wall, largest resident MB."""

    cpu: float
    wall: float
    peak_mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row of the table: what we cost by what a peer or limit cost, held against a bound.

    `low` and `high` are the smallest and largest ratio of any round. `bound` is None for a figure that has no target.
    """

    task: str
    peer: str
    clock: Clock
    ratio: float
    low: float
    high: float
    bound: float | None = None
    at_least: bool = False
    ours: str = ""
    theirs: str = ""
    rounds: int = 1
    note: str = ""

    @property
    def met(self) -> bool:
        """Tell whether the bound holds; a figure without one always does."""
        if self.bound is None:
            return True
        return self.ratio >= self.bound if self.at_least else self.ratio <= self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmeasured:
    """A row that could not be measured here, and why."""

    task: str
    why: str


def process(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Cost:
    """Run one process to its end; what it prints is dropped, and a failure has no cost."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=_environment(environment)) as running:
        _, status, used = os.wait4(running.pid, 0)
        wall = time.perf_counter() - start
        running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode:
        raise RuntimeError(f"{' '.join(command)} left with {running.returncode}")
    return Cost(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1000)


def worker(name: str, *arguments: object, python: str = sys.executable) -> Cost:
    """Do one piece of `benchmarks.work` in a process of its own, imports not counted."""
    command = [python, "-m", "benchmarks.work", name, *map(str, arguments)]
    made = subprocess.run(command, capture_output=True, text=True, check=True, env=_environment(None))
    cost = json.loads(made.stdout)
    return Cost(cost["cpu"], cost["wall"], cost["peak_mb"])


def _environment(further: Mapping[str, str] | None) -> dict[str, str]:
    """Return the environment of a user: one thread for BLAS, and bytecode kept, as any install keeps it."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | ONE_THREAD | dict(further or {})


def interleaved(cases: Mapping[str, Callable[[], Cost]], repeat: int, *, warm: bool = True) -> dict[str, list[Cost]]:
    """Return `repeat` costs of each case, in rounds so that noise hits all alike.

    With `warm` a first round fills caches and is not counted; workers warm themselves.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in cases}
    for turn in range(-warm, repeat):
        for name, case in cases.items():
            cost = case()
            if turn >= 0:
                costs[name].append(cost)
    return costs


def line(
    task: str,
    costs: Mapping[str, Sequence[Cost]],
    ours: str,
    peer: str,
    *,
    clock: Clock = "cpu",
    bound: float | None = None,
    at_least: bool = False,
    note: str = "",
) -> Line:
    """Compare two cases: the median of the rounds' ratios; for `at_least`, how many times cheaper we are."""
    mine, other = ([getattr(cost, clock) for cost in costs[name]] for name in (ours, peer))
    ratios = [b / a if at_least else a / b for a, b in zip(mine, other, strict=True)]
    return Line(
        task=task,
        peer=peer,
        clock=clock,
        ratio=statistics.median(ratios),
        low=min(ratios),
        high=max(ratios),
        bound=bound,
        at_least=at_least,
        ours=amount(clock, statistics.median(mine)),
        theirs=amount(clock, statistics.median(other)),
        rounds=len(ratios),
        note=note,
    )


def amount(clock: Clock, value: float) -> str:
    """Return a cost with its unit."""
    if clock == "peak_mb":
        return f"{value:.0f} MB"
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.2f} s"


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the slope of log cost over log size by least squares: 1 is linear."""
    import math

    xs, ys = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    mean_x, mean_y = statistics.fmean(xs), statistics.fmean(ys)
    products = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return products / sum((x - mean_x) ** 2 for x in xs)


def told(rows: Iterable[Line | Unmeasured]) -> str:
    """Return rows as plain text."""
    return "\n".join(_told(row) for row in rows)


def _told(row: Line | Unmeasured) -> str:
    if isinstance(row, Unmeasured):
        return f"{row.task}: not measured, {row.why}"
    sign = "≥" if row.at_least else "≤"
    verdict = "" if row.bound is None else f"  {sign} {row.bound:g}: {'met' if row.met else 'MISSED'}"
    return (
        f"{row.task}: {row.ratio:.2f} × {row.peer} [{row.low:.2f} … {row.high:.2f}] ({row.ours}/{row.theirs}){verdict}"
    )
