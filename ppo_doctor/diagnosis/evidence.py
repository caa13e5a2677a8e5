"""The evidence behind a finding as data: numbers with bounds, records around them, lines of the log, and answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from ppo_doctor.model.arrays import median
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.evidence import drawn
from ppo_doctor.model.frozen import frozen
from ppo_doctor.readers.excerpts import TEXT, Excerpt, excerpt
from ppo_doctor.readers.samples import Answers, Sample, answers_in, tables_below
from ppo_doctor.runs.beside import homes
from ppo_doctor.runs.layouts import LOG_NAMES
from ppo_doctor.trainers.detection import profile

if TYPE_CHECKING:
    from ppo_doctor.model.diagnosis import Diagnosis, Outcome, Problem, RankedCause
    from ppo_doctor.model.rules import Evidence, Finding
    from ppo_doctor.model.run import Run, Series, SourceRef, SourceSummary

__all__ = ["Answers", "Quote", "Record", "Records", "Rests", "Sample", "Shown", "records_of", "show"]

Kind = Literal["finding", "cause", "problem"]

#: The most findings of a cause or a problem, metrics of a table, places with lines, and names in an error.
MOST_FINDINGS, MOST_METRICS, MOST_PLACES, MOST_NAMES = 4, 6, 3, 12
#: Records around the onset, and around the lowest and the highest value, on each side.
AROUND_ONSET, AROUND_EXTREMES = 2, 1
#: Stretches of which the course of a metric is made.
STRETCHES = 40
#: Lines after the first of a record that are searched for its keys where a record has several lines.
BELOW = 80
SHARED = "Many records stand in this line; the table has their numbers."
#: Links of the chain whose findings rest on samples.
OF_SAMPLES = frozenset(("rollout", "rewards", "returns", "advantages", "policy"))
#: Containers whose records have several lines.
SPREAD = ("json", "console", "notebook")


@frozen
class Record:
    """The metrics of one record; `mark` says what is remarkable about it, such as "onset", and may be empty."""

    mark: str
    step: int
    source: SourceRef
    values: tuple[float | None, ...]


@frozen
class Records:
    """Records around an onset and the extremes: names of the metrics as logged, our names for them, and their values.

    Values are those that were judged; `made` says for each metric how they are made of those in the log, if they are.
    """

    keys: tuple[str, ...]
    metrics: tuple[str, ...]
    made: tuple[str, ...]
    rows: tuple[Record, ...]
    #: how many records the first metric has, and its medians over stretches of them, from the first to the last
    of: int
    course: tuple[float | None, ...]
    #: what a place in the log counts
    places: Literal["line", "record"] = "line"


@frozen
class Quote:
    """Lines of a log around a place; where a record has several lines, its first and those that hold its keys."""

    place: SourceRef
    excerpt: Excerpt


@frozen
class Rests:
    """What a finding rests on: its numbers with bounds (`finding.evidence`), records, and lines of the log."""

    finding: Finding
    records: Records | None
    quotes: tuple[Quote, ...]


@frozen
class Shown:
    """The evidence behind a finding, a cause or a problem: that of each of its findings, and answers of the policy."""

    kind: Kind
    id: str
    title: str
    rests: tuple[Rests, ...]
    #: findings that are not shown for want of room
    further: tuple[str, ...] = ()
    #: of a problem that no finding shows, only the outcome: the records of the reward
    records: Records | None = None
    answers: Answers | None = None


def show(
    name: str, run: Run, diagnosis: Diagnosis, *, samples: Sequence[Path] = (), within: Sequence[Path] = ()
) -> Shown:
    """Return the evidence behind a finding, a cause or a problem of a run.

    `name` is an id, a code, a beginning of an id that fits only one, or the number of a problem in the report.
    `samples` are tables of answers, or folders with some; by default those beside the log are read, if a finding rests
    on samples. With `within`, only tables in these folders are read, wherever a link leads.

    Raises:
        DoctorError: the run has no such finding, or several (exit code 2), or `samples` has no table (exit code 3).
    """
    kind, id_, title, findings = _subject(name.strip(), diagnosis)
    shown = findings[:MOST_FINDINGS]
    since = min((f.onset_step for f in shown if f.onset_step is not None), default=None)
    wanted = bool(samples) or any(f.link in OF_SAMPLES and f.status == "fired" for f in findings)
    tables = [path for path in _tables(samples, run) if _lies_within(path, within)] if wanted else []
    rests = [(f, records_of(f, run)) for f in shown]
    return Shown(
        kind=kind,
        id=id_,
        title=title,
        rests=tuple(Rests(finding=f, records=held, quotes=tuple(_quotes(f, held, run))) for f, held in rests),
        further=tuple(finding.rule for finding in findings[MOST_FINDINGS:]),
        records=None if findings else _of_outcome(diagnosis.outcome, run),
        answers=answers_in(tables, since) if tables else None,
    )


def _subject(name: str, diagnosis: Diagnosis) -> tuple[Kind, str, str, list[Finding]]:
    """Return what a name means in a diagnosis: its kind, id and title, and its findings, the weightiest first."""
    number = re.fullmatch(r"p?(\d{1,4})", name)
    if number and 0 < int(number[1]) <= len(diagnosis.problems):
        problem = diagnosis.problems[int(number[1]) - 1]
        return "problem", problem.id, problem.title, _of_problem(problem, diagnosis)
    causes = {cause.id: cause for cause in diagnosis.causes}
    findings = {finding.rule: finding for finding in diagnosis.findings}
    id_ = _full(name, diagnosis)
    if id_ in causes:
        return "cause", id_, causes[id_].title, _of_cause(causes[id_], diagnosis)
    return "finding", id_, findings[id_].title, [findings[id_]]


def _full(name: str, diagnosis: Diagnosis) -> str:
    """Return the id that a name is, or that only it begins: of fired findings and causes first, then of all checks."""
    by_severity = sorted(diagnosis.findings, key=lambda finding: finding.severity.rank)
    fired = [finding.rule for finding in by_severity if finding.status == "fired"]
    ours = list(dict.fromkeys([*(cause.id for cause in diagnosis.causes), *fired]))
    every = list(dict.fromkeys([*ours, *(finding.rule for finding in diagnosis.findings)]))
    by_code = {finding.code.lower(): finding.rule for finding in diagnosis.findings}
    if name in every or name.lower() in by_code:
        return name if name in every else by_code[name.lower()]
    for ids in (ours, every):
        found = [id_ for id_ in ids if name and id_.startswith(name)]
        if len(found) == 1:
            return found[0]
        if found:
            raise DoctorError(f"'{name}' begins several findings", hint=_some(found), code=ExitCode.USAGE)
    numbered = [f"{number} ({problem.name})" for number, problem in enumerate(diagnosis.problems, start=1)]
    hint = _some([*numbered, *ours]) if ours else "nothing was found in it; analyze --all lists every check"
    raise DoctorError(f"no finding '{name}' in this run", hint=hint, code=ExitCode.USAGE)


def _some(names: Sequence[str]) -> str:
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return f"one of {', '.join([*names[:MOST_NAMES], *more])}"


def _of_problem(problem: Problem, diagnosis: Diagnosis) -> list[Finding]:
    """Return the findings of a problem; of one that the outcome shows, those of its leading cause."""
    by_rule = {finding.rule: finding for finding in diagnosis.findings}
    if problem.findings:
        return [by_rule[name] for name in problem.findings]
    lead = next((cause for cause in diagnosis.causes if cause.problem == problem.id), None)
    return _of_cause(lead, diagnosis) if lead is not None else []


def _of_cause(cause: RankedCause, diagnosis: Diagnosis) -> list[Finding]:
    fired = {finding.rule: finding for finding in diagnosis.findings if finding.status == "fired"}
    ledger = sorted(cause.ledger, key=lambda entry: -entry.db)
    return [fired[entry.finding] for entry in ledger if entry.db > 0 and entry.finding in fired]


def records_of(finding: Finding, run: Run) -> Records | None:
    """Return the records that a finding rests on; None if it rests on none, as on a setting."""
    named = (name for e in finding.evidence for name in (*drawn(e, run), *_named(e.claim, run)))
    names = [name for name in dict.fromkeys(named) if len(run.series[name])]
    if not names:
        return None
    series = [run.series[name] for name in names[:MOST_METRICS]]
    return _records(series, _marks(finding, series[0], run), run)


def _of_outcome(outcome: Outcome, run: Run) -> Records | None:
    """Return the records of the reward around its best and the step from which on it is what it became."""
    series = run.series.get(outcome.metric)
    if series is None or not len(series):
        return None
    marks = {0: "first", len(series) - 1: "last"}
    for name, step in (("best", outcome.best_step), ("onset", outcome.since_step)):
        at = len(series) if step is None else int(np.searchsorted(series.axis.steps, step))
        if at < len(series):
            marks |= {near: marks.get(near, "") for near in _near(at, AROUND_EXTREMES, len(series) - 1)} | {at: name}
    return _records([series], marks, run)


def _records(series: Sequence[Series], marks: Mapping[int, str], run: Run) -> Records:
    containers = {source.path: source.container for source in run.sources}
    return Records(
        keys=tuple(each.raw for each in series),
        metrics=tuple(each.name for each in series),
        made=tuple(_made(each, run.framework) for each in series),
        rows=tuple(_record(series, index, marks[index]) for index in sorted(marks)),
        of=len(series[0]),
        course=tuple(_course(series[0])),
        places="line" if containers.get(series[0].axis.path) in TEXT else "record",
    )


def _named(text: str, run: Run) -> Iterator[str]:
    """Yield the metrics whose names in the log a sentence contains."""
    for name, series in run.series.items():
        if series.raw in text and re.search(rf"(?<![\w/]){re.escape(series.raw)}(?![\w/])", text):
            yield name


def _made(series: Series, framework: str) -> str:
    """Return what was done to the numbers of a metric as a trainer logs them, such as "times -1"."""
    known = profile(framework).metrics.get(series.name)
    if known is None or series.raw not in known.keys:
        return ""
    parts = ["squared"] if known.root else []
    parts += [f"{known.antilog:.4g} to the power of it"] if known.antilog else []
    parts += [f"times {known.scale:g}"] if known.scale != 1 else []
    return ", ".join([*parts, *([f"plus {known.offset:g}"] if known.offset else [])])


def _course(series: Series) -> Iterator[float | None]:
    """Yield the median of each stretch of the records, None where no number is finite."""
    for stretch in np.array_split(series.values, min(STRETCHES, len(series))):
        finite = stretch[np.isfinite(stretch)]
        yield median(finite) if len(finite) else None


def _marks(finding: Finding, series: Series, run: Run) -> dict[int, str]:
    """Return the indices of the records to show with what is remarkable about them."""
    last = len(series) - 1
    marks = {0: "first", last: "last"}
    onset = _onset(finding, series)
    evidence = next((e for e in finding.evidence if series.name in drawn(e, run)), None)
    for name, index in _extremes(series, evidence, onset or 0):
        marks |= {at: marks.get(at, "") for at in _near(index, AROUND_EXTREMES, last)}
        marks[index] = name
    if onset is not None:
        marks |= {at: marks.get(at, "") for at in _near(onset, AROUND_ONSET, last)}
        marks[onset] = "onset"
    return marks


def _near(index: int, reach: int, last: int) -> range:
    return range(max(index - reach, 0), min(index + reach, last) + 1)


def _onset(finding: Finding, series: Series) -> int | None:
    if finding.onset_step is None:
        return None
    index = int(np.searchsorted(series.axis.steps, finding.onset_step))
    return index if index < len(series) else None


def _extremes(series: Series, evidence: Evidence | None, since: int) -> Iterator[tuple[str, int]]:
    """Yield the worst record from an onset on, by the bound; of a statistic of many records the lowest and highest."""
    values = series.values[since:]
    finite = np.flatnonzero(np.isfinite(values))
    if not len(finite) or evidence is None or np.ptp(values[finite]) == 0:
        return
    low, high = (since + int(finite[find(values[finite])]) for find in (np.argmin, np.argmax))
    if evidence.metric == series.name and evidence.op in ("<", "<="):
        yield "worst", low
    elif evidence.metric == series.name and evidence.op in (">", ">="):
        yield "worst", high
    elif evidence.metric != series.name:
        yield from (("lowest", low), ("highest", high))


def _record(series: Sequence[Series], index: int, mark: str) -> Record:
    first = series[0]
    step = int(first.axis.steps[index])
    return Record(
        mark=mark, step=step, source=first.source(index), values=tuple(_value(each, first, index) for each in series)
    )


def _value(series: Series, first: Series, index: int) -> float | None:
    """Return the value of a metric in a record of the first one: of the same record, or the last of the same step."""
    if series.axis is first.axis:
        return float(series.values[index])
    step = first.axis.steps[index]
    at = int(np.searchsorted(series.axis.steps, step, side="right")) - 1
    return float(series.values[at]) if at >= 0 and series.axis.steps[at] == step else None


def _quotes(finding: Finding, records: Records | None, run: Run) -> Iterator[Quote]:
    """Yield the lines of the log at the records that are marked, or else at the places of a finding's numbers."""
    rows = sorted(records.rows if records is not None else (), key=lambda row: row.mark != "onset")
    marked = [row.source for row in rows if row.mark not in ("", "first", "last")]
    sources = marked or [e.source for e in finding.evidence if e.source is not None]
    places: dict[tuple[str, int], list[SourceRef]] = {}
    for source in sources:
        if source.line is not None:
            places.setdefault((source.path, source.line), []).append(source)
    for group in list(places.values())[:MOST_PLACES]:
        keys = dict.fromkeys(key for place in group for key in (place.key or "").split(", ") if key)
        place = replace(group[0], key=", ".join(keys) or None)
        shared = sum(row.source.line == place.line for row in rows) > 1
        yield Quote(place=place, excerpt=Excerpt(because=SHARED)) if shared else _quote(place, run.sources)


