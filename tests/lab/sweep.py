"""Every fault at three severities and three seeds in each dialect: written once, judged as often as rules change.

    python -m tests.lab.sweep write DIR [FAULT …] [--seeds 3] [--jobs 2]
    python -m tests.lab.sweep judge DIR [FAULT …] [--misses] [--jobs 2]

Training takes half an hour on one core; judging what was written takes minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ppo_doctor.model import Diagnosis
from ppo_doctor.pipeline import Request, diagnose, read_run
from ppo_doctor.rulepack import load_pack

from .dialects import RECORDED, WRITERS, write
from .faults import FAULTS
from .presets import TASK_FREE_DIALECTS, dialect_task
from .train import run

SEVERITIES = (1, 2, 3)
#: How a verdict stands to the fault, best first.
GRADES = ("first", "level", "calm", "leads", "open", "weak", "silent", "wrong")
#: Grades that keep what is asked: named, a harmless cause that raises no alarm, or openly undecided. A cause that leads
#: another complaint than the first is not first.
RIGHT = frozenset({"first", "level", "calm", "open"})
BENIGN = frozenset(cause.id for cause in load_pack().causes if cause.benign) | {"benign-ref-sync"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run of the sweep."""

    fault: str
    dialect: str
    severity: int
    seed: int

    def folder(self, root: Path) -> Path:
        """Return where its log lies."""
        return root / self.fault / self.dialect / f"{self.severity}-{self.seed}"

    def log(self, root: Path) -> Path | None:
        """Return its log; None where fault and dialect do not go together."""
        folder = self.folder(root)
        logs = [path for path in sorted(folder.glob("*")) if path.name != "config.json"] if folder.is_dir() else []
        return logs[0] if logs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """What the doctor made of one run."""

    case: Case
    grade: str
    words: str


def cases(names: Iterable[str], seeds: int, dialects: Iterable[str] = tuple(WRITERS)) -> Iterator[Case]:
    """Yield every run that is asked for."""
    for name in names or sorted(FAULTS):
        for dialect in dialects:
            for severity in SEVERITIES:
                for seed in range(seeds):
                    yield Case(fault=name, dialect=dialect, severity=severity, seed=seed)


def write_case(root: Path, fault: str, training: tuple[str, ...], severity: int, seed: int) -> int:
    """Train once and write the run in each dialect that shares this training; return how many could be written."""
    first = training[0]
    written = 0
    try:
        record = run(fault, task=dialect_task(first), seed=seed, severity=severity, updates=60, dialect=first)
    except ValueError:  # this fault is of another task
        return 0
    for dialect in training:
        try:
            write(record, dialect, Case(fault=fault, dialect=dialect, severity=severity, seed=seed).folder(root))
        except ValueError:  # this dialect is of another algorithm
            continue
        written += 1
    return written


def grade(diagnosis: Diagnosis, cause: str, twins: tuple[str, ...], *, benign: bool = False) -> str:
    """Say how a diagnosis stands to the injected cause; a harmless one need not be named, only left in peace."""
    first = next(iter(diagnosis.causes), None)
    leaders = {entry.id for entry in diagnosis.causes if entry.leader}
    firm = {e.id for e in diagnosis.causes if e.leader and not e.benign and e.confidence != "suspected"}
    if cause == "healthy":
        return "wrong" if firm else "first"
    if first and first.leader and first.id == cause:
        return "first"
    if first and first.leader and (cause in first.level_with or first.id in twins):
        return "level"
    if benign and not firm:
        return "calm"
    if cause in leaders:
        return "leads"
    if firm:
        return "wrong"
    if diagnosis.verdict == "inconclusive" or cause in {entry.id for entry in diagnosis.not_ruled_out}:
        return "open"
    return "silent" if diagnosis.verdict == "healthy" else "weak"


