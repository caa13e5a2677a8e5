"""Where reports go: which formats were asked for, files written whole, and what GitHub's runner reads beside them."""

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

from ppo_doctor import inputs
from ppo_doctor.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ppo_doctor.model import Diagnosis, Run
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.json_report import Flow
    from ppo_doctor.report.summary import Summary

#: (format, file or None for stdout)
Wanted: TypeAlias = "tuple[str, Path | None]"
#: a diagnosis with its run, where a format draws it, and with its summary, where a format prints that of several runs
Judged: TypeAlias = "tuple[Run | None, Diagnosis, Summary | None]"
_T = TypeVar("_T")
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
    held: dict[str, Path | None] = {}
    for path in places:
        where = "" if path is None else os.path.realpath(path)  # what a link leads to is what is replaced
        if where in held:
            raise _for_one_place(held[where], path)
        held[where] = path
    return ours


def _for_one_place(first: Path | None, second: Path | None) -> DoctorError:
    where = "standard output" if first is None else f"{first}" if first == second else f"{first}, which {second} is too"
    hint = "name a file for each: --format json=report.json --format text"
    return DoctorError(f"several formats for one place: {where}", hint=hint, code=ExitCode.USAGE)


def _one(text: str, output: Path | None) -> Wanted:
    from ppo_doctor.report import FORMATS

    name, equals, file = text.partition("=")
    if name not in FORMATS:
        raise DoctorError(f"no format '{name}'", hint=f"known: {', '.join(FORMATS)}", code=ExitCode.USAGE)
    if equals and not file:
        raise DoctorError(f"--format {text}: no file named", hint=f"--format {name}=FILE", code=ExitCode.USAGE)
    return name, Path(file) if equals else output


def report(
    judged: Iterable[tuple[Run, Diagnosis]],
    options: RenderOptions,
    places: Sequence[Wanted],
    *,
    many: Callable[[int], bool] = lambda runs: runs > 1,
) -> None:
    """Write every report that was asked for, and GitHub's page for the job when it runs one.

    Of several runs each is written when it is judged, where the format allows it, and let go. `many` tells of a single
    run, once it is known to be the last, whether its report is one of several.
    """
    stream = iter(judged)
    first = list(islice(stream, 2))
    if not many(len(first)):
        _whole([(*pair, None) for pair in first], options, places, many=False)
        return
    flowing = [(name, path) for name, path in places if _flow(name) is not None]
    others = [place for place in places if place not in flowing]
    pairs = chain(_emptied(first), stream)
    kept = list(_flowed(pairs, options, flowing, _light(others)))
    _whole(kept, options, others, many=True)


def _emptied(held: list[_T]) -> Iterator[_T]:
    while held:
        yield held.pop(0)


def _flow(name: str) -> Flow | None:
    from ppo_doctor.report import flow_of

    return flow_of(name)


def _light(places: Sequence[Wanted]) -> Callable[[Run, Diagnosis], list[Judged]]:
    """Return what formats that need all runs at once keep of one: its run where one draws it, or its summary."""
    from ppo_doctor.report import DRAWN, SUMMARIZED
    from ppo_doctor.report.summary import summarize

    names = {name for name, _ in places}
    drawn, summarized = not names.isdisjoint(DRAWN), not names.isdisjoint(SUMMARIZED)

    def kept(run: Run, diagnosis: Diagnosis) -> list[Judged]:
        return [(run if drawn else None, diagnosis, summarize(diagnosis, run) if summarized else None)] if names else []

    return kept


def _flowed(
    pairs: Iterator[tuple[Run, Diagnosis]],
    options: RenderOptions,
    places: Sequence[Wanted],
    kept: Callable[[Run, Diagnosis], list[Judged]],
) -> Iterator[Judged]:
    """Write runs one by one as they come, and yield what others keep of them."""
    with ExitStack() as stack:
        flows = [(stack.enter_context(writing(path, name)), flow) for name, path in places if (flow := _flow(name))]
        for put, flow in flows:
            put(flow.opening)
        for number, (run, diagnosis) in enumerate(pairs):
            for put, flow in flows:
                put(("," if number else "") + flow.element(diagnosis, options))
            yield from kept(run, diagnosis)
            del run, diagnosis  # not while the next run is judged
        for put, flow in flows:
            put(flow.closing)


def _whole(judged: Sequence[Judged], options: RenderOptions, places: Sequence[Wanted], *, many: bool) -> None:
    for name, path in places:
        text = rendered(judged, options, name, many=many)
        if name == "text" and path is None and ("github", None) in places:
            text = _guarded(text)
        write(text, path, name)
    if any(name == "github" for name, _ in places):
        _job_summary(judged, options)


def rendered(judged: Sequence[Judged], options: RenderOptions, name: str, *, many: bool) -> str:
    """Return a report in one format; in a gate the text ends with what was ruled."""
    from ppo_doctor.report import render, render_many

    if many:
        runs, diagnoses, stories = zip(*judged, strict=True) if judged else ((), (), ())
        text = render_many(diagnoses, options, name, runs, stories)
    else:
        run, diagnosis, _ = judged[0]
        text = render(diagnosis, run, options, name)
    if name == "text" and options.rulings:
        from ppo_doctor.report.gate_lines import text as gate_text

        text += "\n" + gate_text(options.rulings)
    return text