def _quote(place: SourceRef, sources: tuple[SourceSummary, ...]) -> Quote:
    spread = any(source.path == place.path and source.container in SPREAD for source in sources)
    held = excerpt(place, sources, before=0, after=BELOW if spread else 0)
    if not spread or not held.lines:
        return Quote(place=place, excerpt=held)
    wanted = [key for key in (place.key or "").split(", ") if key]
    kept = [held.lines[0]]
    for number, text in held.lines:
        here = [key for key in wanted if re.search(rf"(?<![\w/]){re.escape(key)}(?![\w/])", text)]
        wanted = [key for key in wanted if key not in here]
        kept += [(number, text)] if here and number != kept[0][0] else []
    return Quote(place=place, excerpt=replace(held, lines=tuple(kept)))


def _lies_within(path: Path, folders: Sequence[Path]) -> bool:
    real = path.resolve()
    return not folders or any(real.is_relative_to(folder.resolve()) for folder in folders)


def _tables(given: Sequence[Path], run: Run) -> list[Path]:
    """Return the tables of answers that were named, or else those beside the log."""
    if not given:
        return list(dict.fromkeys(path for home in homes(run) for path in tables_below(home, of_another_run=LOG_NAMES)))
    found = [path for each in given for path in (tables_below(each) if each.is_dir() else [each] * each.is_file())]
    if not found:
        hint = "tables of TRL (completions_STEP.parquet), W&B (NAME.table.json), verl (STEP.jsonl) and NeMo-RL are read"
        raise DoctorError(f"{', '.join(map(str, given))}: no table of answers", hint=hint)
    return found
