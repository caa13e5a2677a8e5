"""The first view: the story of the run on the whole screen, its signal chain, and on request all that is behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.model import CHAIN
from ppo_doctor.report import RenderOptions
from ppo_doctor.report.details import details
from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import BOUND, Page, Span
from ppo_doctor.report.screen import screen
from ppo_doctor.report.words import MARK_STYLE, MARKS
from ppo_doctor.tui.exhibits import for_metric
from ppo_doctor.tui.plot import AROUND, plot
from ppo_doctor.tui.subject import Copy, page_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import ChainLink
    from ppo_doctor.report.layout import Line
    from ppo_doctor.report.summary import ProblemSummary
    from ppo_doctor.tui.session import Frame, Session
    from ppo_doctor.tui.subject import Row

#: Rows of a plot on a page, and least and most in a pane of its own.
ON_PAGE, LEAST_ROWS, MOST_ROWS = 8, 6, 14
#: Lines of the chain with the blank line above it.
CHAIN_LINES = 3
#: What leads to a link: through what is dead nothing comes.
ALIVE, BROKEN = "──", "─×"


class Story:
    """What became of the run, what is wrong and what to do; there is nothing to choose from."""

    title = "Story"
    slow = False

    def __init__(self, session: Session) -> None:
        self._session = session

    def rows(self, query: str, width: int) -> list[Row]:  # noqa: ARG002 - a subject's
        """Return nothing: the story is one page."""
        return []

    def page(self, key: str, frame: Frame) -> list[Line]:  # noqa: ARG002 - a subject's
        """Return the story, as much as fits beside the chain; with all that is behind it where that is asked for."""
        page, diagnosis = page_of(frame), self._session.diagnosis
        room = None if frame.why else frame.height - CHAIN_LINES
        screen(page, self._session.story, diagnosis, head=False, most=room)
        if frame.why:
            details(page, diagnosis, RenderOptions(why=True))
            return page.lines
        chain(page, self._session.told.chain)
        pictures = self._plots(frame.width, ON_PAGE, frame) if frame.alone else []
        return [*page.lines, *([()] if pictures else []), *pictures]

    def plots(self, key: str, frame: Frame) -> list[Line]:  # noqa: ARG002 - a subject's
        """Return the plots of the story's metrics, as high as the pane allows."""
        count = len(self._metrics()) or 1
        return self._plots(frame.width, min(max(frame.height // count - AROUND - 1, LEAST_ROWS), MOST_ROWS), frame)

    def copies(self, key: str) -> Sequence[Copy]:  # noqa: ARG002 - a subject's
        """Return settings to change, remedies, manuals and places of the problems; without one the run's name."""
        told = self._session.story
        held = [copy for problem in told.problems for copy in _copies(problem)]
        held += [Copy(what="remedy", text=told.do.do)] if told.do is not None else []
        return list(dict.fromkeys(held)) or [Copy(what="the run", text=self._session.diagnosis.run.id)]

    def _metrics(self) -> list[str]:
        table = self._session.story.table
        return [row.name for row in table.rows] if table is not None else []

    def _plots(self, width: int, rows: int, frame: Frame) -> list[Line]:
        run = self._session.run
        lines: list[Line] = []
        for name in self._metrics():
            marks = for_metric(self._session.diagnosis, name, run)
            picture = plot(run.series[name], run.steps or (0, 0), marks, (width, rows + AROUND), ascii_only=frame.ascii)
            lines += [*([()] if lines else []), *picture]
        return lines


def _copies(problem: ProblemSummary) -> list[Copy]:
    settings = [Copy(what="setting", text=remedy.key) for remedy in problem.do if remedy.key]
    words = [Copy(what="remedy", text=remedy.do) for remedy in problem.do]
    place = problem.place
    line = f":{place.line}" if place is not None and place.line is not None else ""
    where = [Copy(what="place", text=place.path + line)] if place is not None else []
    manual = [Copy(what="manual", text=f"ppo-doctor explain {problem.cause}")] if problem.cause else []
    return [*settings, *words, *manual, *where]


def chain(page: Page, links: Sequence[ChainLink]) -> None:
    """Add the signal chain, broken from what is dead to what is known to live, and side links that are not well."""
    page.blank()
    broken = False
    drawn: list[str | Span] = []
    for link in (link for link in links if link.link in CHAIN):
        broken = link.state == "dead" or bool(link.entailed_by) or (broken and link.state == "unknown")
        joint = Span(f" {BROKEN} ", "red") if broken else Span(f" {ALIVE} ", "green")
        drawn += [joint] if drawn else []
        drawn.append(_link(link))
    page.add((Span("Chain ", "bold"), *drawn), 0, 6)
    beside = [_link(link) for link in links if link.link not in CHAIN and link.state not in ("alive", "unknown")]
    page.add((Span("Beside it", "dim"), *(part for link in beside for part in (" ", link))) if beside else "", 6)


def _link(link: ChainLink) -> Span:
    style = "strike red" if link.entailed_by else MARK_STYLE[link.state]
    if link.state == "dead" and not link.entailed_by:
        style += " reverse"
    return Span(f"{MARKS[link.state]}{BOUND}{plain(link.link)}", style)
