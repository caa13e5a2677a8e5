"""Damaged event files: every sound record is kept, and what was lost is said."""

from __future__ import annotations

import io
import struct
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.run import Note
from ppo_doctor.readers import items_in, read_source, tfrecord
from ppo_doctor.readers.notes import Ledger
from ppo_doctor.readers.source import Source
from ppo_doctor.readers.table import Table
from ppo_doctor.readers.tfrecord import crc32c
from tests.readers.conftest import gather, read_back
from tests.readers.event_files import event, event_file, masked, record, scalar, version

COUNT = 12


FRAMES = [record(version()), *(record(event(step, scalar("a", step / 4))) for step in range(1, COUNT))]


DATA = b"".join(FRAMES)


#: where each record begins, and the end
EDGES = [sum(map(len, FRAMES[:i])) for i in range(COUNT + 1)]


NAME = "events.out.tfevents.1"


#: First bytes of gzip and zstd: what follows is unpacked, or refused in words, before this reader sees it.
COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


def read(data, name=NAME):
    return read_back(data, "tfevents", name)


def steps(reading):
    return [int(record["step"]) for record in reading.records]


def test_a_file_truncated_anywhere_gives_what_is_whole():
    for cut in range(1, len(DATA)):
        reading = read(DATA[:cut])
        whole = sum(edge <= cut for edge in EDGES[1:])
        assert steps(reading) == list(range(1, whole)), cut
        assert reading.skipped == (cut not in EDGES), cut
        assert cut in EDGES or reading.says("cut off"), cut


