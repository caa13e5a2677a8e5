"""What `ppo-doctor watch` does with its options: puts feed, judge, screen and hook together."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ppo_doctor.pipeline import Request, diagnose, run_from_items
from ppo_doctor.watch.follower import Follower
from ppo_doctor.watch.hook import Hook
from ppo_doctor.watch.plain import PlainScreen
from ppo_doctor.watch.session import RealClock, Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppo_doctor.errors import ExitCode
    from ppo_doctor.model import Diagnosis, Run
    from ppo_doctor.rulepack import Pack
    from ppo_doctor.watch.growing import Reading
    from ppo_doctor.watch.session import Options

#: Signals that end the watching: the wish to, the end of the job, and that of the terminal.
ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class PipelineJudge:
    """Judges as `analyze` does."""

    def __init__(self, pack: Pack, request: Request) -> None:
        self._pack = pack
        self._request = request

    def runs(self, reading: Reading) -> list[Run]:
        """Return the runs in a log."""
        return run_from_items(reading.path, reading.container, reading.items, self._request, reading.folders)

    def diagnose(self, run: Run) -> Diagnosis:
        """Judge one run."""
        return diagnose(run, self._pack, self._request)


def run_watch(
    target: str,
    judge: PipelineJudge,
    options: Options,
    *,
    on_finding: str | None = None,
    plain: bool = False,
    quiet: bool = False,
    color: bool | None = None,
) -> ExitCode:
    """Watch a log until something ends it, and return the exit code.

    Raises:
        DoctorError: `on_finding` is no command, or a setting that was given does not exist (exit code 2).
    """
    clock = PatientClock()
    hook = Hook(on_finding, clock) if on_finding is not None else None
    feed = Follower(target)
    with _interrupted_between_looks(clock):
        if plain or not sys.stdout.isatty():
            return Session(feed, judge, PlainScreen(quiet=quiet), clock, options, hook).watch()
        from ppo_doctor.watch.live import live_screen

        with live_screen(color=color) as screen:
            session = Session(feed, judge, screen, clock, options, hook)
            code = session.watch()
        screen.leave(session.view, quiet=quiet)
        return code


class PatientClock(RealClock):
    """A clock whose sleep is when Ctrl-C takes effect: in the middle of a look it would lose what was just read."""

    def __init__(self) -> None:
        self._asked = False
        self._asleep = False

    def interrupt(self, number: int, frame: object) -> None:
        """Stop now if nothing is being done or this is the second time, else at the next sleep."""
        del number, frame
        if self._asleep or self._asked:
            self._asked = False
            raise KeyboardInterrupt
        self._asked = True

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self._asleep = True
        try:
            if self._asked:
                self.interrupt(0, None)
            super().sleep(seconds)
        finally:
            self._asleep = False


@contextmanager
def _interrupted_between_looks(clock: PatientClock) -> Iterator[None]:
    """Let signals end us with the screen restored and a last verdict; who ignored one, as nohup does, still does."""
    ours = (signal.SIG_DFL, signal.default_int_handler)
    numbers = [number for number in ENDING if signal.getsignal(number) in ours]
    before = {number: signal.signal(number, clock.interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
