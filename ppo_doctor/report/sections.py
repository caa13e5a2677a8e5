"""The parts of a page around the causes: verdict, signal chain, coverage, checks and notes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ppo_doctor.model import ASKED, CHAIN, QUESTIONS, Severity
from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import BOUND, Page, Span
from ppo_doctor.report.nearby import folder
from ppo_doctor.report.words import (
    MARK_KEY,
    MARK_STYLE,
    MARKS,
    SEVERITY_STYLE,
    VERDICT_STYLE,
    bound,
    count,
    finding_says,
    flowing,
    listed,
    run_facts,
    sentence,
    settings_only,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import ChainLink, Diagnosis, Finding, Unjudged
    from ppo_doctor.report import RenderOptions

INDENT = 3
#: Printed before "and N more".
MOST_REASONS, MOST_MISSING, MOST_NOTES = 5, 8, 5
NO_LOG = "by a log of this kind, whatever it holds"
#: From this width on the chain is drawn with arrows.
_ARROWS_FROM = 108


def verdict(page: Page, diagnosis: Diagnosis) -> None:
    """Add the verdict's word with the run, and what was read."""
    word = Span(diagnosis.verdict.upper(), VERDICT_STYLE[diagnosis.verdict])
    page.add((word, BOUND * 2, Span(plain(diagnosis.run.id), "bold")), 0, INDENT)
    facts = run_facts(diagnosis.run)
    if len(diagnosis.run.sources) > 1:
        facts.append(count(len(diagnosis.run.sources), "source"))
    page.add(" · ".join(facts), INDENT)


def because(page: Page, diagnosis: Diagnosis) -> None:
    """Add one sentence why the verdict is what it is."""
    page.add(sentence(diagnosis.verdict_because), INDENT)


def sources(page: Page, diagnosis: Diagnosis) -> None:
    """Add one line per input when there are several, and the folder that paths below are relative to."""
    ours = diagnosis.run.sources
    if len(ours) > 1:
        for source in ours:
            used = f"{source.records - source.skipped} of {count(source.records, 'record')} used"
            page.add(Span(f"{plain(source.path)} ({plain(source.container)}), {used}", "dim"), INDENT, 2)
    shared = folder(diagnosis)
    if shared and not diagnosis.run.id.startswith(shared):
        page.add(Span(f"Files below are relative to {plain(shared)}", "dim"), INDENT, 2)


