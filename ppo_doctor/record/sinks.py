"""Where records go: a file of whole lines, and any logger that takes numbers."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ppo_doctor.record.kinds import Foreign

Numbers = Mapping[str, float]
#: Numbers that are none → the words that most readers of JSON take for them.
_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
#: Takes the step and the numbers of one record.
Sink = Callable[[float, Numbers], None]


def line_of(record: Mapping[str, Any]) -> bytes:
    """Return a record as a line of JSON, which knows neither NaN nor infinity: they stand as words in it."""
    words = {name: _WORDS[str(value)] for name, value in record.items() if _is_none(value)}
    return (json.dumps({**record, **words}, allow_nan=False) + "\n").encode()


def _is_none(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


class LineFile:
    """Appends JSON objects, each by one write of a whole line, so that a killed process leaves whole lines only."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o644)
        #: whether the last line of ours has no end
        self._torn = False
        self._close_torn_line()

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record.

        Raises:
            OSError: the file was deleted, or the disk is full, say. What was written of the line is taken back, unless
                another writer's line came between: then the next begins on a line of its own.
        """
        line = (b"\n" if self._torn else b"") + line_of(record)
        status, written = os.fstat(self._file), 0
        if not status.st_nlink:
            raise FileNotFoundError(errno.ENOENT, "the file was deleted")
        try:
            written = os.write(self._file, line)
            if written < len(line):  # the disk filled up within the line: say so
                os.write(self._file, line[written:])
        except OSError:
            self._take_back(status.st_size, written)
            raise
        self._torn = False

    def close(self) -> None:
        """Close the file; what is written is with the system already."""
        os.close(self._file)

    def _take_back(self, end: int, written: int) -> None:
        """Cut off what was written of a line, where nobody else wrote since."""
        with contextlib.suppress(OSError):
            if os.fstat(self._file).st_size == end + written:
                os.ftruncate(self._file, end)
                return
        self._torn = self._torn or written > 0

    def _close_torn_line(self) -> None:
        size = os.fstat(self._file).st_size
        os.lseek(self._file, max(size - 1, 0), os.SEEK_SET)
        if size and os.read(self._file, 1) != b"\n":
            os.write(self._file, b"\n")


def forward(target: Foreign) -> Sink:
    """Return how to hand numbers to a TensorBoard writer, a W&B run, anything with `log(dict)`, or a function.

    Raises:
        TypeError: the target offers none of these.
    """
    if hasattr(target, "add_scalar"):
        return functools.partial(_add_scalars, target)
    log = getattr(target, "log", target)
    if not callable(log):
        raise TypeError(f"{type(target).__name__} has neither add_scalar nor log, and is no function")
    return lambda _step, numbers: log({_name(name): value for name, value in numbers.items()})


def _add_scalars(writer: Foreign, step: float, numbers: Numbers) -> None:
    for name, value in numbers.items():
        writer.add_scalar(_name(name), value, int(step))


def _name(metric: str) -> str:
    return f"ppo_doctor/{metric}"
