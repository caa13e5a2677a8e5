"""Run files of W&B: what is read of sound ones, and what is left of damaged ones."""

from __future__ import annotations

import math
import struct
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.readers import wandb_log
from ppo_doctor.readers.notes import Ledger
from tests.readers.conftest import read_back
from tests.readers.event_files import field
from tests.readers.wandb_files import BLOCK, HEADER, config, framed, history, item, leave, run, run_file

NAME = "run-abc.wandb"


COUNT = 10


DATA, PLACES = framed([history(step, loss=step / 4) for step in range(1, COUNT + 1)])


#: a record over three blocks among small ones
LONG, LONG_PLACES = framed(
    [history(1, a=1.0), history(2, a=2.0, text="x" * 70_000), *(history(step, a=1.0) for step in range(3, 9))]
)


def read(data, name=NAME):
    return read_back(data, "wandb", name)


def steps(reading):
    return [int(record["_step"]) for record in reading.records]


def test_history_is_read(reading):
    read = reading(run_file(history(0, loss=1.5, **{"train/kl": 0.25}), history(5, loss=2.5)))
    assert read.container == "wandb"
    assert read.records == [
        {"_step": 0, "_runtime": 0, "loss": 1.5, "train/kl": 0.25},
        {"_step": 5, "_runtime": 2.5, "loss": 2.5},
    ]
    assert read.lines == [1, 2]
    assert read.notes == []


def test_the_order_of_keys_makes_no_new_layout(reading):
    one = field(2, item("a", 1.0) + item("b", 2.0))
    other = field(2, item("b", 4.0) + item("a", 3.0))
    assert len(reading(run_file(one, other)).tables) == 1


def test_keys_of_nested_objects_are_joined_as_wandb_joins_them(reading):
    items = item(["a", "b"], 1.0) + item(["c"], 2.0) + item(["d"], {"e": {"f": 3.0}})
    assert reading(run_file(field(2, items))).records == [{"a.b": 1, "c": 2, "d/e/f": 3}]


@pytest.mark.parametrize(
    ("written", "value"),
    [(b"NaN", math.nan), (b"Infinity", math.inf), (b"-Infinity", -math.inf), (b'"NaN"', math.nan), (b"true", 1.0)],
)
def test_values_that_are_no_plain_numbers(reading, written, value):
    (record,) = reading(run_file(field(2, item("a", written)))).records
    assert record["a"] == pytest.approx(value, nan_ok=True)


def test_a_step_that_is_no_item_is_read_too(reading):
    assert reading(run_file(field(2, item("a", 1.0) + field(2, field(1, 7))))).records == [{"a": 1, "_step": 7}]


def test_media_are_left_out_and_told(reading):
    whole = field(2, item("h", {"_type": "histogram", "values": [1, 2]}) + item("a", 1.0))
    parts = field(2, item(["i", "_type"], "image") + item(["i", "size"], 3) + item("a", 2.0))
    read = reading(run_file(whole, parts))
    assert read.records == [{"a": 1}, {"a": 2}]
    assert read.says("h holds media")
    assert read.says("i holds media")


def test_a_configuration_is_that_of_the_start_with_its_later_changes(reading):
    read = reading(run_file(run(lr=0.1, algo="ppo", _wandb={"x": 1}), config(lr=0.2, net={"size": 3}), history(1, a=1)))
    (found,) = read.configs
    assert found.values == {"lr": 0.2, "algo": "ppo", "net.size": 3}


def test_an_exit_code_is_told(reading):
    assert reading(run_file(history(1, a=1.0), leave(1))).says("exit code 1")
    assert reading(run_file(history(1, a=1.0), leave(0))).notes == []


def test_values_that_are_no_json_are_told(reading):
    read = reading(run_file(field(2, item("a", b"{oops") + item("b", 1.0))))
    assert read.records == [{"b": 1}]
    assert read.says("a holds no JSON")


def test_records_over_several_blocks():
    reading = read(LONG)
    assert steps(reading) == list(range(1, 9))
    assert reading.notes == []


