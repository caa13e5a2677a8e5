"""Diagnoses and runs as a Python session has them: what notebooks show of them, tables and figures.

The classes extend those of `model`, which neither print nor draw. A notebook finds `_repr_html_` by its name.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ppo_doctor.model import diagnosis as judged
from ppo_doctor.model import run as read
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.frozen import frozen
from ppo_doctor.report import phrases
from ppo_doctor.report.advice import advice
from ppo_doctor.report.html import badge
from ppo_doctor.report.html_markup import NOTHING, Markup, code, el, fold, from_asset, join, text
from ppo_doctor.report.html_plots import exhibits
from ppo_doctor.report.phrases import count, short
from ppo_doctor.report.plots import LOG_FROM, small
from ppo_doctor.report.summary import relative, summarize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ppo_doctor.model.rules import Finding
    from ppo_doctor.model.words import Status
    from ppo_doctor.report.html_plots import Exhibit
    from ppo_doctor.report.summary import ProblemSummary, Table

#: The most problems with their advice, metrics, settings and notes of a report in a notebook, and plots of a figure.
MOST_PROBLEMS, MOST_METRICS, MOST_SETTINGS, MOST_NOTES, MOST_PLOTS = 3, 20, 60, 12, 8
#: Characters of a name, and of a sentence.
LONGEST_NAME, LONGEST_TEXT = 120, 600


@frozen(eq=False)
class Run(read.Run):
    """Everything that was read about one training run."""

    def _repr_html_(self) -> str:
        return _framed(_run(self))

    def plot(self, *names: str) -> Figure:
        """Return a figure with a plot for each of some metrics, by default of the first eight; needs matplotlib.

        Raises:
            DoctorError: the run has no such metric, or matplotlib is not installed.
        """
        return _figure(self, dict.fromkeys(names or list(self.series)[:MOST_PLOTS]))


@frozen(eq=False)
class Diagnosis(judged.Diagnosis):
    """What a run shows: its verdict, findings, problems and causes, and in `full_run` the run itself."""

    full_run: Run

    def _repr_html_(self) -> str:
        return _framed(_diagnosis(self))

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a row for each check, those that fired first and the most severe of them on top."""
        import pandas as pd

        order = sorted(self.findings, key=lambda finding: (STATUSES.index(finding.status), finding.severity.rank))
        return pd.DataFrame([_row(finding) for finding in order], columns=list(COLUMNS))

    def plot(self, *names: str) -> Figure:
        """Return a figure with a plot for each of some metrics, by default those that tell, with the onset marked.

        Raises:
            DoctorError: the run has no such metric, or matplotlib is not installed.
        """
        shown = {each.series: each.since for each in _exhibits(self)}
        since = self.problems[0].since_step if self.problems else None
        chosen = names or list(shown)[:MOST_PLOTS]
        return _figure(self.full_run, {name: shown.get(name, since) for name in chosen})


#: Statuses of checks in the order of the table of checks, and its columns.
STATUSES: Sequence[Status] = ("fired", "errored", "clear", "skipped")
COLUMNS = ("check", "status", "severity", "link", "says", "since_step", "metric", "observed", "op", "bound", "at")


def run_of(run: read.Run) -> Run:
    """Return a run as a Python session has it."""
    return Run(**_fields(run))


def diagnosis_of(diagnosis: judged.Diagnosis, run: read.Run) -> Diagnosis:
    """Return a diagnosis and its run as a Python session has them."""
    return Diagnosis(**_fields(diagnosis), full_run=run_of(run))


