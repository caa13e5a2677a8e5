"""A comparison of two runs as text or JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from ppo_doctor.report.escape import plain
from ppo_doctor.report.fleet import GAP, fitted, names, what
from ppo_doctor.report.json_report import SCHEMA_VERSION, Json, dump, fields
from ppo_doctor.report.layout import BOUND, Page, Span, columns
from ppo_doctor.report.phrases import first_action
from ppo_doctor.report.screen import AT_WIDTH, LINES, key_of
from ppo_doctor.report.terminal import page_for, paint
from ppo_doctor.report.words import VERDICT_STYLE, short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.compare import Comparison, Difference, Outcome, Side
    from ppo_doctor.report.summary import Summary

    Cells: TypeAlias = tuple[str, ...]

INDENT = 3
#: Lines beside the rows of what diverged and of settings: two headings, and the blank lines between parts.
FRAME = 5
#: Rows of either part that the other gives way for.
LEAST_ROWS = 3
PAID = ("reward", "first", "last", "best")
PARTED = ("diverged", "from step", "A since", "B since")
SETTINGS = ("settings that differ",)
#: Characters of a setting's name, and twice those of its value.
LONGEST = 60
UNPAID = "unknown: no series of it"


def text(comparison: Comparison, options: RenderOptions) -> str:
    """Return a comparison for a terminal: reward, what diverged and when, settings, and the verdict on each side."""
    page = page_for(options)
    end = Page(width=page.width, ascii=page.ascii)
    for (letter, side), name in zip(sides(comparison), names([comparison.a.name, comparison.b.name]), strict=True):
        page.add((Span(letter, "bold"), BOUND * 2 + plain(name)), 0, INDENT)
        _verdict(end, letter, side)
    page.blank()
    _table(page, PAID, paid(comparison))
    rows, settings = parted(comparison), changed(comparison)
    room = math.ceil(LINES * max(1.0, AT_WIDTH / page.width)) - len(page.lines) - len(end.lines) - FRAME
    room = len(rows) + len(settings) if options.all else room
    _table(page, PARTED, _most(rows, max(room - len(settings), LEAST_ROWS)))
    _table(page, SETTINGS, _most(settings, max(room - len(rows), LEAST_ROWS)))
    page.lines.extend(end.lines)
    return paint(page, options)


def sides(comparison: Comparison) -> tuple[tuple[str, Side], tuple[str, Side]]:
    """Return both sides with their letters."""
    return ("A", comparison.a), ("B", comparison.b)


def paid(comparison: Comparison) -> list[Cells]:
    """Return a row per side: what it was paid at its first and last record, and at its best, and by which metric."""
    if not any(comparison.outcomes):
        return [(UNPAID,)]
    return [_paid(*side, found) for side, found in zip(sides(comparison), comparison.outcomes, strict=True)]


def _paid(letter: str, side: Side, found: Outcome | None) -> Cells:
    if found is None:
        return (f"{letter}{BOUND * 2}{UNPAID}",)
    return f"{letter}  {key(side, found.metric)}", short(found.first), short(found.last), short(found.best)


def key(side: Side, metric: str) -> str:
    """Return what a side's log calls a metric."""
    return key_of(metric, next((run.series[metric].raw for run in side.runs if metric in run.series), metric))


def parted(comparison: Comparison) -> list[Cells]:
    """Return a row per metric that diverged, in the order in which they did: its key, the step, and both medians."""
    if comparison.divergences is None:
        return [("unknown: a report holds no series; compare the logs",)]
    rows: list[Cells] = [
        (key(comparison.a, d.metric) + " *" * d.expected, str(d.step), short(d.a), short(d.b))
        for d in comparison.divergences
    ]
    # A lower bar was passed, that of a metric on which a setting acts that differs.
    note = ("* judged by level alone; seeds may differ as much: compare several with --group",)
    rows += [note] * any(d.expected for d in comparison.divergences)
    return rows or [("none beyond the scatter of each run, over the steps that both have",)]


