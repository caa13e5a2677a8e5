"""The third view: every metric of the log with fuzzy search, a sparkline in the list and a plot on its page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.cli.interactive.plots import AROUND, for_metric, plot
from ppo_doctor.cli.interactive.subjects import Copy, Row, Subject, cut, heading, nothing, page_of, ranked
from ppo_doctor.model.arrays import quantile
from ppo_doctor.model.evidence import drawn, number
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import Span, columns, sparkline
from ppo_doctor.report.phrases import flowing
from ppo_doctor.report.plots import thin
from ppo_doctor.runs.log_runs import within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.cli.interactive.subjects import Frame, Session
    from ppo_doctor.model.run import FloatArray, Run, Series
    from ppo_doctor.report.layout import Line, Page

#: Columns of a name, of a spark and of the last value in the list, at the least.
NAME, SPARK, LAST = 12, 8, 10
MOST_ROWS = 24


class Metrics(Subject):
    """Every series of a run."""

    title = "Metrics"

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        #: sparklines of the run that is shown, by metric and width, because a long run takes time
        self._sparks: dict[tuple[str, int], str] = {}
        self._of: Run | None = None

    def rows(self, query: str, width: int) -> list[Row]:
        """Return the metrics whose canonical or native name matches, those in fired findings first and marked."""
        run = self._session.run
        implicated = self._implicated()
        ordered = sorted(run.series.values(), key=lambda s: (s.name not in implicated, s.name))
        found = ranked(query, ordered, lambda series: f"{series.name} {series.raw}")
        return [Row(key=s.name, lines=(self._line(s, width, s.name in implicated),)) for s in found]

    def page(self, key: str, frame: Frame) -> list[Line]:
        """Return a metric's plot, statistics, and what it means."""
        series = self._session.run.series.get(key)
        if series is None:
            return nothing(frame, "No metric fits.")
        page = page_of(frame)
        _about(page, self._session, series)
        rows = min(max(frame.height - len(page.lines) - AROUND - 2, 6), MOST_ROWS)
        picture = self._plot(series, rows, frame)
        return [*picture, (), *page.lines]

    def plots(self, key: str, frame: Frame) -> list[Line]:
        """Return a plot of the steps around the metric's onset, if it has one."""
        series = self._session.run.series.get(key)
        run = self._session.run
        marks_ = for_metric(self._session.diagnosis, key, run) if series is not None else None
        if series is None or marks_ is None or marks_.onset is None:
            return []
        near = _around(series, marks_.onset)
        page = page_of(frame)
        heading(page, f"Around the onset, steps {near[0]}–{near[1]}")
        size = (frame.width, min(frame.height - 4, MOST_ROWS))
        return [*page.lines, *plot(within(series, near), near, marks_, size, ascii_only=frame.ascii)]

    def copies(self, key: str) -> Sequence[Copy]:
        """Return a metric's names."""
        series = self._session.run.series.get(key)
        if series is None:
            return []
        names = [Copy(what="key in the log", text=series.raw), Copy(what="name", text=series.name)]
        return [*names, Copy(what="manual", text=f"ppo-doctor explain {series.name}")]

    def _implicated(self) -> set[str]:
        run = self._session.run
        fired = [f for f in self._session.diagnosis.findings if f.status == "fired"]
        return {name for f in fired for e in f.evidence for name in drawn(e, run)}

    def _line(self, series: Series, width: int, implicated: bool) -> Line:
        """Return name, sparkline and last value in columns; the sparkline takes the remaining width."""
        room = width - LAST - 4
        name = min(max(NAME, *(columns(plain(s)) for s in self._session.run.series)), max(room - SPARK, NAME))
        spark = max(width - name - LAST - 4, SPARK // 2)
        words = cut(plain(series.name), name)
        last = number(float(series.values[-1])) if len(series) else "–"
        return (
            Span("✗ " if implicated else "  ", "red"),
            Span(words + " " * (name - columns(words)), "bold" if implicated else ""),
            Span(" " + self._spark(series, spark).ljust(spark), "cyan"),
            Span(f" {last:>{LAST}}"),
        )

    def _spark(self, series: Series, width: int) -> str:
        if self._of is not self._session.run:
            self._sparks, self._of = {}, self._session.run
        if (series.name, width) not in self._sparks:
            self._sparks[series.name, width] = sparkline(_spark_values(series, width), width)
        return self._sparks[series.name, width]

    def _plot(self, series: Series, rows: int, frame: Frame) -> list[Line]:
        run = self._session.run
        marks_ = for_metric(self._session.diagnosis, series.name, run)
        size = (frame.width, rows + AROUND)
        return plot(series, run.steps or (0, 0), marks_, size, ascii_only=frame.ascii)


def _spark_values(series: Series, width: int) -> list[float | None]:
    """Return values of a series for a sparkline of `width`, NaN and infinities included, thinned if there are many."""
    if len(series) <= 4 * width:
        return [float(value) for value in series.values]
    points = thin(series, (int(series.axis.steps[0]), int(series.axis.steps[-1])), columns=2 * width)
    finite = list(zip(points.steps.tolist(), points.values.tolist(), strict=True))
    signs = {"NaN": float("nan"), "+∞": float("inf"), "−∞": float("-inf")}
    odd = [(step, signs[sign]) for first, last, sign in points.odd for step in {first, last}]
    return [value for _, value in sorted(finite + odd, key=lambda pair: pair[0])]


def _around(series: Series, onset: int) -> tuple[int, int]:
    """Return the steps of the twenty records before an onset and the forty after it."""
    steps = series.axis.steps
    at = int(np.searchsorted(steps, onset))
    return int(steps[max(at - 20, 0)]), int(steps[min(at + 40, len(steps) - 1)])


def _about(page: Page, session: Session, series: Series) -> None:
    known = METRICS.get(series.name)
    if known:
        page.add(Span(f"{known.meaning[:1].upper()}{known.meaning[1:]}.", "bold"))
    kinds = [series.estimator, series.aggregation, series.reference and f"against {series.reference}"]
    place = series.source()
    page.add(("logged as ", Span(plain(series.raw), "cyan"), f", first in {plain(str(place))}"), 0, 2)
    page.add("; ".join(plain(kind) for kind in kinds if kind), 0, 2)
    page.add(_statistics(series.values), 0, 2)
    if not series.resolution.exact:
        page.add(f"written to within {number(series.resolution.absolute)}", 0, 2)
    fired = [f for f in session.shortened.findings if f.status == "fired"]
    concerned = [f for f in fired if any(series.name in drawn(e, session.run) for e in f.evidence)]
    if concerned:
        heading(page, "Findings on it", "2 shows them")
    for finding in concerned:
        page.add((Span("✗ ", "red"), flowing(finding.title), Span(f" {plain(finding.code)}", "dim")), 0, 2)


def _statistics(values: FloatArray) -> str:
    finite = values[np.isfinite(values)]
    odd = len(values) - len(finite)
    parts = [f"{len(values)} records", f"{odd} not finite" if odd else "all finite"]
    if len(finite):
        named = (("min", 0.0), ("p5", 0.05), ("median", 0.5), ("p95", 0.95), ("max", 1.0))
        parts += [f"{name} {number(quantile(finite, share))}" for name, share in named]
    return " · ".join(parts)
