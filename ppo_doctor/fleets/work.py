"""Judge one unit of a fleet, in whichever process it is."""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from ppo_doctor.diagnosis.attempt import attempt
from ppo_doctor.fleets.remote import fetched
from ppo_doctor.fleets.reports import ReportError, Reports
from ppo_doctor.fleets.row import Row, failed, judged
from ppo_doctor.fleets.unit import StorageError
from ppo_doctor.model.errors import DoctorError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.fleets.unit import Unit
    from ppo_doctor.model.request import Request
    from ppo_doctor.runs.layouts import RunSource


#: Seconds after which a unit is given up.
MOST_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges units with one set of rules, each for a bounded time; it is sent to the processes that do the work."""

    request: Request
    pack: Pack
    seconds: float = MOST_SECONDS
    #: the folder into which the HTML report of each run is written
    reports: Path | None = None

    def __call__(self, unit: Unit) -> list[Row]:
        """Return the rows of a unit."""
        try:
            with _bounded(self.seconds):
                return judge_unit(unit, self.request, self.pack, self.reports)
        except TooLongError:
            return [failed(unit, f"it was given up after {self.seconds:g} seconds", again=True)]
        except ReportError as error:
            return [failed(unit, error.message, again=True)]
        except Exception as error:  # noqa: BLE001 - one unit must not stop the others; the row says it
            if self.request.debug:
                traceback.print_exc()
            return [failed(unit, f"a bug of ours: {type(error).__name__}: {error}")]


class TooLongError(BaseException):
    """The time for a unit is over; what catches every exception on the way must not catch this one."""


@contextmanager
def _bounded(seconds: float) -> Iterator[None]:
    """Raise after so many seconds; end the process after twice as many, if it is in code that no signal interrupts.

    Only the main thread can be interrupted; in another one there is no bound.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def over(*_: object) -> NoReturn:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(2 * seconds, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def judge_unit(unit: Unit, request: Request, pack: Pack, reports: Path | None = None) -> list[Row]:
    """Return a row for each run of a unit, and one for each file of it that could not be read.

    There is none for files that turn out to hold no run. The report of each run is written into the folder `reports`.

    Raises:
        ReportError: that folder cannot be written.
    """
    if unit.source is not None:
        return _rows([unit.source], request, pack, Reports(unit, reports))
    try:
        with fetched(unit) as sources:
            return _rows(sources, request, pack, Reports(unit, reports))
    except ReportError:
        raise
    except DoctorError as error:
        return [failed(unit, error.message, again=isinstance(error, StorageError))]


def _rows(sources: Sequence[RunSource], request: Request, pack: Pack, reports: Reports) -> list[Row]:
    unit = reports.unit
    rows: list[Row] = []
    errors: list[DoctorError] = []
    for source in sources:
        begun = time.perf_counter()
        result = attempt(source, request, pack)
        each = (time.perf_counter() - begun) / max(1, len(result.judged))
        rows += [judged(unit, run, diagnosis, each) for run, diagnosis in result.judged]
        for run, diagnosis in result.judged:
            reports.write(run, diagnosis)
        errors += result.errors
    return rows + [failed(unit, error.message, run=_named(n, unit)) for n, error in enumerate(errors)]


def _named(number: int, unit: Unit) -> str:
    """Return a name for a part of a unit that failed: that of the unit for the first one."""
    return unit.key if not number else f"{unit.key}#{number + 1}"
