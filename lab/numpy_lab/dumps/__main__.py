"""Write the dumps of the lab, or judge them: `python -m lab.numpy_lab.dumps write DIR`, `… judge DIR`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .files import write
from .judge import judge_folder, line, summary
from .kinds import KINDS
from .variety import varied

#: Rules and weights were made with runs of these seeds in view; the others were kept for the figures.
TRAINING, HELD_OUT = (0, 1), (100, 101, 102)
#: Of these the sizes, layouts, types and names differ, too, and differ from each other.
VARIED_OPEN, VARIED = (10, 11, 12, 200, 201, 202), (300, 301, 302)


def main() -> None:
    """Write or judge the runs of every kind, or of those named."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("what", choices=("write", "judge"))
    options.add_argument("folder", type=Path)
    options.add_argument("names", nargs="*", help="kinds; all of them if none is given")
    options.add_argument("--held-out", action="store_true", help="the seeds that were kept for the figures")
    options.add_argument("--varied", action="store_true", help="in other sizes, layouts, types and under other names")
    options.add_argument("--seeds", type=int, default=3)
    given = options.parse_args()
    kept, open_ones = (VARIED, VARIED_OPEN) if given.varied else (HELD_OUT, TRAINING)
    seeds = (kept if given.held_out else open_ones)[: given.seeds]
    chosen = [KINDS[name] for name in given.names] or list(KINDS.values())
    found = []
    for plain in chosen:
        for seed in seeds:
            kind = varied(plain, seed) if given.varied else plain
            folder = given.folder / kind.name / str(seed)
            if given.what == "write":
                write(kind, seed, folder)
            else:
                found.append(judge_folder(kind, seed, folder))
                sys.stdout.write(line(found[-1]) + "\n")
    if found:
        sys.stdout.write(summary(found) + "\n")


if __name__ == "__main__":
    main()
