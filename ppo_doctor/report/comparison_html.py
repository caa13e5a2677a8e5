"""A comparison as one HTML file: both sides, the reward, and a plot of both curves for each metric that diverged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.report.comparison import PAID, changed, key, paid, parted, sides, standing, summary_of
from ppo_doctor.report.fleet import names
from ppo_doctor.report.html import badge
from ppo_doctor.report.html_markup import NOTHING, Markup, code, document, el, join, row, table, text
from ppo_doctor.report.phrases import first_action
from ppo_doctor.report.plots import Marks, plot
from ppo_doctor.report.words import short

if TYPE_CHECKING:
    from ppo_doctor.model.run import Series
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.compare import Comparison, Side

#: More plots would make a page that nobody reads to its end; `--all` draws all of them.
MOST_PLOTS = 12


def page(comparison: Comparison, options: RenderOptions) -> str:
    """Return a comparison as a page that fetches and runs nothing."""
    called = names([comparison.a.name, comparison.b.name])
    parts = (
        el("h1", text("Two runs compared")),
        el("div", *(_side(*side, name) for side, name in zip(sides(comparison), called, strict=True)), cls="sides"),
        _section("Reward", _reward(comparison)),
        _section("Metrics that diverged, earliest first", _plots(comparison, options)),
        _section("Settings that differ", el("ul", *(el("li", text(line)) for (line,) in changed(comparison)))),
    )
    main = el("main", join((el("section", *parts[:2]), *parts[2:])))
    title = f"{' against '.join(called)} · ppo-doctor"
    return document(title, [el("div", main, cls="frame")], styles=("report.css", "comparison.css"))


def _section(title: str, *content: Markup) -> Markup:
    return el("section", el("h2", text(title)), *content)


def _side(letter: str, side: Side, name: str) -> Markup:
    action = first_action(summary_of(side))
    return el(
        "section",
        el("h2", el("span", cls=f"key key-{letter.lower()}"), text(f"{letter}  {name}")),
        el("p", *(badge(word) for word in dict.fromkeys(side.verdicts))),
        el("p", text(standing(side))),
        el("p", el("strong", text("do ")), text(action)) if action else NOTHING,
        cls=f"side-of {letter.lower()}",
    )


def _reward(comparison: Comparison) -> Markup:
    cells = table(map(text, PAID), [row(*line) for line in paid(comparison)], "Reward")
    metric = _rewarded(comparison)
    step = next((d.step for d in comparison.divergences or () if d.metric == metric), None)
    return join((cells, _figure(comparison, metric, step, "") if metric else NOTHING))


def _rewarded(comparison: Comparison) -> str:
    """Return the metric that both sides are paid by; nothing where there is none."""
    metrics = {found.metric if found is not None else "" for found in comparison.outcomes}
    return metrics.pop() if len(metrics) == 1 else ""


def _plots(comparison: Comparison, options: RenderOptions) -> Markup:
    if not comparison.divergences:
        return el("p", text(parted(comparison)[0][0]))
    shown = comparison.divergences[: None if options.all else MOST_PLOTS]
    left = len(comparison.divergences) - len(shown)
    figures = (_figure(comparison, d.metric, d.step, _says(d.step, d.a, d.b, level=d.expected)) for d in shown)
    more = el("p", text(f"and {left} more: --all draws them"), cls="quiet") if left else NOTHING
    return join((el("div", *figures, cls="plots"), more))


def _says(step: int, a: float, b: float, *, level: bool) -> str:
    doubt = "; judged by level alone, and seeds may differ as much" if level else ""
    return f"From step {step} on the median of A is {short(a)}, that of B {short(b)}{doubt}."


def _figure(comparison: Comparison, metric: str, step: int | None, says: str) -> Markup:
    """Return a plot with the curve of the first run of each side; nothing where one has none."""
    first = [_series(side, metric) for _, side in sides(comparison)]
    a, b = first
    if a is None or b is None:
        return NOTHING
    steps = [int(series.axis.steps[place]) for series in (a, b) for place in (0, -1)]
    title = f"{a.raw} of A, and of B dashed"
    marks = Marks(onset=step, began="diverged")
    drawn = plot(a, (min(steps), max(steps)), marks, title, other=b)
    heading = el("h3", code(key(comparison.a, metric)))
    return el("figure", heading, drawn, el("figcaption", text(says)) if says else NOTHING, cls="exhibit")


def _series(side: Side, metric: str) -> Series | None:
    found = next((run.series[metric] for run in side.runs if metric in run.series), None)
    return found if found is not None and len(found) else None
