"""Turn successive diagnoses of a run into events; a cause is confirmed once it has led for some updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import TYPE_CHECKING, Literal

from ppo_doctor.diagnosis.gate_result import NEVER, fails, faults
from ppo_doctor.model.words import Severity
from ppo_doctor.report.escape import plain, prose
from ppo_doctor.report.layout import BOUND
from ppo_doctor.report.phrases import outcome, remedy_says
from ppo_doctor.report.summary import Summary, remedies, summarize
from ppo_doctor.runs.log_runs import cut, since

if TYPE_CHECKING:
    from ppo_doctor.model.diagnosis import Diagnosis, RankedCause
    from ppo_doctor.model.run import Run
    from ppo_doctor.model.words import Verdict

#: file: what happened to the log; run: a run begins; cause: one is confirmed; cleared: a confirmed one is gone;
#: finding: one of several runs has a new one without a confirmed cause; verdict: it changed; silence: no new records,
#: or records again; problem: what we could not do; end: why we stop.
Kind = Literal["file", "run", "cause", "cleared", "finding", "verdict", "silence", "problem", "end"]
#: Updates over which a proven cause must go on leading before it is reported: an identity does not come and go, so this
#: is for a log or a configuration that is half written when it is read.
STEADY_PROOF = 1
#: The same for a cause without proof: in a young run statistics pass through what would be a fault later. No sound run
#: of the lab passes through it (docs/watch.md), so this is a reserve for runs that the lab does not know.
STEADY_WITHOUT_PROOF = 4
#: Updates for which a bad verdict must hold that rests on suspicions only.
STEADY_SUSPICION = 8
#: Updates for which a cause must be gone before it counts as gone, and a good verdict must hold.
STEADY = 3
#: The last updates that are also judged by themselves, once the run has twice as many: a fault that began late has
#: little weight in a long run. Of them only proofs count, because statistics of a part do not describe the run.
RECENT = 40
#: Columns for the name of a run before its events.
NAME = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that a watcher reports in one line."""

    kind: Kind
    text: str
    #: last step of the run when it happened, None outside a run
    step: int | None = None
    severity: str | None = None

    def line(self, time: str, run: str = "") -> str:
        """Return the event as one line: time, step, kind, text; with the name of the run if there are several."""
        step = "-" if self.step is None else str(self.step)
        kind = f"{self.kind} {self.severity}" if self.severity else self.kind
        head = f"{time}  {prose(run):<{NAME}}" if run else time
        return f"{head}  step {step:<8}  {plain(kind):<14}  {prose(self.text)}"


@dataclass(slots=True)
class _Leader:
    """A leading cause, the updates at which it was first and last seen to lead, and whether it was reported.

    `diagnosis` is the one in which it leads: that of the whole run, or that of its last updates.
    """

    cause: RankedCause
    diagnosis: Diagnosis
    first: int
    last: int
    reported: bool = False

    @property
    def needs(self) -> int:
        """Return the updates over which this cause must lead."""
        return STEADY_PROOF if self.cause.confidence == "established" else STEADY_WITHOUT_PROOF


