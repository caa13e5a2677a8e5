"""The command line: parses options, calls the pipeline, prints a report, sets the exit code.

Everything but typer is imported inside the commands, so that `--help` costs no numpy.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ppo_doctor import __version__
from ppo_doctor.errors import DoctorError, ExitCode, worst
from ppo_doctor.output import complain as _complain
from ppo_doctor.output import report as _report
from ppo_doctor.output import report_error as _print_errors
from ppo_doctor.output import wanted as _wanted
from ppo_doctor.output import write as _write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.pipeline import Request
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.rulepack import Pack

app = typer.Typer(
    name="ppo-doctor",
    help="Reads what a PPO run left behind and says what is wrong, how it knows, and what to do first.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich would triple the start-up of --help
)
rules_app = typer.Typer(help="List and test rules.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(rules_app, name="rules")

Sources = Annotated[list[str], typer.Argument(help="A log, a run folder, a glob, a configuration, or - for stdin.")]
FORMATS_HELP = "text, json, html, markdown, sarif, junit, github; also FORMAT=FILE. Repeatable."
Formats = Annotated[list[str] | None, typer.Option("--format", "-f", help=FORMATS_HELP)]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to this file.")]
FailOn = Annotated[str, typer.Option(help="Exit with 1 for a leading cause of: critical, high, medium, low, never.")]
Framework = Annotated[str | None, typer.Option(help="The framework that wrote the log, when detection errs.")]
Configs = Annotated[list[Path] | None, typer.Option("--config", help="The training run's configuration.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE that the log lacks: ppo_epochs=4.")]
Steps = Annotated[str | None, typer.Option(help="Judge only steps A:B.")]
RuleFolders = Annotated[list[Path] | None, typer.Option("--rules", help="A further rule pack. Repeatable.")]
Select = Annotated[list[str] | None, typer.Option(help="Only these rules. Repeatable.")]
Ignore = Annotated[list[str] | None, typer.Option(help="Not these rules. Repeatable.")]
Why = Annotated[bool, typer.Option("--why", help="Print each cause's full account.")]
All = Annotated[bool, typer.Option("--all", help="List clear and skipped checks too.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the verdict and the causes.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colour, as with NO_COLOR.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of a bug.")]


def run() -> int:
    """Run the command line and return the exit code; only here do errors become messages."""
    try:
        app(standalone_mode=True)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    except DoctorError as error:
        _complain(error)
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


def _version(value: bool) -> None:
    if value:
        sys.stdout.write(f"ppo-doctor {__version__}\n")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    del version


@app.command()
def analyze(
    sources: Sources,
    formats: Formats = None,
    output: Output = None,
    fail_on: FailOn = "never",
    framework: Framework = None,
    config: Configs = None,
    settings: Settings = None,
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
    """Diagnose training runs."""
    from ppo_doctor.report import RenderOptions

    wanted = _wanted(formats, output)
    options = RenderOptions(why=why, all=all_checks, quiet=quiet, color=False if no_color else None)
    try:
        _check_fail_on(fail_on)
        request = _request(framework, config, settings, steps, select, ignore, debug)
        code = _analyze(sources, request, rules or [], wanted, options, fail_on)
    except DoctorError as error:
        _print_errors(error, wanted)
        raise
    raise typer.Exit(code)


def _analyze(
    sources: Sequence[str],
    request: Request,
    rules: Sequence[Path],
    wanted: Sequence[tuple[str, Path | None]],
    options: RenderOptions,
    fail_on: str,
) -> ExitCode:
    from ppo_doctor.judgement import exit_code
    from ppo_doctor.judging import judge_all
    from ppo_doctor.rulepack import load_pack
    from ppo_doctor.sources import gather

    pack = load_pack(rules)
    _known_names(pack, [*request.select, *request.ignore])
    runs, missing = gather(sources)
    if not runs and len(missing) == 1:
        raise missing[0]
    judged, codes = judge_all(runs, missing, request, pack)
    _report(judged, options, wanted, many=len(judged) > 1 or bool(codes))
    return worst(codes + [exit_code(diagnosis, fail_on) for _, diagnosis in judged])


def _check_fail_on(fail_on: str) -> None:
    from ppo_doctor.judgement import FAIL_ON

    if fail_on not in FAIL_ON:
        raise DoctorError(f"--fail-on {fail_on}: no such severity", hint=", ".join(FAIL_ON), code=ExitCode.USAGE)


def _request(
    framework: str | None,
    config: Sequence[Path] | None,
    settings: Sequence[str] | None,
    steps: str | None,
    select: Sequence[str] | None,
    ignore: Sequence[str] | None,
    debug: bool,
) -> Request:
    from ppo_doctor.configuration import parse_setting
    from ppo_doctor.pipeline import Request

    return Request(
        settings=dict(parse_setting(text) for text in settings or ()),
        configs=tuple(config or ()),
        framework=framework,
        steps=_steps(steps),
        select=tuple(select or ()),
        ignore=tuple(ignore or ()),
        debug=debug,
    )


def _steps(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    match = re.fullmatch(r"(-?\d*):(-?\d*)", text)
    if match is None:
        raise DoctorError(f"--steps {text}: expected A:B", hint="for example 100:500", code=ExitCode.USAGE)
    low, high = match.groups()
    return int(low) if low else None, int(high) if high else None


def _known_names(pack: Pack, names: Sequence[str]) -> None:
    from difflib import get_close_matches

    for name in names:
        if pack.rule(name) is None:
            near = get_close_matches(name, [rule.name for rule in pack.rules], n=1)
            hint = f"did you mean {near[0]}?" if near else "ppo-doctor rules list shows all"
            raise DoctorError(f"no rule '{name}'", hint=hint, code=ExitCode.USAGE)


@app.command()
def gate(
    sources: Sources,
    policy: Annotated[Path | None, typer.Option(help="The policy; else the nearest ppo-doctor.toml.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="A JSON report; only new or worse causes fail.")] = None,
    group: Annotated[bool, typer.Option("--group", help="Judge seeds of one configuration together.")] = False,
    formats: Formats = None,
    output: Output = None,
    fail_on: Annotated[str | None, typer.Option(help="As in analyze; high unless the policy says otherwise.")] = None,
    framework: Framework = None,
    config: Configs = None,
    settings: Settings = None,
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

    wanted = _wanted(formats or _usual_formats(output), output)
    options = RenderOptions(why=why, all=all_checks, quiet=quiet, color=False if no_color else None)
    try:
        if fail_on is not None:
            _check_fail_on(fail_on)
        ours = policy_for(policy, fail_on=fail_on, baseline=baseline, rules=rules or ())
        request = _request(framework, config, settings, steps, select, ignore, debug)
        code = run_gate(sources, ours, request, options, wanted, group=group)
    except DoctorError as error:
        _print_errors(error, wanted)
        raise
    raise typer.Exit(code)


@app.command()
def compare(
    sources: Annotated[list[str], typer.Argument(help="Two runs or JSON reports; with --group any number of runs.")],
    group: Annotated[bool, typer.Option("--group", help="Take seeds of one configuration together.")] = False,
    format: Annotated[str, typer.Option("--format", "-f", help="text or json.")] = "text",
    output: Output = None,
    framework: Framework = None,
    steps: Steps = None,
    rules: RuleFolders = None,
    everything: All = False,
    debug: Debug = False,
) -> None:
    """Put two runs side by side: settings that differ, metrics that part, and what may explain it."""
    from ppo_doctor.ci import run_compare
    from ppo_doctor.report.comparison import as_json, text

    if format not in ("text", "json"):
        raise DoctorError(f"no format '{format}' for a comparison", hint="text or json", code=ExitCode.USAGE)
    request = _request(framework, None, None, steps, None, None, debug)
    found = run_compare(sources, request, rules or (), group=group)
    _write(as_json(found) if format == "json" else text(found, everything=everything), output)


@app.command("check-config")
def check_config(
    files: Annotated[list[Path], typer.Argument(help="Training configurations: YAML, JSON or TOML.")],
    framework: Framework = None,
    fail_on: Annotated[str, typer.Option(help="Exit with 1 for a finding of: critical, high, medium, low.")] = "medium",
    rules: RuleFolders = None,
) -> None:
    """Check training configurations before a run, by the rules that need no log; for pre-commit."""
    from ppo_doctor.config_check import check_config as check
    from ppo_doctor.config_check import worst_code
    from ppo_doctor.rulepack import load_pack

    _check_fail_on(fail_on)
    pack = load_pack(rules or [])
    checked = [check(path, pack, framework) for path in files]
    from ppo_doctor.report.escape import prose

    _write("".join(f"{prose(line)}\n" for entry in checked for line in entry.lines()), None)
    raise typer.Exit(worst_code(checked, fail_on))


def _usual_formats(output: Path | None) -> list[str]:
    """Return a gate's formats when none is named: under GitHub Actions with annotations between the lines."""
    return ["text", "github"] if os.environ.get("GITHUB_ACTIONS") == "true" and output is None else ["text"]


