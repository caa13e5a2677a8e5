"""Run `ppo-doctor watch`: signals, plain output, and the command of `--on-finding` with its time limit."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from ppo_doctor.cli.watch.log import SeveralRuns, WatchedLog
from ppo_doctor.cli.watch.monitor import Event
from ppo_doctor.cli.watch.session import Session
from ppo_doctor.diagnosis.analyze import diagnose
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.request import Request
from ppo_doctor.report.json_report import dump, payload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.cli.watch.session import Options, Screen
    from ppo_doctor.cli.watch.several import SeveralScreen
    from ppo_doctor.fleets.unit import Found
    from ppo_doctor.model.diagnosis import Diagnosis, RankedCause
    from ppo_doctor.report.json_report import Json

#: Seconds that a command may take.
LONGEST = 30.0
#: Signals that end the watching: the user's, the end of the job, and that of the terminal.
ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
#: Kinds of events that are printed with --quiet.
LOUD = ("cause", "cleared", "finding", "verdict", "problem", "end")


class PlainScreen:
    """Prints each event as one line on standard output; raises KeyboardInterrupt when nobody reads any more."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._left = False

    def show(self, event: Event, run: str = "") -> None:
        """Print one event, after the time of day and the name of the run if there are several."""
        if self._quiet and event.kind not in LOUD:
            return
        sys.stdout.write(event.line(f"{datetime.now():%Y-%m-%d %H:%M:%S}", run) + "\n")
        sys.stdout.flush()
        if getattr(sys.stdout, "left", False) and not self._left:  # see streams.Output
            self._left = True  # the last events are written to nobody, and must not interrupt again
            raise KeyboardInterrupt

    def update(self, state: object) -> None:
        """Show nothing between events."""


class Hook:
    """Runs a command for each confirmed cause, without a shell, in threads of its own."""

    def __init__(self, command: str, *, longest: float = LONGEST, threads: ThreadPoolExecutor | None = None) -> None:
        try:
            self._command = shlex.split(command)
        except ValueError as error:
            raise _unusable(command, str(error)) from error
        if not self._command:
            raise _unusable(command, "it is empty")
        self._longest = longest
        self._threads = threads or ThreadPoolExecutor()
        self._running: list[Future[list[Event]]] = []

    def start(self, diagnosis: Diagnosis, cause: RankedCause, step: int | None) -> None:
        """Start the command for a cause; `poll` and `drain` return its failure as an event."""
        self._running.append(self._threads.submit(self._run, finding(diagnosis, cause, step)))

    def poll(self) -> list[Event]:
        """Return the failures of commands that have ended or took too long."""
        ended = [running for running in self._running if running.done()]
        self._running = [running for running in self._running if running not in ended]
        return [event for running in ended for event in running.result()]

    def drain(self) -> list[Event]:
        """Wait for commands that still run, and return their failures."""
        wait(self._running)
        return self.poll()

    def _run(self, text: str) -> list[Event]:
        """Run the command with files as its streams: a pipe would stay open in processes that it starts."""
        with TemporaryFile() as stdin, TemporaryFile() as stderr:
            stdin.write(text.encode())
            stdin.seek(0)
            try:
                process = subprocess.Popen(  # noqa: S603 - the user's own command
                    self._command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=stderr, start_new_session=True
                )
            except OSError as error:
                return [self._failed(f"{error.strerror or error}")]
            try:
                code = process.wait(self._longest)
            except subprocess.TimeoutExpired:
                _stop(process)
                return [self._failed(f"stopped after {self._longest:.0f} s")]
            stderr.seek(0)
            lines = stderr.read(1 << 16).decode("utf-8", "replace").strip().splitlines()
        return [self._failed(f"exit code {code}" + (f": {lines[-1][:200]}" if lines else ""))] if code else []

    def _failed(self, why: str) -> Event:
        return Event(kind="problem", text=f"--on-finding {self._command[0]}: {why}")


def finding(diagnosis: Diagnosis, cause: RankedCause, step: int | None) -> str:
    """Return a cause with its run as JSON, in the form of `--format json`, and with `step`, the last one."""
    whole = payload(diagnosis)
    fired = {entry.finding for entry in cause.ledger if entry.status == "fired"}
    chosen: dict[str, Json] = {name: whole[name] for name in ("schema_version", "tool", "run", "verdict")}
    chosen |= {"event": "cause", "step": step, "cause": next(iter(_named(whole["causes"], "id", {cause.id})), None)}
    chosen["checks"] = _named(whole["checks"], "name", fired)
    return dump(chosen)


def _named(entries: Json, key: str, names: set[str]) -> list[Json]:
    """Return the objects of a list whose `key` is one of `names`."""
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


def run_watch(
    target: str,
    pack: Pack,
    request: Request,
    options: Options,
    *,
    on_finding: str | None = None,
    plain: bool = False,
    quiet: bool = False,
    color: bool | None = None,
) -> ExitCode:
    """Watch a log until something ends it, and return the exit code.

    Raises:
        DoctorError: `on_finding` is no command, or a setting that was given does not exist (exit code 2).
    """
    log = WatchedLog(target, request)
    threads = ThreadPoolExecutor()
    if on_finding is not None:
        Hook(on_finding)  # refuses a command that is none before anything is waited for

    def start(log: WatchedLog, screen: Screen, findings: bool = False) -> Session:
        hook = Hook(on_finding, threads=threads) if on_finding is not None else None
        return Session(
            log, lambda run: diagnose(run, pack, request), screen, replace(options, findings=findings), hook=hook
        )

    plain = plain or not sys.stdout.isatty()
    with _signals_interrupt():
        try:
            return _watch_one(log, start, PlainScreen(quiet=quiet) if plain else None, quiet=quiet, color=color)
        except SeveralRuns:
            pass
        return _watch_several(target, request, start, options, plain=plain, quiet=quiet, color=color)


def _watch_one(
    log: WatchedLog,
    start: Callable[[WatchedLog, Screen], Session],
    screen: PlainScreen | None,
    *,
    quiet: bool,
    color: bool | None,
) -> ExitCode:
    """Watch one run on a screen, on the live one without any.

    Raises:
        SeveralRuns: the folder holds several.
    """
    if screen is not None:
        return start(log, screen).watch()
    from ppo_doctor.cli.watch.live import live_screen

    with live_screen(color=color) as live:
        session = start(log, live)
        code = session.watch()
    live.leave(session.view, quiet=quiet)
    return code


def _watch_several(
    target: str,
    request: Request,
    start: Callable[[WatchedLog, Screen, bool], Session],
    options: Options,
    *,
    plain: bool,
    quiet: bool,
    color: bool | None,
) -> ExitCode:
    from ppo_doctor.cli.watch.several import SeveralSessions

    def open_log(found: Found) -> WatchedLog:
        source = found.unit.source
        return WatchedLog(source.log if source is not None else target, request, source)

    def sessions(screen: SeveralScreen) -> SeveralSessions:
        return SeveralSessions(
            Path(target), lambda log, screen: start(log, screen, True), open_log, screen, options, debug=request.debug
        )

    if plain:
        return sessions(PlainScreen(quiet=quiet)).watch()
    from ppo_doctor.cli.watch.several_live import several_screen

    with several_screen(color=color) as live:
        watching = sessions(live)
        code = watching.watch()
    live.leave(watching.state, quiet=quiet)
    return code


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Let signals raise KeyboardInterrupt, which ends in a verdict; one that was ignored, as by nohup, still is."""
    ours = (signal.SIG_DFL, signal.default_int_handler)
    numbers = [number for number in ENDING if signal.getsignal(number) in ours]
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