class Monitor:
    """Follows the diagnoses of one run.

    `confirmed` collects the causes that were confirmed since it was last emptied, with their diagnoses. With `findings`
    those of at least medium severity are events too.
    """

    def __init__(self, *, fail_on: str = NEVER, findings: bool = False) -> None:
        self.fail_on = fail_on
        self._findings = findings
        #: finding → the updates at which it was first seen, None once it was reported
        self._found: dict[str, int | None] = {}
        self.diagnosis: Diagnosis | None = None
        self.run: Run | None = None
        #: summary of the last diagnosis
        self.story: Summary | None = None
        self.updates = 0
        #: the verdict that was reported last
        self.verdict: Verdict | None = None
        self.confirmed: list[tuple[Diagnosis, RankedCause]] = []
        #: confirmed causes of a finished run that the whole run does not show, but its last updates still do
        self.late: list[RankedCause] = []
        self._leaders: dict[str, _Leader] = {}
        self._verdict_since: tuple[Verdict, int] | None = None

    @property
    def failing(self) -> RankedCause | None:
        """Return the first confirmed cause at or above the severity that was asked for."""
        return next((cause for cause in self.standing if at_or_above(cause, self.fail_on)), None)

    @property
    def standing(self) -> list[RankedCause]:
        """Return the causes that are confirmed and have not gone since."""
        return [leader.cause for leader in self._leaders.values() if leader.reported]

    @property
    def says(self) -> str:
        """Return the verdict, the problems with their possible causes, and the outcome, in one line."""
        if self.story is None:
            return ""
        problems = (
            ": ".join(filter(None, (p.title, "; or: ".join(w.title for w in p.why)))) for p in self.story.problems
        )
        return f"{self.story.verdict}: {'. '.join((*problems, outcome(self.story)))}".replace(BOUND, " ")

    @property
    def pending(self) -> list[RankedCause]:
        """Return the causes that lead and have not been confirmed yet."""
        return [leader.cause for leader in self._leaders.values() if not leader.reported]

    def take(self, run: Run, diagnosis: Diagnosis, judge: Callable[[Run], Diagnosis]) -> list[Event]:
        """Take a new diagnosis of the run and return what it changes; `judge` diagnoses earlier states of the run.

        Without new updates nothing is confirmed, because the same records give the same diagnosis again.
        """
        before, self.updates = self.updates, updates(run)
        self.now(run, diagnosis)
        if self.updates == before:
            return []
        self._see(diagnosis, faults(diagnosis))
        recent = lately(run)
        if recent is not None:
            of_late = judge(recent)
            self._see(of_late, proven(of_late))
        for ago in sorted({leader.needs for leader in self._leaders.values() if leader.first == self.updates}):
            self._look_back(run, judge, before, ago)
        return [*self._confirm(), *self._clear(), *self._find(diagnosis), *self._judge(diagnosis)]

    def finish(self, judge: Callable[[Run], Diagnosis]) -> None:
        """Find the confirmed causes that only the last updates of the finished run prove."""
        if self.run is None or self.diagnosis is None:
            return
        known = {cause.id for cause in faults(self.diagnosis)}
        reported = {name for name, leader in self._leaders.items() if leader.reported and name not in known}
        recent = lately(self.run) if reported else None
        self.late = [cause for cause in proven(judge(recent)) if cause.id in reported] if recent is not None else []

    def now(self, run: Run, diagnosis: Diagnosis) -> None:
        """Take a diagnosis that changes no event: the one of the finished log."""
        self.run, self.diagnosis, self.story = run, diagnosis, summarize(diagnosis, run)

    def _see(self, diagnosis: Diagnosis, causes: Sequence[RankedCause]) -> None:
        """Note which causes lead; a diagnosis of the whole run replaces one of its last updates."""
        for cause in causes:
            leader = self._leaders.setdefault(cause.id, _Leader(cause, diagnosis, self.updates, self.updates))
            if leader.last < self.updates or diagnosis is self.diagnosis:
                leader.cause, leader.diagnosis, leader.last = cause, diagnosis, self.updates

    def _look_back(self, run: Run, judge: Callable[[Run], Diagnosis], before: int, ago: int) -> None:
        """Find causes that already led some updates ago, if more updates than that came since the last diagnosis."""
        was = as_it_was(run, ago) if before < self.updates - ago else None
        if was is None:
            return
        recent = lately(was)
        led = [*faults(judge(was)), *(proven(judge(recent)) if recent else [])]
        for leader in (leader for leader in self._leaders.values() if leader.cause.id in {cause.id for cause in led}):
            leader.first = min(leader.first, self.updates - ago)

    def _confirm(self) -> list[Event]:
        events = []
        for leader in self._leaders.values():
            if not leader.reported and leader.last == self.updates and self.updates - leader.first >= leader.needs:
                leader.reported = True
                self.confirmed.append((leader.diagnosis, leader.cause))
                says = cause_says if leader.diagnosis is self.diagnosis else late_says
                events.append(self._event("cause", says(leader.cause), leader.cause.severity))
        return events

    def _clear(self) -> list[Event]:
        gone = [
            leader
            for leader in self._leaders.values()
            if self.updates - leader.last >= (STEADY if leader.reported else 1)
        ]
        for leader in gone:
            del self._leaders[leader.cause.id]
        texts = [f"no longer what explains the run: {leader.cause.title}" for leader in gone if leader.reported]
        return [self._event("cleared", text) for text in texts]

    def _find(self, diagnosis: Diagnosis) -> list[Event]:
        """Return events for problems that have been there for some updates and have no confirmed cause."""
        if not self._findings:
            return []
        grave = {
            p.name: p for p in diagnosis.problems if p.verdict != "healthy" and p.severity.at_least(Severity.MEDIUM)
        }
        self._found = {name: self._found.get(name, self.updates) for name in grave}
        told = {leader.cause.id for leader in self._leaders.values() if leader.reported}
        events = []
        for name, first in self._found.items():
            problem = grave[name]
            needs = STEADY_PROOF if problem.proven else STEADY_WITHOUT_PROOF
            if first is None or self.updates - first < needs:
                continue
            self._found[name] = None
            if told.isdisjoint(problem.causes):
                since = "" if problem.since_step is None else f", since step {problem.since_step}"
                events.append(self._event("finding", f"{problem.title}{since}", problem.severity))
        return events

    def _judge(self, diagnosis: Diagnosis) -> list[Event]:
        if self._verdict_since is None or self._verdict_since[0] != diagnosis.verdict:
            self._verdict_since = (diagnosis.verdict, self.updates)
        if diagnosis.verdict == self.verdict or self.updates - self._verdict_since[1] < self._patience(diagnosis):
            return []
        self.verdict = diagnosis.verdict
        return [self._event("verdict", self.says)]

    def _patience(self, diagnosis: Diagnosis) -> int:
        """Return the updates for which a verdict must hold: longer for a bad one without a confirmed cause."""
        bad = diagnosis.verdict in ("unhealthy", "warning")
        confirmed = any(leader.reported and leader.last == self.updates for leader in self._leaders.values())
        return STEADY_SUSPICION if bad and not confirmed else STEADY

    def _event(self, kind: Kind, text: str, severity: str | None = None) -> Event:
        step = self.run.steps[1] if self.run and self.run.steps else None
        return Event(kind=kind, text=text, step=step, severity=severity)


def proven(diagnosis: Diagnosis) -> list[RankedCause]:
    """Return the faults that are established."""
    return [cause for cause in faults(diagnosis) if cause.confidence == "established"]


def at_or_above(cause: RankedCause, fail_on: str) -> bool:
    """Return whether a cause is one that `--fail-on` acts on."""
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
    """Return the number of logged updates: the median length of the series, because some are logged more often."""
    return median_low([len(series) for series in run.series.values()] or [0])


def as_it_was(run: Run, ago: int) -> Run | None:
    """Return the run as it was some updates ago, None if it had not begun."""
    typical = updates(run)
    if typical <= ago:
        return None
    axis = next(series.axis for series in run.series.values() if len(series) == typical)
    return replace(run, series=cut(run.series, (None, int(axis.steps[typical - ago - 1]))))


def lately(run: Run) -> Run | None:
    """Return the last updates of a long run, None for a shorter one."""
    typical = updates(run)
    if typical < 2 * RECENT:
        return None
    axis = next(series.axis for series in run.series.values() if len(series) == typical)
    return since(run, int(axis.steps[typical - RECENT]))