@app.command()
def inspect(
    source: Annotated[str, typer.Argument(help="A log, a run folder, or - for stdin.")],
    framework: Framework = None,
    config: Configs = None,
    settings: Settings = None,
    steps: Steps = None,
    rules: RuleFolders = None,
    all_keys: Annotated[bool, typer.Option("--all", help="Every key, default and note.")] = False,
    debug: Debug = False,
) -> None:
    """Show what was read: names, configuration, K, and which causes this log can decide."""
    from ppo_doctor.inspection import inspect as look
    from ppo_doctor.pipeline import read_runs
    from ppo_doctor.report.inspection_text import render
    from ppo_doctor.rulepack import load_pack
    from ppo_doctor.sources import gather

    request = _request(framework, config, settings, steps, None, None, debug)
    pack = load_pack(rules or [])
    found, missing = gather([source])
    if missing:
        raise missing[0]
    for run in read_runs(found[0].log, request):
        _write(render(look(run, pack), everything=all_keys), None)


@app.command()
def explain(name: Annotated[str, typer.Argument(help="A rule, its code, a cause, or a metric.")]) -> None:
    """Print the manual page of a rule, a cause or a metric."""
    from ppo_doctor.manual import page
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.manpage import show

    _write(show(page(name), RenderOptions()), None)


