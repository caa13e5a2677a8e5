"""Tell a diagnosis as a story; pure, from the diagnosis and the run that it is of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ppo_doctor.evidence import says, with_settings
from ppo_doctor.model import ASKED, DIED, LEFT_OPEN, QUESTIONS, WOULD_DECIDE, Severity
from ppo_doctor.story.actions import actions
from ppo_doctor.story.model import Check, Checks, Open, Place, Remark, Story, Told

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ppo_doctor.model import Diagnosis, Finding, Measurement, RankedCause, Run
    from ppo_doctor.story.model import Broken, Course, Table

#: What stands in no text file: its records are counted.
IN_RECORDS = ("tfevents", "wandb", "sqlite", "parquet", "leveldb", "npz", "npz-evaluations")
#: Notes on reading, remarks, and metrics that would answer a question, in a story.
MOST_NOTES, MOST_REMARKS, MOST_METRICS = 2, 3, 3
#: Checks that a problem is shown by.
MOST_SEEN = 2
#: The gravest first.
NOTE_KINDS = ("lost", "dropped", "skipped", "merged", "info", "renamed")
#: Fewer records than this leave questions open, whatever they hold.
FEW = 12
#: What a fact says of the run, if that is a sentence with a number.
_NUMBER = re.compile(r" .*\d")
#: How the reason begins why a measurement would decide a check, and the check's name.
_DECIDES = re.compile(rf"^{WOULD_DECIDE}[\w.-]+: ")


def story(diagnosis: Diagnosis, run: Run | None) -> Story:
    """Return the story of a diagnosis; without its run it has no numbers."""
    problems = tuple(_problems(diagnosis))
    onset = problems[0].since if problems else None
    table, courses, broke = _numbers(diagnosis, run, onset)
    unanswered = tuple(_open(diagnosis)) if diagnosis.run.records else ()  # a configuration alone answers none
    return Story(
        verdict=diagnosis.verdict,
        because=_because(diagnosis, problems, unanswered),
        courses=courses,
        checks=_checks(diagnosis),
        broken=broke,
        table=table,
        problems=problems,
        remarks=_remarks(diagnosis, problems),
        open=unanswered,
        short=any(not question.metrics for question in unanswered) and 0 < diagnosis.run.records < FEW,
        reading=_reading(diagnosis, run),
    )


def _because(diagnosis: Diagnosis, problems: Sequence[Told], unanswered: Sequence[Open]) -> str:
    """Return why it was judged so; nothing where the problems tell, or the count of checks does."""
    if diagnosis.verdict == "healthy" or (problems and diagnosis.verdict != "inconclusive"):
        return ""
    if unanswered and diagnosis.verdict_because.startswith(LEFT_OPEN):
        return "nothing was found, but not every question could be answered"
    return _without_quantities(diagnosis)


def _without_quantities(diagnosis: Diagnosis) -> str:
    """Return why it was judged so, with the title of a check in the place of its quantities."""
    because = diagnosis.verdict_because
    for link in diagnosis.chain:
        if link.witness and because.endswith(f": {link.witness}"):
            shown = next((f.title for f in diagnosis.findings if f.status == "fired" and says(f) in link.witness), "")
            return because.removesuffix(f": {link.witness}") + (f": {shown}" if shown else "")
    leading = "; or: ".join(cause.title for cause in diagnosis.causes if cause.leader)
    return because.removesuffix(f": {leading}") if leading else because


def _numbers(
    diagnosis: Diagnosis, run: Run | None, onset: int | None
) -> tuple[Table | None, tuple[Course, ...], Broken | None]:
    """Return the table of a run, what became of it and what broke first; nothing without the run."""
    if run is None:
        return None, (), None
    from ppo_doctor.story.moments import courses, table  # numpy: only where there are numbers
    from ppo_doctor.story.nonfinite import broken

    harmless = [f for cause in diagnosis.causes if cause.leader and cause.benign for f in _shown(cause, diagnosis)]
    updates = diagnosis.run.updates_per_batch.effective
    calm = diagnosis.verdict == "healthy"
    drawn = table(run, _telling(diagnosis), onset, updates=updates, expected=harmless, calm=calm)
    ill = [f for cause in diagnosis.causes if cause.leader and not cause.benign for f in _shown(cause, diagnosis)]
    became = tuple(courses(run, drawn.moments)) if drawn is not None else ()
    return drawn, became, broken(run, ill)


def _problems(diagnosis: Diagnosis) -> Iterable[Told]:
    """Yield one problem per group of leading causes, in the order of the causes; none for what is harmless."""
    follows = {problem.id: problem.follows for problem in diagnosis.problems}
    groups: dict[str, list[RankedCause]] = {}
    for cause in diagnosis.causes:
        if cause.leader:
            groups.setdefault(cause.problem, []).append(cause)
    done: set[str] = set()
    for name, leaders in groups.items():
        if all(leader.benign for leader in leaders):
            continue
        yield _told(leaders, follows.get(name, ()), diagnosis, done)


def _told(leaders: Sequence[RankedCause], follows: tuple[str, ...], diagnosis: Diagnosis, done: set[str]) -> Told:
    cause = leaders[0]
    shown = _shown(cause, diagnosis)
    onsets = [leader.onset_step for leader in leaders if leader.onset_step is not None]
    do = tuple(action for action in actions(cause.remedies) if action.say not in done)
    done.update(action.say for action in do)
    return Told(
        rank=cause.rank,
        cause=cause.id,
        title=cause.title,
        confidence=cause.confidence,
        severity=cause.severity,
        since=min(onsets, default=None),
        place=next((place for finding in shown if (place := _place(finding, diagnosis))), None),
        seen=tuple(with_settings(finding) for finding in shown if finding.title != cause.title)[:MOST_SEEN],
        do=do,
        check=_check(cause, done),
        avoid=cause.avoid,
        level=tuple(leader.title for leader in leaders[1:]),
        follows=follows,
    )


def _shown(cause: RankedCause, diagnosis: Diagnosis) -> list[Finding]:
    """Return the checks that answered yes and speak for a cause, the weightiest first."""
    by_rule = {finding.rule: finding for finding in diagnosis.findings if finding.status == "fired"}
    ledger = sorted(cause.ledger, key=lambda entry: -entry.db)
    return [by_rule[entry.finding] for entry in ledger if entry.db > 0 and entry.finding in by_rule]


def _place(finding: Finding, diagnosis: Diagnosis) -> Place | None:
    containers = {source.path: source.container for source in diagnosis.run.sources}
    for evidence in finding.evidence:
        source = evidence.source
        if source is not None and source.line is not None:
            container = containers.get(source.path)
            unit = "event" if container == "tfevents" else "record" if container in IN_RECORDS else "line"
            return Place(path=source.path, line=source.line, unit=unit)
    return None


def _check(cause: RankedCause, done: set[str]) -> Check | None:
    """Return what would settle it; nothing for a cause that is established and alone, or what was asked for before."""
    measure: Measurement | None = next(iter(cause.would_change_my_mind), None)
    settled = cause.confidence == "established" and not cause.level_with
    if measure is None or settled or measure.log in done:
        return None
    done.add(measure.log)
    title = _DECIDES.sub("", measure.because)
    because = measure.because if title == measure.because else f"it tells whether {_lowered(title)}"
    return Check(log=measure.log, because=because)


def _lowered(title: str) -> str:
    """Return a title inside a sentence: names such as KL keep their capitals."""
    return title[:1].lower() + title[1:] if title[1:2].islower() or title[1:2] == " " else title


def _telling(diagnosis: Diagnosis) -> list[Finding]:
    """Return the checks whose metrics come first: those of the leading cause, else the gravest that answered yes."""
    leading = next((cause for cause in diagnosis.causes if cause.leader and not cause.benign), None)
    if leading is not None:
        return _shown(leading, diagnosis)
    return _seen(diagnosis) if diagnosis.verdict != "healthy" else []


def _seen(diagnosis: Diagnosis) -> list[Finding]:
    """Return the checks that answered yes, from medium severity on, and for which no leading cause accounts."""
    told = {e.finding for cause in diagnosis.causes if cause.leader for e in cause.ledger if e.db > 0}
    grave = [f for f in diagnosis.findings if f.status == "fired" and f.severity.at_least(Severity.MEDIUM)]
    return sorted((f for f in grave if f.rule not in told), key=lambda finding: finding.severity.rank)


def _remarks(diagnosis: Diagnosis, problems: Sequence[Told]) -> tuple[Remark, ...]:
    """Return what a reader should know beside problems: what explains oddities, and what was seen without a cause."""
    told = [title for problem in problems for title in (problem.title, *problem.level)]
    calm = [c for c in diagnosis.causes if c.leader and c.benign and c.title not in told]
    harmless = [Remark(title=cause.title, says=cause.says) for cause in calm]
    seen = [] if problems else [f for f in _seen(diagnosis) if f.title not in diagnosis.verdict_because]
    return (*harmless, *dict.fromkeys(Remark(title=_with_number(finding)) for finding in seen))[:MOST_REMARKS]


def _with_number(finding: Finding) -> str:
    """Return a check's title, and what it saw where that is a number; the table has what many records hold."""
    numbers = [e.statistic for e in finding.evidence if e.steps is None and _NUMBER.search(e.statistic)]
    return ": ".join((finding.title, *numbers[:1]))


