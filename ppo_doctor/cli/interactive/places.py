"""The view "Source": the lines of a log around each number, without secrets and control characters."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ppo_doctor.cli.interactive.subjects import Copy, Row, Subject, cut, folded, heading, nothing, page_of, ranked
from ppo_doctor.model.evidence import number, sentence
from ppo_doctor.readers.excerpts import excerpt
from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import Span
from ppo_doctor.report.phrases import flowing, weighed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from ppo_doctor.cli.interactive.subjects import Frame, Session
    from ppo_doctor.model.diagnosis import RankedCause
    from ppo_doctor.model.rules import Evidence, Finding
    from ppo_doctor.model.run import SourceRef
    from ppo_doctor.readers.excerpts import Excerpt
    from ppo_doctor.report.layout import Line, Page

    Placed: TypeAlias = tuple[Finding, Evidence, SourceRef]

_DELIMITERS = re.compile(r"[,\t;]")
#: The columns of a line number, and the most characters of a line that are shown.
NUMBER, PLACES_LONGEST = 7, 4000
#: The least lines read after a place in indented JSON or a console box, whose keys follow the first line of the record.
BELOW = 80


class Places(Subject):
    """All evidence with a place in a log, that of fired findings first."""

    title = "Source"
    slow = True

    def rows(self, query: str, width: int) -> list[Row]:
        """Return the places of all evidence that match, those of fired findings first."""
        return [
            Row(key=_key(*entry), lines=_places_lines(*entry, width)) for entry in ranked(query, self._placed(), _words)
        ]

    def page(self, key: str, frame: Frame) -> list[Line]:
        """Return the lines around a place; this is slow, because the log is read up to it."""
        entry = self._entry(key)
        if entry is None:
            return nothing(frame, "No number of this report stands at a place in a log.")
        _, evidence, place = entry
        page = page_of(frame)
        without_place = replace(evidence, source=None)
        page.add(flowing(sentence(without_place)), 0, 2)
        page.add((Span(plain(str(place)), "bold"), Span(f"  {plain(place.key or '')}", "cyan")), 0, 2)
        page.blank()
        room = max(frame.height - len(page.lines), 7)
        sources = self._session.run.sources
        spread = any(s.path == place.path and s.container in ("json", "console") for s in sources)
        after = max(room // 2, BELOW) if spread else room // 2
        _excerpt(page, excerpt(place, sources, before=room // 3, after=after), place, frame)
        _as_read(page, self._session, place)
        return page.lines

    def copies(self, key: str) -> Sequence[Copy]:
        """Return the place, and the key there."""
        entry = self._entry(key)
        if entry is None:
            return []
        place = entry[2]
        return [Copy(what="place", text=str(place)), *([Copy(what="key", text=place.key)] if place.key else [])]

    def of_cause(self, cause: RankedCause) -> str:
        """Return the row of a cause's evidence with the most weight, empty if none has a place."""
        rules = [entry.finding for entry in weighed(cause) if entry.db > 0]
        entries = sorted((e for e in self._placed() if e[0].rule in rules), key=lambda e: rules.index(e[0].rule))
        return _key(*entries[0]) if entries else ""

    def of_rule(self, rule: str) -> str:
        """Return the row of a finding's first evidence, empty if none has a place."""
        return next((_key(*entry) for entry in self._placed() if entry[0].rule == rule), "")

    def _placed(self) -> list[Placed]:
        findings = sorted(self._session.diagnosis.findings, key=lambda f: (f.status != "fired", f.severity.rank))
        entries = [(f, e, e.source) for f in findings for e in f.evidence if e.source is not None and e.source.line]
        return list({_key(*entry): entry for entry in reversed(entries)}.values())[::-1]

    def _entry(self, key: str) -> Placed | None:
        return next((entry for entry in self._placed() if _key(*entry) == key), None)


def _key(finding: Finding, evidence: Evidence, place: SourceRef) -> str:
    return f"{finding.rule}\n{evidence.metric}\n{place}\n{place.key}"


