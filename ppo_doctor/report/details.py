"""The details that `--why` and `--all` add to a text report: signal chain, causes with their scores, checks, notes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ppo_doctor.model.words import ASKED, CHAIN, QUESTIONS, Severity
from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import BOUND, Page, Span
from ppo_doctor.report.phrases import (
    MARK_KEY,
    MARK_STYLE,
    MARKS,
    SEVERITY_STYLE,
    UNIT,
    behind,
    bound,
    chance,
    count,
    decibels,
    entry_says,
    finding_says,
    flowing,
    listed,
    remedy_says,
    sentence,
    settings_only,
    stopped,
    titles,
    to_do,
    weighed,
)
from ppo_doctor.report.summary import folder, relative

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model.diagnosis import ChainLink, Diagnosis, LedgerEntry, RankedCause
    from ppo_doctor.model.rules import Finding, Measurement
    from ppo_doctor.report import RenderOptions

INDENT = 3
#: Printed before "and N more".
MOST_REASONS, MOST_MISSING, MOST_NOTES = 5, 8, 5
NO_LOG = "by a log of this kind, whatever it holds"
#: From this width on the chain is drawn with arrows.
_ARROWS_FROM = 108


def details(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    """Add the signal chain, the causes with their scores, every check, and what was read."""
    page.blank()
    _sources(page, diagnosis)
    diagnosis = relative(diagnosis)
    _chain(page, diagnosis, options)
    writer = _Causes(page=page, diagnosis=diagnosis, options=options, titles=titles(diagnosis))
    writer.section("Cause", [cause for cause in diagnosis.causes if not cause.benign])
    writer.section("Harmless explanation", [cause for cause in diagnosis.causes if cause.benign])
    _unexplained(page, diagnosis)
    _unanswered(page, diagnosis)
    _checks(page, diagnosis, options)
    _not_ruled_out(page, diagnosis, options)
    _notes(page, diagnosis, options)


def _heading(page: Page, title: str, note: str = "", style: str = "dim") -> None:
    page.blank()
    page.add((Span(title, "bold"), Span(BOUND * 2 + note, style)) if note else Span(title, "bold"))


def _more(page: Page, hidden: int, indent: int) -> None:
    if hidden > 0:
        page.add(Span(f"… and {hidden} more, --all", "dim"), indent)


def _sources(page: Page, diagnosis: Diagnosis) -> None:
    """Add one line per input when there are several, and the folder that paths below are relative to."""
    ours = diagnosis.run.sources
    for source in ours if len(ours) > 1 else ():
        used = f"{source.records - source.skipped} of {count(source.records, 'record')} used"
        page.add(Span(f"{plain(source.path)} ({plain(source.container)}), {used}", "dim"), INDENT, 2)
    shared = folder(diagnosis)
    if shared and not diagnosis.run.id.startswith(shared):
        page.add(Span(f"Files below are relative to {plain(shared)}", "dim"), INDENT, 2)


def _chain(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    """Add the signal chain on one line, known side links on another, and what shows that a link is not alive."""
    _heading(page, "Signal chain", MARK_KEY)
    page.add(_links([link for link in diagnosis.chain if link.link in CHAIN], page.width >= _ARROWS_FROM), INDENT)
    beside = [link for link in diagnosis.chain if link.link not in CHAIN and link.state != "unknown"]
    if beside:
        page.add((Span("beside it: ", "dim"), *_links(beside, arrows=False)), INDENT)
    below = {entry.says for cause in diagnosis.causes for entry in cause.ledger}
    for link in diagnosis.chain:
        broken = link.state not in ("alive", "unknown") and link.entailed_by is None
        if link.witness and (options.all or (broken and link.witness not in below)):
            mark = Span(MARKS[link.state], MARK_STYLE[link.state])
            page.add((mark, f" {link.link}: {flowing(link.witness)}"), INDENT, 2)


def _links(links: Sequence[ChainLink], arrows: bool) -> tuple[str | Span, ...]:
    gap = " → " if arrows else " "
    named = [Span(MARKS[link.state] + link.link, MARK_STYLE[link.state]) for link in links]
    return tuple(part for span in named for part in (gap, span))[1:]


@dataclass(slots=True, kw_only=True)
class _Causes:
    """Writes causes one after the other; what one of them shows, later ones refer to."""

    page: Page
    diagnosis: Diagnosis
    options: RenderOptions
    titles: dict[str, str]
    #: finding → rank of the cause under which its numbers stand
    shown_at: dict[str, int] = field(default_factory=dict)
    asked: set[Measurement] = field(default_factory=set)

    def section(self, title: str, ranked: Sequence[RankedCause]) -> None:
        """Add causes under a heading; no causes, no heading."""
        for index, cause in enumerate(ranked):
            if index:
                self.page.blank()
            else:
                _heading(self.page, title + "s" * (len(ranked) > 1))
            self._cause(cause)

    def _cause(self, cause: RankedCause) -> None:
        number = f"{cause.rank}".ljust(INDENT - 1).replace(" ", BOUND)
        self.page.add((f"{number} ", Span(flowing(cause.title), "" if cause.benign else "bold")), 0, INDENT)
        self.page.add(self._standing(cause), INDENT, 2)
        self.page.add(_level_with(self.diagnosis, cause), INDENT)
        self.page.add(sentence(cause.says), INDENT)
        if self.options.why:
            self._score(cause)
        if self.options.all:
            remedies = [remedy_says(remedy) for remedy in cause.remedies]
            self._labelled("What to do:" if cause.benign else "Try first:", "Then:", remedies)
            # causes that cannot be distinguished share their open questions
            new = [measure for measure in cause.would_change_my_mind if measure not in self.asked]
            self.asked.update(new)
            lines = [f"{to_do(m)} {flowing(m.log)} — {stopped(flowing(m.because))}" for m in new]
            self._labelled("Would settle it:", "So would:", lines)

    def _standing(self, cause: RankedCause) -> tuple[str | Span, ...]:
        """Return a cause's confidence, severity and id, the step since when, and how far it is behind."""
        since = f" · {bound(f'since step {cause.onset_step}')}" if cause.onset_step is not None else ""
        severity = () if cause.benign else (" · ", Span(cause.severity.value, SEVERITY_STYLE.get(cause.severity, "")))
        far = behind(self.diagnosis, cause)
        return (cause.confidence, *severity, " · ", Span(plain(cause.id), "cyan"), since, f" · {far}" if far else "")

    def _labelled(self, first: str, others: str, lines: Sequence[str]) -> None:
        for number, line in enumerate(lines):
            self.page.labelled(Span(others if number else first, "dim"), line, INDENT)

    def _score(self, cause: RankedCause) -> None:
        """Add how a cause was scored: prior, every weight, and the sum."""
        self.page.add(Span(f"Account, in {UNIT}:", "dim"), INDENT)
        self._amount(cause.prior_db, "prior: how common this cause is")
        for entry in weighed(cause):
            self._amount(entry.db, f"{plain(entry.finding)} {entry.status}: {self._words(entry, cause)}")
        self._amount(cause.score_db, Span("sum", "bold"))
        self.page.add(Span(chance(cause.probability), "dim"), INDENT)

    def _words(self, entry: LedgerEntry, cause: RankedCause) -> str:
        """Return a finding with its numbers, or with the cause under which they stand already."""
        rank = self.shown_at.setdefault(entry.finding, cause.rank)
        if rank == cause.rank:
            return entry_says(entry, self.titles)
        return f"{flowing(entry.title or self.titles.get(entry.finding, entry.finding))} ({bound(f'see {rank}')})"

    def _amount(self, amount: int, words: str | Span) -> None:
        self.page.labelled(bound(decibels(amount).rjust(4)), words, INDENT, column=6)


