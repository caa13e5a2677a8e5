"""Judge the units of a fleet in the processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context
from typing import TYPE_CHECKING, Protocol

from ppo_doctor.fleet.row import Row, failed

if TYPE_CHECKING:
    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.fleet.unit import Unit
    from ppo_doctor.model.request import Request

#: Units that a process takes at a time, and such shards that wait for each process.
SHARD, AHEAD = 8, 3
#: How often a unit is tried whose process ended.
TRIES = 2
ENDED = "the process that judged it ended, perhaps for want of memory"

Judged = tuple["Unit", list[Row]]


class Engine(Protocol):
    """Judges units somewhere, and returns them in any order."""

    def map(self, units: Iterator[Unit], request: Request, pack: Pack) -> Iterator[Judged]:
        """Yield each unit once with its rows; a bounded number of units is taken ahead."""
        ...


class LocalEngine:
    """Judges units in spawned processes; one that ends takes none of the others' units with it."""

    def __init__(self, processes: int) -> None:
        self._processes = processes

    def map(self, units: Iterator[Unit], request: Request, pack: Pack) -> Iterator[Judged]:
        """Yield each unit once with its rows, those first that are done first."""
        begin = _Beginning(request, pack)
        pool = self._pool(begin, self._processes)
        waiting: dict[Future[list[list[Row]]], list[Unit]] = {}
        try:
            while True:
                lost = []
                while len(waiting) < AHEAD * self._processes and (shard := list(islice(units, SHARD))):
                    try:
                        waiting[pool.submit(_judge_shard, shard)] = shard
                    except BrokenProcessPool:
                        lost += shard
                        break
                if not waiting and not lost:
                    break
                for future in wait(waiting, return_when=FIRST_COMPLETED).done if waiting else ():
                    shard = waiting.pop(future)
                    try:
                        yield from zip(shard, future.result(), strict=True)
                    except BrokenProcessPool:
                        lost += shard
                if lost:
                    lost += [unit for shard in waiting.values() for unit in shard]
                    waiting.clear()
                    pool.shutdown(wait=False, cancel_futures=True)
                    yield from self._alone(lost, begin)
                    pool = self._pool(begin, self._processes)
        finally:
            pool.shutdown(cancel_futures=True)

    def _alone(self, units: list[Unit], begin: _Beginning) -> Iterator[Judged]:
        """Judge units one after the other, so that it shows which one ends its process."""
        pool = self._pool(begin, 1)
        try:
            for unit in units:
                for _ in range(TRIES):
                    try:
                        rows = pool.submit(_judge_shard, [unit]).result()[0]
                        break
                    except BrokenProcessPool:
                        pool.shutdown(wait=False)
                        pool = self._pool(begin, 1)
                else:
                    rows = [failed(unit, ENDED, again=True)]
                yield unit, rows
        finally:
            pool.shutdown()

    @staticmethod
    def _pool(begin: _Beginning, processes: int) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=begin)


#: The function with which a process judges, set once when it starts.
_judge_here: Callable[[Unit], list[Row]] | None = None


class _Beginning:
    """What a process does first: it takes the rules, once."""

    def __init__(self, request: Request, pack: Pack) -> None:
        self._request, self._pack = request, pack

    def __call__(self) -> None:
        global _judge_here  # noqa: PLW0603 - a process gets its rules once, not with every unit
        from ppo_doctor.fleet.work import judge_unit

        request, pack = self._request, self._pack
        _judge_here = lambda unit: judge_unit(unit, request, pack)  # noqa: E731


def _judge_shard(units: list[Unit]) -> list[list[Row]]:
    if _judge_here is None:
        raise RuntimeError("a process was given work before its rules")
    return [_judge_here(unit) for unit in units]
