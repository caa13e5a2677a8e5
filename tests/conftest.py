"""What every test starts from: a scrubbed environment, a cache of its own, and where things are."""

from __future__ import annotations

import gc
import io
import json
import os

# A thread that waits for small matrices spins, and two workers' threads spin against each other: eight times the
# processor's time. It is read when NumPy is first imported, here and in every process that a test starts.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import signal
import sys
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
#: Variables that change what we print or where we look.
SCRUBBED = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES", "TERM", "CI", "GITHUB_ACTIONS")
#: Variables that tell tests where optional material lies.
PLACES = ("PPO_DOCTOR_REAL_LOGS", "PPO_DOCTOR_RECIPE_SOURCES")


# The same examples on every machine, so that a change is judged by itself; `make fuzz` looks for new ones.
# How long an example takes is the machine's affair.
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fixed", derandomize=True, max_examples=30, **UNTIMED)
settings.register_profile("fuzz", print_blob=True, max_examples=200, **UNTIMED)
settings.load_profile("fixed")

# What parameters a command takes follows from its annotations. typer evaluates them for each call anew, a third of what
# a call of the command line takes in a process that makes hundreds.
typer.main.get_params_from_function = cache(typer.main.get_params_from_function)


def pytest_configure() -> None:
    """Make tests independent of the shell that runs them, in subprocesses too, and already while they are collected."""
    ours = (name for name in os.environ if name.startswith("PPO_DOCTOR_") and name not in PLACES)
    for name in [*SCRUBBED, *ours]:
        os.environ.pop(name, None)
    _hear_signals()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector the collected tests, which live to the end: that saves a third of collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _hear_signals() -> None:
    """Let programs under test hear signals that a shell ignores for jobs in the background: children inherit that."""
    if threading.current_thread() is not threading.main_thread():
        return
    for name in ("SIGINT", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if name == "SIGINT" else lambda *_: None)


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def samples() -> Path:
    """Return the folder of sample logs."""
    return ROOT / "sample_logs"


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the command line in this process; `stdin` is what it reads from a pipe."""
    from ppo_doctor.cli.application import run

    def call(*arguments: object, stdin: bytes | None = None) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["ppo-doctor", *map(str, arguments)])
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capsys.readouterr()
        try:
            code = run()
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        captured = capsys.readouterr()
        return Outcome(int(code), captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def validate() -> Callable[[object], None]:
    """Hold a report against the published JSON Schema."""
    from jsonschema import Draft202012Validator

    schema = json.loads((ROOT / "docs" / "schema" / "diagnosis.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)

    def check(report: object) -> None:
        errors = [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in validator.iter_errors(report)]
        assert not errors, errors

    return check
