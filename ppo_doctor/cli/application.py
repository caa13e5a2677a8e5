"""The application: commands, `--version`, and errors as messages and exit codes.

Everything but typer is imported inside the commands, so that `--help` does not import numpy. Only the command that was
called is imported and prepared, because typer takes a millisecond for each option of a command.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from copy import copy
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.models import CommandInfo

from ppo_doctor import __version__
from ppo_doctor.model.errors import DoctorError, ExitCode

#: Command → the module of this package that registers it and what it says of itself, in the order in which `--help`
#: lists them.
COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "analyze": ("analyze", "Diagnose training runs."),
        "inspect": ("analyze", "Show what was read: names, configuration, K, and which causes this log can decide."),
        "gate": (
            "analyze",
            "Judge training runs for CI: exit with 1 for what a policy or a baseline forbids.",
        ),
        "compare": (
            "compare",
            "Put two runs side by side: reward, metrics that part and when, settings that differ.",
        ),
        "check-config": (
            "check_config",
            "Check training configurations before a run, by the rules that need no log.",
        ),
        "explain": ("explain", "Print the manual page of a rule, a cause, a framework or a metric."),
        "frameworks": ("explain", "List the frameworks whose logs we know, with the keys that give them away."),
        "rules": ("rules", "List and test rules."),
        "watch": (
            "watch",
            "Follow a run, or all runs below a folder, while it is written.",
        ),
        "run": ("run", "Run a training script and say what is wrong with its PPO."),
        "fleet": (
            "fleet",
            "Judge any number of runs: which are broken, of what, and what they have in common.",
        ),
        "skill": ("skill", "Print the page that tells an agent when to ask which command, and how to read the answer."),
        "show": (
            "show",
            "Show what a finding rests on: numbers and bounds, records, lines of the log, answers.",
        ),
        "demo": ("demo", "Judge a sick and a sound run that come with ppo-doctor, and print both reports."),
        "selftest": (
            "demo",
            "Test this installation: the cases of every rule, the runs of the demo, what is installed.",
        ),
        "mcp": ("agents", "Serve the diagnosis to agents over MCP, on stdin and stdout."),
    }
)

#: What is released when the command line ends, or the process, where commands are called from elsewhere.
resources = ExitStack()
atexit.register(resources.close)


class _Commands(TyperGroup):
    """The group of commands; without it, typer takes any `EOFError` for a Ctrl-D and exits with 1."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer keeps its contexts to itself
        """Run a command."""
        try:
            return super().invoke(ctx)
        except EOFError as error:
            raise RuntimeError(f"EOFError: {error}") from error


app = typer.Typer(
    cls=_Commands,
    name="ppo-doctor",
    help="Reads what a PPO run left behind and says what is wrong, how it knows, and what to do first.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich would triple the start-up of --help
)
rules_app = typer.Typer(help=COMMANDS["rules"][1], no_args_is_help=True, rich_markup_mode=None)
app.add_typer(rules_app, name="rules")


def _version(value: bool) -> None:
    if value:
        sys.stdout.write(f"ppo-doctor {__version__}\n")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    del version


def register(command: str | None = None) -> None:
    """Import the module of a command, or all modules if there is no such command, as for completions of a shell."""
    known = COMMANDS.get(command or "")
    for module in dict.fromkeys(module for module, _ in ([known] if known else COMMANDS.values())):
        import_module(f"ppo_doctor.cli.{module}")


def application_of(command: str | None) -> typer.Typer:
    """Return the application with one of its commands, or with all if there is no such command.

    For `--help` their names are enough, which takes half the time.
    """
    if command == "--help":
        named = copy(app)
        named.registered_commands = [
            CommandInfo(name=name, help=says, callback=lambda: None)
            for name, (_, says) in COMMANDS.items()
            if name != "rules"  # a group, which is there
        ]
        return named
    register(command)
    called = [info for info in app.registered_commands if info.callback and _name(info.callback) == command]
    if not called:
        return app
    alone = copy(app)
    alone.registered_commands = called
    return alone


def _name(command: Callable[..., Any]) -> str:
    """Return the name that typer gives to the command of a function."""
    return command.__name__.replace("_", "-")


def run() -> int:
    """Run the command line, print errors, and return the exit code."""
    from ppo_doctor.cli.output import print_error

    try:
        with resources:
            return _called(application_of(sys.argv[1] if len(sys.argv) > 1 else None))
    except DoctorError as error:
        print_error(error)
        return error.code
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - the last line of defence: a bug becomes exit code 70 and a message
        if "--debug" not in sys.argv and (refused := _refused(error)):
            print_error(refused)
            return refused.code
        return _bug(error)


def _called(application: typer.Typer) -> int:
    """Run the command and return its exit code, after flushing the output."""
    try:
        application(standalone_mode=True)
    except SystemExit as stop:
        code = stop.code
    else:
        code = None
    sys.stdout.flush()
    if code is None or isinstance(code, int):
        return code or ExitCode.OK
    raise RuntimeError(str(code))


def _refused(error: Exception) -> DoctorError | None:
    """Return an error for a path that the system refuses or a deleted working directory, None for a bug of ours."""
    from ppo_doctor.cli.output import working_folder_exists

    if not isinstance(error, OSError):
        return None
    if isinstance(error.filename, str | bytes):
        return DoctorError(f"{os.fsdecode(error.filename)}: {error.strerror}", code=ExitCode.USAGE)
    if working_folder_exists():
        return None
    return DoctorError("the working directory no longer exists: name files by their whole path", code=ExitCode.USAGE)


def _bug(error: Exception) -> int:
    from ppo_doctor.report.escape import plain

    if "--debug" in sys.argv:
        import traceback

        traceback.print_exception(error)
    sys.stderr.write(f"ppo-doctor: a bug of ours: {type(error).__name__}: {plain(str(error))}\n")
    sys.stderr.write("  run again with --debug for the traceback, and report it with the log if you can\n")
    return ExitCode.BUG
