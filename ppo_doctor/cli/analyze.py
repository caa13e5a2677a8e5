"""`ppo-doctor analyze`: read, judge, report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ppo_doctor.cli.application import app
from ppo_doctor.cli.options import (
    All,
    Configs,
    Debug,
    FailOn,
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
    known_names,
    request_of,
)
from ppo_doctor.errors import DoctorError, ExitCode, worst
from ppo_doctor.output import report, report_error, wanted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ppo_doctor.output import Wanted
    from ppo_doctor.pipeline import Request
    from ppo_doctor.report import RenderOptions


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

    places = wanted(formats, output)
    options = RenderOptions(why=why, all=all_checks, quiet=quiet, color=False if no_color else None)
    try:
        check_fail_on(fail_on)
        request = request_of(framework, config, settings, steps, select, ignore, debug)
        code = _analyze(sources, request, rules or [], places, options, fail_on)
    except DoctorError as error:
        report_error(error, places)
        raise
    raise typer.Exit(code)


def _analyze(
    sources: Sequence[str],
    request: Request,
    rules: Sequence[Path],
    places: Sequence[Wanted],
    options: RenderOptions,
    fail_on: str,
) -> ExitCode:
    from ppo_doctor.judgement import exit_code
    from ppo_doctor.judging import judge_all
    from ppo_doctor.rulepack import load_pack
    from ppo_doctor.sources import gather

    pack = load_pack(rules)
    known_names(pack, [*request.select, *request.ignore])
    runs, missing = gather(sources)
    if not runs and len(missing) == 1:
        raise missing[0]
    judged, codes = judge_all(runs, missing, request, pack)
    report(judged, options, places, many=len(judged) > 1 or bool(codes))
    return worst(codes + [exit_code(diagnosis, fail_on) for _, diagnosis in judged])