def _open(diagnosis: Diagnosis) -> Iterable[Open]:
    """Yield the questions that stay open, with the metrics whose absence keeps them open."""
    loggable = set(diagnosis.coverage.missing_metrics)
    for question in QUESTIONS:
        if not getattr(diagnosis.coverage, question):
            reasons = diagnosis.coverage.unanswered.get(question, ())
            silent = [finding for finding in diagnosis.findings if finding.reason in reasons]
            names = dict.fromkeys(name for finding in silent for name in finding.missing if name in loggable)
            yield Open(question=ASKED[question], metrics=tuple(names)[:MOST_METRICS])


def _checks(diagnosis: Diagnosis) -> Checks:
    coverage = diagnosis.coverage
    failed = [finding for finding in diagnosis.findings if finding.status == "errored"]
    return Checks(
        clear=coverage.clear,
        noted=coverage.fired,
        not_run=coverage.skipped,
        unlogged=2 * sum(bool(finding.missing) for finding in diagnosis.findings) > coverage.skipped,
        left_out=len(diagnosis.suppressed),
        failed=tuple((f"{finding.code} {finding.rule}", finding.reason or "") for finding in failed),
    )


def _reading(diagnosis: Diagnosis, run: Run | None) -> tuple[str, ...]:
    """Return the gravest notes on reading; what the run died of is told with its facts."""
    kinds = {str(note): NOTE_KINDS.index(note.kind) for note in run.notes} if run is not None else {}
    notes = [note for note in diagnosis.run.notes if DIED not in note]
    return tuple(sorted(notes, key=lambda note: kinds.get(note, 0)))[:MOST_NOTES]
