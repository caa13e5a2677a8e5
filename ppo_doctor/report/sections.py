"""The parts of a page around the causes: verdict, signal chain, coverage, checks and notes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ppo_doctor.model import CHAIN, QUESTIONS
from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import Page, Span
from ppo_doctor.report.words import (
    MARK_STYLE,
    MARKS,
    SEVERITY_STYLE,
    VERDICT_STYLE,
    count,
    finding_says,
    flowing,
    listed,
    run_facts,
    sentence,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ppo_doctor.model import ChainLink, Diagnosis, Finding
    from ppo_doctor.report import RenderOptions

INDENT = 3
MOST_REASONS, MOST_NOTES = 5, 5
ASKED: Mapping[str, str] = {
    "movement": "whether the policy moves",
    "signal": "whether there is a learning signal",
    "numerics": "whether the numbers are finite",
}
#: Links on which a skipped check leaves a question of coverage open.
_ASKED_ON: Mapping[str, tuple[str, ...]] = {
    "movement": ("gradient", "update", "weights", "policy", "ratio"),
    "signal": ("rewards", "advantages", "loss"),
    "numerics": ("numerics",),
}
#: From this width on the chain is drawn with arrows.
_ARROWS_FROM = 100


def verdict(page: Page, diagnosis: Diagnosis) -> None:
    """Add the verdict's word with the run, what was read, and one sentence why."""
    word = Span(diagnosis.verdict.upper(), VERDICT_STYLE[diagnosis.verdict])
    page.add((word, "  ", Span(plain(diagnosis.run.id), "bold")), 0, INDENT)
    facts = run_facts(diagnosis.run)
    if len(diagnosis.run.sources) > 1:
        facts.append(count(len(diagnosis.run.sources), "source"))
    page.add(" · ".join(facts), INDENT)
    page.add(sentence(diagnosis.verdict_because), INDENT)


def sources(page: Page, diagnosis: Diagnosis) -> None:
    """Add one line per input when there are several, or one that the run is not named after."""
    ours = diagnosis.run.sources
    if len(ours) < 2 and all(source.path == diagnosis.run.id for source in ours):
        return
    for source in ours:
        used = f"{source.records - source.skipped} of {count(source.records, 'record')} used"
        page.add(Span(f"{plain(source.path)} ({plain(source.container)}), {used}", "dim"), INDENT, 2)


def chain(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    """Add the signal chain on one line, known side links on another, and what shows that a link is dead."""
    page.blank()
    page.add((Span("Signal chain", "bold"), Span("  ✓ alive  ✗ dead  ? not logged", "dim")))
    arrows = page.width >= _ARROWS_FROM
    page.add(_drawn([link for link in diagnosis.chain if link.link in CHAIN], arrows), INDENT)
    beside = [link for link in diagnosis.chain if link.link not in CHAIN and link.state != "unknown"]
    if beside:
        page.add((Span("beside it: ", "dim"), *_drawn(beside, arrows=False)), INDENT)
    for link in diagnosis.chain:
        if link.evidence and (link.state == "dead" or options.all):
            mark = Span(MARKS[link.state], MARK_STYLE[link.state])
            page.add((mark, f" {link.link}: {flowing(link.evidence)}"), INDENT, 2)


def _drawn(links: Sequence[ChainLink], arrows: bool) -> tuple[str | Span, ...]:
    gap = " → " if arrows else " "
    drawn: list[str | Span] = []
    for link in links:
        drawn += [gap] if drawn else []
        drawn.append(Span(MARKS[link.state] + link.link, MARK_STYLE[link.state]))
    return tuple(drawn)


def unanswered(page: Page, diagnosis: Diagnosis) -> None:
    """Add the questions of coverage that stay open, each with the reasons why, and what no log can show."""
    open_questions = [question for question in QUESTIONS if not getattr(diagnosis.coverage, question)]
    if not open_questions:
        return
    page.blank()
    page.add(Span("Not answered", "bold"))
    for question in open_questions:
        page.add((Span("? ", "yellow"), f"{ASKED[question]}: not checked"), INDENT, 2)
        skipped = [f for f in diagnosis.findings if f.status in _NOT_RUN and f.link in _ASKED_ON[question]]
        _reasons(page, skipped, most=3)
        if not skipped:
            page.add("too few records, or no check that applies to this kind of input", INDENT + 2)


_NOT_RUN = ("skipped", "errored")


def _reasons(page: Page, findings: Sequence[Finding], most: int | None) -> None:
    """Add reasons, the most frequent first, each with the number of checks that it stopped."""
    grouped = Counter(finding.reason or "" for finding in findings)
    ordered = sorted(grouped.items(), key=lambda entry: (-entry[1], entry[0]))
    shown = ordered if most is None else ordered[:most]
    for reason, size in shown:
        page.add((f"{count(size, 'check')}: ", Span(flowing(reason))), INDENT + 2, 2)
    if len(shown) < len(ordered):
        page.add(Span(f"… and {len(ordered) - len(shown)} more, --all", "dim"), INDENT + 2)


def unexplained(page: Page, diagnosis: Diagnosis) -> None:
    """Add findings that fired and speak for no cause of this report."""
    told = {e.finding for cause in diagnosis.causes for e in cause.ledger if e.db > 0}
    left = [f for f in diagnosis.findings if f.status == "fired" and f.rule not in told]
    if not left:
        return
    page.blank()
    page.add(Span("Also seen", "bold"))
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
    page.add((Span("Checks", "bold"), f"  {counts}"))
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
                page.add((f"{mark} ", Span(plain(finding.code), "dim"), f" {finding_says(finding)}"), INDENT, 2)


def _suppressed(page: Page, diagnosis: Diagnosis) -> None:
    if diagnosis.suppressed:
        names = ", ".join(plain(name) for name in diagnosis.suppressed)
        page.add(f"left out on request, {count(len(diagnosis.suppressed), 'check')}: {names}", INDENT, 2)


def never_shown(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    """Add what this kind of input can never show."""
    causes = diagnosis.not_ruled_out
    if not causes:
        return
    page.blank()
    page.add((Span("Not ruled out", "bold"), Span("  by a log of this kind, whatever it holds", "dim")))
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