def changed(comparison: Comparison) -> list[Cells]:
    """Return a row per setting that differs, first those that may explain what diverged, with the reason."""
    why = {each.difference: each.metrics for each in comparison.explanations}
    rows: list[Cells] = [(f"{_values(each)}: {_because(comparison, metrics)}",) for each, metrics in why.items()]
    rows += [(_values(each),) for each in comparison.differences if each not in why]
    return rows or [("none that either log shows",)]


def _because(comparison: Comparison, metrics: Sequence[str]) -> str:
    if not metrics:
        return "may explain it, the only one that differs"
    step = next(d.step for d in comparison.divergences or () if d.metric == metrics[0])
    return f"may explain {key(comparison.a, metrics[0])} from step {step}"


def _values(difference: Difference) -> str:
    return f"{plain(difference.key, LONGEST)} {_value(difference.a)} → {_value(difference.b)}"


def _value(value: object) -> str:
    if value is None:
        return "not set"
    return short(value) if isinstance(value, float) else plain(str(value), LONGEST // 2)


def _most(rows: list[Cells], most: int) -> list[Cells]:
    """Return as many rows as there is room for, the last of them telling how many there are beside."""
    return rows if len(rows) <= most else [*rows[: most - 1], (f"… and {len(rows) - most + 1} more, --all",)]


def _table(page: Page, head: Cells, rows: Sequence[Cells]) -> None:
    """Add a heading and its rows: cells stand under each other, to the right but the first."""
    lines = [head, *(row for row in rows if len(row) > 1)]
    widths = [max(columns(line[i]) for line in lines) for i in range(len(head))]
    for indent, line in ((0, head), *((INDENT, row) for row in rows)):
        style = "" if indent else "dim"
        if len(line) == 1:
            page.add(Span(line[0], style), indent, 2)
            continue
        cells = (GAP + " " * (widths[i] - columns(line[i])) + line[i] for i in range(1, len(head)))
        page.row((fitted(line[0], widths[0] + INDENT - indent), Span("".join(cells), style)), indent)
    page.blank()


def _verdict(page: Page, letter: str, side: Side) -> None:
    words = ", ".join(dict.fromkeys(verdict.upper() for verdict in side.verdicts))
    word = Span(words, VERDICT_STYLE.get(summary_of(side).verdict, "bold"))
    page.add((f"{letter}{BOUND * 2}", word, BOUND * 2, standing(side)), 0, INDENT)
    action = first_action(summary_of(side))
    if action:
        page.labelled(Span("do", "bold"), action, INDENT, 6)


def summary_of(side: Side) -> Summary:
    """Return the summary of a side; of seeds that of the first with a problem."""
    return next((summary for summary in side.summaries if summary.problems), side.summaries[0])


def standing(side: Side) -> str:
    """Return what a side suffers from, how sure that is, since when, and of seeds in how many."""
    summary = summary_of(side)
    if not summary.problems:
        return what(summary)
    first, seeds = summary.problems[0], len(side.verdicts)
    since = f"since step {first.since}" if first.since is not None else ""
    among = f"in {side.causes.get(first.cause, 1)} of {seeds} runs" if seeds > 1 else ""
    sure = first.why[0].confidence if first.sure else ""
    about = ", ".join(filter(None, (sure, since, among)))
    return what(summary) + (f" – {about}" if about else "")


def as_json(comparison: Comparison, _options: RenderOptions) -> str:
    """Return a comparison as a JSON object."""
    divergences = comparison.divergences
    content: dict[str, Json] = {
        "different": comparison.different,
        "a": _side(comparison.a),
        "b": _side(comparison.b),
        "reward": {
            letter: None if found is None else fields(found, "metric first last best")
            for letter, found in zip("ab", comparison.outcomes, strict=True)
        },
        "differences": [fields(difference, "key canonical a b") for difference in comparison.differences],
        "divergences": None if divergences is None else [fields(d, "metric step a b expected") for d in divergences],
        "explanations": [{"key": e.difference.key, **fields(e, "metrics says")} for e in comparison.explanations],
    }
    return dump({"schema_version": SCHEMA_VERSION, "comparison": content})


def _side(side: Side) -> Json:
    return {"name": side.name, "runs": len(side.verdicts), **fields(side, "verdicts causes")}
