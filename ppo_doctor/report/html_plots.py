"""Which metrics a page draws, in which order, and what each plot points out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ppo_doctor.evidence import drawn, number
from ppo_doctor.evidence import sentence as evidence_says
from ppo_doctor.model import Severity
from ppo_doctor.report.html_markup import NOTHING, Markup, code, el, join, text
from ppo_doctor.report.plots import COLUMNS, plot
from ppo_doctor.report.pointers import marks, speaks_of
from ppo_doctor.report.words import capital, count, flowing, stopped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ppo_doctor.model import Diagnosis, Finding, Run, Series
    from ppo_doctor.report.plots import Marks

#: More would make a page that nobody reads to its end.
MOST_PLOTS = 12
KEY = (
    "Shaded, with a bar below: records past a bound. Long dashes: the bound. Dotted upright: the onset. "
    "Hatched: not finite. Every plot has the same steps."
)
QUIET_KEY = "No check fired on a metric of this log; these tell most about any run."
#: Metrics drawn when no check fired, the most telling first.
VITAL_SIGNS = (
    "reward_mean",
    "episode_return",
    "approx_kl",
    "entropy",
    "clip_fraction",
    "explained_variance",
    "grad_norm",
    "value_loss",
    "ref_kl",
    "policy_loss",
)
MOST_VITAL_SIGNS = 5
#: Sentences under a plot before "and N more".
MOST_SENTENCES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """One plot to be: a metric with the findings that speak of it, the weightiest first."""

    number: int
    series: str
    findings: tuple[Finding, ...]
    #: finding → number of the plot under which its numbers stand
    told: Mapping[str, int]
    #: the step from which the first cause that this metric speaks for is seen, where the findings tell none
    since: int | None = None


def exhibits(diagnosis: Diagnosis, run: Run | None, most: int = MOST_PLOTS) -> list[Exhibit]:
    """Return a plot for every metric of a fired finding: the leading causes' first, then by severity."""
    if run is None or run.steps is None:
        return []
    place = _places(diagnosis)
    found: dict[str, list[Finding]] = {}
    for finding in _ordered(diagnosis, place):
        for name in dict.fromkeys(n for evidence in finding.evidence for n in drawn(evidence, run)):
            found.setdefault(name, []).append(finding)
    chosen = (_without_twins(found, run) if found else _vital_signs(run))[:most]
    told = {f.rule: i for i, (_, ours) in reversed(list(enumerate(chosen, start=1))) for f in ours[:MOST_SENTENCES]}
    onsets = {cause.rank: cause.onset_step for cause in diagnosis.causes}
    return [
        Exhibit(
            number=i,
            series=name,
            findings=tuple(ours),
            told=told,
            since=next((onsets[place[f.rule][0]] for f in ours if f.rule in place), None),
        )
        for i, (name, ours) in enumerate(chosen, start=1)
    ]


def _vital_signs(run: Run) -> list[tuple[str, list[Finding]]]:
    """Return what is worth a look when no check fired: the metrics that tell most about any run."""
    logged = [name for name in VITAL_SIGNS if name in run.series and len(run.series[name])]
    nothing: list[Finding] = []
    return [(name, nothing) for name in logged[:MOST_VITAL_SIGNS]]


def _places(diagnosis: Diagnosis) -> dict[str, tuple[int, int]]:
    """Return, for each finding that speaks for a cause, that cause's rank and the weight, heavier ones smaller."""
    place: dict[str, tuple[int, int]] = {}
    for cause in diagnosis.causes:
        for entry in cause.ledger:
            if entry.db > 0:
                place.setdefault(entry.finding, (cause.rank, -entry.db))
    return place


def _ordered(diagnosis: Diagnosis, place: Mapping[str, tuple[int, int]]) -> list[Finding]:
    """Return fired findings; of two for one cause the heavier first, those for no cause last, mere facts left out."""
    fired = [
        finding
        for finding in diagnosis.findings
        if finding.status == "fired" and (finding.rule in place or finding.severity is not Severity.INFO)
    ]
    return sorted(fired, key=lambda f: (*place.get(f.rule, (10_000, 0)), f.severity.rank))