def _level_with(diagnosis: Diagnosis, cause: RankedCause) -> str:
    """Return which causes this log cannot tell a cause from; nothing where there is none."""
    if not cause.level_with:
        return ""
    ranks = {c.id: c.rank for c in diagnosis.causes}
    names = [bound(f"{ranks[i]} ({plain(i)})" if i in ranks else plain(i)) for i in cause.level_with]
    return f"Cannot be told apart from {listed(names)} by this log."


def _unexplained(page: Page, diagnosis: Diagnosis) -> None:
    """Add findings that fired and support no cause of this report."""
    explained = {e.finding for cause in diagnosis.causes for e in cause.ledger if e.db > 0}
    left = [f for f in diagnosis.findings if f.status == "fired" and f.rule not in explained]
    if not left:
        return
    serious = any(finding.severity != Severity.INFO for finding in left)
    _heading(page, "Seen, without a cause that explains it" if serious and not diagnosis.causes else "Also seen")
    for finding in sorted(left, key=lambda f: f.severity.rank):
        style = SEVERITY_STYLE.get(finding.severity, "")
        since = f" Since step {finding.onset_step}." if finding.onset_step is not None else ""
        page.add((Span(finding.severity.value, style), f" · {finding_says(finding)}.{since}"), INDENT, 2)


