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

from ppo_doctor.record.guard import tell
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
        #: whether the last line, of ours or of an earlier process, has no end
        self._torn = self._ends_torn()

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

    def _ends_torn(self) -> bool:
        size = os.fstat(self._file).st_size
        os.lseek(self._file, max(size - 1, 0), os.SEEK_SET)
        return size > 0 and os.read(self._file, 1) not in (b"", b"\n")


class Log:
    """A file of records, the settings first; a disk that is full now may have room later, so each record tries anew."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self._file = LineFile(path)
        self._waiting: Mapping[str, Any] | None = settings
        self._lost, self._told = 0, False
        self._attempt(None)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a record; what cannot be written is told once, and counted in the next that can as `records_lost`."""
        if self._attempt({**record, "records_lost": self._lost} if self._lost else record):
            self._lost = 0
        else:
            self._lost += 1

    def close(self) -> None:
        """Close the file, with a line of its own for what was lost last."""
        if self._lost:
            self._attempt({"ppo_doctor": 1, "records_lost": self._lost})
        with contextlib.suppress(OSError):
            self._file.close()

    def _attempt(self, record: Mapping[str, Any] | None) -> bool:
        try:
            if self._waiting is not None:
                self._file.write(self._waiting)
                self._waiting = None
            if record is not None:
                self._file.write(record)
        except OSError as fault:
            if not self._told:
                self._told = True
                tell(f"a record could not be written, training goes on: {fault.strerror or fault}")
            return False
        return True


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
