"""A fleet as one HTML page that loads nothing: counts over time, findings, settings that separate, and every run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING

from ppo_doctor import __version__
from ppo_doctor.fleets.page_data import Columns, counted, embedded
from ppo_doctor.fleets.separating import ASSOCIATION
from ppo_doctor.fleets.summary import BROKEN
from ppo_doctor.fleets.text import difference, name_of
from ppo_doctor.report.html import VERDICT_MARKS, framed
from ppo_doctor.report.html_markup import NOTHING, Markup, el, join, row, table, text
from ppo_doctor.report.phrases import VERDICTS, count

if TYPE_CHECKING:
    from ppo_doctor.fleets.separating import Separation, Separator
    from ppo_doctor.fleets.summary import CrossTable, Day, FleetSummary

#: Days that have a bar each, and the days of a bar beyond that.
MOST_BARS, SPANS = 62, (1, 7, 30, 365)
#: Size of a chart, and where its bars begin and end.
WIDE, HIGH, LEFT, TOP, BOTTOM = 560, 190, 54, 10, 166
#: Verdicts and outcomes in the order in which they are stacked, the worst at the bottom.
STACK = ("unhealthy", "warning", "inconclusive", "failed", "healthy")
OUTCOMES = (
    *("never_earned", "lost", "fell", "flat", "too_short", "not_logged", "levelled_off", "at_ceiling", "learned"),
)
#: Causes and findings that are listed.
MOST_LISTED = 10
#: Heads of the list of runs, by the column that they sort by.
HEADS = {
    "run": "Run",
    "verdict": "Verdict",
    "what": "What is wrong",
    "end": "Reward",
    "since": "Since step",
    "trainer": "Trainer",
    "wasted": "Wasted",
    "modified": "Written",
}
#: Shades of a cell in a table of findings.
SHADES = 9
MARKS: Mapping[str, str] = {**{f"{verdict}": mark for verdict, mark in VERDICT_MARKS.items()}, "failed": "–"}


def render(summary: FleetSummary, columns: Columns) -> str:
    """Return a fleet as a page; `columns` are of the runs that the page lists."""
    data, gone = embedded(columns)
    parts = (
        _hero(summary),
        _over_time(summary.days),
        _separating(summary.separating),
        _counts(summary),
        _tables(summary.tables, summary),
        _runs(summary, columns, gone),
        _failures(summary.reasons),
    )
    title = f"{summary.runs:,} {'run' if summary.runs == 1 else 'runs'}"
    return framed(
        title,
        join(parts),
        __version__,
        search="Filter: words, setting=value",
        scripts=("theme.js", "fleet.js"),
        styles=("report.css", "fleet.css"),
        data=data,
    )


def _hero(summary: FleetSummary) -> Markup:
    worst = next((verdict for verdict in VERDICTS if summary.verdicts.get(verdict)), "inconclusive")
    buttons = [_badge(verdict, runs) for verdict, runs in summary.verdicts.items()]
    buttons += [_badge("failed", summary.failed)] * bool(summary.failed)
    title = el("h1", text(f"{summary.runs:,} {'run' if summary.runs == 1 else 'runs'}"), id="verdict")
    facts = [f"{runs:,} {trainer}" for trainer, runs in list(summary.trainers.items())[:6]]
    if summary.days:
        first, last = summary.days[0].day, summary.days[-1].day
        facts.append(f"written {first}" if first == last else f"written {first} to {last}")
    listed = el("ul", *(el("li", text(fact)) for fact in facts), cls="facts", aria_label="The fleet")
    head = el("div", title, *buttons, cls="head")
    return el("section", head, el("p", text(_lead(summary)), cls="lead"), listed, cls=f"hero {worst}")


def _badge(verdict: str, runs: int) -> Markup:
    mark = MARKS[verdict]
    words = f" {runs:,} {'not judged' if verdict == 'failed' else verdict}"
    inside = (el("span", text(mark), cls="mark", aria_hidden="true"), text(words))
    return el("button", *inside, cls=f"badge {verdict}", type="button", data_filter="verdict", data_value=verdict)


def _lead(summary: FleetSummary) -> str:
    broken = summary.verdicts.get(BROKEN, 0)
    causes = [each for each in summary.causes if not each.benign][:3]
    most = ", ".join(f"{each.id} ({each.runs:,})" for each in causes)
    share = f" ({100 * broken / summary.judged:.0f} %)" if summary.judged else ""
    often = f". What leads most often: {most}" if most else ""
    return f"{broken:,} of {summary.judged:,} judged runs{share} are unhealthy{often}."


def _section(id: str, title: str, *parts: Markup) -> Markup:
    return el("section", el("h2", text(title), id=id), *parts, cls="part", aria_labelledby=id)


def _over_time(days: Sequence[Day]) -> Markup:
    """Return two charts, of verdicts and of outcomes, by the day on which the files of runs were last written."""
    if not days:
        return NOTHING
    span = _span(days)
    unit = {1: "day", 7: "week", 30: "30 days", 365: "year"}[span]
    verdicts = _chart("Verdicts", unit, _bars(days, span, lambda day: day.verdicts), STACK)
    outcomes = _chart("Rewards", unit, _bars(days, span, lambda day: day.outcomes), OUTCOMES)
    return _section("time", "Over time", el("div", verdicts, outcomes, cls="plots"))


def _span(days: Sequence[Day]) -> int:
    """Return the days of a bar."""
    length = (date.fromisoformat(days[-1].day) - date.fromisoformat(days[0].day)).days + 1
    return next((span for span in SPANS if length <= MOST_BARS * span), SPANS[-1])


def _bars(days: Sequence[Day], span: int, of: Callable[[Day], Mapping[str, int]]) -> list[tuple[str, Counter[str]]]:
    """Return the counts of each stretch of days, also of those without a run."""
    first = date.fromisoformat(days[0].day)
    size = (date.fromisoformat(days[-1].day) - first).days // span + 1
    bars = [(f"{first + timedelta(at * span)}", Counter[str]()) for at in range(size)]
    for day in days:
        bars[(date.fromisoformat(day.day) - first).days // span][1].update(of(day))
    return bars


def _chart(name: str, unit: str, bars: Sequence[tuple[str, Counter[str]]], order: Sequence[str]) -> Markup:
    """Return stacked bars with a key."""
    top = _round_up(max(counts.total() for _, counts in bars))
    step = (WIDE - LEFT) / len(bars)
    drawn = [_bar(bar, LEFT + at * step, step, top, order) for at, bar in enumerate(bars)]
    marks = dict.fromkeys((0, len(bars) // 2, len(bars) - 1) if len(bars) > 2 else range(len(bars)))
    labels = [_label(bars[at][0], LEFT + (at + 0.5) * step, _anchor(at, len(bars))) for at in marks]
    grid = [_line(value, top) for value in dict.fromkeys((0, top // 2, top))]
    about = f"{name} of runs by the {unit} in which their files were last written"
    view = {"viewBox": f"0 0 {WIDE} {HIGH}", "role": "img", "aria_label": about}
    picture = el("svg", *grid, *drawn, *labels, cls="bars", **view)
    held = [kind for kind in order if any(counts[kind] for _, counts in bars)]
    keys = (el("li", el("span", cls=f"swatch {kind}"), text(_word(kind))) for kind in reversed(held))
    caption = el("figcaption", el("strong", text(name)), el("span", text(f"by {unit}, UTC"), cls="canon"))
    return el("figure", caption, picture, el("ul", *keys, cls="keys"), cls="exhibit")


def _bar(bar: tuple[str, Counter[str]], x: float, step: float, top: int, order: Sequence[str]) -> Markup:
    day, counts = bar
    pieces, below = [], 0
    width = min(step - min(2.0, step * 0.15), 40.0)
    for kind in order:
        if counts[kind]:
            low, high = (BOTTOM - (BOTTOM - TOP) * value / top for value in (below, below + counts[kind]))
            size = {"x": f"{x + (step - width) / 2:.1f}", "y": f"{high:.1f}", "width": f"{width:.1f}"}
            pieces.append(el("rect", cls=kind, height=f"{max(low - high, 0.3):.1f}", **size))
            below += counts[kind]
    words = ", ".join(f"{counts[kind]:,} {_word(kind)}" for kind in reversed(order) if counts[kind])
    return el("g", el("title", text(f"{day}: {words}")), *pieces) if pieces else NOTHING


def _word(kind: str) -> str:
    return "not judged" if kind == "failed" else kind.replace("_", " ")


def _anchor(at: int, size: int) -> str:
    return "middle" if 0 < at < size - 1 or size == 1 else "start" if at == 0 else "end"


def _label(day: str, x: float, anchor: str) -> Markup:
    return el("text", text(day), x=f"{x:.1f}", y=str(BOTTOM + 17), text_anchor=anchor)


def _line(value: int, top: int) -> Markup:
    y = f"{BOTTOM - (BOTTOM - TOP) * value / top:.1f}"
    name = el("text", text(f"{value:,}"), x=str(LEFT - 6), y=y, dy=".32em", text_anchor="end")
    return join((el("line", cls="grid", x1=str(LEFT), x2=str(WIDE), y1=y, y2=y), name))


def _round_up(value: int) -> int:
    """Return the least number of one digit and zeros that is not less than a number, and at least 2."""
    power = 1
    while value > 10 * power:
        power *= 10
    return next(step * power for step in (2, 3, 4, 5, 6, 8, 10) if value <= step * power)


def _separating(separation: Separation) -> Markup:
    """Return the table of settings that separate, or a sentence that none does."""
    looked = f"{count(separation.values, 'value')} of {count(separation.settings, 'setting')}"
    about = (
        f"Unhealthy runs against healthy ones and those with a warning. Looked at: {looked}; values of fewer than five"
        " runs, constants, and what identifies a run are left out. Probabilities are of Fisher's exact test, corrected"
        " by Holm for all that was looked at; intervals are Newcombe's, of 95 %."
    )
    more = f" And {count(separation.more, 'more setting')}." if separation.more else ""
    note = el("p", text(about + more), cls="quiet")
    if not separation.found:
        none = el("p", text("No setting separates the unhealthy runs from the others."), cls="none")
        return _section("separating", "Settings that separate", none, note)
    heads = ("Setting", "Unhealthy with it", "Unhealthy with another", "Difference", "", "Corrected p")
    rows = map(_separator, separation.found)
    made = table(map(text, heads), rows, "Settings that separate unhealthy runs from the others", cls="separators")
    word = el("p", el("strong", text("Association")), text(ASSOCIATION.removeprefix("association") + "."))
    wide = el("div", made, cls="wide", tabindex="0", role="region", aria_label="Settings that separate")
    return _section("separating", "Settings that separate", word, wide, note)


def _separator(each: Separator) -> Markup:
    name = el("code", text(name_of(each)))
    if each.exact:
        asked = f'"{each.setting}={each.value}"' if " " in each.setting + each.value else f"{each.setting}={each.value}"
        name = el("button", name, type="button", cls="as-link", data_filter="search", data_value=asked)
    also = el("p", text(f"the same runs: {', '.join(each.also)}"), cls="about") if each.also else NOTHING
    probability = "< 1e-99" if each.probability < 1e-99 else f"{each.probability:.2g}"
    cells = (
        el("td", text(_share(each.broken, each.runs))),
        el("td", text(_share(each.broken_others, each.runs_others))),
        el("td", text(difference(each))),
        el("td", _interval(each), cls="drawn"),
        el("td", text(probability)),
    )
    return el("tr", el("th", name, also, scope="row"), *cells)


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({100 * part / whole:.0f} %)"


def _interval(each: Separator) -> Markup:
    """Return the interval drawn between -100 and +100 points."""
    low, high, middle = (f"{70 + 70 * value:.1f}" for value in (each.low, each.high, each.difference))
    zero = el("line", cls="grid", x1="70", x2="70", y1="2", y2="18")
    axis = el("line", cls="grid", x1="0", x2="140", y1="10", y2="10")
    whisker = el("line", cls="whisker", x1=low, x2=high, y1="10", y2="10")
    dot = el("circle", cls="spot", cx=middle, cy="10", r="4")
    kind = "worse" if each.difference > 0 else "better"
    return el("svg", axis, zero, whisker, dot, cls=f"interval {kind}", viewBox="0 0 140 20", aria_hidden="true")


def _counts(summary: FleetSummary) -> Markup:
    """Return the most frequent causes and findings side by side."""
    causes = [(each.id, each.runs, "") for each in summary.causes if not each.benign]
    findings = [(each.id, each.runs, each.title) for each in summary.findings]
    lists = (
        _frequent("Causes that lead", "search", [(id, runs, f"cause={id}", title) for id, runs, title in causes]),
        _frequent("Findings", "finding", [(id, runs, id, title) for id, runs, title in findings]),
    )
    return _section("counts", "Of what", el("div", *lists, cls="plots")) if causes or findings else NOTHING


def _frequent(title: str, filter: str, entries: Sequence[tuple[str, int, str, str]]) -> Markup:
    most = max((runs for _, runs, _, _ in entries), default=1)
    rows = []
    for name, runs, value, says in entries[:MOST_LISTED]:
        inside = el("code", text(name))
        button = el(
            "button", inside, type="button", cls="as-link", data_filter=filter, data_value=value, title=says or None
        )
        meter = el("svg", el("rect", width=f"{100 * runs / most:.1f}", height="8"), cls="meter", **_METER)
        rows.append(el("tr", el("th", button, scope="row"), el("td", meter), el("td", text(f"{runs:,}"), cls="number")))
    left = len(entries) - MOST_LISTED
    more = el("p", text(f"and {left} more"), cls="quiet") if left > 0 else NOTHING
    body = el("table", el("caption", text(title)), el("tbody", *rows), cls="frequent")
    return el("div", body, more) if rows else NOTHING


_METER: Mapping[str, str] = {"viewBox": "0 0 100 8", "preserveAspectRatio": "none", "aria_hidden": "true"}


def _tables(tables: Sequence[CrossTable], summary: FleetSummary) -> Markup:
    """Return the tables of findings by column and by setting; the script shows one at a time."""
    if not tables or not summary.findings:
        return NOTHING
    options = [
        el("option", text(f"setting {each.name}" if each.setting else each.name, 100), value=str(at))
        for at, each in enumerate(tables)
    ]
    label = el("label", text("Findings by "), el("select", *options, id="by-of"), cls="choose", hidden=True)
    return _section("by", "Findings by trainer, model and setting", label, *map(_cross, tables))


def _cross(each: CrossTable) -> Markup:
    heads = [text("Finding")]
    for value, runs in zip(each.values, each.runs, strict=True):
        of = el("span", text(f"{runs:,} {'run' if runs == 1 else 'runs'}"), cls="step")
        heads.append(join((text(value, 60), of)))
    rows = (_cross_row(id, numbers, each) for id, numbers in each.findings)
    about = f"Findings by {'setting ' if each.setting else ''}{each.name}"
    head = el("thead", el("tr", *(el("th", head, scope="col") for head in heads)))
    made = el("table", el("caption", text(about)), head, el("tbody", *rows), data_name=each.name, cls="crossed")
    more = el("p", text(f"and {count(each.other, 'other value')}"), cls="quiet") if each.other else NOTHING
    return el("div", made, more, cls="wide cross", tabindex="0", role="region", aria_label=about)


def _cross_row(id: str, numbers: Sequence[int], each: CrossTable) -> Markup:
    cells = []
    for at, (number, runs) in enumerate(zip(numbers, each.runs, strict=True)):
        shade = f"s{round(SHADES * number / runs)}" if runs else ""
        inside = el(
            "button",
            text(f"{100 * number / runs:.0f} %"),
            type="button",
            data_value=each.values[at],
            title=f"{number:,} of {runs:,}",
        )
        cells.append(el("td", inside if number else text("–"), cls=shade))
    return el("tr", el("th", el("code", text(id)), scope="row"), *cells, data_finding=id)


def _runs(summary: FleetSummary, columns: Columns, gone: Sequence[str]) -> Markup:
    """Return the frame of the list, which the script fills."""
    listed = len(columns["run"])
    notes = []
    if listed < summary.runs:
        notes.append(f"The {listed:,} worst of {summary.runs:,} runs; the table has all.")
    if gone:
        notes.append(f"Left out for the size of the page: {', '.join(gone)}.")
    heads = (
        el("span", el("button", text(name), type="button", data_sort=key), role="columnheader", cls=f"c-{key}")
        for key, name in HEADS.items()
    )
    choices = el(
        "div", *_choices(summary, columns), el("button", text("Show all"), type="button", id="reset"), cls="choices"
    )
    head = el("div", el("div", *heads, role="row", cls="line heads"), role="rowgroup", id="heads")
    view = el("div", head, el("div", id="rows", role="rowgroup"), id="view", role="presentation", tabindex="-1")
    grid = el("div", view, role="table", aria_label="Runs", id="list", hidden=True)
    noted = el("p", text(" ".join(notes)), cls="quiet") if notes else NOTHING
    script = el("noscript", el("p", text("The list of runs needs the script of this page.")))
    return _section("runs", "Runs", choices, noted, grid, script)


def _choices(summary: FleetSummary, columns: Columns) -> Iterable[Markup]:
    verdicts = [(word, _word(word), runs) for word, runs in counted(columns, "verdict")]
    findings = [(each.id, each.id, each.runs) for each in summary.findings]
    trainers = [(word, word, runs) for word, runs in counted(columns, "trainer")]
    for name, entries in (("verdict", verdicts), ("finding", findings), ("trainer", trainers)):
        options = [el("option", text(f"every {name}"), value="")]
        options += [el("option", text(f"{word} ({runs:,})", 100), value=value) for value, word, runs in entries]
        yield el(
            "label", el("span", text(name), cls="unseen"), el("select", *options, id=f"{name}-of", autocomplete="off")
        )


def _failures(reasons: Mapping[str, int]) -> Markup:
    if not reasons:
        return NOTHING
    rows = [row(reason, f"{runs:,}") for reason, runs in list(reasons.items())[:MOST_LISTED]]
    made = table(map(text, ("Reason", "Runs")), rows, "Why runs were not judged", cls="reasons")
    return _section("failed", "Not judged", made)
