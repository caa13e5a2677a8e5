"""The command `run`: run an unchanged training script, observe PPO in it, and diagnose what was observed."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ppo_doctor.cli.application import app
from ppo_doctor.cli.options import (
    All,
    Configs,
    Debug,
    FailOn,
    Formats,
    NoColor,
    Output,
    Quiet,
    RuleFolders,
    Settings,
    Why,
    check_fail_on,
    gather_runs,
    load_rules,
    refuse_inputs,
    request_of,
    seconds,
)
from ppo_doctor.cli.output import places, print_error, refuse_input, report, report_error
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.record.script.launch import command_of, die_of, environment, notes_in, run_command
from ppo_doctor.record.script.options import WatchOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.cli.output import Place
    from ppo_doctor.model.request import Request
    from ppo_doctor.report import RenderOptions

#: How a file of observations begins; another file is not replaced.
BEGINNING = b'{"ppo_doctor"'
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
NEVER = "never"


class _Command(TyperCommand):
    """Takes everything from the script's name on as the script's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer keeps its contexts to itself
        """Parse the options before the script."""
        with_value = {name for option in self.params if not getattr(option, "is_flag", False) for name in option.opts}
        start = _start_of_command(args, with_value)
        return super().parse_args(ctx, [*args[:start], "--", *args[start:]] if start < len(args) else args)


def _start_of_command(args: Sequence[str], with_value: set[str]) -> int:
    """Return the index of the script, `-m` or `--`, the number of arguments if there is none."""
    index = 0
    while index < len(args):
        if args[index] in ("-m", "--") or not args[index].startswith("-"):
            return index
        index += 2 if args[index] in with_value else 1
    return len(args)


@dataclass(frozen=True, slots=True)
class Judgement:
    """How to judge what was observed, and where to report it."""

    request: Request
    pack: Pack
    places: Sequence[Place]
    options: RenderOptions
    logs: Sequence[str]
    command: Sequence[str]

    @property
    def name(self) -> str:
        """Return the script as the user named it, or its module; for another command its name."""
        first, *rest = self.command
        if first == "--":
            return next((argument for argument in rest if argument.endswith(".py")), Path(rest[0]).name)
        return f"-m {rest[0]}" if first == "-m" else first


