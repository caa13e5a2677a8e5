"""The report as one HTML file: nothing is fetched, nothing runs but its own script, and it prints."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.report.html_causes import causes
from ppo_doctor.report.html_checks import also_seen, checks, never_shown, reading, seen_title, unanswered, unexplained
from ppo_doctor.report.html_markup import NOTHING, Markup, el, join, text
from ppo_doctor.report.html_plots import MOST_PLOTS, exhibits, section
from ppo_doctor.report.html_verdict import chain, hero, summary
from ppo_doctor.report.nearby import apart, relative
from ppo_doctor.report.plots import COLUMNS
from ppo_doctor.report.words import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import Diagnosis, Run, Verdict
    from ppo_doctor.report import RenderOptions

_ASSETS = Path(__file__).parent / "assets"
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
VERDICT_ORDER: tuple[Verdict, ...] = ("unhealthy", "warning", "inconclusive", "healthy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """How many metrics of a run are drawn, and how finely."""

    most: int = MOST_PLOTS
    columns: int = COLUMNS


def render(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> str:
    """Return one diagnosis as a page; without the run its plots are left out, and the page says so."""
    body = _run_sections(diagnosis, run, options, "", 1, Drawing())
    title = f"{diagnosis.verdict}: {diagnosis.run.id}"
    return _page(title, _contents(body), join(part for _, _, part in body), diagnosis.tool_version)


def render_many(diagnoses: Sequence[Diagnosis], options: RenderOptions, runs: Sequence[Run | None] = ()) -> str:
    """Return the diagnoses of several runs as one page: a table of all, then each run with its plots.

    A page that grows without end helps nobody: from `MOST_BYTES` on, further runs stand in the table only, the
    gravest first in the sections, and plots share `MOST_PLOTS_IN_ALL`.
    """
    drawn = [*runs, *[None] * (len(diagnoses) - len(runs))]
    prefixes = [f"run-{i}-" for i in range(1, len(diagnoses) + 1)]
    told = _told(diagnoses, drawn, options, prefixes)
    title = f"{count(len(diagnoses), 'run')} judged"
    listed = summary(diagnoses, drawn, [prefix if prefix in told else None for prefix in prefixes])
    left = len(diagnoses) - len(told)
    note = el("p", text(f"{count(left, 'run')} of these in the table only: name fewer runs to see more."), cls="quiet")
    head = el("h1", text(title), id="runs")
    table = el("section", head, listed, note if left else NOTHING, aria_labelledby="runs")
    shown = [(prefix, diagnosis) for prefix, diagnosis in zip(prefixes, diagnoses, strict=True) if prefix in told]
    names = apart([diagnosis.run.id for _, diagnosis in shown])
    links = [("runs", "All runs"), *((f"{row[0]}verdict", name) for row, name in zip(shown, names, strict=True))]
    version = diagnoses[0].tool_version if diagnoses else ""
    return _page(title, _links(links), join((table, *(told[prefix] for prefix, _ in shown))), version)


def _told(
    diagnoses: Sequence[Diagnosis], runs: Sequence[Run | None], options: RenderOptions, prefixes: Sequence[str]
) -> dict[str, Markup]:
    """Return the sections of as many runs as a page holds, the gravest verdicts first."""
    plots = max(FEWEST_PLOTS, MOST_PLOTS_IN_ALL // max(len(diagnoses), 1))
    columns = COLUMNS if len(diagnoses) <= FEW_RUNS else COLUMNS // 2
    rows = sorted(zip(prefixes, diagnoses, runs, strict=True), key=lambda row: VERDICT_ORDER.index(row[1].verdict))
    told: dict[str, Markup] = {}
    size = 0
    for prefix, diagnosis, run in rows:
        part = _one_of_many(diagnosis, run, options, prefix, Drawing(most=min(plots, MOST_PLOTS), columns=columns))
        size += len(part.encode())
        if told and size > MOST_BYTES:
            break
        told[prefix] = part
    return told


def _one_of_many(
    diagnosis: Diagnosis, run: Run | None, options: RenderOptions, prefix: str, drawing: Drawing
) -> Markup:
    parts = _run_sections(diagnosis, run, options, prefix, 2, drawing)
    return el("section", *(part for _, _, part in parts), cls="one-run", aria_labelledby=f"{prefix}run")


def _run_sections(
    diagnosis: Diagnosis, run: Run | None, options: RenderOptions, prefix: str, level: int, drawing: Drawing
) -> list[tuple[str, str, Markup]]:
    """Return the sections of one run as (id, title, HTML); `level` is that of the run's own heading."""
    diagnosis = relative(diagnosis)
    top = el("section", hero(diagnosis, prefix, level), aria_labelledby=None if prefix else "verdict")
    drawn = exhibits(diagnosis, run, drawing.most)
    plots = {f.rule: exhibit.number for exhibit in reversed(drawn) for f in exhibit.findings}
    found = _plural("Cause", diagnosis)
    inner: list[tuple[str, str, Markup]] = [
        ("chain", "Signal chain", chain(diagnosis)),
        ("causes", found, causes(diagnosis, options, plots, prefix, level + 2) if diagnosis.causes else NOTHING),
        ("plots", "Plots", section(drawn, run, prefix, drawing.columns) if run or not prefix else NOTHING),
        ("seen", seen_title(diagnosis), also_seen(diagnosis, plots, prefix) if unexplained(diagnosis) else NOTHING),
        ("open", "Not answered", unanswered(diagnosis)),
        ("checks", "Checks", checks(diagnosis, unfolded=options.all)),
        (
            "never",
            "Not ruled out",
            never_shown(diagnosis) if diagnosis.not_ruled_out else NOTHING,
        ),
        ("reading", "What was read", reading(diagnosis)),
    ]
    below = [
        (f"{prefix}{name}", title, _section(prefix, name, title, part, level + 1))
        for name, title, part in inner
        if part
    ]
    return [(f"{prefix}verdict", "Verdict", top), *below]


