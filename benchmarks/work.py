"""One piece of work in a process of its own: `python -m benchmarks.work NAME PATH` prints what it cost.

Imports come first and are no part of the figure; the peak of memory is that of the whole process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path


def orjson_lines(path: Path) -> int:
    """Parse every line and keep nothing: the limit of whoever reads JSON Lines."""
    import orjson

    read = 0
    for file in [path] if path.is_file() else sorted(path.rglob("*.jsonl")):
        with file.open("rb") as lines:
            for line in lines:
                try:
                    orjson.loads(line)
                except ValueError:  # NaN or torn: a bare parser stops here
                    continue
                read += 1
    return read


def columns(path: Path) -> int:
    """Read a log into columns with our reader."""
    from ppo_doctor.readers import read
    from ppo_doctor.table import Table

    _, items = read(path)
    return sum(len(item.records) for item in items if isinstance(item, Table))


def pandas_csv(path: Path) -> int:
    """Read a clean CSV with the C engine of pandas."""
    import pandas as pd

    return len(pd.read_csv(path, engine="c"))


def analyze(path: Path) -> int:
    """Diagnose one log, everything but start-up."""
    import ppo_doctor

    ppo_doctor.analyze(path)
    return 1


def analyze_all(path: Path) -> int:
    """Diagnose every log below a folder, one after the other in this process."""
    return sum(analyze(log) for log in sorted(path.rglob("*.jsonl")))


WORK: dict[str, Callable[[Path], int]] = {
    work.__name__: work for work in (orjson_lines, columns, pandas_csv, analyze, analyze_all)
}


def imported() -> None:
    """Import what the work needs, by doing it once on a small log."""
    import tempfile

    from benchmarks import data

    with tempfile.TemporaryDirectory() as folder:
        small = data.jsonl(Path(folder) / "run.jsonl", 30, 10)
        for name in ("orjson_lines", "columns", "analyze"):
            WORK[name](small)


def peak() -> float:
    """Return the largest resident size of this process in MB (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    """Do one piece of work and print its cost."""
    name, path = sys.argv[1], Path(sys.argv[2])
    if name in ("columns", "analyze", "analyze_all"):
        imported()
    elif name == "pandas_csv":
        import pandas  # noqa: F401
    else:
        import orjson  # noqa: F401
    start, wall = time.process_time(), time.perf_counter()
    done = WORK[name](path)
    cost = {"cpu": time.process_time() - start, "wall": time.perf_counter() - wall, "peak_mb": peak(), "done": done}
    print(json.dumps(cost))


if __name__ == "__main__":
    main()
