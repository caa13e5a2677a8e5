"""Write reports: chosen formats, files written atomically and never over an input, and GitHub's job summary."""

from __future__ import annotations

import errno
import os
import stat
import sys
from codecs import lookup
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeAlias, TypeVar

from ppo_doctor.model.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.run import Run
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.summary import Summary

#: (format, file or None for stdout)
Place: TypeAlias = "tuple[str, Path | None]"
#: a diagnosis with its run, where a format draws it, and with its summary, where the text report of several runs has it
Judged: TypeAlias = "tuple[Run | None, Diagnosis, Summary | None]"
_T = TypeVar("_T")
#: Formats in which an error is also written as a document, for readers of the file.
ERROR_FORMATS = ("json", "sarif", "junit", "github")


def places(formats: Sequence[str] | None, output: Path | None, known: Sequence[str] = ()) -> list[Place]:
    """Return (format, file or None for stdout) of each report; `-o` is the file of formats that name none.

    `known` are the formats that there are, without it those of a diagnosis.

    Raises:
        DoctorError: an unknown format, or two for one place (exit code 2).
    """
    chosen = [_place(text, output, known) for text in formats or ["text"]]
    taken: dict[str, Path | None] = {}
    for name, path in chosen:
        # GitHub's annotations go between the lines of a job's log; nothing else can share a place.
        if (name, path) == ("github", None) and ("text", None) in chosen:
            continue
        where = "" if path is None else os.path.realpath(path)  # what a link leads to is what is replaced
        if where in taken:
            first = taken[where]
            both = "standard output" if path is None else f"{first}" if first == path else f"{first} and {path}"
            hint = "name a file for each: --format json=report.json --format text"
            raise DoctorError(f"several formats for one place: {both}", hint=hint, code=ExitCode.USAGE)
        taken[where] = path
    return chosen


def _place(text: str, output: Path | None, known: Sequence[str]) -> Place:
    from ppo_doctor.report import FORMATS

    name, equals, file = text.partition("=")
    if name not in (known or FORMATS):
        raise DoctorError(f"no format '{name}'", hint=f"known: {', '.join(known or FORMATS)}", code=ExitCode.USAGE)
    if equals and not file:
        raise DoctorError(f"--format {text}: no file named", hint=f"--format {name}=FILE", code=ExitCode.USAGE)
    return name, Path(file) if equals else output


def working_folder_exists() -> bool:
    """Return whether the working directory still exists."""
    try:
        os.getcwd()  # noqa: PTH109 - only to see whether it fails
    except OSError:
        return False
    return True


def files_of(run: Run) -> set[str]:
    """Return the files that a run was read from: its logs and dumps, and those of its settings and notes."""
    settings = {setting.source.path for setting in (*run.config.values(), *run.misspelt.values())}
    notes = {note.source.path for note in run.notes if note.source is not None}
    return {source.path for source in run.sources} | settings | notes


def refuse_input(target: Path, inputs: Iterable[str | Path | None]) -> None:
    """Refuse to write a report over an input; a link to an input counts as one.

    Raises:
        DoctorError: the target is one of the inputs, or the file that standard input comes from (exit code 2).
    """
    there = _stat(target)
    if there is None or not stat.S_ISREG(there.st_mode):
        return
    found = [status for path in inputs if path is not None and (status := _stat(path)) is not None]
    with suppress(OSError, ValueError, AttributeError):  # closed, or no file of the system's
        found.append(os.fstat(sys.stdin.fileno()))
    if any(os.path.samestat(status, there) for status in found):
        hint = "name another file for the report"
        raise DoctorError(f"{target} is an input, which a report would replace", hint=hint, code=ExitCode.USAGE)


def _stat(path: str | Path) -> os.stat_result | None:
    with suppress(OSError, ValueError):
        return Path(path).stat()
    return None


