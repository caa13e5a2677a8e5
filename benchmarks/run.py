"""What `ppo-doctor run` costs: `python -m benchmarks.run [--repeat 3] [KIND…]`, with the default sampling of updates.

Each training of `benchmarks.training` runs plain and observed by turns, on one thread, in a process of its own.
Measured are the training without imports and report, and the largest resident memory of its process. Needs torch, and
trl for the last.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measuring import ONE_THREAD, Clock, Cost, interleaved, line, told

ROOT = Path(__file__).parents[1]
#: Kind → updates, of which 1, 2, 4, 8 … are observed, and the largest ratio of seconds that is promised.
KINDS = {"cartpole": (192, 1.25), "images": (24, 1.1), "language": (12, 1.1), "trl": (64, 1.1)}
#: Megabytes that may be added.
MEMORY = 256


def cost(kind: str, updates: int, folder: Path, *, observed: bool) -> Cost:
    """Run one training and return its cost."""
    out = folder / "cost.json"
    script = [str(ROOT / "benchmarks" / "training.py"), kind, str(updates), str(out)]
    (folder / "run.jsonl").unlink(missing_ok=True)
    options = ["--out", str(folder / "run.jsonl"), "--output", str(folder / "report")]
    command = [sys.executable, *(["-m", "ppo_doctor", "run", *options] if observed else []), *script]
    variables = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=folder, env=variables, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return Cost(**json.loads(out.read_text()))


def main() -> None:
    """Print the ratios of observed to plain runs."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("kinds", nargs="*", metavar="KIND", default=list(KINDS))
    options.add_argument("--repeat", type=int, default=3)
    given = options.parse_args()
    for kind in given.kinds:
        updates, bound = KINDS[kind]
        with tempfile.TemporaryDirectory() as scratch:
            plain = functools.partial(cost, kind, updates, Path(scratch), observed=False)
            observed = functools.partial(cost, kind, updates, Path(scratch), observed=True)
            costs = interleaved({"plain": plain, "observed": observed}, given.repeat, warm=False)
        clocks: tuple[Clock, ...] = ("wall", "cpu")
        rows = [
            line(f"{kind}, {updates} updates, {clock}", costs, "observed", "plain", clock=clock, bound=bound)
            for clock in clocks
        ]
        added = max(costs["observed"], key=lambda each: each.peak_mb).peak_mb - costs["plain"][0].peak_mb
        print(told(rows), f"\n{kind}: {added:.0f} MB more  ≤ {MEMORY}: {'met' if added <= MEMORY else 'MISSED'}")


if __name__ == "__main__":
    main()
