"""Run jobs in worker processes: a call that is cancelled or takes too long ends with its process, and holds up none."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anyio import BrokenWorkerProcess, CapacityLimiter, move_on_after, to_process

from ppo_doctor.diagnosis.processes import processors
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.opening import confined

#: Seconds that a call may take, worker processes at once, and calls that may wait for one.
LONGEST, LEAST_WORKERS, MOST_WORKERS, MOST_WAITING = 120.0, 2, 4, 64
#: Seconds after which a worker process ends itself.
ALARM = 150
#: The most bytes of a file that is read.
MOST_BYTES = 512 << 20


def perform(name: str, roots: Sequence[Path], arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Return the answer of a tool; nothing outside the roots is read.

    Raises:
        DoctorError: what cannot be done, why, and what to do; a bug of ours too.
    """
    from ppo_doctor.cli.agents.jobs import (
        JOBS,
        MANUAL,
        prepare,
    )  # numpy and more, which the server itself does not need

    try:
        _end_after(ALARM)  # whatever becomes of the server, which ends this process earlier
        if name in MANUAL:
            return MANUAL[name](**arguments)
        prepare()
        with confined(roots, MOST_BYTES):
            return JOBS[name](roots, **arguments)
    except DoctorError:
        raise
    except OSError as error:
        raise DoctorError(f"{error.filename}: {error.strerror}", code=ExitCode.USAGE) from error
    except Exception as error:
        raise DoctorError(f"a bug of ours: {type(error).__name__}: {error}", code=ExitCode.BUG) from error
    finally:
        _end_after(0)


def _end_after(seconds: int) -> None:
    """Have the system end this process after some time, or with 0 never."""
    if hasattr(signal, "alarm"):
        signal.alarm(seconds)


class Workers:
    """Worker processes that make the answers, and the folders that the user lets them read, if any were named."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(roots)
        self.training = CapacityLimiter(1)
        self._limit = CapacityLimiter(max(LEAST_WORKERS, min(MOST_WORKERS, processors())))

    @property
    def busy(self) -> int:
        """Return the number of processes that work on a call."""
        return int(self._limit.borrowed_tokens)

    async def make(self, job: str, roots: Sequence[Path], arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Return what a job makes of its arguments.

        Raises:
            DoctorError: it cannot, takes too long, or too many calls are waiting.
        """
        if self._limit.statistics().tasks_waiting >= MOST_WAITING:
            raise DoctorError("too many calls at once", hint="try again when some are answered")
        with move_on_after(LONGEST):
            try:
                return await to_process.run_sync(
                    perform, job, tuple(roots), dict(arguments), cancellable=True, limiter=self._limit
                )
            except BrokenWorkerProcess as error:
                hint = "name a smaller part of it"
                raise DoctorError("the process that read it ended, perhaps for want of memory", hint=hint) from error
        raise DoctorError(f"not done within {LONGEST:.0f} s", hint="name a single run, or ask from a shell")
