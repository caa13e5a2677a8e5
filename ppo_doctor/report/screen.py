"""A summary on one screen of a terminal, shortened step by step until it fits."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ppo_doctor.model.frozen import frozen
from ppo_doctor.report import phrases
from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import BOUND, Page, Span, columns
from ppo_doctor.report.phrases import SEVERITY_STYLE, VERDICT_STYLE, bound, capital, count, sentence
from ppo_doctor.report.summary import Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.report.summary import ProblemSummary, Summary, Table

#: Lines of a screen, and of one without a problem; and how wide such lines are.
LINES, HEALTHY_LINES, AT_WIDTH = 24, 16, 100
INDENT, LABELS = 3, 6
#: What stands beside problems and is not to be missed.
REST_STYLE = {"do": "bold", "open": "bold", "failed": "red"}
#: The longest key in a table; of a longer one the end tells most.
LONGEST_KEY = 34


@frozen
class Cut:
    """What is printed of a summary where there is no room for all of it."""

    rows: int = 6
    #: what a remark means, and the keys of the table in full
    says: bool = True
    names: bool = True
    notes: int = 2
    #: whether there is a next resort, and by how many checks a problem is shown
    next: bool = True
    seen: int = 2
    because: bool = True
    remarks: int = 3
    #: what would settle a cause that has a remedy
    settles: bool = True
    #: lines of problems after the first: 3 all, 2 findings and causes, 1 causes, 0 none
    further: int = 3
    #: of which records the levels of the reward are medians
    medians: bool = True


#: What each step leaves out beyond the one before it; the first step that fits is printed.
_STEPS: tuple[dict[str, Any], ...] = (
    {"says": False, "notes": 1, "further": 2},
    {"rows": 5},
    {"names": False},
    {"seen": 1, "remarks": 2},
    {"rows": 4, "further": 1, "remarks": 1},
    {"next": False},
    {"remarks": 0, "because": False},
    {"rows": 3, "further": 0},
    {"rows": 2, "notes": 0},
    {"settles": False, "medians": False},
    {"rows": 1},
)
CUTS = tuple(accumulate(_STEPS, lambda cut, left_out: replace(cut, **left_out), initial=Cut()))


def screen(page: Page, summary: Summary, diagnosis: Diagnosis, *, head: bool = True, most: int | None = None) -> None:
    """Add as much of a summary as fits its lines, or `most`; without `head` verdict and run are left out."""
    most = _lines(summary, page.width) if most is None else most
    for cut in CUTS:
        draft = Page(width=page.width, ascii=page.ascii)
        if head:
            _head(draft, summary, diagnosis)
        _whole(draft, summary, diagnosis, cut)
        if len(draft.lines) < most:  # the last line says where more is told
            break
    page.lines.extend(draft.lines)


def _lines(summary: Summary, width: int) -> int:
    """Return how many lines a summary may take; narrower pages have more of them."""
    lines = HEALTHY_LINES if summary.verdict == "healthy" else LINES
    return math.ceil(lines * max(1.0, AT_WIDTH / width))


def short_screen(page: Page, summary: Summary, diagnosis: Diagnosis) -> None:
    """Add verdict, cause and first action, a line each, whatever the width."""
    page.row((Span(diagnosis.verdict.upper(), VERDICT_STYLE[diagnosis.verdict]), f"  {plain(diagnosis.run.id)}"))
    if summary.problems:
        more = f" (and {count(len(summary.problems) - 1, 'further problem')})" if len(summary.problems) > 1 else ""
        page.row((Span(phrases.title(summary.problems[0]), "bold"), more), INDENT)
    else:
        page.row(phrases.outcome(summary), INDENT)
    first = phrases.first_action(summary)
    if first:
        page.row(f"do: {first}", INDENT)


def closing(page: Page, summary: Summary) -> None:
    """Add verdict and first action once more, where much stands between them and the end of the screen."""
    page.blank()
    title = BOUND * 2 + (phrases.title(summary.problems[0]) if summary.problems else phrases.outcome(summary))
    page.add((Span(summary.verdict.upper(), VERDICT_STYLE[summary.verdict]), title), 0, INDENT)
    first = phrases.first_action(summary)
    if first:
        page.labelled(Span("do", "bold"), first, INDENT, LABELS)


def _head(page: Page, summary: Summary, diagnosis: Diagnosis) -> None:
    word = Span(summary.verdict.upper(), VERDICT_STYLE[summary.verdict])
    page.add((word, BOUND * 2, Span(plain(diagnosis.run.id), "bold")), 0, INDENT)
    page.add(" · ".join(phrases.facts(diagnosis)), INDENT)


def _whole(page: Page, summary: Summary, diagnosis: Diagnosis, cut: Cut) -> None:
    page.add(phrases.outcome(summary, medians=cut.medians), INDENT)
    if summary.table is not None:
        page.blank()
        _table(page, summary.table, cut)
    page.blank()
    for problem in summary.problems:
        _problem(page, problem, diagnosis, cut)
    for remark in summary.remarks[: cut.remarks]:
        meaning = f" {sentence(remark.message)}" if cut.says and remark.message else ""
        page.labelled(Span("note", "dim"), sentence(remark.title) + meaning, INDENT, LABELS)
    page.blank()
    for label, words in phrases.rest(summary, diagnosis, notes=cut.notes):
        if label != "note":  # notes stand above
            page.add((Span(capital(label), REST_STYLE.get(label, "")), f": {words}"), 0, INDENT)


def _table(page: Page, table: Table, cut: Cut) -> None:
    """Add a table; a narrow page leaves out key steps between start and end, then what is usual."""
    rows = table.rows[: cut.rows]
    keys = ["step", *(key_of(row.name, row.key) for row in rows)]
    label = max(map(columns, keys))
    named = cut.names and any(step.name == "onset" for step in table.key_steps)  # else they name themselves
    shown = list(range(len(table.key_steps)))
    cells = _cells(table, rows)
    widths = [max((columns(line[i]) for line in cells[0 if named else 1 :]), default=0) for i in range(len(cells[0]))]
    tails = [i for i in range(len(shown), len(widths)) if any(line[i] for line in cells[2:])]
    while INDENT + label + sum(widths[i] + 2 for i in (*shown, *tails)) > page.width:
        if len(shown) > 2:
            del shown[_least(table, shown)]
        elif len(tails) > 1:
            del tails[0]
        else:
            break
    for number, (key, line) in enumerate(zip(("", *keys), cells, strict=True)):
        if number or named:
            values = "".join(f"  {' ' * (widths[i] - columns(line[i]))}{line[i]}" for i in shown)
            tail = "".join(f"  {line[i]}{' ' * (widths[i] - columns(line[i]))}" for i in tails).rstrip()
            text = key + " " * (label - columns(key))
            quiet = tail.removesuffix(line[-1])  # what is high or low is not
            page.row((text, Span(values, "dim" if number < 2 else ""), Span(quiet, "dim"), line[-1]), INDENT)


def _cells(table: Table, rows: Sequence[Row]) -> list[list[str]]:
    """Return the names of key steps, their steps, and a line for each metric: its numbers, what is usual, a remark."""
    usual = "usual" if any(row.usual for row in rows) else ""
    names, steps = [s.name for s in table.key_steps], [str(s.step) for s in table.key_steps]
    lines = [[*phrases.cells(row), bound(row.usual), row.remark] for row in rows]
    return [[*names, "", ""], [*steps, usual, ""], *lines]


def _least(table: Table, shown: Sequence[int]) -> int:
    """Return the index of the key step to leave out first."""
    names = [table.key_steps[i].name for i in shown]
    return next((names.index(name) for name in ("after", "middle", "before") if name in names), 1)


def key_of(name: str, raw: str) -> str:
    """Return what a metric is called: the key as logged, and for an entropy what its sign is that of."""
    key = plain(raw)
    key = key if len(key) <= LONGEST_KEY else "…" + key[-LONGEST_KEY:]
    return phrases.row_name(Row(name=name, key=key, values=()))


def _problem(page: Page, problem: ProblemSummary, diagnosis: Diagnosis, cut: Cut) -> None:
    number = f"{problem.rank}".ljust(INDENT - 1).replace(" ", BOUND)
    severity, style = problem.severity.value, SEVERITY_STYLE.get(problem.severity, "")
    words = [Span(word, style if word == severity else "") for word in phrases.standing(problem, diagnosis)]
    title = Span(phrases.title(problem), "bold")
    joined = (part for word in words for part in (" – " if word is words[0] else " · ", word))
    page.add((f"{number} ", title, *joined), 0, INDENT)
    _advice(page, problem, cut)


def _advice(page: Page, problem: ProblemSummary, cut: Cut) -> None:
    advice = phrases.advice(problem, seen=cut.seen, resort=cut.next, because=cut.because)
    if problem.sure and problem.do and not cut.settles:
        advice = [(label, words) for label, words in advice if label != "check"]
    for label, words in advice if problem.rank == 1 else _less(advice, cut.further):
        page.labelled(Span(label, "bold" if label == "do" else "dim"), words, INDENT, LABELS)


def _less(advice: Sequence[tuple[str, str]], further: int) -> Sequence[tuple[str, str]]:
    """Return the lines of a problem that is not the first."""
    labels = ((), ("why",), ("seen", "cost", "why", "or"), None)[further]
    return [(label, words) for label, words in advice if labels is None or label in labels]
