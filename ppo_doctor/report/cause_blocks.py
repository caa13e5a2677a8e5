"""Ranked causes behind a story: what each means, its account, and on request all that can be done and logged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import BOUND, Page, Span
from ppo_doctor.report.standings import UNIT, behind, level_with, weighed
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
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import Diagnosis, LedgerEntry, Measurement, RankedCause
    from ppo_doctor.report import RenderOptions

INDENT = 3


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
        if self.options.all:
            self._remedies(cause)
            self._to_settle(cause)

    def _level(self, cause: RankedCause) -> None:
        words = level_with(self.diagnosis, cause)
        if words:
            self.page.add(words, INDENT)

    def _words(self, entry: LedgerEntry, cause: RankedCause) -> str:
        """Return a finding with its numbers, or with the cause under which they stand already."""
        rank = self.told.setdefault(entry.finding, cause.rank)
        if rank == cause.rank:
            return entry_says(entry, self.titles)
        return f"{flowing(entry.title or self.titles.get(entry.finding, entry.finding))} ({bound(f'see {rank}')})"

    def _remedies(self, cause: RankedCause) -> None:
        label = "What to do:" if cause.benign else "Try first:"
        for remedy in cause.remedies:
            self.page.labelled(Span(label, "dim"), remedy_says(remedy), INDENT)
            label = "Then:"

    def _to_settle(self, cause: RankedCause) -> None:
        """Add what is left to log for a cause: level causes share their open questions."""
        label = "Would settle it:"
        for measure in cause.would_change_my_mind:
            if measure not in self.asked:
                text = f"{to_do(measure)} {flowing(measure.log)} — {stopped(flowing(measure.because))}"
                self.page.labelled(Span(label, "dim"), text, INDENT)
                label = "So would:"
        self.asked.update(cause.would_change_my_mind)

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