@pytest.mark.parametrize("size", [BLOCK - 7, BLOCK - 14, BLOCK - 15, BLOCK - 20, 2 * BLOCK])
def test_records_that_end_near_the_end_of_a_block(size):
    filler = field(4, b"x" * (size - len(HEADER) - 30))
    data = run_file(filler, *(history(step, a=1.0) for step in range(1, 5)))
    assert steps(read(data)) == [1, 2, 3, 4]


def test_a_file_that_holds_its_header_alone():
    assert read(HEADER).records == []


def test_a_file_truncated_anywhere_gives_what_is_whole():
    for cut in range(1, len(DATA)):
        reading = read(DATA[:cut])
        whole = sum(stop <= cut for _, stop in PLACES)
        assert steps(reading) == list(range(1, whole + 1)), cut
        at_edge = cut <= len(HEADER) or cut in [stop for _, stop in PLACES]
        assert reading.skipped == (not at_edge), cut
        assert at_edge or reading.says("cut off"), cut


@given(st.integers(1, len(LONG)))
def test_a_file_truncated_within_a_record_of_several_chunks(cut):
    whole = sum(stop <= cut for _, stop in LONG_PLACES)
    assert steps(read(LONG[:cut])) == list(range(1, whole + 1))


def test_any_flipped_bit_costs_its_record_alone():
    for bit in range(8 * PLACES[3][0], 8 * PLACES[4][1]):
        data = bytearray(DATA)
        data[bit // 8] ^= 1 << bit % 8
        reading = read(bytes(data))
        hit = next(i for i, (start, stop) in enumerate(PLACES, 1) if start <= bit // 8 < stop)
        assert steps(reading) == [step for step in range(1, COUNT + 1) if step != hit], bit
        assert reading.skipped == 1, bit
        assert reading.says(f"byte {PLACES[hit - 1][0]}"), bit


@given(st.integers(0, 8 * len(LONG) - 1))
def test_a_flipped_bit_among_large_records(bit):
    data = bytearray(LONG)
    data[bit // 8] ^= 1 << bit % 8
    hit = [i for i, (start, stop) in enumerate(LONG_PLACES, 1) if start <= bit // 8 < stop]
    reading = read(bytes(data))
    assert steps(reading) == [step for step in range(1, 9) if step not in hit]
    assert reading.skipped == len(hit) or not hit


@given(st.binary(max_size=3000), st.booleans())
def test_any_bytes_give_records_or_notes(junk, header):
    read((HEADER if header else b"\1") + junk)


@given(st.binary(max_size=100))
def test_any_record_in_a_sound_chunk(payload):
    assert {1, 2} <= set(steps(read(run_file(history(1, a=1.0), payload, history(2, a=1.0)))))


@given(st.lists(st.integers(1, len(LONG) - 1), max_size=8))
def test_blocks_of_any_size_give_the_same(cuts):
    notes = Ledger(NAME)
    blocks = [LONG[start:stop] for start, stop in pairwise([0, *sorted(cuts), len(LONG)])]
    assert [number for number, _ in wandb_log.records(blocks, notes)] == list(range(1, 9))
    assert not list(notes.notes())


def test_the_search_for_a_sound_chunk_has_an_end(monkeypatch):
    """Each place of these blocks looks like a chunk that reaches far; trying them all would take for ever."""
    monkeypatch.setattr(wandb_log, "_SEARCH", 1 << 20)
    tried = []
    honest = zlib.crc32
    monkeypatch.setattr(zlib, "crc32", lambda data: tried.append(len(data)) or honest(data))
    trap = b"\x02\x02" * (1 << 19)
    read(DATA + trap)
    assert sum(tried) < 4 << 20


def test_a_record_without_end_is_dropped(monkeypatch):
    monkeypatch.setattr(wandb_log, "LONGEST", 100_000)
    data, _ = framed([history(1, a=1.0), field(4, b"x" * 200_000), history(2, a=1.0)])
    reading = read(data)
    assert steps(reading) == [1, 2]
    assert reading.says("larger than")


def test_a_damaged_header_is_no_obstacle(reading):
    assert steps(reading(b"\xff" + DATA[1:], name=NAME)) == list(range(1, COUNT + 1))


def test_zeros_behind_the_last_record():
    reading = read(DATA + struct.pack("<Q", 0) * 9000)
    assert steps(reading) == list(range(1, COUNT + 1))
    assert reading.skipped
