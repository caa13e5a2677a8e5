"""The runs of two faults and of each fault alone: which there are, where each lies, and how it is trained."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .dialects import write
from .double_forest import Shown
from .doubles import DIALECTS, SEEDS, UPDATES, Pair, run_pair
from .presets import dialect_task
from .train import run


def folder(root: Path, name: str, dialect: str, seed: int) -> Path:
    """Return where a log lies."""
    return root / name.replace(" ", "") / dialect / str(seed)


def alone(fault: str, severity: int) -> str:
    """Return what the run of a fault by itself is called."""
    return f"alone-{fault}-{severity}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run to train: a pair, or a fault by itself."""

    name: str
    pair: Pair | None
    fault: tuple[str, int]
    dialect: str
    seed: int


def jobs(pairs: Iterable[Pair]) -> list[Job]:
    """Return every run that judging pairs takes, each once."""
    found: dict[tuple[str, str, int], Job] = {}
    for pair in pairs:
        for dialect in DIALECTS:
            for seed in SEEDS[pair.split]:
                both = Job(name=pair.name, pair=pair, fault=pair.faults[0], dialect=dialect, seed=seed)
                singles = [
                    Job(name=alone(*fault), pair=None, fault=fault, dialect=dialect, seed=seed) for fault in pair.faults
                ]
                found |= {(job.name, dialect, seed): job for job in (both, *singles)}
    return list(found.values())


def make(root: Path, job: Job) -> bool:
    """Train and write one run, unless it is there; say whether it can be had."""
    where = folder(root, job.name, job.dialect, job.seed)
    if where.is_dir():
        return True
    try:
        if job.pair:
            record = run_pair(job.pair, job.dialect, job.seed)
        else:
            name, severity = job.fault
            task = dialect_task(job.dialect)
            record = run(name, task=task, seed=job.seed, severity=severity, updates=UPDATES, dialect=job.dialect)
        write(record, job.dialect, where)
    except ValueError:  # a fault is of another task, or the dialect of another algorithm
        return False
    return True


def written(root: Path, pairs: Iterable[Pair]) -> list[Shown]:
    """Return every written log of some pairs and of their faults alone, for the forests."""
    found = []
    for job in jobs(pairs):
        files = sorted(folder(root, job.name, job.dialect, job.seed).glob("*"))
        names = [path for path in files if path.name != "config.json"]
        if names:
            faults = frozenset(name for name, _ in job.pair.faults) if job.pair else frozenset({job.fault[0]})
            cell = job.pair.name if job.pair else ""
            found.append(Shown(log=names[0], dialect=job.dialect, seed=job.seed, faults=faults, cell=cell))
    return found