@rules_app.command("list")
def list_rules(rules: RuleFolders = None) -> None:
    """List every rule: code, name, severity, link and title."""
    from ppo_doctor.rulepack import load_pack

    pack = load_pack(rules or [])
    width = max(len(rule.name) for rule in pack.rules)
    for rule in sorted(pack.rules, key=lambda rule: rule.code):
        _write(f"{rule.code}  {rule.name:<{width}}  {rule.severity:<8}  {rule.link:<10}  {rule.title}\n", None)


@rules_app.command("test")
def test_rules(rules: RuleFolders = None) -> None:
    """Run the cases that rules carry."""
    from ppo_doctor.rulepack import load_pack, prose
    from ppo_doctor.testing import run_case

    results = [run_case(rule, case) for rule in load_pack(rules or []).rules for case in prose(rule.path)["case"]]
    failed = [result for result in results if result.problems]
    for result in failed:
        _write(f"{result.rule}: {result.case}: {'; '.join(result.problems)}\n", None)
    _write(f"{len(results)} cases, {len(failed)} failed\n", None)
    raise typer.Exit(ExitCode.SICK if failed else ExitCode.OK)


@rules_app.command("docs")
def generate_docs(
    folder: Annotated[Path, typer.Option("--out", help="The docs folder.")] = Path("docs"),
    check: Annotated[
        bool, typer.Option("--check", help="Only tell which pages are stale; exit with 1 if any.")
    ] = False,
) -> None:
    """Write the pages of rules, causes and frameworks."""
    from ppo_doctor.docs import stale, write

    names = stale(folder) if check else write(folder)
    _write("".join(f"{'stale' if check else 'written'}: {name}\n" for name in names), None)
    raise typer.Exit(ExitCode.SICK if check and names else ExitCode.OK)


@app.command()
def frameworks() -> None:
    """List the frameworks whose logs we know, with the keys that give them away."""
    from ppo_doctor.frameworks import profiles

    for profile in sorted(profiles().values(), key=lambda profile: profile.name):
        prints = "; ".join(" + ".join(group) for group in profile.any_of)
        _write(f"{profile.name:<16}  {profile.title}\n{'':<16}  {prints}\n", None)
