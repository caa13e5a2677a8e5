"""Run a training script under observation for an agent, which only a user who gives `--allow-run` allows."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryDirectory

from anyio import CancelScope, CapacityLimiter, move_on_after, open_process
from anyio.abc import Process

from ppo_doctor.cli.agents.places import resolved
from ppo_doctor.cli.agents.work import MOST_BYTES
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.opening import confined, contents, is_outside

#: Seconds that a script may run.
LONGEST = 300.0
#: The processes of scripts that run now.
_RUNNING: set[Process] = set()
#: The suffix of the file of observations.
SUFFIX = ".jsonl"


async def observe(
    roots: Sequence[Path], script: str, out: str, arguments: Sequence[str], updates: int, limit: CapacityLimiter
) -> Path:
    """Run a script below the roots until some updates were observed, and return the file of observations.

    The script, and all that it started in its session, is ended when the call is cancelled or takes too long.

    Raises:
        DoctorError: a path is not allowed, the script takes too long, or no update was observed.
    """
    program, file = _places(roots, script, out)
    async with limit:
        with TemporaryDirectory(prefix="ppo-doctor-") as folder:
            report = Path(folder) / "report.json"
            options = ["--updates", str(updates), "--stop", "--out", str(file), "--format", f"json={report}"]
            command = [sys.executable, "-m", "ppo_doctor", "run", *options, str(program), *arguments]
            if not await _ran(command, program.parent):
                hint = "ask for fewer updates, or run it from a shell"
                raise DoctorError(f"{script}: not done within {LONGEST:.0f} s, and ended", hint=hint)
            _check(report, script)
    return file


def _places(roots: Sequence[Path], script: str, out: str) -> tuple[Path, Path]:
    """Return the script and the file of observations, both below the roots with all links resolved.

    Raises:
        DoctorError: one of them is not allowed (exit code 2).
    """
    with confined(roots, MOST_BYTES):
        program = resolved(script, roots)
        if program.suffix != ".py" or not program.is_file():
            raise DoctorError(f"{script} is no Python program", code=ExitCode.USAGE)
        file = resolved(str(Path(out).parent), roots) / Path(out).name
        if file.suffix != SUFFIX or "\0" in out or is_outside(file) or file.exists():
            hint = f"name a new file NAME{SUFFIX} below an allowed folder"
            raise DoctorError(f"{out}: no place for observations", hint=hint, code=ExitCode.USAGE)
    return program, file


async def _ran(command: Sequence[str], folder: Path) -> bool:
    """Run a command in a session of its own; return False if it was ended for taking too long."""
    process = await open_process(
        command, cwd=folder, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
    )
    _RUNNING.add(process)
    try:
        with move_on_after(LONGEST):
            await process.wait()
            return True
        return False
    finally:
        _end(process)
        _RUNNING.discard(process)
        with CancelScope(shield=True):
            await process.aclose()


def end_all() -> None:
    """Kill the scripts that run, because the server ends."""
    for process in tuple(_RUNNING):
        _end(process)


def _end(process: Process) -> None:
    """Kill a process and what it started in its session."""
    with suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _check(report: Path, script: str) -> None:
    """Raise the error that a report holds, or that there is none."""
    try:
        error = json.loads(contents(report, MOST_BYTES)).get("error")
    except (OSError, ValueError) as missing:
        raise DoctorError(f"{script} ended without a report", hint="ppo-doctor run shows why in a shell") from missing
    if error is not None:
        raise DoctorError(error["message"], hint=error["hint"] or "")
