"""Let the doctor judge lab runs: `python -m tests.lab.judge sound`, or `… faults NAME [NAME …] [--seeds 3]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ppo_doctor.model import Diagnosis
from ppo_doctor.pipeline import Request, diagnose, read_run
from ppo_doctor.rulepack import Pack, load_pack

from .dialects import WRITERS, write
from .faults import FAULTS
from .presets import dialect_task
from .records import RunRecord
from .sound_runs import SoundRun, recorded_runs, sound_runs
from .train import run


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One lab run with its diagnosis."""

    name: str
    dialect: str
    cause: str
    twins: tuple[str, ...]
    diagnosis: Diagnosis

    @property
    def leaders(self) -> tuple[str, ...]:
        """The causes that lead, harmful ones first."""
        return tuple(cause.id for cause in self.diagnosis.causes if cause.leader)

    @property
    def named(self) -> bool:
        """Whether the injected cause is first, or level with the first."""
        first = self.diagnosis.causes[:1]
        return any(self.cause in (cause.id, *cause.level_with) for cause in first)

    @property
    def alarms(self) -> tuple[str, ...]:
        """Harmful leaders that are established or likely."""
        causes = self.diagnosis.causes
        return tuple(c.id for c in causes if c.leader and not c.benign and c.confidence != "suspected")


def judge(record: RunRecord, dialect: str, pack: Pack) -> Diagnosis:
    """Write a run in a dialect and diagnose what was written."""
    with tempfile.TemporaryDirectory() as folder:
        return diagnose(read_run(str(write(record, dialect, Path(folder))), Request(debug=True)), pack)


def judge_sound(pack: Pack, runs: Iterable[SoundRun] | None = None) -> Iterator[Judged]:
    """Judge every sound run, or those that are given."""
    for sound in sound_runs() if runs is None else runs:
        diagnosis = judge(sound.record(), sound.dialect, pack)
        yield Judged(name=sound.name, dialect=sound.dialect, cause="healthy", twins=(), diagnosis=diagnosis)


def judge_fault(name: str, pack: Pack, *, seeds: int, severities: tuple[int, ...] = (1, 2, 3)) -> Iterator[Judged]:
    """Judge one fault in every dialect that can hold it, at every severity and seed."""
    spec = FAULTS[name]
    for dialect in WRITERS:
        for severity in severities:
            for seed in range(seeds):
                try:
                    record = run(
                        name, task=dialect_task(dialect), seed=seed, severity=severity, updates=60, dialect=dialect
                    )
                    diagnosis = judge(record, dialect, pack)
                except ValueError:  # this fault and this dialect do not go together
                    continue
                twins = spec.twins(dialect)
                yield Judged(
                    name=f"{name}:{severity}", dialect=dialect, cause=spec.cause, twins=twins, diagnosis=diagnosis
                )


def line(judged: Judged) -> str:
    """Return one run as one line."""
    shown = ", ".join(f"{c.id} {c.score_db} {c.confidence}" for c in judged.diagnosis.causes[:3])
    return f"{judged.dialect:<15} {judged.name:<34} {judged.diagnosis.verdict:<12} {shown}"


def main() -> None:
    """Print a line per run, marked where the doctor is wrong, and the count of those."""
    options = argparse.ArgumentParser()
    options.add_argument("what", choices=("sound", "recorded", "faults"))
    options.add_argument("names", nargs="*")
    options.add_argument("--seeds", type=int, default=1)
    given = options.parse_args()
    pack = load_pack()
    wrong = total = 0
    if given.what != "faults":
        for judged in judge_sound(pack, recorded_runs() if given.what == "recorded" else None):
            bad = bool(judged.alarms) or judged.diagnosis.verdict != "healthy"
            wrong, total = wrong + bad, total + 1
            sys.stdout.write(f"{'BAD ' if bad else 'ok  '}{line(judged)}\n")
    for name in given.names or (sorted(FAULTS) if given.what == "faults" else ()):
        for judged in judge_fault(name, pack, seeds=given.seeds):
            good = judged.named or (judged.cause == "healthy" and not judged.alarms)
            wrong, total = wrong + (not good), total + 1
            sys.stdout.write(f"{'ok  ' if good else 'MISS'}{line(judged)}\n")
    sys.stdout.write(f"{wrong} of {total} wrong\n")


if __name__ == "__main__":
    main()
