"""One piece of work in a process of its own: `python -m benchmarks.work NAME PATH…` prints what it cost.

What is timed is the job alone: imports, and reading what the job does not read itself, are done before. The peak of
memory is that of the whole process.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

Job = Callable[[], int]


def orjson_lines(path: Path) -> Job:
    """Parse every line and keep nothing: the limit of whoever reads JSON Lines."""
    import orjson

    def job() -> int:
        return sum(_parsed(orjson.loads, file) for file in _logs(path))

    return job


def packed_lines(path: Path) -> Job:
    """Parse every line, compare its keys with the last line's and pack its numbers: the least that gives columns.

    A line that is none of that is passed over, so that this is no reader, but what any reader has to do.
    """
    return lambda: sum(len(_packed(file)) for file in _logs(path))


def least_sweep(path: Path) -> Job:
    """Do for each log below a folder what no judgement can do without, and nothing else.

    That is: parse and pack its lines, ask once of each quantity that this log gives which of its values are finite and
    what their median is, and make the findings of a diagnosis with their evidence out of what is known.
    """
    import numpy as np

    from ppo_doctor.checks.rulepack import load_pack
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.checks.statistics import STATISTICS
    from ppo_doctor.diagnosis.analyze import diagnose, read_run
    from ppo_doctor.model.arrays import finite_of, median
    from ppo_doctor.model.request import Request
    from ppo_doctor.model.rules import Evidence, Finding
    from ppo_doctor.model.run import SourceRef

    run = read_run(str(_logs(path)[0]), Request())
    diagnosis, view = diagnose(run, load_pack()), RunView(run)
    values = next(iter(run.series.values())).values
    with np.errstate(all="ignore"):
        quantities = sum(view.get(name) is not None for name in STATISTICS)
    findings = [
        (_fields(f), [(_fields(e), e.source and _fields(e.source)) for e in f.evidence]) for f in diagnosis.findings
    ]

    def job() -> int:
        made = 0
        for file in _logs(path):
            _packed(file)
            made += sum(median(finite_of(values)) > 0 for _ in range(quantities))
            for finding, evidence in findings:
                held = [Evidence(**e | {"source": at and SourceRef(**at)}) for e, at in evidence]
                made += Finding(**finding | {"evidence": tuple(held)}).status == "fired"
        return made

    return job


def _fields(thing: object) -> dict[str, Any]:
    return {field.name: getattr(thing, field.name) for field in fields(thing)}  # type: ignore[arg-type]


def _logs(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("*.jsonl"))


def _packed(file: Path) -> bytes:
    import struct

    import orjson

    packed, keys, pack = bytearray(), (), struct.Struct("").pack
    with file.open("rb") as lines:
        for line in lines:
            try:
                record = orjson.loads(line)
                if tuple(record) != keys:
                    keys, pack = tuple(record), struct.Struct(f"={len(record)}d").pack
                packed += pack(*record.values())
            except (ValueError, struct.error):
                continue
    return packed


def _parsed(loads: Callable[[bytes], object], file: Path) -> int:
    read = 0
    with file.open("rb") as lines:
        for line in lines:
            try:
                loads(line)
            except ValueError:  # NaN or torn: a bare parser refuses the line
                continue
            read += 1
    return read


def columns(path: Path) -> Job:
    """Read a log into columns with our reader."""
    from ppo_doctor.readers import read
    from ppo_doctor.readers.table import Table

    _warm()
    return lambda: sum(len(item.records) for item in read(path)[1] if isinstance(item, Table))


def pandas_csv(path: Path) -> Job:
    """Read a clean CSV with the C engine of pandas."""
    import pandas as pd

    return lambda: len(pd.read_csv(path, engine="c"))


def analyze(path: Path) -> Job:
    """Diagnose one log or dump, everything but start-up."""
    import ppo_doctor

    _warm()
    if path.suffix == ".npz":
        _warm_dump()
    return lambda: ppo_doctor.analyze(path) is not None


def analyze_all(path: Path) -> Job:
    """Diagnose every log below a folder, one after the other in this process."""
    from ppo_doctor.checks.rulepack import load_pack
    from ppo_doctor.diagnosis.analyze import diagnose, read_run
    from ppo_doctor.model.request import Request

    _warm()
    pack, request = load_pack(), Request()

    def job() -> int:
        return sum(diagnose(read_run(str(log), request), pack, request) is not None for log in _logs(path))

    return job


def judge(path: Path) -> Job:
    """Apply rules and ranking to a run that is read already."""
    from ppo_doctor.checks.rulepack import load_pack
    from ppo_doctor.diagnosis.analyze import diagnose, read_run
    from ppo_doctor.model.request import Request

    _warm()
    pack, request = load_pack(), Request()
    run = read_run(str(path), request)
    return lambda: len(diagnose(run, pack, request).findings)


def torch_delta(path: Path) -> Job:
    """Compare two checkpoints as one would with torch: load both, subtract, sum."""
    import torch

    def job() -> int:
        old, new = (torch.load(path / name, weights_only=True) for name in ("old.pt", "new.pt"))
        return sum(
            bool(((new[name].double() - tensor.double()).norm() / tensor.double().norm()) > 0)
            for name, tensor in old.items()
        )

    return job


def our_delta(path: Path) -> Job:
    """Compare two checkpoints with the tool."""
    from ppo_doctor.readers.tensors import read_archive
    from ppo_doctor.runs.dumps import checkpoints

    _warm_dump()
    return lambda: len([checkpoints.measure([read_archive(path / name) for name in ("new.pt", "old.pt")])])


WORK: dict[str, Callable[[Path], Job]] = {
    work.__name__: work
    for work in (
        *(orjson_lines, packed_lines, least_sweep, columns, pandas_csv, analyze, analyze_all, judge),
        *(torch_delta, our_delta),
    )
}


def _warm() -> None:
    """Import everything that a diagnosis imports, by making one."""
    import ppo_doctor
    from benchmarks import data

    with tempfile.TemporaryDirectory() as folder:
        ppo_doctor.analyze(data.jsonl(Path(folder) / "run.jsonl", 30, 10))


def _warm_dump() -> None:
    import ppo_doctor
    from benchmarks import data

    with tempfile.TemporaryDirectory() as folder:
        ppo_doctor.analyze(data.dump(Path(folder) / "dump.npz", 1000))


def peak() -> float:
    """Return the largest resident size of this process in MB (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    """Do one piece of work and print its cost."""
    job = WORK[sys.argv[1]](Path(sys.argv[2]))
    start, wall = time.process_time(), time.perf_counter()
    done = job()
    cost = {"cpu": time.process_time() - start, "wall": time.perf_counter() - wall, "peak_mb": peak(), "done": done}
    print(json.dumps(cost))


if __name__ == "__main__":
    main()
