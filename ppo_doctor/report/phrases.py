"""Sentences of a summary that all reports print; each report escapes them for its format."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import replace
from os.path import commonprefix
from typing import TYPE_CHECKING

from ppo_doctor.model.evidence import became, way
from ppo_doctor.report.escape import plain
from ppo_doctor.report.words import (
    LONGEST_BOUND,
    bound,
    capital,
    count,
    flowing,
    listed,
    remedy_says,
    run_facts,
    sentence,
    short,
    stopped,
    updates,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ppo_doctor.model.diagnosis import Diagnosis, Outcome, RankedCause, RunSummary, UpdatesPerBatch
    from ppo_doctor.model.rules import Finding, Measurement
    from ppo_doctor.model.run import SourceRef
    from ppo_doctor.report.summary import Checks, FirstNonFinite, Open, ProblemSummary, Row, Summary, Table, Trend

#: Shorter paths are printed as given everywhere.
SHORT_ENOUGH = 32
#: Metrics that are named of those that broke first.
MOST_BROKEN = 2
#: Columns that are named of those that were read by their company, or not understood, and the longest of their names.
MOST_NAMES, LONGEST_NAME = 3, 24
#: With so many times more checks that did not run, the number of clear checks is introduced by "only".
THIN = 8


def outcome(summary: Summary, *, medians: bool = True) -> str:
    """Return in a sentence what became of the run, then what only the verdict can say."""
    of = _of_which(summary.outcome) if medians else ""
    parts = [became(summary.outcome) + of, _evaluation(summary.outcome), _target(summary.outcome)]
    parts.append(_trend(summary.entropy) if summary.entropy is not None else "")
    sentences = [stopped(f"The run died: {flowing(summary.died)}")] if summary.died else []
    sentences += [stopped(capital(flowing("; ".join(filter(None, parts)))))] if any(parts) else []
    if summary.because:
        sentences.append(stopped(capital(flowing(summary.because))))
    if summary.verdict == "healthy":
        sentences.append(stopped(capital(_answered(summary.checks))))
    return " ".join([*sentences, *([_broken(summary.broken)] if summary.broken is not None else [])])


def _of_which(reward: Outcome) -> str:
    """Return of which records the first and the last level are medians, where the two are summary."""
    if not reward.early or reward.what == "too_short" or " → " not in way(reward):
        return ""
    return f" ({bound(f'medians: first {reward.early},')} {bound(f'last {reward.late} records')})"


def _evaluation(reward: Outcome) -> str:
    """Return what became of the evaluation, where there is one."""
    tested = reward.evaluation
    if tested is None or tested.start is None or tested.end is None:
        return ""
    return f"evaluation ({plain(tested.key)}) {way(tested)}"


def _target(reward: Outcome) -> str:
    if reward.target is None:
        return ""
    return f"the target of {short(reward.target)} is {'' if reward.reached else 'not '}reached"


def _broken(broken: FirstNonFinite) -> str:
    """Return which metric was the first not to be finite, and what had grown before."""
    named = [plain(key) for key in broken.keys[:MOST_BROKEN]]
    named += [bound(f"{len(broken.keys) - MOST_BROKEN} more")] if len(broken.keys) > MOST_BROKEN else []
    first = f"First {short(broken.value)} at {bound(f'step {broken.step}')}, in {listed(named, 'and')}"
    if broken.grew is None:
        return f"{first}."
    rose = bound(f"{short(broken.grew.first)} → {short(broken.grew.last)}")
    return f"{first}; before it {plain(broken.grew.key)} rose {rose}."


def _trend(trend: Trend) -> str:
    key = f" ({plain(trend.key)})" if trend.word != trend.key else ""
    return f"{trend.word}{key} {bound(f'{short(trend.first)} → {short(trend.last)}')}"


def _answered(checks: Checks) -> str:
    """Return how many checks were answered with no, and how many could not be asked."""
    few = "only " * (THIN * checks.clear < checks.not_run)
    return f"{few}{count(checks.clear, 'check')} clear, {_not_run(checks)}"


def _not_run(checks: Checks) -> str:
    mostly = ", mostly for lack of metrics" if checks.unlogged and checks.not_run else ""
    return f"{checks.not_run} not run{mostly}"


def first_action(summary: Summary) -> str:
    """Return the first thing to do; nothing where there is nothing."""
    first = (problem.do[0] for problem in summary.problems if problem.do)
    step = next(first, summary.do)
    return remedy_says(step) if step is not None else ""


def facts(diagnosis: Diagnosis) -> list[str]:
    """Return what was read, with how many updates a batch is used for in words."""
    run = diagnosis.run
    long = updates(run.updates_per_batch)
    ours = [_updates(run.updates_per_batch) if fact == long else fact for fact in run_facts(run)]
    return [*ours, count(len(run.sources), "file")] if len(run.sources) > 1 else ours


def _updates(k: UpdatesPerBatch) -> str:
    if k.effective is None or not math.isfinite(k.effective):
        return updates(k)
    words = bound(f"{short(k.effective)} update{'' if k.effective == 1 else 's'} per batch")
    return f"{words} {bound('by default')}" if k.how == "default" else words


def row_name(row: Row) -> str:
    """Return what a row is called: the key as logged, and for an entropy what its sign is that of."""
    key = plain(row.key)
    return f"entropy ({key})" if row.name == "entropy" and "loss" in row.key.rpartition("/")[2] else key


def beside(table: Table) -> list[str]:
    """Return which columns a table has beside its key steps: what is usual, what stands out."""
    return [name for name in ("usual", "remark") if any(getattr(row, name) for row in table.rows)]


def cells(row: Row) -> list[str]:
    """Return the numbers of a row; a dash where the metric was not logged yet."""
    return ["–" if value is None else short(value) for value in row.values]


def title(problem: ProblemSummary) -> str:
    """Return what a problem is called: what is shown."""
    return flowing(problem.title)


def standing(problem: ProblemSummary, diagnosis: Diagnosis) -> list[str]:
    """Return how grave a problem is, since when, and where it shows."""
    since = [bound(f"since step {problem.since}")] if problem.since is not None else []
    place = bound(_place(problem.place, diagnosis)) if problem.place is not None else ""
    return [problem.severity.value, *since, *filter(None, [place])]


def _place(place: SourceRef, diagnosis: Diagnosis) -> str:
    """Return a place; the file is named where there are several."""
    where = f"line {place.line}" if place.line is not None else ""
    if len(diagnosis.run.sources) == 1 and diagnosis.run.sources[0].path == place.path:
        return where
    return f"{plain(place.path.removeprefix(folder(diagnosis)))} {where}".rstrip()


def advice(
    problem: ProblemSummary, *, seen: int = 2, resort: bool = True, because: bool = True
) -> list[tuple[str, str]]:
    """Return what shows a problem, why it is so, what to do, what would settle it, and what not to do.

    What is only suspected is settled first.
    """
    lines = [("seen", "; ".join(map(flowing, problem.seen[:seen])))] if problem.seen[:seen] else []
    if problem.cost is not None:
        lines.append(("cost", f"{problem.cost.share:.0%} of the run: {problem.cost.what}"))
    lines += _why(problem)
    asked = problem.check if because or problem.check is None else replace(problem.check, because="")
    check = [("check", _settles(asked))] if asked is not None else []
    actions = problem.do if resort else problem.do[:1]
    do = [("then" if i else "do", remedy_says(action)) for i, action in enumerate(actions)]
    lines += [*do, *check] if problem.sure else [*check, *do]
    return [*lines, *([("not", sentence(problem.avoid))] if problem.avoid else [])]


def _why(problem: ProblemSummary) -> list[tuple[str, str]]:
    """Return the leading cause with its confidence, and under it those that the log cannot tell from it."""
    if not problem.why:
        return [("why", "not told by this log")] if problem.state == "course" else []
    first, *others = problem.why
    lines = [("why", f"{first.confidence}: {flowing(first.title)}")]
    alike = [flowing(why.title) for why in others if why.confidence == first.confidence]
    if alike:
        lines.append(("or", f"{'; or: '.join(alike)} (this log cannot tell which)"))
    lines += [
        ("also", f"{why.confidence}: {flowing(why.title)}") for why in others if why.confidence != first.confidence
    ]
    return lines


def _settles(check: Measurement) -> str:
    verb = "tell" if check.log.startswith("--set ") else "log"
    because = f": {flowing(check.because)}" if check.because else ""
    return stopped(f"{verb} {flowing(check.log)}{because}")


def wrong(summary: Summary) -> str:
    """Return in a line what is wrong with a run, or what became of it where nothing is."""
    further = f" (+{len(summary.problems) - 1} more)" if len(summary.problems) > 1 else ""
    return title(summary.problems[0]) + further if summary.problems else outcome(summary)


def rest(summary: Summary, diagnosis: Diagnosis, *, notes: int = 2) -> list[tuple[str, str]]:
    """Return what is to be told beside the problems: notes, what stays open, what failed, what was lost in reading."""
    rows = [("note", f"{sentence(remark.title)} {sentence(remark.message)}".strip()) for remark in summary.remarks]
    if summary.do is not None:
        rows.append(("do", remedy_says(summary.do)))
    if summary.open:
        short_log = f" The log is short: {count(diagnosis.run.records, 'record')}." if summary.short else ""
        asked = summary.do.do if summary.do is not None else ""
        rows.append(("open", f"{', '.join(_question(question, asked) for question in summary.open)}.{short_log}"))
    if summary.verdict != "healthy" or summary.checks.left_out:  # else the headline tells
        rows.append(("checks", counts(summary.checks)))
    rows += [("failed", f"{plain(name)}: {flowing(reason)}") for name, reason in summary.checks.failed]
    rows += _names(diagnosis.run)
    if summary.reading[:notes]:
        rows.append(("reading", stopped("; ".join(_note(note, diagnosis) for note in summary.reading[:notes]))))
    return rows


def _names(run: RunSummary) -> Iterator[tuple[str, str]]:
    """Yield what the columns of a script's own log were taken for, and those that nobody understands, in a row each."""
    inferred = [f"{_key(raw)} = {metric}" for raw, metric in run.inferred.items()]
    if inferred:
        wrong = _alias(next(iter(run.inferred)))
        yield (
            "names",
            f"{count(len(inferred), 'column')} read by their company: {_some(inferred)}; wrong? {bound(wrong)}",
        )
    unread = [_key(raw) for raw in run.not_understood]
    if unread:
        way_out = f"{bound(_alias(run.not_understood[0]))} or in ppo-doctor.toml"
        yield "unread", f"{count(len(unread), 'column')} not understood: {_some(unread)}; name them with {way_out}."


