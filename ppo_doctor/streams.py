"""Standard input, output and error as a process may be given them: closed, full, left by their reader, not UTF-8.

Whoever writes to standard output learns of nothing but a `DoctorError`; a reader who left is no failure. Messages that
standard error does not take are lost, for there is nobody else to tell.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from typing import TYPE_CHECKING, TextIO, TypeGuard

from ppo_doctor.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable


class _Descriptor(io.FileIO):
    """A descriptor to write to; after its first failure what is written goes nowhere."""

    def __init__(self, number: int, failed: Callable[[OSError], None]) -> None:
        super().__init__(number, "w", closefd=False)
        self._failed = failed

    def write(self, data: object) -> int:
        """Write all or some bytes and return how many."""
        try:
            while (written := super().write(data)) is None:  # type: ignore[arg-type]
                select.select([], [self], [])  # a terminal or pipe that somebody made non-blocking
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            self._failed(error)
            return len(data)  # type: ignore[arg-type]
        return written


class Output(io.TextIOWrapper):
    """Standard output: `left` once its reader has gone."""

    left = False

    def failed(self, error: OSError) -> None:
        """Note that the reader left.

        Raises:
            DoctorError: the output is closed, full, or cannot be written for another reason (exit code 2).
        """
        hung_up = error.errno == errno.EIO and self.line_buffering  # a terminal that was closed
        if not hung_up and not isinstance(error, BrokenPipeError):
            raise DoctorError(f"standard output: cannot write: {error.strerror}", code=ExitCode.USAGE) from error
        self.left = True


def prepare() -> None:
    """Give this process standard streams that it can use whatever it was started with.

    Characters that their encoding lacks are written as escapes. A stream that was closed can be neither read nor
    written, and says so to who tries.
    """
    if sys.stdin is None:
        sys.stdin = open(_nowhere(os.O_WRONLY), encoding="utf-8")  # noqa: SIM115
    sys.stdout = _output(sys.stdout)
    sys.stderr = _errors(sys.stderr)


def _output(given: TextIO | None) -> TextIO:
    if _is_console(given):
        return given
    made: Output

    def failed(error: OSError) -> None:
        made.failed(error)

    made = Output(
        io.BufferedWriter(_Descriptor(_number(given, 1), failed)),
        encoding=_encoding(given),
        errors="backslashreplace",
        line_buffering=_lines(given),
    )
    return made


def _errors(given: TextIO | None) -> TextIO:
    if _is_console(given):
        return given
    return io.TextIOWrapper(
        io.BufferedWriter(_Descriptor(_number(given, 2), lambda error: None)),  # noqa: ARG005
        encoding=_encoding(given),
        errors="backslashreplace",
        line_buffering=True,
    )


def _is_console(given: TextIO | None) -> TypeGuard[TextIO]:
    """Tell a console of Windows, which Python writes to in its own way: it is never full, and its reader stays."""
    return os.name == "nt" and given is not None and given.isatty()


def _number(given: TextIO | None, usual: int) -> int:
    """Return the descriptor of a stream; of one that was closed, one that cannot be written."""
    return _nowhere(os.O_RDONLY) if given is None else usual


def _nowhere(flags: int) -> int:
    return os.open(os.devnull, flags)


def _encoding(given: TextIO | None) -> str:
    return given.encoding if given is not None else "utf-8"


def _lines(given: TextIO | None) -> bool:
    return given is not None and given.isatty()
