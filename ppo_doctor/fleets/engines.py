"""Engines judge the units of a fleet: in processes of this machine, or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from ppo_doctor.diagnosis.processes import ENDED, in_processes, processors
from ppo_doctor.fleets.row import Row, failed
from ppo_doctor.model.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from ppo_doctor.fleets.unit import Unit

Judged = tuple["Unit", list[Row]]
#: Returns the rows of a unit; it is pickled.
JudgeUnit = Callable[["Unit"], list[Row]]


class Engine(Protocol):
    """Judges units somewhere, and returns them in any order."""

    def map(self, units: Iterator[Unit], judge: JudgeUnit) -> Iterator[Judged]:
        """Yield each unit once with its rows; a bounded number of units is taken ahead."""
        ...


class LocalEngine:
    """Judges units in processes of this machine."""

    def __init__(self, processes: int | None = None) -> None:
        """Use so many processes, or one for each processor that this process may use."""
        self._processes = processes or processors()

    def map(self, units: Iterator[Unit], judge: JudgeUnit) -> Iterator[Judged]:
        """Yield each unit once with its rows, those first that are done first."""
        for unit, rows in in_processes(units, judge, self._processes):
            yield unit, [failed(unit, ENDED, again=True)] if rows is None else rows


def engine_named(name: str, address: str | None, jobs: int | None) -> Engine:
    """Return an engine by its name.

    Raises:
        DoctorError: there is no such engine, it cannot be used, or options contradict each other (exit code 2).
    """
    if name == "ray":
        if address is not None and jobs is not None:
            text = "the number of processes is that of the cluster at an address of Ray"
            raise DoctorError(text, hint="leave out --jobs", code=ExitCode.USAGE)
        from ppo_doctor.fleets.ray_engine import RayEngine

        return RayEngine(address, jobs)
    if name != "local":
        raise DoctorError(f"no such engine: {name}", hint="local, ray", code=ExitCode.USAGE)
    if address is not None:
        raise DoctorError("an address of Ray is for the engine ray", hint="--engine ray", code=ExitCode.USAGE)
    return LocalEngine(jobs)
