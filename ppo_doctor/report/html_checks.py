"""The lower half of a page: what else was seen, what stays open, every check, and what was read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.model import ASKED, QUESTIONS, Severity
from ppo_doctor.report.html_markup import NOTHING, Markup, code, el, join, row, table, text
from ppo_doctor.report.sections import NO_LOG
from ppo_doctor.report.words import count, finding_says, flowing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppo_doctor.model import Diagnosis, Finding, Status

OUTCOMES: Mapping[Status, str] = {"errored": "!", "fired": "✗", "clear": "✓", "skipped": "?"}

#: A longer list of what a log cannot show is folded.
MOST_UNFOLDED = 6


def unexplained(diagnosis: Diagnosis) -> list[Finding]:
    """Return findings that fired and speak for no cause of this report, the gravest first."""
    told = {entry.finding for cause in diagnosis.causes for entry in cause.ledger if entry.db > 0}
    left = [f for f in diagnosis.findings if f.status == "fired" and f.rule not in told]
    return sorted(left, key=lambda finding: finding.severity.rank)


def also_seen(diagnosis: Diagnosis, plots: Mapping[str, int], prefix: str) -> Markup:
    """Return the findings that no cause of this report explains."""
    return el("ul", *(_seen(finding, plots, prefix) for finding in unexplained(diagnosis)), cls="seen")


def _seen(finding: Finding, plots: Mapping[str, int], prefix: str) -> Markup:
    since = f" Since step {finding.onset_step}." if finding.onset_step is not None else ""
    grave = el("span", text(finding.severity.value), cls=f"sev {finding.severity.value}")
    place = plots.get(finding.rule)
    link = el("a", text(f"Plot {place}"), href=f"#{prefix}plot-{place}", cls="to-plot") if place else NOTHING
    return el("li", grave, text(f" {finding_says(finding)}.{since} "), link)


def seen_title(diagnosis: Diagnosis) -> str:
    """Return the heading over findings without a cause."""
    serious = any(finding.severity != Severity.INFO for finding in unexplained(diagnosis))
    return "Seen, without a cause that explains it" if serious and not diagnosis.causes else "Also seen"


def unanswered(diagnosis: Diagnosis) -> Markup:
    """Return the questions that stay open with the reasons; nothing when all three are answered."""
    asked = [question for question in QUESTIONS if not getattr(diagnosis.coverage, question)]
    if not asked:
        return NOTHING
    return el("ul", *(_question(diagnosis, question) for question in asked), cls="questions")


def _question(diagnosis: Diagnosis, question: str) -> Markup:
    reasons = diagnosis.coverage.unanswered.get(question) or ("no check applies to this kind of input",)
    listed = el("ul", *(el("li", text(flowing(reason))) for reason in dict.fromkeys(reasons)))
    return el("li", el("strong", text(f"? {ASKED[question]}")), listed)


def checks(diagnosis: Diagnosis, *, unfolded: bool = False) -> Markup:
    """Return every check with its outcome: errors first, then what fired, what is clear, and what did not run."""
    ordered = [f for status in OUTCOMES for f in diagnosis.findings if f.status == status]
    rows = (_check(finding) for finding in ordered)
    left_out = ", ".join(flowing(name) for name in diagnosis.suppressed)
    size = count(len(diagnosis.suppressed), "check")
    note = el("p", text(f"Left out on request, {size}: {left_out}"), cls="quiet") if left_out else NOTHING
    listed = table(("Outcome", "Check and what it found"), rows, "Every check with its outcome")
    folded = el(
        "details", el("summary", text(f"All {count(len(ordered), 'check')}")), listed, cls="all-checks", open=unfolded
    )
    return join((tally(diagnosis), folded, note))


def tally(diagnosis: Diagnosis) -> Markup:
    """Return the count of checks by outcome; a check that did not run never looks like one that passed."""
    coverage = diagnosis.coverage
    sizes = (("fired", coverage.fired), ("clear", coverage.clear), ("skipped", coverage.skipped))
    rows = [_size(size, word) for word, size in (*sizes, ("errored", coverage.errored))]
    note = el("p", text("A skipped check is not a passed one: it says nothing."), cls="quiet")
    return join((el("dl", *rows, cls="tally"), note if coverage.skipped else NOTHING))


def _size(size: int, word: str) -> Markup:
    return el("div", el("dt", text(word)), el("dd", text(str(size))), cls=word)


def _check(finding: Finding) -> Markup:
    mark = el("span", text(OUTCOMES[finding.status]), cls="mark", aria_hidden="true")
    outcome = el("td", el("span", mark, text(f" {finding.status}"), cls=f"outcome {finding.status}"))
    about = f" · {finding.link} · {finding.severity.value}"
    name = el("div", text(f"{finding.code} "), code(finding.rule), text(about), cls="about")
    return el("tr", outcome, el("td", el("div", text(_found(finding))), name), cls="filtered")


def _found(finding: Finding) -> str:
    """Return what a check found; one that did not run tells why, because its title would read like a claim."""
    if finding.status in ("skipped", "errored"):
        return flowing(f"Did not run: {finding.reason or 'no reason given'}")
    return finding_says(finding)


def never_shown(diagnosis: Diagnosis) -> Markup:
    """Return the causes that this log does not speak about, and those that no log of its kind can show."""
    parts = [_open_causes(head, diagnosis, fuller) for head, fuller in (("By this log", True), (NO_LOG, False))]
    return join(part for part in parts if part)


def _open_causes(head: str, diagnosis: Diagnosis, fuller: bool) -> Markup:
    ours = [cause for cause in diagnosis.not_ruled_out if cause.a_fuller_log_could is fuller]
    rows = (join((el("dt", code(c.id)), el("dd", text(flowing(c.because))))) for c in ours)
    listed = el("dl", *rows, cls="never")
    if not ours:
        return NOTHING
    if len(ours) <= MOST_UNFOLDED:
        return join((el("p", text(f"{head}:"), cls="quiet"), listed))
    return el("details", el("summary", text(f"{head}: {count(len(ours), 'cause')}, and what each would need")), listed)


def reading(diagnosis: Diagnosis) -> Markup:
    """Return the inputs, the configuration as found and the notes on reading, folded."""
    return join((_sources(diagnosis), _config(diagnosis), _notes(diagnosis)))


def _sources(diagnosis: Diagnosis) -> Markup:
    ours = diagnosis.run.sources
    rows = (row(s.path, s.container, f"{s.records - s.skipped} of {s.records}") for s in ours)
    listed = table(("File", "Container", "Records used"), rows, "Files that were read")
    return el("details", el("summary", text(count(len(ours), "file"))), listed)


def _config(diagnosis: Diagnosis) -> Markup:
    config = diagnosis.run.config
    if not config:
        return el("p", text("No configuration was found."), cls="quiet")
    rows = (row(key, str(value)) for key, value in sorted(config.items()))
    listed = table(("Key", "Value"), rows, "Configuration as found")
    return el("details", el("summary", text(f"Configuration: {count(len(config), 'setting')}")), listed)


def _notes(diagnosis: Diagnosis) -> Markup:
    notes = diagnosis.run.notes
    if not notes:
        return NOTHING
    listed = el("ul", *(el("li", text(flowing(note))) for note in notes))
    return el("details", el("summary", text(count(len(notes), "note"))), listed)
