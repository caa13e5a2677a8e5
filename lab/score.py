"""Judge each labelled run from its own files alone, through the command line, and grade what is said."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from .labels import Label

Report = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """How one answer stands to its label."""

    first: bool
    third: bool
    alarm: bool = False
    """A sound run is accused with confidence of something grave."""
    silent: bool = False
    """A faulty run is called healthy."""
    wrong: bool = False
    """A faulty run's first cause is none of those accepted, and it is more than suspected."""
    says: str = ""
    records: int = 0
    """How many records were read."""


def grade(label: Label, report: Report) -> Grade:
    """Grade a report, as the acceptance tests' own script does."""
    if "error" in report:
        why = report["error"]["message"].rpartition(": ")[2]
        return Grade(first=False, third=False, says=f"not judged: {why[:80]}")
    causes = [c for c in report["causes"] if not c["benign"] or _is_accepted(c, label)]
    loud = [c["id"] for c in causes if _is_grave(c) and c["id"] not in label.accept]
    read = report["run"]["records"]
    says = " ".join([report["verdict"], *(f"{c['id']}({c['confidence'][0]})" for c in causes[:3])])
    if label.sound:
        calm = not loud and report["verdict"] in ("healthy", "warning")
        return Grade(first=calm, third=not loud, alarm=bool(loud), says=says, records=read)
    ids = [c["id"] for c in causes]
    level = [*ids[:1], *(causes[0].get("level_with") or [] if causes else [])]
    first = bool(ids) and (ids[0] in label.accept or (len(level) <= 3 and bool(label.accept.intersection(level))))
    excused = bool(label.accept & {"ABSTAIN", "HEALTHY"}) and not any(map(_is_grave, causes))
    return Grade(
        first=first or excused,
        third=first or excused or bool(label.accept.intersection(ids[:3])),
        silent=report["verdict"] == "healthy" and not excused,
        wrong=not (first or excused) and bool(causes) and causes[0]["confidence"] != "suspected",
        says=says,
        records=read,
    )


def _is_grave(cause: Mapping[str, Any]) -> bool:
    return cause["severity"] in ("critical", "high") and cause["confidence"] != "suspected"


def _is_accepted(cause: Mapping[str, Any], label: Label) -> bool:
    return cause["id"] in label.accept and cause["confidence"] != "suspected"


def judge(label: Label, runs: Path, *options: str) -> Report:
    """Return the report on a run's files, copied to an empty folder: a bare log has no configuration beside it."""
    from ppo_doctor.cli import application

    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder) / "run", Path(folder) / "report.json"
        given.mkdir()
        paths = [_copied(runs / label.case, name, given) for name in label.files]
        sys.argv = ["ppo-doctor", "analyze", *paths, "--format", "json", "--output", str(out), *options]
        with contextlib.redirect_stderr(io.StringIO()):
            code = application.run()
        report = json.loads(out.read_bytes()) if out.is_file() else {"error": {"message": f"exit code {code}"}}
    return report["diagnoses"][0] if report.get("diagnoses") else report


def _copied(run: Path, name: str, folder: Path) -> str:
    """Copy a file by its name alone, or by its place in the run where another has that name."""
    source, target = run / name, folder / Path(name).name
    if target.exists():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
    return str(shutil.copytree(source, target, dirs_exist_ok=True) if source.is_dir() else shutil.copy(source, target))


def _graded(asked: tuple[Label, Path, Path | None]) -> Grade:
    from ppo_doctor.checks import rulepack

    label, runs, rules = asked
    if rules is not None:
        rulepack.builtin_rules = lambda: rules
    return grade(label, judge(label, runs))


def graded(
    asked: Sequence[tuple[Label, Path]], jobs: int | None = None, rules: Mapping[str, Path] | None = None
) -> list[Grade]:
    """Return the grade of each label, in order; `rules` has the folder of the rules that a trainer is judged by."""
    given = [(label, runs, (rules or {}).get(label.trainer)) for label, runs in asked]
    with ProcessPoolExecutor(jobs or os.cpu_count(), mp_context=get_context("fork")) as pool:
        return list(pool.map(_graded, given, chunksize=4))