def _guarded(text: str) -> str:
    import secrets

    from ppo_doctor.report.github import guarded

    return guarded(text, secrets.token_hex(16))


def _job_summary(judged: Sequence[Judged], options: RenderOptions) -> None:
    """Append to the page of the job; a page that cannot be written changes no verdict and is told."""
    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if not place:
        return
    from ppo_doctor.report.github import summary

    inputs.refuse(Path(place))
    try:
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(summary([diagnosis for _, diagnosis, _ in judged], options, [run for run, _, _ in judged]))
    except OSError as error:
        sys.stderr.write(f"ppo-doctor: no job summary: {error.strerror}\n")


def report_error(error: DoctorError, places: Sequence[Wanted]) -> None:
    """Write an error in each format that has a form for it; the message on stderr is the caller's."""
    from ppo_doctor.report import render_error

    for name, path in places:
        if name in ERROR_FORMATS:
            write(render_error(error.message, error.hint, error.code, name), path, name)


def complain(error: DoctorError) -> None:
    """Print an error on stderr: what happened, and what to do."""
    from ppo_doctor.report.escape import plain

    sys.stderr.write(f"ppo-doctor: {plain(error.message)}\n")
    if error.hint:
        sys.stderr.write(f"  {plain(error.hint)}\n")


def write(text: str, path: Path | None, format: str = "text") -> None:
    """Write a report to a file, whole or not at all, or to standard output.

    Raises:
        DoctorError: the file is an input or cannot be written (exit code 2).
    """
    with writing(path, format) as put:
        put(text)


@contextmanager
def writing(path: Path | None, format: str = "text") -> Iterator[Callable[[str], None]]:
    """Yield what takes the parts of a report; a file is replaced when all are written, and stays if anything fails.

    Raises:
        DoctorError: as `write`.
    """
    if path is None or _is_stdout(path):
        yield lambda text: _put(text, format)
        return
    document = _Document(path)
    try:
        yield document.put
        document.finish()
    except BaseException:
        document.drop()
        raise


def _put(text: str, format: str) -> None:
    sys.stdout.write(fitted(text, format, getattr(sys.stdout, "encoding", None) or "utf-8"))
    sys.stdout.flush()


def _is_stdout(path: Path) -> bool:
    """Tell /dev/stdout and its like: who redirects standard output to a file may write more to it than we do."""
    with suppress(OSError, ValueError, AttributeError):  # no such file yet, or a standard output that is no file
        return os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    return False


class _Document:
    """A file that is being written: a regular one aside, to be replaced whole; a device or a pipe directly.

    Links stay, and what they lead to is replaced. Raises DoctorError (exit code 2) where the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part: Path | None = None
        with self._told():
            self._file = self._open()

    def _open(self) -> TextIO:
        there = self._there()
        if there is not None and _passes_on(self._path, there):
            return self._path.open("a", encoding="utf-8", errors="backslashreplace")
        inputs.refuse(self._path)
        if there is not None and not os.access(self._path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        self._target = Path(os.path.realpath(self._path))
        self._part = self._target.with_name(f".ppo-doctor-{os.urandom(6).hex()}.part")
        return self._part.open("x", encoding="utf-8", errors="backslashreplace")

    def _there(self) -> os.stat_result | None:
        try:
            return self._path.stat()
        except FileNotFoundError:
            return None

    def put(self, text: str) -> None:
        """Add to the document."""
        with self._told():
            self._file.write(text)

    def finish(self) -> None:
        """Let the document take its place."""
        with self._told():
            self._file.close()
            if self._part is None:
                return
            there = self._there()
            if there is not None:
                self._part.chmod(stat.S_IMODE(there.st_mode))
            inputs.refuse(self._path)  # once more, for parts are written while further files are read
            self._part.replace(self._target)

    def drop(self) -> None:
        """Leave everything as it was."""
        with suppress(OSError):
            self._file.close()
        if self._part is not None:
            self._part.unlink(missing_ok=True)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:  # a reader who left is no failure
            self._file = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until drop or finish
        except OSError as error:
            reason = error.strerror or str(error)
            raise DoctorError(f"{self._path}: cannot write: {reason}", code=ExitCode.USAGE) from error


def _passes_on(path: Path, there: os.stat_result) -> bool:
    """Tell a device, a pipe, or an open descriptor (/dev/fd/3): to replace it would take it from whoever reads it."""
    plain = stat.S_ISREG(there.st_mode) or stat.S_ISDIR(there.st_mode)
    return not plain or os.path.normpath(path).startswith(("/dev/fd/", "/dev/std", "/proc/"))


def fitted(text: str, format: str, encoding: str) -> str:
    """Return a report with the characters that an encoding lacks written as its format writes them.

    A document of a format that says, or is known, to be UTF-8 gets nothing but ASCII in any other encoding. Text keeps
    its characters: the stream escapes those that it cannot write.
    """
    if text.isascii() or lookup(encoding).name.startswith("utf"):
        return text
    if format in ("json", "sarif"):
        from ppo_doctor.report.json_text import ascii_only

        return ascii_only(text)
    if format in ("html", "junit", "svg"):
        return text.encode("ascii", "xmlcharrefreplace").decode("ascii")
    if format == "markdown":
        return text.encode(encoding, "xmlcharrefreplace").decode(encoding)
    return text
