"""The command `watch`: follow a run that is still writing."""

from __future__ import annotations

from typing import Annotated

import typer

from ppo_doctor.cli.application import app
from ppo_doctor.cli.options import (
    Aliases,
    Configs,
    Debug,
    FailOn,
    Framework,
    Ignore,
    NoColor,
    Quiet,
    RuleFolders,
    Select,
    Settings,
    check_fail_on,
    load_rules,
    request_of,
    seconds,
)
from ppo_doctor.model.errors import DoctorError, ExitCode


@app.command()
def watch(
    path: Annotated[str, typer.Argument(help="A log, a run folder or a folder of runs; it need not exist yet.")],
    fail_on: FailOn = "never",
    on_finding: Annotated[
        str | None,
        typer.Option(help="Run this command, without a shell, for a confirmed cause: JSON on stdin."),
    ] = None,
    interval: Annotated[str, typer.Option(help="Time between judgements, at least: 500ms, 5s, 1m.")] = "10s",
    until_idle: Annotated[
        str | None, typer.Option(help="Stop after so long without anything new: 90s, 30m, 2h; else watch for ever.")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="One line per event, as when stdout is no terminal.")] = False,
    framework: Framework = None,
    config: Configs = None,
    settings: Settings = None,
    alias: Aliases = None,
    rules: RuleFolders = None,
    select: Select = None,
    ignore: Ignore = None,
    quiet: Quiet = False,
    no_color: NoColor = False,
    debug: Debug = False,
) -> None:
    """Follow a run, or all runs below a folder, while it is written."""
    from ppo_doctor.cli.watch.command import run_watch
    from ppo_doctor.cli.watch.session import Options
    from ppo_doctor.model.opening import is_url

    check_fail_on(fail_on)
    if path == "-":
        raise DoctorError("watch follows a file", hint="for stdin: ppo-doctor analyze -", code=ExitCode.USAGE)
    if is_url(path):
        hint = f"as it is now: ppo-doctor analyze {path}"
        raise DoctorError("watch follows files of this machine, no URL", hint=hint, code=ExitCode.USAGE)
    idle = None if until_idle is None else seconds("--until-idle", until_idle)
    every = seconds("--interval", interval)
    request = request_of(framework, config, settings, None, select, ignore, debug, alias)
    pack = load_rules(rules, request)
    options = Options(interval=every, fail_on=fail_on, until_idle=idle)
    color = False if no_color else None
    code = run_watch(path, pack, request, options, on_finding=on_finding, plain=plain, quiet=quiet, color=color)
    raise typer.Exit(code)
