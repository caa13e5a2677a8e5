"""A comparison of two runs as text, JSON, or one HTML file with a plot of both curves for each metric that diverged."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from ppo_doctor.report.escape import plain
from ppo_doctor.report.html import badge
from ppo_doctor.report.html_markup import NOTHING, Markup, code, document, el, join, row, table, text
from ppo_doctor.report.json_report import SCHEMA_VERSION, Json, dump, fields
from ppo_doctor.report.layout import BOUND, Page, Span, columns
from ppo_doctor.report.phrases import VERDICT_STYLE, first_action, short, what
from ppo_doctor.report.plots import Marks, plot
from ppo_doctor.report.screen import AT_WIDTH, LINES, key_of
from ppo_doctor.report.terminal import GAP, fitted, names, page_for, paint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model.run import Series
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.compare import Comparison, Difference, Outcome, Side
    from ppo_doctor.report.summary import Summary

    Cells: TypeAlias = tuple[str, ...]

INDENT = 3
#: The lines that the tables of divergences and settings need in addition to their rows: headings and blank lines.
FRAME = 5
#: The least rows of each of the two tables.
LEAST_ROWS = 3
REWARD = ("reward", "first", "last", "best")
DIVERGED = ("diverged", "from step", "A since", "B since")
SETTINGS = ("settings that differ",)
#: The longest name of a setting in characters; its values may be half as long.
LONGEST = 60
NO_REWARD = "unknown: no series of it"
#: The most plots of a page; with `--all` there is no limit.
MOST_PLOTS = 12


def as_text(comparison: Comparison, options: RenderOptions) -> str:
    """Return a comparison as text: reward, metrics that diverged, settings that differ, and verdicts."""
    page = page_for(options)
    end = Page(width=page.width, ascii=page.ascii)
    for letter, side, name in _sides(comparison):
        page.add((Span(letter, "bold"), BOUND * 2 + plain(name)), 0, INDENT)
        _verdict(end, letter, side)
    page.blank()
    _table(page, REWARD, _rewards(comparison))
    rows, settings = _diverged(comparison), _changed(comparison)
    room = math.ceil(LINES * max(1.0, AT_WIDTH / page.width)) - len(page.lines) - len(end.lines) - FRAME
    room = len(rows) + len(settings) if options.all else room
    _table(page, DIVERGED, _most(rows, max(room - len(settings), LEAST_ROWS)))
    _table(page, SETTINGS, _most(settings, max(room - len(rows), LEAST_ROWS)))
    page.lines.extend(end.lines)
    return paint(page, options)


def _sides(comparison: Comparison) -> list[tuple[str, Side, str]]:
    """Return the letter, the side and the unique name of both sides."""
    sides = (comparison.a, comparison.b)
    return list(zip("AB", sides, names([side.name for side in sides]), strict=True))


def _rewards(comparison: Comparison) -> list[Cells]:
    """Return a row per side: the key of its reward, and the first, last and best value."""
    if not any(comparison.outcomes):
        return [(NO_REWARD,)]
    rows = zip(_sides(comparison), comparison.outcomes, strict=True)
    return [_reward_cells(letter, side, reward) for (letter, side, _), reward in rows]


def _reward_cells(letter: str, side: Side, reward: Outcome | None) -> Cells:
    if reward is None:
        return (f"{letter}{BOUND * 2}{NO_REWARD}",)
    return f"{letter}  {_key(side, reward.metric)}", short(reward.first), short(reward.last), short(reward.best)


def _key(side: Side, metric: str) -> str:
    """Return the key of a metric in the log of a side."""
    return key_of(metric, next((run.series[metric].raw for run in side.runs if metric in run.series), metric))


def _diverged(comparison: Comparison) -> list[Cells]:
    """Return a row per metric that diverged, the earliest first: its key, the step, and the medians of both sides."""
    if comparison.divergences is None:
        return [("unknown: a report holds no series; compare the logs",)]
    rows: list[Cells] = [
        (_key(comparison.a, d.metric) + " *" * d.expected, str(d.step), short(d.a), short(d.b))
        for d in comparison.divergences
    ]
    # If a setting that differs acts on a metric, a weaker test of its level counts, too.
    note = ("* judged by level alone; seeds may differ as much: compare several with --group",)
    rows += [note] * any(d.expected for d in comparison.divergences)
    return rows or [("none beyond the scatter of each run, over the steps that both have",)]


def _changed(comparison: Comparison) -> list[Cells]:
    """Return a row per setting that differs; those that may explain a divergence come first, with the reason."""
    why = {each.difference: each.metrics for each in comparison.explanations}
    rows: list[Cells] = [(f"{_values(each)}: {_because(comparison, metrics)}",) for each, metrics in why.items()]
    rows += [(_values(each),) for each in comparison.differences if each not in why]
    return rows or [("none that either log shows",)]


def _because(comparison: Comparison, metrics: Sequence[str]) -> str:
    if not metrics:
        return "may explain it, the only one that differs"
    step = next(d.step for d in comparison.divergences or () if d.metric == metrics[0])
    return f"may explain {_key(comparison.a, metrics[0])} from step {step}"


def _values(difference: Difference) -> str:
    return f"{plain(difference.key, LONGEST)} {_value(difference.a)} → {_value(difference.b)}"


def _value(value: object) -> str:
    if value is None:
        return "not set"
    return short(value) if isinstance(value, float) else plain(str(value), LONGEST // 2)


def _most(rows: list[Cells], most: int) -> list[Cells]:
    """Return at most `most` rows; if some are left out, the last one says how many."""
    return rows if len(rows) <= most else [*rows[: most - 1], (f"… and {len(rows) - most + 1} more, --all",)]


def _table(page: Page, head: Cells, rows: Sequence[Cells]) -> None:
    """Add a heading and its rows as a table; the first column is left-aligned, the others right-aligned."""
    lines = [head, *(cells for cells in rows if len(cells) > 1)]
    widths = [max(columns(line[i]) for line in lines) for i in range(len(head))]
    for indent, line in ((0, head), *((INDENT, cells) for cells in rows)):
        style = "" if indent else "dim"
        if len(line) == 1:
            page.add(Span(line[0], style), indent, 2)
            continue
        cells = (GAP + " " * (widths[i] - columns(line[i])) + line[i] for i in range(1, len(head)))
        page.row((fitted(line[0], widths[0] + INDENT - indent), Span("".join(cells), style)), indent)
    page.blank()


def _verdict(page: Page, letter: str, side: Side) -> None:
    words = ", ".join(dict.fromkeys(verdict.upper() for verdict in side.verdicts))
    word = Span(words, VERDICT_STYLE.get(_summary_of(side).verdict, "bold"))
    page.add((f"{letter}{BOUND * 2}", word, BOUND * 2, _standing(side)), 0, INDENT)
    action = first_action(_summary_of(side))
    if action:
        page.labelled(Span("do", "bold"), action, INDENT, 6)


def _summary_of(side: Side) -> Summary:
    """Return the summary of a side; for several seeds, that of the first seed with a problem."""
    return next((summary for summary in side.summaries if summary.problems), side.summaries[0])


def _standing(side: Side) -> str:
    """Return the first problem of a side with its confidence, its onset and the number of seeds that have it."""
    summary = _summary_of(side)
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
        **{
            letter.lower(): {"name": side.name, "runs": len(side.verdicts), **fields(side, "verdicts causes")}
            for letter, side, _ in _sides(comparison)
        },
        "reward": {
            letter: None if reward is None else fields(reward, "metric first last best")
            for letter, reward in zip("ab", comparison.outcomes, strict=True)
        },
        "differences": [fields(difference, "key canonical a b") for difference in comparison.differences],
        "divergences": None if divergences is None else [fields(d, "metric step a b expected") for d in divergences],
        "explanations": [{"key": e.difference.key, **fields(e, "metrics says")} for e in comparison.explanations],
    }
    return dump({"schema_version": SCHEMA_VERSION, "comparison": content})


def as_html(comparison: Comparison, options: RenderOptions) -> str:
    """Return a comparison as one HTML page without scripts that loads nothing from the network."""
    sides = _sides(comparison)
    parts = (
        el("h1", text("Two runs compared")),
        el("div", *(_side(*side) for side in sides), cls="sides"),
        _section("Reward", _reward(comparison)),
        _section("Metrics that diverged, earliest first", _plots(comparison, options)),
        _section("Settings that differ", el("ul", *(el("li", text(line)) for (line,) in _changed(comparison)))),
    )
    main = el("main", join((el("section", *parts[:2]), *parts[2:])))
    title = f"{' against '.join(name for *_, name in sides)} · ppo-doctor"
    return document(title, el("div", main, cls="frame"), styles=("report.css", "comparison.css"))


def _section(title: str, *content: Markup) -> Markup:
    return el("section", el("h2", text(title)), *content)


def _side(letter: str, side: Side, name: str) -> Markup:
    action = first_action(_summary_of(side))
    return el(
        "section",
        el("h2", el("span", cls=f"key key-{letter.lower()}"), text(f"{letter}  {name}")),
        el("p", *(badge(word) for word in dict.fromkeys(side.verdicts))),
        el("p", text(_standing(side))),
        el("p", el("strong", text("do ")), text(action)) if action else NOTHING,
        cls=f"side-of {letter.lower()}",
    )


def _reward(comparison: Comparison) -> Markup:
    cells = table(map(text, REWARD), [row(*line) for line in _rewards(comparison)], "Reward")
    metrics = {reward.metric if reward is not None else "" for reward in comparison.outcomes}
    metric = metrics.pop() if len(metrics) == 1 else ""  # drawn only if both sides have the same metric
    step = next((d.step for d in comparison.divergences or () if d.metric == metric), None)
    return join((cells, _figure(comparison, metric, step, "") if metric else NOTHING))


def _plots(comparison: Comparison, options: RenderOptions) -> Markup:
    if not comparison.divergences:
        return el("p", text(_diverged(comparison)[0][0]))
    shown = comparison.divergences[: None if options.all else MOST_PLOTS]
    left = len(comparison.divergences) - len(shown)
    figures = (_figure(comparison, d.metric, d.step, _says(d.step, d.a, d.b, level=d.expected)) for d in shown)
    more = el("p", text(f"and {left} more: --all draws them"), cls="quiet") if left else NOTHING
    return join((el("div", *figures, cls="plots"), more))


def _says(step: int, a: float, b: float, *, level: bool) -> str:
    doubt = "; judged by level alone, and seeds may differ as much" if level else ""
    return f"From step {step} on the median of A is {short(a)}, that of B {short(b)}{doubt}."


def _figure(comparison: Comparison, metric: str, step: int | None, says: str) -> Markup:
    """Return a plot with the curve of the first run of each side that has it, or nothing if a side has none."""
    a, b = (_series(side, metric) for side in (comparison.a, comparison.b))
    if a is None or b is None:
        return NOTHING
    steps = [int(series.axis.steps[place]) for series in (a, b) for place in (0, -1)]
    title = f"{a.raw} of A, and of B dashed"
    marks = Marks(onset=step, began="diverged")
    drawn = plot(a, (min(steps), max(steps)), marks, title, other=b)
    heading = el("h3", code(_key(comparison.a, metric)))
    return el("figure", heading, drawn, el("figcaption", text(says)) if says else NOTHING, cls="exhibit")


def _series(side: Side, metric: str) -> Series | None:
    series = next((run.series[metric] for run in side.runs if metric in run.series), None)
    return series if series is not None and len(series) else None
