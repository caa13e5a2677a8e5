"""Every figure in one run: `python -m benchmarks [--quick] [--repeat N] [--only PART…] [--out docs]`.

`--quick` takes small data and one round, holds nothing against a bound, and only
prints; the whole form writes benchmarks.md and benchmarks.json.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.measuring import Line, Unmeasured, told
from benchmarks.page import write

#: In the order of the page: a module with `rows(scratch, repeat, quick=…)`.
PARTS = ("startup", "logs", "events", "dumps", "many", "install")


def measure(parts: list[str], repeat: int, *, quick: bool) -> list[Line | Unmeasured]:
    """Run parts one after the other and print their rows as they come."""
    found: list[Line | Unmeasured] = []
    for part in parts:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="ppo-doctor-bench-") as scratch:
            made = importlib.import_module(f"benchmarks.{part}").rows(Path(scratch), repeat, quick=quick)
        if quick:  # the bounds are for the whole sizes
            made = [replace(row, bound=None) if isinstance(row, Line) else row for row in made]
        print(f"{told(made)}\n({part}: {time.perf_counter() - start:.0f} s)", flush=True)
        found += made
    return found


def main() -> None:
    """Measure, print, and write the page."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--repeat", type=int, default=None)
    options.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options.add_argument("--out", type=Path, default=None, help="folder for benchmarks.md and benchmarks.json")
    given = options.parse_args()
    start = time.perf_counter()
    rows = measure(given.only, given.repeat or (1 if given.quick else 7), quick=given.quick)
    minutes = (time.perf_counter() - start) / 60
    print(f"{sum(isinstance(row, Line) and not row.met for row in rows)} missed, {minutes:.1f} minutes")
    if given.out and not given.quick:
        write(given.out, rows, minutes)


if __name__ == "__main__":
    main()
