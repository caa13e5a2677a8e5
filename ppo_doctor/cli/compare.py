"""The command `compare`: compare two runs, reports or groups of seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ppo_doctor.cli.application import app
from ppo_doctor.cli.options import (
    Aliases,
    All,
    Debug,
    Framework,
    NoColor,
    Output,
    RuleFolders,
    Steps,
    gather_runs,
    load_rules,
    refuse_inputs,
    request_of,
)
from ppo_doctor.cli.output import report_error, write
from ppo_doctor.model.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.request import Request
    from ppo_doctor.model.run import Run
    from ppo_doctor.report.compare import Comparison, Side

#: Formats of a comparison → the function of `report.comparison` that writes it.
COMPARED = {"text": "as_text", "json": "as_json", "html": "as_html"}


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
    """Put two runs side by side: reward, metrics that part and when, settings that differ."""
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report import comparison as renderers

    if format not in COMPARED:
        raise DoctorError(f"no format '{format}' for a comparison", hint=", ".join(COMPARED), code=ExitCode.USAGE)
    reports = [(format, output)]
    refuse_inputs(reports, sources, (), rules or [])
    try:
        request = request_of(framework, None, None, steps, None, None, debug, alias)
        comparison = compare_sources(sources, request, rules or (), group=group)
    except DoctorError as error:
        report_error(error, reports)
        raise
    options = RenderOptions(all=everything, color=False if no_color or output is not None else None)
    write(getattr(renderers, COMPARED[format])(comparison, options), output, format)


def compare_sources(sources: Sequence[str], request: Request, rules: Sequence[Path], *, group: bool) -> Comparison:
    """Compare two runs, reports or, with `group`, the seeds of two configurations.

    Raises:
        DoctorError: there are not two sides (exit code 2), or nothing to judge.
    """
    from ppo_doctor.report.compare import compare

    sides = [*_sides(sources, request, rules, group=group)]
    if len(sides) != 2:
        kind = "configurations" if group else "runs"
        hint = "name two runs or reports; several seeds of two configurations with --group"
        raise DoctorError(f"compare needs two {kind}, not {len(sides)}", hint=hint, code=ExitCode.USAGE)
    return compare(*sides)


def _sides(sources: Sequence[str], request: Request, rules: Sequence[Path], *, group: bool) -> list[Side]:
    from ppo_doctor.cli.policy import read_report
    from ppo_doctor.diagnosis.analyze import diagnose, runs_of
    from ppo_doctor.diagnosis.divergence import grouped
    from ppo_doctor.report.compare import side_of, side_of_report

    pack = load_rules(rules, request)
    sides: list[Side] = []
    judged: list[tuple[Run, Diagnosis]] = []
    for text in sources:
        if _is_report(Path(text)):
            sides.append(side_of_report(read_report(Path(text))))
            continue
        runs, missing = gather_runs([text])
        if missing:
            raise missing[0]
        judged += [(run, diagnose(run, pack, request)) for source in runs for run in runs_of(source, request)]
        if not group:
            sides += [side_of([pair]) for pair in judged]
            judged = []
    return sides + [side_of(pairs) for pairs in grouped(judged)]


def _is_report(path: Path) -> bool:
    """Recognise a report of ours by its first bytes; a log of training has no `schema_version`."""
    from ppo_doctor.model.opening import plain_file

    if path.suffix != ".json" or not path.is_file():
        return False
    with plain_file(path) as file:
        return b'"schema_version"' in file.read(200)
