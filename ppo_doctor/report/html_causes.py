"""Ranked causes on a page: what each means, the numbers, what to do, what would settle it, and its full account."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ppo_doctor.report.html_markup import NOTHING, Markup, code, el, join, text
from ppo_doctor.report.standings import UNIT, against, behind, in_favour, level_with, weighed
from ppo_doctor.report.words import (
    bound,
    capital,
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
    from collections.abc import Mapping, Sequence

    from ppo_doctor.model import Diagnosis, LedgerEntry, Measurement, RankedCause
    from ppo_doctor.report import RenderOptions

#: Evidence shown before the account is unfolded.
MOST_EVIDENCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Ward:
    """What every cause's card needs to know of the page around it."""

    diagnosis: Diagnosis
    options: RenderOptions
    titles: Mapping[str, str]
    #: finding → number of the plot that shows it
    plots: Mapping[str, int]
    prefix: str
    level: int
    #: what a card before this one asks to log
    asked: set[Measurement] = field(default_factory=set)


def causes(diagnosis: Diagnosis, options: RenderOptions, plots: Mapping[str, int], prefix: str, level: int) -> Markup:
    """Return a card for every cause, faults before harmless explanations; `level` is that of their headings."""
    ward = Ward(diagnosis=diagnosis, options=options, titles=titles(diagnosis), plots=plots, prefix=prefix, level=level)
    ordered = sorted(diagnosis.causes, key=lambda cause: cause.benign)
    return join(_card(ward, cause) for cause in ordered)


def _card(ward: Ward, cause: RankedCause) -> Markup:
    name = f"{ward.prefix}cause-{cause.rank}"
    rank = el("span", text(str(cause.rank)), cls="rank")
    heading = el(f"h{ward.level}", rank, text(flowing(cause.title)), id=name)
    kind = "benign" if cause.benign else "leader" if cause.leader else "rival"
    details = el("div", _evidence(ward, cause), _to_do(ward, cause), cls="columns")
    if not cause.leader:  # what leads comes first; a rival's case is one click away
        details = el("details", el("summary", text("Evidence and what to do")), details)
    parts = (
        heading,
        _standing(ward, cause),
        el("p", text(sentence(cause.says))) if cause.says else NOTHING,
        _level_with(ward, cause),
        details,
        _account(ward, cause),
    )
    return el("article", *parts, cls=f"cause filtered {kind}", aria_labelledby=name)


def _standing(ward: Ward, cause: RankedCause) -> Markup:
    words = [] if cause.benign else [el("li", text(cause.severity.value), cls=f"sev {cause.severity.value}")]
    words += [el("li", text(cause.confidence)), el("li", code(cause.id))]
    if cause.benign:
        words.insert(0, el("li", text("harmless")))
    if cause.onset_step is not None:
        words.append(el("li", text(bound(f"since step {cause.onset_step}"))))
    far = behind(ward.diagnosis, cause)
    return el("ul", *words, *([el("li", text(far))] if far else []), cls="tags", aria_label="Standing")


def _level_with(ward: Ward, cause: RankedCause) -> Markup:
    words = level_with(ward.diagnosis, cause)
    return el("p", text(words), cls="level") if words else NOTHING


def _evidence(ward: Ward, cause: RankedCause) -> Markup:
    favour, contrary = in_favour(cause), against(cause)
    pieces = (_entries(ward, "Evidence", favour), _entries(ward, "Against it", contrary))
    return el("div", *pieces, cls="evidence") if favour or contrary else NOTHING


def _entries(ward: Ward, title: str, entries: Sequence[LedgerEntry]) -> Markup:
    if not entries:
        return NOTHING
    rows = [_entry(ward, entry) for entry in entries[:MOST_EVIDENCE]]
    if len(entries) > MOST_EVIDENCE:
        rows.append(el("li", text(f"{len(entries) - MOST_EVIDENCE} more in the account"), cls="quiet"))
    return join((el(f"h{ward.level + 1}", text(title)), el("ul", *rows)))


def _entry(ward: Ward, entry: LedgerEntry) -> Markup:
    return el("li", text(entry_says(entry, ward.titles)), _to_plot(ward, entry))


def _to_plot(ward: Ward, entry: LedgerEntry) -> Markup:
    place = ward.plots.get(entry.finding) if entry.status == "fired" else None
    if place is None:
        return NOTHING
    return join((text(" "), el("a", text(bound(f"Plot {place}")), href=f"#{ward.prefix}plot-{place}", cls="to-plot")))


def _to_do(ward: Ward, cause: RankedCause) -> Markup:
    chosen = cause.remedies
    steps = el("ol", *(el("li", text(remedy_says(remedy))) for remedy in chosen))
    heading = el(f"h{ward.level + 1}", text("What to do" if cause.benign else "Try, in this order"))
    pieces = (heading, steps) if chosen else ()
    return el("div", *pieces, _to_settle(ward, to_settle(cause, ward.asked, everything=ward.options.all)), cls="to-do")


def _to_settle(ward: Ward, measures: Sequence[Measurement]) -> Markup:
    if not measures:
        return NOTHING
    rows = (el("li", text(f"{capital(to_do(m))} {flowing(m.log)} — {stopped(flowing(m.because))}")) for m in measures)
    return join((el(f"h{ward.level + 1}", text("What would settle it")), el("ul", *rows)))


def _account(ward: Ward, cause: RankedCause) -> Markup:
    """Return the ledger, folded: prior, every weight, and the sum."""
    title = f"Account of {flowing(cause.id)}, in {UNIT}"
    head = el("thead", el("tr", *(el("th", text(word), scope="col") for word in ("dB", "Finding", "What it says"))))
    prior = _amount(decibels(cause.prior_db), text("prior"), text("how common this cause is"))
    total = _amount(decibels(cause.score_db), text("sum"), text(chance(cause.probability)), cls="sum")
    body = el("tbody", prior, *(_weighed(ward, entry) for entry in weighed(cause)), total)
    table = el("table", el("caption", text(title), cls="unseen"), head, body, cls="ledger")
    summary = el("summary", text(f"How it was weighed: {decibels(cause.score_db)} {UNIT}"))
    return el("details", summary, table, open=ward.options.why)


def _weighed(ward: Ward, entry: LedgerEntry) -> Markup:
    name = join((code(entry.finding), text(f" {entry.status}")))
    words = text(entry_says(entry, ward.titles))
    return _amount(decibels(entry.db), name, words)


def _amount(amount: str, name: Markup, words: Markup, cls: str = "") -> Markup:
    return el("tr", el("td", text(amount), cls="db"), el("th", name, scope="row"), el("td", words), cls=cls)
