"""The page of figures: a table people read, and the same as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from benchmarks.limits import limit_of
from benchmarks.measuring import Line, Unmeasured

HEAD = """# Benchmarks

Every figure is a ratio against a peer or a limit that was measured in the same rounds, one after the other; the number
is the median of the rounds, the brackets hold the smallest and the largest. Times are processor times unless the row
says otherwise. `make bench` measures them anew.

| task | ratio | against | bound | ours | theirs | rounds |
|---|---|---|---|---|---|---|
"""
CLOCKS = {"cpu": "", "wall": ", wall time", "peak_mb": ", size"}


def write(folder: Path, rows: Sequence[Line | Unmeasured], minutes: float) -> None:
    """Write benchmarks.md and benchmarks.json."""
    lines = [row for row in rows if isinstance(row, Line)]
    left = [row for row in rows if isinstance(row, Unmeasured)]
    text = HEAD + "".join(map(_row, lines)) + _notes(lines) + _limits(lines) + _left(left) + _machine(minutes)
    (folder / "benchmarks.md").write_text(text, encoding="utf-8")
    held = {"lines": [asdict(row) | {"met": row.met} for row in lines], "unmeasured": [asdict(row) for row in left]}
    (folder / "benchmarks.json").write_text(json.dumps(held, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _row(row: Line) -> str:
    sign = "≥" if row.at_least else "≤"
    bound = "" if row.bound is None else f"{sign} {row.bound:g} {'' if row.met else '**missed**'}"
    ratio = f"{row.ratio:.2f} [{row.low:.2f} … {row.high:.2f}]"
    cells = (row.task, ratio, f"{row.peer}{CLOCKS[row.clock]}", bound.strip(), row.ours, row.theirs, str(row.rounds))
    return f"| {' | '.join(cells)} |\n"


def _notes(lines: Iterable[Line]) -> str:
    tasks: dict[str, dict[str, None]] = {}
    for row in lines:
        tasks.setdefault(row.note, {})[row.task] = None
    return "".join(f"\n- {'; '.join(tasks[note])}: {note}." for note in tasks if note) + "\n"


def _limits(lines: Iterable[Line]) -> str:
    """Return what limits the lines that miss their bounds."""
    missed = [(row.task, limit) for row in lines if not row.met and (limit := limit_of(row.task))]
    return (
        "\nWhat limits those that are missed:\n\n" + "".join(f"- {t}: {text}.\n" for t, text in missed)
        if missed
        else ""
    )


def _left(rows: Sequence[Unmeasured]) -> str:
    return "\nNot measured here:\n\n" + "".join(f"- {row.task}: {row.why}.\n" for row in rows) if rows else ""


def _machine(minutes: float) -> str:
    names = ("numpy", "orjson", "pandas", "typer", "rich")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    return (
        f"\nMeasured in {minutes:.0f} minutes on {os.cpu_count()} cores with Python {platform.python_version()},"
        f" {versions}. Files were in the page cache. Ratios travel between machines, times do not.\n"
    )
