"""Reading and judging large logs: JSON Lines clean and dirty, CSV, event files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks import data
from benchmarks.measuring import SCRIPT, Cost, Line, Unmeasured, interleaved, line, process, worker

COLUMNS = 40
ORJSON = "bare orjson parse of the same bytes"
PANDAS = "pandas' C engine on a clean file"
LEAST = "parse a line, compare its keys, pack its numbers: what no reader into columns can do without"
DIRT = {"": "clean", "nan": "NaN tokens in a tenth", "torn": "1 % torn lines", "mixed": "7 key sets"}


def rows(scratch: Path, repeat: int, *, quick: bool) -> list[Line | Unmeasured]:
    """Measure JSON Lines into columns, whole diagnoses, their memory, and CSV."""
    records = 2_000 if quick else 100_000
    found: list[Line | Unmeasured] = []
    for dirt, words in list(DIRT.items())[: 2 if quick else None]:
        log = data.jsonl(scratch / f"log{dirt}.jsonl", records, COLUMNS, dirt=dirt)
        found += _jsonl(log, records, words, repeat)
        log.unlink()
    return [*found, *_csv(scratch, 4_000 if quick else 200_000, repeat)]


def _jsonl(log: Path, records: int, words: str, repeat: int) -> list[Line | Unmeasured]:
    command = [SCRIPT, "analyze", str(log), "--format", "json"]
    process([SCRIPT, "rules", "list"])  # the rules are compiled at the first start
    costs = interleaved(
        {
            ORJSON: partial(worker, "orjson_lines", log),
            "columns": partial(worker, "columns", log),
            "analyze": partial(process, command),
        }
        | ({LEAST: partial(worker, "packed_lines", log)} if words == "clean" else {}),
        repeat,
        warm=False,
    )
    size = f"{records // 1000}k × {COLUMNS}, {words}"
    note = "orjson refuses lines with NaN, so the peer does less than a parse" if words.startswith("NaN") else ""
    found: list[Line | Unmeasured] = [
        line(f"JSONL → columns, {size}", costs, "columns", ORJSON, bound=1.8, note=note),
        line(f"whole `analyze`, {size}", costs, "analyze", ORJSON, bound=2.5, note=note),
    ]
    if words == "clean":
        found.insert(1, line(f"the least loop into columns, {size}", costs, LEAST, ORJSON, note=LEAST))
        found.append(_memory(costs["analyze"], records))
    return found


def _memory(costs: list[Cost], records: int) -> Line:
    """Compare the peak with the limit: 60 MB, 8 bytes per kept column and record, 16 per record of the axis."""
    kept = len(data.METRICS)
    limit = 60 + records * (8 * kept + 16) / 1e6
    peaks = sorted(cost.peak_mb / limit for cost in costs)
    middle = peaks[len(peaks) // 2]
    return Line(
        task=f"peak memory of that `analyze`, {kept} kept columns",
        peer="60 MB + 8 B × kept columns × records + axis",
        clock="peak_mb",
        ratio=middle,
        low=peaks[0],
        high=peaks[-1],
        bound=1.0,
        ours=f"{middle * limit:.0f} MB",
        theirs=f"{limit:.0f} MB",
        rounds=len(peaks),
    )


def _csv(scratch: Path, records: int, repeat: int) -> list[Line]:
    clean = data.csv(scratch / "clean.csv", records, 20, resumed=False)
    resumed = data.csv(scratch / "resumed.csv", records, 20, resumed=True)
    cases = {
        PANDAS: partial(worker, "pandas_csv", clean),
        "resumed": partial(worker, "columns", resumed),
    }
    costs = interleaved(cases, repeat)
    clean.unlink(), resumed.unlink()
    return [line(f"CSV → columns, {records // 1000}k × 20, header repeated", costs, "resumed", PANDAS, bound=1.5)]
