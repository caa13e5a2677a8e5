"""The commands of CI: `gate`, `compare` and `check-config`."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from ppo_doctor.cli.application import app
from ppo_doctor.cli.options import (
    Aliases,
    All,
    Configs,
    Debug,
    Formats,
    Framework,
    Ignore,
    NoColor,
    Output,
    Quiet,
    RuleFolders,
    Select,
    Settings,
    Sources,
    Steps,
    Why,
    check_fail_on,
    complete_severity,
    keep_inputs,
    request_of,
)
from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.output import report_error, wanted, write

GATE_FAIL_ON = "As in analyze; high unless the policy says otherwise."
#: Formats of a comparison → the module of reports, and the function, that writes it.
COMPARED = {"text": "comparison:text", "json": "comparison:as_json", "html": "comparison_html:page"}
CHECK_FAIL_ON = "Exit with 1 for a finding of: critical, high, medium, low."


@app.command()
def gate(
    sources: Sources,
    policy: Annotated[Path | None, typer.Option(help="The policy; else the nearest ppo-doctor.toml.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="A JSON report; only new or worse causes fail.")] = None,
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
    """Judge training runs for CI, by a policy and a baseline; exit with 1 for what the policy forbids."""
    from ppo_doctor.ci import run_gate
    from ppo_doctor.gating import policy_for
    from ppo_doctor.report import RenderOptions

    places = wanted(formats or _usual_formats(output), output)
    keep_inputs(places, sources, [policy, baseline, *(config or ())], rules or [])
    options = RenderOptions(why=why, all=all_checks, quiet=quiet, color=False if no_color else None)
    try:
        if fail_on is not None:
            check_fail_on(fail_on)
        ours = policy_for(policy, fail_on=fail_on, baseline=baseline, rules=rules or ())
        request = request_of(framework, config, settings, steps, select, ignore, debug, alias)
        code = run_gate(sources, ours, request, options, places, group=group)
    except DoctorError as error:
        report_error(error, places)
        raise
    raise typer.Exit(code)


@app.command()
def compare(
    sources: Annotated[list[str], typer.Argument(help="Two runs or JSON reports; with --group any number of runs.")],
    group: Annotated[bool, typer.Option("--group", help="Take seeds of one configuration together.")] = False,
    format: Annotated[
        str, typer.Option("--format", "-f", help="text, json or html.", autocompletion=lambda: [*COMPARED])
    ] = "text",
    output: Output = None,
    framework: Framework = None,
    alias: Aliases = None,
    steps: Steps = None,
    rules: RuleFolders = None,
    everything: All = False,
    no_color: NoColor = False,
    debug: Debug = False,
) -> None:
    """Put two runs side by side: reward, which metrics part and when, settings that differ, and what is wrong."""
    from ppo_doctor.ci import run_compare
    from ppo_doctor.report import RenderOptions

    if format not in COMPARED:
        raise DoctorError(f"no format '{format}' for a comparison", hint=", ".join(COMPARED), code=ExitCode.USAGE)
    keep_inputs([(format, output)], sources, (), rules or [])
    try:
        request = request_of(framework, None, None, steps, None, None, debug, alias)
        found = run_compare(sources, request, rules or (), group=group)
    except DoctorError as error:
        report_error(error, [(format, output)])
        raise
    module, _, function = COMPARED[format].partition(":")
    options = RenderOptions(all=everything, color=False if no_color or output is not None else None)
    write(getattr(import_module(f"ppo_doctor.report.{module}"), function)(found, options), output, format)


@app.command("check-config")
def check_config(
    files: Annotated[list[Path], typer.Argument(help="Training configurations: YAML, JSON or TOML.")],
    framework: Framework = None,
    fail_on: Annotated[str, typer.Option(help=CHECK_FAIL_ON, autocompletion=complete_severity)] = "medium",
    rules: RuleFolders = None,
) -> None:
    """Check training configurations before a run, by the rules that need no log; for pre-commit."""
    from ppo_doctor.config_check import check_config as check
    from ppo_doctor.config_check import worst_code
    from ppo_doctor.rulepack import load_pack

    check_fail_on(fail_on)
    pack = load_pack(rules or [])
    checked = [check(path, pack, framework) for path in files]
    from ppo_doctor.report.escape import prose

    write("".join(f"{prose(line)}\n" for entry in checked for line in entry.lines()), None)
    raise typer.Exit(worst_code(checked, fail_on))


def _usual_formats(output: Path | None) -> list[str]:
    """Return a gate's formats when none is named: under GitHub Actions with annotations between the lines."""
    return ["text", "github"] if os.environ.get("GITHUB_ACTIONS") == "true" and output is None else ["text"]
