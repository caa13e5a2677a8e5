"""A story on one screen of a terminal: no longer than a problem is worth, whatever else there would be to say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ppo_doctor.model.frozen import frozen
from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import BOUND, Page, Span, columns
from ppo_doctor.report.nearby import folder
from ppo_doctor.report.words import (
    SEVERITY_STYLE,
    VERDICT_STYLE,
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
    from collections.abc import Sequence

    from ppo_doctor.model import Diagnosis, UpdatesPerBatch
    from ppo_doctor.story.model import Check, Checks, Course, Open, Place, Row, Story, Table, Told

#: Lines of a screen with one problem, or with none, for each further problem; and how wide such lines are.
LINES, HEALTHY_LINES, FURTHER_LINES, AT_WIDTH = 24, 16, 6, 100
INDENT, LABELS = 3, 6
#: The longest key in a table; of a longer one the end tells most.
LONGEST_KEY = 34


@frozen
class Cut:
    """What is told of a story where there is not room for all of it."""

    rows: int = 6
    says: bool = True
    names: bool = True
    notes: int = 2
    next: int = 99
    because: bool = True
    remarks: int = 3


#: From everything to the least; the first that fits is told.
CUTS = (
    Cut(),
    Cut(says=False),
    Cut(says=False, notes=1),
    Cut(says=False, notes=1, rows=5),
    Cut(says=False, notes=1, rows=5, names=False),
    Cut(says=False, notes=1, rows=5, names=False, next=1),
    Cut(says=False, notes=1, rows=4, names=False, next=1, remarks=2),
    Cut(says=False, notes=1, rows=4, names=False, next=0, remarks=2),
    Cut(says=False, notes=1, rows=4, names=False, next=0, remarks=1, because=False),
    Cut(says=False, notes=0, rows=3, names=False, next=0, remarks=1, because=False),
    Cut(says=False, notes=0, rows=2, names=False, next=0, remarks=0, because=False),
)


def screen(page: Page, told: Story, diagnosis: Diagnosis, *, head: bool = True, most: int | None = None) -> None:
    """Add a story, as much of it as its lines, or `most`, hold; without `head` verdict and run stand elsewhere."""
    most = _lines(told, page.width) if most is None else most
    for cut in CUTS:
        draft = Page(width=page.width, ascii=page.ascii)
        if head:
            _head(draft, told, diagnosis)
        _whole(draft, told, diagnosis, cut)
        if len(draft.lines) < most:  # the last line says where more is told
            break
    page.lines.extend(draft.lines)


def _lines(told: Story, width: int) -> int:
    """Return how many lines a story may take; narrower pages have more of them."""
    further = max(0, len(told.problems) - 1) * FURTHER_LINES
    lines = (HEALTHY_LINES if told.verdict == "healthy" else LINES) + further
    return math.ceil(lines * max(1.0, AT_WIDTH / width))


def short_screen(page: Page, told: Story, diagnosis: Diagnosis) -> None:
    """Add verdict, cause and first action, a line each, whatever the width."""
    page.row((Span(diagnosis.verdict.upper(), VERDICT_STYLE[diagnosis.verdict]), f"  {plain(diagnosis.run.id)}"))
    if told.problems:
        more = f" (and {count(len(told.problems) - 1, 'further problem')})" if len(told.problems) > 1 else ""
        page.row((Span(flowing(told.problems[0].title), "bold"), more), INDENT)
    else:
        page.row(outcome(told), INDENT)
    first = first_action(told)
    if first:
        page.row(f"do: {first}", INDENT)


def first_action(told: Story) -> str:
    """Return the first thing to do; nothing where there is nothing."""
    return next((action_says(problem.do[0]) for problem in told.problems if problem.do), "")


def closing(page: Page, told: Story) -> None:
    """Add verdict and first action once more, where much stands between them and the end of the screen."""
    page.blank()
    title = BOUND * 2 + (flowing(told.problems[0].title) if told.problems else outcome(told))
    page.add((Span(told.verdict.upper(), VERDICT_STYLE[told.verdict]), title), 0, INDENT)
    first = first_action(told)
    if first:
        page.labelled(Span("do", "bold"), first, INDENT, LABELS)


def _head(page: Page, told: Story, diagnosis: Diagnosis) -> None:
    word = Span(told.verdict.upper(), VERDICT_STYLE[told.verdict])
    page.add((word, BOUND * 2, Span(plain(diagnosis.run.id), "bold")), 0, INDENT)
    page.add(" · ".join(facts(diagnosis)), INDENT)


def _whole(page: Page, told: Story, diagnosis: Diagnosis, cut: Cut) -> None:
    page.add(outcome(told), INDENT)
    if told.table is not None:
        page.blank()
        _table(page, told.table, cut)
    page.blank()
    for problem in told.problems:
        _problem(page, problem, diagnosis, cut)
    for remark in told.remarks[: cut.remarks]:
        meaning = f" {sentence(remark.says)}" if cut.says and remark.says else ""
        page.labelled(Span("note", "dim"), sentence(remark.title) + meaning, INDENT, LABELS)
    page.blank()
    _rest(page, told, diagnosis, cut)


def facts(diagnosis: Diagnosis) -> list[str]:
    """Return what was read, with the number of updates per batch in words."""
    run = diagnosis.run
    long = updates(run.updates_per_batch)
    read = [_updates(run.updates_per_batch) if fact == long else fact for fact in run_facts(run)]
    return [*read, count(len(run.sources), "source")] if len(run.sources) > 1 else read


def _updates(k: UpdatesPerBatch) -> str:
    """Return how many updates a batch is used for; where nobody knows, what would tell."""
    if k.effective is None or not math.isfinite(k.effective):
        return updates(k)
    return bound(f"{short(k.effective)} update{'' if k.effective == 1 else 's'} per batch")


def outcome(told: Story) -> str:
    """Return in a sentence what became of the run, with what only the verdict can say."""
    because = capital(flowing(told.because)) or (_answered(told.checks) if told.verdict == "healthy" else "")
    courses = ", ".join(map(_course, told.courses))
    return stopped("; ".join(filter(None, (because, courses if because else capital(courses)))))


def _course(course: Course) -> str:
    key = f" ({plain(course.key)})" if course.word != course.key else ""
    return f"{course.word}{key} {bound(f'{short(course.first)} → {short(course.last)}')}"


def _answered(checks: Checks) -> str:
    """Return how many checks were answered with no, and how many could not be asked."""
    mostly = ", mostly metrics that are not logged" if checks.unlogged and checks.not_run else ""
    return f"{count(checks.clear, 'check')} clear, {checks.not_run} not run{mostly}"


def _table(page: Page, table: Table, cut: Cut) -> None:
    """Add a table; a narrow page leaves out moments between start and end."""
    rows = table.rows[: cut.rows]
    keys = ["step", *(key_of(row.name, row.key) for row in rows)]
    label = max(map(columns, keys))
    named = cut.names and any(moment.name == "onset" for moment in table.moments)  # else they name themselves
    shown = list(range(len(table.moments)))
    cells = _cells(table, rows)
    widths = [max((columns(line[i]) for line in cells[0 if named else 1 :]), default=0) for i in range(len(cells[0]))]
    tails = [i for i in range(len(shown), len(widths)) if any(line[i] for line in cells[2:])]
    while len(shown) > 2 and INDENT + label + sum(widths[i] + 2 for i in (*shown, *tails)) > page.width:
        del shown[_least(table, shown)]
    for number, (key, line) in enumerate(zip(("", *keys), cells, strict=True)):
        if number or named:
            values = "".join(f"  {' ' * (widths[i] - columns(line[i]))}{line[i]}" for i in shown)
            tail = "".join(f"  {line[i]}{' ' * (widths[i] - columns(line[i]))}" for i in tails).rstrip()
            text = key + " " * (label - columns(key))
            page.row((text, Span(values, "dim" if number < 2 else ""), Span(tail, "dim")), INDENT)


def _cells(table: Table, rows: Sequence[Row]) -> list[list[str]]:
    """Return the names of moments, their steps, and a line for each metric: its numbers, what is usual, a remark."""
    usual = "usual" if any(row.usual for row in rows) else ""
    names, steps = [m.name for m in table.moments], [str(m.step) for m in table.moments]
    lines = [["–" if v is None else short(v) for v in row.values] + [bound(row.usual), row.remark] for row in rows]
    return [[*names, "", ""], [*steps, usual, ""], *lines]


def _least(table: Table, shown: Sequence[int]) -> int:
    """Return the place of the moment that tells least."""
    names = [table.moments[i].name for i in shown]
    return next((names.index(name) for name in ("after", "middle", "before") if name in names), 1)


def key_of(name: str, raw: str) -> str:
    """Return what a metric is called: the key as logged, and for an entropy what its sign is that of."""
    key = plain(raw)
    if len(key) > LONGEST_KEY:
        key = "…" + key[-LONGEST_KEY:]
    return f"entropy ({key})" if name == "entropy" and "loss" in raw.rpartition("/")[2] else key


def _problem(page: Page, problem: Told, diagnosis: Diagnosis, cut: Cut) -> None:
    number = f"{problem.rank}".ljust(INDENT - 1).replace(" ", BOUND)
    grave = Span(problem.severity.value, SEVERITY_STYLE.get(problem.severity, ""))
    since = f" · {bound(f'since step {problem.since}')}" if problem.since is not None else ""
    place = f" · {bound(_place(problem.place, diagnosis))}" if problem.place is not None else ""
    title = Span(flowing(problem.title), "bold")
    page.add((f"{number} ", title, f" – {problem.confidence} · ", grave, since + place), 0, INDENT)
    if cut.says:
        page.add(sentence(problem.says), INDENT)
    _advice(page, problem, cut)


def _advice(page: Page, problem: Told, cut: Cut) -> None:
    for number, action in enumerate(problem.do[: 1 + cut.next]):
        label = Span("then", "dim") if number else Span("do", "bold")
        page.labelled(label, action_says(action), INDENT, LABELS)
    if problem.check is not None:
        page.labelled(Span("check", "dim"), _settles(problem.check, cut), INDENT, LABELS)
    if problem.avoid:
        page.labelled(Span("not", "dim"), sentence(problem.avoid), INDENT, LABELS)
    if problem.level:
        names = listed([flowing(title) for title in problem.level])
        tells = "; the check would tell" if problem.check is not None else ""
        page.labelled(Span("or", "dim"), f"{names}: cannot be told apart by this log{tells}.", INDENT, LABELS)


def _settles(check: Check, cut: Cut) -> str:
    verb = "tell" if check.log.startswith("--set ") else "log"
    because = f": {flowing(check.because)}" if cut.because and check.because else ""
    return stopped(f"{verb} {flowing(check.log)}{because}")


def _place(place: Place, diagnosis: Diagnosis) -> str:
    """Return a place; the file is named where there are several."""
    where = f"{place.unit} {place.line}"
    if len(diagnosis.run.sources) == 1 and diagnosis.run.sources[0].path == place.path:
        return where
    return f"{plain(place.path.removeprefix(folder(diagnosis)))} {where}"


def _rest(page: Page, told: Story, diagnosis: Diagnosis, cut: Cut) -> None:
    """Add what follows, what stays open, what was checked, and what was lost in reading."""
    for problem in told.problems:
        if problem.follows:
            are = "is" if len(problem.follows) == 1 else "are"
            page.add(f"Follows from {problem.rank}: {listed(problem.follows, 'and')} {are} dead.", 0, INDENT)
    if told.open:
        short_log = f" The log is short: {count(diagnosis.run.records, 'record')}." if told.short else ""
        page.add((Span("Open", "bold"), f": {', '.join(map(_question, told.open))}.{short_log}"), 0, INDENT)
    checks = told.checks
    left = f" · {checks.left_out} left out on request" if checks.left_out else ""
    if told.verdict != "healthy" or left:
        noted = f" · {checks.noted} noted" if checks.noted else ""
        unlogged = ", mostly metrics that are not logged" if checks.unlogged and checks.not_run else ""
        page.add(f"Checks: {checks.clear} clear{noted} · {checks.not_run} not run{unlogged}{left}", 0, INDENT)
    for name, reason in checks.failed:
        page.add((Span("Failed", "red"), f": {plain(name)}: {flowing(reason)}"), 0, INDENT)
    if told.reading and cut.notes:
        notes = "; ".join(_note(note, diagnosis) for note in told.reading[: cut.notes])
        page.add(f"Reading: {stopped(notes)}", 0, INDENT)


def _question(question: Open) -> str:
    """Return an open question with what would answer it."""
    wanted = f" (log {listed([plain(name) for name in question.metrics])})" if question.metrics else ""
    return question.question + wanted


def _note(note: str, diagnosis: Diagnosis) -> str:
    """Return a note on reading; of the only file its line."""
    sources = diagnosis.run.sources
    if len(sources) == 1 and note.startswith(f"{sources[0].path}:"):
        rest = note.removeprefix(f"{sources[0].path}:").lstrip()
        return flowing(f"line {rest}" if rest[:1].isdigit() else rest)
    return flowing(note.replace(folder(diagnosis), "") if folder(diagnosis) else note)
