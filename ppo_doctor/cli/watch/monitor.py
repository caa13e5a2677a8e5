"""Turn successive diagnoses into events; a cause is confirmed after it has led for some updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import TYPE_CHECKING

from ppo_doctor.cli.watch.events import Event
from ppo_doctor.diagnosis.gate_result import NEVER, fails, faults
from ppo_doctor.model.words import Severity
from ppo_doctor.report.layout import BOUND
from ppo_doctor.report.phrases import outcome, remedy_says
from ppo_doctor.report.summary import Summary, remedies, summarize
from ppo_doctor.runs.log_runs import cut, since

if TYPE_CHECKING:
    from ppo_doctor.model.diagnosis import Diagnosis, RankedCause
    from ppo_doctor.model.run import Run
    from ppo_doctor.model.words import Verdict

#: Updates over which a proven cause must go on leading before it is told: an identity does not come and go, so this
#: is for a log or a configuration that is half written when we look.
STEADY_PROOF = 1
#: The same for a cause without proof: in a young run statistics pass through what would be a fault later. No sound run
#: of the lab passes through it (docs/watch.md), so this is a reserve for runs that the lab does not know.
STEADY_WITHOUT_PROOF = 4
#: Updates for which a bad verdict must hold that rests on suspicions only.
STEADY_SUSPICION = 8
#: Updates for which a cause must be gone before it counts as gone, and a good verdict must hold.
STEADY = 3
#: Updates that are judged by themselves, too, once the run has twice as many: what began late in a long run weighs
#: little in the whole of it. There only proofs count, for statistics of a stretch say nothing about a run.
RECENT = 40


@dataclass(slots=True)
class _Held:
    """A leading cause: the update at which it was first and last seen to lead, and whether that was told.

    `diagnosis` is the one in which it leads: of the whole run, or of its last updates.
    """

    cause: RankedCause
    diagnosis: Diagnosis
    first: int
    last: int
    told: bool = False

    @property
    def needs(self) -> int:
        """Return the updates over which this cause must lead."""
        return STEADY_PROOF if self.cause.confidence == "established" else STEADY_WITHOUT_PROOF


class Monitor:
    """Follows the diagnoses of one run.

    `confirmed` collects the causes told since it was last emptied, for those who act on them.
    """

    def __init__(self, *, fail_on: str = NEVER) -> None:
        self.fail_on = fail_on
        self.diagnosis: Diagnosis | None = None
        self.run: Run | None = None
        #: the last diagnosis as people are told it
        self.story: Summary | None = None
        self.updates = 0
        #: the verdict that was told last
        self.verdict: Verdict | None = None
        self.confirmed: list[tuple[Diagnosis, RankedCause]] = []
        #: confirmed causes of a finished run of which the whole of it says nothing, but its last updates still do
        self.late: list[RankedCause] = []
        self._held: dict[str, _Held] = {}
        self._verdict_since: tuple[Verdict, int] | None = None

    @property
    def failing(self) -> RankedCause | None:
        """Return the first confirmed cause at or above the severity that was asked for."""
        told = (held.cause for held in self._held.values() if held.told)
        return next((cause for cause in told if at_or_above(cause, self.fail_on)), None)

    @property
    def says(self) -> str:
        """Return the verdict, the problems with what cannot be told from them, and what became of the run."""
        if self.story is None:
            return ""
        problems = (
            ": ".join(filter(None, (p.title, "; or: ".join(w.title for w in p.why)))) for p in self.story.problems
        )
        return f"{self.story.verdict}: {'. '.join((*problems, outcome(self.story)))}".replace(BOUND, " ")

    @property
    def pending(self) -> list[RankedCause]:
        """Return the causes that lead and have not been confirmed yet."""
        return [held.cause for held in self._held.values() if not held.told]

    def take(self, run: Run, diagnosis: Diagnosis, judge: Callable[[Run], Diagnosis]) -> list[Event]:
        """Take a new judgement of the run; `judge` is asked what it would have been some updates ago.

        Without new updates nothing is confirmed: the same records say the same thing again.
        """
        before, self.updates = self.updates, updates(run)
        self._now(run, diagnosis)
        if self.updates == before:
            return []
        self._see(diagnosis, faults(diagnosis))
        recent = lately(run)
        if recent is not None:
            of_late = judge(recent)
            self._see(of_late, proven(of_late))
        for ago in sorted({held.needs for held in self._held.values() if held.first == self.updates}):
            self._look_back(run, judge, before, ago)
        return [*self._confirm(), *self._clear(), *self._judge(diagnosis)]

    def finish(self, run: Run, diagnosis: Diagnosis, judge: Callable[[Run], Diagnosis]) -> None:
        """Take the judgement of the finished log, and find the confirmed causes that only its last updates prove."""
        self._now(run, diagnosis)
        known = {cause.id for cause in faults(diagnosis)}
        told = {name for name, held in self._held.items() if held.told and name not in known}
        recent = lately(run) if told else None
        self.late = [cause for cause in proven(judge(recent)) if cause.id in told] if recent is not None else []

    def _now(self, run: Run, diagnosis: Diagnosis) -> None:
        self.run, self.diagnosis, self.story = run, diagnosis, summarize(diagnosis, run)

    def _see(self, diagnosis: Diagnosis, causes: Sequence[RankedCause]) -> None:
        """Note which causes lead; what the whole run says of a cause goes before what its last updates say."""
        for cause in causes:
            held = self._held.setdefault(cause.id, _Held(cause, diagnosis, self.updates, self.updates))
            if held.last < self.updates or diagnosis is self.diagnosis:
                held.cause, held.diagnosis, held.last = cause, diagnosis, self.updates

    def _look_back(self, run: Run, judge: Callable[[Run], Diagnosis], before: int, ago: int) -> None:
        """Count causes that led some updates ago already, where so many updates came at once that nobody looked."""
        was = as_it_was(run, ago) if before < self.updates - ago else None
        if was is None:
            return
        recent = lately(was)
        led = [*faults(judge(was)), *(proven(judge(recent)) if recent else [])]
        for held in (held for held in self._held.values() if held.cause.id in {cause.id for cause in led}):
            held.first = min(held.first, self.updates - ago)

    def _confirm(self) -> list[Event]:
        events = []
        for held in self._held.values():
            if not held.told and held.last == self.updates and self.updates - held.first >= held.needs:
                held.told = True
                self.confirmed.append((held.diagnosis, held.cause))
                says = cause_says if held.diagnosis is self.diagnosis else late_says
                events.append(self._event("cause", says(held.cause), held.cause.severity))
        return events

    def _clear(self) -> list[Event]:
        gone = [held for held in self._held.values() if self.updates - held.last >= (STEADY if held.told else 1)]
        for held in gone:
            del self._held[held.cause.id]
        texts = [f"no longer what explains the run: {held.cause.title}" for held in gone if held.told]
        return [self._event("cleared", text) for text in texts]

    def _judge(self, diagnosis: Diagnosis) -> list[Event]:
        if self._verdict_since is None or self._verdict_since[0] != diagnosis.verdict:
            self._verdict_since = (diagnosis.verdict, self.updates)
        if diagnosis.verdict == self.verdict or self.updates - self._verdict_since[1] < self._patience(diagnosis):
            return []
        self.verdict = diagnosis.verdict
        return [self._event("verdict", self.says)]

    def _patience(self, diagnosis: Diagnosis) -> int:
        """Return the updates for which a verdict must hold: bad news without a confirmed cause may pass."""
        bad = diagnosis.verdict in ("unhealthy", "warning")
        confirmed = any(held.told and held.last == self.updates for held in self._held.values())
        return STEADY_SUSPICION if bad and not confirmed else STEADY

    def _event(self, kind: str, text: str, severity: str | None = None) -> Event:
        step = self.run.steps[1] if self.run and self.run.steps else None
        return Event(kind=kind, text=text, step=step, severity=severity)  # type: ignore[arg-type]


def proven(diagnosis: Diagnosis) -> list[RankedCause]:
    """Return the faults that are established."""
    return [cause for cause in faults(diagnosis) if cause.confidence == "established"]


def at_or_above(cause: RankedCause, fail_on: str) -> bool:
    """Tell whether a cause is one that `--fail-on` acts on."""
    return fail_on != NEVER and fails(cause, Severity(fail_on))


def cause_says(cause: RankedCause) -> str:
    """Return a cause in one line: its title, how sure it is, since when, and what to do first."""
    since = "" if cause.onset_step is None else f", since step {cause.onset_step}"
    first = [remedy_says(remedy) for remedy in remedies(cause.remedies)[:1]]
    return ". Do: ".join((f"{cause.title} ({cause.confidence}{since})", *first)).replace(BOUND, " ")


def late_says(cause: RankedCause) -> str:
    """Return, in one line, a cause that only the last updates prove."""
    return f"in the last {RECENT} updates: {cause_says(cause)}"


def updates(run: Run) -> int:
    """Return the number of updates logged: the records of the typical series, for some are logged more often."""
    return median_low([len(series) for series in run.series.values()] or [0])


def as_it_was(run: Run, ago: int) -> Run | None:
    """Return the run as it was some updates ago, None when it had not begun."""
    typical = updates(run)
    if typical <= ago:
        return None
    axis = next(series.axis for series in run.series.values() if len(series) == typical)
    return replace(run, series=cut(run.series, (None, int(axis.steps[typical - ago - 1]))))


def lately(run: Run) -> Run | None:
    """Return the last updates of a run that has many, else None."""
    typical = updates(run)
    if typical < 2 * RECENT:
        return None
    axis = next(series.axis for series in run.series.values() if len(series) == typical)
    return since(run, int(axis.steps[typical - RECENT]))