def _alias(raw: str) -> str:
    """Return the option that names a column, quoted for a shell; a name that fills lines is not repeated."""
    name = plain(raw) if len(raw) <= LONGEST_BOUND else "NAME"
    return f"--alias {shlex.quote(f'{name}=METRIC')}"


def _key(raw: str) -> str:
    key = plain(raw)
    return key if len(key) <= LONGEST_NAME else f"{key[: LONGEST_NAME - 1]}…"


def _some(names: Sequence[str]) -> str:
    return ", ".join([*(bound(name) for name in names[:MOST_NAMES]), *(["…"] if len(names) > MOST_NAMES else [])])


def _question(question: Open, asked: str) -> str:
    """Return an open question with what would answer it, unless that was asked for before."""
    names = [plain(name) for name in question.metrics if not re.search(rf"\b{re.escape(name)}\b", asked)]
    wanted = f" (log {listed(names)})" if len(names) == len(question.metrics) > 0 else ""
    return question.question + wanted


def counts(checks: Checks) -> str:
    """Return how many checks said what."""
    left = f" · {checks.left_out} left out on request" if checks.left_out else ""
    return f"{checks.clear} clear · {_not_run(checks)}{left}"


def _note(note: str, diagnosis: Diagnosis) -> str:
    """Return a note on reading; of the only file its line."""
    sources = diagnosis.run.sources
    if len(sources) == 1 and note.startswith(f"{sources[0].path}:"):
        rest = note.removeprefix(f"{sources[0].path}:").lstrip()
        return flowing(f"line {rest}" if re.match(r"\d+: ", rest) else rest)
    return flowing(note.replace(folder(diagnosis), "") if folder(diagnosis) else note)


