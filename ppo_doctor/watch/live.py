"""The live view: verdict, causes, curves and newest events on an alternate screen of the terminal."""

from __future__ import annotations

import math
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ppo_doctor.evidence import number
from ppo_doctor.report import RenderOptions, render
from ppo_doctor.report.escape import plain, prose
from ppo_doctor.report.sparkline import sparkline
from ppo_doctor.report.words import SEVERITY_STYLE, VERDICT_STYLE, remedy_says, run_facts
from ppo_doctor.watch.events import duration
from ppo_doctor.watch.monitor import late_says, leading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from ppo_doctor.model import Diagnosis, FloatArray, RankedCause, Run, Series
    from ppo_doctor.watch.events import Event
    from ppo_doctor.watch.monitor import Monitor
    from ppo_doctor.watch.session import View

#: Curves that are shown when no cause asks for others, the most telling first.
USUAL = (
    *("episode_return", "reward_mean", "approx_kl", "clip_fraction", "entropy", "ratio_std", "grad_norm"),
    *("explained_variance", "policy_loss", "value_loss", "ref_kl", "response_length", "learning_rate"),
)
#: Seconds between redraws while nothing happens: enough for the words "nothing new for 40 s".
IDLE_REDRAW = 5.0
#: Values of a series that are looked at one by one.
DRAWN = 1_000
#: Lines that are no curves: title, facts, state, and the blank lines between parts.
_FRAME = 7
#: Rows of a terminal from which on causes may take two lines each.
_ROOMY = 20


class LiveScreen:
    """Draws a `View`; text from the log is escaped, and never read as markup."""

    def __init__(self, live: Live, console: Console) -> None:
        self._live = live
        self._console = console
        self._drawn: tuple[object, ...] = ()
        self._curves = Curves()

    def tell(self, event: Event) -> None:
        """Leave events to the next drawing."""

    def update(self, view: View) -> None:
        """Draw anew when something happened, or the time shown has moved on."""
        state = _state(view, self._console)
        if state != self._drawn:
            self._drawn = state
            self._live.update(draw(view, *self._console.size, self._curves), refresh=True)

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
    """Take over the terminal, and give it back whatever happens."""
    console = Console(no_color=True if color is False or os.environ.get("NO_COLOR") else None, highlight=False)
    with Live(console=console, screen=True, auto_refresh=False, transient=True) as live:
        yield LiveScreen(live, console)


def _state(view: View, console: Console) -> tuple[object, ...]:
    silent = -1 if view.silent is None else view.silent // IDLE_REDRAW
    newest = view.events[-1] if view.events else None
    updates = view.monitor.updates if view.monitor else None
    return silent, newest, updates, len(view.events), view.trouble, console.size


class Curves:
    """Curves drawn once per judgement and width, however often the rest of the view is drawn anew."""

    def __init__(self) -> None:
        self._of: tuple[object, int, int] | None = None
        self._table: Table | None = None

    def table(self, run: Run, diagnosis: Diagnosis, most: int, width: int) -> Table:
        """Return the most telling series, one per row: name, curve, last value."""
        if self._table is None or self._of is None or self._of[0] is not diagnosis or self._of[1:] != (most, width):
            self._of = (diagnosis, most, width)
            self._table = _curves(_shown(run, diagnosis)[:most], width)
        return self._table


