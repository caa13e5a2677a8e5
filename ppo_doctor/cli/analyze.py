"""`ppo-doctor analyze`: read, judge, report; and `inspect`: show what was read."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ppo_doctor.cli.application import app
from ppo_doctor.cli.options import (
    Aliases,
    All,
    Configs,
    Debug,
    FailOn,
    Formats,
    Framework,
    Ignore,
    Interactive,
    Jobs,
    Names,
    NoColor,
    Output,
    Quiet,
    RuleFolders,
    SaveAliases,
    Select,
    Separate,
    Settings,
    Sources,
    Steps,
    TargetReturn,
    Together,
    Why,
    check_fail_on,
    refuse_inputs,
    request_of,
    save_aliases,
)
from ppo_doctor.cli.output import places, report, report_error, write
from ppo_doctor.model.errors import DoctorError, ExitCode, worst

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.cli.interactive.subjects import Case
    from ppo_doctor.cli.output import Place
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.request import Request
    from ppo_doctor.model.run import Run
    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.runs.layouts import RunSource


@app.command()
def analyze(
    sources: Sources,
    formats: Formats = None,
    output: Output = None,
    fail_on: FailOn = "never",
    framework: Framework = None,
    config: Configs = None,
    settings: Settings = None,
    alias: Aliases = None,
    save_alias: SaveAliases = False,
    names: Names = None,
    steps: Steps = None,
    target_return: TargetReturn = None,
    rules: RuleFolders = None,
    select: Select = None,
    ignore: Ignore = None,
    why: Why = False,
    all_checks: All = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
    debug: Debug = False,
    interactive: Interactive = False,
    together: Together = False,
    separate: Separate = False,
    jobs: Jobs = None,
) -> None:
    """Diagnose training runs."""
    from ppo_doctor.report import RenderOptions

    reports = _files(formats, output) if interactive else places(formats, output)
    refuse_inputs(reports, sources, config or [], rules or [])
    color = False if no_color else None
    options = RenderOptions(why=why, all=all_checks, quiet=quiet, fail_on=fail_on, color=color)
    inputs: set[str] = set()
    try:
        check_fail_on(fail_on)
        if interactive:
            from ppo_doctor.cli.interactive.terminal import check_terminal

            check_terminal(sources)
        asked = request_of(framework, config, settings, steps, select, ignore, debug, alias)
        request = replace(asked, names=tuple(names or ()), target_return=target_return)
        saved = partial(save_aliases, request) if save_alias else None
        gathered = partial(_gathered, sources, saved, together=together, separate=separate)
        code = _analyze(
            gathered, request, rules or [], reports, inputs, options, fail_on, interactive=interactive, jobs=jobs
        )
    except DoctorError as error:
        report_error(error, reports, inputs)
        raise
    raise typer.Exit(code)


def _gathered(
    sources: Sequence[str], saved: Callable[[Sequence[RunSource]], None] | None, *, together: bool, separate: bool
) -> tuple[list[RunSource], list[DoctorError]]:
    """Return the runs that were asked for and what is missing; if that is all, it is the error.

    `saved` keeps the names of the command line beside their logs.
    """
    from ppo_doctor.runs.discover import gather

    runs, missing = gather(sources, together=together, separate=separate)
    if not runs and len(missing) == 1:
        raise missing[0]
    if saved is not None:
        saved(runs)
    return runs, missing


def _analyze(
    gathered: Callable[[], tuple[list[RunSource], list[DoctorError]]],
    request: Request,
    rules: Sequence[Path],
    reports: Sequence[Place],
    inputs: set[str],
    options: RenderOptions,
    fail_on: str,
    *,
    interactive: bool,
    jobs: int | None,
) -> ExitCode:
    from ppo_doctor.checks.rulepack import load_pack
    from ppo_doctor.cli.judge import judge_runs
    from ppo_doctor.cli.policy import known_rules
    from ppo_doctor.diagnosis.gate_result import exit_code

    pack = load_pack(rules)
    known_rules(pack, (*request.select, *request.ignore))
    runs, errors = gathered()
    codes: set[ExitCode] = set()

    def coded() -> Iterator[tuple[Run, Diagnosis]]:
        # A bar would run into what is written to a terminal meanwhile.
        shown = interactive or not (len(runs) > 1 and any(path is None for _, path in reports) and sys.stdout.isatty())
        for run, diagnosis in judge_runs(runs, errors, request, pack, jobs=jobs, shown=shown):
            codes.add(exit_code(diagnosis, fail_on))
            yield run, diagnosis
            del run, diagnosis

    judged: Iterable[tuple[Run, Diagnosis]] = list(coded()) if interactive else coded()
    report(judged, options, reports, inputs, many=lambda count: count > 1 or bool(errors))
    if interactive:
        from ppo_doctor.cli.interactive.terminal import show

        show(cases_of(list(judged), request, pack), options)
    return worst([*codes, *(error.code for error in errors)])


def cases_of(judged: Sequence[tuple[Run, Diagnosis]], request: Request, pack: Pack) -> list[Case]:
    """Return what the interactive report shows: these very diagnoses, and how to judge runs under other settings."""
    from ppo_doctor.cli.interactive.subjects import Case
    from ppo_doctor.diagnosis.analyze import diagnose
    from ppo_doctor.runs.config_runs import settable, supposed

    def rediagnose(run: Run, overrides: Mapping[str, ConfigValue]) -> tuple[Run, Diagnosis]:
        under = supposed(run, overrides)
        return under, diagnose(under, pack, request)

    return [
        Case(run=run, diagnosis=diagnosis, rediagnose=partial(rediagnose, run), settable=tuple(settable(run)))
        for run, diagnosis in judged
    ]


def _files(formats: list[str] | None, output: Path | None) -> list[Place]:
    """Return the reports to write beside the interactive one, which has standard output for itself.

    Raises:
        DoctorError: a format without a file (exit code 2).
    """
    if not formats and output is None:
        return []
    reports = places(formats, output)
    for name, path in reports:
        if path is None:
            hint = f"--format {name}=FILE writes it beside the interactive report; e exports from within"
            raise DoctorError(f"--format {name} and -i both want the terminal", hint=hint, code=ExitCode.USAGE)
    return reports


@app.command()
def inspect(
    source: Annotated[str, typer.Argument(help="A log, a run folder, or - for stdin.")],
    framework: Framework = None,
    config: Configs = None,
    settings: Settings = None,
    alias: Aliases = None,
    save_alias: SaveAliases = False,
    steps: Steps = None,
    rules: RuleFolders = None,
    all_keys: Annotated[bool, typer.Option("--all", help="Every key, default and note.")] = False,
    debug: Debug = False,
) -> None:
    """Show what was read: names, configuration, K, and which causes this log can decide."""
    from ppo_doctor.checks.rulepack import load_pack
    from ppo_doctor.diagnosis.analyze import runs_of
    from ppo_doctor.diagnosis.inspection import inspect as look
    from ppo_doctor.report.inspection_text import render
    from ppo_doctor.runs.discover import gather

    request = request_of(framework, config, settings, steps, None, None, debug, alias)
    pack = load_pack(rules or [])
    found, missing = gather([source])
    if missing:
        raise missing[0]
    if save_alias:
        save_aliases(request, found)
    for run in (run for one in found for run in runs_of(one, request)):
        write(render(look(run, pack), everything=all_keys), None)
