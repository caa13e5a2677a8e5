"""A story as HTML: verdict and headline, the table, the signal chain, each problem with its plots, then the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.model import CHAIN
from ppo_doctor.report import html_behind, html_plots, phrases
from ppo_doctor.report.blame import suspects
from ppo_doctor.report.html_markup import NOTHING, Markup, el, fold, join, row, table, text
from ppo_doctor.report.nearby import relative
from ppo_doctor.report.phrases import outcome
from ppo_doctor.report.standings import UNIT
from ppo_doctor.report.words import MARKS, flowing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ppo_doctor.model import ChainLink, Diagnosis, LinkState, Run, Verdict
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.html_plots import Drawing
    from ppo_doctor.story import Story
    from ppo_doctor.story.model import Row, Table, Told

VERDICT_MARKS: Mapping[Verdict, str] = {"healthy": "✓", "warning": "!", "unhealthy": "✗", "inconclusive": "?"}
#: The signal within one link of the chain, 100 wide and 40 high: a beat, none, or nothing known.
TRACES: Mapping[LinkState, str] = {
    "alive": "M0 20H30L35 16L41 26L48 4L56 36L62 14L67 20H100",
    "weak": "M0 20H42L47 16L52 24L57 20H100",
    "wrong": "M0 20H20L35 36L50 4L65 36L80 4L90 20H100",
    "dead": "M0 20H100M42 8L58 32M58 8L42 32",
    "unknown": "M0 20H100",
}
NO_PLOTS = "Plots are left out: this page was made without the log's records."
#: States of a link that have to do with a problem.
ILL = ("weak", "wrong", "dead")


def badge(verdict: Verdict) -> Markup:
    """Return a verdict's word with its sign."""
    mark = el("span", text(VERDICT_MARKS[verdict]), cls="mark", aria_hidden="true")
    return el("span", mark, text(f" {verdict}"), cls=f"badge {verdict}")


def told_run(
    told: Story, diagnosis: Diagnosis, run: Run | None, options: RenderOptions, drawing: Drawing, prefix: str = ""
) -> Markup:
    """Return the story of one run; on a page of several, `prefix` tells its ids from theirs."""
    groups = html_plots.exhibits(told, diagnosis, run, drawing.most)
    plots = [html_plots.figures(group, run, drawing.columns) for group in groups]
    key = NO_PLOTS if run is None else html_plots.KEY if told.problems else ""
    shown = relative(diagnosis)
    ill = any(link.state in ILL for link in diagnosis.chain)
    parts = (
        _hero(told, diagnosis, prefix),
        _chain(shown) if ill else NOTHING,
        *(_problem(p, shown, options, ours, prefix) for p, ours in zip(told.problems, plots, strict=False)),
        _pairs(phrases.rest(told, diagnosis), "advice rest"),
        *plots[len(told.problems) :],
        el("p", text(key), cls="quiet") if key else NOTHING,
        NOTHING if ill else fold("Signal chain", _chain(shown)),
        html_behind.folds(shown, run, told, [exhibit.series for group in groups for exhibit in group], options),
    )
    return join(parts)


def _hero(told: Story, diagnosis: Diagnosis, prefix: str) -> Markup:
    """Return what the first screen has to answer; on a page of several runs the fold has told the verdict."""
    became = outcome(told)
    lead = el("p", text(became), cls="lead") if became else NOTHING
    facts = el("ul", *(el("li", text(fact)) for fact in phrases.facts(diagnosis)), cls="facts", aria_label="The run")
    name = el("p", text(diagnosis.run.id, 300), cls="run-id")
    verdict = NOTHING if prefix else el("h1", badge(diagnosis.verdict), id="verdict")
    numbers = moments(told.table) if told.table is not None else NOTHING
    return el("section", el("div", verdict, name, cls="head"), lead, facts, numbers, cls=f"hero {diagnosis.verdict}")


