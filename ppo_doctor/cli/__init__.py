"""The command line: parses options, calls the pipeline, prints a report, sets the exit code.

Everything but typer is imported inside the commands, so that `--help` costs no numpy. Commands are listed by `--help`
in the order in which their modules are imported here.
"""

from __future__ import annotations

import sys

from ppo_doctor.cli import analyze, gate, reference, rules, watch
from ppo_doctor.cli.application import app
from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.output import complain

__all__ = ["analyze", "app", "gate", "reference", "rules", "run", "watch"]


def run() -> int:
    """Run the command line and return the exit code; only here do errors become messages."""
    try:
        app(standalone_mode=True)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    except DoctorError as error:
        complain(error)
        return error.code
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # the last line of defence: a bug becomes exit code 70 and a message
        if "--debug" in sys.argv:
            raise
        _bug(error)
        return ExitCode.BUG
    return ExitCode.OK


def _bug(error: Exception) -> None:
    from ppo_doctor.report.escape import plain

    sys.stderr.write(f"ppo-doctor: a bug of ours: {type(error).__name__}: {plain(str(error))}\n")
    sys.stderr.write("  run again with --debug for the traceback, and report it with the log if you can\n")
