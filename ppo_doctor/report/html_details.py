"""Folded details of a page: scores of causes, every check, what was read, statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.report.details import NO_LOG
from ppo_doctor.report.html_markup import NOTHING, Markup, code, el, fold, join, row, table, text
from ppo_doctor.report.html_plots import measured
from ppo_doctor.report.phrases import causes_of
from ppo_doctor.report.words import (
    UNIT,
    behind,
    chance,
    count,
    decibels,
    entry_says,
    finding_says,
    flowing,
    titles,
    weighed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ppo_doctor.model.diagnosis import Diagnosis, LedgerEntry, RankedCause
    from ppo_doctor.model.rules import Finding
    from ppo_doctor.model.run import Run
    from ppo_doctor.model.words import Status
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.summary import Summary

OUTCOMES: Mapping[Status, str] = {"errored": "!", "fired": "✗", "clear": "✓", "skipped": "?"}


def details(
    diagnosis: Diagnosis, run: Run | None, summary: Summary, drawn: Sequence[str], options: RenderOptions
) -> Markup:
    """Return everything that a summary leaves out, each part under its fold."""
    leading = [cause for problem in summary.problems for cause in causes_of(diagnosis, problem)]
    others = [cause for cause in diagnosis.causes if cause not in leading]
    parts = (
        accounts("Also considered", others, diagnosis, unfolded=options.all),
        _statistics(drawn, run),
        _checks(diagnosis, unfolded=options.all),
        _not_ruled_out(diagnosis),
        _reading(diagnosis),
    )
    return join(parts)


def accounts(title: str, causes: Sequence[RankedCause], diagnosis: Diagnosis, *, unfolded: bool) -> Markup:
    """Return the accounts of causes, under one fold."""
    size = f": {count(len(causes), 'cause')}" if len(causes) != 1 else ""
    return fold(f"{title}{size}", join(_account(cause, diagnosis) for cause in causes), unfolded=unfolded)


def _account(cause: RankedCause, diagnosis: Diagnosis) -> Markup:
    """Return the ledger of a cause: prior, every weight, and the sum."""
    prior = _amount(decibels(cause.prior_db), text("prior"), text("how common this cause is"))
    total = _amount(decibels(cause.score_db), text("sum"), text(chance(cause.probability)), cls="sum")
    names = titles(diagnosis)
    rows = (prior, *(_weighed(entry, names) for entry in weighed(cause)), total)
    far = behind(diagnosis, cause)
    about = f"{cause.confidence}{'' if cause.benign else f', {cause.severity.value}'}{f', {far}' if far else ''}"
    head = el("p", el("strong", text(flowing(cause.title))), text(f" ({about}) "), code(cause.id), cls="of-account")
    caption = f"Account of {flowing(cause.id)}, in {UNIT}"
    listed = table(map(text, ("dB", "Check", "What it says")), rows, caption, cls="ledger")
    return el("div", head, listed, cls="filtered")


def _weighed(entry: LedgerEntry, names: Mapping[str, str]) -> Markup:
    name = join((code(entry.finding), text(f" {entry.status}")))
    return _amount(decibels(entry.db), name, text(entry_says(entry, names)))


def _amount(amount: str, name: Markup, words: Markup, cls: str = "") -> Markup:
    return el("tr", el("td", text(amount), cls="db"), el("th", name, scope="row"), el("td", words), cls=cls)


def _statistics(drawn: Sequence[str], run: Run | None) -> Markup:
    """Return the numbers of the metrics that are drawn."""
    ours = [run.series[name] for name in dict.fromkeys(drawn)] if run is not None else []
    if not ours:
        return NOTHING
    measures = [dict(measured(series)) for series in ours]
    heads = list(dict.fromkeys(head for numbers in measures for head in numbers))
    rows = [row(s.raw, *(numbers.get(h, "–") for h in heads)) for s, numbers in zip(ours, measures, strict=True)]
    listed = table(map(text, ("Metric", *heads)), rows, "Statistics of the metrics that are drawn")
    return fold("Statistics", el("div", listed, cls="wide", tabindex="0", role="region", aria_label="Statistics"))


def _checks(diagnosis: Diagnosis, *, unfolded: bool) -> Markup:
    """Return every check with its outcome: errors first, then what fired, what is clear, and what did not run."""
    ordered = [f for status in OUTCOMES for f in diagnosis.findings if f.status == status]
    left_out = ", ".join(flowing(name) for name in diagnosis.suppressed)
    note = el("p", text(f"Left out on request: {left_out}"), cls="quiet") if left_out else NOTHING
    skipped = el("p", text("A check that did not run is not a passed one: it says nothing."), cls="quiet")
    listed = table(
        map(text, ("Outcome", "Check and what it found")), map(_check, ordered), "Every check with its outcome"
    )
    title = f"Every check: {len(ordered)}"
    return fold(title, join((skipped, note, listed)), cls="all-checks", unfolded=unfolded)


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


def _not_ruled_out(diagnosis: Diagnosis) -> Markup:
    """Return the causes that this log does not speak about, and those that no log of its kind can show."""
    parts = [_open_causes(head, diagnosis, fuller) for head, fuller in (("By this log", True), (NO_LOG, False))]
    return fold(f"Not ruled out: {count(len(diagnosis.not_ruled_out), 'cause')}", join(parts))


def _open_causes(head: str, diagnosis: Diagnosis, fuller: bool) -> Markup:
    ours = [cause for cause in diagnosis.not_ruled_out if cause.a_fuller_log_could is fuller]
    rows = (join((el("dt", code(c.id)), el("dd", text(flowing(c.because))))) for c in ours)
    return join((el("p", text(f"{head}:"), cls="quiet"), el("dl", *rows, cls="never"))) if ours else NOTHING


def _reading(diagnosis: Diagnosis) -> Markup:
    """Return the inputs, the configuration as found and the notes on reading."""
    run = diagnosis.run
    files = (row(s.path, s.container, f"{s.records - s.skipped} of {s.records}") for s in run.sources)
    settings = [row(key, str(value)) for key, value in sorted(run.config.items())]
    notes = el("ul", *(el("li", text(flowing(note))) for note in run.notes)) if run.notes else NOTHING
    parts = (
        table(map(text, ("File", "Container", "Records used")), files, "Files that were read"),
        notes,
        _settings(settings),
    )
    sizes = ((len(run.sources), "file"), (len(settings), "setting"), (len(run.notes), "note"))
    return fold("What was read: " + ", ".join(count(size, noun) for size, noun in sizes), join(parts))


def _settings(rows: Iterable[Markup]) -> Markup:
    ours = list(rows)
    return table(map(text, ("Setting", "Value")), ours, "Configuration as found") if ours else NOTHING
