"""One way to read bytes back for all tests of readers: as a list of records."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from ppo_doctor.model.run import Note
from ppo_doctor.readers import items_in, read_source
from ppo_doctor.readers.source import Source
from ppo_doctor.readers.table import EmbeddedConfig, ScriptPlaces, Table


@dataclass
class Reading:
    container: str
    records: list = field(default_factory=list)
    lines: list = field(default_factory=list)
    tables: list = field(default_factory=list)
    texts: dict = field(default_factory=dict)
    decimals: dict = field(default_factory=dict)
    configs: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    places: dict = field(default_factory=dict)

    @property
    def skipped(self):
        return sum(note.count for note in self.notes if note.kind == "skipped")

    def says(self, words):
        return any(words in str(note) for note in self.notes)


def gather(container, items):
    result, rows = Reading(container), {}
    for item in items:
        if isinstance(item, Note):
            result.notes.append(item)
        elif isinstance(item, EmbeddedConfig):
            result.configs.append(item)
        elif isinstance(item, ScriptPlaces):
            result.places |= item.places
        else:
            add_table(result, rows, item)
    for ordinal in sorted(rows):
        line, record = rows[ordinal]
        result.lines.append(line)
        result.records.append(record)
    return result


def add_table(result, rows, table):
    assert isinstance(table, Table)
    result.tables.append(table)
    ordinals = table.records.tolist()
    assert all(a < b for a, b in pairwise(ordinals))
    assert all(len(column) == len(ordinals) for column in table.columns.values())
    for i, ordinal in enumerate(ordinals):
        assert ordinal not in rows
        rows[ordinal] = int(table.lines[i]), {key: float(column[i]) for key, column in table.columns.items()}
    result.decimals |= table.decimals
    for key, texts in table.texts.items():
        assert {record for record, _ in texts} <= set(ordinals)
        result.texts.setdefault(key, []).extend(texts)


def read_back(data, container=None, name="log"):
    """Read bytes or text; with a container, by its reader whatever the content looks like."""
    data = data.encode() if isinstance(data, str) else data
    source = Source(name, io.BytesIO(data))
    if container is None:
        return gather(*read_source(source))
    return gather(container, items_in(source, container))


@pytest.fixture(scope="session")
def reading():
    return read_back