def _words(entry: Placed) -> str:
    finding, evidence, place = entry
    return f"{evidence.raw} {evidence.metric} {finding.rule} {place}"


def _places_lines(finding: Finding, evidence: Evidence, place: SourceRef, width: int) -> tuple[Line, ...]:
    sign, style = ("✗", "red") if finding.status == "fired" else ("✓", "green")
    words = cut(plain(evidence.raw), width - 2)
    head = (Span(sign, style), Span(f" {words}", "bold" if finding.status == "fired" else ""))
    name = plain(str(place))
    short = name if len(name) <= width - 4 else "…" + name[-(width - 5) :]
    return (head, (Span(f"    {short}", "dim"),))


def _excerpt(page: Page, shown: Excerpt, place: SourceRef, frame: Frame) -> None:
    if shown.because:
        page.add(flowing(shown.because))
        return
    if shown.lines and shown.lines[-1][0] < (place.line or 0):
        page.add(f"The file ends before line {place.line}: it has changed since it was read.")
    width = max(frame.width - NUMBER - 1, 8)
    wanted = keys_of(place)
    for number_, text in shown.lines:
        at_place = number_ == place.line
        head = Span(f"{'▶' if at_place else ' '}{number_:>{NUMBER - 1}} ", "bold yellow" if at_place else "dim")
        # If a record has several lines, its keys follow the first line.
        here = [key for key in wanted if _places_pair(key).search(text)] if number_ > (place.line or 0) else []
        wanted = [key for key in wanted if key not in here]
        if at_place or here:
            lines = folded([marked(text, keys_of(place), shown.names if at_place else ())], width)
            heads = [head, *[Span(" " * (NUMBER + 1))] * (len(lines) - 1)]
            page.lines += [(first, *line) for first, line in zip(heads, lines, strict=True)]
        else:
            page.lines.append((head, Span(cut(plain(text.replace("\t", " "), PLACES_LONGEST), width), "dim")))
        if at_place and (shown.names or any(_places_pair(key).search(text) for key in wanted)):
            wanted = []


def keys_of(place: SourceRef) -> list[str]:
    """Return the keys of a place as written; a place of several metrics has several."""
    return [key for key in (place.key or "").split(", ") if key]


def marked(text: str, keys: Sequence[str], names: Sequence[str]) -> Line:
    """Return a line of a log, escaped, with the values of some keys marked; `names` are the names of its columns."""
    spans: list[Span] = []
    at = 0
    for start, end in _values(text, keys, names):
        spans += [
            Span(plain(text[at:start], PLACES_LONGEST)),
            Span(plain(text[start:end], PLACES_LONGEST), "bold reverse"),
        ]
        at = end
    return (*spans, Span(plain(text[at:], PLACES_LONGEST)))


def _values(text: str, keys: Sequence[str], names: Sequence[str]) -> list[tuple[int, int]]:
    """Return the spans to mark: the cells of a table, else each key and the text up to the next delimiter."""
    if names:
        starts = [0, *(match.end() for match in _DELIMITERS.finditer(text)), len(text) + 1]
        cells = list(pairwise(starts))
        wanted = [cells[i] for i, name in enumerate(names) if name in keys and i < len(cells)]
        return [(start, end - 1) for start, end in wanted] if len(cells) == len(names) and '"' not in text else []
    pairs = sorted((match.start(), match.end()) for key in keys if (match := _places_pair(key).search(text)))
    return [pair for i, pair in enumerate(pairs) if i == 0 or pair[0] >= pairs[i - 1][1]]


def _places_pair(key: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w/]){re.escape(key)}(?![\w/])[^,;|}}]{{0,40}}")


def _as_read(page: Page, session: Session, place: SourceRef) -> None:
    """Add every value that was read from this line, with its canonical name."""
    values = []
    for series in session.run.series.values():
        if series.axis.path == place.path:
            values += [(series.name, float(v)) for v in series.values[series.axis.lines == place.line]]
    if not values:
        return
    heading(page, "As it was read")
    for name, value in values:
        page.add((f"{plain(name)} ", Span(number(value), "bold")), 2, 2)