def report(
    judged: Iterable[tuple[Run, Diagnosis]],
    options: RenderOptions,
    places: Sequence[Place],
    inputs: set[str],
    *,
    many: Callable[[int], bool] = lambda runs: runs > 1,
) -> None:
    """Write every report, and GitHub's page for the job when it runs one.

    Of several runs each is written as soon as it is judged, if the format allows it, and not kept. `many` returns for
    the number of runs whether the report is one of several runs. The files of each run are added to `inputs`.
    """
    stream = iter(judged)
    first = list(islice(stream, 2))
    if many(len(first)):
        _write_each(chain(_emptied(first), stream), options, places, inputs)
        return
    for run, _ in first:
        inputs |= files_of(run)
    _write_whole([(*pair, None) for pair in first], options, places, inputs, many=False)


def _emptied(items: list[_T]) -> Iterator[_T]:
    while items:
        yield items.pop(0)


def _write_each(
    judged: Iterator[tuple[Run, Diagnosis]], options: RenderOptions, places: Sequence[Place], inputs: set[str]
) -> None:
    """Write several runs one by one if the format allows it, and the other formats at the end.

    For the latter, of each run only the parts that these formats need are kept.
    """
    from ppo_doctor.report import DRAWN, SUMMARIZED, flow_of
    from ppo_doctor.report.summary import summarize

    others = [place for place in places if flow_of(place[0]) is None]
    draws, summarized = (not {name for name, _ in others}.isdisjoint(names) for names in (DRAWN, SUMMARIZED))
    kept: list[Judged] = []
    with ExitStack() as stack:
        flows = [
            (stack.enter_context(writing(path, name, inputs)), flow)
            for name, path in places
            if (flow := flow_of(name)) is not None
        ]
        for put, flow in flows:
            put(flow.opening)
        for number, (run, diagnosis) in enumerate(judged):
            inputs |= files_of(run)
            for put, flow in flows:
                put(("," if number else "") + flow.element(diagnosis, options))
            if others:
                kept.append((run if draws else None, diagnosis, summarize(diagnosis, run) if summarized else None))
            del run, diagnosis  # free them before the next run is judged
        for put, flow in flows:
            put(flow.closing)
    _write_whole(kept, options, others, inputs, many=True)


def _write_whole(
    judged: Sequence[Judged], options: RenderOptions, places: Sequence[Place], inputs: Collection[str], *, many: bool
) -> None:
    for name, path in places:
        write_beside(rendered(judged, options, name, many=many), (name, path), places, inputs)
    if any(name == "github" for name, _ in places):
        from ppo_doctor.report.github import summary

        add_to_job_page(
            lambda: summary([diagnosis for _, diagnosis, _ in judged], options, [run for run, _, _ in judged])
        )


def write_beside(text: str, place: Place, places: Sequence[Place], inputs: Collection[str]) -> None:
    """Write one of several reports; a text between annotations of GitHub is kept from acting as one.

    Raises:
        DoctorError: as `write`.
    """
    name, path = place
    if name == "text" and path is None and ("github", None) in places:
        import secrets

        from ppo_doctor.report.github import guarded

        text = guarded(text, secrets.token_hex(16))
    write(text, path, name, inputs)


def rendered(judged: Sequence[Judged], options: RenderOptions, name: str, *, many: bool) -> str:
    """Return a report in one format; the text of a gate ends with its result."""
    from ppo_doctor.report import render, render_many

    if many:
        runs, diagnoses, summaries = zip(*judged, strict=True) if judged else ((), (), ())
        text = render_many(diagnoses, options, name, runs, summaries)
    else:
        run, diagnosis, _ = judged[0]
        text = render(diagnosis, run, options, name)
    if name == "text" and options.gate_results:
        from ppo_doctor.report.terminal import gate_text

        text += "\n" + gate_text(options.gate_results)
    return text


def add_to_job_page(text: Callable[[], str]) -> None:
    """Append to the summary page of GitHub's job; failing to write it is reported and changes no exit code."""
    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if not place:
        return
    try:
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(text())
    except OSError as error:
        sys.stderr.write(f"ppo-doctor: no job summary: {error.strerror}\n")


