"""The loop of a watcher: look at the files, judge new records, report events, and stop."""

from __future__ import annotations

import re
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ppo_doctor.cli.watch.log import SeveralRuns
from ppo_doctor.cli.watch.monitor import Event, Monitor, at_or_above, late_says
from ppo_doctor.diagnosis.gate_result import NEVER, exit_code
from ppo_doctor.model.errors import DoctorError, ExitCode, worst

if TYPE_CHECKING:
    from collections.abc import Callable

    from ppo_doctor.cli.watch.command import Hook
    from ppo_doctor.cli.watch.log import WatchedLog
    from ppo_doctor.model.diagnosis import Diagnosis, RankedCause
    from ppo_doctor.model.run import Run

#: Seconds between two looks at the file; a look takes 0.1 ms.
LOOK = 1.0
#: The pause after each reading and judgement, in multiples of the time that it took: 9 means a tenth of one core.
REST = 9
#: Judgements in a row that must fail before an event reports it: a log begins with less than one record.
PATIENCE = 3
#: Events that a screen may want to show.
KEPT = 200
#: Silence is reported after this many times the usual gap between records, and at least this many seconds; then each
#: time that it has doubled.
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
    """Shows the events and the state of a watcher."""

    def show(self, event: Event) -> None:
        """Show one event."""

    def update(self, view: View) -> None:
        """Show the state; called after every look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to watch: seconds between judgements, the severity that ends it, seconds of silence that end it."""

    interval: float = 10.0
    fail_on: str = NEVER
    until_idle: float | None = None
    #: whether findings without a confirmed cause are events too
    findings: bool = False


@dataclass(slots=True, kw_only=True)
class View:
    """The state that a screen shows."""

    target: str
    monitor: Monitor | None = None
    #: seconds since the last record came, None before the first
    silent: float | None = None
    trouble: str = ""
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=KEPT))


class Session:
    """One run of the command, from the first look to the exit code."""

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
        #: seconds that the last judgement took; the next pause uses the smaller of two, as the first also imports code
        self._cost = 0.0
        self._pulse = Pulse(self._clock.now())
        self._arrivals = 0
        #: whether the last judgement came to its end: a signal may have interrupted it
        self._ended = False
        #: what was wrong at the last judgement, and how often in a row
        self._trouble = ("", 0)
        self.view = View(target=str(log.target))

    def watch(self) -> ExitCode:
        """Watch until a cause, silence or the user ends it, and return the exit code."""
        try:
            while not self._over():
                self._clock.sleep(min(LOOK, self._options.interval))
        except KeyboardInterrupt:
            # A signal that ends a job often ends its watcher too: the last verdict is on all that was written by then.
            with suppress(SeveralRuns):
                self._report(*self._log.look())
            events = [Event(kind="end", text="stopped by hand")]
            with suppress(KeyboardInterrupt):  # nobody reads the output any more; the exit code still counts
                self._report(*events)
        failed = self.failing() is not None
        code = self.finish()
        return ExitCode.SICK if failed else code

    def step(self) -> None:
        """Look once, and judge if it is time for it."""
        self.look()
        if self.due:
            self.judge()
        self._screen.update(self.view)

    def look(self) -> None:
        """Look at the files without reading them."""
        now = self._clock.now()
        self._report(*self._log.look())
        if self._log.arrivals != self._arrivals:
            self._arrivals = self._log.arrivals
            self._report(*self._pulse.beat(now))
        self._report(*self._pulse.missed(now))
        self._report(*(self._hook.poll() if self._hook else ()))
        self.view.silent = self._pulse.silence(now)

    @property
    def due(self) -> bool:
        """Return whether to judge now: there is something new, and the pause after the last judgement is over."""
        return self._log.ready and self._clock.now() >= self._next_judgement

    @property
    def quiet(self) -> bool:
        """Return whether nothing new has come for unusually long."""
        return self._pulse.quiet

    def _over(self) -> bool:
        self.step()
        if (failing := self.failing()) is not None:
            self._report(failed(failing, self._options))
            return True
        limit, silence = self._options.until_idle, self._pulse.since(self._clock.now())
        if limit is not None and silence >= limit:
            self._report(Event(kind="end", text=f"nothing new for {duration(silence)}"))
            return True
        return False

    def failing(self) -> RankedCause | None:
        """Return the first confirmed cause that `--fail-on` acts on."""
        return next(filter(None, (monitor.failing for monitor in self._monitors.values())), None)

    def judge(self) -> None:
        """Read and judge the log; if nothing can be judged, an event says so after some times."""
        started = self._clock.now()
        self._ended = False
        try:
            self._judge_all()
            self._ended = True
            self.view.trouble, self._trouble = "", ("", 0)
        except DoctorError as error:
            if error.code == ExitCode.USAGE:
                raise
            self._cannot(error)
        now = self._clock.now()
        cost, self._cost = self._cost, now - started
        self._next_judgement = max(started + self._options.interval, now + REST * min(cost, self._cost))

    def _cannot(self, error: DoctorError) -> None:
        """Report why nothing can be judged, once it has failed too often for a log that has only begun."""
        kind = re.sub(r"\d+", "", error.message)
        self._trouble = (kind, self._trouble[1] + 1 if kind == self._trouble[0] else 1)
        self.view.trouble = error.message
        if self._trouble[1] == PATIENCE:
            text = f"{error.message}; {error.hint}" if error.hint else error.message
            self._report(Event(kind="problem", text=text))

    def _judge_all(self) -> None:
        runs = self._log.runs()
        if self._log.former is not None:
            self._settle(runs[0])
            runs = self._log.runs()
        for number in self._moving(runs):
            self._take(number, runs[number])

    def _settle(self, new: Run) -> None:
        """Decide by the steps whether a new file continues the run of the old one or starts over."""
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
        self._report(Event(kind="run", text=text, step=_last_step(old)))

    def _moving(self, runs: list[Run]) -> list[int]:
        """Return the indices of runs with new records: at first only the last, because earlier ones have ended."""
        sizes = {n: sum(len(series) for series in run.series.values()) for n, run in enumerate(runs)}
        known, self._sizes = self._sizes, sizes
        if not known:
            return [len(runs) - 1]
        return [n for n, size in sizes.items() if size != known.get(n) and (n in known or n == len(runs) - 1)]

    def _take(self, number: int, run: Run) -> None:
        monitor = self._monitors.get(number)
        if monitor is None:
            monitor = self._monitors[number] = self._monitor()
            self._report(_begins(run, number))
        self._report(*monitor.take(run, self._judge(run), self._judge))
        self.view.monitor = monitor
        confirmed, monitor.confirmed = monitor.confirmed, []
        for diagnosis, cause in confirmed:
            if self._hook is not None:
                self._hook.start(diagnosis, cause, _last_step(run))

    def _monitor(self) -> Monitor:
        return Monitor(fail_on=self._options.fail_on, findings=self._options.findings)

    def finish(self) -> ExitCode:
        """Judge the log as it is now, including its last line, report it, and return the exit code of `analyze`.

        If the last judgement was on all that there is, it is taken.
        """
        if self._ended and self._log.whole:
            codes = [self._conclude(monitor) for monitor in self._monitors.values()]
        else:
            try:
                runs = self._log.finish()
            except DoctorError as error:
                self._report(Event(kind="end", text=f"nothing to judge: {error.message}"))
                return error.code
            numbers = [n for n in self._monitors if n < len(runs)] or [len(runs) - 1]
            codes = [self._close(n, runs[n]) for n in numbers]
        self._report(*(self._hook.drain() if self._hook else ()))
        self._screen.update(self.view)
        return worst(codes)

    def _close(self, number: int, run: Run) -> ExitCode:
        monitor = self._monitors.setdefault(number, self._monitor())
        monitor.now(run, self._judge(run))
        return self._conclude(monitor)

    def _conclude(self, monitor: Monitor) -> ExitCode:
        run, diagnosis = monitor.run, monitor.diagnosis
        if run is None or diagnosis is None:
            return ExitCode.NOTHING_TO_JUDGE
        monitor.finish(self._judge)
        self.view.monitor = monitor
        words = "".join(f" But {late_says(cause)}" for cause in monitor.late)
        self._report(Event(kind="end", text=monitor.says + words, step=_last_step(run)))
        code = exit_code(diagnosis, self._options.fail_on)
        return ExitCode.SICK if any(at_or_above(cause, self._options.fail_on) for cause in monitor.late) else code

    def _report(self, *events: Event) -> None:
        for event in events:
            self.view.events.append(event)
            self._screen.show(event)


