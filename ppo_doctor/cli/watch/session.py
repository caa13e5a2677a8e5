"""The loop of a watcher: look, judge what is new, report, and stop."""

from __future__ import annotations

import re
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ppo_doctor.cli.watch.events import Event, duration
from ppo_doctor.cli.watch.monitor import Monitor, at_or_above, late_says
from ppo_doctor.diagnosis.gate_result import NEVER, exit_code
from ppo_doctor.model.errors import DoctorError, ExitCode, worst

if TYPE_CHECKING:
    from collections.abc import Callable

    from ppo_doctor.cli.watch.command import Hook
    from ppo_doctor.cli.watch.log import WatchedLog
    from ppo_doctor.model.diagnosis import Diagnosis, RankedCause
    from ppo_doctor.model.run import Run

#: Seconds between two looks at the file; one costs a tenth of a millisecond.
LOOK = 1.0
#: After a reading and its judgement, so many times as long passes before the next: a tenth of one core at most.
REST = 9
#: Judgements in a row that must fail before that is told: a log begins with less than a record.
PATIENCE = 3
#: Events that a screen may want to show.
KEPT = 200
#: Silence is told after this many times the usual gap between records, and at least this many seconds; then each time
#: that it has doubled.
SILENT_GAPS, SILENT = 6, 120.0
#: The same before any gap is known.
SILENT_AT_FIRST = 600.0
_GAPS = 20


