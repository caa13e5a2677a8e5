"""Event files of TensorBoard: scalars of every kind, and settings of the text and hparams plugins.

Most events of a file differ only in tag, time, step and value. The first event of a kind is decoded to learn its
layout, and all others of that kind are decoded together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import by_value
from ppo_doctor.model.run import SourceRef
from ppo_doctor.readers.event import BFLOAT16, WireError, event, hparams
from ppo_doctor.readers.points import Points, written
from ppo_doctor.readers.table import EmbeddedConfig
from ppo_doctor.readers.tfrecord import batches, rows
from ppo_doctor.readers.values import settings_in

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppo_doctor.model.run import FloatArray, IntArray
    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.readers import Item
    from ppo_doctor.readers.event import Event, Value
    from ppo_doctor.readers.source import Source
    from ppo_doctor.readers.tfrecord import Batch

    Octets = NDArray[np.uint8]
    _Found = list[tuple[IntArray, IntArray, FloatArray, FloatArray, IntArray]]

#: Kinds tried on the records of one length at a time, and kept per length; the rest is read one by one.
MOST_KINDS = 64
#: Longer records are not compared: they hold histograms, images, text.
_LONGEST_KIND = 4096
#: Tags whose text describes the model and not the training.
_MODEL = "model_config"
_STAMP = re.compile(r"tfevents\.(\d+)(.*)")


def read(source: Source) -> Iterator[Item]:
    """Yield the scalars of an event file by step, then its settings."""
    decoder = _Decoder(source)
    for batch in batches(source.blocks(), source.notes):
        decoder.take(batch)
        if decoder.points.full:
            yield from decoder.points.tables(final=False)
    yield from decoder.points.tables()
    yield from decoder.configs
    if decoder.others:
        text = f"values that are no scalars (histograms, images, text) and were not read: {decoder.others:,}"
        source.notes.tell("no scalars", text)


def order(paths: Iterable[Path]) -> list[list[Path]]:
    """Return event files by folder, those of each folder in the order of their start.

    A folder is one run, resumed once per further file: writers put the Unix time of their start into the name.
    """
    folders: dict[Path, list[Path]] = {}
    for path in paths:
        folders.setdefault(path.parent, []).append(path)
    return [sorted(folders[folder], key=_begun) for folder in sorted(folders)]


def _begun(path: Path) -> tuple[int, tuple[tuple[bool, int, str], ...]]:
    match = _STAMP.search(path.name)
    rest = re.split(r"(\d+)", match[2] if match else path.name)
    return int(match[1]) if match else 0, tuple(
        (part.isdigit(), int(part) if part.isdigit() else 0, part) for part in rest
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Kind:
    """Events with the same layout, for which `octets & mask == pattern`, and the offsets of what differs."""

    mask: Octets
    pattern: Octets
    step_at: tuple[int, int]
    wall_at: int
    #: of each value its tag, where it stands, and what it is
    values: tuple[tuple[int, int, str], ...]
    #: where the tag of a single value stands, which may then be any other of that length
    tag_at: tuple[int, int] | None


class _Decoder:
    """Collects the scalars and the settings of the events of a file."""

    def __init__(self, source: Source) -> None:
        self._path = source.path
        self._notes = source.notes
        self.points = Points(source.path, source.notes)
        self.configs: list[EmbeddedConfig] = []
        #: number of values that are neither scalars nor text
        self.others = 0
        self._kinds: dict[int, list[_Kind]] = {}
        self._by_bytes: dict[bytes, int] = {}
        self._seen: list[dict[str, ConfigValue]] = []

    def take(self, batch: Batch) -> None:
        """Read the events of a batch."""
        found: _Found = []
        for size, group in by_value(batch.sizes):
            self._alike(batch, int(size), group, found)
        if found:
            tags, steps, values, walls, numbers = (np.concatenate(part) for part in zip(*found, strict=True))
            order = np.argsort(numbers, kind="stable")
            self.points.add(tags[order], steps[order], values[order], walls[order], numbers[order])

    def _alike(self, batch: Batch, size: int, group: IntArray, found: _Found) -> None:
        """Read the records of one length, kind by kind."""
        numbers, starts = batch.numbers[group], batch.starts[group]
        left = np.arange(len(group))
        if size <= _LONGEST_KIND:
            octets = rows(batch.data, starts, size)
            left = self._by_kind(octets, numbers, self._kinds.setdefault(size, []), found)
        for place in left.tolist():
            start = int(starts[place])
            self._by_hand(batch.data[start : start + size], int(numbers[place]), found)

    def _by_kind(self, octets: Octets, numbers: IntArray, kinds: list[_Kind], found: _Found) -> IntArray:
        """Read the records of known kinds, learning new kinds; return the indices of the other records."""
        left = np.arange(len(octets))
        odd: list[int] = []
        tried = 0
        while len(left) and tried < MOST_KINDS and len(odd) < MOST_KINDS:
            if tried == len(kinds):
                kind = self._learn(octets[left[0]])
                if kind is None:
                    odd.append(int(left[0]))
                    left = left[1:]
                    continue
                kinds.append(kind)
            kind = kinds[tried]
            tried += 1
            hit = ((octets[left] & kind.mask) == kind.pattern).all(axis=1)
            if hit.any():
                self._read(kind, octets[left[hit]], numbers[left[hit]], found)
                left = left[~hit]
        return np.append(left, np.array(odd, dtype=np.int64))

    def _learn(self, octets: Octets) -> _Kind | None:
        """Return the kind of an event that holds numbers of fixed width and nothing else."""
        try:
            one = event(octets.tobytes())
        except WireError:
            return None
        if not one.values or any(value.at < 0 or value.plugin == "hparams" for value in one.values):
            return None
        mask = np.full(len(octets), 255, dtype=np.uint8)
        mask[slice(*one.step_at)] = 128
        for value in one.values:
            mask[value.at : value.at + _width(value.kind)] = 0
        if one.wall_at >= 0:
            mask[one.wall_at : one.wall_at + 8] = 0
        tag_at = one.values[0].tag_at if len(one.values) == 1 else None
        if tag_at is not None:
            mask[slice(*tag_at)] = 0
        return _Kind(
            mask=mask,
            pattern=octets & mask,
            step_at=one.step_at,
            wall_at=one.wall_at,
            values=tuple((self.points.tag(value.tag), value.at, value.kind) for value in one.values),
            tag_at=tag_at,
        )

    def _read(self, kind: _Kind, octets: Octets, numbers: IntArray, found: _Found) -> None:
        """Read the numbers of events of one kind; `octets` has shape [events, length]."""
        count = len(octets)
        steps = np.zeros(count, dtype=np.uint64)
        for shift, place in enumerate(range(*kind.step_at)):
            steps |= (octets[:, place] & np.uint8(127)).astype(np.uint64) << np.uint64(7 * shift)
        walls = _numbers(octets, "<f8", kind.wall_at) if kind.wall_at >= 0 else np.zeros(count)
        for tag, at, what in kind.values:
            tags = np.full(count, tag, dtype=np.int64) if kind.tag_at is None else self._tags(octets, *kind.tag_at)
            found.append((tags, steps.view(np.int64), _numbers(octets, what, at), walls, numbers))

    def _tags(self, octets: Octets, start: int, stop: int) -> IntArray:
        """Return the number of the tag at that range of each row."""
        cells = octets[:, start:stop]
        if (cells == cells[0]).all():
            return np.full(len(cells), self._tag(cells[0].tobytes()), dtype=np.int64)
        raw, width = cells.tobytes(), stop - start
        tags = (self._tag(raw[at : at + width]) for at in range(0, len(raw), width))
        return np.fromiter(tags, dtype=np.int64, count=len(cells))

    def _tag(self, raw: bytes) -> int:
        number = self._by_bytes.get(raw)
        if number is None:
            number = self._by_bytes[raw] = self.points.tag(raw.decode("utf-8", "replace"))
        return number

    def _by_hand(self, data: bytes, number: int, found: _Found) -> None:
        try:
            one = event(data)
            scalars = [value for value in one.values if value.number is not None]
            for value in one.values:
                if value.number is None:
                    self._other(value)
        except WireError as error:
            self._notes.skip("its content is no event", number, detail=str(error))
            return
        if scalars:
            self._scalars(one, scalars, number, found)

    def _scalars(self, one: Event, scalars: list[Value], number: int, found: _Found) -> None:
        count = len(scalars)
        values = np.array([value.number for value in scalars], dtype=np.float64)
        single = np.array([value.kind == "<f4" for value in scalars])
        values[single] = written(values[single].astype(np.float32))
        tags = np.array([self.points.tag(value.tag) for value in scalars], dtype=np.int64)
        places = np.full(count, number, dtype=np.int64)
        found.append((tags, np.full(count, one.step, dtype=np.int64), values, np.full(count, one.wall_time), places))

    def _other(self, value: Value) -> None:
        """Read the settings in a value that is no scalar; count it if it holds none and is no text."""
        settings: dict[str, ConfigValue] = {}
        if value.plugin == "hparams":
            settings = {**hparams(value.content)}
        elif value.texts and not value.tag.startswith(_MODEL):
            settings = settings_in(value.texts[0])
        elif not value.texts:
            self.others += 1
        if settings and settings not in self._seen:
            self._seen.append(settings)
            # Without a place: a line would mark the begin of another run.
            self.configs.append(EmbeddedConfig(values=settings, source=SourceRef(path=self._path, key=value.tag)))


def _width(kind: str) -> int:
    return 2 if kind == BFLOAT16 else np.dtype(kind).itemsize


def _numbers(octets: Octets, kind: str, at: int) -> FloatArray:
    cells = np.ascontiguousarray(octets[:, at : at + _width(kind)])
    if kind == "<f4":
        return written(cells.view("<f4")[:, 0])
    if kind == BFLOAT16:
        wide = cells.view("<u2")[:, 0].astype("<u4") << np.uint32(16)
        return wide.view("<f4").astype(np.float64)
    return cells.view(kind)[:, 0].astype(np.float64)