class Pulse:
    """Times of new records on a monotonic clock, and events for pauses that are longer than usual."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._last: float | None = None
        self._gaps: deque[float] = deque(maxlen=_GAPS)
        self._reported = 0.0

    def beat(self, now: float) -> list[Event]:
        """Note that new records came; return an event if their absence was reported."""
        silence = self.silence(now)
        reported, self._reported = self._reported, 0.0
        if silence is not None:
            self._gaps.append(silence)
        self._last = now
        if not reported or silence is None:
            return []
        return [Event(kind="silence", text=f"something new again, after {duration(silence)}")]

    @property
    def quiet(self) -> bool:
        """Return whether the absence of new records was reported, and none has come since."""
        return bool(self._reported)

    def missed(self, now: float) -> list[Event]:
        """Return an event if no records have come for unusually long, and each time that this has doubled."""
        silence = self.silence(now)
        if silence is None or silence < max(self._patience(), 2 * self._reported):
            return []
        self._reported = silence
        return [Event(kind="silence", text=f"nothing new for {duration(silence)}")]

    def silence(self, now: float) -> float | None:
        """Return the seconds since the last new record, None before the first."""
        return None if self._last is None else now - self._last

    def since(self, now: float) -> float:
        """Return the seconds since the last new record, or since the start."""
        return now - (self._began if self._last is None else self._last)

    def _patience(self) -> float:
        if not self._gaps:
            return SILENT_AT_FIRST
        return max(SILENT, SILENT_GAPS * sorted(self._gaps)[len(self._gaps) // 2])


def failed(cause: RankedCause, options: Options) -> Event:
    """Return the event that a cause ends the watching."""
    return Event(kind="end", text=f"--fail-on {options.fail_on}: severity {cause.severity}, {cause.title}")


def duration(seconds: float) -> str:
    """Return a time span for people: 40 s, 12 min, 3 h 5 min."""
    minutes, whole = int(seconds // 60), int(seconds)
    if minutes < 1:
        return f"{whole} s"
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"


def _begins(run: Run, number: int) -> Event:
    name = f"run #{number + 1} in this log" if number else "a run"
    known = " of ".join(filter(None, (run.algorithm, run.framework)))
    span = f"steps {run.steps[0]}–{run.steps[1]} so far" if run.steps else "no step yet"
    return Event(kind="run", text=f"{name}: {known}, {span}", step=_last_step(run))


def _last_step(run: Run) -> int | None:
    return run.steps[1] if run.steps else None
