"""Ranked causes on a page: what each means for the run, why we think so, what to do, and what would settle it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import BOUND, Page, Span
from ppo_doctor.report.standings import UNIT, against, behind, in_favour, level_with, weighed
from ppo_doctor.report.words import (
    SEVERITY_STYLE,
    bound,
    chance,
    decibels,
    entry_says,
    flowing,
    remedy_says,
    sentence,
    stopped,
    titles,
    to_do,
    to_settle,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import Diagnosis, LedgerEntry, Measurement, RankedCause
    from ppo_doctor.report import RenderOptions

INDENT = 3
#: Evidence printed for and against a leader before --all, and for a rival.
MOST_EVIDENCE, RIVAL_EVIDENCE = 4, 1


def causes(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    """Add faults in full, then harmless explanations in a quieter form."""
    blocks = Blocks(page=page, diagnosis=diagnosis, options=options, titles=titles(diagnosis))
    blocks.section("Cause", [cause for cause in diagnosis.causes if not cause.benign])
    blocks.section("Harmless explanation", [cause for cause in diagnosis.causes if cause.benign])


def heading(page: Page, cause: RankedCause) -> None:
    """Add a cause's number and title."""
    number = f"{cause.rank}".ljust(INDENT - 1).replace(" ", BOUND)
    page.add((f"{number} ", Span(flowing(cause.title), "" if cause.benign else "bold")), 0, INDENT)


def standing(cause: RankedCause, far: str = "") -> tuple[str | Span, ...]:
    """Return a cause's confidence, severity and id, the step since when, and how far it is behind."""
    since = f" · {bound(f'since step {cause.onset_step}')}" if cause.onset_step is not None else ""
    severity = () if cause.benign else (" · ", Span(cause.severity.value, SEVERITY_STYLE.get(cause.severity, "")))
    late = (" · ", far) if far else ()
    return (cause.confidence, *severity, " · ", Span(plain(cause.id), "cyan"), since, *late)


@dataclass(slots=True, kw_only=True)
class Blocks:
    """Writes causes one after the other, and remembers what the reader has seen already."""

    page: Page
    diagnosis: Diagnosis
    options: RenderOptions
    titles: dict[str, str]
    #: finding → rank of the cause under which its numbers stand
    told: dict[str, int] = field(default_factory=dict)
    asked: set[Measurement] = field(default_factory=set)

    def section(self, title: str, ranked: Sequence[RankedCause]) -> None:
        """Add causes under a heading; no causes, no heading."""
        if not ranked:
            return
        self.page.blank()
        self.page.add(Span(title + "s" * (len(ranked) > 1), "bold"))
        for index, cause in enumerate(ranked):
            if index:
                self.page.blank()
            self._cause(cause)

    def _cause(self, cause: RankedCause) -> None:
        heading(self.page, cause)
        self.page.add(standing(cause, behind(self.diagnosis, cause)), INDENT, 2)
        self._level(cause)
        self.page.add(sentence(cause.says), INDENT)
        if self.options.why:
            self._account(cause)
        else:
            self._evidence(cause)
        if cause.leader or self.options.all:
            self._remedies(cause)
            self._to_settle(cause)

    def _level(self, cause: RankedCause) -> None:
        words = level_with(self.diagnosis, cause)
        if words:
            self.page.add(words, INDENT)

    def _evidence(self, cause: RankedCause) -> None:
        most = MOST_EVIDENCE if cause.leader else RIVAL_EVIDENCE
        self._entries("Evidence:", cause, in_favour(cause), most)
        self._entries("Against:", cause, against(cause), most)

    def _entries(self, label: str, cause: RankedCause, entries: Sequence[LedgerEntry], most: int) -> None:
        shown = entries if self.options.all else entries[:most]
        for index, entry in enumerate(shown):
            self.page.labelled(Span("" if index else label, "dim"), self._words(entry, cause), INDENT)
        if len(shown) < len(entries):
            self.page.labelled("", Span(f"… and {len(entries) - len(shown)} more, --why", "dim"), INDENT)

    def _words(self, entry: LedgerEntry, cause: RankedCause) -> str:
        """Return a finding with its numbers, or with the cause under which they stand already."""
        rank = self.told.setdefault(entry.finding, cause.rank)
        if rank == cause.rank:
            return entry_says(entry, self.titles)
        return f"{flowing(entry.title or self.titles.get(entry.finding, entry.finding))} ({bound(f'see {rank}')})"

    def _remedies(self, cause: RankedCause) -> None:
        first = "What to do:" if cause.benign else "Try first:"
        for index, remedy in enumerate(cause.remedies):
            label = Span("Then:", "dim") if index else Span(first, "dim" if cause.benign else "bold")
            self.page.labelled(label, remedy_says(remedy), INDENT)

    def _to_settle(self, cause: RankedCause) -> None:
        label = "Would settle it:"
        for measure in to_settle(cause, self.asked, everything=self.options.all):
            text = f"{to_do(measure)} {flowing(measure.log)} — {stopped(flowing(measure.because))}"
            self.page.labelled(Span(label, "dim"), text, INDENT)
            label = "So would:"

    def _account(self, cause: RankedCause) -> None:
        """Add the full ledger: prior, every weight, and the sum."""
        self.page.add(Span(f"Account, in {UNIT}:", "dim"), INDENT)
        self._amount(decibels(cause.prior_db), "prior: how common this cause is")
        for entry in weighed(cause):
            words = f"{plain(entry.finding)} {entry.status}: {self._words(entry, cause)}"
            self._amount(decibels(entry.db), words)
        self._amount(decibels(cause.score_db), Span("sum", "bold"))
        if cause.probability is not None:
            self.page.add(Span(chance(cause.probability), "dim"), INDENT)

    def _amount(self, amount: str, words: str | Span) -> None:
        self.page.labelled(bound(amount.rjust(4)), words, INDENT, column=6)
