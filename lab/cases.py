"""What a run of the lab is, and the command that every trainer's module answers in its own environment.

Only the standard library is imported: this module is read by the environments of all trainers.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Processor seconds of one run, after which the system ends it.
MOST_SECONDS = 240

Train = Callable[[Path], None]
"""Trains in a folder, which is the working directory too: writes the trainer's native files and config.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run to make: a canonical cause (or "healthy") in a trainer, and how a user comes to make it."""

    name: str
    """Unique within the trainer, such as "clip-range-too-small/chain/1"."""
    fault: str
    made: str
    task: str
    seed: int
    train: Train
    daily: bool = False
    """Whether it belongs to the subset for daily work."""


def identity(trainer: str, name: str) -> str:
    """Return the name of the run's folder, which does not tell what is wrong with it."""
    return f"{trainer}-{hashlib.sha256(f'{trainer}/{name}'.encode()).hexdigest()[:6]}"


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings that a user's script holds, in the trainer's own names."""
    text = json.dumps(settings, indent=2, sort_keys=True, default=str)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")


def main(trainer: str, cases: Iterable[Case], *, forks: bool = False) -> None:
    """Answer `list` with the cases as JSON lines, and `train NAME FOLDER` with a run in that folder.

    A trainer that `forks` is asked for many runs at once, NAME FOLDER NAME FOLDER ..., each of which becomes a process
    of its own after the imports: those of transformers take longer than many a run.
    """
    known = {case.name: case for case in cases}
    match sys.argv[1:]:
        case ["list"]:
            for one in known.values():
                sys.stdout.write(json.dumps(_told(trainer, one, forks)) + "\n")
        case ["train", name, folder]:
            _train(known[name], Path(folder).resolve())
        case ["train", *pairs] if forks and pairs and len(pairs) % 2 == 0:
            for name, folder in zip(pairs[::2], pairs[1::2], strict=True):
                apart(known[name], Path(folder).resolve())
        case _:
            sys.exit(f"usage: python -m lab.trainers.{trainer} list | train NAME FOLDER")


def apart(case: Case, folder: Path) -> None:
    """Train in a process of its own, and wait for it."""
    child = os.fork()
    if child == 0:
        try:
            _train(case, folder)
        finally:
            os._exit(0)  # what the parent registered for its end is the parent's
    os.waitpid(child, 0)


def _told(trainer: str, case: Case, forks: bool) -> dict[str, Any]:
    names = ("name", "fault", "made", "task", "seed", "daily")
    told = {"case": identity(trainer, case.name), **{name: getattr(case, name) for name in names}}
    return {**told, "forks": True} if forks else told


def _train(case: Case, folder: Path) -> None:
    """Train with what is printed in stdout.log; a trainer that crashes leaves what it had written, and why."""
    folder.mkdir(parents=True, exist_ok=True)
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS + 5))
    os.chdir(folder)
    console = os.open(folder / "stdout.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(console, 1)
    os.dup2(console, 2)
    ended = "finished"
    try:
        case.train(folder)
    except Exception as error:  # noqa: BLE001 - whatever ended the run is told by its log, as a user's would
        traceback.print_exc()
        ended = f"{type(error).__name__}: {str(error).splitlines()[:1]}"
    sys.stdout.flush()
    used = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime + children.ru_utime + children.ru_stime
    done = {"ended": ended, "cpu_seconds": round(seconds, 1), "finished": int(time.time())}
    (folder.parent / f"{folder.name}.done.json").write_text(json.dumps(done) + "\n", encoding="utf-8")