def draw(view: View, width: int, height: int, drawn: Curves | None = None) -> RenderableType:
    """Return the whole view for a terminal of this size."""
    monitor = view.monitor
    parts: list[RenderableType] = [_title(view)]
    if monitor is None or monitor.diagnosis is None or monitor.run is None:
        return Group(*parts, Text(), *_events(view, height - 4))
    causes = [c for c in monitor.diagnosis.causes if c.leader][: max(1, (height - _FRAME) // 5)]
    said = _causes(monitor, causes)
    lines = [line for text in said for line in _folded(text, width)] if height >= _ROOMY else said
    room = height - _FRAME - len(lines)
    curves = (drawn or Curves()).table(monitor.run, monitor.diagnosis, max(2, room * 3 // 5), width)
    parts += [_line(" · ".join(run_facts(monitor.diagnosis.run)), "dim"), Text(), *lines]
    parts += [Text(), curves, Text()]
    return Group(*parts, *_events(view, max(1, room - curves.row_count)))


def _title(view: View) -> Text:
    diagnosis = view.monitor.diagnosis if view.monitor else None
    verdict = diagnosis.verdict if diagnosis else "waiting"
    style = VERDICT_STYLE[diagnosis.verdict] if diagnosis else "bold"
    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(f" {verdict} ", f"{style} reverse")
    title.append(f"  {_heard(view)}  ")
    title.append(plain(view.target), "bold")
    return title


def _heard(view: View) -> str:
    if view.trouble:
        return prose(view.trouble)
    if view.silent is None:
        return "nothing yet · Ctrl-C ends"
    silent = view.silent - view.silent % IDLE_REDRAW
    return f"nothing new for {duration(silent)} · Ctrl-C ends" if silent >= IDLE_REDRAW else "live · Ctrl-C ends"


def _causes(monitor: Monitor, causes: Sequence[RankedCause]) -> list[Text]:
    diagnosis = monitor.diagnosis
    if diagnosis is None or not causes:
        return [_line(prose(diagnosis.verdict_because) if diagnosis else "")]
    firm = {cause.id for cause in leading(diagnosis)}
    pending = {cause.id for cause in monitor.pending}
    lines = [_cause(cause, firm=cause.id in firm, pending=cause.id in pending) for cause in causes]
    first = causes[0].remedies[:1]
    return [*lines, *(_line(f"  Try first: {remedy_says(remedy)}") for remedy in first)]


def _cause(cause: RankedCause, *, firm: bool, pending: bool) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("● " if firm and not pending else "○ ", SEVERITY_STYLE.get(cause.severity, "dim") if firm else "dim")
    text.append(f"{cause.severity} ", SEVERITY_STYLE.get(cause.severity, ""))
    text.append(f"{'not yet confirmed' if pending else cause.confidence}  ", "dim")
    text.append(f"{cause.id}: {cause.title}")
    text.append("" if cause.onset_step is None else f", since step {cause.onset_step}", "dim")
    return text


def _folded(text: Text, width: int) -> list[Text]:
    """Return a text in as many lines as it takes, at most two; the second stands back."""
    folded = text.wrap(Console(width=width), width, no_wrap=False)
    if len(folded) < 2:
        return [text]
    rest = Text(no_wrap=True, overflow="ellipsis").append("    ").append_text(text[len(folded[0]) :])
    return [folded[0], rest]


def _shown(run: Run, diagnosis: Diagnosis) -> list[Series]:
    """Return the series to draw: those that the leading causes rest on, then the usual ones."""
    leaders = [cause for cause in diagnosis.causes if cause.leader]
    fired = {entry.finding for cause in leaders for entry in cause.ledger if entry.db > 0}
    evidence = [e.metric for f in diagnosis.findings if f.rule in fired and f.status == "fired" for e in f.evidence]
    names = dict.fromkeys((*evidence, *USUAL))
    return [run.series[name] for name in names if name in run.series and len(run.series[name])]


def _curves(series: Sequence[Series], width: int) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    names = max((len(one.name) for one in series), default=0)
    room = max(10, width - names - 18)
    for one in series:
        last = float(one.values[-1])
        table.add_row(one.name, Text(_spark(one, room), "cyan"), number(last) if math.isfinite(last) else str(last))
    return table


def _spark(series: Series, width: int) -> str:
    return sparkline(_thinned(series.values).tolist(), width)


def _thinned(values: FloatArray) -> FloatArray:
    """Return at most some thousand values that draw the same: of each stretch the oddest, as `sparkline` would take."""
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
    return [_line(_told(event), "" if event.kind == "cause" else "dim") for event in newest]


def _told(event: Event) -> str:
    step = "" if event.step is None else f"step {event.step}"
    return f"{event.kind:<8} {step:<10} {prose(event.text)}"


def _line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")
