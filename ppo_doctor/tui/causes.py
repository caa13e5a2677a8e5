"""The first view: ranked causes, and for the chosen one its story, its account, its plots and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.model import Severity
from ppo_doctor.report import RenderOptions, sections
from ppo_doctor.report.blame import supporters
from ppo_doctor.report.cause_blocks import standing
from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import BOUND, Span, columns, wrap
from ppo_doctor.report.standings import UNIT, behind, level_with, weighed
from ppo_doctor.report.words import (
    MARK_STYLE,
    MARKS,
    SEVERITY_STYLE,
    decibels,
    entry_says,
    flowing,
    remedy_says,
    sentence,
    stopped,
    titles,
    to_do,
)
from ppo_doctor.tui.exhibits import for_cause
from ppo_doctor.tui.plot import AROUND, plot
from ppo_doctor.tui.search import ranked
from ppo_doctor.tui.subject import Copy, Row, heading, page_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import LedgerEntry, RankedCause
    from ppo_doctor.report.layout import Line, Page
    from ppo_doctor.tui.session import Frame, Session

#: The row about the whole run, above the causes.
WHOLE = "run"
#: A sign per severity, so that rank can be read without colour.
SIGNS = {Severity.CRITICAL: "✗", Severity.HIGH: "✗", Severity.MEDIUM: "!", Severity.LOW: "·", Severity.INFO: "·"}
#: Lines of the account before `w` asks for all of them.
MOST_ENTRIES = 4
#: Rows of a plot on a page, and least and most in a pane of its own.
ON_PAGE, LEAST_ROWS, MOST_ROWS = 8, 6, 14


class Causes:
    """Ranked causes of a diagnosis."""

    title = "Causes"
    slow = False

    def __init__(self, session: Session) -> None:
        self._session = session

    def rows(self, query: str, width: int) -> list[Row]:
        """Return the causes by rank, then the run as a whole; first that where no cause is."""
        diagnosis = self._session.told
        whole = Row(key=WHOLE, lines=_whole_lines(self._session, width))
        found = ranked(query, diagnosis.causes, lambda c: f"{c.id} {c.title} {c.severity} {c.confidence}")
        rows = [Row(key=cause.id, lines=_cause_lines(cause, width)) for cause in found]
        return [*rows, whole] if not query else rows

    def page(self, key: str, frame: Frame) -> list[Line]:
        """Return a cause's page, or that of the run."""
        cause = self._cause(key)
        page = page_of(frame)
        if cause is None:
            _whole(page, self._session, frame)
            return page.lines
        _story(page, self._session, cause)
        if frame.why:  # first what was asked for
            _account(page, self._session, cause, everything=True)
        _to_do(page, cause)
        sections.chain(page, self._session.told, RenderOptions())
        if not frame.why:
            _account(page, self._session, cause, everything=False)
        lines = page.lines
        if frame.alone:
            lines = [*lines, (), *self._plots(cause, frame.width, ON_PAGE, frame)]
        rest = page_of(frame)
        _to_settle(rest, cause)
        return [*lines, (), *rest.lines] if rest.lines else lines

    def plots(self, key: str, frame: Frame) -> list[Line]:
        """Return the plots of a cause's metrics, as high as the pane allows."""
        cause = self._cause(key)
        if cause is None:
            return []
        count = max(len(for_cause(self._session.diagnosis, cause, self._session.run)), 1)
        rows = min(max(frame.height // count - AROUND - 1, LEAST_ROWS), MOST_ROWS)
        return self._plots(cause, frame.width, rows, frame)

    def copies(self, key: str) -> Sequence[Copy]:
        """Return keys to change, remedies, the cause's name and where the evidence stands."""
        cause = self._cause(key)
        if cause is None:
            return [Copy(what="the run", text=self._session.diagnosis.run.id)]
        chosen = cause.remedies
        keys = [Copy(what="key", text=remedy.key) for remedy in chosen if remedy.key]
        places = [Copy(what="place", text=str(source)) for source in _places(self._session, cause)]
        words = [Copy(what="remedy", text=remedy.do) for remedy in chosen]
        manual = Copy(what="manual", text=f"ppo-doctor explain {cause.id}")
        return list(dict.fromkeys([*keys, *words, manual, *places]))

    def _cause(self, key: str) -> RankedCause | None:
        return next((cause for cause in self._session.told.causes if cause.id == key), None)

    def _plots(self, cause: RankedCause, width: int, rows: int, frame: Frame) -> list[Line]:
        run = self._session.run
        lines: list[Line] = []
        for name, marks in for_cause(self._session.diagnosis, cause, run):
            picture = plot(run.series[name], run.steps or (0, 0), marks, (width, rows + AROUND), ascii_only=frame.ascii)
            lines += [*([()] if lines else []), *picture]
        return lines


def _cause_lines(cause: RankedCause, width: int) -> tuple[Line, ...]:
    """Return a cause in the list: sign, rank and title, then how sure and how bad; rivals are set back."""
    style = SEVERITY_STYLE.get(cause.severity, "")
    sign = "✓" if cause.benign else SIGNS[cause.severity] if cause.leader else "·"
    weight = "" if cause.benign or not cause.leader else "bold"
    head = (Span(sign, "green" if cause.benign else style if cause.leader else "dim"), f" {cause.rank}{BOUND}")
    title = Span(flowing(cause.title), weight)
    kind = "harmless" if cause.benign else cause.severity.value
    level = f" = {len(cause.level_with)} level" if cause.level_with else ""
    about = (Span(f"{cause.confidence}, ", "dim"), Span(kind, style if cause.leader else "dim"), Span(level, "dim"))
    lines = wrap((head[0], Span(head[1]), title), width, "", "    ")
    return (*lines, *wrap(about, width, "    ", "    "))


def _whole_lines(session: Session, width: int) -> tuple[Line, ...]:
    coverage = session.told.coverage
    words = f"{coverage.evaluated} checks run, {coverage.skipped} skipped"
    return (
        *wrap((Span("≡", "cyan"), Span(" The run and what was checked")), width, "", "  "),
        *wrap((Span(words, "dim"),), width, "    ", "    "),
    )


def _story(page: Page, session: Session, cause: RankedCause) -> None:
    page.add(Span(flowing(cause.title), "bold"))
    page.add(standing(cause, behind(session.told, cause)), 0, 2)
    page.blank()
    page.add(sentence(cause.says))
    if cause.level_with:
        page.add(level_with(session.told, cause))


def _to_do(page: Page, cause: RankedCause) -> None:
    chosen = cause.remedies
    if not chosen:
        return
    heading(page, "What to do" if cause.benign else "Try, in this order", "c copies")
    for number, remedy in enumerate(chosen, start=1):
        words = remedy_says(remedy)
        page.add((Span(f"{number}.{BOUND}", "bold"), *_keyed(words, remedy.key or "")), 0, 3)


def _keyed(words: str, key: str) -> tuple[str | Span, ...]:
    """Return a remedy with the key to change marked; the words name it, unless it is too long to stay in one piece."""
    before, found, after = words.partition(plain(key)) if key else (words, "", "")
    if key and not found:
        return words, " → ", Span(plain(key), "bold cyan")
    return before, Span(found, "bold cyan"), after


def _account(page: Page, session: Session, cause: RankedCause, *, everything: bool) -> None:
    """Add the ledger: its heaviest lines, or on request all of it with the prior and the sum."""
    ordered = weighed(cause)
    shown = ordered if everything else _heaviest(ordered)
    names = titles(session.told)
    sum_ = decibels(cause.score_db)
    heading(page, f"Account, in {UNIT}", "" if everything else "w shows all of it")
    if everything:
        _amount(page, decibels(cause.prior_db), (Span("prior: how common this cause is"),))
    for entry in shown:
        _amount(page, decibels(entry.db), _entry(entry, names))
    if everything:
        _amount(page, sum_, (Span("sum", "bold"),))
    else:
        left = len(ordered) - len(shown)
        more = f"; {left} more" if left else ""
        _amount(page, sum_, (Span("sum", "bold"), Span(f", with a prior of {decibels(cause.prior_db)}{more}", "dim")))


def _heaviest(ordered: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    kept = {id(entry) for entry in sorted(ordered, key=lambda entry: -abs(entry.db))[:MOST_ENTRIES]}
    return [entry for entry in ordered if id(entry) in kept]


def _entry(entry: LedgerEntry, names: dict[str, str]) -> tuple[Span, ...]:
    mark = {"fired": "✗", "clear": "✓"}.get(entry.status, "?")
    head = Span(f"{mark} ", "red" if entry.status == "fired" else "green" if entry.status == "clear" else "dim")
    return head, Span(entry_says(entry, names))


def _amount(page: Page, amount: str, words: tuple[Span, ...]) -> None:
    gap = BOUND * max(4 - columns(amount), 0)
    head = Span(f"{gap}{amount}{BOUND}", "bold")
    page.add((head, Span(" "), *words), 0, 6)


def _to_settle(page: Page, cause: RankedCause) -> None:
    if not cause.would_change_my_mind:
        return
    heading(page, "What would change this diagnosis")
    for measure in cause.would_change_my_mind:
        page.add(
            (f"? {to_do(measure)} ", Span(flowing(measure.log), "bold"), f" — {stopped(flowing(measure.because))}"),
            0,
            2,
        )


def _whole(page: Page, session: Session, frame: Frame) -> None:
    """Write the page of the run: verdict, chain, open questions, checks, what no log shows, notes on reading."""
    diagnosis, options = session.told, RenderOptions(all=frame.why)
    sections.verdict(page, diagnosis)
    sections.because(page, diagnosis)
    sections.sources(page, diagnosis)
    sections.chain(page, diagnosis, options)
    for link in diagnosis.chain:
        if link.witness and link.state == "alive" and not options.all:
            mark = Span(MARKS[link.state], MARK_STYLE[link.state])
            page.add((mark, f" {link.link}: {flowing(link.witness)}"), sections.INDENT, 2)
    sections.unexplained(page, diagnosis)
    sections.unanswered(page, diagnosis)
    sections.checks(page, diagnosis, RenderOptions())
    sections.never_shown(page, diagnosis, options)
    sections.notes(page, diagnosis, options)


def _places(session: Session, cause: RankedCause) -> list[object]:
    held = supporters(session.diagnosis, cause)
    return [evidence.source for finding in held for evidence in finding.evidence if evidence.source]
