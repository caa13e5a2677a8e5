"""A fleet as text on one screen: counts, causes and findings, the settings that separate, and the worst runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from ppo_doctor import __version__
from ppo_doctor.report.escape import plain, prose
from ppo_doctor.report.json_report import dump
from ppo_doctor.report.layout import BOUND, Page, Span, columns
from ppo_doctor.report.phrases import SEVERITY_STYLE, VERDICT_STYLE, count
from ppo_doctor.report.terminal import cut, fitted, names, page_for, paint

if TYPE_CHECKING:
    from ppo_doctor.fleets.separating import Separation, Separator
    from ppo_doctor.fleets.summary import FleetSummary, Worst
    from ppo_doctor.report import RenderOptions

INDENT = 3
#: Columns of labels, and settings that separate.
LABELS, SEPARATORS = 10, 3
#: The greatest share of a line for the name of a run.
NAME = 0.5
#: The longest name of a setting and the longest value that are printed in full.
LONGEST, LONGEST_REASON = 40, 400
FORMAT = "ppo-doctor fleet"


def as_json(summary: FleetSummary) -> str:
    """Return a fleet as a JSON object."""
    return dump({"format": FORMAT, "tool_version": __version__, **asdict(summary)})


def as_text(summary: FleetSummary, options: RenderOptions) -> str:
    """Return a fleet as text."""
    page = page_for(options)
    _counts(page, summary)
    if summary.judged:
        _separating(page, summary.separating)
    _worst(page, summary.worst)
    return paint(page, options)


def _counts(page: Page, summary: FleetSummary) -> None:
    counted = [Span(f"{number:,} {word}", VERDICT_STYLE[word]) for word, number in summary.verdicts.items()]  # type: ignore[index]
    counted += [Span(f"{summary.failed:,} not judged", "bold")] * bool(summary.failed)
    parts: list[str | Span] = [Span(f"{summary.runs:,}{BOUND}{'run' if summary.runs == 1 else 'runs'}", "bold"), ":"]
    for at, each in enumerate(counted):
        parts += ["," if at else "", " ", each]
    page.add(tuple(part for part in parts if part), 0, INDENT)
    _list(page, "trainers", summary.trainers.items())
    _list(page, "rewards", ((what.replace("_", " "), number) for what, number in summary.outcomes.items()))
    _list(page, "causes", ((each.id, each.runs) for each in summary.causes if not each.benign))
    _list(page, "findings", ((each.id, each.runs) for each in summary.findings))
    _list(page, "failed", summary.reasons.items())


def _room(page: Page) -> int:
    """Return the columns of an indented line; in ASCII an ellipsis takes two more."""
    return page.width - INDENT - (2 if page.ascii else 0)


def _list(page: Page, label: str, counts: Iterable[tuple[str, int]]) -> None:
    """Add a line with as many names and their counts as it has room for."""
    words = [f"{number:,} {prose(name, LONGEST_REASON)}" for name, number in counts]
    room = _room(page) - LABELS
    kept = len(words)
    while kept > 1 and columns(_with_rest(words, kept)) > room:
        kept -= 1
    if words:
        page.row((Span(label.ljust(LABELS), "dim"), cut(_with_rest(words, kept), room)), INDENT)


def _with_rest(words: Sequence[str], kept: int) -> str:
    return " · ".join(words[:kept]) + (f" · and {len(words) - kept} more" if kept < len(words) else "")


def _separating(page: Page, separation: Separation) -> None:
    looked = f"{count(separation.values, 'value')} of {count(separation.settings, 'setting')} looked at"
    if not separation.found:
        none = f"none separates the {separation.broken:,} unhealthy runs from the others: {looked}"
        page.add((Span("settings".ljust(LABELS).replace(" ", BOUND), "dim"), none), INDENT, LABELS)
        return
    more = len(separation.found[SEPARATORS:]) + separation.more
    looked += f"; and {more} more" if more else ""
    page.add((Span("What separates unhealthy runs", "bold"), f" (association, not cause; {looked})"), 0, INDENT)
    shown = [(name_of(each), says(each)) for each in separation.found[:SEPARATORS]]
    width = max(columns(name) for name, _ in shown)
    for name, words in shown:
        line = f"{fitted(name, width)}  {words}"
        if columns(line) <= _room(page):
            page.row(line, INDENT)
        else:
            page.row(cut(name, _room(page)), INDENT)
            page.add(words, 2 * INDENT)


def name_of(separator: Separator) -> str:
    """Return a setting with its value."""
    return f"{plain(separator.setting, LONGEST)} = {plain(separator.value, LONGEST)}"


def says(separator: Separator) -> str:
    """Return the difference of a setting that separates in points of per cent, its interval, and the counts."""
    each = separator
    counts = f"{each.broken:,} of {each.runs:,} unhealthy, others {each.broken_others:,} of {each.runs_others:,}"
    return f"{difference(each)}: {counts}"


def difference(separator: Separator) -> str:
    """Return a difference of shares and its interval: "+82 points (+80 to +83)"."""
    points, low, high = map(_points, (separator.difference, separator.low, separator.high))
    return f"{points} points ({low} to {high})"


def _points(share: float) -> str:
    return f"{100 * share:+.0f}".replace("-", "−")


def _worst(page: Page, shown: Sequence[Worst]) -> None:
    """Add a line for each of the worst runs: severity, name, and what it has."""
    if not shown:
        return
    page.add(Span("The worst run" if len(shown) == 1 else f"The worst {len(shown)}", "bold"), 0, INDENT)
    named = [_end(plain(name), int(page.width * NAME)) for name in names([each.run for each in shown])]
    width = max(map(columns, named))
    grave = max(len(each.severity) for each in shown)
    for each, name in zip(shown, named, strict=True):
        since = f" from step {each.since_step}" if each.since_step is not None else ""
        what = prose(f"{each.cause or each.title}{since}")
        room = _room(page) - grave - width - 4
        severity = Span(each.severity.ljust(grave), SEVERITY_STYLE.get(each.severity, ""))
        page.row((severity, "  ", fitted(name, width), "  ", cut(what, max(room, 12))), INDENT)


def _end(name: str, room: int) -> str:
    return name if columns(name) <= room else "…" + name[-(room - 1) :]
