"""Handle standard streams that are closed, full, left by their reader, or not UTF-8.

Writing to standard output raises only `DoctorError`; a reader that has closed the pipe is no failure. Messages that
standard error does not accept are lost, because there is nowhere else to write them.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from typing import TextIO

from ppo_doctor.model.errors import DoctorError, ExitCode


class _Descriptor(io.FileIO):
    """A descriptor to write to; after its first failure, output is discarded."""

    left = False

    def __init__(self, number: int, *, required: bool, terminal: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._required = required
        self._terminal = terminal

    def write(self, data: object) -> int:
        """Write all or some bytes and return their number.

        Raises:
            DoctorError: a required stream is closed, full, or cannot be written for another reason (exit code 2).
        """
        try:
            while (written := super().write(data)) is None:  # type: ignore[arg-type]
                select.select([], [self], [])  # a terminal or pipe that another process made non-blocking
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            terminal_closed = self._terminal and error.errno == errno.EIO
            self.left = isinstance(error, BrokenPipeError) or terminal_closed
            if self._required and not self.left:
                raise DoctorError(f"standard output: cannot write: {error.strerror}", code=ExitCode.USAGE) from error
            return len(data)  # type: ignore[arg-type]
        return written


class Output(io.TextIOWrapper):
    """A standard stream to write to."""

    @property
    def left(self) -> bool:
        """Return whether the reader has closed the stream."""
        return bool(self.buffer.raw.left)  # type: ignore[attr-defined]


def prepare() -> None:
    """Replace the standard streams of this process by ones that can be used in any case.

    Characters that their encoding lacks are written as escapes. Reading or writing a stream that was closed raises an
    error.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY), encoding="utf-8")
    sys.stdout = _stream(sys.stdout, 1, required=True)
    sys.stderr = _stream(sys.stderr, 2, required=False)


def _stream(given: TextIO | None, number: int, *, required: bool) -> TextIO:
    terminal = given is not None and given.isatty()
    if given is not None and terminal and os.name == "nt":
        return given  # a Windows console is never full or closed, and Python writes to it in a special way
    if given is None:
        number = os.open(os.devnull, os.O_RDONLY)
    return Output(
        io.BufferedWriter(_Descriptor(number, required=required, terminal=terminal)),
        encoding=given.encoding if given is not None else "utf-8",
        errors="backslashreplace",
        line_buffering=terminal or not required,
    )