def report_error(error: DoctorError, places: Sequence[Place], inputs: Collection[str] = ()) -> None:
    """Write an error in each format that has a form for it; the caller prints the message on stderr.

    Raises:
        DoctorError: as `write`.
    """
    from ppo_doctor.report import render_error

    for name, path in places:
        if name in ERROR_FORMATS:
            write(render_error(error.message, error.hint, error.code, name), path, name, inputs)


def print_error(error: DoctorError) -> None:
    """Print an error on stderr: what happened, and what to do."""
    from ppo_doctor.report.escape import plain

    sys.stderr.write(f"ppo-doctor: {plain(error.message)}\n")
    if error.hint:
        sys.stderr.write(f"  {plain(error.hint)}\n")


def write(text: str, path: Path | None = None, format: str = "text", inputs: Collection[str] = ()) -> None:
    """Write a report to a file, whole or not at all, or to standard output.

    Raises:
        DoctorError: the file is an input or cannot be written (exit code 2).
    """
    with writing(path, format, inputs) as put:
        put(text)


@contextmanager
def writing(path: Path | None, format: str = "text", inputs: Collection[str] = ()) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes a part of a report; a file is replaced once all are written, and kept on failure.

    Of a link, the target is replaced. A device, a pipe or an open descriptor is written to directly.

    Raises:
        DoctorError: as `write`.
    """
    if path is None or _is_stdout(path):
        yield lambda text: _put(text, format)
        return
    with _named_errors(path):
        file, part = _open(path)

    def put(text: str) -> None:
        with _named_errors(path):
            file.write(text)

    try:
        yield put
        with _named_errors(path):
            file.close()
            if part is not None:
                refuse_input(path, inputs)
                if path.exists():
                    part.chmod(stat.S_IMODE(path.stat().st_mode))
                part.replace(os.path.realpath(path))
    finally:
        with suppress(OSError):
            file.close()
        if part is not None:
            part.unlink(missing_ok=True)


def _put(text: str, format: str) -> None:
    sys.stdout.write(fitted(text, format, getattr(sys.stdout, "encoding", None) or "utf-8"))
    sys.stdout.flush()


def _is_stdout(path: Path) -> bool:
    """Return whether a path is standard output: a file that a shell redirects output to may get other output too."""
    with suppress(OSError, ValueError, AttributeError):  # no such file yet, or a standard output that is no file
        return os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    return False


def _open(path: Path) -> tuple[TextIO, Path | None]:
    """Return a file to write to, and its path if it is a new one that is to replace `path`."""
    if path.exists():
        plain = path.is_file() or path.is_dir()
        if not plain or os.path.normpath(path).startswith(("/dev/fd/", "/dev/std", "/proc/")):
            return path.open("a", encoding="utf-8", errors="backslashreplace"), None
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    part = Path(os.path.realpath(path)).with_name(f".ppo-doctor-{os.urandom(6).hex()}.part")
    return part.open("x", encoding="utf-8", errors="backslashreplace"), part


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        pass  # a reader who left is not a failure
    except OSError as error:
        reason = error.strerror or str(error)
        raise DoctorError(f"{path}: cannot write: {reason}", code=ExitCode.USAGE) from error


def fitted(text: str, format: str, encoding: str) -> str:
    """Return a report with the characters that an encoding lacks escaped as its format does.

    Documents of formats that are UTF-8 become ASCII in any other encoding. Text keeps its characters, because the
    stream escapes those that it cannot write.
    """
    if text.isascii() or lookup(encoding).name.startswith("utf"):
        return text
    if format in ("json", "sarif"):
        from ppo_doctor.report.json_report import ascii_only

        return ascii_only(text)
    if format in ("html", "junit", "svg"):
        return text.encode("ascii", "xmlcharrefreplace").decode("ascii")
    if format == "markdown":
        return text.encode(encoding, "xmlcharrefreplace").decode(encoding)
    return text
