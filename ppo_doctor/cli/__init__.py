"""The command line: parses options, calls the pipeline, prints a report, sets the exit code.

Everything but typer is imported inside the commands, so that `--help` costs no numpy; and of the commands only the one
that was asked for, since typer takes a millisecond to prepare each.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from ppo_doctor import inputs
from ppo_doctor.cli.application import app
from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.output import complain

__all__ = ["COMMANDS", "app", "register", "run"]

#: Command → the module of this package that registers it, in the order in which `--help` lists them.
COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "analyze": "analyze",
        "inspect": "analyze",
        "gate": "gate",
        "compare": "gate",
        "check-config": "gate",
        "explain": "explain",
        "frameworks": "explain",
        "rules": "rules",
        "watch": "watch",
    }
)


def register(command: str | None = None) -> None:
    """Import the module of a command; of all where it is none that we know, for `--help` and for near misses."""
    asked = COMMANDS.get(command or "")
    for module in dict.fromkeys(COMMANDS.values()) if asked is None else [asked]:
        import_module(f"ppo_doctor.cli.{module}")


def run() -> int:
    """Run the command line and return the exit code; only here do errors become messages."""
    try:
        register(sys.argv[1] if len(sys.argv) > 1 else None)
        return _called()
    except DoctorError as error:
        complain(error)
        return error.code
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - the last line of defence: a bug becomes exit code 70 and a message
        return _refused(error) or _bug(error)


def _called() -> int:
    """Run the command that was asked for; what its output still holds is written before the exit code is settled."""
    try:
        app(standalone_mode=True)
    except SystemExit as stop:
        code = stop.code
    else:
        code = None
    sys.stdout.flush()
    if code is None or isinstance(code, int):
        return code or ExitCode.OK
    raise RuntimeError(str(code))


def _refused(error: Exception) -> int | None:
    """Tell of a path that the system refuses, or of a working directory that is gone: neither is a bug of ours."""
    if not isinstance(error, OSError):
        return None
    where = "" if inputs.somewhere() else "the working directory no longer exists: name files by their whole path"
    if isinstance(error.filename, str | bytes):
        where = f"{os.fsdecode(error.filename)}: {error.strerror}"
    if not where or "--debug" in sys.argv:
        return None
    complain(DoctorError(where))
    return ExitCode.USAGE


def _bug(error: Exception) -> int:
    from ppo_doctor.report.escape import plain

    if "--debug" in sys.argv:
        import traceback

        traceback.print_exception(error)
    sys.stderr.write(f"ppo-doctor: a bug of ours: {type(error).__name__}: {plain(str(error))}\n")
    sys.stderr.write("  run again with --debug for the traceback, and report it with the log if you can\n")
    return ExitCode.BUG
