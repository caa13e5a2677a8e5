"""The first two views: the report with its signal chain, and all checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.cli.interactive.plots import AROUND, for_findings, for_metric, plot
from ppo_doctor.cli.interactive.subjects import Copy, Row, Subject, heading, nothing, page_of, ranked
from ppo_doctor.model.evidence import measured, number
from ppo_doctor.model.evidence import sentence as evidence_says
from ppo_doctor.model.words import CHAIN
from ppo_doctor.report import RenderOptions
from ppo_doctor.report.advice import code_lines
from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import BOUND, Page, Span, wrap
from ppo_doctor.report.phrases import (
    MARK_STYLE,
    MARKS,
    SEVERITY_STYLE,
    bound,
    capital,
    decibels,
    flowing,
    listed,
    stopped,
)
from ppo_doctor.report.screen import details, screen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.cli.interactive.subjects import Frame, Session
    from ppo_doctor.model.diagnosis import ChainLink
    from ppo_doctor.model.rules import Evidence, Finding
    from ppo_doctor.model.run import Run
    from ppo_doctor.model.words import Status
    from ppo_doctor.report.layout import Line
    from ppo_doctor.report.plots import Marks
    from ppo_doctor.report.summary import ProblemSummary

#: Rows of a plot on a page, and least and most in a pane of its own.
ON_PAGE, LEAST_ROWS, MOST_ROWS = 8, 6, 14
#: Lines of the chain with the blank line above it.
CHAIN_LINES = 3
#: The joint before a link; it is broken after a dead link.
ALIVE, BROKEN = "──", "─×"


class Story(Subject):
    """The report of the run on one page, without a list."""

    title = "Story"

    def page(self, key: str, frame: Frame) -> list[Line]:
        """Return the report as far as it fits above the chain, or with the full account of every cause."""
        del key
        page, diagnosis = page_of(frame), self._session.diagnosis
        room = None if frame.why else frame.height - CHAIN_LINES
        screen(page, self._session.summary, diagnosis, head=False, most=room)
        if frame.why:
            details(page, diagnosis, RenderOptions(why=True))
            return page.lines
        chain(page, self._session.shortened.chain)
        return [*page.lines, *_below(self._plots(ON_PAGE, frame) if frame.alone else [])]

    def plots(self, key: str, frame: Frame) -> list[Line]:
        """Return the plots of the report's metrics, as high as the pane allows."""
        del key
        count = len(self._metrics()) or 1
        return self._plots(min(max(frame.height // count - AROUND - 1, LEAST_ROWS), MOST_ROWS), frame)

    def copies(self, key: str) -> Sequence[Copy]:
        """Return settings to change, remedies, manuals and places of the problems; without any the run's name."""
        del key
        summary = self._session.summary
        copies = [copy for problem in summary.problems for copy in _copies(problem)]
        copies += [Copy(what="remedy", text=summary.do.do)] if summary.do is not None else []
        return list(dict.fromkeys(copies)) or [Copy(what="the run", text=self._session.diagnosis.run.id)]

    def _metrics(self) -> list[str]:
        table = self._session.summary.table
        return [row.name for row in table.rows] if table is not None else []

    def _plots(self, rows: int, frame: Frame) -> list[Line]:
        run = self._session.run
        marked = [(name, for_metric(self._session.diagnosis, name, run)) for name in self._metrics()]
        return _pictures(run, marked, rows, frame)


def _pictures(run: Run, marked: Sequence[tuple[str, Marks]], rows: int, frame: Frame) -> list[Line]:
    """Return plots of metrics with their marks, one below the other."""
    lines: list[Line] = []
    for name, marks in marked:
        size = (frame.width, rows + AROUND)
        picture = plot(run.series[name], run.steps or (0, 0), marks, size, ascii_only=frame.ascii)
        lines += [*_below(picture)] if lines else picture
    return lines


def _below(lines: Sequence[Line]) -> list[Line]:
    """Return lines with a blank line above them, if there are any."""
    return [(), *lines] if lines else []


def _copies(problem: ProblemSummary) -> list[Copy]:
    settings = [Copy(what="setting", text=remedy.key) for remedy in problem.do if remedy.key]
    words = [Copy(what="remedy", text=remedy.do) for remedy in problem.do]
    place = problem.place
    line = f":{place.line}" if place is not None and place.line is not None else ""
    where = [Copy(what="place", text=str(problem.code))] if problem.code is not None else []
    where += [Copy(what="place", text=place.path + line)] if place is not None else []
    manual = [Copy(what="manual", text=f"ppo-doctor explain {problem.cause}")] if problem.cause else []
    return [*settings, *words, *manual, *where]


def chain(page: Page, links: Sequence[ChainLink]) -> None:
    """Add the signal chain, drawn broken after a dead link up to one known to be alive, and faulty side links."""
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


#: Outcomes in the order of the list, with a sign and a style.
OUTCOMES: dict[Status, tuple[str, str]] = {
    "fired": ("✗", "red"),
    "errored": ("!", "bold red"),
    "clear": ("✓", "green"),
    "skipped": ("?", "dim"),
}
#: Most rows of a plot of a check in a pane of its own, and most plots of a check.
FINDINGS_MOST_ROWS, MOST_PLOTS = 16, 4


class Findings(Subject):
    """The findings of a diagnosis, those that fired first."""

    title = "Checks"

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        #: the outcome that the list shows, None for all
        self.only: Status | None = None

    def turn(self) -> str:
        """Filter the list by the next outcome, or by none after the last; return the filter."""
        steps: list[Status | None] = [None, *OUTCOMES]
        self.only = steps[(steps.index(self.only) + 1) % len(steps)]
        return self.only or "all"

    def rows(self, query: str, width: int) -> list[Row]:
        """Return the findings that match, by outcome and severity; a query also searches their metrics."""
        ordered = sorted(self._session.shortened.findings, key=_place)
        kept = [finding for finding in ordered if self.only in (None, finding.status)]
        return [Row(key=f.rule, lines=_lines(f, width)) for f in ranked(query, kept, _words)]

    def page(self, key: str, frame: Frame) -> list[Line]:
        """Return everything about one finding."""
        finding = self._finding(key)
        if finding is None:
            return nothing(frame, "No check fits.")
        page = page_of(frame)
        _head(page, finding)
        _numbers(page, finding)
        _weights(page, self._session, finding)
        return [*page.lines, *_below(self._plots(key, ON_PAGE, frame) if frame.alone else [])]

    def plots(self, key: str, frame: Frame) -> list[Line]:
        """Return the plots of the metrics in a finding's evidence."""
        return self._plots(key, min(max(frame.height // 2 - AROUND - 1, LEAST_ROWS), FINDINGS_MOST_ROWS), frame)

    def copies(self, key: str) -> Sequence[Copy]:
        """Return the rule's name, its manual and the places of its evidence."""
        finding = self._finding(key)
        if finding is None:
            return []
        original = next(f for f in self._session.diagnosis.findings if f.rule == key)
        known = (original.place, *(evidence.source for evidence in original.evidence))
        places = [Copy(what="place", text=str(place)) for place in known if place is not None]
        manual = Copy(what="manual", text=f"ppo-doctor explain {finding.rule}")
        return list(dict.fromkeys([Copy(what="rule", text=finding.rule), manual, *places]))

    def _finding(self, key: str) -> Finding | None:
        return next((finding for finding in self._session.shortened.findings if finding.rule == key), None)

    def _plots(self, key: str, rows: int, frame: Frame) -> list[Line]:
        run = self._session.run
        finding = next((f for f in self._session.diagnosis.findings if f.rule == key), None)
        return _pictures(run, for_findings([finding], run)[:MOST_PLOTS] if finding else [], rows, frame)


def _place(finding: Finding) -> tuple[int, int, str]:
    return list(OUTCOMES).index(finding.status), finding.severity.rank, finding.code


def _words(finding: Finding) -> str:
    metrics = " ".join(f"{evidence.metric} {evidence.raw}" for evidence in finding.evidence)
    return f"{finding.code} {finding.rule} {finding.title} {finding.link} {finding.status} {metrics}"


def _lines(finding: Finding, width: int) -> tuple[Line, ...]:
    sign, style = OUTCOMES[finding.status]
    # The title of a check that did not run would read like a claim.
    words = finding.title if finding.status in ("fired", "clear") else finding.rule
    weight = "bold" if finding.status == "fired" else "dim" if finding.status == "skipped" else ""
    text = (Span(sign, style), Span(f" {plain(finding.code)} ", "dim"), Span(flowing(words), weight))
    return tuple(wrap(text, width, "", "    ")[:3])


def _head(page: Page, finding: Finding) -> None:
    sign, style = OUTCOMES[finding.status]
    title = finding.title if finding.status in ("fired", "clear") else finding.rule
    page.add((Span(f"{sign} ", style), Span(flowing(title), "bold")), 0, 2)
    since = (" · ", bound(f"since step {finding.onset_step}")) if finding.onset_step is not None else ()
    severity = Span(finding.severity.value, SEVERITY_STYLE.get(finding.severity, ""))
    about = (Span(finding.status, style), " · ", severity, " · link ", plain(finding.link), " · ")
    page.add((*about, Span(f"{plain(finding.code)} {plain(finding.rule)}", "cyan"), *since), 0, 2)
    code_lines(page, finding.place, 2)
    if finding.reason:
        page.blank()
        page.add(stopped(capital(flowing(finding.reason))))
    if finding.missing:
        page.add(f"The log lacks {listed([plain(name) for name in finding.missing])}.")


def _numbers(page: Page, finding: Finding) -> None:
    if not finding.evidence:
        return
    heading(page, "Numbers", "5 shows the lines of the log")
    for evidence in finding.evidence:
        page.add(("· ", flowing(stopped(evidence_says(evidence)))), 0, 2)
        _detail(page, evidence)


def _detail(page: Page, evidence: Evidence) -> None:
    observed = f"observed {number(evidence.observed)}"
    where = f", by {flowing(evidence.bound_source)}" if evidence.bound_source else ""
    statistic = f" ({flowing(evidence.claim)})" if evidence.statistic else ""
    text = f"{observed}{statistic}; bound {evidence.op} {plain(measured(evidence.bound, evidence.unit))}{where}"
    page.add(Span(text, "dim"), 2, 0)


def _weights(page: Page, session: Session, finding: Finding) -> None:
    """Add the weight of a finding for each cause of the report."""
    weighed = [
        (cause, e) for cause in session.shortened.causes for e in cause.ledger if e.finding == finding.rule and e.db
    ]
    if not weighed:
        return
    heading(page, "What it weighs", "in dB")
    for cause, entry in weighed:
        page.add((Span(f"{decibels(entry.db):>4} ", "bold"), f"{cause.rank} {flowing(cause.title)}"), 0, 6)
