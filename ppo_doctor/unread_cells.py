"""Cells that hold text where a number belongs: they are counted and told, for they are not cells that are absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor import configuration, frameworks
from ppo_doctor.model import Note, SourceRef
from ppo_doctor.model.frozen import frozen
from ppo_doctor.table import RUN_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ppo_doctor.frameworks import Profile
    from ppo_doctor.model import KeyUse
    from ppo_doctor.table import Table

#: Characters of a cell that a note quotes.
QUOTED = 20


@frozen
class TextCells:
    """The text cells of one key: how many, and the first of them with its place."""

    count: int
    first: str
    source: SourceRef


def text_cells(tables: Iterable[Table]) -> dict[str, TextCells]:
    """Return the text cells of each key; a key that names runs holds text by right."""
    found: dict[str, TextCells] = {}
    for table in tables:
        for key, cells in table.texts.items():
            if not cells or key in RUN_KEYS:
                continue
            count = len(cells) + table.texts_left.get(key, 0)
            source = SourceRef(path=table.path, line=_line(table, cells[0][0]), key=key)
            held = found.get(key)
            earlier = held is not None and (held.source.line or 0) <= (source.line or 0)
            told = held if held is not None and earlier else TextCells(count=0, first=cells[0][1], source=source)
            total = count + (held.count if held is not None else 0)
            found[key] = TextCells(count=total, first=told.first, source=told.source)
    return found


def _line(table: Table, record: int) -> int | None:
    row = int(table.records.searchsorted(record))
    return int(table.lines[row]) or None if row < len(table.lines) else None


def notes_on(cells: dict[str, TextCells], keys: frozenset[str], profile: Profile) -> list[Note]:
    """Return a note on each column of numbers that holds text, and on each metric that holds nothing else.

    `keys` are those that hold numbers. What a metric lost is of kind "lost": it may be what tells that a run is sick.
    """
    if not cells:
        return []
    metrics = _metrics(frameworks.as_written(profile.name, keys.union(cells)))
    return [
        Note(
            text=f"{held.count} cells of {key} hold text, from “{_quoted(held.first)}” on, and no number; not read",
            source=held.source,
            count=held.count,
            kind="lost" if key in metrics else "dropped",
        )
        for key, held in sorted(cells.items())
        if key in keys or key in metrics
    ]


def _quoted(cell: str) -> str:
    return configuration.redact_text(cell)[:QUOTED]


def _metrics(profile: Profile) -> frozenset[str]:
    named = (key for metric in profile.metrics.values() for key in (*metric.keys, *metric.columns))
    return frozenset([*named, *profile.fuzzy])


def uses(profile: Profile, keys: frozenset[str], cells: Sequence[str]) -> dict[str, KeyUse]:
    """Return what is made of each key of a log, in alphabetical order; `cells` are those that hold text."""
    found: dict[str, KeyUse] = dict.fromkeys(cells, "text")
    return dict(sorted((found | profile.uses(keys)).items()))