def chain(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    """Add the signal chain on one line, known side links on another, and what shows that a link is not alive."""
    page.blank()
    page.add((Span("Signal chain", "bold"), Span(f"{BOUND * 2}{MARK_KEY}", "dim")))
    arrows = page.width >= _ARROWS_FROM
    page.add(_drawn([link for link in diagnosis.chain if link.link in CHAIN], arrows), INDENT)
    beside = [link for link in diagnosis.chain if link.link not in CHAIN and link.state != "unknown"]
    if beside:
        page.add((Span("beside it: ", "dim"), *_drawn(beside, arrows=False)), INDENT)
    told = {entry.says for cause in diagnosis.causes for entry in cause.ledger}
    for link in diagnosis.chain:
        broken = link.state not in ("alive", "unknown") and link.entailed_by is None
        if link.witness and (options.all or (broken and link.witness not in told)):
            mark = Span(MARKS[link.state], MARK_STYLE[link.state])
            page.add((mark, f" {link.link}: {flowing(link.witness)}"), INDENT, 2)


def _drawn(links: Sequence[ChainLink], arrows: bool) -> tuple[str | Span, ...]:
    gap = " → " if arrows else " "
    drawn: list[str | Span] = []
    for link in links:
        drawn += [gap] if drawn else []
        drawn.append(Span(MARKS[link.state] + link.link, MARK_STYLE[link.state]))
    return tuple(drawn)


def unanswered(page: Page, diagnosis: Diagnosis) -> None:
    """Add the questions of coverage that stay open, each with the reasons why."""
    open_questions = [question for question in QUESTIONS if not getattr(diagnosis.coverage, question)]
    if not open_questions:
        return
    page.blank()
    page.add(Span("Not answered", "bold"))
    for question in open_questions:
        page.add((Span("?", "yellow"), f" {ASKED[question]}"), INDENT, 2)
        reasons = diagnosis.coverage.unanswered.get(question) or ("no check applies to this kind of input",)
        for reason in reasons[:MOST_REASONS]:
            page.add(flowing(reason), INDENT + 2, 2)
        if len(reasons) > MOST_REASONS:
            page.add(Span(f"… and {len(reasons) - MOST_REASONS} more, --all", "dim"), INDENT + 2)


def _reasons(page: Page, findings: Sequence[Finding], most: int) -> None:
    """Add why checks did not run: what the log lacks in one line, then the other reasons, most frequent first."""
    lacking = [finding for finding in findings if finding.missing]
    if lacking:
        names = list(dict.fromkeys(plain(name) for finding in lacking for name in finding.missing))
        hidden = len(names) - MOST_MISSING
        more = f" and {bound(f'{hidden} more')}" if hidden > 0 else ""
        wanted = ", ".join(names[:MOST_MISSING])
        lack = "lacks" if len(lacking) == 1 else "lack"
        page.add(f"{count(len(lacking), 'check')} {lack}: {wanted}{more}", INDENT + 2, 2)
    grouped = Counter(finding.reason or "" for finding in findings if not finding.missing)
    ordered = sorted(grouped.items(), key=lambda entry: (-entry[1], entry[0]))
    for reason, size in ordered[:most]:
        page.add(f"{count(size, 'check')}: {flowing(reason)}", INDENT + 2, 2)
    if len(ordered) > most:
        page.add(Span(f"… and {len(ordered) - most} more, --all", "dim"), INDENT + 2)


def unexplained(page: Page, diagnosis: Diagnosis) -> None:
    """Add findings that fired and speak for no cause of this report."""
    told = {e.finding for cause in diagnosis.causes for e in cause.ledger if e.db > 0}
    left = [f for f in diagnosis.findings if f.status == "fired" and f.rule not in told]
    if not left:
        return
    page.blank()
    serious = any(finding.severity != Severity.INFO for finding in left)
    title = "Seen, without a cause that explains it" if serious and not diagnosis.causes else "Also seen"
    page.add(Span(title, "bold"))
    for finding in sorted(left, key=lambda f: f.severity.rank):
        style = SEVERITY_STYLE.get(finding.severity, "")
        since = f" Since step {finding.onset_step}." if finding.onset_step is not None else ""
        page.add((Span(finding.severity.value, style), f" · {finding_says(finding)}.{since}"), INDENT, 2)


def checks(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    """Add the count of checks by outcome; errors one by one, reasons for skipping grouped, all of them on request."""
    coverage = diagnosis.coverage
    page.blank()
    counts = (
        f"{coverage.clear} clear · {coverage.fired} fired · {coverage.skipped} skipped · {coverage.errored} errored"
    )
    page.add((Span("Checks", "bold"), f"{BOUND * 2}{counts}"))
    for finding in diagnosis.findings:
        if finding.status == "errored":
            where = f"{plain(finding.code)} {plain(finding.rule)}"
            page.add((Span("errored ", "red"), f"{where}: {flowing(finding.reason or '')}"), INDENT, 2)
    if options.all:
        _each(page, diagnosis)
    else:
        skipped = [finding for finding in diagnosis.findings if finding.status == "skipped"]
        if skipped:
            page.add(Span("skipped, which is not the same as passed:", "dim"), INDENT)
            _reasons(page, skipped, most=MOST_REASONS)
    _suppressed(page, diagnosis)


def _each(page: Page, diagnosis: Diagnosis) -> None:
    for status, mark in (("fired", "✗"), ("clear", "✓"), ("skipped", "?")):
        for finding in diagnosis.findings:
            if finding.status == status:
                page.add((f"{mark} ", Span(plain(finding.code), "dim"), f" {_outcome(finding)}"), INDENT, 2)


def _outcome(finding: Finding) -> str:
    """Return what a check said; one that did not run goes by its name, because its title would read like a claim."""
    if finding.status == "skipped":
        return f"{plain(finding.rule)}: {flowing(finding.reason or '')}"
    return finding_says(finding)


def _suppressed(page: Page, diagnosis: Diagnosis) -> None:
    if diagnosis.suppressed:
        names = ", ".join(plain(name) for name in diagnosis.suppressed)
        page.add(f"left out on request, {count(len(diagnosis.suppressed), 'check')}: {names}", INDENT, 2)


def never_shown(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    """Add what this log does not speak about, and what this kind of input can never show."""
    for head, fuller in (("by this log, which lacks what it takes", True), (NO_LOG, False)):
        causes = [cause for cause in diagnosis.not_ruled_out if cause.a_fuller_log_could is fuller]
        if fuller and settings_only(diagnosis.run) and not options.all:
            page.blank()
            rest = f"{count(len(causes), 'cause')} that take a log, or settings that were not found"
            page.add((Span("Not ruled out", "bold"), f"{BOUND * 2}{rest}"))
        elif causes and not (fuller and options.quiet):
            _not_ruled_out(page, head, causes, options)


def _not_ruled_out(page: Page, head: str, causes: Sequence[Unjudged], options: RenderOptions) -> None:
    page.blank()
    page.add((Span("Not ruled out", "bold"), Span(f"{BOUND * 2}{head}", "dim")))
    if options.all:
        for cause in causes:
            page.add((Span(plain(cause.id), "cyan"), f": {flowing(cause.because)}"), INDENT, 2)
    else:
        page.add(listed([plain(cause.id) for cause in causes]), INDENT)


def notes(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    """Add what was dropped or renamed on the way in."""
    ours = diagnosis.run.notes
    if not ours:
        return
    page.blank()
    page.add(Span("Notes on reading", "bold"))
    shown = ours if options.all else ours[:MOST_NOTES]
    for note in shown:
        page.add(flowing(note), INDENT, 2)
    if len(shown) < len(ours):
        page.add(Span(f"… and {len(ours) - len(shown)} more, --all", "dim"), INDENT)
