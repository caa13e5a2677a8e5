"""Judge the units of a fleet on the machines of a Ray cluster."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from ppo_doctor import __version__
from ppo_doctor.diagnosis.processes import ENDED, SHARD, TRIES
from ppo_doctor.fleets.row import Row, failed
from ppo_doctor.model.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from ray import ObjectRef

    from ppo_doctor.fleets.engines import Judged, JudgeUnit
    from ppo_doctor.fleets.unit import Unit

#: Shards that wait for each processor of the cluster.
AHEAD = 3
#: Seconds in which a cluster must answer.
PATIENCE = 30.0
_HOST_AND_PORT = re.compile(r"(?:ray://)?(?P<host>[^:/]+):(?P<port>[0-9]+)")


class RayEngine:
    """Judges units as tasks of Ray; the package must be installed on its machines, which must reach the sources."""

    def __init__(self, address: str | None = None, processes: int | None = None) -> None:
        """Connect to the cluster at an address; without one, start a local cluster with so many processes.

        Raises:
            DoctorError: Ray is not installed, or there is no cluster at the address (exit code 2).
        """
        try:
            import ray
        except ImportError as error:
            hint = "pip install 'ppo-doctor[ray]'"
            raise DoctorError("--engine ray needs Ray", hint=hint, code=ExitCode.USAGE) from error
        self._ray: Any = ray
        if ray.is_initialized():
            return
        try:
            _reach(address)
            own = {} if address else {"num_cpus": processes, "include_dashboard": False}
            ray.init(address=address, log_to_driver=False, logging_level="error", **own)
        except (OSError, ValueError, RuntimeError) as error:
            text = f"no Ray cluster at {address}: {error}"
            raise DoctorError(text, hint="see `ray status`", code=ExitCode.USAGE) from error

    def map(self, units: Iterator[Unit], judge: JudgeUnit) -> Iterator[Judged]:
        """Yield each unit once with its rows, those first that are done first."""
        ray = self._ray
        task = ray.remote(max_retries=0)(_judge_shard)
        held = [ray.put(judge)]
        most = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting: dict[Any, tuple[list[Unit], int]] = {}
        again: list[tuple[list[Unit], int]] = []
        while True:
            while len(waiting) < most and (work := again.pop() if again else (list(islice(units, SHARD)), 0))[0]:
                waiting[task.remote(held, work[0])] = work
            if not waiting:
                return
            done, _ = ray.wait(list(waiting), num_returns=1)
            for ref in done:
                shard, tries = waiting.pop(ref)
                try:
                    yield from zip(shard, ray.get(ref), strict=True)
                except ray.exceptions.RayTaskError as error:  # judging itself raises nothing
                    text = f"a task of Ray failed: {type(error.cause).__name__}: {error.cause}"
                    hint = f"install ppo-doctor {__version__} on each machine of the cluster"
                    raise DoctorError(text, hint=hint, code=ExitCode.USAGE) from error
                except ray.exceptions.RayError:  # its process or machine ended
                    if tries < TRIES:
                        again += [([unit], tries + 1) for unit in shard]
                    else:
                        yield from ((unit, [failed(unit, ENDED, again=True)]) for unit in shard)


def _reach(address: str | None) -> None:
    """Raise OSError if nobody answers at an address of a host and a port; Ray itself would wait for ever."""
    found = _HOST_AND_PORT.fullmatch(address or "")
    if found:
        with socket.create_connection((found["host"], int(found["port"])), timeout=PATIENCE):
            return


@lru_cache(maxsize=1)
def _received(judge: ObjectRef) -> JudgeUnit:
    """Return what the driver judges with, once for each process: to read the rules and their patterns takes a while."""
    import ray

    received: JudgeUnit = ray.get(judge)
    return received


def _judge_shard(held: list[ObjectRef], units: list[Unit]) -> list[list[Row]]:
    """Judge a shard; a reference in a list stays one, where Ray would read a bare one anew for each task."""
    judge = _received(held[0])
    return [judge(unit) for unit in units]
