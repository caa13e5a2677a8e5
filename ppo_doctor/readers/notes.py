"""Notes of a reader: on the records that it skipped and the lines that it did not read, bounded, with exact counts."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.model.run import Note, SourceRef
from ppo_doctor.model.words import NoteEvent, NoteKind

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Notes written out per reason; the rest is one note that counts.
WRITTEN_OUT = 20
#: Limits of `Unread`: lines that are sorted into kinds, characters that define a kind, kinds that are remembered,
#: fewest lines of a kind that is named, kinds that are named, and characters of a line that are shown.
LOOKED_AT, LONGEST_KIND, MOST_KINDS, RECURS, MOST_NAMED, SHOWN = 20_000, 400, 256, 4, 5, 80
_NUMBER = lazy_pattern(r"[-+]?\d[\d.,:eE+-]*")
#: A progress bar, which holds no measurements: "40%|████      | 4/10 [00:12<00:18".
_BAR = lazy_pattern(r"\d%\|[^|]*\| *\d+/\d+ \[")
#: Parts of a line that may hold measurements: a name with a sign and a number, or a word and a decimal.
_PAIR, _WORD, _DECIMAL = (
    lazy_pattern(r"[^\W\d]\w* ?[:=] ?[-+]?\d"),
    lazy_pattern(r"[^\W\d]{2}"),
    lazy_pattern(r"\d\.\d"),
)


@dataclass(slots=True, repr=False, eq=False)
class _Reason:
    """The notes of one reason, up to `WRITTEN_OUT`, and how many there are in all."""

    more: str
    kind: NoteKind = "info"
    notes: list[Note] = field(default_factory=list)
    count: int = 0
    further: SourceRef | None = None


class Unread:
    """Counts lines that were not read. Lines that differ only in their numbers are of one kind."""

    def __init__(self) -> None:
        self.lines = 0
        self._kinds: dict[str, tuple[int, int, str]] = {}

    def add(self, text: str, line: int, count: int = 1) -> None:
        """Count a line, or `count` lines of one kind of which this is the first."""
        self.lines += count
        if self.lines > LOOKED_AT or not any(map(str.isdigit, text)) or not _measures(text[:LONGEST_KIND]):
            return
        kind = _NUMBER.sub("#", text[:LONGEST_KIND])
        if kind in self._kinds or len(self._kinds) < MOST_KINDS:
            earlier, first, example = self._kinds.get(kind, (0, line, text))
            self._kinds[kind] = earlier + count, first, example

    def __str__(self) -> str:
        recurring = sorted((kind for kind in self._kinds.values() if kind[0] >= RECURS), reverse=True)
        named = [
            f"{count:,} such as line {line} (“{text.strip()[:SHOWN]}”)" for count, line, text in recurring[:MOST_NAMED]
        ]
        more = [f"{len(recurring) - MOST_NAMED} further kinds"] * (len(recurring) > MOST_NAMED)
        return f"{self.lines:,}" + (f"; with numbers: {', '.join(named + more)}" if named else "")


def _measures(text: str) -> bool:
    """Tell whether a line may hold measurements, unlike a progress bar, or prose or a formula with one number."""
    if _BAR.search(text):
        return False
    if _PAIR.search(text):
        return True
    return bool(_WORD.search(text)) and (_DECIMAL.search(text) is not None or len(_NUMBER.findall(text)) > 1)


class Ledger:
    """Notes on one source: at most 20 per reason, then one that counts the rest.

    The counts of all notes of kind "skipped" add up to the records skipped.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._reasons: dict[str, _Reason] = {}
        self._seen: set[tuple[str, str]] = set()

    @contextmanager
    def about(self, path: str) -> Iterator[None]:
        """Let notes name another file meanwhile, as for a folder with one file per metric."""
        before, self.path = self.path, path
        try:
            yield
        finally:
            self.path = before

    def skip(self, why: str, line: int | None = None, *, detail: str = "") -> None:
        """Note a record that could not be used."""
        text = f"record skipped: {why}{detail and f' ({detail})'}"
        note = Note(text=text, source=SourceRef(path=self.path, line=line), kind="skipped")
        self._add(why, note, f"more records skipped: {why}")

    def tell(
        self,
        what: str,
        text: str,
        line: int | None = None,
        *,
        kind: NoteKind = "info",
        event: NoteEvent | None = None,
        numbers: tuple[int, ...] = (),
        message: str = "",
    ) -> None:
        """Add a note that cost no record; at most 20 with the same `what` are written out."""
        source = SourceRef(path=self.path, line=line)
        note = Note(text=text, source=source, kind=kind, event=event, numbers=numbers, message=message)
        self._add(what, note, f"more of the same: {what}")

    def tell_once(self, what: str, key: str, text: str, line: int | None = None, *, kind: NoteKind = "info") -> None:
        """Note something about a key, once for each reason and key."""
        if (what, key) not in self._seen:
            self._seen.add((what, key))
            note = Note(text=text, source=SourceRef(path=self.path, line=line, key=key), kind=kind)
            self._add(what, note, f"more keys like that: {what}")

    def notes(self) -> Iterator[Note]:
        """Yield the notes in the order in which their reasons first occurred."""
        for reason in self._reasons.values():
            yield from reason.notes
            rest = reason.count - len(reason.notes)
            if rest:
                yield Note(text=f"{rest} {reason.more}", source=reason.further, count=rest, kind=reason.kind)

    def _add(self, name: str, note: Note, more: str) -> None:
        reason = self._reasons.setdefault(name, _Reason(more, note.kind))
        reason.count += 1
        if len(reason.notes) < WRITTEN_OUT:
            reason.notes.append(replace(note, kind=reason.kind))
        elif reason.further is None and note.source is not None:
            reason.further = replace(note.source, key=None)
