"""What limits a figure that misses its bound, and how far the limit is: shown beside those that do."""

from __future__ import annotations

from collections.abc import Mapping

#: The beginning of a task's name → what limits it; the longest that fits counts. Shares were measured on the data of
#: this benchmark with cProfile and with the loops that `benchmarks.work` holds, one part taken away at a time.
LIMITS: Mapping[str, str] = {
    "JSONL → columns": (
        "the least loop (second row of its kind) has no line numbers, damage, texts or new keys; splitting a block "
        "into lines takes 0.15 of a parse more"
    ),
    "JSONL → columns, 100k × 40, NaN": (
        "a line with NaN is refused by the parser, rewritten and parsed again: 1.7 + 1.6 + 2.5 µs; the peer drops it "
        "after the first 1.7 µs"
    ),
    "whole `analyze`": (
        "the start of the process takes half of the peer's time and the least loop into columns 1.45 of it, so 1.95 is "
        "the limit; our reader adds 0.1, rules and ranking 0.12, the run with its names and files 0.15, imports 0.05"
    ),
    "peak memory": (
        "the interpreter with its libraries and the rules takes 36 of the 60 MB; the rest is 16,384 records with all "
        "their columns, twice, and the kept columns, twice while they are put in order"
    ),
    "1,000 runs": (
        "in parses of a run's bytes (0.43 ms), reading takes 4.5, statistics 6.5, clauses with their evidence 2, the "
        "loop over the rules 2, ranking and coverage 2; the least sweep (next row) is the limit"
    ),
    "all statistics": (
        "differences of log-probs and their exponentials are taken in float64, so that sums over millions of tokens "
        "agree to 1e-9; one such exponential takes 1.8 of one in float32, against which (next row) the bound is met"
    ),
    "`analyze`, 500 records": (
        "numpy, orjson and typer alone take 1.35 of the peer (third row); classes of the model take 0.15, our other "
        "modules 0.25, compiled rules 0.1, reading and judging 0.15"
    ),
    "CSV": (
        "the parser alone takes 0.9 of pandas, packing 0.35, numbering and the table 0.1; 64 rows after each flush are "
        "read as text, for their decimals"
    ),
}


def limit_of(task: str) -> str:
    """Return what limits a task, or nothing where nobody looked."""
    fitting = [start for start in LIMITS if task.startswith(start)]
    return LIMITS[max(fitting, key=len)] if fitting else ""
