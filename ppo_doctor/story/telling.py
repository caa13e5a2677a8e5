"""Tell a diagnosis as a story; pure, from the diagnosis and the run that it is of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ppo_doctor.evidence import became, brief, gone, number, says
from ppo_doctor.model import ASKED, DIED, LEFT_OPEN, QUESTIONS, WOULD_DECIDE, Severity
from ppo_doctor.story.actions import actions
from ppo_doctor.story.model import Action, Check, Checks, Open, Place, Remark, Story, Told, Why

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ppo_doctor.model import Diagnosis, Finding, Measurement, Problem, RankedCause, Run, SourceRef
    from ppo_doctor.story.model import Broken, Course, Table

#: What stands in no text file, where nobody can look a line up.
IN_RECORDS = ("tfevents", "wandb", "sqlite", "parquet", "leveldb", "npz", "npz-evaluations")
#: Notes on reading, and remarks, in a story.
MOST_NOTES, MOST_REMARKS = 2, 3
#: Checks that a problem is shown by.
MOST_SEEN = 2
#: Checks of a reward's fall, whose numbers what became of the reward tells already, by other means.
OF_THE_LEVELS = ("reward-declines", "reward-below-its-start", "reward-collapses-late")
#: The gravest first.
NOTE_KINDS = ("said", "lost", "dropped", "skipped", "merged", "info", "renamed")
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
    step = diagnosis.first_step
    table, entropy, broke = _numbers(diagnosis, run, onset)
    unanswered = tuple(_open(diagnosis)) if diagnosis.run.records else ()  # a configuration alone answers none
    return Story(
        verdict=diagnosis.verdict,
        outcome=diagnosis.outcome,
        because=_because(diagnosis, problems, unanswered),
        entropy=entropy,
        checks=_checks(diagnosis),
        died=_death(diagnosis),
        broken=broke,
        table=table,
        problems=problems,
        remarks=_remarks(diagnosis, problems),
        do=None if any(problem.do for problem in problems) or not step else Action(say=step),
        open=unanswered,
        short=any(not question.metrics for question in unanswered) and 0 < diagnosis.run.records < FEW,
        reading=_reading(diagnosis, run),
    )


def _because(diagnosis: Diagnosis, problems: Sequence[Told], unanswered: Sequence[Open]) -> str:
    """Return why it was judged so; nothing where problems or what became of the reward tell."""
    if (
        diagnosis.verdict == "healthy"
        or problems
        or _death(diagnosis)
        or became(diagnosis.outcome) in diagnosis.verdict_because
    ):
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
    return because


def _death(diagnosis: Diagnosis) -> str:
    """Return what ended the run; nothing where no line of it tells."""
    told = (note.partition(f"{DIED}: ")[2] for note in diagnosis.run.notes)
    return next(filter(None, reversed(list(told))), "")


def _numbers(
    diagnosis: Diagnosis, run: Run | None, onset: int | None
) -> tuple[Table | None, Course | None, Broken | None]:
    """Return the table of a run, what became of its entropy and what broke first; nothing without the run."""
    if run is None:
        return None, None, None
    from ppo_doctor.story.moments import entropy, table  # numpy: only where there are numbers
    from ppo_doctor.story.nonfinite import broken

    harmless = [f for cause in diagnosis.causes if cause.leader and cause.benign for f in _shown(cause, diagnosis)]
    updates = diagnosis.run.updates_per_batch.effective
    calm = diagnosis.verdict == "healthy"
    drawn = table(run, _telling(diagnosis), onset, updates=updates, expected=harmless, calm=calm)
    ill = [finding for problem in diagnosis.problems for finding in _findings(problem, diagnosis)]
    spent = entropy(run, drawn.moments) if drawn is not None else None
    return drawn, spent, broken(run, ill)


def _problems(diagnosis: Diagnosis) -> Iterable[Told]:
    """Yield the problems in their order, each with the causes that lead it."""
    done: set[str] = set()
    for rank, problem in enumerate(diagnosis.problems, start=1):
        leaders = [cause for cause in diagnosis.causes if cause.problem == problem.id and cause.leader]
        yield _told(rank, problem, leaders, diagnosis, done)


def _told(rank: int, problem: Problem, leaders: Sequence[RankedCause], diagnosis: Diagnosis, done: set[str]) -> Told:
    found = _findings(problem, diagnosis)
    causes = sorted(leaders, key=lambda cause: cause.benign)
    lead = next((cause for cause in causes if not cause.benign), None)
    remedies = lead.remedies if lead is not None and lead.confidence != "suspected" else ()
    asked = [Action(say=problem.next_step)] if problem.next_step and not remedies else []
    do = tuple(action for action in (*actions(remedies), *asked) if action.say not in done)
    done.update(action.say for action in do)
    shown = [*found, *(_shown(lead, diagnosis) if lead is not None and not found else ())]
    repeated = OF_THE_LEVELS if problem.title == gone(diagnosis.outcome) else ()
    return Told(
        rank=rank,
        title=problem.title,
        severity=problem.severity,
        state=problem.state,
        since=problem.since_step,
        place=_where(problem, shown, diagnosis),
        seen=tuple(_numbers_of(f, problem.title) for f in shown if f.rule not in repeated)[:MOST_SEEN],
        cost=next((cost for finding in found if (cost := diagnosis.costs.get(finding.rule))), None),
        why=tuple(Why(cause=c.id, title=c.title, confidence=c.confidence) for c in causes),
        do=do,
        check=_check(lead, done) if lead is not None else None,
        avoid=lead.avoid if do and lead is not None and not asked else "",
    )


def _numbers_of(finding: Finding, title: str) -> str:
    """Return what a check saw, with its title where that does not stand above it."""
    numbers = brief(finding)
    return numbers if finding.title == title else f"{finding.title}: {numbers}"


def _findings(problem: Problem, diagnosis: Diagnosis) -> list[Finding]:
    by_rule = {finding.rule: finding for finding in diagnosis.findings}
    return [by_rule[name] for name in problem.findings]


def _shown(cause: RankedCause, diagnosis: Diagnosis) -> list[Finding]:
    """Return the checks that answered yes and speak for a cause, the weightiest first."""
    by_rule = {finding.rule: finding for finding in diagnosis.findings if finding.status == "fired"}
    ledger = sorted(cause.ledger, key=lambda entry: -entry.db)
    return [by_rule[entry.finding] for entry in ledger if entry.db > 0 and entry.finding in by_rule]


def _where(problem: Problem, shown: Sequence[Finding], diagnosis: Diagnosis) -> Place | None:
    """Return where a problem shows: in its findings, or where the reward went wrong."""
    source = diagnosis.outcome.source if problem.title == gone(diagnosis.outcome) else None
    turn = _at(source, diagnosis) if source is not None else None
    return turn or next((place for finding in shown if (place := _place(finding, diagnosis))), None)


def _place(finding: Finding, diagnosis: Diagnosis) -> Place | None:
    sources = (evidence.source for evidence in finding.evidence if evidence.source is not None)
    return next((place for source in sources if (place := _at(source, diagnosis))), None)


def _at(source: SourceRef, diagnosis: Diagnosis) -> Place | None:
    if source.line is None:
        return None
    container = next((each.container for each in diagnosis.run.sources if each.path == source.path), None)
    return Place(path=source.path, line=None if container in IN_RECORDS else source.line)


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
    """Return the checks whose metrics come first: those of the first problem and of its leading cause."""
    shown = [finding for problem in diagnosis.problems[:1] for finding in _findings(problem, diagnosis)]
    leading = next((cause for cause in diagnosis.causes if cause.leader and not cause.benign), None)
    return [*shown, *(_shown(leading, diagnosis) if leading is not None else ())]


def _remarks(diagnosis: Diagnosis, problems: Sequence[Told]) -> tuple[Remark, ...]:
    """Return what explains oddities without a fault, then what was seen that is of low severity, with its number."""
    told = {why.cause for problem in problems for why in problem.why}
    calm = [cause for cause in diagnosis.causes if cause.leader and cause.benign and cause.id not in told]
    harmless = [Remark(title=cause.title, says=cause.says) for cause in calm]
    named = {name for problem in diagnosis.problems for name in problem.findings}
    seen = "; ".join(words for problem in problems for words in problem.seen)
    fired = [
        f for f in diagnosis.findings if f.status == "fired" and f.severity is Severity.LOW and f.rule not in named
    ]
    low = [finding for finding in fired if brief(finding) not in seen]
    return (*harmless, *dict.fromkeys(Remark(title=_with_number(finding)) for finding in low))[:MOST_REMARKS]


def _with_number(finding: Finding) -> str:
    """Return a check's title, and what it saw where that is a number; the table has what many records hold."""
    alone = (e for e in finding.evidence if e.steps is None and _NUMBER.search(e.statistic))
    # of a setting its value is said, which no table shows
    numbers = [f"{e.raw} is {number(e.observed)}; {e.statistic}" if e.raw == e.metric else e.statistic for e in alone]
    return ": ".join((finding.title, *numbers[:1]))


