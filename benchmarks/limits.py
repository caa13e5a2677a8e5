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
        "the process starts in half of the peer's time (first table rows) and the least loop into columns takes 1.45 "
        "of it, so that 1.95 is the limit; above it our reader takes 0.1, rules and ranking 0.12, the run, its names "
        "and its files 0.15, what is imported while judging 0.05; with NaN the peer does less, as above, and of seven"
        " key sets each is packed and put in order by itself"
    ),
    "peak memory": (
        "the interpreter with its libraries and the rules takes 36 of the 60 MB; the rest is what is packed between "
        "two flushes, 16,384 records with all their columns, twice, and the kept columns, twice while they are put in"
        " order"
    ),
    "1,000 runs": (
        "in units of the parse of a run's bytes (0.43 ms) reading takes 4.5, of which the least loop is 1.5; 177 "
        "quantities 6.5 (86 that this log gives at 30 µs each, some ten calls of numpy on 500 values), 97 clauses "
        "with their evidence 2, the loop over the rules (257 when this was measured, 278 now) and what most of them "
        "lack 2, ranking, coverage and what nobody looked for 2. The least sweep (next row) is the limit: it knows the "
        "answers. The bound leaves 25 µs for a rule with all that it derives; it was set when there were half as many"
    ),
    "all statistics": (
        "differences of log-probs and their exponentials are taken in float64, without which sums over millions of "
        "tokens do not agree to 1e-9; one such exponential takes 1.8 of the one in float32, and held against it (the "
        "next row) the bound is met. The core statistics alone take 3.9 (the rows before)"
    ),
    "`analyze`, 500 records": (
        "numpy, orjson and typer alone take 1.35 of the peer (third row); of the rest 60 classes of the model take "
        "0.15, our other modules 0.25, compiled rules 0.1, and reading and judging 0.15 when each line of them runs "
        "for the first time"
    ),
    "CSV": (
        "the parser alone, on cells made a JSON list, takes 0.9 of pandas, packing 0.35, numbering and the table 0.1,"
        " and 64 rows after each flush are read as text, for their decimals"
    ),
}


def limit_of(task: str) -> str:
    """Return what limits a task, or nothing where nobody looked."""
    fitting = [start for start in LIMITS if task.startswith(start)]
    return LIMITS[max(fitting, key=len)] if fitting else ""