def _without_twins(found: Mapping[str, list[Finding]], run: Run) -> list[tuple[str, list[Finding]]]:
    """Return the metrics to draw without those that would repeat a line: one key may serve two metrics."""
    kept: dict[tuple[str, int], list[Finding]] = {}
    names: list[tuple[str, list[Finding]]] = []
    for name, findings in found.items():
        series = run.series[name]
        line = (series.raw, id(series.axis))
        if line in kept and all(finding in kept[line] for finding in findings):
            continue
        kept.setdefault(line, findings)
        names.append((name, findings))
    return names


def section(found: Sequence[Exhibit], run: Run | None, prefix: str, columns: int = COLUMNS) -> Markup:
    """Return the plots of a page, or why there are none."""
    if run is None:
        return el("p", text("Plots are left out: this page was made without the log's records."), cls="quiet")
    if not found:
        return el("p", text("No check fired on a metric of this log, so there is nothing to draw."), cls="quiet")
    key = el("p", text(KEY if found[0].findings else QUIET_KEY), cls="quiet key")
    return join((key, el("div", *(_figure(exhibit, run, prefix, columns) for exhibit in found), cls="plots")))


def _figure(exhibit: Exhibit, run: Run, prefix: str, columns: int) -> Markup:
    series = run.series[exhibit.series]
    marked = marks(exhibit.series, exhibit.findings, run, exhibit.since)
    other = f"{exhibit.series}{f', {series.unit}' if series.unit else ''}"
    ordinal = el("span", text(f"Plot {exhibit.number}"), cls="canon")
    name = join(
        (
            ordinal,
            text(" "),
            code(series.raw),
            text(" "),
            el("span", text(other), cls="canon") if other != series.raw else NOTHING,
        )
    )
    heading = el("h3", name, id=f"{prefix}plot-{exhibit.number}")
    picture = plot(series, run.steps or (0, 0), marked, _alternative(series, marked), columns)
    told = el("figcaption", el("p", text(_statistics(series)), cls="stats"), _sentences(exhibit, series, run))
    return el("figure", heading, picture, told, cls="exhibit", data_name=series.raw)


def _statistics(series: Series) -> str:
    import numpy as np

    finite = series.values[np.isfinite(series.values)]
    odd = len(series) - len(finite)
    parts = [count(len(series), "record")]
    if len(finite):
        parts += [f"first {number(finite[0])}", f"last {number(finite[-1])}"]
        parts += [f"least {number(finite.min())}", f"median {number(np.median(finite))}"]
        parts += [f"greatest {number(finite.max())}"]
    if odd:
        parts.append(f"{odd} not finite")
    return " · ".join(parts)


def _alternative(series: Series, marked: Marks) -> str:
    """Return what a plot shows, for those who do not see it."""
    parts = [f"Line plot of {series.raw} over the steps of the run: {_statistics(series).replace(' · ', ', ')}"]
    if marked.onset is not None:
        parts.append(f"onset marked at step {marked.onset}")
    parts += [f"offending window from step {first} to {last}" for first, last in marked.windows]
    parts += [f"bound {mark.op} {number(mark.value)}" for mark in marked.bounds]
    return "; ".join(parts) + "."


def _sentences(exhibit: Exhibit, series: Series, run: Run) -> Markup:
    if not exhibit.findings:
        return NOTHING
    rows = [_sentence(finding, exhibit, series, run) for finding in exhibit.findings[:MOST_SENTENCES]]
    if len(exhibit.findings) > MOST_SENTENCES:
        more = count(len(exhibit.findings) - MOST_SENTENCES, "more check")
        rows.append(el("li", text(f"and {more}, listed below"), cls="quiet"))
    return el("ul", *rows, cls="said")


def _sentence(finding: Finding, exhibit: Exhibit, series: Series, run: Run) -> Markup:
    ours = [e for e in finding.evidence if exhibit.series in drawn(e, run)]
    grave = "" if finding.severity is Severity.INFO else f"{finding.severity.value}: "
    title = el("strong", text(capital(f"{grave}{flowing(finding.title)}")))
    place = exhibit.told.get(finding.rule, exhibit.number)
    if place != exhibit.number:
        return el("li", title, text(f" (see plot {place})"))
    numbers = stopped("; ".join(flowing(evidence_says(e)) for e in ours))
    derived = [flowing(e.metric) for e in ours if not speaks_of(e, series)]
    apart = f" The bound is on {', '.join(dict.fromkeys(derived))}, not on the line." if derived else ""
    return el("li", title, el("span", text(f"{numbers}{apart}")))