def moments(told: Table) -> Markup:
    """Return the metrics that matter at the moments that tell, what is usual, and what stands out."""
    beside = phrases.beside(told)
    heads = [join((text(m.name), el("span", text(f"step {m.step}"), cls="step"))) for m in told.moments]
    rows = (_row(row, [moment.name for moment in told.moments], beside) for row in told.rows)
    heads += [el("span", text(name), cls="beside") for name in beside]
    made = table((text("metric"), *heads), rows, "Metrics at the moments that tell", cls="moments")
    return el("div", made, cls="wide", tabindex="0", role="region", aria_label="Metrics")


def _row(row: Row, names: Sequence[str], beside: Sequence[str]) -> Markup:
    name = el("th", el("code", text(phrases.row_name(row))), scope="row")
    values = (el("td", text(v), cls=f"at-{at}") for v, at in zip(phrases.cells(row), names, strict=True))
    return el("tr", name, *values, *(el("td", text(flowing(getattr(row, column))), cls=column) for column in beside))


def _problem(problem: Told, diagnosis: Diagnosis, options: RenderOptions, plots: Markup, prefix: str) -> Markup:
    """Return a problem: what it is, what to do about it, its plots, and how it was weighed."""
    name = f"{prefix}problem-{problem.rank}"
    rank = el("span", text(str(problem.rank)), cls="rank")
    heading = el("h3" if prefix else "h2", rank, text(phrases.title(problem)), id=name)
    severity = problem.severity.value
    words = phrases.standing(problem, diagnosis)
    tags = (el("li", text(word), cls=f"sev {severity}" if word == severity else "") for word in words)
    standing = el("ul", *tags, cls="tags")
    advice = _pairs(phrases.advice(problem), "advice")
    causes = suspects(diagnosis, problem)
    account = html_behind.accounts(f"How it was weighed, in {UNIT}", causes, diagnosis, unfolded=options.why)
    parts = (heading, standing, advice, plots, account)
    return el("article", *parts, cls=f"problem {problem.severity.value}", aria_labelledby=name)


def _pairs(rows: Sequence[tuple[str, str]], cls: str) -> Markup:
    """Return sentences, each with its label beside it."""
    pairs = (join((el("dt", text(label), cls="do" * (label == "do")), el("dd", text(words)))) for label, words in rows)
    return el("dl", *pairs, cls=cls) if rows else NOTHING


def _chain(diagnosis: Diagnosis) -> Markup:
    """Return the signal chain as one line that goes flat where the signal dies, the side links, and their witnesses."""
    main = [link for link in diagnosis.chain if link.link in CHAIN]
    beside = [link for link in diagnosis.chain if link.link not in CHAIN and link.state != "unknown"]
    picture = el("ol", *(_node(link) for link in main), cls="chain", aria_label="Signal chain, from rollout to ratio")
    side = el("ul", *(_node(link) for link in beside), cls="chain side", aria_label="Beside the chain")
    return el("div", picture, side if beside else NOTHING, _shown(diagnosis.chain), cls="signal")


def _node(link: ChainLink) -> Markup:
    mark = el("span", text(MARKS[link.state]), cls="mark", aria_hidden="true")
    state = el("span", mark, text(f" {_state(link)}"), cls="state")
    return el("li", _trace(link.state), el("span", text(link.link), cls="name"), state, cls=f"link {link.state}")


def _state(link: ChainLink) -> str:
    return "not logged" if link.state == "unknown" else link.state


def _trace(state: LinkState) -> Markup:
    """Return the link's stretch of one line that runs through the whole chain and shows where the signal dies."""
    shape = {"viewBox": "0 0 100 40", "preserveAspectRatio": "none", "aria_hidden": "true", "focusable": "false"}
    return el("svg", el("path", d=TRACES[state]), cls="trace", **shape)


def _shown(links: Sequence[ChainLink]) -> Markup:
    rows = [row(link.link, _state(link), flowing(link.witness)) for link in links if link.witness]
    title = "What shows the state of each link"
    return (
        fold(title, table(map(text, ("Link", "State", "What shows it")), rows, title, cls="states"))
        if rows
        else NOTHING
    )
