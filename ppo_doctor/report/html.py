"""The report as one HTML file: nothing is fetched, nothing runs but its own script, and it prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.model.frozen import frozen
from ppo_doctor.report.html_frame import document
from ppo_doctor.report.html_markup import NOTHING, Markup, el, join, table, text
from ppo_doctor.report.html_plots import MOST_PLOTS, Drawing
from ppo_doctor.report.html_story import badge, told_run
from ppo_doctor.report.nearby import apart
from ppo_doctor.report.phrases import first_action, wrong
from ppo_doctor.report.plots import COLUMNS, small
from ppo_doctor.report.standings import gravity
from ppo_doctor.report.words import count
from ppo_doctor.story import story
from ppo_doctor.story.numbers import short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import Diagnosis, Run
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.story import Story

#: A page's own picture, so that no browser asks a server for one.
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect width='16' height='16' rx='4' fill='%231d5c63'/%3E"
    "%3Cpath d='M2 9h3l2-5 3 8 1.5-3H14' fill='none' stroke='white' stroke-width='1.6'/%3E%3C/svg%3E"
)

#: Bytes of sections on a page of several runs, plots on it in all, and plots of a run however many there are.
MOST_BYTES, MOST_PLOTS_IN_ALL, FEWEST_PLOTS = 1_700_000, 48, 2
#: Up to this many runs plots are as fine as on a page of one.
FEW_RUNS = 6
#: With more runs than this, the table is one of words.
MOST_COURSES = 200


@frozen
class Entry:
    """A run on a page of several, under the name that tells it from the others."""

    name: str
    told: Story
    diagnosis: Diagnosis
    run: Run | None


def render(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> str:
    """Return one diagnosis as a page; without the run its plots are left out, and the page says so."""
    body = told_run(story(diagnosis, run), diagnosis, run, options, Drawing())
    return _page(f"{diagnosis.verdict}: {diagnosis.run.id}", body, diagnosis.tool_version)


def render_many(diagnoses: Sequence[Diagnosis], options: RenderOptions, runs: Sequence[Run | None] = ()) -> str:
    """Return the diagnoses of several runs as one page: a table of all, the gravest first, then each run folded.

    A page that grows without end helps nobody: from `MOST_BYTES` on, further runs stand in the table only, and plots
    share `MOST_PLOTS_IN_ALL`.
    """
    drawn = [*runs, *[None] * (len(diagnoses) - len(runs))]
    rows = sorted(zip(diagnoses, drawn, strict=True), key=lambda row: gravity(row[0]))
    names = apart([diagnosis.run.id for diagnosis, _ in rows])
    entries = [
        Entry(name=n, told=story(*row), diagnosis=row[0], run=row[1]) for n, row in zip(names, rows, strict=True)
    ]
    folds = _folds(entries, options)
    listed = [_row(entry, at, linked=at < len(folds)) for at, entry in enumerate(entries)]
    left = len(entries) - len(folds)
    note = el("p", text(f"{count(left, 'run')} of these in the table only: name fewer runs to see more."), cls="quiet")
    heads = map(text, ("Run", "Verdict", "What is wrong, and what to do first", "Reward"))
    runs_table = table(heads, listed, "Every run with its verdict, what is wrong and its reward", cls="runs")
    title = f"{count(len(entries), 'run')} judged"
    body = join((el("h1", text(title), id="verdict"), runs_table, note if left else NOTHING, *folds))
    return _page(title, body, diagnoses[0].tool_version if diagnoses else "")


def _folds(entries: Sequence[Entry], options: RenderOptions) -> list[Markup]:
    """Return as many runs as a page holds, each folded."""
    most = min(MOST_PLOTS, max(FEWEST_PLOTS, MOST_PLOTS_IN_ALL // max(len(entries), 1)))
    drawing = Drawing(most=most, columns=COLUMNS if len(entries) <= FEW_RUNS else COLUMNS // 2)
    folds: list[Markup] = []
    size = 0
    for at, entry in enumerate(entries):
        body = told_run(entry.told, entry.diagnosis, entry.run, options, drawing, f"run-{at}-")
        head = el("h2", badge(entry.told.verdict), text(f" {entry.name}", 300))
        made = el("details", el("summary", head), body, cls="one-run", id=f"run-{at}")
        size += len(made.encode())
        if folds and size > MOST_BYTES:
            break
        folds.append(made)
    return folds


def _row(entry: Entry, at: int, *, linked: bool) -> Markup:
    """Return a run in one line of cause and action."""
    name = text(entry.name, 300)
    heading = el("th", el("a", name, href=f"#run-{at}") if linked else name, scope="row")
    course = _course(entry.told, entry.run if at < MOST_COURSES else None)
    cells = (badge(entry.told.verdict), _in_short(entry.told), course)
    return el("tr", heading, *(el("td", cell) for cell in cells), cls="filtered")


def _in_short(told: Story) -> Markup:
    action = first_action(told)
    do = el("p", el("strong", text("do ")), text(action), cls="quiet") if action else NOTHING
    return join((el("p", text(wrong(told))), do))


def _course(told: Story, run: Run | None) -> Markup:
    """Return the course of the reward over the run, the one number that every run has in common."""
    course = told.outcome
    series = run.series.get(course.metric) if run is not None else None
    if run is None or run.steps is None or series is None or course.start is None or course.end is None:
        return el("span", text("not logged" if run else "not drawn"), cls="quiet")
    first, last = short(course.start), short(course.end)
    picture = small(series, run.steps, f"{series.raw} from {first} to {last}")
    return join((picture, el("span", text(f"{first} → {last}"), cls="quiet")))


def _page(title: str, main: Markup, version: str) -> str:
    more = f"ppo-doctor {version}. ppo-doctor explain NAME tells more about a cause, a check or a metric."
    body = (_bar(), el("main", main, id="main", tabindex="-1"), el("footer", el("p", text(more))))
    head = (
        el("meta", name="generator", content=f"ppo-doctor {version}"),
        el("link", rel="icon", href=_ICON),
    )
    return document(f"{title} · ppo-doctor", body, styles=("report.css",), script="report.js", head=head)


def _bar() -> Markup:
    """Return the page's header; what needs the script stays hidden until it runs."""
    skip = el("a", text("Skip to the verdict"), href="#main", cls="skip")
    brand = el("p", text("ppo-doctor"), cls="brand")
    label = el("label", text("Search causes and checks"), for_="search", cls="unseen")
    field = el("input", type="search", id="search", placeholder="Search causes and checks", autocomplete="off")
    found = el("output", id="found", for_="search")
    search = el("div", label, field, found, role="search", cls="search", hidden=True)
    toggle = el("button", text("Dark"), type="button", id="theme", hidden=True)
    return el("header", skip, brand, search, toggle, cls="bar")
