"""The live view: verdict, causes, curves and newest events on the alternate screen of the terminal."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ppo_doctor.cli.watch.monitor import late_says
from ppo_doctor.cli.watch.session import duration
from ppo_doctor.diagnosis.gate_result import faults
from ppo_doctor.report import RenderOptions, render
from ppo_doctor.report.escape import plain, prose
from ppo_doctor.report.layout import BOUND, Page, Span, sparkline
from ppo_doctor.report.phrases import SEVERITY_STYLE, VERDICT_STYLE, bound, facts, flowing, outcome, remedy_says, short
from ppo_doctor.report.screen import key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from ppo_doctor.cli.watch.monitor import Event, Monitor
    from ppo_doctor.cli.watch.session import View
    from ppo_doctor.model.run import FloatArray, Run
    from ppo_doctor.report.summary import Row, Summary

#: Seconds between redraws while nothing happens: enough for the words "nothing new for 40 s".
IDLE_REDRAW = 5.0
#: Values of a series that are drawn one by one.
DRAWN = 1_000
#: Lines that are no curves: title, facts, outcome, and the blank lines between parts.
_FRAME = 8


class LiveScreen:
    """Draws a `View`; text from the log is escaped, and never read as markup."""

    def __init__(self, live: Live, console: Console) -> None:
        self._live = live
        self._console = console
        self._drawn: tuple[object, ...] = ()

    def show(self, event: Event) -> None:
        """Leave events to the next drawing."""

    def update(self, view: View) -> None:
        """Draw the view again if it changed, or the time that it shows has."""
        state = _state(view, self._console)
        if state != self._drawn:
            self._drawn = state
            self._live.update(draw(view, *self._console.size), refresh=True)

    def leave(self, view: View, *, quiet: bool) -> None:
        """Print the last diagnosis on the ordinary screen."""
        monitor = view.monitor
        if monitor is None or monitor.diagnosis is None:
            sys.stdout.write("".join(f"{prose(event.text)}\n" for event in list(view.events)[-1:]))
            return
        options = RenderOptions(quiet=quiet, color=not self._console.no_color)
        sys.stdout.write(render(monitor.diagnosis, monitor.run, options))
        sys.stdout.write("".join(prose(f"But {late_says(cause)}") + "\n" for cause in monitor.late))


@contextmanager
def live_screen(*, color: bool | None) -> Iterator[LiveScreen]:
    """Show the live view on the alternate screen, and restore the terminal in any case."""
    with alternate_screen(color=color) as (live, console):
        yield LiveScreen(live, console)


@contextmanager
def alternate_screen(*, color: bool | None) -> Iterator[tuple[Live, Console]]:
    """Show what is drawn on the alternate screen, and restore the terminal in any case."""
    console = Console(no_color=True if color is False or os.environ.get("NO_COLOR") else None, highlight=False)
    with Live(console=console, screen=True, auto_refresh=False, transient=True) as live:
        yield live, console


def _state(view: View, console: Console) -> tuple[object, ...]:
    silent = -1 if view.silent is None else view.silent // IDLE_REDRAW
    newest = view.events[-1] if view.events else None
    updates = view.monitor.updates if view.monitor else None
    return silent, newest, updates, len(view.events), view.trouble, console.size


def draw(view: View, width: int, height: int) -> RenderableType:
    """Return the whole view for a terminal of this size."""
    monitor = view.monitor
    if monitor is None or monitor.diagnosis is None or monitor.run is None or monitor.story is None:
        return Group(_title(view), Text(), *_events(view, height - 4))
    room = height - _FRAME
    problems = _problems(monitor, monitor.story, width)[: max(room - 2, 1)]
    room -= len(problems)
    rows = monitor.story.table.rows[: max(2, room * 3 // 5)] if monitor.story.table is not None else ()
    curves = _curves(monitor.run, rows, width)
    read = " · ".join(facts(monitor.diagnosis)).replace(BOUND, " ")
    head = (_title(view), line_of(read, "dim"), line_of(outcome(monitor.story)), Text(), *problems)
    return Group(*head, *[Text()] * bool(problems), curves, Text(), *_events(view, max(1, room - curves.row_count)))


def _title(view: View) -> Text:
    diagnosis = view.monitor.diagnosis if view.monitor else None
    verdict = diagnosis.verdict if diagnosis else "waiting"
    style = VERDICT_STYLE[diagnosis.verdict] if diagnosis else "bold"
    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(f" {verdict} ", f"{style} reverse")
    title.append(f"  {_status(view)}  ")
    title.append(plain(view.target), "bold")
    return title


def _status(view: View) -> str:
    if view.trouble:
        return prose(view.trouble)
    if view.silent is None:
        return "nothing yet · Ctrl-C ends"
    silent = view.silent - view.silent % IDLE_REDRAW
    return f"nothing new for {duration(silent)} · Ctrl-C ends" if silent >= IDLE_REDRAW else "live · Ctrl-C ends"


def _problems(monitor: Monitor, summary: Summary, width: int) -> list[Text]:
    """Return the problems, each with its first remedy; those that are not confirmed yet are marked."""
    firm = {cause.id for cause in faults(monitor.diagnosis)} if monitor.diagnosis is not None else set()
    pending = {cause.id for cause in monitor.pending}
    page = Page(width=width)
    for problem in summary.problems:
        is_pending = problem.cause in pending
        style = SEVERITY_STYLE.get(problem.severity, "dim") if problem.cause in firm else "dim"
        sure = "not yet confirmed" if is_pending else (problem.why[0].confidence if problem.why else "")
        since = f" · {bound(f'since step {problem.since}')}" if problem.since is not None else ""
        mark = Span("● " if problem.cause in firm and not is_pending else "○ ", style)
        about = " · ".join(filter(None, (bound(sure), problem.severity.value)))
        code = f" · {plain(str(problem.code))}" if problem.code is not None else ""
        page.add((mark, Span(flowing(problem.title), "bold"), Span(f" – {about}{since}{code}", "dim")), 0, 2)
        for action in problem.do[:1]:
            page.labelled(Span("do", "bold"), remedy_says(action), 2, 4)
    return [Text.assemble(*((span.text, span.style) for span in line)) for line in page.lines]


def _curves(run: Run, rows: Sequence[Row], width: int) -> Table:
    """Return metrics, one per row: key, curve, last value, and what is usual or stands out."""
    table = Table.grid(padding=(0, 2))
    for justify in ("left", "left", "right", "left"):
        table.add_column(no_wrap=True, justify=justify)
    notes = [" ".join(filter(None, (f"usual {prose(row.usual)}" * bool(row.usual), prose(row.remark)))) for row in rows]
    keys = [key_of(row.name, row.key) for row in rows]
    taken = max(map(len, keys), default=0) + max(map(len, notes), default=0) + 18
    for row, key, words in zip(rows, keys, notes, strict=True):
        series = run.series[row.name]
        curve = Text(sparkline(_thinned(series.values).tolist(), max(10, width - taken)), "cyan")
        table.add_row(key, curve, short(float(series.values[-1])), Text(words, "dim"))
    return table


def _thinned(values: FloatArray) -> FloatArray:
    """Return at most about 2 * `DRAWN` values: of each stretch the one farthest from the median, as in `sparkline`."""
    import numpy as np

    size = len(values) // DRAWN
    if size < 2:
        return values
    finite = np.isfinite(values)
    middle = np.median(values[finite]) if finite.any() else 0.0
    odd = np.where(finite, np.abs(np.where(finite, values, 0.0) - middle), np.inf)
    whole = len(values) // size * size
    places = np.arange(0, whole, size) + odd[:whole].reshape(-1, size).argmax(axis=1)
    return np.concatenate([values[places], values[whole:]])


def _events(view: View, room: int) -> list[Text]:
    newest = list(view.events)[-room:] if room > 0 else []
    return [line_of(event_line(event), "" if event.kind == "cause" else "dim") for event in newest]


def event_line(event: Event) -> str:
    """Return an event as one line: kind, step, text."""
    step = "" if event.step is None else f"step {event.step}"
    return f"{event.kind:<8} {step:<10} {prose(event.text)}"


def line_of(text: str, style: str = "") -> Text:
    """Return text that is cut at the end of its line."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")