def _fields(held: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass of model
    return {field.name: getattr(held, field.name) for field in fields(held)}


def _row(finding: Finding) -> tuple[object, ...]:
    """Return a check as a row of the table of checks, with the number that its first evidence compares."""
    first = finding.evidence[0] if finding.evidence else None
    numbers = (first.metric, first.observed, first.op, first.bound) if first else (None, None, None, None)
    place = str(first.source) if first and first.source else None
    head = (finding.rule, finding.status, finding.severity.value, finding.link, phrases.finding_says(finding))
    return (*head, finding.onset_step, *numbers, place)


# What a notebook shows


def _framed(body: Iterable[Markup]) -> str:
    """Return a part of a page whose style applies to nothing else; its colours are those of its surroundings."""
    style = el("style", from_asset("notebook.css"))
    return el("div", style, *body, cls="ppo-doctor-output")


def _head(verdict: Markup, name: str, facts: Sequence[str]) -> Markup:
    line = el("p", verdict, text(" "), el("code", text(name, LONGEST_NAME)), cls="head")
    return join((line, el("p", text(" · ".join(facts), LONGEST_TEXT), cls="quiet")))


def _diagnosis(diagnosis: Diagnosis) -> Iterable[Markup]:
    run = diagnosis.full_run
    summary = summarize(diagnosis, run)
    shown = relative(diagnosis)
    yield _head(badge(diagnosis.verdict), diagnosis.run.id, phrases.facts(diagnosis))
    if outcome := phrases.outcome(summary):
        yield el("p", text(outcome, LONGEST_TEXT), cls="lead")
    if summary.table is not None:
        yield _key_steps(summary.table, run, summary.problems[0].since if summary.problems else None)
    for problem in summary.problems[:MOST_PROBLEMS]:
        yield _problem(problem, shown)
    if left := summary.problems[MOST_PROBLEMS:]:
        items = [el("li", text(phrases.title(problem), LONGEST_TEXT)) for problem in left[:MOST_NOTES]]
        yield fold(f"{count(len(left), 'further problem')}", el("ul", *items))
    yield _pairs(phrases.rest(summary, shown)[:MOST_NOTES])


def _problem(problem: ProblemSummary, diagnosis: judged.Diagnosis) -> Markup:
    heading = el("p", text(f"{problem.rank}. {phrases.title(problem)}", LONGEST_TEXT), cls="title")
    standing = el("p", text(" · ".join(phrases.standing(problem, diagnosis)), LONGEST_TEXT), cls="quiet")
    return el("div", heading, standing, _pairs(advice(problem)), cls=f"problem {problem.severity.value}")


def _pairs(rows: Sequence[tuple[str, str]]) -> Markup:
    """Return sentences with their labels as a table, which no style sheet of a notebook lays out otherwise."""
    lines = [el("tr", el("th", text(label)), el("td", text(words, LONGEST_TEXT)), cls=label) for label, words in rows]
    return el("table", *lines, cls="pairs") if rows else NOTHING


def _key_steps(table: Table, run: read.Run, onset: int | None) -> Markup:
    extra = phrases.extra_columns(table)
    names = ["metric", *(f"{step.name} (step {step.step})" for step in table.key_steps), "course", *extra]
    rows = []
    for row in table.rows:
        cells = [text(cell) for cell in phrases.cells(row)]
        more = [text(str(getattr(row, name)), LONGEST_NAME) for name in extra]
        rows.append([code(phrases.row_name(row)), *cells, _course(run, row.name, onset), *more])
    return _table(names, rows)


def _table(names: Sequence[str], rows: Iterable[Sequence[Markup]]) -> Markup:
    head = el("tr", *(el("th", text(name)) for name in names))
    return el("table", head, *(el("tr", *(el("td", cell) for cell in row)) for row in rows), cls="metrics")


def _course(run: read.Run, name: str, onset: int | None = None) -> Markup:
    series = run.series[name]
    if run.steps is None or not len(series):
        return NOTHING
    return small(series, run.steps, f"{name} over the steps of the run", onset=onset)


def _run(run: Run) -> Iterable[Markup]:
    records = (f"{count(source.records, 'record')} ({source.container})" for source in run.sources[:MOST_NOTES])
    steps = [f"steps {run.steps[0]} to {run.steps[1]}"] if run.steps else []
    yield _head(NOTHING, run.id, [run.framework, run.algorithm, *steps, *records])
    rows = [
        [code(name), code(series.raw), *map(text, _ends(series)), _course(run, name)]
        for name, series in list(run.series.items())[:MOST_METRICS]
    ]
    yield _table(("metric", "as logged", "first", "last", "course"), rows)
    yield from _left(len(run.series) - MOST_METRICS, "further metric")
    settings = [(key, str(setting.value)) for key, setting in list(run.config.items())[:MOST_SETTINGS]]
    yield fold(count(len(run.config), "setting"), _pairs(settings))
    notes = [el("li", text(str(note), LONGEST_TEXT)) for note in run.notes[:MOST_NOTES]]
    yield fold(count(len(run.notes), "note"), el("ul", *notes) if notes else NOTHING)


def _left(number: int, what: str) -> Iterable[Markup]:
    if number > 0:
        yield el("p", text(f"{count(number, what)}: see to_frame()"), cls="quiet")


def _ends(series: read.Series) -> tuple[str, str]:
    return (short(float(series.values[0])), short(float(series.values[-1]))) if len(series) else ("", "")


# Figures


def _exhibits(diagnosis: Diagnosis) -> list[Exhibit]:
    """Return the metrics to draw, each once: those of the evidence of problems, and those of the table."""
    run = diagnosis.full_run
    groups = exhibits(summarize(diagnosis, run), diagnosis, run)
    shown: dict[str, Exhibit] = {}
    for exhibit in (exhibit for group in groups for exhibit in group):
        shown.setdefault(exhibit.series, exhibit)
    return list(shown.values())


def _figure(run: read.Run, onsets: Mapping[str, int | None]) -> Figure:
    """Return a figure with a plot for each metric, and a dotted line at its onset where there is one."""
    if missing := [name for name in onsets if name not in run.series]:
        held = f"it has {', '.join(run.series)}"
        raise DoctorError(f"{run.id} has no metric {', '.join(missing)}", hint=held, code=ExitCode.USAGE)
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise DoctorError("plots need matplotlib", hint="pip install matplotlib", code=ExitCode.USAGE) from error
    rows = max(1, (len(onsets) + 1) // 2)
    figure, axes = pyplot.subplots(rows, 2, figsize=(10, 2.2 * rows), layout="constrained", squeeze=False, sharex=True)
    for at, ((name, onset), axis) in enumerate(zip(onsets.items(), axes.flat, strict=False)):
        _draw(axis, run.series[name], onset)
        if at >= len(onsets) - 2:  # the last of each column
            axis.set_xlabel("step")
            axis.tick_params(labelbottom=True)
    for axis in axes.flat[len(onsets) :]:
        axis.set_visible(False)
    # A notebook shows what a cell returns, and what pyplot still holds once more.
    pyplot.close(figure)
    return figure


def _draw(axis: Axes, series: read.Series, onset: int | None) -> None:
    import numpy as np

    finite = series.values[np.isfinite(series.values)]
    axis.plot(series.axis.steps, np.where(np.isfinite(series.values), series.values, np.nan), linewidth=1.2)
    if len(finite) and finite.min() > 0 and finite.max() / LOG_FROM > finite.min():
        axis.set_yscale("log")
    if onset is not None:
        axis.axvline(onset, color="tab:red", linestyle=":", linewidth=1.5)
        axis.annotate("onset", (onset, 1), (3, -10), xycoords=("data", "axes fraction"), textcoords="offset points")
    # A dollar sign would begin a formula.
    axis.set_title(read.one_line(series.raw).replace("$", r"\$"), fontsize=9, loc="left")
