"""Lay out a report for a terminal: a summary shortened to one screen, and the details that `--why` and `--all` add."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.words import ASKED, CHAIN, QUESTIONS, Severity
from ppo_doctor.report import phrases
from ppo_doctor.report.advice import advice, code_lines
from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import BOUND, Page, Span, columns
from ppo_doctor.report.phrases import (
    MARK_KEY,
    MARK_STYLE,
    MARKS,
    SEVERITY_STYLE,
    UNIT,
    VERDICT_STYLE,
    bound,
    capital,
    chance,
    count,
    decibels,
    entry_says,
    finding_says,
    flowing,
    listed,
    relation_to_leader,
    remedy_says,
    sentence,
    settings_only,
    stopped,
    to_do,
    weighed,
)
from ppo_doctor.report.summary import Row, folder, relative

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model.diagnosis import ChainLink, Diagnosis, LedgerEntry, RankedCause
    from ppo_doctor.model.rules import Finding, Measurement
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.summary import ProblemSummary, Summary, Table

#: The lines of a summary and of that of a healthy run, on a page `AT_WIDTH` columns wide; narrower pages get more.
LINES, HEALTHY_LINES, AT_WIDTH = 24, 16, 100
INDENT, LABELS = 3, 6
#: Styles of the labels after the problems.
REST_STYLE = {"do": "bold", "open": "bold", "failed": "red"}
#: The most items of each list that are printed before "and N more".
MOST_REASONS, MOST_MISSING, MOST_NOTES = 5, 8, 5
NO_LOG = "by a log of this kind, whatever it holds"
#: The least width at which the chain is drawn with arrows.
_ARROWS_FROM = 108
#: The longest key in a table; the beginning of a longer one is cut off.
LONGEST_KEY = 34


@frozen
class Cut:
    """How much of a summary is printed; the defaults are the fullest form."""

    rows: int = 6
    #: whether remarks have their meaning, and key steps their names
    says: bool = True
    names: bool = True
    notes: int = 2
    #: whether the second remedy is printed, and the most statistics of a problem
    next: bool = True
    seen: int = 2
    #: the most lines of code beside that of the first problem
    also: int = 2
    #: whether measurements have their reason
    because: bool = True
    remarks: int = 3
    #: whether the measurement for a cause with a remedy is printed
    settles: bool = True
    #: which lines of problems after the first are printed: 3 all, 2 evidence and causes, 1 causes, 0 none
    further: int = 3
    #: whether the records are named of which the levels of the reward are medians
    medians: bool = True


#: The labels of a problem after the first that `Cut.further` keeps; None for all.
_FURTHER: tuple[Sequence[str] | None, ...] = ((), ("why",), ("at", "seen", "cost", "why", "or"), None)
#: What each step leaves out in addition to the steps before it; the first step that fits is printed.
_STEPS: tuple[dict[str, Any], ...] = (
    {"says": False, "notes": 1, "further": 2},
    {"rows": 5},
    {"names": False},
    {"seen": 1, "remarks": 2, "also": 1},
    {"rows": 4, "further": 1, "remarks": 1},
    {"next": False},
    {"remarks": 0, "because": False, "also": 0},
    {"rows": 3, "further": 0},
    {"rows": 2, "notes": 0},
    {"settles": False, "medians": False},
    {"rows": 1},
)
CUTS = tuple(accumulate(_STEPS, lambda cut, left_out: replace(cut, **left_out), initial=Cut()))


def screen(
    page: Page,
    summary: Summary,
    diagnosis: Diagnosis,
    *,
    head: bool = True,
    whole: bool = False,
    most: int | None = None,
) -> None:
    """Add as much of a summary as fits into `most` lines; without `head` the verdict and the run are left out.

    With `whole` the first problem has all its lines of code, however long that is.
    """
    most = _lines(summary, page.width) if most is None else most
    lines = len(summary.problems[0].code.also) if whole and summary.problems and summary.problems[0].code else 0
    for step in CUTS:
        cut = replace(step, also=lines) if whole else step
        draft = Page(width=page.width, ascii=page.ascii)
        if head:
            _head(draft, summary, diagnosis)
        _whole(draft, summary, diagnosis, cut)
        if len(draft.lines) < most + lines:  # one line is left for the footer
            break
    page.lines.extend(draft.lines)


def _lines(summary: Summary, width: int) -> int:
    """Return the greatest number of lines of a summary on a page of this width."""
    lines = HEALTHY_LINES if summary.verdict == "healthy" else LINES
    return math.ceil(lines * max(1.0, AT_WIDTH / width))


def short_screen(page: Page, summary: Summary, diagnosis: Diagnosis) -> None:
    """Add the verdict, the first problem and the first action, one line each whatever the width."""
    page.row((Span(diagnosis.verdict.upper(), VERDICT_STYLE[diagnosis.verdict]), f"  {plain(diagnosis.run.id)}"))
    if summary.problems:
        more = f" (and {count(len(summary.problems) - 1, 'further problem')})" if len(summary.problems) > 1 else ""
        code = summary.problems[0].code
        at = f" – {plain(str(code))}" if code is not None else ""
        page.row((Span(phrases.title(summary.problems[0]), "bold"), at, more), INDENT)
    else:
        page.row(phrases.outcome(summary), INDENT)
    first = phrases.first_action(summary)
    if first:
        page.row(f"do: {first}", INDENT)


def closing(page: Page, summary: Summary) -> None:
    """Add the verdict and the first action again, because the details have moved them out of view."""
    page.blank()
    title = BOUND * 2 + (phrases.title(summary.problems[0]) if summary.problems else phrases.outcome(summary))
    page.add((Span(summary.verdict.upper(), VERDICT_STYLE[summary.verdict]), title), 0, INDENT)
    first = phrases.first_action(summary)
    if first:
        page.labelled(Span("do", "bold"), first, INDENT, LABELS)


def _head(page: Page, summary: Summary, diagnosis: Diagnosis) -> None:
    word = Span(summary.verdict.upper(), VERDICT_STYLE[summary.verdict])
    page.add((word, BOUND * 2, Span(plain(diagnosis.run.id), "bold")), 0, INDENT)
    page.add(" · ".join(phrases.facts(diagnosis)), INDENT)


def _whole(page: Page, summary: Summary, diagnosis: Diagnosis, cut: Cut) -> None:
    page.add(phrases.outcome(summary, medians=cut.medians), INDENT)
    if summary.table is not None:
        page.blank()
        _table(page, summary.table, cut)
    page.blank()
    for problem in summary.problems:
        _problem(page, problem, diagnosis, cut)
    for remark in summary.remarks[: cut.remarks]:
        meaning = f" {sentence(remark.message)}" if cut.says and remark.message else ""
        page.labelled(Span("note", "dim"), sentence(remark.title) + meaning, INDENT, LABELS)
    page.blank()
    for label, words in phrases.rest(summary, diagnosis, notes=cut.notes):
        if label != "note":  # the remarks are printed above
            page.add((Span(capital(label), REST_STYLE.get(label, "")), f": {words}"), 0, INDENT)


def _table(page: Page, table: Table, cut: Cut) -> None:
    """Add a table; a narrow page leaves out key steps between start and end, then usual ranges."""
    rows = table.rows[: cut.rows]
    keys = ["step", *(key_of(row.name, row.key) for row in rows)]
    label = max(map(columns, keys))
    # Start, middle and end need no names.
    named = cut.names and any(step.name == "onset" for step in table.key_steps)
    shown = list(range(len(table.key_steps)))
    cells = _cells(table, rows)
    widths = [max((columns(line[i]) for line in cells[0 if named else 1 :]), default=0) for i in range(len(cells[0]))]
    tails = [i for i in range(len(shown), len(widths)) if any(line[i] for line in cells[2:])]
    while INDENT + label + sum(widths[i] + 2 for i in (*shown, *tails)) > page.width:
        if len(shown) > 2:
            del shown[_least(table, shown)]
        elif len(tails) > 1:
            del tails[0]
        else:
            break
    for number, (key, line) in enumerate(zip(("", *keys), cells, strict=True)):
        if number or named:
            values = "".join(f"  {' ' * (widths[i] - columns(line[i]))}{line[i]}" for i in shown)
            tail = "".join(f"  {line[i]}{' ' * (widths[i] - columns(line[i]))}" for i in tails).rstrip()
            text = key + " " * (label - columns(key))
            quiet = tail.removesuffix(line[-1])  # the remark is not dimmed
            page.row((text, Span(values, "dim" if number < 2 else ""), Span(quiet, "dim"), line[-1]), INDENT)


def _cells(table: Table, rows: Sequence[Row]) -> list[list[str]]:
    """Return the names of the key steps, their steps, and for each metric its values, usual range and remark."""
    usual = "usual" if any(row.usual for row in rows) else ""
    names, steps = [s.name for s in table.key_steps], [str(s.step) for s in table.key_steps]
    lines = [[*phrases.cells(row), bound(row.usual), row.remark] for row in rows]
    return [[*names, "", ""], [*steps, usual, ""], *lines]


def _least(table: Table, shown: Sequence[int]) -> int:
    """Return the index in `shown` of the key step to leave out next."""
    names = [table.key_steps[i].name for i in shown]
    return next((names.index(name) for name in ("after", "middle", "before") if name in names), 1)


def key_of(name: str, raw: str) -> str:
    """Return the name of a metric: the last characters of its key, as `phrases.row_name` writes it."""
    key = plain(raw)
    key = key if len(key) <= LONGEST_KEY else "…" + key[-LONGEST_KEY:]
    return phrases.row_name(Row(name=name, key=key, values=()))


def _problem(page: Page, problem: ProblemSummary, diagnosis: Diagnosis, cut: Cut) -> None:
    number = f"{problem.rank}".ljust(INDENT - 1).replace(" ", BOUND)
    severity, style = problem.severity.value, SEVERITY_STYLE.get(problem.severity, "")
    words = [Span(word, style if word == severity else "") for word in phrases.standing(problem, diagnosis)]
    title = Span(phrases.title(problem), "bold")
    joined = (part for word in words for part in (" – " if word is words[0] else " · ", word))
    page.add((f"{number} ", title, *joined), 0, INDENT)
    first = problem.rank == 1
    lines = advice(problem, also=cut.also * first, seen=cut.seen, resort=cut.next, because=cut.because)
    if problem.sure and problem.do and not cut.settles:
        lines = [(label, words) for label, words in lines if label != "check"]
    labels = None if first else _FURTHER[cut.further]
    for label, line in lines:
        if labels is None or label in labels:
            page.labelled(Span(label, "bold" if label == "do" else "dim"), line, INDENT, LABELS)


def details(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    """Add the signal chain, the causes with their scores, every check, and what was read."""
    page.blank()
    _sources(page, diagnosis)
    diagnosis = relative(diagnosis)
    _chain(page, diagnosis, options)
    writer = _Causes(page=page, diagnosis=diagnosis, options=options)
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
    """Add one line per input if there are several, and the folder to which the paths below are relative."""
    sources = diagnosis.run.sources
    for source in sources if len(sources) > 1 else ():
        used = f"{source.records - source.skipped} of {count(source.records, 'record')} used"
        page.add(Span(f"{plain(source.path)} ({plain(source.container)}), {used}", "dim"), INDENT, 2)
    shared = folder(diagnosis)
    if shared and not diagnosis.run.id.startswith(shared):
        page.add(Span(f"Files below are relative to {plain(shared)}", "dim"), INDENT, 2)


def _chain(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    """Add the links of the chain on one line, known side links on another, and the evidence of broken links."""
    _heading(page, "Signal chain", MARK_KEY)
    page.add(_links([link for link in diagnosis.chain if link.link in CHAIN], page.width >= _ARROWS_FROM), INDENT)
    side_links = [link for link in diagnosis.chain if link.link not in CHAIN and link.state != "unknown"]
    if side_links:
        page.add((Span("beside it: ", "dim"), *_links(side_links, arrows=False)), INDENT)
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
    """Writes causes one after the other; later ones refer to evidence and questions already printed."""

    page: Page
    diagnosis: Diagnosis
    options: RenderOptions
    #: finding → rank of the cause under which its numbers are printed
    shown_at: dict[str, int] = field(default_factory=dict)
    #: measurements that are printed already
    asked: set[Measurement] = field(default_factory=set)

    def section(self, title: str, ranked: Sequence[RankedCause]) -> None:
        """Add causes under a heading, or nothing if there are none."""
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
            # Causes that cannot be distinguished share their measurements.
            new = [measure for measure in cause.would_change_my_mind if measure not in self.asked]
            self.asked.update(new)
            lines = [f"{to_do(m)} {flowing(m.log)} — {stopped(flowing(m.because))}" for m in new]
            self._labelled("Would settle it:", "So would:", lines)

    def _standing(self, cause: RankedCause) -> tuple[str | Span, ...]:
        """Return the confidence, severity and id of a cause, its onset, and its relation to the leading cause."""
        since = f" · {bound(f'since step {cause.onset_step}')}" if cause.onset_step is not None else ""
        severity = () if cause.benign else (" · ", Span(cause.severity.value, SEVERITY_STYLE.get(cause.severity, "")))
        far = relation_to_leader(self.diagnosis, cause)
        return (cause.confidence, *severity, " · ", Span(plain(cause.id), "cyan"), since, f" · {far}" if far else "")

    def _labelled(self, first: str, others: str, lines: Sequence[str]) -> None:
        for number, line in enumerate(lines):
            self.page.labelled(Span(others if number else first, "dim"), line, INDENT)

    def _score(self, cause: RankedCause) -> None:
        """Add the account of a cause: prior, every weight, and the sum."""
        self.page.add(Span(f"Account, in {UNIT}:", "dim"), INDENT)
        self._amount(cause.prior_db, "prior: how common this cause is")
        for entry in weighed(cause):
            self._amount(entry.db, f"{plain(entry.finding)} {entry.status}: {self._words(entry, cause)}")
        self._amount(cause.score_db, Span("sum", "bold"))
        self.page.add(Span(chance(cause.probability), "dim"), INDENT)

    def _words(self, entry: LedgerEntry, cause: RankedCause) -> str:
        """Return a finding with its numbers, or with the rank of the cause under which they are printed already.

        A finding about a line of the script ends with its place.
        """
        rank = self.shown_at.setdefault(entry.finding, cause.rank)
        if rank == cause.rank:
            place = next((f.place for f in self.diagnosis.findings if f.rule == entry.finding), None)
            return entry_says(entry) + (f" – {plain(str(place))}" if place is not None else "")
        return f"{flowing(entry.title)} ({bound(f'see {rank}')})"

    def _amount(self, amount: int, words: str | Span) -> None:
        self.page.labelled(bound(decibels(amount).rjust(4)), words, INDENT, column=6)


def _level_with(diagnosis: Diagnosis, cause: RankedCause) -> str:
    """Return a sentence on the causes that this log cannot tell from a cause, or "" if there are none."""
    if not cause.level_with:
        return ""
    ranks = {c.id: c.rank for c in diagnosis.causes}
    names = [bound(f"{ranks[i]} ({plain(i)})" if i in ranks else plain(i)) for i in cause.level_with]
    return f"Cannot be told apart from {listed(names)} by this log."


def _unexplained(page: Page, diagnosis: Diagnosis) -> None:
    """Add the fired findings that support no cause."""
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
        code_lines(page, finding.place, INDENT + 2)


def _unanswered(page: Page, diagnosis: Diagnosis) -> None:
    """Add the open questions of coverage, each with its reasons."""
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
    """Add the counts of checks by status, errors and the reasons of skipped checks, or with `--all` every check."""
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
    page.add(phrases.left_to_run(diagnosis), INDENT, 2)
    if diagnosis.suppressed:
        names = ", ".join(plain(name) for name in diagnosis.suppressed)
        page.add(f"left out on request, {count(len(diagnosis.suppressed), 'check')}: {names}", INDENT, 2)


def _each(page: Page, diagnosis: Diagnosis) -> None:
    """Add every check; a skipped one is printed by its name, because its title would read like a claim."""
    for status, mark in (("fired", "✗"), ("clear", "✓"), ("skipped", "?")):
        for f in diagnosis.findings:
            if f.status == status:
                skipped = f"{plain(f.rule)}: {flowing(f.reason or '')}"
                outcome = skipped if status == "skipped" else finding_says(f)
                page.add((f"{mark} ", Span(plain(f.code), "dim"), f" {outcome}"), INDENT, 2)
                code_lines(page, f.place, INDENT + 2)


def _reasons(page: Page, findings: Sequence[Finding]) -> None:
    """Add the reasons why checks did not run: missing metrics in one line, then other reasons, most frequent first."""
    lacking = [finding for finding in findings if finding.missing]
    if lacking:
        names = list(dict.fromkeys(plain(name) for finding in lacking for name in finding.missing))
        hidden = len(names) - MOST_MISSING
        more = f" and {bound(f'{hidden} more')}" if hidden > 0 else ""
        lack = "lacks" if len(lacking) == 1 else "lack"
        missing = ", ".join(names[:MOST_MISSING])
        page.add(f"{count(len(lacking), 'check')} {lack}: {missing}{more}", INDENT + 2, 2)
    grouped = Counter(finding.reason or "" for finding in findings if not finding.missing)
    ordered = sorted(grouped.items(), key=lambda entry: (-entry[1], entry[0]))
    for reason, size in ordered[:MOST_REASONS]:
        page.add(f"{count(size, 'check')}: {flowing(reason)}", INDENT + 2, 2)
    _more(page, len(ordered) - MOST_REASONS, INDENT + 2)


def _not_ruled_out(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    """Add the causes that are not ruled out: by this log, and by any log of its kind."""
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
    """Add the notes on reading, such as what was dropped or renamed."""
    notes = diagnosis.run.notes
    if not notes:
        return
    _heading(page, "Notes on reading")
    shown = notes if options.all else notes[:MOST_NOTES]
    for note in shown:
        page.add(flowing(note), INDENT, 2)
    _more(page, len(notes) - len(shown), INDENT)
