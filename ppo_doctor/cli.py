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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import Diagnosis, Run
    from ppo_doctor.pipeline import Request
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.rulepack import Pack
    from ppo_doctor.sources import RunSource

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
Formats = Annotated[
    list[str] | None, typer.Option("--format", "-f", help="text or json; also FORMAT=FILE. Repeatable.")
]
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


def _complain(error: DoctorError) -> None:
    from ppo_doctor.report.escape import plain

    sys.stderr.write(f"ppo-doctor: {plain(error.message)}\n")
    if error.hint:
        sys.stderr.write(f"  {plain(error.hint)}\n")


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
    from ppo_doctor.rulepack import load_pack
    from ppo_doctor.sources import gather

    pack = load_pack(rules)
    _known_names(pack, [*request.select, *request.ignore])
    runs, missing = gather(sources)
    if not runs and len(missing) == 1:
        raise missing[0]
    judged, codes = _judge_all(runs, missing, request, pack)
    diagnoses = [diagnosis for _, diagnosis in judged]
    if len(judged) == 1 and not codes:
        _report(diagnoses[0], judged[0][0], options, wanted)
        return exit_code(diagnoses[0], fail_on)
    _report_many(diagnoses, options, wanted)
    return worst(codes + [exit_code(diagnosis, fail_on) for diagnosis in diagnoses])


def _judge(source: RunSource, request: Request, pack: Pack) -> list[tuple[Run, Diagnosis]]:
    from dataclasses import replace

    from ppo_doctor.pipeline import diagnose, read_runs

    request = replace(request, configs=(*request.configs, *source.config))
    return [(run, diagnose(run, pack, request)) for run in read_runs(source.log, request)]


def _judge_all(
    runs: Sequence[RunSource], missing: Sequence[DoctorError], request: Request, pack: Pack
) -> tuple[list[tuple[Run, Diagnosis]], list[ExitCode]]:
    """Judge every run; of several logs one that cannot be read is named on stderr and counts with its exit code."""
    judged: list[tuple[Run, Diagnosis]] = []
    codes = [error.code for error in missing]
    for error in missing:
        _complain(error)
    for source in runs:
        try:
            judged += _judge(source, request, pack)
        except DoctorError as error:
            if len(runs) == 1 and not missing:
                raise
            _complain(error)
            codes.append(error.code)
    if not judged:
        raise DoctorError("none of the runs could be judged", code=worst(codes))
    return judged, codes


def _report(diagnosis: Diagnosis, run: Run, options: RenderOptions, wanted: Sequence[tuple[str, Path | None]]) -> None:
    from ppo_doctor.report import render

    for name, path in wanted:
        _write(render(diagnosis, run, options, name), path)


def _report_many(
    diagnoses: Sequence[Diagnosis], options: RenderOptions, wanted: Sequence[tuple[str, Path | None]]
) -> None:
    from ppo_doctor.report import render_many

    for name, path in wanted:
        _write(render_many(diagnoses, options, name), path)


def _print_errors(error: DoctorError, wanted: Sequence[tuple[str, Path | None]]) -> None:
    from ppo_doctor.report import render_error

    for name, path in wanted:
        if name == "json":
            _write(render_error(error.message, error.hint, error.code, name), path)


def _write(text: str, path: Path | None) -> None:
    """Write a report to a file, whole or not at all, or to stdout; a reader of stdout that left changes no verdict."""
    if path is None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise DoctorError(f"{path}: cannot write: {error.strerror}", code=ExitCode.USAGE) from error


def _wanted(formats: Sequence[str] | None, output: Path | None) -> list[tuple[str, Path | None]]:
    """Return (format, file or None for stdout); `-o` belongs to the format that names no file.

    Raises:
        DoctorError: an unknown format (exit code 2).
    """
    from ppo_doctor.report import FORMATS

    wanted: list[tuple[str, Path | None]] = []
    for text in formats or ["text"]:
        name, equals, file = text.partition("=")
        if name not in FORMATS:
            raise DoctorError(f"no format '{name}'", hint=f"known: {', '.join(FORMATS)}", code=ExitCode.USAGE)
        if equals and not file:
            raise DoctorError(f"--format {text}: no file named", hint=f"--format {name}=FILE", code=ExitCode.USAGE)
        wanted.append((name, Path(file) if equals else output))
    places = [path for _, path in wanted]
    if len(set(places)) < len(places):
        hint = "name a file for each: --format json=report.json --format text"
        raise DoctorError("several formats for one place", hint=hint, code=ExitCode.USAGE)
    return wanted


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