def folder(diagnosis: Diagnosis) -> str:
    """Return the folder, with its separator, that all long paths of a run share; empty when paths stay as they are."""
    paths = [source.path for source in diagnosis.run.sources]
    if not paths or max(map(len, paths)) <= SHORT_ENOUGH:
        return ""
    shared = commonprefix(paths)
    return shared[: max(shared.rfind("/"), shared.rfind("\\")) + 1]


def relative(diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis with the shared folder taken off the paths in sentences; the run's id keeps its own."""
    prefix = folder(diagnosis)
    if not prefix:
        return diagnosis
    return replace(
        diagnosis,
        run=replace(diagnosis.run, notes=tuple(note.replace(prefix, "") for note in diagnosis.run.notes)),
        causes=tuple(
            replace(cause, ledger=tuple(replace(entry, says=entry.says.replace(prefix, "")) for entry in cause.ledger))
            for cause in diagnosis.causes
        ),
        findings=tuple(_relative(finding, prefix) for finding in diagnosis.findings),
        chain=tuple(
            replace(link, witness=link.witness and link.witness.replace(prefix, "")) for link in diagnosis.chain
        ),
    )


def _relative(finding: Finding, prefix: str) -> Finding:
    evidence = tuple(
        replace(e, source=e.source and replace(e.source, path=e.source.path.replace(prefix, "")))
        for e in finding.evidence
    )
    return replace(finding, reason=finding.reason and finding.reason.replace(prefix, ""), evidence=evidence)


def apart(paths: Sequence[str]) -> list[str]:
    """Return what tells paths apart: without the folders and the ending that all of them share."""
    if len(set(paths)) < 2:
        return list(paths)
    shared = commonprefix(list(paths))
    rest = [path[shared.rfind("/") + 1 :] for path in paths]
    tail = commonprefix([path[::-1] for path in rest])[::-1]
    end = len(tail) - tail.index("/") if "/" in tail else 0
    return [part[: len(part) - end] or part for part in rest]


def causes_of(diagnosis: Diagnosis, problem: ProblemSummary) -> list[RankedCause]:
    """Return the cause that leads a problem, and those that cannot be distinguished from it."""
    named = {why.cause for why in problem.why}
    return [cause for cause in diagnosis.causes if cause.id in named]
