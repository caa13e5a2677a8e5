"""Where reports go: which formats were asked for, files written whole, and what GitHub's runner reads beside them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ppo_doctor.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import Diagnosis, Run
    from ppo_doctor.report import RenderOptions

#: (format, file or None for stdout)
Wanted: TypeAlias = "tuple[str, Path | None]"
#: Formats in which an error is a document too, so that whoever reads the file finds out.
ERROR_FORMATS = ("json", "sarif", "junit", "github")


def wanted(formats: Sequence[str] | None, output: Path | None) -> list[Wanted]:
    """Return (format, file or None for stdout); `-o` belongs to the format that names no file.

    Raises:
        DoctorError: an unknown format, or two for one place (exit code 2).
    """
    ours = [_one(text, output) for text in formats or ["text"]]
    # GitHub's annotations go between the lines of a job's log; nothing else can share a place.
    places = [path for name, path in ours if (name, path) != ("github", None) or ("text", None) not in ours]
    if len(set(places)) < len(places):
        hint = "name a file for each: --format json=report.json --format text"
        raise DoctorError("several formats for one place", hint=hint, code=ExitCode.USAGE)
    return ours


def _one(text: str, output: Path | None) -> Wanted:
    from ppo_doctor.report import FORMATS

    name, equals, file = text.partition("=")
    if name not in FORMATS:
        raise DoctorError(f"no format '{name}'", hint=f"known: {', '.join(FORMATS)}", code=ExitCode.USAGE)
    if equals and not file:
        raise DoctorError(f"--format {text}: no file named", hint=f"--format {name}=FILE", code=ExitCode.USAGE)
    return name, Path(file) if equals else output


def report(
    judged: Sequence[tuple[Run, Diagnosis]], options: RenderOptions, places: Sequence[Wanted], *, many: bool
) -> None:
    """Write every report that was asked for, and GitHub's page for the job when it runs one."""
    for name, path in places:
        text = rendered(judged, options, name, many=many)
        if name == "text" and path is None and ("github", None) in places:
            text = _guarded(text)
        write(text, path)
    if any(name == "github" for name, _ in places):
        _job_summary(judged, options)


def rendered(judged: Sequence[tuple[Run, Diagnosis]], options: RenderOptions, name: str, *, many: bool) -> str:
    """Return a report in one format; in a gate the text ends with what was ruled."""
    from ppo_doctor.report import render, render_many

    if many:
        text = render_many([diagnosis for _, diagnosis in judged], options, name, [run for run, _ in judged])
    else:
        run, diagnosis = judged[0]
        text = render(diagnosis, run, options, name)
    if name == "text" and options.rulings:
        from ppo_doctor.report.gate_lines import text as gate_text

        text += "\n" + gate_text(options.rulings)
    return text


def _guarded(text: str) -> str:
    import secrets

    from ppo_doctor.report.github import guarded

    return guarded(text, secrets.token_hex(16))


def _job_summary(judged: Sequence[tuple[Run, Diagnosis]], options: RenderOptions) -> None:
    """Append to the page of the job; a page that cannot be written changes no verdict and is told."""
    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if not place:
        return
    from ppo_doctor.report.github import summary

    try:
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(summary([diagnosis for _, diagnosis in judged], options))
    except OSError as error:
        sys.stderr.write(f"ppo-doctor: no job summary: {error.strerror}\n")


def report_error(error: DoctorError, places: Sequence[Wanted]) -> None:
    """Write an error in each format that has a form for it; the message on stderr is the caller's."""
    from ppo_doctor.report import render_error

    for name, path in places:
        if name in ERROR_FORMATS:
            write(render_error(error.message, error.hint, error.code, name), path)


def complain(error: DoctorError) -> None:
    """Print an error on stderr: what happened, and what to do."""
    from ppo_doctor.report.escape import plain

    sys.stderr.write(f"ppo-doctor: {plain(error.message)}\n")
    if error.hint:
        sys.stderr.write(f"  {plain(error.hint)}\n")


def write(text: str, path: Path | None) -> None:
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
