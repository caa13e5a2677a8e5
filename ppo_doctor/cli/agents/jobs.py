"""What the tools do; `work.perform` calls it in a worker process that may read the allowed folders only."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.cli.agents import answers
from ppo_doctor.cli.agents.answers import Most
from ppo_doctor.cli.agents.places import resolved
from ppo_doctor.cli.agents.schema import (
    DATA,
    Account,
    Analysis,
    AnswerOf,
    AnswersOf,
    Basis,
    ChangeOf,
    ComparisonAnswer,
    Diverged,
    EventOf,
    Evidence,
    Fleet,
    FleetRun,
    Found,
    Inspected,
    Number,
    OtherRun,
    Page,
    PatchAnswer,
    Point,
    Record,
    Reward,
    SeparatorOf,
    SettingOf,
    Settle,
    SideOf,
    ToLog,
    Wanted,
    Watched,
)
from ppo_doctor.cli.options import read_runs
from ppo_doctor.diagnosis.analyze import diagnose
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.request import Request
from ppo_doctor.report.escape import plain, prose
from ppo_doctor.report.phrases import by_gravity
from ppo_doctor.report.summary import relative
from ppo_doctor.trainers.configuration import parse_setting
from ppo_doctor.trainers.detection import profiles

if TYPE_CHECKING:
    from ppo_doctor.cli.watch.monitor import Event
    from ppo_doctor.diagnosis.evidence import Record as RecordOf
    from ppo_doctor.diagnosis.evidence import Rests
    from ppo_doctor.fleets.separating import Separator
    from ppo_doctor.model.diagnosis import Diagnosis, RankedCause
    from ppo_doctor.model.run import Run
    from ppo_doctor.readers.samples import Sample
    from ppo_doctor.report.patch import Change

#: Most characters of a manual page or a diff in one answer, rows of a fleet's table, records around a finding, and
#: findings of a cause.
MOST_OF_PAGE, MOST_ROWS, MOST_RECORDS, MOST_BASES = 6000, 50, 10, 2
#: Most characters of a diagnosis, some 800 tokens.
SHORT = 2100
#: Most names of a list, longest line of a log, and longest answer of the policy.
MOST_NAMES, LONGEST_LINE, LONGEST_ANSWER = 12, 300, 300


class _Asked:
    """A source as a tool is asked about it: its runs, and how to judge them."""

    def __init__(
        self,
        roots: Sequence[Path],
        source: str,
        config: str | None = None,
        settings: Sequence[str] | None = None,
        framework: str | None = None,
        run: str | None = None,
    ) -> None:
        paths = [resolved(text, roots) for text in (source, config) if text is not None]
        self.request = Request(settings=dict(map(parse_setting, settings or ())), framework=framework)
        self.pack = load_pack()
        self.read = read_runs(list(map(str, paths)), self.request)
        self.runs = self.read.runs
        if run is not None:
            self.runs = [each for each in self.runs if run in (self.read.name(each), each.id)]
            if not self.runs:
                raise DoctorError(f"{source}: no run {run!r} there", hint="analyze lists them", code=ExitCode.USAGE)
        self.name = self.read.name

    def judged(self) -> list[tuple[Run, Diagnosis]]:
        """Return the runs with their diagnoses, the worst first."""
        pairs = [(run, diagnose(run, self.pack, self.request)) for run in self.runs]
        order = by_gravity([diagnosis for _, diagnosis in pairs], [run for run, _ in pairs])
        return [(run, diagnosis) for diagnosis, run in order if run is not None]


def analyze(roots: Sequence[Path], source: str, **options: Any) -> Analysis:  # noqa: ANN401 - those of _Asked
    """Diagnose the runs of a source, the worst in detail, as far as the answer stays short."""
    asked = _Asked(roots, source, **options)
    judged = asked.judged()
    for most in answers.MOST:
        answer = _analysis(asked, judged, most)
        if len(json.dumps(answer)) <= SHORT:
            break
    return answer


def _analysis(asked: _Asked, judged: Sequence[tuple[Run, Diagnosis]], most: Most) -> Analysis:
    run, diagnosis = judged[0]
    shown = answers.short(asked.name(run), run, diagnosis, most)
    answer = Analysis(runs=len(judged), diagnosis=shown, more=_more(diagnosis))
    if len(judged) > 1:
        answer["verdicts"] = dict(Counter(str(each.verdict) for _, each in judged))
        answer["others"] = [_other(asked.name(run), each) for run, each in judged[1 : most.others + 1]]
        if left := len(judged) - 1 - len(answer["others"]):
            answer["others_left_out"] = left
    if failed := asked.read.failed:
        answer["not_read"] = [prose(error.message, 120) for error in failed[:2]]
        if len(failed) > 2:
            answer["not_read"].append(f"and {len(failed) - 2} more")
    return answer


def _other(name: str, diagnosis: Diagnosis) -> OtherRun:
    other = OtherRun(run=name, verdict=str(diagnosis.verdict))
    if (leader := next((cause for cause in diagnosis.causes if cause.leader), None)) is not None:
        other["cause"] = leader.id
    return other


def _more(diagnosis: Diagnosis) -> list[str]:
    """Return the calls that say more about a diagnosis."""
    calls = [f"why(source, cause='{cause.id}')" for cause in diagnosis.causes if cause.leader][:2]
    findings = [name for problem in diagnosis.problems for name in problem.findings]
    calls += [f"evidence(source, finding='{name}')" for name in findings[:1]]
    sure = (each for each in diagnosis.causes if each.leader and not each.benign and each.confidence != "suspected")
    if any(cause.remedies and cause.remedies[0].then is not None for cause in sure):
        calls.append("propose_patch(source)")
    return calls if calls and diagnosis.verdict != "inconclusive" else [*calls, "what_to_log_next(source)"]


def why(roots: Sequence[Path], source: str, cause: str | None, **options: Any) -> Account:  # noqa: ANN401
    """Return the account of a cause, by default of the one that leads."""
    asked = _Asked(roots, source, **options)
    run, diagnosis = asked.judged()[0]
    return answers.account(asked.name(run), _cause(diagnosis, cause), run, diagnosis)


def _cause(diagnosis: Diagnosis, name: str | None) -> RankedCause:
    if not diagnosis.causes:
        raise DoctorError("no cause explains anything of this run", hint=f"it is {diagnosis.verdict}")
    if name is None:
        return next((cause for cause in diagnosis.causes if cause.leader), diagnosis.causes[0])
    known = {cause.id: cause for cause in diagnosis.causes}
    if name not in known:
        open_ = next((each.because for each in diagnosis.not_ruled_out if each.id == name), "")
        reason = f"it was not ruled out either: {open_}" if open_ else f"causes of this run: {', '.join([*known][:8])}"
        raise DoctorError(f"'{name}' is no cause of this run", hint=reason, code=ExitCode.USAGE)
    return known[name]


def prepare() -> None:
    """Load rules and profiles of trainers once, which lie in no folder that a client may read."""
    load_pack()
    profiles()


def explain(name: str, offset: int | None) -> Page:
    """Return a manual page, or the part of it from a character on."""
    from ppo_doctor.cli.pages import page

    text = page(name)
    if offset is None:
        return Page(name=plain(name), markdown=text)
    answer = Page(name=plain(name), markdown=text[offset : offset + MOST_OF_PAGE])
    if offset + MOST_OF_PAGE < len(text):
        answer["next_offset"] = offset + MOST_OF_PAGE
    return answer


def pages() -> dict[str, list[str]]:
    """Return the names of all manual pages by kind."""
    from ppo_doctor.cli.pages import entries

    names: dict[str, list[str]] = {}
    for entry in entries(load_pack()):
        names.setdefault(entry.folder, []).append(entry.name)
    return names


def compare(roots: Sequence[Path], a: str, b: str) -> ComparisonAnswer:
    """Return what differs between two runs or reports."""
    from ppo_doctor.cli.compare import compare_sources

    named = [str(resolved(text, roots)) for text in (a, b)]
    found = compare_sources(named, Request(), (), group=False)
    why_ = {each.difference: each.says for each in found.explanations}
    sides = []
    for side, outcome in zip((found.a, found.b), found.outcomes, strict=True):
        entry = SideOf(run=plain(side.name), verdicts=list(map(str, side.verdicts)), causes=list(side.causes))
        if outcome is not None:
            first, last, best = map(_number, (outcome.first, outcome.last, outcome.best))
            entry["reward"] = Reward(metric=outcome.metric, first=first, last=last, best=best)
        sides.append(entry)
    answer = ComparisonAnswer(different=found.different, sides=sides, diverged=[], settings=[])
    for divergence in (found.divergences or ())[:MOST_NAMES]:
        a_since, b_since = _number(divergence.a), _number(divergence.b)
        answer["diverged"].append(Diverged(metric=divergence.metric, from_step=divergence.step, a=a_since, b=b_since))
    for each in sorted(found.differences, key=lambda each: each not in why_)[:MOST_NAMES]:
        setting = SettingOf(key=plain(each.key), a=answers.value_of(each.a), b=answers.value_of(each.b))
        if each in why_:
            setting["may_explain"] = why_[each]
        answer["settings"].append(setting)
    left = max(len(found.differences) - MOST_NAMES, 0) + max(len(found.divergences or ()) - MOST_NAMES, 0)
    if left:
        answer["left_out"] = left
    return answer


def _number(number: float) -> Number:
    """Return a number for JSON, which has no NaN and no infinity: these are words."""
    return float(number) if math.isfinite(number) else str(float(number))


def inspect(roots: Sequence[Path], source: str, **options: Any) -> Inspected:  # noqa: ANN401
    """Return what was read of a source: metrics, settings, updates per batch, and which causes it can decide."""
    from ppo_doctor.diagnosis.inspection import inspect as inspection_of

    asked = _Asked(roots, source, **options)
    found = inspection_of(asked.runs[0], asked.pack)
    run = found.run
    settings = [(name, each) for name, each in sorted(run.config.items()) if each.how != "default"]
    quotes = answers.Quotes(answers.texts_of(run))
    answer = Inspected(
        run=asked.name(run),
        runs=len(asked.runs),
        framework=plain(run.framework),
        algorithm=plain(run.algorithm),
        steps=list(run.steps or ()),
        files=[f"{plain(each.path)}: {each.container}, {each.records} records" for each in run.sources[:MOST_NAMES]],
        metrics={each.name: plain(each.raw, 80) for each in found.mapped},
        unknown_keys=[plain(key, 80) for key, _ in found.unknown[:MOST_NAMES]],
        settings={name: answers.value_of(each.value) for name, each in settings[: 2 * MOST_NAMES]},
        updates_per_batch=[quotes.sentence(fact.says) for fact in (*found.updates, *found.asked)],
        can_judge=list(found.judged),
        cannot_judge=len(found.not_judged),
        notes=[quotes.sentence(str(note)) for note in run.notes[:4]],
        text_is=DATA,
    )
    if quoted := quotes.listed():
        answer["quoted"] = quoted
    return answer


def what_to_log_next(roots: Sequence[Path], source: str, **options: Any) -> ToLog:  # noqa: ANN401
    """Return the metrics that would settle most, and what would settle the causes that lead."""
    from ppo_doctor.diagnosis.inspection import wanted
    from ppo_doctor.report.summary import summarize

    asked = _Asked(roots, source, **options)
    run, diagnosis = asked.judged()[0]
    best = wanted(asked.pack, {finding.rule: finding for finding in diagnosis.findings})
    leaders = [cause for cause in diagnosis.causes if cause.leader and answers.settles(cause)]
    return ToLog(
        run=asked.name(run),
        metrics=[Wanted(metric=each.metric, would_judge=list(each.causes[:6])) for each in best],
        settle=[Settle(cause=cause.id, by=answers.settles(cause)) for cause in leaders[:4]],
        open=[each.question for each in summarize(diagnosis, run).open],
        how="explain(name=METRIC) says what a metric is; ppo_doctor.record writes these from a training script",
    )


def evidence(roots: Sequence[Path], source: str, finding: str, **options: Any) -> Evidence:  # noqa: ANN401
    """Return the numbers, the lines of the log and the answers of the policy that a finding rests on."""
    from ppo_doctor.diagnosis.evidence import show

    asked = _Asked(roots, source, **options)
    run, diagnosis = asked.judged()[0]
    shown = show(finding, run, diagnosis)
    quotes = answers.quotes_of(run, diagnosis)
    short = {each.rule: each for each in relative(diagnosis).findings}
    answer = Evidence(
        run=asked.name(run),
        id=shown.id,
        title=quotes.sentence(shown.title),
        basis=[_basis(each, answers.found(short[each.finding.rule], quotes)) for each in shown.rests[:MOST_BASES]],
        text_is=DATA,
    )
    if also := [*(each.finding.rule for each in shown.rests[MOST_BASES:]), *shown.further]:
        answer["also"] = also[:MOST_NAMES]
    if (held := shown.answers) is not None:
        answer["answers"] = AnswersOf(
            out_of=held.rows, highest=list(map(_answer, held.highest)), longest=list(map(_answer, held.longest))
        )
    if quoted := quotes.listed():
        answer["quoted"] = quoted
    return answer


def _basis(rests: Rests, finding: Found) -> Basis:
    basis = Basis(finding=finding)
    if rests.records is not None:
        basis["metrics"] = list(rests.records.metrics)
        basis["points"] = [_point(each) for each in rests.records.rows[:MOST_RECORDS]]
    for quote in rests.quotes[:1]:
        if quote.excerpt.lines:
            basis["file"] = plain(quote.place.path)
            lines = quote.excerpt.lines[:MOST_RECORDS]
            basis["records"] = [Record(line=line, text=plain(text, LONGEST_LINE)) for line, text in lines]
    return basis


def _point(row: RecordOf) -> Point:
    point = Point(step=row.step, values=[None if each is None else _number(each) for each in row.values])
    if row.mark:
        point["mark"] = row.mark
    if row.source.line is not None:
        point["line"] = row.source.line
    return point


def _answer(sample: Sample) -> AnswerOf:
    answer = AnswerOf(length=sample.length, text=prose(sample.answer, LONGEST_ANSWER))
    if sample.step is not None:
        answer["step"] = sample.step
    if sample.reward is not None and math.isfinite(sample.reward):
        answer["reward"] = sample.reward
    return answer


def propose_patch(roots: Sequence[Path], source: str, **options: Any) -> PatchAnswer:  # noqa: ANN401
    """Return the changes of settings that established and likely causes ask for; nothing is written."""
    from ppo_doctor.cli.patch import visible
    from ppo_doctor.report.patch import propose

    asked = _Asked(roots, source, **options)
    run, diagnosis = asked.judged()[0]
    patch = propose(diagnosis, run)
    quotes = answers.quotes_of(run, diagnosis)
    changes = [_change(each, quotes) for each in patch.changes]
    notes = [quotes.sentence(note, 300) for note in patch.notes[:MOST_NAMES]]
    answer = PatchAnswer(run=asked.name(run), applied=False, changes=changes, notes=notes, text_is=DATA)
    diff = visible(patch.diff)
    if 0 < len(diff) <= MOST_OF_PAGE:
        answer["diff"] = diff
    elif diff:
        answer["notes"].append("the diff is long: ppo-doctor analyze --patch prints it in a shell")
    if quoted := quotes.listed():
        answer["quoted"] = quoted
    return answer


def _change(each: Change, quotes: answers.Quotes) -> ChangeOf:
    now, to = answers.value_of(each.old), answers.value_of(each.new)
    change = ChangeOf(cause=each.cause, key=plain(each.key), now=now, to=to)
    if each.file:
        change["at"] = plain(each.place)
    if each.reason:
        change["not_in_diff"] = quotes.sentence(each.reason)
    return change


def fleet_query(
    roots: Sequence[Path], table: str, where: Mapping[str, str] | None, having: str | None, limit: int
) -> Fleet:
    """Return counts and rows of a fleet's table."""
    from ppo_doctor.fleets.summary import COLUMNS, gravity, summarize
    from ppo_doctor.fleets.table import Table

    path = resolved(table, roots)
    if path.is_dir():
        hint = "name the file that ppo-doctor fleet --out wrote"
        raise DoctorError(f"{table} is a folder", hint=hint, code=ExitCode.USAGE)
    columns = ("status", "verdict", "cause", "trainer", "model", "environment", "outcome")
    if unknown := set(where or ()) - set(columns):
        hint = f"columns: {', '.join(columns)}"
        raise DoctorError(f"no column {', '.join(sorted(unknown))} to choose by", hint=hint, code=ExitCode.USAGE)
    for part in path.with_name(f"{path.name}.parts").glob("part-*.parquet"):  # of a call that was interrupted
        resolved(str(part), roots)

    def chosen() -> Iterator[Mapping[str, Any]]:
        return (row for row in Table(path).rows(COLUMNS) if _matches(row, where or {}, having))

    summary = summarize(chosen())  # in two passes, because a table may be larger than the memory
    worst = nsmallest(min(limit, MOST_ROWS), (row for row in chosen() if row["status"] == "judged"), key=gravity)
    return Fleet(
        runs=summary.runs,
        judged=summary.judged,
        failed=summary.failed,
        verdicts=dict(summary.verdicts),
        causes={plain(each.id): each.runs for each in summary.causes[:MOST_NAMES]},
        findings={plain(each.id): each.runs for each in summary.findings[:MOST_NAMES]},
        separating=[_separator(each) for each in summary.separating.found[:5]],
        rows=[_row(row) for row in worst],
    )


