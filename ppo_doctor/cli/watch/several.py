"""Watch all runs below a folder: each that is being written is followed by a session of its own."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ppo_doctor.cli.watch.log import SHARE, WatchedLog
from ppo_doctor.cli.watch.monitor import Event
from ppo_doctor.cli.watch.session import KEPT, LOOK, Clock, Options, Session, duration, failed
from ppo_doctor.diagnosis.gate_result import exit_code
from ppo_doctor.fleets.unit import found_below
from ppo_doctor.model.errors import DoctorError, ExitCode, worst

if TYPE_CHECKING:
    from ppo_doctor.cli.watch.session import Screen, View
    from ppo_doctor.fleets.unit import Found
    from ppo_doctor.model.diagnosis import Diagnosis

#: Seconds after its last change for which a run that is there at the start is taken to be written still.
WRITING = 600.0
#: The pause after each judgement of any run, in multiples of the time that it took: judging takes a fifth of one core.
JUDGE_REST = 4
#: Runs that are followed at a time: each keeps what its log held at the last reading.
MOST_FOLLOWED = 500
#: Kinds of events of a run that are not shown: its files are found by their names, and its silence ends it.
UNSAID = ("file", "silence")


class SeveralScreen(Protocol):
    """Shows the events of several runs, and their state."""

    def show(self, event: Event, run: str = "") -> None:
        """Show one event of a run, or of the watching as a whole."""

    def update(self, state: Watching) -> None:
        """Show the state; called after every look."""


@dataclass(slots=True, eq=False, repr=False)
class Followed:
    """A run that is or was followed, and the screen of its session.

    `since` is when its last record came, on the clock of the watching. Files that may hold no run are `doubtful`:
    nothing is said of them before something was judged.
    """

    name: str
    doubtful: bool
    tell: Callable[[Event, str], None]
    log: WatchedLog
    since: float
    session: Session | None = None
    #: what the session showed last
    view: View | None = None
    #: when it was judged last, and whether it was judged at all
    judged: float | None = None
    code: ExitCode | None = None

    @property
    def diagnosis(self) -> Diagnosis | None:
        """Return the last diagnosis, None before the first."""
        monitor = self.view.monitor if self.view is not None else None
        return monitor.diagnosis if monitor is not None else None

    @property
    def verdict(self) -> str:
        """Return the last verdict, or that there is none."""
        return str(self.diagnosis.verdict) if self.diagnosis is not None else "not judged"

    @property
    def is_run(self) -> bool:
        """Return whether to show it."""
        return not self.doubtful or self.diagnosis is not None

    def show(self, event: Event) -> None:
        """Pass an event of its session on under its name."""
        if event.kind not in UNSAID and self.is_run:
            self.tell(event, self.name)

    def update(self, view: View) -> None:
        """Leave the state to `Watching`."""


@dataclass(slots=True, eq=False, repr=False)
class Watching:
    """The state that a screen shows: the runs that are or were followed, and how many others there are."""

    folder: str
    now: float = 0.0
    runs: dict[str, Followed] = field(default_factory=dict)
    others: int = 0
    too_many: int = 0
    events: deque[tuple[str, Event]] = field(default_factory=lambda: deque(maxlen=KEPT))

    @property
    def shown(self) -> list[Followed]:
        """Return the followed runs that are some."""
        return [run for run in self.runs.values() if run.is_run]


class SeveralSessions:
    """One run of the command on a folder of several runs, from the first look to the exit code."""

    def __init__(
        self,
        folder: Path,
        start: Callable[[WatchedLog, Screen], Session],
        open_log: Callable[[Found], WatchedLog],
        screen: SeveralScreen,
        options: Options,
        *,
        clock: Clock | None = None,
        debug: bool = False,
    ) -> None:
        self._debug = debug
        self._folder = folder
        self._start = start
        self._open = open_log
        self._screen = screen
        self._options = options
        self._clock = clock or Clock()
        self.state = Watching(str(folder))
        #: key → fingerprint of runs that are not being written
        self._resting: dict[str, str] = {}
        self._searched = False
        self._next_look = self._next_search = self._rested = self._newest = self._clock.now()

    def watch(self) -> ExitCode:
        """Watch until a cause, silence or the user ends it, and return the exit code."""
        try:
            while not self._over():
                now = self._clock.now()
                until = self._next_look if self._due() is None else min(self._next_look, self._rested)
                self._clock.sleep(max(until - now, 0.0))
        except KeyboardInterrupt:
            self._tell(Event(kind="end", text="stopped by hand"))
        failing = any(session.failing() for _, session in self._live())
        code = self.finish()
        return ExitCode.SICK if failing else code

    def step(self) -> None:
        """Look at the files if it is time for it, and judge the run that has waited longest if it is time for that."""
        now = self.state.now = self._clock.now()
        if now >= self._next_look:
            self._next_look = now + min(LOOK, self._options.interval)
            self._look(now)
        if self._clock.now() >= self._rested and (due := self._due()) is not None:
            self._judge(due)
        self._screen.update(self.state)

    def _look(self, now: float) -> None:
        if now >= self._next_search:
            started = time.process_time()
            self._search()
            cost = time.process_time() - started
            self._next_search = self._clock.now() + max(LOOK, SHARE * cost)
        for run, session in self._live():
            arrivals = run.log.arrivals
            self._guarded(run, session.look)
            if run.log.arrivals != arrivals:
                self._newest = now
                run.since = now if arrivals else run.since
            if session.quiet and not run.log.changed:
                self._close(run)

    def _over(self) -> bool:
        self.step()
        for run, session in self._live():
            if (cause := session.failing()) is not None:
                self._tell(failed(cause, self._options), run.name)
                return True
        limit, silence = self._options.until_idle, self._clock.now() - self._newest
        if limit is not None and silence >= limit:
            self._tell(Event(kind="end", text=f"nothing new for {duration(silence)}"))
            return True
        return False

    def _live(self) -> list[tuple[Followed, Session]]:
        return [(run, run.session) for run in self.state.runs.values() if run.session is not None]

    def _due(self) -> Followed | None:
        """Return the run to judge next: one that never was, the newest first, else the one judged longest ago."""
        due = [run for run, session in self._live() if session.due]
        return min(due, key=lambda run: (run.judged is not None, run.judged or -run.since), default=None)

    def _judge(self, run: Followed) -> None:
        started = time.process_time()
        if run.session is not None:
            self._guarded(run, run.session.judge)
        run.judged = self._clock.now()
        self._rested = run.judged + JUDGE_REST * (time.process_time() - started)

    def _guarded(self, run: Followed, work: Callable[[], object]) -> None:
        """Do something for one run; what is wrong with it alone ends that run and no other."""
        try:
            work()
        except DoctorError as error:
            if error.code == ExitCode.USAGE:  # an option that means nothing: the same for every run
                raise
            self._broken(run, error.message, error.code)
        except Exception as error:
            if self._debug:
                raise
            self._broken(run, f"a bug of ours: {type(error).__name__}: {error}", ExitCode.BUG)

    def _broken(self, run: Followed, why: str, code: ExitCode) -> None:
        run.session, run.code = None, code
        self._tell(Event(kind="problem", text=why), run.name)

    def _search(self) -> None:
        """Find the runs below the folder, and begin to follow those that are being written."""
        keys: set[str] = set()
        too_many = 0
        for found in found_below({self._folder: ""}, []):
            keys.add(found.key)
            too_many += not self._take(found)
        for key in self.state.runs.keys() - keys:
            self._lost(key)
        self._resting = {key: stamp for key, stamp in self._resting.items() if key in keys}
        self.state.others = len(self._resting.keys() - self.state.runs.keys())
        self.state.too_many = too_many
        if not self._searched and not self.state.runs:
            text = f"{self._folder}: none of {len(keys):,} runs is being written; waiting"
            self._tell(Event(kind="file", text=text))
        self._searched = True

    def _lost(self, key: str) -> None:
        """End a run whose files are gone; one whose files are of another run now is forgotten."""
        run = self.state.runs[key]
        if run.log.target.exists():
            del self.state.runs[key]
        elif run.session is not None:
            self._tell(Event(kind="problem", text="its files are gone"), run.name)
            self._close(run)

    def _take(self, found: Found) -> bool:
        """Take note of a run, and return whether it is followed if it is being written."""
        run, unit = self.state.runs.get(found.key), found.unit
        if run is not None and run.session is not None:
            run.log.given = unit.source
            self._resting[found.key] = unit.fingerprint
            return True
        known = self._resting.get(found.key)
        recent = self._searched or time.time() - unit.modified < WRITING
        if known == unit.fingerprint or (known is None and not recent):
            self._resting[found.key] = unit.fingerprint
            return True
        if sum(run.session is not None for run in self.state.runs.values()) >= MOST_FOLLOWED:
            return False
        self._resting[found.key] = unit.fingerprint
        self._follow(found)
        return True

    def _follow(self, found: Found) -> None:
        log = self._open(found)
        name = Path(str(log.target)).name if found.name == "." else found.name
        doubtful = found.unit.source is not None and found.unit.source.doubtful
        age = max(0.0, time.time() - found.unit.modified)
        run = Followed(name, doubtful, self._tell, log, self._clock.now() - age)
        run.session = self._start(log, run)
        run.view = run.session.view
        self.state.runs[found.key] = run

    def _close(self, run: Followed) -> None:
        """End a run with the verdict on all that it wrote, and let go of its session, which holds its log."""
        session, run.session = run.session, None
        if session is None:
            return

        def end() -> None:
            run.code = session.finish()

        self._guarded(run, end)
        if session.view.monitor is not None:
            session.view.monitor.run = None
        elif run.doubtful and run.code == ExitCode.NOTHING_TO_JUDGE:
            run.code = None  # it was no run

    def finish(self) -> ExitCode:
        """End every run that is still followed, and return the worst exit code."""
        try:
            for run, session in self._live():
                self._guarded(run, session.look)  # the end of a job often ends its watcher too
                self._close(run)
        except KeyboardInterrupt:  # a second one: what was known of the others counts
            for run in (run for run in self.state.runs.values() if run.code is None and run.is_run):
                known = run.diagnosis
                run.code = exit_code(known, self._options.fail_on) if known else ExitCode.NOTHING_TO_JUDGE
        codes = [run.code for run in self.state.runs.values() if run.code is not None]
        counts = Counter(run.verdict for run in self.state.shown)
        words = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
        self._tell(Event(kind="end", text=words or f"{self._folder}: no run was written while we watched"))
        self._screen.update(self.state)
        return worst(codes) if codes else ExitCode.NOTHING_TO_JUDGE

    def _tell(self, event: Event, run: str = "") -> None:
        self.state.events.append((run, event))
        self._screen.show(event, run)
