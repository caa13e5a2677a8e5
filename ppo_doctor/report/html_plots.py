"""The plots of an HTML page: metrics of the evidence for each problem, and those of the table for the first."""

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

#: The most plots of the evidence of a problem, and the most plots of a run, to limit the length of the page.
MOST_OF_EVIDENCE, MOST_PLOTS = 4, 16
#: The most titles of findings under a plot.
MOST_TITLES = 2
KEY = "Dotted line: onset. Shaded, with a bar below: records beyond the dashed bound. Hatched: NaN or infinite."


@frozen
class Drawing:
    """The most plots of a run, and the columns of each."""

    most: int = MOST_PLOTS
    columns: int = COLUMNS


@frozen
class Exhibit:
    """A metric to be drawn, with the findings about it, the weightiest first, and the onset of its problem."""

    series: str
    findings: tuple[Finding, ...] = ()
    since: int | None = None


def exhibits(summary: Summary, diagnosis: Diagnosis, run: Run | None, most: int = MOST_PLOTS) -> list[list[Exhibit]]:
    """Return the metrics to draw for each problem; a run without problems has one group, the metrics of its table."""
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
    """Return the metrics of the evidence of a problem: of its findings, then of those that support its causes."""
    by_metric: dict[str, list[Finding]] = {}
    names = diagnosis.problems[problem.rank - 1].findings
    seen = [finding for name in names for finding in diagnosis.findings if finding.rule == name]
    explained = [finding for cause in causes_of(diagnosis, problem) for finding in support(cause, diagnosis)]
    for finding in {finding.rule: finding for finding in (*seen, *explained)}.values():
        for name in dict.fromkeys(name for evidence in finding.evidence for name in drawn(evidence, run)):
            by_metric.setdefault(name, []).append(finding)
    group = [Exhibit(series=name, findings=tuple(fs), since=problem.since) for name, fs in by_metric.items()]
    return group[:MOST_OF_EVIDENCE]


def _without_twins(group: Iterable[Exhibit], run: Run) -> list[Exhibit]:
    """Return exhibits without those that would draw the same line again, because a key may be two metrics."""
    by_line: dict[tuple[str, int], Exhibit] = {}
    for exhibit in group:
        series = run.series[exhibit.series]
        by_line.setdefault((series.raw, id(series.axis)), exhibit)
    return list(by_line.values())


def figures(group: Sequence[Exhibit], run: Run | None, columns: int = COLUMNS) -> Markup:
    """Return the plots of a group of metrics."""
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
    captions = [el("p", text(f"{title}."), cls="said") for title in list(titles)[:MOST_TITLES]]
    return el("figure", name, picture, *captions, cls="exhibit", data_name=series.raw)


def measured(series: Series) -> list[tuple[str, str]]:
    """Return statistics of a metric as (name, number)."""
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
    """Return the alternative text of a plot."""
    numbers = ", ".join(f"{name} {value}" for name, value in measured(series))
    parts = [f"Line plot of {series.raw} over the steps of the run: {numbers}"]
    if marked.onset is not None:
        parts.append(f"onset marked at step {marked.onset}")
    parts += [f"offending window from step {first} to {last}" for first, last in marked.windows]
    parts += [f"bound {mark.op} {number(mark.value)}" for mark in marked.bounds]
    return "; ".join(parts) + "."
