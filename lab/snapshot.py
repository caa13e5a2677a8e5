"""What the tool says of every run at hand, as one file: the oracle of a change that is meant to change no answer.

`python -m lab.snapshot` compares the working tree with `--base`, a git revision (default `HEAD`), whose answers are
made in a work tree under `build/snapshot` and kept there; `--only PART` takes the parts whose name begins so.

A line holds a run's name, its verdict, findings and causes in order, and digests of its JSON and of its text report.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from .board import asked
from .environments import ROOT, trainers
from .field import FIELD, field_runs
from .foreign import FOREIGN, REAL, SHARED
from .met import MET

PROJECT = ROOT.parent
FOLDER = PROJECT / "build" / "snapshot"
#: How many differences are printed.
MOST_PRINTED = 60


@dataclass(frozen=True, slots=True)
class Input:
    """Files to analyze together: the part and name they are known by, the folder they lie in, and their names there."""

    name: str
    folder: Path
    files: tuple[str, ...]
    #: Copy the files to an empty folder first, so that nothing lies beside them.
    alone: bool = False


def inputs() -> Iterator[Input]:
    """Yield every input: the labelled runs of the lab and of others, published runs, cases, and sample logs."""
    for label, folder in asked([*trainers(), FOREIGN, MET, REAL]):
        yield Input(f"{label.trainer}/{label.case}/{label.column}", folder / label.case, label.files, alone=True)
    for run in field_runs():
        yield Input(f"field/{run.part}/{run.name}", FIELD / run.part, (run.name,))
    for folder in sorted((SHARED / "cases" / "inputs").glob("*")):
        files = [path.name for path in folder.iterdir()]
        yield Input(f"cases/{folder.name}", folder, tuple(files) if len(files) == 1 else (".",))
    for path in sorted((PROJECT / "sample_logs").glob("*/*")):
        yield Input(f"sample_logs/{path.parent.name}/{path.name}", PROJECT, (str(path.relative_to(PROJECT)),))


def answer(given: Input) -> dict[str, Any]:
    """Return the line of one input; what was printed to stderr counts with its text."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder
        if given.alone:
            _link(given, Path(temporary))
            folder = Path(temporary)
        os.chdir(folder)
        printed, messages = _printed([*given.files, "--format", "json", "--all"])
        text, notes = _printed(given.files)
        os.chdir(PROJECT)
    clean = [each.replace(temporary, "") for each in (messages, text, notes)]
    try:
        report = json.loads(printed)
    except ValueError:
        return {"name": given.name, "verdict": "unread", "text": _digest(*clean)}
    many = report.get("diagnoses", [report])
    return {
        "name": given.name,
        "verdict": " ".join(str(each.get("verdict")) for each in many),
        "findings": [each["id"] for one in many for each in one.get("findings", ())],
        "causes": [f"{each['id']} ({each['confidence']})" for one in many for each in one.get("causes", ())],
        "json": _digest(json.dumps(report | {"tool": None}).replace(temporary, "")),
        "text": _digest(*clean),
    }


def _link(given: Input, folder: Path) -> None:
    for name in given.files:
        target = folder / Path(name).name if name != "." else folder / "run"
        if target.exists():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to((given.folder / name).resolve())


def _printed(arguments: Sequence[str]) -> tuple[str, str]:
    """Return what `analyze` prints to stdout and to stderr."""
    from ppo_doctor.cli.application import run

    out, messages = io.StringIO(), io.StringIO()
    sys.argv = ["ppo-doctor", "analyze", *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(messages):
        run()
    return out.getvalue(), messages.getvalue()


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def taken(target: Path, only: str, jobs: int | None) -> None:
    """Write the line of every input whose name begins with `only` to a file, in order of their names."""
    chosen = sorted((each for each in inputs() if each.name.startswith(only)), key=lambda each: each.name)
    os.environ |= {"COLUMNS": "100", "NO_COLOR": "1"}
    with ProcessPoolExecutor(jobs or os.cpu_count(), mp_context=get_context("fork")) as pool:
        lines = [json.dumps(line) + "\n" for line in pool.map(answer, chosen, chunksize=4)]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(lines), encoding="utf-8")


def taken_at(revision: str, jobs: int | None) -> Path:
    """Return the snapshot of a revision, which is taken in a work tree of its own if it is not there yet."""
    commit = _git("rev-parse", "--short=12", f"{revision}^{{commit}}")
    target, tree = FOLDER / f"{commit}.jsonl", FOLDER / commit
    if not target.is_file():
        _git("worktree", "add", "--force", "--detach", str(tree), commit)
        try:
            command = [
                sys.executable,
                "-m",
                "lab.snapshot",
                "--take",
                str(target),
                *(["--jobs", str(jobs)] if jobs else []),
            ]
            environment = os.environ | {"PPO_DOCTOR_SHARED": str(SHARED)}
            subprocess.run(command, cwd=tree, env=environment, check=True)
        finally:
            _git("worktree", "remove", "--force", str(tree))
    return target


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=PROJECT, check=True, capture_output=True, text=True).stdout.strip()


def differences(before: Path, after: Path, only: str) -> Iterator[str]:
    """Yield a line for each input that is answered otherwise, with what differs."""
    old, new = _lines(before, only), _lines(after, only)
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            yield f"{name}: {'new' if name in new else 'gone'}"
        elif old[name] != new[name]:
            keys = [key for key in new[name] if old[name].get(key) != new[name][key]]
            shown = [f"{key} {_short(old[name].get(key))} -> {_short(new[name][key])}" for key in keys]
            yield f"{name}: {'; '.join(shown)}"


def _lines(path: Path, only: str) -> Mapping[str, Mapping[str, Any]]:
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {line["name"]: line for line in lines if line["name"].startswith(only)}


def _short(value: object) -> str:
    return ",".join(map(str, value))[:160] if isinstance(value, list) else str(value)


def main() -> int:
    """Take a snapshot, or compare the working tree with a revision; 1 if an answer differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--take", type=Path, help="write the snapshot of this tree to a file and compare nothing")
    parser.add_argument("--base", default="HEAD", help="a git revision, or a snapshot's file")
    parser.add_argument("--only", default="", help="the beginning of the names to take")
    parser.add_argument("--jobs", type=int)
    given = parser.parse_args()
    if given.take:
        taken(given.take.resolve(), given.only, given.jobs)
        return 0
    base = Path(given.base) if Path(given.base).is_file() else taken_at(given.base, given.jobs)
    now = FOLDER / "now.jsonl"
    taken(now, given.only, given.jobs)
    found = list(differences(base, now, given.only))
    for line in found[:MOST_PRINTED]:
        print(line)
    print(f"{len(found)} of {len(_lines(now, given.only))} inputs are answered otherwise than at {given.base}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
