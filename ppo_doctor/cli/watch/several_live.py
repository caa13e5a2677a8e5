"""The live table of several runs: one line per run, the worst first, and the newest events."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from ppo_doctor.cli.watch.live import IDLE_REDRAW, alternate_screen, event_line, line_of
from ppo_doctor.cli.watch.session import duration
from ppo_doctor.model.words import Severity
from ppo_doctor.report.escape import prose
from ppo_doctor.report.layout import columns
from ppo_doctor.report.phrases import VERDICT_STYLE, VERDICTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType
    from rich.live import Live

    from ppo_doctor.cli.watch.monitor import Event
    from ppo_doctor.cli.watch.several import Followed, Watching

#: Seconds between redraws at least, newest events, and the longest name of a run.
REDRAW, EVENTS, NAME = 0.5, 5, 40
#: Lines that are neither runs nor events: the title, a blank one, the heads, and the rest.
_FRAME = 4
_HEADS = ("verdict", "run", "step", "reward", "finding", "age")
#: Columns from which on a terminal has room for steps and rewards.
_WIDE = 80


class SeveralLive:
    """Draws the state of several runs; text of logs is escaped, and never read as markup."""

    def __init__(self, live: Live, console: Console) -> None:
        self._live = live
        self._console = console
        self._drawn: tuple[object, ...] = ()
        self._at = 0.0

    def show(self, event: Event, run: str = "") -> None:
        """Leave events to the next drawing."""

    def update(self, state: Watching) -> None:
        """Draw the state again if it changed, or the time that it shows has."""
        if state.now - self._at < REDRAW:
            return
        marks = [(run.name, run.judged, run.session is None, run.since) for run in state.runs.values()]
        newest = state.events[-1] if state.events else None
        now = (state.now // IDLE_REDRAW, len(state.events), newest, marks, state.others, self._console.size)
        if now != self._drawn:
            self._drawn, self._at = now, state.now
            self._live.update(draw(state, *self._console.size), refresh=True)

    def leave(self, state: Watching, *, quiet: bool) -> None:
        """Print a line for each run on the ordinary screen, and why the watching ended."""
        console = Console(no_color=self._console.no_color, highlight=False, file=sys.stdout)
        if not quiet and state.shown:
            console.print(_table(_ordered(state), console.width))
        for event in (event for run, event in state.events if event.kind == "end" and not run):
            console.print(Text(prose(event.text)))


@contextmanager
def several_screen(*, color: bool | None) -> Iterator[SeveralLive]:
    """Show the live table on the alternate screen, and restore the terminal in any case."""
    with alternate_screen(color=color) as (live, console):
        yield SeveralLive(live, console)


def draw(state: Watching, width: int, height: int) -> RenderableType:
    """Return the whole table for a terminal of this size: the worst runs, and how many others there are."""
    runs = _ordered(state)
    events = list(state.events)[-min(EVENTS, height // 4) :] if height >= 2 * _FRAME else []
    room = max(height - _FRAME - len(events), 1)
    shown, left = runs[:room], runs[room:]
    counts = Counter(run.verdict for run in left)
    rest = f"and {len(left)} more: {', '.join(f'{n} {verdict}' for verdict, n in counts.most_common())}" if left else ""
    lines = [line_of(f"{prose(run)}  {event_line(event)}".strip(), "dim") for run, event in events]
    table = [_table(shown, width, state.now)] if shown else []
    return Group(_title(state), Text(), *table, line_of(rest, "dim"), *lines)


def _title(state: Watching) -> Text:
    written = sum(run.session is not None for run in state.shown)
    counts = [f"{written} being written", f"{len(state.shown) - written} ended", f"{state.others} not written"]
    if state.too_many:
        counts.append(f"{state.too_many} too many to follow")
    words = " · ".join((*counts, "Ctrl-C ends"))
    return Text.assemble((f" {prose(state.folder)} ", "bold reverse"), f"  {words}", no_wrap=True, overflow="ellipsis")


def _ordered(state: Watching) -> list[Followed]:
    """Return the runs, the worst first; of those that are alike the one that was written last."""

    def gravity(run: Followed) -> tuple[float, ...]:
        problems = run.diagnosis.problems if run.diagnosis is not None else ()
        severity = min((problem.severity.rank for problem in problems), default=len(Severity))
        verdict = VERDICTS[run.diagnosis.verdict] if run.diagnosis is not None else len(VERDICTS)
        return verdict, severity, -run.since

    return sorted(state.shown, key=gravity)


def _table(runs: Sequence[Followed], width: int, now: float | None = None) -> Table:
    """Return a line for each run; with `now` it says how old its last record is."""
    shown = [at for at, head in enumerate(_HEADS) if width >= _WIDE or head not in ("step", "reward")]
    texts = [_HEADS, *((*_cells(run), _age(run, now)) for run in runs)]
    widths = [max(columns(each[at]) for each in texts) for at in range(len(_HEADS))]
    widths[1] = min(widths[1], NAME, max(width // 3, 8))
    others = sum(widths[at] + 2 for at in shown if _HEADS[at] != "finding")
    widths[4] = max(width - others, 1)
    table = Table.grid(padding=(0, 2))
    for at in shown:
        table.add_column(no_wrap=True, justify="right" if _HEADS[at] in ("step", "age") else "left")
    for run, cells in zip((None, *runs), texts, strict=True):
        style = "dim" if run is None or run.diagnosis is None else VERDICT_STYLE[run.diagnosis.verdict]
        styles = (style, *["dim" if run is None else ""] * (len(_HEADS) - 1))
        named = (cells[0], _end(cells[1], widths[1]), *cells[2:])
        table.add_row(*(_short(named[at], widths[at], styles[at]) for at in shown))
    return table


def _short(text: str, room: int, style: str) -> Text:
    short = Text(text, style)
    short.truncate(room, overflow="ellipsis")
    return short


def _age(run: Followed, now: float | None) -> str:
    if now is None:
        return ""
    return "ended" if run.session is None else duration(max(0.0, now - run.since))


def _cells(run: Followed) -> tuple[str, str, str, str, str]:
    """Return verdict, name, last step, outcome of the reward and main finding of a run, or why there is none."""
    diagnosis, view, name = run.diagnosis, run.view, prose(run.name)
    if diagnosis is None or view is None or view.monitor is None:
        return run.verdict, name, "", "", prose(view.trouble) if view is not None else ""
    story = view.monitor.story
    problems = story.problems if story is not None else ()
    steps = diagnosis.run.steps
    finding = view.trouble or (problems[0].title if problems else "")
    outcome = str(diagnosis.outcome.what).replace("_", " ")
    return run.verdict, name, str(steps[1]) if steps else "", outcome, prose(finding)


def _end(name: str, room: int) -> str:
    """Return a name, or if it is too long its end, which says more than its beginning."""
    return name if columns(name) <= room else "…" + name[-(room - 1) :]