#: What a reward that does not rise, or no longer, leaves open where nothing else is found and no target was told.
TO_GAIN = "whether more can be earned (say how much is good with --target-return)"


def _open(diagnosis: Diagnosis) -> Iterable[Open]:
    """Yield the questions that stay open, with the metrics whose absence keeps them open."""
    if (
        diagnosis.outcome.what in ("flat", "levelled_off")
        and diagnosis.outcome.reached is None
        and not diagnosis.problems
    ):
        yield Open(question=TO_GAIN)
    for question in QUESTIONS:
        if not getattr(diagnosis.coverage, question):
            yield Open(question=ASKED[question], metrics=tuple(diagnosis.coverage.would_answer.get(question, ())))


def _checks(diagnosis: Diagnosis) -> Checks:
    coverage = diagnosis.coverage
    failed = [finding for finding in diagnosis.findings if finding.status == "errored"]
    return Checks(
        clear=coverage.clear,
        not_run=coverage.skipped,
        unlogged=2 * sum(bool(finding.missing) for finding in diagnosis.findings) > coverage.skipped,
        left_out=len(diagnosis.suppressed),
        failed=tuple((f"{finding.code} {finding.rule}", finding.reason or "") for finding in failed),
    )


def _reading(diagnosis: Diagnosis, run: Run | None) -> tuple[str, ...]:
    """Return the gravest notes on reading; what the run died of is told first."""
    kinds = {str(note): NOTE_KINDS.index(note.kind) for note in run.notes} if run is not None else {}
    notes = [note for note in diagnosis.run.notes if DIED not in note]
    return tuple(sorted(notes, key=lambda note: kinds.get(note, 0)))[:MOST_NOTES]
