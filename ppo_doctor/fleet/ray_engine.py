"""Judge the units of a fleet on the machines of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from ppo_doctor.fleet.engines import ENDED, SHARD, TRIES
from ppo_doctor.fleet.row import Row, failed
from ppo_doctor.model.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.fleet.engines import Judged
    from ppo_doctor.fleet.unit import Unit
    from ppo_doctor.model.request import Request

#: Shards that wait for each processor of the cluster.
AHEAD = 3


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
            own = {} if address else {"num_cpus": processes, "include_dashboard": False}
            ray.init(address=address, log_to_driver=False, logging_level="error", **own)
        except (ConnectionError, ValueError, RuntimeError) as error:
            text = f"no Ray cluster at {address}: {error}"
            raise DoctorError(text, hint="see `ray status`", code=ExitCode.USAGE) from error

    def map(self, units: Iterator[Unit], request: Request, pack: Pack) -> Iterator[Judged]:
        """Yield each unit once with its rows, those first that are done first."""
        ray = self._ray
        task = ray.remote(max_retries=0)(_judge)
        shared = ray.put((request, pack))
        most = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting: dict[Any, tuple[list[Unit], int]] = {}
        again: list[tuple[list[Unit], int]] = []
        while True:
            while len(waiting) < most and (work := again.pop() if again else (list(islice(units, SHARD)), 0))[0]:
                waiting[task.remote(shared, work[0])] = work
            if not waiting:
                return
            done, _ = ray.wait(list(waiting), num_returns=1)
            for ref in done:
                shard, tries = waiting.pop(ref)
                try:
                    yield from zip(shard, ray.get(ref), strict=True)
                except ray.exceptions.RayError:  # a task itself raises nothing: its process or machine ended
                    if tries < TRIES:
                        again += [([unit], tries + 1) for unit in shard]
                    else:
                        yield from ((unit, [failed(unit, ENDED, again=True)]) for unit in shard)


def _judge(shared: tuple[Request, Pack], units: list[Unit]) -> list[list[Row]]:
    """Judge a shard; a first argument of a task is its value, not a reference to it."""
    from ppo_doctor.fleet.work import judge_unit

    return [judge_unit(unit, *shared) for unit in units]
