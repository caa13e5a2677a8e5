"""What a user waits for: whole processes, on the wall."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks import data
from benchmarks.measuring import SCRIPT, Line, interleaved, line, process

PASS, LIBRARIES = "`python -c pass`", "a process that imports numpy and orjson"

TYPER = "a process that imports numpy, orjson and typer"
LEAST = "what is left of the bound is for our modules, all rules, the log and the report"


def rows(scratch: Path, repeat: int, *, quick: bool) -> list[Line]:
    """Measure `--version`, `--help` and a diagnosis of 500 records."""
    log = data.jsonl(scratch / "startup.jsonl", 100 if quick else 500, len(data.METRICS))
    commands = {
        PASS: [sys.executable, "-c", "pass"],
        LIBRARIES: [sys.executable, "-c", "import numpy, orjson"],
        TYPER: [sys.executable, "-c", "import numpy, orjson, typer"],
        "version": [SCRIPT, "--version"],
        "help": [SCRIPT, "--help"],
        "json": [SCRIPT, "analyze", str(log), "--format", "json"],
        "text": [SCRIPT, "analyze", str(log)],
    }
    # Short enough for twice the rounds, which it takes: a start varies by a tenth.
    costs = interleaved({name: lambda c=command: process(c) for name, command in commands.items()}, 2 * repeat)
    return [
        line("`--version`", costs, "version", PASS, clock="wall", bound=2.5),
        line("`--help`", costs, "help", PASS, clock="wall", bound=8.0),
        line("the same with typer, which reads the command line", costs, TYPER, LIBRARIES, clock="wall", note=LEAST),
        line("`analyze`, 500 records, all rules, JSON", costs, "json", LIBRARIES, clock="wall", bound=2.0),
        line("`analyze`, 500 records, all rules, terminal", costs, "text", LIBRARIES, clock="wall", bound=2.6),
    ]