def _plural(noun: str, diagnosis: Diagnosis) -> str:
    if all(cause.benign for cause in diagnosis.causes):
        noun = "Harmless explanation"
    return noun + "s" * (len(diagnosis.causes) > 1)


def _section(prefix: str, name: str, title: str, part: Markup, level: int) -> Markup:
    # Among several runs each run is a landmark; "Checks" as one, over and over, would lead nobody anywhere.
    label = None if prefix else name
    return el("section", el(f"h{level}", text(title), id=f"{prefix}{name}"), part, aria_labelledby=label)


def _contents(parts: Sequence[tuple[str, str, Markup]]) -> Markup:
    return _links([(name, title) for name, title, _ in parts])


def _links(links: Sequence[tuple[str, str]]) -> Markup:
    rows = (el("li", el("a", text(title, 80), href=f"#{name}")) for name, title in links)
    return el("nav", el("ul", *rows), cls="contents", aria_label="On this page")


def _page(title: str, contents: Markup, main: Markup, version: str) -> str:
    css, script = _asset("report.css"), _asset("report.js")
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_policy(css, script)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="generator", content=f"ppo-doctor {version}"),
        el("title", text(f"{title} · ppo-doctor", 200)),
        el("link", rel="icon", href=_ICON),
        Markup(f"<style>{css}</style>"),
    )
    foot = el(
        "footer", el("p", text(f"ppo-doctor {version}. ppo-doctor explain NAME tells more about a cause or check."))
    )
    frame = el("div", contents, el("main", main, id="main", tabindex="-1"), cls="frame")
    body = el("body", _bar(), frame, foot, _hatch(), Markup(f"<script>{script}</script>"))
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


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


def _hatch() -> Markup:
    """Return the pattern for records that are not finite."""
    line = el("path", d="M0 0V7", cls="hatch")
    shape = {"width": "7", "height": "7", "patternUnits": "userSpaceOnUse", "patternTransform": "rotate(45)"}
    pattern = el("pattern", line, id="hatch", **shape)
    return el("svg", el("defs", pattern), cls="unseen", width="0", height="0", aria_hidden="true", focusable="false")


@cache
def _asset(name: str) -> str:
    """Return a style sheet or script of ours; it must not hold what would close its element."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def _policy(css: str, script: str) -> str:
    """Return a content security policy that lets only these two run, whatever a log smuggled into the page."""
    rules = (
        "default-src 'none'",
        f"style-src 'sha256-{_digest(css)}'",
        f"script-src 'sha256-{_digest(script)}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def _digest(content: str) -> str:
    return b64encode(sha256(content.encode()).digest()).decode()
