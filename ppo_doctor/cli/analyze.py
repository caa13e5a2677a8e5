"""The commands `analyze` (diagnose runs), `inspect` (show what was read) and `gate` (judge runs for CI)."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ppo_doctor.cli.application import app
from ppo_doctor.cli.options import (
    Aliases,
    All,
    Apply,
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
    PatchOption,
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
    complete_severity,
    gather_runs,
    load_rules,
    refuse_inputs,
    request_of,
    save_aliases,
)
from ppo_doctor.cli.output import places, report, report_error, write
from ppo_doctor.model.errors import DoctorError, ExitCode, worst

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.cli.interactive.subjects import Case
    from ppo_doctor.cli.output import Place
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.request import Request
    from ppo_doctor.model.run import Run
    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.patch import Patch
    from ppo_doctor.runs.layouts import RunSource


GATE_FAIL_ON = "As in analyze; high unless the policy says otherwise."


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
    patch: PatchOption = False,
    apply: Apply = False,
) -> None:
    """Diagnose training runs."""
    from ppo_doctor.report import RenderOptions

    patches: dict[str, Patch] | None = {} if patch or apply else None
    reports = _files(formats, output, interactive=interactive, patch=patches is not None)
    refuse_inputs(reports, sources, config or [], rules or [])
    options = RenderOptions(why=why, all=all_checks, quiet=quiet, fail_on=fail_on, color=False if no_color else None)
    inputs: set[str] = set()
    try:
        check_fail_on(fail_on)
        if interactive:
            from ppo_doctor.cli.interactive.terminal import check_terminal

            check_terminal(sources)
        request = request_of(framework, config, settings, steps, select, ignore, debug, alias)
        request = replace(request, names=tuple(names or ()), target_return=target_return)
        pack = load_rules(rules, request)
        runs, errors = gather_runs(sources, together=together, separate=separate)
        if save_alias:
            save_aliases(request, runs)
        options = replace(options, patches=patches) if patches is not None else options
        code = _analyze(
            runs, errors, request, pack, reports, inputs, options, patches, interactive=interactive, jobs=jobs
        )
        if patches is not None:
            from ppo_doctor.cli.patch import finish_patch

            finish_patch(patches.values(), apply=apply, diff=all(path for _, path in reports))
    except DoctorError as error:
        report_error(error, reports, inputs)
        raise
    raise typer.Exit(code)


def _analyze(
    runs: Sequence[RunSource],
    errors: list[DoctorError],
    request: Request,
    pack: Pack,
    reports: Sequence[Place],
    inputs: set[str],
    options: RenderOptions,
    patches: dict[str, Patch] | None,
    *,
    interactive: bool,
    jobs: int | None,
) -> ExitCode:
    from ppo_doctor.cli.judge import judge_runs
    from ppo_doctor.diagnosis.gate_result import exit_code

    codes: set[ExitCode] = set()

    def coded() -> Iterator[tuple[Run, Diagnosis]]:
        # A progress bar would mix with reports that are written to a terminal meanwhile.
        shown = interactive or not (len(runs) > 1 and any(path is None for _, path in reports) and sys.stdout.isatty())
        for run, diagnosis in judge_runs(runs, errors, request, pack, jobs=jobs, shown=shown):
            codes.add(exit_code(diagnosis, options.fail_on))
            if patches is not None:
                from ppo_doctor.report.patch import propose

                patches[diagnosis.run.id] = propose(diagnosis, run)
            yield run, diagnosis
            del run, diagnosis

    judged: Iterable[tuple[Run, Diagnosis]] = list(coded()) if interactive else coded()
    report(judged, options, reports, inputs, many=lambda count: count > 1 or bool(errors))
    if interactive:
        from ppo_doctor.cli.interactive.terminal import show

        show(cases_of(list(judged), request, pack), options)
    return worst([*codes, *(error.code for error in errors)])


def cases_of(judged: Sequence[tuple[Run, Diagnosis]], request: Request, pack: Pack) -> list[Case]:
    """Return the cases of the interactive report: diagnosed runs, and how to judge them with other settings."""
    from ppo_doctor.cli.interactive.subjects import Case
    from ppo_doctor.diagnosis.analyze import diagnose
    from ppo_doctor.runs.config_runs import settable, supposed

    def rediagnose(run: Run, overrides: Mapping[str, ConfigValue]) -> tuple[Run, Diagnosis]:
        changed = supposed(run, overrides)
        return changed, diagnose(changed, pack, request)

    return [
        Case(run=run, diagnosis=diagnosis, rediagnose=partial(rediagnose, run), settable=tuple(settable(run)))
        for run, diagnosis in judged
    ]


def _files(formats: list[str] | None, output: Path | None, *, interactive: bool, patch: bool) -> list[Place]:
    """Return the reports to write; the interactive one and a diff need standard output, but JSON contains the diff.

    Raises:
        DoctorError: several want standard output (exit code 2).
    """
    if not interactive and not patch:
        return places(formats, output)
    reports = places(formats, output) if formats or output is not None else []
    wanted = [f"--format {name}" for name, path in reports if path is None and (interactive or name != "json")]
    wanted += ["--patch"] if interactive and patch else []
    if wanted:
        other, what = ("-i", "the terminal") if interactive else ("--patch", "standard output")
        hint = f"{wanted[0]}=FILE writes a file" if wanted[0] != "--patch" else "ask for one of them"
        raise DoctorError(f"{wanted[0]} and {other} both want {what}", hint=hint, code=ExitCode.USAGE)
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
    from ppo_doctor.diagnosis.analyze import runs_of
    from ppo_doctor.diagnosis.inspection import inspect as inspect_run
    from ppo_doctor.report.inspection_text import render

    request = request_of(framework, config, settings, steps, None, None, debug, alias)
    pack = load_rules(rules, request)
    sources, missing = gather_runs([source])
    if missing:
        raise missing[0]
    if save_alias:
        save_aliases(request, sources)
    for run in (run for one in sources for run in runs_of(one, request)):
        write(render(inspect_run(run, pack), everything=all_keys), None)


@app.command()
def gate(
    sources: Sources,
    policy: Annotated[Path | None, typer.Option(help="The policy; else the nearest ppo-doctor.toml.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="A JSON report, or a table; only new faults fail.")] = None,
    budget: Annotated[list[str] | None, typer.Option(help="As in the policy: unhealthy.share <= 0.05.")] = None,
    group: Annotated[bool, typer.Option("--group", help="Judge seeds of one configuration together.")] = False,
    formats: Formats = None,
    output: Output = None,
    fail_on: Annotated[str | None, typer.Option(help=GATE_FAIL_ON, autocompletion=complete_severity)] = None,
    framework: Framework = None,
    config: Configs = None,
    settings: Settings = None,
    alias: Aliases = None,
    steps: Steps = None,
    rules: RuleFolders = None,
    select: Select = None,
    ignore: Ignore = None,
    why: Why = False,
    all_checks: All = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
    debug: Debug = False,
) -> None:
    """Judge training runs for CI: exit with 1 for what a policy or a baseline forbids."""
    from ppo_doctor.cli.fleet_gate import fleet_table_of, gate_fleet, refuse_budgets, refuse_given
    from ppo_doctor.cli.gate import policy_for, run_gate
    from ppo_doctor.report import RenderOptions

    if not formats and output is None and os.environ.get("GITHUB_ACTIONS") == "true":
        formats = ["text", "github"]  # annotations between the lines of the job's log
    reports = places(formats, output)
    refuse_inputs(reports, sources, [policy, baseline, *(config or ())], rules or [])
    options = RenderOptions(why=why, all=all_checks, quiet=quiet, color=False if no_color else None)
    inputs: set[str] = set()
    try:
        if fail_on is not None:
            check_fail_on(fail_on)
        ours = policy_for(policy, fail_on=fail_on, baseline=baseline, rules=rules or (), budgets=budget or ())
        refuse_inputs(reports, (), [ours.source, ours.baseline], ours.rules)
        table = fleet_table_of(sources)
        refuse_budgets(budget or (), of_table=table is not None)
        if table is not None:
            of_logs = {"--group": group, "--framework": framework, "--config": config, "--set": settings}
            of_logs |= {"--alias": alias, "--steps": steps, "--rules": rules, "--select": select, "--ignore": ignore}
            refuse_given(name for name, given in of_logs.items() if given)
            raise typer.Exit(gate_fleet(table, ours, reports, inputs, quiet=quiet))
        request = request_of(framework, config, settings, steps, select, ignore, debug, alias)
        judged, results, code = run_gate(sources, ours, request, group=group)
        report(judged, replace(options, gate_results=results), reports, inputs)
    except DoctorError as error:
        report_error(error, reports, inputs)
        raise
    if not any(name == "text" for name, _ in reports):
        from ppo_doctor.report.terminal import gate_text

        sys.stderr.write(gate_text(results))
    raise typer.Exit(code)
