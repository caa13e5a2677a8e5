"""The content that all reports print: `summarize` makes a `Summary` of a diagnosis, data without layout.

Text from logs and rules is not escaped here; each report escapes it for its format.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from enum import Enum
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

from ppo_doctor.model.evidence import became, brief, gone, number, says
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.model.rules import Remedy
from ppo_doctor.model.run import SourceRef
from ppo_doctor.model.words import ASKED, QUESTIONS, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ppo_doctor.model.diagnosis import Checkpoint, Cost, Diagnosis, Outcome, Problem, RankedCause
    from ppo_doctor.model.rules import Finding, Measurement
    from ppo_doctor.model.run import CodePlace, Run
    from ppo_doctor.model.words import Break, Confidence, Verdict

#: Containers that are not text files, so that a line number is of no use.
IN_RECORDS = ("tfevents", "wandb", "sqlite", "parquet", "npz", "npz-evaluations")
#: The most notes on reading, remarks, findings of a problem and remedies of a problem that a summary has.
MOST_NOTES, MOST_REMARKS, MOST_SEEN, MOST_REMEDIES = 2, 3, 2, 2
#: Checks of a decline of the reward; the sentence on the outcome already has their numbers.
OF_THE_LEVELS = ("reward-declines", "reward-below-its-start", "reward-collapses-late")
#: Kinds of notes, the most severe first.
NOTE_KINDS = ("said", "lost", "dropped", "skipped", "merged", "info", "renamed")
#: A run with fewer records than this leaves questions open whatever it logs.
FEW = 12
#: The open question about a reward that stopped rising, where there is no problem and no target was given.
TO_GAIN = "whether more can be earned (say how much is good with --target-return)"
#: Paths up to this length are never shortened.
SHORT_ENOUGH = 32
#: Matches a statistic that is a sentence with a number.
_NUMBER = lazy_pattern(r" .*\d")


@frozen
class Trend:
    """The first and last value of a metric; `word` is its name in a sentence, `key` the key in the log."""

    word: str
    key: str
    first: float
    last: float


@frozen
class FirstNonFinite:
    """The metrics that became NaN or infinite first, and the metric that grew most before, if any."""

    step: int
    keys: tuple[str, ...]
    value: float
    grew: Trend | None = None


@frozen
class KeyStep:
    """A step that has a column in the table, such as the onset."""

    name: str
    step: int


@frozen
class Row:
    """The values of a metric at the key steps of its table; None where none was logged."""

    name: str
    key: str
    values: tuple[float | None, ...]
    #: the usual range in sound runs, as printed; empty where none is documented
    usual: str = ""
    #: what is remarkable about the row, in a few words
    remark: str = ""


@frozen
class Table:
    """The values of the most important metrics at the key steps of a run."""

    key_steps: tuple[KeyStep, ...]
    rows: tuple[Row, ...]


@frozen
class Why:
    """A cause that explains a problem, and its confidence."""

    cause: str
    title: str
    confidence: Confidence


@frozen
class ProblemSummary:
    """A problem with its evidence, causes and remedies."""

    rank: int
    #: the problem as a sentence about this run
    title: str
    severity: Severity
    #: how the problem breaks its link of the chain
    state: Break = "wrong"
    since: int | None = None
    #: the file, with a line if it is a text file
    place: SourceRef | None = None
    #: the line of the training script that it is about
    code: CodePlace | None = None
    #: the statistics of its findings, the weightiest first
    seen: tuple[str, ...] = ()
    #: what the problem costs, if the log counts it
    cost: Cost | None = None
    #: the leading causes of the problem, harmless ones last
    why: tuple[Why, ...] = ()
    #: the remedies, in the order in which to try them
    do: tuple[Remedy, ...] = ()
    #: the measurement that would confirm or rule out the leading cause
    check: Measurement | None = None
    #: a tempting remedy that makes the problem worse
    avoid: str = ""
    #: the checkpoint to go back to, of the first problem of a run that fell or broke
    checkpoint: Checkpoint | None = None

    @property
    def cause(self) -> str:
        """Return the id of the leading cause, or "" where none is known."""
        return self.why[0].cause if self.why else ""

    @property
    def sure(self) -> bool:
        """Whether there is a leading cause that is more than suspected."""
        return bool(self.why) and self.why[0].confidence != "suspected"


@frozen
class Remark:
    """A harmless explanation with its meaning, or a finding of low severity with its number in the title."""

    title: str
    message: str = ""


@frozen
class Open:
    """A question that the log leaves open, and the metrics that would answer it, each on its own."""

    question: str
    metrics: tuple[str, ...] = ()


@frozen
class Checks:
    """The numbers of checks that are clear, did not run or were left out, and the checks that failed."""

    clear: int
    not_run: int
    #: whether most of those that did not run lack a metric
    unlogged: bool = False
    left_out: int = 0
    #: (check, reason) of those that failed
    failed: tuple[tuple[str, str], ...] = ()


@frozen
class Summary:
    """What every report prints of a diagnosis."""

    verdict: Verdict
    #: how the reward developed
    outcome: Outcome
    checks: Checks
    #: the reason of the verdict in one sentence; empty where the problems already give it
    because: str = ""
    entropy: Trend | None = None
    #: the error that ended the run, from the last lines of its console; empty if there is none
    died: str = ""
    #: where the numbers stop being finite
    broken: FirstNonFinite | None = None
    table: Table | None = None
    problems: tuple[ProblemSummary, ...] = ()
    #: harmless explanations, then findings of low severity
    remarks: tuple[Remark, ...] = ()
    #: the first step, if no problem has a remedy
    do: Remedy | None = None
    open: tuple[Open, ...] = ()
    #: whether the log has too few records to answer every question
    short: bool = False
    #: the most severe notes on reading
    reading: tuple[str, ...] = ()


def summarize(diagnosis: Diagnosis, run: Run | None) -> Summary:
    """Return the summary of a diagnosis; without its run the summary has no table, entropy or non-finite numbers."""
    problems = tuple(_problems(diagnosis))
    onset = problems[0].since if problems else None
    table, entropy, broken = _numbers(diagnosis, run, onset)
    unanswered = tuple(_open(diagnosis)) if diagnosis.run.records else ()  # a configuration alone answers nothing
    step = diagnosis.first_step
    return Summary(
        verdict=diagnosis.verdict,
        outcome=diagnosis.outcome,
        because=_because(diagnosis, problems, unanswered),
        entropy=entropy,
        checks=_checks(diagnosis),
        died=_death(diagnosis),
        broken=broken,
        table=table,
        problems=problems,
        remarks=_remarks(diagnosis, problems),
        do=None if any(problem.do for problem in problems) or not step else Remedy(do=step),
        open=unanswered,
        short=any(not question.metrics for question in unanswered) and 0 < _records(diagnosis) < FEW,
        reading=_reading(diagnosis, run),
    )


def _records(diagnosis: Diagnosis) -> int:
    """Return the number of records; beside observed updates a log may hold more rewards."""
    return max(diagnosis.run.records, diagnosis.outcome.records)


def _because(diagnosis: Diagnosis, problems: Sequence[ProblemSummary], unanswered: Sequence[Open]) -> str:
    """Return the reason of the verdict, or "" where the problems or the outcome already give it."""
    because = diagnosis.verdict_because
    if diagnosis.verdict == "healthy" or problems or _death(diagnosis):
        return ""
    if diagnosis.run.observed:
        return because.removesuffix(f": {became(diagnosis.outcome)}")
    if became(diagnosis.outcome) in because:
        return ""
    if unanswered and diagnosis.left_open:
        return "nothing was found, but not every question could be answered"
    # The title of a check reads better here than its statistic.
    for link in diagnosis.chain:
        if link.witness and because.endswith(f": {link.witness}"):
            title = next((f.title for f in _fired(diagnosis).values() if says(f) in link.witness), "")
            return because.removesuffix(f": {link.witness}") + (f": {title}" if title else "")
    return because


def _death(diagnosis: Diagnosis) -> str:
    """Return the last error that ended the run, or "" if the log has none."""
    return next((message for _, message in reversed(diagnosis.run.died)), "")


def _numbers(
    diagnosis: Diagnosis, run: Run | None, onset: int | None
) -> tuple[Table | None, Trend | None, FirstNonFinite | None]:
    """Return the table of a run, the trend of its entropy and its first non-finite numbers, each None if absent."""
    if run is None:
        return None, None, None
    from ppo_doctor.report.key_steps import entropy, first_non_finite, table  # numpy: only where there are numbers

    harmless = [f for cause in diagnosis.causes if cause.leader and cause.benign for f in support(cause, diagnosis)]
    updates = diagnosis.run.updates_per_batch.effective
    calm = diagnosis.verdict == "healthy"
    metrics = table(run, _evidence(diagnosis), onset, updates=updates, expected=harmless, calm=calm)
    trend = entropy(run, metrics.key_steps) if metrics is not None else None
    findings = [finding for problem in diagnosis.problems for finding in _findings(problem, diagnosis)]
    return metrics, trend, first_non_finite(run, findings)


def _problems(diagnosis: Diagnosis) -> Iterable[ProblemSummary]:
    """Yield the problems in their order; remedies and measurements of one are not repeated by later ones."""
    done: set[str] = set()
    for rank, problem in enumerate(diagnosis.problems, start=1):
        yield _problem(rank, problem, diagnosis, done)


def _problem(rank: int, problem: Problem, diagnosis: Diagnosis, done: set[str]) -> ProblemSummary:
    """Return one problem; `done` holds the recommendations so far, and those of this problem are added."""
    leaders = [cause for cause in diagnosis.causes if cause.problem == problem.id and cause.leader]
    causes = sorted(leaders, key=lambda cause: cause.benign)
    lead = next((cause for cause in causes if not cause.benign), None)
    of_cause = remedies(lead.remedies) if lead is not None and lead.confidence != "suspected" else ()
    next_step = [Remedy(do=problem.next_step)] if problem.next_step and not of_cause else []
    do = tuple(remedy for remedy in (*of_cause, *next_step) if remedy.do not in done)
    done.update(remedy.do for remedy in do)
    findings = _findings(problem, diagnosis)
    shown = findings or (support(lead, diagnosis) if lead is not None else [])
    repeated = OF_THE_LEVELS if problem.title == gone(diagnosis.outcome) else ()
    return ProblemSummary(
        rank=rank,
        title=problem.title,
        severity=problem.severity,
        state=problem.state,
        since=problem.since_step,
        place=_place(problem, shown, diagnosis),
        code=_code(shown, lead, diagnosis),
        seen=tuple(_statistic(f, problem.title) for f in shown if f.rule not in repeated)[:MOST_SEEN],
        cost=next((cost for finding in findings if (cost := diagnosis.costs.get(finding.rule))), None),
        why=tuple(Why(cause=c.id, title=c.title, confidence=c.confidence) for c in causes),
        do=do,
        check=_check(lead, done) if lead is not None else None,
        avoid=lead.avoid if do and lead is not None and not next_step else "",
        checkpoint=diagnosis.checkpoint if rank == 1 else None,
    )


def remedies(candidates: Sequence[Remedy]) -> tuple[Remedy, ...]:
    """Return the first `MOST_REMEDIES` remedies; after one with a value to set, no other for the same setting."""
    chosen: list[Remedy] = []
    for remedy in candidates:
        if (remedy.key or "") not in {each.key or "" for each in chosen if each.then not in (None, "")}:
            chosen.append(remedy)
    return tuple(chosen[:MOST_REMEDIES])


def _statistic(finding: Finding, title: str) -> str:
    """Return the statistic of a finding, preceded by its title unless the problem has the same one."""
    return brief(finding) if finding.title == title else f"{finding.title}: {brief(finding)}"


def _fired(diagnosis: Diagnosis) -> dict[str, Finding]:
    return {finding.rule: finding for finding in diagnosis.findings if finding.status == "fired"}


def _findings(problem: Problem, diagnosis: Diagnosis) -> list[Finding]:
    by_rule = {finding.rule: finding for finding in diagnosis.findings}
    return [by_rule[name] for name in problem.findings]


def support(cause: RankedCause, diagnosis: Diagnosis) -> list[Finding]:
    """Return the fired findings that support a cause, the weightiest first."""
    fired = _fired(diagnosis)
    ledger = sorted(cause.ledger, key=lambda entry: -entry.db)
    return [fired[entry.finding] for entry in ledger if entry.db > 0 and entry.finding in fired]


def _place(problem: Problem, shown: Sequence[Finding], diagnosis: Diagnosis) -> SourceRef | None:
    """Return the place of a problem: where the reward turned if the problem is its decline, else of its findings."""
    turn = [diagnosis.outcome.source] if problem.title == gone(diagnosis.outcome) else []
    sources = [*turn, *(evidence.source for finding in shown for evidence in finding.evidence)]
    source = next((source for source in sources if source is not None and source.line is not None), None)
    if source is None:
        return None
    container = next((each.container for each in diagnosis.run.sources if each.path == source.path), None)
    return SourceRef(path=source.path, line=None if container in IN_RECORDS else source.line)


def _code(shown: Sequence[Finding], lead: RankedCause | None, diagnosis: Diagnosis) -> CodePlace | None:
    """Return the line of the script that the findings of a problem are about, else those of its leading cause."""
    supporting = support(lead, diagnosis) if lead is not None else ()
    return next((finding.place for finding in (*shown, *supporting) if finding.place is not None), None)


def _check(cause: RankedCause, done: set[str]) -> Measurement | None:
    """Return the measurement that would settle a cause.

    None if the cause is established without a rival, or if an earlier problem asks for the same measurement.
    """
    measure = next(iter(cause.would_change_my_mind), None)
    certain = cause.confidence == "established" and not cause.level_with
    if measure is None or certain or measure.log in done:
        return None
    done.add(measure.log)
    title = measure.check_title
    return replace(measure, because=f"it tells whether {_lowered(title)}") if title else measure


def _lowered(title: str) -> str:
    """Return a title in lower case for the middle of a sentence; names such as KL keep their capitals."""
    return title[:1].lower() + title[1:] if title[1:2].islower() or title[1:2] == " " else title


def _evidence(diagnosis: Diagnosis) -> list[Finding]:
    """Return the findings of the first problem and of the leading cause, whose metrics come first in the table."""
    findings = [finding for problem in diagnosis.problems[:1] for finding in _findings(problem, diagnosis)]
    leading = next((cause for cause in diagnosis.causes if cause.leader and not cause.benign), None)
    return [*findings, *(support(leading, diagnosis) if leading is not None else ())]


def _remarks(diagnosis: Diagnosis, problems: Sequence[ProblemSummary]) -> tuple[Remark, ...]:
    """Return harmless explanations, then findings of low severity that no problem names; at most `MOST_REMARKS`."""
    explained = {why.cause for problem in problems for why in problem.why}
    calm = [cause for cause in diagnosis.causes if cause.leader and cause.benign and cause.id not in explained]
    harmless = [Remark(title=cause.title, message=cause.says) for cause in calm]
    named = {name for problem in diagnosis.problems for name in problem.findings}
    seen = "; ".join(words for problem in problems for words in problem.seen)
    low = [f for f in diagnosis.findings if f.status == "fired" and f.severity is Severity.LOW and f.rule not in named]
    new = [Remark(title=_with_number(finding)) for finding in low if brief(finding) not in seen]
    return (*harmless, *dict.fromkeys(new))[:MOST_REMARKS]


def _with_number(finding: Finding) -> str:
    """Return the title of a finding with its statistic if that is one number; the table has those of many records."""
    single = (e for e in finding.evidence if e.steps is None and _NUMBER.search(e.claim))
    # A setting is not in the table, so its value is printed here.
    numbers = [f"{e.raw} is {number(e.observed)}; {e.claim}" if e.raw == e.metric else e.claim for e in single]
    return ": ".join((finding.title, *numbers[:1]))


def _open(diagnosis: Diagnosis) -> Iterable[Open]:
    """Yield the open questions, with the metrics that would answer them."""
    reward = diagnosis.outcome
    if reward.what in ("flat", "levelled_off") and reward.reached is None and not diagnosis.problems:
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
    """Return the most severe notes on reading, without those on what ended the run."""
    kinds = {str(note): NOTE_KINDS.index(note.kind) for note in run.notes} if run is not None else {}
    notes = [note for note in diagnosis.run.notes if note not in dict(diagnosis.run.died)]
    return tuple(sorted(notes, key=lambda note: kinds.get(note, 0)))[:MOST_NOTES]


def folder(diagnosis: Diagnosis) -> str:
    """Return the folder that all paths of a run share, with its separator; "" if they are short or share none."""
    paths = [source.path for source in diagnosis.run.sources]
    if not paths or max(map(len, paths)) <= SHORT_ENOUGH:
        return ""
    shared = commonprefix(paths)
    return shared[: max(shared.rfind("/"), shared.rfind("\\")) + 1]


def relative(diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis with the shared folder removed from the paths in sentences, but not from the run's id."""
    prefix = folder(diagnosis)
    if not prefix:
        return diagnosis
    parts = {name: _without(getattr(diagnosis, name), prefix) for name in ("causes", "findings", "chain")}
    run = diagnosis.run
    return replace(
        diagnosis, run=replace(run, notes=_without(run.notes, prefix), died=_without(run.died, prefix)), **parts
    )


def _without(value: Any, prefix: str) -> Any:  # noqa: ANN401 (whatever a diagnosis is made of)
    """Return a value with a folder removed from every string in it."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return value.replace(prefix, "")
    if isinstance(value, tuple):
        return tuple(_without(each, prefix) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: _without(getattr(value, each.name), prefix) for each in fields(value)})
    return value
