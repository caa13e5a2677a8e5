"""What a fleet costs: `python -m benchmarks.fleet [--quick]`; it needs pyarrow, and Ray for its engine.

The driver (finding runs, fingerprints, the table) is measured from 100 to 100,000 runs with an engine that hands out
a row that is ready, in a process of its own for each size; each engine with one process is held against judging the
same runs one after the other without an engine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks import data
from benchmarks.measuring import Cost, Line, Unmeasured, exponent, interleaved, line, told
from benchmarks.work import peak

SIZES = (100, 1_000, 10_000, 100_000)
MOST_MB = 300.0
ALONE = "one process without an engine"


def linked(folder: Path, count: int, records: int = 20) -> Path:
    """Make folders with one small log and its settings each, links to few files: a file has at most 65,000 links."""
    folder.mkdir(parents=True)
    for number in range(count):
        if number % 50_000 == 0:
            log = data.jsonl(folder.with_suffix(f".{number}.jsonl"), records, len(data.METRICS))
            settings = folder.with_suffix(f".{number}.config.json")
            settings.write_text(json.dumps(data.CONFIG))
        place = folder / f"run-{number:06d}"
        place.mkdir()
        (place / "run.jsonl").hardlink_to(log)
        (place / "config.json").hardlink_to(settings)
    return folder


class Ready:
    """An engine that judges the first unit and gives each other one the same row."""

    def map(self, units, judge) -> Iterator:
        row = None
        for unit in units:
            row = row or judge(unit)[0]
            yield unit, [replace(row, key=unit.key, run=unit.key, source=unit.key, fingerprint=unit.fingerprint)]


def fleet(source: Path, table: Path, engine: str) -> Cost:
    """Judge a fleet in this process with an engine."""
    from ppo_doctor.checks.rulepack import load_pack
    from ppo_doctor.fleets.engines import engine_named
    from ppo_doctor.fleets.run import judge_fleet
    from ppo_doctor.fleets.table import Table
    from ppo_doctor.model.request import Request

    found = Ready() if engine == "ready" else engine_named(engine, None, 1)
    pack = load_pack()
    if engine != "ready":  # what starts once is not what a run costs
        judge_fleet([str(next(source.iterdir()))], Request(), pack, found, Table(table.with_suffix(".first")))
    cpu, start = time.process_time(), time.perf_counter()
    judge_fleet([str(source)], Request(), pack, found, Table(table))
    return Cost(time.process_time() - cpu, time.perf_counter() - start, peak())


def alone(source: Path) -> Cost:
    """Judge the same runs in this process, one after the other."""
    from ppo_doctor.checks.rulepack import load_pack
    from ppo_doctor.fleets.unit import unit_of
    from ppo_doctor.fleets.work import Judge
    from ppo_doctor.model.request import Request
    from ppo_doctor.runs.discover import sources_below
    from ppo_doctor.runs.walking import Walker

    judge = Judge(Request(), load_pack())
    judge(unit_of(next(sources_below(source, Walker()))))
    cpu, start = time.process_time(), time.perf_counter()
    for found in sources_below(source, Walker()):
        judge(unit_of(found))
    return Cost(time.process_time() - cpu, time.perf_counter() - start, peak())


def apart(*arguments: object) -> Cost:
    """Do one of these in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.fleet", "--do", *map(str, arguments)]
    made = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Cost(**json.loads(made.stdout.splitlines()[-1]))


def driver(scratch: Path, sizes: tuple[int, ...]) -> list[Line]:
    first: dict[int, Cost] = {}
    second: dict[int, Cost] = {}
    for size in sizes:
        runs = linked(scratch / f"runs-{size}", size)
        table = scratch / f"{size}.parquet"
        first[size] = apart(runs, table, "ready")
        second[size] = apart(runs, table, "ready")
        for what, cost in (("first", first[size]), ("second", second[size])):
            print(f"  {size:>7,} runs, {what} call: {cost.cpu:.2f} s of a processor, {cost.peak_mb:.0f} MB", flush=True)
    peaks = [max(first[size].peak_mb, second[size].peak_mb) for size in sizes]
    return [
        grown("the driver of a first call", {size: cost.cpu for size, cost in first.items()}),
        grown("the driver of a second call", {size: cost.cpu for size, cost in second.items()}),
        Line(
            task=f"memory of the driver at {sizes[-1]:,} runs",
            peer=f"{MOST_MB:.0f} MB",
            clock="peak_mb",
            ratio=peaks[-1] / MOST_MB,
            low=peaks[0] / MOST_MB,
            high=max(peaks) / MOST_MB,
            bound=1.0,
            ours=f"{peaks[-1]:.0f} MB",
            theirs=f"{peaks[0]:.0f} MB at {sizes[0]}",
        ),
    ]


def grown(task: str, costs: dict[int, float]) -> Line:
    """Return the exponent of the growth of what each further run costs."""
    sizes = list(costs)
    slopes = [exponent([a, b], [costs[a], costs[b]]) for a, b in itertools.pairwise(sizes)]
    return Line(
        task=f"growth of {task}, {sizes[0]:,} to {sizes[-1]:,} runs",
        peer="a straight line",
        clock="cpu",
        ratio=slopes[-1],
        low=min(slopes),
        high=max(slopes),
        bound=1.1,
        ours=f"{1e6 * costs[sizes[-1]] / sizes[-1]:.0f} µs for each of {sizes[-1]:,}",
        theirs=f"{1e6 * costs[sizes[-2]] / sizes[-2]:.0f} µs for each of {sizes[-2]:,}",
    )


def engines(scratch: Path, count: int, repeat: int) -> list[Line | Unmeasured]:
    runs = linked(scratch / "judged", count, 500)
    number = itertools.count()
    cases: dict[str, Callable[[], Cost]] = {
        ALONE: lambda: apart(runs),
        "local": lambda: apart(runs, scratch / f"local-{next(number)}.parquet", "local"),
    }
    try:
        import ray  # noqa: F401

        cases["ray"] = lambda: apart(runs, scratch / f"ray-{next(number)}.parquet", "ray")
    except ImportError:
        pass
    costs = interleaved(cases, repeat, warm=False)
    for name, found in costs.items():
        best = min(cost.wall for cost in found)
        print(f"  {name}: {count / best:.0f} runs of 500 records a second", flush=True)
    rows: list[Line | Unmeasured] = [
        line(f"{count:,} runs by the engine {name} with one process", costs, name, ALONE, clock="wall")
        for name in cases
        if name != ALONE
    ]
    return rows if "ray" in cases else [*rows, Unmeasured(task="the engine ray", why="Ray is not installed")]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--only", choices=("driver", "engines"))
    options.add_argument("--do", nargs="+", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.do:
        source, *further = given.do
        cost = fleet(Path(source), Path(further[0]), further[1]) if further else alone(Path(source))
        print(json.dumps({"cpu": cost.cpu, "wall": cost.wall, "peak_mb": cost.peak_mb}))
        return
    with tempfile.TemporaryDirectory(prefix="ppo-doctor-bench-") as place:
        scratch = Path(place)
        rows: list[Line | Unmeasured] = []
        if given.only != "engines":
            rows += driver(scratch, SIZES[:3] if given.quick else SIZES)
        if given.only != "driver":
            rows += engines(scratch, 50 if given.quick else 300, 1 if given.quick else 3)
        print(told(rows))


if __name__ == "__main__":
    main()
