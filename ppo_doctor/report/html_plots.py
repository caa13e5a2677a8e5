"""The plots of a page: metrics of the evidence under each problem, and those of the table under the first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor.model.evidence import drawn, number
from ppo_doctor.model.frozen import frozen
from ppo_doctor.report.html_markup import NOTHING, Markup, code, el, text
from ppo_doctor.report.phrases import capital, causes_of, flowing
from ppo_doctor.report.plots import COLUMNS, marks, plot
from ppo_doctor.report.summary import support

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.rules import Finding
    from ppo_doctor.model.run import Run, Series
    from ppo_doctor.report.plots import Marks
    from ppo_doctor.report.summary import ProblemSummary, Summary

#: Plots of a problem's evidence, and of all problems of a run: more would make a page that nobody reads to its end.
MOST_OF_EVIDENCE, MOST_PLOTS = 4, 16
#: Titles of findings under a plot.
MOST_TITLES = 2
KEY = "Dotted line: onset. Shaded, with a bar below: records beyond the dashed bound. Hatched: NaN or infinite."


@frozen
class Drawing:
    """How many metrics of a run are drawn, and how finely."""

    most: int = MOST_PLOTS
    columns: int = COLUMNS


@frozen
class Exhibit:
    """A metric to be drawn, with the findings that speak of it, the weightiest first, and since when it is off."""

    series: str
    findings: tuple[Finding, ...] = ()
    since: int | None = None


def exhibits(summary: Summary, diagnosis: Diagnosis, run: Run | None, most: int = MOST_PLOTS) -> list[list[Exhibit]]:
    """Return what to draw for each problem; of a run without one, the metrics of its table."""
    if run is None or run.steps is None:
        return [[] for _ in summary.problems] or [[]]
    of_table = [row.name for row in summary.table.rows] if summary.table is not None else []
    groups = [_of_problem(problem, diagnosis, run) for problem in summary.problems] or [[]]
    seen = [exhibit.series for exhibit in groups[0]]
    since = summary.problems[0].since if summary.problems else None
    groups[0] += [Exhibit(series=name, since=since) for name in of_table if name not in seen]
    left = [most, *(most - sum(map(len, groups[:i])) for i in range(1, len(groups)))]
    return [_without_twins(group, run)[: max(0, room)] for group, room in zip(groups, left, strict=True)]


def _of_problem(problem: ProblemSummary, diagnosis: Diagnosis, run: Run) -> list[Exhibit]:
    """Return the metrics of a problem's evidence: of the findings that show it, then of those that explain it."""
    found: dict[str, list[Finding]] = {}
    shown = diagnosis.problems[problem.rank - 1].findings
    seen = [finding for name in shown for finding in diagnosis.findings if finding.rule == name]
    explained = [finding for cause in causes_of(diagnosis, problem) for finding in support(cause, diagnosis)]
    for finding in {finding.rule: finding for finding in (*seen, *explained)}.values():
        for name in dict.fromkeys(name for evidence in finding.evidence for name in drawn(evidence, run)):
            found.setdefault(name, []).append(finding)
    ours = [Exhibit(series=name, findings=tuple(fs), since=problem.since) for name, fs in found.items()]
    return ours[:MOST_OF_EVIDENCE]


def _without_twins(group: Iterable[Exhibit], run: Run) -> list[Exhibit]:
    """Return plots without those that would repeat a line: one key may serve two metrics."""
    kept: dict[tuple[str, int], Exhibit] = {}
    for exhibit in group:
        series = run.series[exhibit.series]
        kept.setdefault((series.raw, id(series.axis)), exhibit)
    return list(kept.values())


def figures(group: Sequence[Exhibit], run: Run | None, columns: int = COLUMNS) -> Markup:
    """Return the plots of a problem, or of a run."""
    if not group or run is None:
        return NOTHING
    return el("div", *(_figure(exhibit, run, columns) for exhibit in group), cls="plots")


def _figure(exhibit: Exhibit, run: Run, columns: int) -> Markup:
    series = run.series[exhibit.series]
    marked = marks(exhibit.series, exhibit.findings, run)
    marked = replace(marked, onset=marked.onset if exhibit.since is None else exhibit.since)
    other = f"{exhibit.series}{f', {series.unit}' if series.unit else ''}"
    meaning = el("span", text(other), cls="canon") if other != series.raw else NOTHING
    name = el("figcaption", code(series.raw), text(" "), meaning)
    picture = plot(series, run.steps or (0, 0), marked, _alternative(series, marked), columns)
    titles = dict.fromkeys(capital(flowing(finding.title)) for finding in exhibit.findings)
    said = [el("p", text(f"{title}."), cls="said") for title in list(titles)[:MOST_TITLES]]
    return el("figure", name, picture, *said, cls="exhibit", data_name=series.raw)


def measured(series: Series) -> list[tuple[str, str]]:
    """Return the numbers of a metric with their names."""
    import numpy as np

    finite = series.values[np.isfinite(series.values)]
    numbers = [("records", str(len(series)))]
    if len(finite):
        least, middle, greatest = np.quantile(finite, (0, 0.5, 1)).tolist()
        levels = {"first": finite[0], "last": finite[-1], "least": least, "median": middle, "greatest": greatest}
        numbers += [(name, number(value)) for name, value in levels.items()]
    odd = len(series) - len(finite)
    return [*numbers, ("not finite", str(odd))] if odd else numbers


def _alternative(series: Series, marked: Marks) -> str:
    """Return what a plot shows, for those who do not see it."""
    numbers = ", ".join(f"{name} {value}" for name, value in measured(series))
    parts = [f"Line plot of {series.raw} over the steps of the run: {numbers}"]
    if marked.onset is not None:
        parts.append(f"onset marked at step {marked.onset}")
    parts += [f"offending window from step {first} to {last}" for first, last in marked.windows]
    parts += [f"bound {mark.op} {number(mark.value)}" for mark in marked.bounds]
    return "; ".join(parts) + "."