@app.command(cls=_Command)
def run(
    command: Annotated[list[str], typer.Argument(metavar="SCRIPT ARGS…", help="Also -m MODULE ARGS…, -- COMMAND…")],
    updates: Annotated[int | None, typer.Option(min=1, help="Let go after this many updates.")] = None,
    duration: Annotated[str | None, typer.Option("--for", help="Let go after this time: 90s, 10m.")] = None,
    stop: Annotated[bool, typer.Option("--stop", help="End the script then; else it runs on.")] = False,
    out: Annotated[Path | None, typer.Option(help="Keep what is observed in this file.")] = None,
    every: Annotated[int, typer.Option(min=0, help="Observe one of N updates; 0: 1, 2, 8, 32 …")] = 0,
    memory: Annotated[str, typer.Option(help="Most memory for copies of values.")] = "256M",
    live: Annotated[bool, typer.Option("--live", help="Print a line for each observed update.")] = False,
    log: Annotated[list[Path] | None, typer.Option(help="A log of the script, judged with it. Repeatable.")] = None,
    formats: Formats = None,
    output: Output = None,
    fail_on: FailOn = NEVER,
    config: Configs = None,
    settings: Settings = None,
    rules: RuleFolders = None,
    why: Why = False,
    all_checks: All = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
    debug: Debug = False,
) -> None:
    """Run a training script and say what is wrong with its PPO."""
    from ppo_doctor.report import RenderOptions

    check_fail_on(fail_on)
    _check_command(command)
    reports = places(formats, output)
    logs = [str(path) for path in log or ()]
    refuse_inputs(reports, logs, [out, *(config or ())], rules or [])
    color = False if no_color else None
    options = RenderOptions(why=why, all=all_checks, quiet=quiet, color=color)
    request = request_of(None, config, settings, None, None, None, debug)
    judgement = Judgement(request, load_rules(rules, request), reports, options, logs, command)
    limit = seconds("--for", duration) if duration is not None else None
    with TemporaryDirectory(prefix="ppo-doctor-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "observed.jsonl" if out is None else _cleared(out, [*logs, *(config or ())])
        watch = WatchOptions(str(file), "", "", updates, limit, every, _bytes(memory), live, stop)
        status = _run(command, watch, Path(folder))
        if status == 0 and fail_on != NEVER:  # else the exit code is the script's
            judgement = replace(judgement, options=replace(options, fail_on=fail_on))
        code = _judged(file, notes_in(Path(folder)), judgement)
    if status < 0:
        sys.stderr.flush()
        die_of(-status)
        status = 128 - status
    raise typer.Exit(code if judgement.options.fail_on else status)


def _check_command(command: Sequence[str]) -> None:
    """Refuse a command line that starts nothing.

    Raises:
        DoctorError: there is no such script, or no module or command is named (exit code 2).
    """
    first = command[0]
    if first in ("-m", "--"):
        if len(command) == 1:
            what = "module" if first == "-m" else "command"
            raise DoctorError(f"run {first}: no {what} named", hint="ppo-doctor run --help", code=ExitCode.USAGE)
    elif not os.path.exists(first):  # noqa: PTH110 - any length
        hint = f"a command stands behind --: ppo-doctor run -- {first} …" if shutil.which(first) else ""
        raise DoctorError(f"{first}: no such script", hint=hint, code=ExitCode.USAGE)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d{1,12})([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        hint = "a number and its unit: 64M, 1G"
        raise DoctorError(f"--memory {text}: no amount of memory", hint=hint, code=ExitCode.USAGE)
    return int(match[1]) * UNITS[match[2].upper()]


def _cleared(out: Path, inputs: Sequence[str | Path]) -> Path:
    """Return the whole path of a file for observations, after removing an earlier one.

    Raises:
        DoctorError: the file is something else or an input, or its folder does not exist (exit code 2).
    """
    from ppo_doctor.model.opening import plain_file

    path = Path(os.path.abspath(out))  # noqa: PTH100 - links stay, the script may change the working directory
    if not path.parent.is_dir():
        raise DoctorError(f"--out {out}: there is no folder {path.parent}", code=ExitCode.USAGE)
    if path.exists():
        refuse_input(path, inputs)
        with plain_file(path) as file:
            begins = file.read(len(BEGINNING))
        if begins not in (b"", BEGINNING):
            hint = "name another file, or remove it"
            raise DoctorError(f"--out {out}: holds something else", hint=hint, code=ExitCode.USAGE)
        path.unlink()
    return path


def _run(command: Sequence[str], watch: WatchOptions, notes: Path) -> int:
    """Run the command and return its exit code, negative for the signal that ended it.

    Raises:
        DoctorError: it cannot be started (exit code 2).
    """
    line = command_of(command)
    sys.stdout.flush()
    try:
        return run_command(line, environment(watch, notes, os.environ))
    except OSError as error:
        raise DoctorError(f"{line[0]}: {error.strerror}", code=ExitCode.USAGE) from error


def _judged(file: Path, notes: Sequence[str], judgement: Judgement) -> ExitCode:
    """Report on what was observed and return the exit code of the judgement; a fault of ours is only printed."""
    inputs: set[str] = set()
    try:
        with _on_stderr():
            try:
                reason = why_nothing(file, notes, judgement.command)
                if reason is not None:
                    raise reason
                return _report(file, judgement, inputs)
            except DoctorError as error:
                report_error(error, judgement.places, inputs)
                raise
    except DoctorError as error:
        print_error(error)
        return error.code
    except KeyboardInterrupt:
        return ExitCode.NOTHING_TO_JUDGE
    except Exception as error:
        if judgement.request.debug:
            raise
        text = f"a bug of ours while judging: {type(error).__name__}: {error}"
        print_error(DoctorError(text, hint="keep the observations with --out FILE and report it with them"))
        return ExitCode.BUG


@contextmanager
def _on_stderr() -> Iterator[None]:
    """Write reports that have no file to standard error; standard output is the script's."""
    with redirect_stdout(sys.stderr):
        yield


def _report(file: Path, judgement: Judgement, inputs: set[str]) -> ExitCode:
    from ppo_doctor.cli.judge import judge_runs
    from ppo_doctor.diagnosis.gate_result import exit_code
    from ppo_doctor.model.errors import worst

    runs, errors = gather_runs([str(file), *judgement.logs], together=bool(judgement.logs))
    judged = list(judge_runs(runs, errors, judgement.request, judgement.pack, shown=False))
    if len(judged) == 1:  # the file may be gone when the report is read
        judged = [(run, replace(diagnosis, run=replace(diagnosis.run, id=judgement.name))) for run, diagnosis in judged]
    report(judged, judgement.options, judgement.places, inputs)
    return worst([exit_code(diagnosis, judgement.options.fail_on or NEVER) for _, diagnosis in judged])


def why_nothing(file: Path, notes: Sequence[str], command: Sequence[str]) -> DoctorError | None:
    """Return an error that says why no update was observed, None if one was."""
    import orjson

    from ppo_doctor.model.opening import plain_file

    reasons = [note for note in notes if " " in note and not note.startswith("failed ")]
    if file.exists():
        with plain_file(file) as lines:
            for line in lines:
                if b'"step"' in line:
                    return None
                if b'"unseen"' in line:
                    reasons += map(str, orjson.loads(line).get("unseen", {}).values())
    return _nothing(dict.fromkeys(reasons), notes, command)


def _nothing(reasons: dict[str, None], notes: Sequence[str], command: Sequence[str]) -> DoctorError:
    failures = [note.removeprefix("failed ") for note in notes if note.startswith("failed ")]
    hint = ""
    if failures:
        why = failures[0]
    elif "started" not in notes:
        why = "the command started no Python that reads PYTHONPATH (python -E, -I and -S do not)"
    elif "torch" not in notes:
        why, hint = _without_torch(command)
    elif reasons:
        why = "; ".join(reasons)
    elif "rank" in notes:
        why = "rank 0 reports, and it runs elsewhere"
    else:
        why = "no ratio of new to old policy took part in a backward pass"
    return DoctorError(f"nothing observed: {why}", hint=hint, code=ExitCode.NOTHING_TO_JUDGE)


def _without_torch(command: Sequence[str]) -> tuple[str, str]:
    """Return why torch was not imported and what to do, where the environment lacks it."""
    from importlib.util import find_spec

    if command[0] == "--" or find_spec("torch") is not None:
        return "the script never imported torch; JAX and TensorFlow cannot be observed", ""
    script = " ".join(command[:2] if command[0] == "-m" else command[:1])
    python = _other_python() or "path/to/python"
    hint = f"with the Python of the script's environment: ppo-doctor run -- {python} {script} …"
    return f"torch is not installed for {sys.executable}", hint


def _other_python() -> str | None:
    """Return the Python of the active environment if it is not the one that runs us."""
    found = shutil.which("python") or shutil.which("python3")
    if found is None or os.path.dirname(found) == os.path.dirname(sys.executable):  # noqa: PTH120 - links stay
        return None
    return found
