"""The command of `--on-finding`: a cause as JSON on its standard input, bounded in time, never fatal."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.report.json_report import payload
from ppo_doctor.report.json_text import dump
from ppo_doctor.watch.events import Event

if TYPE_CHECKING:
    from ppo_doctor.model import Diagnosis, RankedCause
    from ppo_doctor.report.json_text import Json
    from ppo_doctor.watch.session import Clock

#: Seconds that a command may take.
LONGEST = 30.0


@dataclass(frozen=True, slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    said: IO[bytes]
    deadline: float


class Hook:
    """Runs a command for each confirmed cause, without a shell; commands run beside the watching."""

    def __init__(self, command: str, clock: Clock, *, longest: float = LONGEST) -> None:
        try:
            self._command = shlex.split(command)
        except ValueError as error:
            raise _unusable(command, str(error)) from error
        if not self._command:
            raise _unusable(command, "it is empty")
        self._clock = clock
        self._longest = longest
        self._running: list[_Running] = []

    def start(self, diagnosis: Diagnosis, cause: RankedCause, step: int | None) -> list[Event]:
        """Start the command for a cause; return an event when it cannot be started."""
        said = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the command has ended
        with tempfile.TemporaryFile() as given:
            given.write(finding(diagnosis, cause, step).encode())
            given.seek(0)
            try:
                process = subprocess.Popen(  # noqa: S603 - the user's own command
                    self._command, stdin=given, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
                )
            except OSError as error:
                said.close()
                return [self._failed(f"{error.strerror or error}")]
        self._running.append(_Running(process, said, self._clock.now() + self._longest))
        return []

    def poll(self) -> list[Event]:
        """Return what went wrong with commands that have ended or take too long."""
        still, events = [], []
        for running in self._running:
            if running.process.poll() is None and self._clock.now() < running.deadline:
                still.append(running)
            else:
                events += self._ended(running)
        self._running = still
        return events

    def drain(self) -> list[Event]:
        """Wait for commands that still run, no longer than they may take."""
        for running in self._running:
            try:
                running.process.wait(max(0.0, running.deadline - self._clock.now()))
            except subprocess.TimeoutExpired:
                continue  # told and stopped below
        all_of_them, self._running = self._running, []
        return [event for running in all_of_them for event in self._ended(running)]

    def _ended(self, running: _Running) -> list[Event]:
        code = running.process.poll()
        if code is None:
            _stop(running.process)
        running.said.seek(0)
        lines = running.said.read(1 << 16).decode("utf-8", "replace").strip().splitlines()
        running.said.close()
        if code is None:
            return [self._failed(f"stopped after {self._longest:.0f} s")]
        return [self._failed(f"exit code {code}" + (f": {lines[-1][:200]}" if lines else ""))] if code else []

    def _failed(self, why: str) -> Event:
        return Event(kind="problem", text=f"--on-finding {self._command[0]}: {why}")


def finding(diagnosis: Diagnosis, cause: RankedCause, step: int | None) -> str:
    """Return a cause with its run as JSON: the objects of the report of `--format json`, and `step`, the last one."""
    whole = payload(diagnosis)
    fired = {entry.finding for entry in cause.ledger if entry.status == "fired"}
    told: dict[str, Json] = {name: whole[name] for name in ("schema_version", "tool", "run", "verdict")}
    told |= {"event": "cause", "step": step, "cause": next(iter(_picked(whole["causes"], "id", {cause.id})), None)}
    told["checks"] = _picked(whole["checks"], "name", fired)
    return dump(told)


def _picked(entries: Json, key: str, names: set[str]) -> list[Json]:
    """Return the objects of a list that are named so."""
    listed = entries if isinstance(entries, list) else []
    return [entry for entry in listed if isinstance(entry, dict) and entry[key] in names]


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a command and what it started."""
    try:
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except ProcessLookupError:
        pass  # it ended just now
    process.wait()


def _unusable(command: str, why: str) -> DoctorError:
    hint = "quote it as for a shell; for a pipe or a redirection give a shell: --on-finding \"sh -c '…'\""
    return DoctorError(f"--on-finding {json.dumps(command)}: {why}", hint=hint, code=ExitCode.USAGE)