def judge_case(root: Path, case: Case) -> Graded | None:
    """Judge one written run."""
    log = case.log(root)
    if log is None:
        return None
    diagnosis = diagnose(read_run(str(log), Request(debug=True)), load_pack())
    fault = FAULTS[case.fault]
    shown = ", ".join(f"{'*' if c.leader else ''}{c.id} {c.score_db} {c.confidence}" for c in diagnosis.causes[:4])
    verdict = grade(diagnosis, fault.cause, fault.twins(case.dialect), benign=fault.cause in BENIGN)
    return Graded(case=case, grade=verdict, words=f"{diagnosis.verdict:<12} {shown}")


def _trainings(dialects: Sequence[str]) -> list[tuple[str, ...]]:
    shared = tuple(dialect for dialect in dialects if dialect in TASK_FREE_DIALECTS)
    rest: list[tuple[str, ...]] = [(dialect,) for dialect in dialects if dialect not in TASK_FREE_DIALECTS]
    return [shared, *rest] if shared else rest


def write_all(root: Path, names: Iterable[str], seeds: int, jobs: int, dialects: Sequence[str] = tuple(WRITERS)) -> int:
    """Train and write every run; return the number of logs."""
    asked = [
        (name, training, severity, seed)
        for name in names or sorted(FAULTS)
        for severity in SEVERITIES
        for seed in range(seeds)
        for training in _trainings(dialects)
    ]
    with ProcessPoolExecutor(jobs) as pool:
        return sum(pool.map(partial(write_case, root), *zip(*asked, strict=True), chunksize=4))


def judge_all(
    root: Path, names: Iterable[str], seeds: int, jobs: int, dialects: Sequence[str] = tuple(WRITERS)
) -> list[Graded]:
    """Judge every run that was written."""
    with ProcessPoolExecutor(jobs) as pool:
        graded = pool.map(partial(judge_case, root), cases(names, seeds, dialects), chunksize=16)
        return [entry for entry in graded if entry is not None]


def table(graded: Iterable[Graded], dialects: Iterable[str] = tuple(WRITERS)) -> str:
    """Return faults × dialects: runs that are right of all, with the letters of what went wrong."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for entry in graded:
        counts.setdefault((entry.case.fault, entry.case.dialect), Counter())[entry.grade] += 1
    faults = sorted({fault for fault, _ in counts})
    lines = [f"{'':<32}" + "".join(f"{dialect:>15}" for dialect in dialects)]
    for fault in faults:
        cells = (_cell(counts.get((fault, dialect))) for dialect in dialects)
        lines.append(f"{fault:<32}" + "".join(f"{cell:>15}" for cell in cells))
    return "\n".join(lines) + "\n"


def _cell(count: Counter[str] | None) -> str:
    """Return for example 7f2o: seven first, two openly undecided; an unwritten pair is a dot."""
    if not count:
        return "."
    letters = {
        "first": "f",
        "level": "l",
        "calm": "c",
        "leads": "d",
        "open": "o",
        "weak": "W",
        "silent": "S",
        "wrong": "X",
    }
    return "".join(f"{count[name]}{letters[name]}" for name in GRADES if count[name])


def main() -> None:
    """Write or judge the sweep."""
    options = argparse.ArgumentParser()
    options.add_argument("what", choices=("write", "judge"))
    options.add_argument("folder", type=Path)
    options.add_argument("names", nargs="*")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--dialects", nargs="*", choices=(*WRITERS, *RECORDED), default=tuple(WRITERS))
    options.add_argument("--misses", action="store_true", help="a line for each run that is not right")
    given = options.parse_args()
    if given.what == "write":
        written = write_all(given.folder, given.names, given.seeds, given.jobs, given.dialects)
        sys.stdout.write(f"{written} logs written\n")
        return
    graded = judge_all(given.folder, given.names, given.seeds, given.jobs, given.dialects)
    for entry in graded if given.misses else ():
        if entry.grade not in RIGHT:
            case = entry.case
            sys.stdout.write(
                f"{entry.grade:<7}{case.fault:<30} {case.dialect:<15} {case.severity}-{case.seed} {entry.words}\n"
            )
    totals = Counter(entry.grade for entry in graded)
    sys.stdout.write(table(graded, given.dialects))
    sys.stdout.write(f"{len(graded)} runs: {', '.join(f'{totals[name]} {name}' for name in GRADES)}\n")


if __name__ == "__main__":
    main()