def _unanswered(page: Page, diagnosis: Diagnosis) -> None:
    """Add the questions of coverage that stay open, each with the reasons why."""
    open_questions = [question for question in QUESTIONS if not getattr(diagnosis.coverage, question)]
    if open_questions:
        _heading(page, "Not answered")
    for question in open_questions:
        page.add((Span("?", "yellow"), f" {ASKED[question]}"), INDENT, 2)
        reasons = diagnosis.coverage.unanswered.get(question) or ("no check applies to this kind of input",)
        for reason in reasons[:MOST_REASONS]:
            page.add(flowing(reason), INDENT + 2, 2)
        _more(page, len(reasons) - MOST_REASONS, INDENT + 2)


def _checks(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    """Add the count of checks by outcome; errors one by one, reasons for skipping grouped, all of them on request."""
    c = diagnosis.coverage
    counts = f"{c.clear} clear · {c.fired} fired · {c.skipped} skipped · {c.errored} errored"
    _heading(page, "Checks", counts, "")
    for finding in diagnosis.findings:
        if finding.status == "errored":
            where = f"{plain(finding.code)} {plain(finding.rule)}"
            page.add((Span("errored ", "red"), f"{where}: {flowing(finding.reason or '')}"), INDENT, 2)
    skipped = [finding for finding in diagnosis.findings if finding.status == "skipped"]
    if options.all:
        _each(page, diagnosis)
    elif skipped:
        page.add(Span("skipped, which is not the same as passed:", "dim"), INDENT)
        _reasons(page, skipped)
    if diagnosis.suppressed:
        names = ", ".join(plain(name) for name in diagnosis.suppressed)
        page.add(f"left out on request, {count(len(diagnosis.suppressed), 'check')}: {names}", INDENT, 2)


def _each(page: Page, diagnosis: Diagnosis) -> None:
    """Add every check; one that did not run goes by its name, because its title would read like a claim."""
    for status, mark in (("fired", "✗"), ("clear", "✓"), ("skipped", "?")):
        for f in diagnosis.findings:
            if f.status == status:
                skipped = f"{plain(f.rule)}: {flowing(f.reason or '')}"
                outcome = skipped if status == "skipped" else finding_says(f)
                page.add((f"{mark} ", Span(plain(f.code), "dim"), f" {outcome}"), INDENT, 2)


def _reasons(page: Page, findings: Sequence[Finding]) -> None:
    """Add why checks did not run: what the log lacks in one line, then the other reasons, most frequent first."""
    lacking = [finding for finding in findings if finding.missing]
    if lacking:
        names = list(dict.fromkeys(plain(name) for finding in lacking for name in finding.missing))
        hidden = len(names) - MOST_MISSING
        more = f" and {bound(f'{hidden} more')}" if hidden > 0 else ""
        lack = "lacks" if len(lacking) == 1 else "lack"
        wanted = ", ".join(names[:MOST_MISSING])
        page.add(f"{count(len(lacking), 'check')} {lack}: {wanted}{more}", INDENT + 2, 2)
    grouped = Counter(finding.reason or "" for finding in findings if not finding.missing)
    ordered = sorted(grouped.items(), key=lambda entry: (-entry[1], entry[0]))
    for reason, size in ordered[:MOST_REASONS]:
        page.add(f"{count(size, 'check')}: {flowing(reason)}", INDENT + 2, 2)
    _more(page, len(ordered) - MOST_REASONS, INDENT + 2)


def _not_ruled_out(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    """Add the causes that this log, or any input of its kind, cannot show."""
    for head, fuller in (("by this log, which lacks what it takes", True), (NO_LOG, False)):
        causes = [cause for cause in diagnosis.not_ruled_out if cause.a_fuller_log_could is fuller]
        if fuller and settings_only(diagnosis.run) and not options.all:
            rest = f"{count(len(causes), 'cause')} that take a log, or settings that were not found"
            _heading(page, "Not ruled out", rest, "")
            continue
        if causes:
            _heading(page, "Not ruled out", head)
        if not options.all:
            page.add(listed([plain(cause.id) for cause in causes]), INDENT)
            continue
        for cause in causes:
            page.add((Span(plain(cause.id), "cyan"), f": {flowing(cause.because)}"), INDENT, 2)


def _notes(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    """Add what was dropped or renamed on the way in."""
    ours = diagnosis.run.notes
    if not ours:
        return
    _heading(page, "Notes on reading")
    shown = ours if options.all else ours[:MOST_NOTES]
    for note in shown:
        page.add(flowing(note), INDENT, 2)
    _more(page, len(ours) - len(shown), INDENT)
