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
    clock = RealClock()
    hook = Hook(on_finding, clock) if on_finding is not None else None
    feed = Follower(target)
    with _terminated_like_interrupted():
        if plain or not sys.stdout.isatty():
            return Session(feed, judge, PlainScreen(quiet=quiet), clock, options, hook).watch()
        from ppo_doctor.watch.live import live_screen

        with live_screen(color=color) as screen:
            session = Session(feed, judge, screen, clock, options, hook)
            code = session.watch()
        screen.leave(session.view, quiet=quiet)
        return code


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM end us as Ctrl-C does: with the screen restored and a last verdict."""

    def interrupt(number: int, frame: object) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
