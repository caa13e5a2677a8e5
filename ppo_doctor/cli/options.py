"""Options that commands share, and how their words become a `Request`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ppo_doctor.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.output import Wanted
    from ppo_doctor.pipeline import Request
    from ppo_doctor.rulepack import Pack

Sources = Annotated[list[str], typer.Argument(help="A log, a run folder, a glob, a configuration, or - for stdin.")]
FORMATS_HELP = "text, json, html, markdown, sarif, junit, github; also FORMAT=FILE. Repeatable."
Formats = Annotated[list[str] | None, typer.Option("--format", "-f", help=FORMATS_HELP)]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to this file.")]
FailOn = Annotated[str, typer.Option(help="Exit with 1 for a leading cause of: critical, high, medium, low, never.")]
Framework = Annotated[str | None, typer.Option(help="The framework that wrote the log, when detection errs.")]
Configs = Annotated[list[Path] | None, typer.Option("--config", help="The training run's configuration.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE that the log lacks: ppo_epochs=4.")]
Names = Annotated[list[str] | None, typer.Option("--map", help="ROLE=NAME of a tensor: old_log_prob=frozen.lp.")]
Steps = Annotated[str | None, typer.Option(help="Judge only steps A:B.")]
RuleFolders = Annotated[list[Path] | None, typer.Option("--rules", help="A further rule pack. Repeatable.")]
Select = Annotated[list[str] | None, typer.Option(help="Only these rules. Repeatable.")]
Ignore = Annotated[list[str] | None, typer.Option(help="Not these rules. Repeatable.")]
Why = Annotated[bool, typer.Option("--why", help="Print each cause's full account.")]
All = Annotated[bool, typer.Option("--all", help="List clear and skipped checks too.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the verdict and the causes.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colour, as with NO_COLOR.")]
Interactive = Annotated[bool, typer.Option("--interactive", "-i", help="Walk through the diagnosis in the terminal.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes for many runs. Default: by the amount of work.")]
Together = Annotated[bool, typer.Option("--together", help="Everything named is one run.")]
Separate = Annotated[bool, typer.Option("--separate", help="Every file is a run of its own.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of a bug.")]


def keep_inputs(
    places: Sequence[Wanted], sources: Sequence[str], files: Sequence[Path | None], rules: Sequence[Path]
) -> None:
    """Refuse to write where an input lies that is named here, before anything is read or written.

    Raises:
        DoctorError: a report would replace an input (exit code 2).
    """
    from ppo_doctor import inputs
    from ppo_doctor.sources import named

    inputs.add(files)
    for path in {path for _, path in places if path is not None and os.path.isfile(path)}:  # noqa: PTH113 - any length
        inputs.add(named(sources, path))
        inputs.add(file for folder in rules for file in folder.rglob("*.toml"))
        inputs.refuse(path)


def check_fail_on(fail_on: str) -> None:
    """Refuse a severity that does not exist."""
    from ppo_doctor.judgement import FAIL_ON

    if fail_on not in FAIL_ON:
        raise DoctorError(f"--fail-on {fail_on}: no such severity", hint=", ".join(FAIL_ON), code=ExitCode.USAGE)


def request_of(
    framework: str | None,
    config: Sequence[Path] | None,
    settings: Sequence[str] | None,
    steps: str | None,
    select: Sequence[str] | None,
    ignore: Sequence[str] | None,
    debug: bool,
) -> Request:
    """Return how to read and judge, from the options that commands share."""
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


def known_names(pack: Pack, names: Sequence[str]) -> None:
    """Refuse the name of a rule that does not exist, with a near miss."""
    from difflib import get_close_matches

    for name in names:
        if pack.rule(name) is None:
            near = get_close_matches(name, [rule.name for rule in pack.rules], n=1)
            hint = f"did you mean {near[0]}?" if near else "ppo-doctor rules list shows all"
            raise DoctorError(f"no rule '{name}'", hint=hint, code=ExitCode.USAGE)