class Clock:
    """The machine's monotonic clock, so that nothing depends on a wall clock that may be set."""

    def now(self) -> float:
        """Return seconds from an arbitrary start."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class Screen(Protocol):
    """Where a watcher shows itself."""

    def tell(self, event: Event) -> None:
        """Show one event."""

    def update(self, view: View) -> None:
        """Show the state of things; called after every look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to watch: seconds between judgements, the severity that ends it, seconds of silence that end it."""

    interval: float = 10.0
    fail_on: str = NEVER
    until_idle: float | None = None


@dataclass(slots=True, kw_only=True)
class View:
    """What there is to show."""

    target: str
    monitor: Monitor | None = None
    #: seconds since the last record came, None before the first
    silent: float | None = None
    trouble: str = ""
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=KEPT))


class Session:
    """One watching, from the first look to the exit code."""

    def __init__(
        self,
        log: WatchedLog,
        judge: Callable[[Run], Diagnosis],
        screen: Screen,
        options: Options,
        *,
        clock: Clock | None = None,
        hook: Hook | None = None,
    ) -> None:
        self._log = log
        self._judge = judge
        self._screen = screen
        self._clock = clock or Clock()
        self._options = options
        self._hook = hook
        self._monitors: dict[int, Monitor] = {}
        #: values of each run at the last judgement
        self._sizes: dict[int, int] = {}
        self._next_judgement = self._clock.now()
        #: seconds that the last judgement took; the lesser of two counts, for the first also loads the rules' code
        self._cost = 0.0
        self._pulse = Pulse(self._clock.now())
        self._arrivals = 0
        #: what was wrong at the last judgement, and how often in a row
        self._trouble = ("", 0)
        self.view = View(target=str(log.target))

    def watch(self) -> ExitCode:
        """Watch until a cause ends it, silence does, or the user; return the exit code."""
        try:
            while not self._over():
                self._clock.sleep(min(LOOK, self._options.interval))
        except KeyboardInterrupt:
            # What ends a job often ends its watcher too: the last words are on all that was written until then.
            events = [*self._log.look(), Event(kind="end", text="stopped by hand")]
            with suppress(KeyboardInterrupt):  # a screen that nobody looks at any more; the exit code still counts
                self._tell_all(events)
        failed = self._failing() is not None
        code = self.finish()
        return ExitCode.SICK if failed else code

    def step(self) -> None:
        """Look once, and judge if it is time to."""
        now = self._clock.now()
        self._tell_all(self._log.look())
        if self._log.arrivals != self._arrivals:
            self._arrivals = self._log.arrivals
            self._tell_all(self._pulse.beat(now))
        if self._log.ready and now >= self._next_judgement:
            self._judge_now()
        self._tell_all(self._pulse.missed(now))
        self._tell_all(self._hook.poll() if self._hook else [])
        self.view.silent = self._pulse.silence(now)
        self._screen.update(self.view)

    def _over(self) -> bool:
        self.step()
        failing = self._failing()
        if failing is not None:
            text = f"--fail-on {self._options.fail_on}: severity {failing.severity}, {failing.title}"
            self._tell(Event(kind="end", text=text))
            return True
        limit, silence = self._options.until_idle, self._pulse.since(self._clock.now())
        if limit is not None and silence >= limit:
            self._tell(Event(kind="end", text=f"nothing new for {duration(silence)}"))
            return True
        return False

    def _failing(self) -> RankedCause | None:
        return next(filter(None, (monitor.failing for monitor in self._monitors.values())), None)

    def _judge_now(self) -> None:
        started = self._clock.now()
        try:
            self._judge_all()
            self.view.trouble, self._trouble = "", ("", 0)
        except DoctorError as error:
            if error.code == ExitCode.USAGE:
                raise
            self._cannot(error)
        now = self._clock.now()
        cost, self._cost = self._cost, now - started
        self._next_judgement = max(started + self._options.interval, now + REST * min(cost, self._cost))

    def _cannot(self, error: DoctorError) -> None:
        """Tell why nothing can be judged, once it is more than a log that has only begun."""
        kind = re.sub(r"\d+", "", error.message)
        self._trouble = (kind, self._trouble[1] + 1 if kind == self._trouble[0] else 1)
        self.view.trouble = error.message
        if self._trouble[1] == PATIENCE:
            self._tell(Event(kind="problem", text=f"{error.message}; {error.hint}" if error.hint else error.message))

    def _judge_all(self) -> None:
        runs = self._log.runs()
        if self._log.former is not None:
            self._settle(runs[0])
            runs = self._log.runs()
        for number in self._moving(runs):
            self._take(number, runs[number])

    def _settle(self, new: Run) -> None:
        """Decide whether a new file goes on with the run of the old one: its steps do, or they start over."""
        try:
            old = self._log.former_runs()[-1]
        except DoctorError:
            self._log.settle(belongs=False)
            return
        belongs = new.steps is not None and old.steps is not None and new.steps[0] > old.steps[1]
        self._log.settle(belongs=belongs)
        if belongs:
            text = "the run goes on in the new file"
        else:
            self._monitors, self._sizes = {}, {}
            text = f"the run before ended: {self._judge(old).verdict}"
        self._tell(Event(kind="run", text=text, step=_last_step(old)))

    def _moving(self, runs: list[Run]) -> list[int]:
        """Return the runs that have new records: of those found at first only the last, for earlier ones have ended."""
        sizes = {n: sum(len(series) for series in run.series.values()) for n, run in enumerate(runs)}
        known, self._sizes = self._sizes, sizes
        if not known:
            return [len(runs) - 1]
        return [n for n, size in sizes.items() if size != known.get(n) and (n in known or n == len(runs) - 1)]

    def _take(self, number: int, run: Run) -> None:
        monitor = self._monitors.get(number)
        if monitor is None:
            monitor = self._monitors[number] = Monitor(fail_on=self._options.fail_on)
            self._tell(_begins(run, number))
        self._tell_all(monitor.take(run, self._judge(run), self._judge))
        self.view.monitor = monitor
        confirmed, monitor.confirmed = monitor.confirmed, []
        for diagnosis, cause in confirmed:
            if self._hook is not None:
                self._hook.start(diagnosis, cause, _last_step(run))

    def finish(self) -> ExitCode:
        """Judge the log as it is now, its last line too, and say so; the exit code is that of `analyze`."""
        try:
            runs = self._log.finish()
        except DoctorError as error:
            self._tell(Event(kind="end", text=f"nothing to judge: {error.message}"))
            return error.code
        numbers = [n for n in self._monitors if n < len(runs)] or [len(runs) - 1]
        codes = [self._close(n, runs[n]) for n in numbers]
        self._tell_all(self._hook.drain() if self._hook else [])
        self._screen.update(self.view)
        return worst(codes)

    def _close(self, number: int, run: Run) -> ExitCode:
        diagnosis = self._judge(run)
        monitor = self._monitors.setdefault(number, Monitor(fail_on=self._options.fail_on))
        monitor.finish(run, diagnosis, self._judge)
        self.view.monitor = monitor
        words = "".join(f" But {late_says(cause)}" for cause in monitor.late)
        self._tell(Event(kind="end", text=monitor.says + words, step=_last_step(run)))
        code = exit_code(diagnosis, self._options.fail_on)
        return ExitCode.SICK if any(at_or_above(cause, self._options.fail_on) for cause in monitor.late) else code

    def _tell_all(self, events: list[Event]) -> None:
        for event in events:
            self._tell(event)

    def _tell(self, event: Event) -> None:
        self.view.events.append(event)
        self._screen.tell(event)


class Pulse:
    """When records came, and when they stayed away for longer than usual; times are those of a monotonic clock."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._last: float | None = None
        self._gaps: deque[float] = deque(maxlen=_GAPS)
        self._told = 0.0

    def beat(self, now: float) -> list[Event]:
        """Note that something came."""
        silence = self.silence(now)
        told, self._told = self._told, 0.0
        if silence is not None:
            self._gaps.append(silence)
        self._last = now
        if not told or silence is None:
            return []
        return [Event(kind="silence", text=f"something new again, after {duration(silence)}")]

    def missed(self, now: float) -> list[Event]:
        """Return an event when nothing has come for unusually long, and each time that this has doubled."""
        silence = self.silence(now)
        if silence is None or silence < max(self._patience(), 2 * self._told):
            return []
        self._told = silence
        return [Event(kind="silence", text=f"nothing new for {duration(silence)}")]

    def silence(self, now: float) -> float | None:
        """Return the seconds since something came, None before the first time."""
        return None if self._last is None else now - self._last

    def since(self, now: float) -> float:
        """Return the seconds since something came, or since we began."""
        return now - (self._began if self._last is None else self._last)

    def _patience(self) -> float:
        if not self._gaps:
            return SILENT_AT_FIRST
        return max(SILENT, SILENT_GAPS * sorted(self._gaps)[len(self._gaps) // 2])


def _begins(run: Run, number: int) -> Event:
    name = f"run #{number + 1} in this log" if number else "a run"
    known = " of ".join(filter(None, (run.algorithm, run.framework)))
    span = f"steps {run.steps[0]}–{run.steps[1]} so far" if run.steps else "no step yet"
    return Event(kind="run", text=f"{name}: {known}, {span}", step=_last_step(run))


def _last_step(run: Run) -> int | None:
    return run.steps[1] if run.steps else None