def test_any_flipped_bit_costs_its_record_alone():
    for bit in range(8 * EDGES[2], 8 * EDGES[4]):
        data = bytearray(DATA)
        data[bit // 8] ^= 1 << bit % 8
        reading = read(bytes(data))
        hit = 2 if bit < 8 * EDGES[3] else 3
        assert steps(reading) == [step for step in range(1, COUNT) if step != hit], bit
        assert reading.skipped == 1, bit
        assert reading.says(f"byte {EDGES[hit]}"), bit
        assert reading.lines == [line for line in range(2, COUNT + 1) if line != hit + 1], bit


@given(st.integers(0, len(DATA)), st.integers(0, 200), st.binary(max_size=200))
def test_what_lies_outside_of_a_damaged_stretch_is_read(start, length, junk):
    stop = min(len(DATA), start + length)
    data = DATA[:start] + junk + DATA[stop:]
    assume(not data.startswith(COMPRESSED))
    reading = read(data)
    intact = [i for i in range(1, COUNT) if EDGES[i + 1] <= start or EDGES[i] >= stop]
    assert set(intact) <= set(steps(reading))
    assert len(reading.records) <= len(intact) + 1  # one may have been stitched together from two


@given(st.lists(st.integers(0, 8 * len(DATA) - 1), max_size=40))
def test_many_flipped_bits(bits):
    data = bytearray(DATA)
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    hit = {i for i in range(COUNT) for bit in bits if EDGES[i] <= bit // 8 < EDGES[i + 1]}
    reading = read(bytes(data))
    assert {step for step in range(1, COUNT) if step not in hit} <= set(steps(reading))
    changed = [i for i in hit if bytes(data[EDGES[i] : EDGES[i + 1]]) != FRAMES[i]]
    assert bool(reading.skipped) == bool(changed)


@given(st.binary(max_size=2000))
def test_any_bytes_give_records_or_notes(data):
    assume(not data.startswith(COMPRESSED))
    assert all(isinstance(item, Table | Note) for item in items_in(Source(NAME, io.BytesIO(data)), "tfevents"))


@given(st.binary(min_size=1, max_size=200))
def test_any_payload_in_a_sound_frame(payload):
    reading = read(event_file(event(1, scalar("a", 1.0)), payload, event(2, scalar("a", 2.0))))
    assert {1, 2} <= set(steps(reading))


@given(st.lists(st.integers(1, len(DATA) - 1), max_size=8))
def test_blocks_of_any_size_give_the_same(cuts):
    edges = [0, *sorted(cuts), len(DATA)]
    found = tfrecord.batches([DATA[start:stop] for start, stop in pairwise(edges)], Ledger(NAME))
    assert [number for batch in found for number in batch.numbers.tolist()] == list(range(1, COUNT + 1))


@pytest.mark.parametrize("claim", [1 << 30, 10**18, (1 << 64) - 1, 60 << 20])
def test_a_length_that_cannot_be_right_costs_its_record_alone(claim):
    length = struct.pack("<Q", claim)
    lie = length + masked(length) + b"payload"
    tracemalloc.start()
    try:
        reading = read(DATA[: EDGES[5]] + lie + DATA[EDGES[5] :])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert steps(reading) == list(range(1, COUNT))
    assert reading.skipped == 1
    assert peak < 8 << 20


def test_a_large_record_in_the_middle_is_passed_over():
    large = record(event(3, b"\x0a\x01i" + b"\x22" + b"\x80\x80\x08" + b"\0" * (1 << 17)))
    reading = read(DATA[: EDGES[3]] + large + DATA[EDGES[3] :])
    assert steps(reading) == list(range(1, COUNT))


def test_a_lost_piece_in_the_middle_costs_two_records_at_most():
    """The head of one record and the tail of another look like one record, whose checksum fails."""
    reading = read(DATA[: EDGES[4] + 20] + DATA[EDGES[7] + 23 :])
    assert {1, 2, 3, 8, 9, 10, 11} <= set(steps(reading))
    assert reading.skipped


def test_many_damaged_records_are_worked_through():
    frames = [bytearray(record(event(step, scalar("a", 1.0)))) for step in range(1, 6000)]
    for step, frame in enumerate(frames, 1):
        if step % 3:
            frame[9] ^= 1
    reading = read(record(version()) + b"".join(frames))
    assert steps(reading) == list(range(3, 6000, 3))
    assert len(reading.notes) <= 21


def test_what_damage_costs_does_not_grow_with_it(monkeypatch):
    """However many lengths are damaged, the records between come in one batch, and no byte is summed up many times."""
    summed = []
    monkeypatch.setattr(tfrecord, "crc32c", lambda rows: summed.append(rows.size) or crc32c(rows))
    frames = [bytearray(record(event(step, scalar("a", 1.0)))) for step in range(1, 6000)]
    for frame in frames[::2]:
        frame[9] ^= 1
    data = b"".join(frames)
    (batch,) = tfrecord.batches([data], Ledger(NAME))
    assert batch.numbers.tolist() == list(range(2, 6000, 2))
    assert sum(summed) < 4 * len(data)


def test_zeros_behind_the_last_record():
    reading = read(DATA + b"\0" * 5000)
    assert steps(reading) == list(range(1, COUNT))
    assert reading.says("5,000 bytes")


def test_a_damaged_begin_is_found_by_the_name():
    container, items = read_source(Source(NAME, io.BytesIO(b"\x01" + DATA[1:])))
    assert container == "tfevents"
    assert steps(gather(container, items)) == list(range(1, COUNT))


def test_a_file_that_is_written_while_it_is_read(tmp_path):
    path = tmp_path / NAME
    path.write_bytes(DATA[: EDGES[6] + 7])
    source = Source(path)
    items = items_in(source, "tfevents")
    source.head()
    with path.open("ab") as stream:
        stream.write(DATA[EDGES[6] + 7 :])
    reading = gather("tfevents", items)
    assert steps(reading) == list(range(1, 6))  # what was there when the reader came to the end
    assert reading.says("cut off")
    assert steps(gather(*read_source(Source(path)))) == list(range(1, COUNT))


def test_a_long_file_is_not_held_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("ppo_doctor.readers.points.WINDOW", 10_000)
    path = tmp_path / NAME
    frames = [record(event(step, scalar(f"tag{i}", 1.0))) for step in range(1, 50) for i in range(8)]
    with path.open("wb") as stream:
        for _ in range(500):
            stream.write(b"".join(frames))
    items = items_in(Source(path), "tfevents")
    next(items)  # imports and tables of checksums
    tracemalloc.start()
    try:
        held = sum(len(item.records) for item in items if isinstance(item, Table))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert held > 20_000
    assert path.stat().st_size > 7 << 20
    assert peak < 20 << 20


def test_an_empty_file_is_refused():
    with pytest.raises(DoctorError, match="empty"):
        read_source(Source(NAME, io.BytesIO()))
