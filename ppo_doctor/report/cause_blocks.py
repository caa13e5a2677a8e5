"""Ranked causes on a page: what each means for the run, why we think so, what to do, and what would settle it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import Page, Span
from ppo_doctor.report.words import (
    SEVERITY_STYLE,
    bound,
    decibels,
    entry_says,
    flowing,
    listed,
    remedies,
    remedy_says,
    sentence,
    titles,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ppo_doctor.model import Diagnosis, LedgerEntry, Measurement, RankedCause
    from ppo_doctor.report import RenderOptions

INDENT = 3
#: Evidence printed for and against a leader before --all, and for a rival.
MOST_EVIDENCE, RIVAL_EVIDENCE = 4, 1


def causes(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    """Add faults in full, then harmless explanations in a quieter form."""
    faults = [cause for cause in diagnosis.causes if not cause.benign]
    harmless = [cause for cause in diagnosis.causes if cause.benign]
    asked: set[Measurement] = set()
    _section(page, "Causes" if len(faults) > 1 else "Cause", faults, diagnosis, options, asked)
    title = "Harmless explanations" if len(harmless) > 1 else "Harmless explanation"
    _section(page, title, harmless, diagnosis, options, asked)


def _section(
    page: Page,
    title: str,
    ranked: Sequence[RankedCause],
    diagnosis: Diagnosis,
    options: RenderOptions,
    asked: set[Measurement],
) -> None:
    if not ranked:
        return
    page.blank()
    page.add(Span(title, "bold"))
    for cause in ranked:
        page.blank()
        _cause(page, cause, diagnosis, options)
        _to_settle(page, cause, asked)
        if options.why:
            _account(page, cause, titles(diagnosis))


def heading(page: Page, cause: RankedCause) -> None:
    """Add a cause's number and title."""
    page.add((f"{cause.rank}".ljust(INDENT), Span(flowing(cause.title), "" if cause.benign else "bold")), 0, INDENT)


def standing(cause: RankedCause) -> tuple[str | Span, ...]:
    """Return a cause's confidence, severity and id, and the step since when."""
    since = bound(f" · since step {cause.onset_step}") if cause.onset_step is not None else ""
    style = "" if cause.benign else SEVERITY_STYLE.get(cause.severity, "")
    severity = () if cause.benign else (" · ", Span(cause.severity.value, style))
    return (cause.confidence, *severity, " · ", Span(plain(cause.id), "cyan"), since)


def _cause(page: Page, cause: RankedCause, diagnosis: Diagnosis, options: RenderOptions) -> None:
    heading(page, cause)
    page.add((*standing(cause), *_behind(cause, diagnosis.causes)), INDENT, 2)
    _level(page, cause, diagnosis.causes)
    if cause.says:
        page.add(sentence(cause.says), INDENT)
    in_full = cause.leader or options.all
    _evidence(page, cause, titles(diagnosis), _most(options, in_full))
    if in_full:
        _remedies(page, cause, diagnosis, options)


def _most(options: RenderOptions, in_full: bool) -> int | None:
    if options.all:
        return None
    return MOST_EVIDENCE if in_full else RIVAL_EVIDENCE


def _behind(cause: RankedCause, everyone: Iterable[RankedCause]) -> tuple[str, ...]:
    """Return how far a rival is behind the leader of its complaint."""
    leaders = [c for c in everyone if c.leader and c.complaint == cause.complaint]
    if cause.leader or not leaders:
        return ()
    best = max(leaders, key=lambda leader: leader.score_db)
    return (" · ", bound(f"{best.score_db - cause.score_db} dB behind {best.rank}"))


def _level(page: Page, cause: RankedCause, everyone: Iterable[RankedCause]) -> None:
    if not cause.level_with:
        return
    ranks = {c.id: c.rank for c in everyone}
    names = [f"{ranks[i]} ({plain(i)})" if i in ranks else plain(i) for i in cause.level_with]
    page.add(f"Cannot be told apart from {listed([bound(name) for name in names])} by this log.", INDENT)


def _evidence(page: Page, cause: RankedCause, names: dict[str, str], most: int | None) -> None:
    counted = [entry for entry in cause.ledger if entry.counted]
    favour = sorted((e for e in counted if e.db > 0), key=lambda entry: -entry.db)
    against = sorted((e for e in counted if e.db < 0), key=lambda entry: entry.db)
    _entries(page, "Evidence:", favour, names, most)
    _entries(page, "Against:", against, names, most)


def _entries(page: Page, label: str, entries: Sequence[LedgerEntry], names: dict[str, str], most: int | None) -> None:
    shown = entries if most is None else entries[:most]
    for index, entry in enumerate(shown):
        page.labelled(Span("" if index else label, "dim"), entry_says(entry, names), INDENT)
    if len(shown) < len(entries):
        page.labelled("", Span(f"… and {len(entries) - len(shown)} more, --why", "dim"), INDENT)


def _remedies(page: Page, cause: RankedCause, diagnosis: Diagnosis, options: RenderOptions) -> None:
    chosen = remedies(cause.remedies, diagnosis.run.framework, everything=options.all)
    for index, remedy in enumerate(chosen):
        style = "" if cause.benign else "bold"
        label = Span("Then:") if index else Span("Try first:", style)
        page.labelled(label, sentence(remedy_says(remedy, diagnosis.run)), INDENT)


def _to_settle(page: Page, cause: RankedCause, asked: set[Measurement]) -> None:
    """Add what to log, once per report: level causes share their open questions."""
    for measure in cause.would_change_my_mind:
        if measure not in asked and cause.leader:
            text = f"log {flowing(measure.log)} — {sentence_case_kept(measure.because)}"
            page.labelled(Span("Would settle it:", "dim"), text, INDENT)
            asked.add(measure)


def sentence_case_kept(text: str) -> str:
    """Return a sentence's second half as it is, with a full stop."""
    half = flowing(text)
    return half if not half or half[-1] in ".?" else half + "."


def _account(page: Page, cause: RankedCause, names: dict[str, str]) -> None:
    """Add the full ledger: prior, every weight, what did not count, and the sum."""
    page.add(Span("Account, in dB against a healthy run", "dim"), INDENT)
    _amount(page, decibels(cause.prior_db), "prior: how common the cause is")
    for entry in sorted(cause.ledger, key=lambda e: (not e.counted, -e.db)):
        words = f"{plain(entry.finding)} is {entry.status}: {entry_says(entry, names)}"
        if entry.counted:
            _amount(page, decibels(entry.db), words)
        else:
            _amount(page, "0", f"{words} (same link, {entry.link}: {bound(decibels(entry.db))} does not count)")
    _amount(page, decibels(cause.score_db), "sum")


def _amount(page: Page, amount: str, words: str) -> None:
    page.labelled(bound(amount.rjust(5)), words, INDENT, column=7)
