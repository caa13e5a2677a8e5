"""The NumPy PPO of lab/numpy_lab in its dialects: the one trainer that is ours, measured beside the others.

`label` writes its labels: what a fault's own file calls level with it is accepted, for nobody looked at these logs.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from lab.cases import Case, Train, identity, main
from lab.environments import BUILD
from lab.labels import FOLDER, HEAD
from lab.numpy_lab import FAULTS, run, write
from lab.numpy_lab.dialects import RECORDED, WRITERS
from lab.numpy_lab.presets import dialect_task
from lab.numpy_lab.sound_runs import SoundRun, sound_runs

DIALECTS = [*WRITERS, *RECORDED]
#: Dialects that each fault is written in.
EACH = 2
SEED = 9_001


def _train(fault: str, dialect: str, folder: Path) -> None:
    write(run(fault, task=dialect_task(dialect), seed=SEED, dialect=dialect), dialect, folder)


def _sound(sound: SoundRun, folder: Path) -> None:
    write(sound.record(), sound.dialect, folder)


def _possible(fault: str, dialect: str) -> bool:
    """Tell whether a dialect's trainer can have the fault: one update of it is made."""
    try:
        run(fault, task=dialect_task(dialect), seed=SEED, dialect=dialect, updates=1)
    except ValueError:
        return False
    return True


def cases() -> Iterator[Case]:
    """Yield each fault in a few dialects, in turn, and sound runs of all."""
    for place, (name, spec) in enumerate(FAULTS.items()):
        turn = [*DIALECTS[place % len(DIALECTS) :], *DIALECTS[: place % len(DIALECTS)]]
        harmful = (each for each in turn if not spec.sound(each) and _possible(name, each))
        for dialect in islice(harmful, EACH):
            cause, train = spec.cause_in(dialect), partial(_train, name, dialect)
            yield _case(f"{name}/{dialect}", cause, dialect, spec.description, train)
    for sound in sound_runs():
        name = f"{sound.name}/{sound.dialect}/{sound.seed}"
        yield _case(name, "healthy", sound.dialect, sound.name, partial(_sound, sound))


def _case(name: str, cause: str, dialect: str, made: str, train: Train) -> Case:
    return Case(name=name, fault=cause, made=made, task=dialect_task(dialect), seed=SEED, train=train)


def label() -> None:
    """Write the labels: the fault, and what its own file says no log of the dialect tells from it."""
    rows = []
    for case in cases():
        fault, dialect = case.name.split("/")[:2]
        folder = BUILD / "runs" / "numpy_lab" / identity("numpy_lab", case.name)
        twins = FAULTS[fault].twins(dialect) if fault in FAULTS else ()
        named = ["HEALTHY" if each == "healthy" else each for each in (case.fault, *twins)]
        accept = ";".join([*named, "benign-single-update"] if case.fault == "healthy" else named)
        known = "partly" if twins else "yes"
        log = next(path.name for path in sorted(folder.iterdir()) if path.name not in ("config.json", "stdout.log"))
        both = f"{log};config.json" if (folder / "config.json").is_file() else log
        rows.append([folder.name, case.fault, log, both, known, accept, known, accept, "not looked at"])
    with (FOLDER / "numpy_lab.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEAD, *rows])


if __name__ == "__main__":
    if sys.argv[1:] == ["label"]:
        label()
    else:
        main("numpy_lab", cases())
