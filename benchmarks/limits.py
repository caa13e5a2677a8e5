"""What limits a figure that misses its bound, and how far the limit is: shown beside those that do."""

from __future__ import annotations

from collections.abc import Mapping

#: The beginning of a task's name → what limits it; the longest that fits counts. Shares were measured on the data of
#: this benchmark with cProfile and with the loops that `benchmarks.work` holds, one part taken away at a time.
LIMITS: Mapping[str, str] = {
    "JSONL → columns": (
        "the least loop (second row of its kind) parses, compares keys and packs, and knows no line numbers, damage, "
        "texts or new keys; above it are splitting a block into lines (0.15 of a parse), which the peer's buffered "
        "file does for less, numbering and the table"
    ),
    "JSONL → columns, 100k × 40, NaN": (
        "a line with NaN is begun by the parser, refused, rewritten and parsed again: 1.7 + 1.6 + 2.5 µs; the peer "
        "drops it after the first 1.7 µs, which makes a parse of the same bytes with numbers in place of NaN a "
        "twelfth dearer than the peer"
    ),
    "whole `analyze`": (
        "the process starts in half of the peer's time (first table rows) and columns take 1.65 of it; with NaN as "
        "above. Rules take 0.25, the run and its files 0.1"
    ),
    "1,000 runs": (
        "some 200 rules in Python for each run of 500 records: in units of the parse of its bytes (0.43 ms) reading "
        "takes 6, deriving 72 quantities 5, holding 81 clauses 3, wording what 140 rules lack 1, the loop over rules "
        "2, ranking and coverage 3.5. The bound leaves 9 for judging: 18 µs for a rule with all that it derives"
    ),
    "`analyze`, 500 records": (
        "numpy, orjson and typer alone take 1.35 of the peer; 60 classes of the model 0.15, compiled rules 0.1, "
        "further modules 0.15, reading and judging 0.2"
    ),
    "CSV": (
        "the parser alone, on cells made a JSON list, takes 0.9 of pandas, packing 0.35, numbering and the table 0.1, "
        "and 64 rows after each flush are read as text, for their decimals"
    ),
}


def limit_of(task: str) -> str:
    """Return what limits a task, or nothing where nobody looked."""
    fitting = [start for start in LIMITS if task.startswith(start)]
    return LIMITS[max(fitting, key=len)] if fitting else ""
