"""Run the interactive report in a terminal: check it, read keys if stdin was the log, handle signals."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ppo_doctor.model.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from textual.driver import Driver

    from ppo_doctor.cli.interactive.app import ReportApp
    from ppo_doctor.cli.interactive.subjects import Case
    from ppo_doctor.report import RenderOptions

#: Terminals whose fonts lack braille and the characters of plots.
PLAIN_TERMINALS = frozenset({"linux", "vt100", "vt102", "vt220"})
#: Signals that end the report and restore the terminal.
ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, name))
_HINT = "run it in a terminal, or leave -i away and choose --format text, html or json"


def check_terminal(sources: Sequence[str]) -> None:
    """Refuse to start without a terminal for output and keys.

    Raises:
        DoctorError: standard output is no terminal, or there is none to read keys from (exit code 2).
    """
    if not sys.stdout.isatty():
        raise DoctorError("-i needs a terminal, and standard output is none", hint=_HINT, code=ExitCode.USAGE)
    if os.environ.get("TERM") == "dumb":
        raise DoctorError("-i needs a terminal that can do more than TERM=dumb", hint=_HINT, code=ExitCode.USAGE)
    if not sys.stdin.isatty() and not ("-" in sources and _controlling() is not None):
        raise DoctorError("-i needs a terminal to read keys from", hint=_HINT, code=ExitCode.USAGE)


def _controlling() -> int | None:
    """Open the controlling terminal of this process; return None if it has none."""
    try:
        return os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return None


def show(cases: Sequence[Case], options: RenderOptions) -> None:
    """Run the report until the user quits; the terminal is restored in any case.

    Raises:
        KeyboardInterrupt: Ctrl-C or a signal ended it.
        Exception: a bug of ours, after the screen was restored.
    """
    from ppo_doctor.cli.interactive.app import ReportApp

    if not sys.stdin.isatty():  # the log came through the pipe; keys come from the terminal itself
        terminal = _controlling()
        if terminal is not None:
            os.dup2(terminal, 0)
    if options.color is False:
        os.environ["NO_COLOR"] = "1"
    app = ReportApp(cases, options, ascii_signs=needs_ascii(), native=_few_colors(), light=is_light())
    app.driver_class = leaving_nothing(app.driver_class)
    asyncio.run(_run(app))
    if app.crash is not None:
        raise app.crash
    if app.interrupted:
        raise KeyboardInterrupt


def leaving_nothing(driver: type[Driver]) -> type[Driver]:
    """Return a driver that clears its screen before it restores the shell's.

    Some terminals, tmux for example, would otherwise move it to the shell's history after a change of size.
    """

    class Leaving(driver):  # type: ignore[valid-type,misc]
        def stop_application_mode(self) -> None:
            self.write("\x1b[H\x1b[2J")
            super().stop_application_mode()

    return Leaving


async def _run(app: ReportApp) -> None:
    loop = asyncio.get_running_loop()
    for number in ENDING:
        try:
            loop.add_signal_handler(number, partial(app.action_interrupt))
        except NotImplementedError:  # Windows: Ctrl-C arrives as a key
            break
    await app.run_async()


def _few_colors() -> bool:
    """Return whether to use the terminal's own colours: it has at most sixteen, or NO_COLOR is set."""
    from rich.console import Console

    return "NO_COLOR" in os.environ or Console().color_system in (None, "standard", "windows")


def is_light() -> bool:
    """Return whether the terminal reports a light background (`COLORFGBG`)."""
    return os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")


def needs_ascii() -> bool:
    """Return whether the terminal's font or encoding lacks the characters of plots."""
    if os.environ.get("TERM") in PLAIN_TERMINALS:
        return True
    return "utf" not in (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
