"""Judge in the processes of this machine: a process that ends takes nothing with it but what it was at."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from ppo_doctor.model.errors import DoctorError, ExitCode

#: Pieces of work that a process takes at a time, and how often one is tried again whose process ended.
SHARD, TRIES = 16, 2
ENDED = "the process that judged it ended, perhaps for want of memory"
T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True, eq=False)
class _Piece(Generic[T]):
    item: T
    #: how many processes have ended at it
    ended: int = 0


@dataclass(slots=True, eq=False)
class _Worker(Generic[T]):
    """A process, and the pieces that it was given and has not answered, in the order in which it takes them."""

    process: Any
    connection: Connection
    pieces: list[_Piece[T]] = field(default_factory=list)
    ready: bool = False


def processors() -> int:
    """Return the number of processors that this process may use, fewer than all in a container."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def in_processes(
    items: Iterable[T],
    act: Callable[[T], R],
    processes: int,
    *,
    shard: int = SHARD,
    has_room: Callable[[], bool] = lambda: True,
) -> Generator[tuple[T, R | None], None, None]:
    """Yield each item with what `act` returns of it in a spawned process, those first that are done first.

    It is None of an item whose process has ended three times; a process that ends is replaced. `act` raises nothing.
    Items are taken as they are needed, and only while `has_room()`.

    Raises:
        DoctorError: a process cannot be started (exit code 2).
    """
    further = (_Piece(item) for item in items)
    lost: list[_Piece[T]] = []
    workers: list[_Worker[T]] = []

    def taken() -> list[_Piece[T]]:
        pieces, lost[:] = lost[:shard], lost[shard:]
        return pieces or (list(islice(further, shard)) if has_room() else [])

    try:
        while True:
            for worker in workers:
                if worker.ready and not worker.pieces:
                    _give(worker, taken())
            while len(workers) < processes and (pieces := taken()):
                workers.append(_started(act, pieces))
            busy = {worker.connection: worker for worker in workers if worker.pieces}
            if not busy:
                return
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                try:
                    yield from _answers(worker)
                except (EOFError, OSError):
                    workers.remove(worker)
                    yield from _given_up(worker, lost)
    finally:
        for worker in workers:
            worker.process.terminate()
            _stop(worker)


def _started(act: Callable[[T], R], pieces: list[_Piece[T]]) -> _Worker[T]:
    context = get_context("spawn")  # no lock or thread of this process is copied into it
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, act), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours, pieces)


def _give(worker: _Worker[T], pieces: list[_Piece[T]]) -> None:
    worker.pieces = pieces
    if pieces:
        with suppress(OSError):  # it has ended, which the next answer tells
            worker.connection.send([piece.item for piece in pieces])


def _answers(worker: _Worker[T]) -> Iterator[tuple[T, Any]]:
    """Yield what a process has answered; EOFError or OSError if it has ended."""
    if worker.ready:
        answer = worker.connection.recv()
        yield worker.pieces.pop(0).item, answer
    else:
        worker.connection.recv()
        worker.ready = True
        _give(worker, worker.pieces)


def _given_up(worker: _Worker[T], lost: list[_Piece[T]]) -> Iterator[tuple[T, None]]:
    """Take back the pieces of a process that has ended; yield the one that it was at, if that ended several."""
    if not worker.ready:
        text = "a process to judge in cannot be started"
        hint = "in a script, call it below `if __name__ == '__main__':`"
        raise DoctorError(text, hint=hint, code=ExitCode.USAGE)
    _stop(worker)
    guilty, *rest = worker.pieces
    guilty.ended += 1
    lost += rest if guilty.ended > TRIES else [guilty, *rest]
    if guilty.ended > TRIES:
        yield guilty.item, None


def _stop(worker: _Worker[T]) -> None:
    worker.connection.close()
    worker.process.join()


def _work(connection: Connection, act: Callable[[T], R]) -> None:
    """Answer the items that come, until the process that sends them ends this one, or has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one, which ends it
    with suppress(EOFError, OSError):
        connection.send(None)
        while True:
            for item in connection.recv():
                connection.send(act(item))