def _matches(row: Mapping[str, Any], where: Mapping[str, str], having: str | None) -> bool:
    """Return whether a row has the wanted values, and the wanted finding or cause."""
    if any(row[name] != value for name, value in where.items()):
        return False
    ids = {each["id"] for each in (*(row["findings"] or ()), *(row["causes"] or ()))}
    return having is None or having in ids


def _separator(each: Separator) -> SeparatorOf:
    return SeparatorOf(
        setting=plain(each.setting, 80),
        value=plain(each.value, 80),
        runs=each.runs,
        unhealthy=each.broken,
        others=each.runs_others,
        unhealthy_others=each.broken_others,
    )


def _row(row: Mapping[str, Any]) -> FleetRun:
    run, source, verdict, cause = (plain(str(row[name])) for name in ("run", "source", "verdict", "cause"))
    shown = FleetRun(run=run, source=source, verdict=verdict, cause=cause)
    if row["onset_step"] is not None:
        shown["since_step"] = row["onset_step"]
    return shown


def watch(roots: Sequence[Path], source: str, cursor: str | None, **options: Any) -> Watched:  # noqa: ANN401
    """Return what has happened to a run since a cursor; without one, what it is like now."""
    from ppo_doctor.cli.agents.cursor import Cursor, seen

    asked = _Asked(roots, source, **options)
    run = asked.runs[-1]
    before = Cursor.read(cursor) if cursor else None
    now, monitor = seen(run, lambda each: diagnose(each, asked.pack, asked.request))
    diagnosis = monitor.diagnosis
    quotes = answers.quotes_of(run, diagnosis) if diagnosis is not None else answers.Quotes(())
    events = [replace(event, text=quotes.sentence(event.text)) for event in now.events_since(before, monitor, run)]
    answer = Watched(
        run=asked.name(run),
        runs=len(asked.runs),
        updates=now.updates,
        new_updates=now.updates - (before.updates if before is not None else 0),
        verdict=now.verdict,
        events=[_event(event) for event in events],
        cursor=now.text(),
    )
    if run.steps:
        answer["step"] = run.steps[1]
    if listed := quotes.listed():
        answer["quoted"] = listed
    return answer


def _event(event: Event) -> EventOf:
    answer = EventOf(kind=event.kind, text=event.text)
    if event.step is not None:
        answer["step"] = event.step
    if event.severity is not None:
        answer["severity"] = str(event.severity)
    return answer


#: What may read the allowed folders, and what reads only the package itself.
JOBS: Mapping[str, Callable[..., Any]] = {
    job.__name__: job
    for job in (analyze, why, compare, inspect, evidence, what_to_log_next, propose_patch, watch, fleet_query)
}
MANUAL: Mapping[str, Callable[..., Any]] = {"explain": explain, "pages": pages}
