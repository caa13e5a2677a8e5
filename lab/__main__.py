"""`python -m lab train`: make the runs of all trainers, or of some. What is there stays, so that it can be stopped.

`python -m lab pack` puts the runs that have labels into lab/corpus.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

from .corpus import pack
from .environments import BUILD, ROOT, python_of, trainers
from .labels import labelled

RUNS = BUILD / "runs"
#: Threads of matrix products spin beside each other's runs; a hub is never asked; compiling loops outlasts short runs.
QUIET = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONWARNINGS": "ignore",
    "WANDB_MODE": "disabled",
    "NUMBA_DISABLE_JIT": "1",
}


def listed(trainer: str) -> list[dict[str, Any]]:
    """Return the cases of a trainer, as its module tells them."""
    done = _asked(trainer, "list", capture=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _asked(trainer: str, *words: str, capture: bool = False) -> subprocess.CompletedProcess[str]:
    command = [str(python_of(trainer)), "-m", f"lab.trainers.{trainer}", *words]
    place = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT.parent)}
    return subprocess.run(command, check=capture, text=True, capture_output=capture, env=place, cwd=ROOT.parent)


def wanted(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (trainer, case) of what is asked for and not there; all cases of a trainer are kept in cases.jsonl."""
    for trainer in options.trainer or trainers():
        cases = listed(trainer)
        folder = RUNS / trainer
        folder.mkdir(parents=True, exist_ok=True)
        told = "".join(json.dumps(case) + "\n" for case in cases)
        (folder / "cases.jsonl").write_text(told, encoding="utf-8")
        for case in cases:
            there = (folder / f"{case['case']}.done.json").is_file()
            if not there and (case["daily"] or not options.daily) and (options.only or "") in case["name"]:
                yield trainer, case


#: Runs that one process makes of a trainer that forks.
SHARE = 24


def shares(asked: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield (trainer, cases) that one process makes: one, or several of a trainer that forks."""
    for (trainer, forks), group in groupby(asked, lambda each: (each[0], each[1].get("forks", False))):
        cases = [case for _, case in group]
        size = SHARE if forks else 1
        yield from ((trainer, cases[start : start + size]) for start in range(0, len(cases), size))


def train(trainer: str, cases: list[dict[str, Any]]) -> str:
    """Make runs and return a line about each."""
    for case in cases:  # loggers append to what a run that was stopped left behind
        shutil.rmtree(RUNS / trainer / case["case"], ignore_errors=True)
    pairs = [word for case in cases for word in (case["name"], str(RUNS / trainer / case["case"]))]
    code = _asked(trainer, "train", *pairs).returncode
    return "".join(_line(RUNS / trainer / case["case"], case, code) for case in cases)


def _line(folder: Path, case: dict[str, Any], code: int) -> str:
    done = folder.with_name(f"{folder.name}.done.json")
    if not done.is_file() and code < 0:  # somebody stopped us: the run is made the next time
        return f"{folder.name:<24}{case['name']:<52} stopped by signal {-code}\n"
    if not done.is_file():
        done.write_text(json.dumps({"ended": f"exit {code}", "cpu_seconds": None}) + "\n", encoding="utf-8")
    told = json.loads(done.read_text(encoding="utf-8"))
    return f"{folder.name:<24}{case['name']:<52}{told['cpu_seconds'] or 0:7.1f} s  {told['ended']}\n"


def main() -> None:
    """Make what is asked for."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("command", choices=["train", "pack"])
    options.add_argument("--trainer", action="append", choices=trainers(), default=[])
    options.add_argument("--daily", action="store_true", help="the subset for daily work")
    options.add_argument("--only", help="cases whose name holds this")
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    given = options.parse_args()
    if given.command == "pack":
        for trainer in given.trainer or labelled():
            sys.stdout.write(f"{pack(trainer).name}\n")
        return
    with ThreadPoolExecutor(given.jobs) as pool:
        for line in pool.map(lambda each: train(*each), list(shares(wanted(given)))):
            sys.stdout.write(line)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
