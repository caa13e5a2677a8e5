"""What `ppo-doctor watch` does with its options: puts log, judge, screen and hook together."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ppo_doctor.pipeline import Request, diagnose
from ppo_doctor.watch.events import PlainScreen
from ppo_doctor.watch.hook import Hook
from ppo_doctor.watch.log import WatchedLog
from ppo_doctor.watch.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppo_doctor.errors import ExitCode
    from ppo_doctor.rulepack import Pack
    from ppo_doctor.watch.session import Options

#: Signals that end the watching: the wish to, the end of the job, and that of the terminal.
ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


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
    hook = Hook(on_finding) if on_finding is not None else None
    with _signals_interrupt():
        if plain or not sys.stdout.isatty():
            screen = PlainScreen(quiet=quiet)
            return Session(log, lambda run: diagnose(run, pack, request), screen, options, hook=hook).watch()
        from ppo_doctor.watch.live import live_screen

        with live_screen(color=color) as live:
            session = Session(log, lambda run: diagnose(run, pack, request), live, options, hook=hook)
            code = session.watch()
        live.leave(session.view, quiet=quiet)
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
