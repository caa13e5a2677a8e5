"""Options that commands share, and what commands make of them: a `Request`, rules and runs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ppo_doctor.model.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.cli.output import Place
    from ppo_doctor.model.request import Request
    from ppo_doctor.model.run import Run
    from ppo_doctor.runs.layouts import RunSource


def refuse_inputs(
    reports: Sequence[Place], sources: Sequence[str], files: Sequence[Path | None], rules: Sequence[Path]
) -> None:
    """Refuse to write over an input, before anything is read or written.

    Inputs are the files that options name, configurations next to a log, and the nearest policy.

    Raises:
        DoctorError: a report would replace an input (exit code 2).
    """
    from ppo_doctor.cli.output import refuse_input

    for path in {path for _, path in reports if path is not None and os.path.isfile(path)}:  # noqa: PTH113 - any length
        from ppo_doctor.cli.policy import nearest_file
        from ppo_doctor.runs.discover import named

        of_rules = (file for folder in rules for file in folder.rglob("*.toml"))
        refuse_input(path, [*named(sources, path), *files, nearest_file(Path()), *of_rules])


def check_fail_on(fail_on: str) -> None:
    """Refuse a severity that does not exist.

    Raises:
        DoctorError: it is none of `FAIL_ON` (exit code 2).
    """
    from ppo_doctor.diagnosis.gate_result import FAIL_ON

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
    alias: Sequence[str] | None = None,
) -> Request:
    """Return the request that common options and the aliases of the project make."""
    from ppo_doctor.cli.policy import project_aliases
    from ppo_doctor.model.request import Request
    from ppo_doctor.trainers.aliases import parse_alias
    from ppo_doctor.trainers.configuration import parse_setting

    return Request(
        settings=dict(parse_setting(text) for text in settings or ()),
        configs=tuple(config or ()),
        framework=framework,
        steps=_steps(steps),
        select=tuple(select or ()),
        ignore=tuple(ignore or ()),
        debug=debug,
        aliases=dict(parse_alias(text) for text in alias or ()),
        project_aliases=project_aliases(Path()),
    )


def load_rules(folders: Sequence[Path] | None, request: Request) -> Pack:
    """Load the built-in rules and those of some folders, and check the names that a request selects or ignores.

    Raises:
        DoctorError: a folder cannot be loaded, or a rule does not exist (exit code 2).
    """
    from ppo_doctor.checks.rulepack import load_pack
    from ppo_doctor.cli.policy import known_rules

    pack = load_pack(folders or [])
    known_rules(pack, (*request.select, *request.ignore))
    return pack


def gather_runs(
    sources: Sequence[str], *, together: bool = False, separate: bool = False
) -> tuple[list[RunSource], list[DoctorError]]:
    """Return the runs that sources name, and an error for each source that is missing.

    What is behind a URL is fetched, and kept until the command ends.

    Raises:
        DoctorError: the only source is missing.
    """
    from ppo_doctor.model.opening import is_url
    from ppo_doctor.runs.discover import gather

    urls = list(filter(is_url, sources))
    fetched, absent = _fetched(urls) if urls else ([], [])
    files = [source for source in sources if source not in urls]
    runs, missing = gather(files, fetched=fetched, together=together, separate=separate)
    missing += absent
    if not runs and len(missing) == 1:
        raise missing[0]
    return runs, missing


@dataclass(frozen=True, slots=True)
class Read:
    """The runs in some files and folders, and why others could not be read."""

    runs: list[Run]
    failed: list[DoctorError]

    def name(self, run: Run) -> str:
        """Return the name of a run: its path below the folder that all runs share, if there are several."""
        from ppo_doctor.report.escape import plain

        if len(self.runs) == 1:
            return plain(run.id)
        shared = os.path.commonprefix([each.id for each in self.runs])
        return plain(run.id[shared.rfind("/") + 1 :])


def read_runs(sources: Sequence[str], request: Request) -> Read:
    """Return the runs that sources name; one that cannot be read does not hide the others.

    Raises:
        DoctorError: there is none that can be read, or a configuration is among several logs.
    """
    from ppo_doctor.diagnosis.analyze import runs_of

    found, failed = gather_runs(sources)
    runs: list[Run] = []
    for source in found:
        try:
            runs += runs_of(source, request)
        except DoctorError as error:
            failed.append(error)
    if not runs:
        raise failed[0] if failed else DoctorError(f"{sources[0]}: no run is there")
    return Read(runs, failed)


def _fetched(urls: Sequence[str]) -> tuple[list[RunSource], list[DoctorError]]:
    """Fetch what is behind some URLs; return its sources, and an error for each URL without any."""
    from ppo_doctor.cli.application import resources
    from ppo_doctor.cli.judge import progress
    from ppo_doctor.fleets.remote import opened

    found: list[RunSource] = []
    errors: list[DoctorError] = []
    with progress(urls) as advance:
        for url in urls:
            try:
                found += resources.enter_context(opened(url))
            except DoctorError as error:
                errors.append(error)
            advance()
    return found, errors


def save_aliases(request: Request, runs: Sequence[RunSource]) -> None:
    """Write the aliases of the command line into the `ppo-doctor.toml` next to the log of each run.

    Raises:
        DoctorError: there are no aliases, the log is stdin, or the file cannot be written (exit code 2).
    """
    from ppo_doctor.trainers.aliases import save

    if not request.aliases:
        hint = "for example --alias G=episode_return --save-alias"
        raise DoctorError("--save-alias: no --alias to save", hint=hint, code=ExitCode.USAGE)
    logs = [run.log for run in runs]
    if "-" in logs or any(run.fetched for run in runs):
        what = "stdin" if "-" in logs else "what is behind a URL"
        raise DoctorError(f"--save-alias: {what} lies in no folder", hint="name a file", code=ExitCode.USAGE)
    for folder in dict.fromkeys(Path(log).parent for log in logs):
        save(folder, request.aliases)


def _steps(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    match = re.fullmatch(r"(-?\d*):(-?\d*)", text)
    if match is None:
        raise DoctorError(f"--steps {text}: expected A:B", hint="for example 100:500", code=ExitCode.USAGE)
    low, high = match.groups()
    return int(low) if low else None, int(high) if high else None


#: Unit of a duration → seconds.
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(option: str, text: str) -> float:
    """Return a duration such as 5s, 1.5m or 2h in seconds.

    Raises:
        DoctorError: it is none, has no unit, or is not greater than 0 (exit code 2).
    """
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h)", text.strip())
    duration = float(match[1]) * UNITS[match[2]] if match else 0.0
    if not 0 < duration < float("inf"):
        hint = "a number and its unit: 500ms, 5s, 10m, 2h"
        raise DoctorError(f"{option} {text}: no duration", hint=hint, code=ExitCode.USAGE)
    return duration


def complete_format(incomplete: str) -> list[str]:
    """Return the formats that begin with some text."""
    from ppo_doctor.report import FORMATS

    return [name for name in FORMATS if name.startswith(incomplete)]


def complete_severity(incomplete: str) -> list[str]:
    """Return the values of --fail-on that begin with some text."""
    from ppo_doctor.diagnosis.gate_result import FAIL_ON

    return [name for name in FAIL_ON if name.startswith(incomplete)]


def complete_framework(incomplete: str) -> list[str]:
    """Return the frameworks whose names begin with some text."""
    from ppo_doctor.trainers.detection import profiles

    return sorted(name for name in profiles() if name.startswith(incomplete))


def complete_alias(incomplete: str) -> list[str]:
    """Return NAME=METRIC for the metrics, settings and clocks that begin with the text after the `=`."""
    from ppo_doctor.trainers.aliases import targets

    name, equals, start = incomplete.rpartition("=")
    return [f"{name}={target}" for target in targets() if target.startswith(start)] if equals else []


def complete_rule(incomplete: str) -> list[str]:
    """Return the built-in rules whose names begin with some text."""
    from ppo_doctor.checks.rulepack import load_pack

    return sorted(rule.name for rule in load_pack().rules if rule.name.startswith(incomplete))


def complete_name(incomplete: str) -> list[str]:
    """Return the names of pages of `explain` that begin with some text."""
    from ppo_doctor.checks.rulepack import load_pack
    from ppo_doctor.cli.pages import entries

    return sorted(entry.name for entry in entries(load_pack()) if entry.name.startswith(incomplete))


Sources = Annotated[
    list[str], typer.Argument(help="A log, a run folder, a glob, a URL, a configuration, or - for stdin.")
]
FORMATS_HELP = "text, json, html, markdown, sarif, junit, github; also FORMAT=FILE. Repeatable."
Formats = Annotated[list[str] | None, typer.Option("--format", "-f", help=FORMATS_HELP, autocompletion=complete_format)]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to this file.")]
FAIL_ON_HELP = "Exit with 1 for a leading cause of: critical, high, medium, low, never."
FailOn = Annotated[str, typer.Option(help=FAIL_ON_HELP, autocompletion=complete_severity)]
FRAMEWORK_HELP = "The framework that wrote the log, when detection errs."
Framework = Annotated[str | None, typer.Option(help=FRAMEWORK_HELP, autocompletion=complete_framework)]
Configs = Annotated[list[Path] | None, typer.Option("--config", help="The training run's configuration.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE that the log lacks: ppo_epochs=4.")]
ALIAS_HELP = "NAME=METRIC: what a column or a setting is: G=episode_return. Repeatable."
Aliases = Annotated[list[str] | None, typer.Option("--alias", help=ALIAS_HELP, autocompletion=complete_alias)]
SaveAliases = Annotated[bool, typer.Option("--save-alias", help="Keep these names in ppo-doctor.toml beside the log.")]
Names = Annotated[list[str] | None, typer.Option("--map", help="ROLE=NAME of a tensor: old_log_prob=frozen.lp.")]
Steps = Annotated[str | None, typer.Option(help="Judge only steps A:B.")]
RuleFolders = Annotated[list[Path] | None, typer.Option("--rules", help="A folder of your own rules. Repeatable.")]
TARGET_HELP = "The return that is good enough: the report says whether it is reached."
TargetReturn = Annotated[float | None, typer.Option("--target-return", help=TARGET_HELP)]
Select = Annotated[list[str] | None, typer.Option(help="Only these rules. Repeatable.", autocompletion=complete_rule)]
Ignore = Annotated[list[str] | None, typer.Option(help="Not these rules. Repeatable.", autocompletion=complete_rule)]
Why = Annotated[bool, typer.Option("--why", help="Print all causes, each with its full account.")]
All = Annotated[bool, typer.Option("--all", help="List clear and skipped checks too.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only verdict, cause, first action and exit code.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colour, as with NO_COLOR.")]
Interactive = Annotated[bool, typer.Option("--interactive", "-i", help="Walk through the diagnosis in the terminal.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes for many runs. Default: by the amount of work.")]
Together = Annotated[bool, typer.Option("--together", help="Everything named is one run.")]
Separate = Annotated[bool, typer.Option("--separate", help="Every file is a run of its own.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of a bug.")]
PatchOption = Annotated[bool, typer.Option("--patch", help="Print the fix as a diff of the run's configuration.")]
Apply = Annotated[bool, typer.Option("--apply", help="Make the changes of the diff; a copy of each file is kept.")]
