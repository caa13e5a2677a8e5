"""Judge the units of a fleet in the processes of this machine."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Protocol

from ppo_doctor.fleets.row import Row, failed
from ppo_doctor.model.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from ppo_doctor.fleets.unit import Unit

#: Units that a process takes at a time.
SHARD = 16
#: How often a unit is tried again whose process ended.
TRIES = 2
ENDED = "the process that judged it ended, perhaps for want of memory"

Judged = tuple["Unit", list[Row]]
#: Returns the rows of a unit; it is pickled.
JudgeUnit = Callable[["Unit"], list[Row]]


class Engine(Protocol):
    """Judges units somewhere, and returns them in any order."""

    def map(self, units: Iterator[Unit], judge: JudgeUnit) -> Iterator[Judged]:
        """Yield each unit once with its rows; a bounded number of units is taken ahead."""
        ...


@dataclass(slots=True, eq=False)
class _Worker:
    """A process, and the units that it was given and has not answered, in the order in which it judges them."""

    process: Any
    connection: Connection
    units: list[Unit] = field(default_factory=list)
    ready: bool = False


class LocalEngine:
    """Judges units in spawned processes; one that ends is replaced, and the unit that it was at is tried again."""

    def __init__(self, processes: int | None = None) -> None:
        """Use so many processes, or one for each processor that this process may use."""
        allowed = getattr(os, "sched_getaffinity", None)
        self._processes = processes or (len(allowed(0)) if allowed else os.cpu_count() or 1)

    def map(self, units: Iterator[Unit], judge: JudgeUnit) -> Iterator[Judged]:
        """Yield each unit once with its rows, those first that are done first."""
        lost: list[Unit] = []
        ended: Counter[str] = Counter()
        workers: dict[Connection, _Worker] = {}
        try:
            while True:
                while len(workers) < self._processes and (shard := _taken(lost, units)):
                    worker = _started(judge, shard)
                    workers[worker.connection] = worker
                if not workers:
                    return
                for connection in wait(list(workers)):
                    worker = workers[connection]  # type: ignore[index]
                    try:
                        yield from _answers(worker)
                    except (EOFError, OSError):
                        del workers[worker.connection]
                        yield from _given_up(worker, lost, ended)
                    else:
                        if worker.ready and not worker.units and not _given(worker, _taken(lost, units)):
                            del workers[worker.connection]
                            _stop(worker)
        finally:
            for worker in workers.values():
                worker.process.terminate()
                _stop(worker)


def _taken(lost: list[Unit], units: Iterator[Unit]) -> list[Unit]:
    """Return the next units, those first that were lost."""
    shard, lost[:] = lost[:SHARD], lost[SHARD:]
    return shard or list(islice(units, SHARD))


def _started(judge: JudgeUnit, units: list[Unit]) -> _Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, judge), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours, units)


def _given(worker: _Worker, units: list[Unit]) -> bool:
    """Give units to a process that waits for them; return whether there are any."""
    worker.units = units
    if units:
        with suppress(OSError):  # it has ended, which the next answer tells
            worker.connection.send(units)
    return bool(units)


def _answers(worker: _Worker) -> Iterator[Judged]:
    """Yield what a process has answered; EOFError or OSError if it has ended."""
    if not worker.ready:
        worker.connection.recv()
        worker.ready = True
        worker.connection.send(worker.units)
        return
    rows = worker.connection.recv()
    yield worker.units.pop(0), rows


def _given_up(worker: _Worker, lost: list[Unit], ended: Counter[str]) -> Iterator[Judged]:
    """Take back the units of a process that has ended; yield the one that it was at, if that ended several."""
    if not worker.ready:
        text = "a process to judge in cannot be started"
        hint = "in a script, call it below `if __name__ == '__main__':`"
        raise DoctorError(text, hint=hint, code=ExitCode.USAGE)
    _stop(worker)
    if not worker.units:
        return
    guilty = worker.units[0]
    ended[guilty.key] += 1
    if ended[guilty.key] > TRIES:
        yield guilty, [failed(guilty, ENDED, again=True)]
        lost += worker.units[1:]
    else:
        lost += worker.units


def _stop(worker: _Worker) -> None:
    worker.connection.close()
    worker.process.join()


def _work(connection: Connection, judge: JudgeUnit) -> None:
    """Judge the units that come, until no more come or the process that sends them has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one, which ends it
    with suppress(EOFError, OSError):
        connection.send(None)
        while True:
            for unit in connection.recv():
                connection.send(judge(unit))
