"""Targets of records: files, loggers and the judge; one that fails does not affect the others."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ppo_doctor.record.guard import tell, tell_fault
from ppo_doctor.record.measures import Foreign
from ppo_doctor.record.online import Online
from ppo_doctor.record.values import line_of

Numbers = Mapping[str, float]
#: A function of the step and the numbers of one record.
Sink = Callable[[float, Numbers], None]


class LineFile:
    """Appends JSON objects with one write per line, so that a killed process leaves only whole lines."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o644)
        #: whether the last line, of this or of an earlier process, lacks its newline
        self._torn = self._ends_torn()

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record.

        Raises:
            OSError: the file was deleted or cannot be written. A partly written line is removed, unless another
                process wrote since; then the next record begins on a new line.
        """
        line = (b"\n" if self._torn else b"") + line_of(record)
        status, written = os.fstat(self._file), 0
        if not status.st_nlink:
            raise FileNotFoundError(errno.ENOENT, "the file was deleted")
        try:
            written = os.write(self._file, line)
            if written < len(line):  # the disk filled up within the line, which this raises
                os.write(self._file, line[written:])
        except OSError:
            self._take_back(status.st_size, written)
            raise
        self._torn = False

    def close(self) -> None:
        """Close the file; nothing is buffered."""
        os.close(self._file)

    def _take_back(self, end: int, written: int) -> None:
        """Remove a partly written line unless another process wrote since."""
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
    """A file of records after a line of settings; each record is attempted, because a full disk may have room later."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self._file = LineFile(path)
        self._waiting: Mapping[str, Any] | None = settings
        self._lost, self._told = 0, False
        self._attempt(None)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a record; the first failure is reported, and the next written record counts all as `records_lost`."""
        if self._attempt({**record, "records_lost": self._lost} if self._lost else record):
            self._lost = 0
        else:
            self._lost += 1

    def close(self) -> None:
        """Close the file, after a line that counts the records lost since the last one."""
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
    """Return a function that passes numbers to a TensorBoard writer, a W&B run, any `log(dict)`, or a function.

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


_PATH = (str, os.PathLike)
#: Part of every line, so that no part of a file is taken for the log of another trainer.
MARK = {"ppo_doctor": 1}


class Outlets:
    """Passes records to files and loggers, and to `online` if they are to be judged."""

    def __init__(self, target: Foreign, online: Online | None) -> None:
        self.online = online
        self._target = target
        self._files: list[Log] = []
        self._sinks: list[Sink] = []

    def open(self, config: Mapping[str, Any]) -> bool:
        """Open the targets and write the settings; return False if every target failed."""
        settings = {**MARK, "config": config}
        targets = self._target if isinstance(self._target, list | tuple) else [self._target]
        for target in targets:
            try:
                if isinstance(target, _PATH):
                    self._files.append(Log(Path(target), settings))
                else:
                    self._sinks.append(forward(target))
            except Exception as fault:  # noqa: BLE001 - training and the other targets go on
                name = str(target) if isinstance(target, _PATH) else f"a {type(target).__name__}"
                tell_fault(f"nothing is recorded into {name}, training goes on", fault)
        self._judge(settings)
        return bool(self._files or self._sinks or not targets)

    def take(self, step: float, numbers: Mapping[str, float], marks: Mapping[str, float]) -> None:
        """Pass on a record; `marks` are written only to files, before its numbers."""
        record = {**MARK, "step": step, **marks, **numbers}
        for file in self._files:
            file.write(record)
        for sink in tuple(self._sinks):
            try:
                sink(step, numbers)
            except Exception as fault:  # noqa: BLE001 - training and the files go on
                tell_fault("a logger gets no more records, training goes on", fault)
                self._sinks.remove(sink)
        self._judge(record)

    def close(self) -> None:
        """Close the files and stop judging."""
        for file in self._files:
            file.close()
        self._files, self._sinks = [], []
        if self.online is not None:
            self.online.close()

    def _judge(self, record: Mapping[str, Any]) -> None:
        """Judge a record; a fault ends judging, not recording."""
        if self.online is None:
            return
        try:
            causes = self.online.take(record)
            saved = self.online.dump(causes, _metadata(record)) if causes else None
            if saved is not None:
                tell(f"{', '.join(cause.id for cause in causes)}: the last minibatch is in {saved}")
        except Exception as fault:  # noqa: BLE001 - training and recording go on
            tell_fault("records are no longer judged, training goes on", fault)
            online, self.online = self.online, None
            online.close()


def judge_of(target: Foreign, dump_when: str | None, folder: Foreign, stop_on: str | None) -> Online | None:
    """Return the judge of the records, None if neither `dump_when` nor `stop_on` is given.

    Raises:
        ValueError: an option is invalid.
    """
    if dump_when is None and stop_on is None:
        return None
    if folder is not None and not isinstance(folder, _PATH):
        raise ValueError(f"dump_folder is a path, not {folder!r}")
    named = [each for each in (target if isinstance(target, list | tuple) else [target]) if isinstance(each, _PATH)]
    log = Path(named[0]) if named else Path("run.jsonl")
    return Online(dump_when, stop_on, Path(folder) if folder is not None else log.parent, log.stem)


def _metadata(record: Mapping[str, Any]) -> dict[str, object]:
    """Return the metadata of a dump."""
    return {name: record[name] for name in ("step", "update", "clip_range") if name in record}
