"""Many runs in one process, what the rules take of a diagnosis, and how costs grow with size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks import data
from benchmarks.logs import ORJSON
from benchmarks.measuring import Line, Unmeasured, amount, exponent, interleaved, line, worker

LINEAR = "a straight line"
EVERY = "records with every canonical metric"
LEAST = (
    "parse and pack the lines, a median for each quantity that the log gives, and the objects of its findings: what no"
    " judgement by these rules can do without"
)


def rows(scratch: Path, repeat: int, *, quick: bool) -> list[Line | Unmeasured]:
    """Measure a sweep, the share of the rules, and growth over three decades."""
    return [*_sweep(scratch, repeat, quick=quick), *_growth(scratch, min(repeat, 2), quick=quick)]


def _sweep(scratch: Path, repeat: int, *, quick: bool) -> list[Line]:
    count = 20 if quick else 1_000
    folder = data.runs(scratch / "sweep", count)
    works = {ORJSON: "orjson_lines", LEAST: "least_sweep", "runs": "analyze_all"}
    cases = {name: partial(worker, work, folder) for name, work in works.items()}
    costs = interleaved(cases, repeat, warm=False)
    log = data.jsonl(scratch / "share.jsonl", 2_000 if quick else 100_000, 40)
    shares = {"the whole diagnosis": partial(worker, "analyze", log), "judge": partial(worker, "judge", log)}
    share = interleaved(shares, repeat, warm=False)
    return [
        line(f"{count:,} runs of 500 records in one process", costs, "runs", ORJSON, bound=15.0),
        line(f"the least sweep, {count:,} runs", costs, LEAST, ORJSON, note=LEAST),
        line("rules and ranking, 100k × 40", share, "judge", "the whole diagnosis", bound=0.2),
    ]


def _growth(scratch: Path, repeat: int, *, quick: bool) -> list[Line | Unmeasured]:
    if quick:
        return [
            _grown("records", (100, 1_000), _records, "analyze", scratch, 1),
            _grown(EVERY, (100, 1_000), _every_metric, "judge", scratch, 1),
        ]
    decades: Mapping[str, tuple[Sequence[int], Callable[[Path, int], Path], str]] = {
        "records": ((1_000, 10_000, 100_000, 1_000_000), _records, "analyze"),
        EVERY: ((300, 3_000, 30_000), _every_metric, "judge"),
        "keys": ((20, 200, 2_000, 20_000), _keys, "analyze"),
        "runs": ((10, 100, 1_000, 10_000), _runs, "analyze_all"),
        "tokens": ((10_000, 100_000, 1_000_000, 10_000_000), _tokens, "analyze"),
    }
    return [_grown(name, *decade, scratch, 1 if name == "runs" else repeat) for name, decade in decades.items()]


def _grown(
    name: str, sizes: Sequence[int], make: Callable[[Path, int], Path], work: str, scratch: Path, repeat: int
) -> Line:
    """Fit cost over size. What every run pays is measured on the smallest size and is in all of them."""
    places = {size: make(scratch / f"{name}-{size}", size) for size in sizes}
    costs = interleaved({str(size): partial(worker, work, place) for size, place in places.items()}, repeat, warm=False)
    best = {size: min(cost.cpu for cost in costs[str(size)]) for size in sizes}
    slopes = [exponent([a, b], [best[a], best[b]]) for a, b in itertools.pairwise(sizes)]
    return Line(
        task=f"growth in {name}, {sizes[0]:,} to {sizes[-1]:,}",
        peer=LINEAR,
        clock="cpu",
        ratio=exponent(sizes, [best[size] for size in sizes]),
        low=min(slopes),
        high=max(slopes),
        bound=1.05,
        ours=amount("cpu", best[sizes[-1]]),
        theirs=amount("cpu", best[sizes[0]]),
        rounds=repeat,
        note="the exponent; in brackets that of single decades",
    )


def _records(place: Path, size: int) -> Path:
    return data.jsonl(place.with_suffix(".jsonl"), size, len(data.METRICS))


def _every_metric(place: Path, size: int) -> Path:
    """All derived quantities have their inputs there; ten metrics leave out two in three."""
    return data.jsonl(place.with_suffix(".jsonl"), size, data.every_name())


def _keys(place: Path, size: int) -> Path:
    return data.jsonl(place.with_suffix(".jsonl"), 50, size)


def _runs(place: Path, size: int) -> Path:
    return data.runs(place, size, 20)


def _tokens(place: Path, size: int) -> Path:
    return data.dump(place.with_suffix(".npz"), size)
