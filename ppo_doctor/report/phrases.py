"""The sentences of a story that every report prints; each report makes them safe for its own form once more."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor.evidence import became, way
from ppo_doctor.report.escape import plain
from ppo_doctor.report.nearby import folder
from ppo_doctor.report.words import (
    LONGEST_BOUND,
    action_says,
    bound,
    capital,
    count,
    flowing,
    listed,
    run_facts,
    sentence,
    stopped,
    updates,
)
from ppo_doctor.story.numbers import short

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ppo_doctor.model import Diagnosis, Outcome, RunSummary, UpdatesPerBatch
    from ppo_doctor.story.model import Broken, Check, Checks, Course, Open, Place, Row, Story, Table, Told

#: Metrics that are named of those that broke first.
MOST_BROKEN = 2
#: Columns that are named of those that were read by their company, or not understood, and the longest of their names.
MOST_NAMES, LONGEST_NAME = 3, 24
#: Where so many times more checks did not run than were clear, a healthy run is told of with an "only".
THIN = 8


def outcome(told: Story, *, medians: bool = True) -> str:
    """Return in a sentence what became of the run, then what only the verdict can say."""
    of = _of_which(told.outcome) if medians else ""
    parts = [became(told.outcome) + of, _evaluation(told.outcome), _target(told.outcome)]
    parts.append(_course(told.entropy) if told.entropy is not None else "")
    sentences = [stopped(f"The run died: {flowing(told.died)}")] if told.died else []
    sentences += [stopped(capital(flowing("; ".join(filter(None, parts)))))] if any(parts) else []
    if told.because:
        sentences.append(stopped(capital(flowing(told.because))))
    if told.verdict == "healthy":
        sentences.append(stopped(capital(_answered(told.checks))))
    return " ".join([*sentences, *([_broken(told.broken)] if told.broken is not None else [])])


def _of_which(reward: Outcome) -> str:
    """Return of which records the first and the last level are medians, where the two are told."""
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


def _broken(broken: Broken) -> str:
    """Return which metric was the first not to be finite, and what had grown before."""
    named = [plain(key) for key in broken.keys[:MOST_BROKEN]]
    named += [bound(f"{len(broken.keys) - MOST_BROKEN} more")] if len(broken.keys) > MOST_BROKEN else []
    first = f"First {short(broken.value)} at {bound(f'step {broken.step}')}, in {listed(named, 'and')}"
    if broken.grew is None:
        return f"{first}."
    rose = bound(f"{short(broken.grew.first)} → {short(broken.grew.last)}")
    return f"{first}; before it {plain(broken.grew.key)} rose {rose}."


def _course(course: Course) -> str:
    key = f" ({plain(course.key)})" if course.word != course.key else ""
    return f"{course.word}{key} {bound(f'{short(course.first)} → {short(course.last)}')}"


def _answered(checks: Checks) -> str:
    """Return how many checks were answered with no, and how many could not be asked."""
    few = "only " * (THIN * checks.clear < checks.not_run)
    return f"{few}{count(checks.clear, 'check')} clear, {_not_run(checks)}"


def _not_run(checks: Checks) -> str:
    mostly = ", mostly for lack of metrics" if checks.unlogged and checks.not_run else ""
    return f"{checks.not_run} not run{mostly}"


def first_action(told: Story) -> str:
    """Return the first thing to do; nothing where there is nothing."""
    first = (problem.do[0] for problem in told.problems if problem.do)
    step = next(first, told.do)
    return action_says(step) if step is not None else ""


def facts(diagnosis: Diagnosis) -> list[str]:
    """Return what was read, with how many updates a batch is used for in words."""
    run = diagnosis.run
    long = updates(run.updates_per_batch)
    ours = [_updates(run.updates_per_batch) if fact == long else fact for fact in run_facts(run)]
    return [*ours, count(len(run.sources), "file")] if len(run.sources) > 1 else ours


def _updates(k: UpdatesPerBatch) -> str:
    if k.effective is None or not math.isfinite(k.effective):
        return updates(k)
    told = bound(f"{short(k.effective)} update{'' if k.effective == 1 else 's'} per batch")
    return f"{told} {bound('by default')}" if k.how == "default" else told


def row_name(row: Row) -> str:
    """Return what a row is called: the key as logged, and for an entropy what its sign is that of."""
    key = plain(row.key)
    return f"entropy ({key})" if row.name == "entropy" and "loss" in row.key.rpartition("/")[2] else key


def beside(table: Table) -> list[str]:
    """Return which columns a table has beside its moments: what is usual, what stands out."""
    return [name for name in ("usual", "remark") if any(getattr(row, name) for row in table.rows)]


def cells(row: Row) -> list[str]:
    """Return the numbers of a row; a dash where the metric was not logged yet."""
    return ["–" if value is None else short(value) for value in row.values]


def title(problem: Told) -> str:
    """Return what a problem is called: what is shown."""
    return flowing(problem.title)


def standing(problem: Told, diagnosis: Diagnosis) -> list[str]:
    """Return how grave a problem is, since when, and where it shows."""
    since = [bound(f"since step {problem.since}")] if problem.since is not None else []
    place = bound(_place(problem.place, diagnosis)) if problem.place is not None else ""
    return [problem.severity.value, *since, *filter(None, [place])]


def _place(place: Place, diagnosis: Diagnosis) -> str:
    """Return a place; the file is named where there are several."""
    where = f"line {place.line}" if place.line is not None else ""
    if len(diagnosis.run.sources) == 1 and diagnosis.run.sources[0].path == place.path:
        return where
    return f"{plain(place.path.removeprefix(folder(diagnosis)))} {where}".rstrip()


def advice(problem: Told, *, seen: int = 2, resort: bool = True, because: bool = True) -> list[tuple[str, str]]:
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
    do = [("then" if i else "do", action_says(action)) for i, action in enumerate(actions)]
    lines += [*do, *check] if problem.sure else [*check, *do]
    return [*lines, *([("not", sentence(problem.avoid))] if problem.avoid else [])]


def _why(problem: Told) -> list[tuple[str, str]]:
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


def _settles(check: Check) -> str:
    verb = "tell" if check.log.startswith("--set ") else "log"
    because = f": {flowing(check.because)}" if check.because else ""
    return stopped(f"{verb} {flowing(check.log)}{because}")


def wrong(told: Story) -> str:
    """Return in a line what is wrong with a run, or what became of it where nothing is."""
    further = f" (+{len(told.problems) - 1} more)" if len(told.problems) > 1 else ""
    return title(told.problems[0]) + further if told.problems else outcome(told)


def rest(told: Story, diagnosis: Diagnosis, *, notes: int = 2) -> list[tuple[str, str]]:
    """Return what is to be told beside the problems: notes, what stays open, what failed, what was lost in reading."""
    rows = [("note", f"{sentence(remark.title)} {sentence(remark.says)}".strip()) for remark in told.remarks]
    if told.do is not None:
        rows.append(("do", action_says(told.do)))
    if told.open:
        short_log = f" The log is short: {count(diagnosis.run.records, 'record')}." if told.short else ""
        asked = told.do.say if told.do is not None else ""
        rows.append(("open", f"{', '.join(_question(question, asked) for question in told.open)}.{short_log}"))
    if told.verdict != "healthy" or told.checks.left_out:  # else the headline tells
        rows.append(("checks", counts(told.checks)))
    rows += [("failed", f"{plain(name)}: {flowing(reason)}") for name, reason in told.checks.failed]
    rows += _names(diagnosis.run)
    if told.reading[:notes]:
        rows.append(("reading", stopped("; ".join(_note(note, diagnosis) for note in told.reading[:notes]))))
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
