"""The command `show`: the records, lines and answers that a finding rests on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ppo_doctor.cli.application import app
from ppo_doctor.cli.options import (
    Aliases,
    Configs,
    Debug,
    Framework,
    NoColor,
    Output,
    RuleFolders,
    Settings,
    Steps,
    load_rules,
    read_runs,
    refuse_inputs,
    request_of,
)
from ppo_doctor.cli.output import report_error, write
from ppo_doctor.model.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.diagnosis.evidence import Shown
    from ppo_doctor.model.request import Request

#: The formats of evidence.
FORMATS = ("text", "json")
FINDING_HELP = "A finding, a check, a cause, the beginning of one, or the number of a problem in the report."
SAMPLES_HELP = "A table of answers, or a folder with some; by default those beside the log. Repeatable."


@app.command()
def show(
    source: Annotated[str, typer.Argument(metavar="RUN", help="A log, a run folder, or - for stdin.")],
    finding: Annotated[str, typer.Argument(metavar="FINDING", help=FINDING_HELP)],
    format: Annotated[str, typer.Option("--format", "-f", help="text or json.")] = "text",
    output: Output = None,
    samples: Annotated[list[Path] | None, typer.Option("--samples", help=SAMPLES_HELP)] = None,
    framework: Framework = None,
    config: Configs = None,
    settings: Settings = None,
    alias: Aliases = None,
    steps: Steps = None,
    rules: RuleFolders = None,
    no_color: NoColor = False,
    debug: Debug = False,
) -> None:
    """Show what a finding rests on: numbers and bounds, records, lines of the log, answers."""
    from ppo_doctor.report import RenderOptions

    if format not in FORMATS:
        raise DoctorError(f"no format '{format}' for evidence", hint=", ".join(FORMATS), code=ExitCode.USAGE)
    refuse_inputs([(format, output)], [source], [*(config or ()), *(samples or ())], rules or [])
    try:
        request = request_of(framework, config, settings, steps, None, None, debug, alias)
        shown = evidence(source, finding, request, load_rules(rules, request), samples or ())
    except DoctorError as error:
        report_error(error, [(format, output)])
        raise
    from ppo_doctor.report.evidence import as_json, render

    options = RenderOptions(color=False if no_color or output is not None else None)
    write(as_json(shown) if format == "json" else render(shown, options), output, format)


def evidence(source: str, finding: str, request: Request, pack: Pack, samples: Sequence[Path] = ()) -> Shown:
    """Return the evidence behind a finding of the only run in a source.

    Raises:
        DoctorError: there are several runs (exit code 2) or none, or no such finding.
    """
    from ppo_doctor.diagnosis.analyze import diagnose
    from ppo_doctor.diagnosis.evidence import show as evidence_of

    read = read_runs([source], request)
    runs = read.runs
    if (number := len(runs) + len(read.failed)) != 1:
        hint = "name the file of one: " + ", ".join(run.id for run in runs[:5])
        raise DoctorError(f"{source} holds {number} runs, and evidence is of one", hint=hint, code=ExitCode.USAGE)
    return evidence_of(finding, runs[0], diagnose(runs[0], pack, request), samples=samples)
