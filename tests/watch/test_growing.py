"""Text that grows: at every moment what was read equals what a reader makes of the whole lines so far."""

from __future__ import annotations

import io
import json
import math
import random
import tracemalloc
from pathlib import Path

import pytest

from ppo_doctor import readers
from ppo_doctor.errors import DoctorError
from ppo_doctor.readers.source import Source
from ppo_doctor.table import EmbeddedConfig, Table
from ppo_doctor.watch import growing
from ppo_doctor.watch.growing import SMALL, Growing

KEYS = ("approx_kl", "clip_fraction", "entropy", "policy_loss", "value_loss", "episode_return")


def jsonl(records):
    numbers = random.Random(1)
    yield json.dumps({"ppo_doctor": 1, "config": {"ppo_epochs": 4}})
    for step in range(records):
        row = {"step": step, **{key: numbers.random() for key in KEYS}}
        if step % 7 == 0:
            row["eval"] = numbers.random()
        if step % 400 == 399:
            row["entropy"] = math.nan
        yield json.dumps(row)


def csv(records):
    numbers = random.Random(2)
    yield ",".join(("step", *KEYS, "eval"))
    for step in range(records):
        yield ",".join([str(step), *(f"{numbers.random():.4f}" for _ in KEYS), "" if step % 7 else "0.50"])


def verl(records):
    numbers = random.Random(3)
    for step in range(records):
        yield f"INFO something unrelated {step}"
        yield f"step:{step} - " + " - ".join(f"{key}:{numbers.random():.3f}" for key in KEYS)


def pairs(records):
    numbers = random.Random(4)
    for step in range(records):
        yield f"step={step} " + " ".join(f"{key}={numbers.random():.5f}" for key in KEYS)


FORMS = {"jsonl": jsonl, "csv": csv, "verl": verl, "pairs": pairs}
#: What is looked at as a whole in these tests, a quarter of what it is, and records of each form that take more.
LITTLE = SMALL // 4
RECORDS = {"jsonl": 750, "csv": 2_000, "verl": 750, "pairs": 900}


def content(items):
    """Return what items hold, however they are cut into tables."""
    cells: dict[str, dict[int, tuple[int, float]]] = {}
    decimals: dict[str, set] = {}
    for table in (item for item in items if isinstance(item, Table)):
        for key, values in table.columns.items():
            rows = zip(table.records.tolist(), table.lines.tolist(), map(repr, values.tolist()), strict=True)
            cells.setdefault(key, {}).update({record: (line, value) for record, line, value in rows})
            decimals.setdefault(key, set()).add(table.decimals.get(key))
    configs = [item.values for item in items if isinstance(item, EmbeddedConfig)]
    # How many lines a console log holds that are no records is counted only at its end.
    notes = [str(item) for item in items if not isinstance(item, Table | EmbeddedConfig)]
    notes = sorted(note for note in notes if "not read:" not in note)
    return cells, decimals, configs, notes


def whole(data):
    return content(list(readers.read_source(Source("log", io.BytesIO(data)))[1]))


def same(reading, data):
    """Compare; a console dialect may keep its last record until it sees that the next line is no part of it."""
    ours, all_of_it = content(reading.items), whole(data)
    last = max(all_of_it[0]["step"])
    if reading.container == "console" and last not in ours[0]["step"]:
        for rows in all_of_it[0].values():
            rows.pop(last, None)
    return ours == all_of_it


@pytest.fixture(params=FORMS)
def data(request, monkeypatch):
    monkeypatch.setattr(growing, "SMALL", LITTLE)
    lines = list(FORMS[request.param](RECORDS[request.param]))
    data = "".join(f"{line}\n" for line in lines).encode()
    assert len(data) > LITTLE + 25_000
    return data


def test_every_snapshot_equals_a_reading_of_the_whole_lines_so_far(data):
    numbers = random.Random(5)
    log, fed, looked = Growing("log"), 0, 0
    while fed < len(data):
        size = numbers.choice((1, 1_250, 17_500))
        log.feed(data[fed : fed + size])
        fed = min(fed + size, len(data))
        if numbers.random() < 0.18 or not looked:
            end = data.rfind(b"\n", 0, fed) + 1
            if not end:
                continue
            looked += 1
            assert same(log.snapshot(), data[:end])
    assert looked > 2
    assert content(log.finish().items) == whole(data)


def test_the_end_equals_a_reading_of_the_file(data):
    torn = data[:-20]
    log = Growing("log")
    log.feed(torn)
    assert content(log.finish().items) == whole(torn)


@pytest.mark.parametrize("size", [2_000, SMALL + 50_000])
def test_a_torn_line_is_no_record_until_it_is_completed(size):
    lines = [f"{line}\n".encode() for line in jsonl(8_000)]
    data = b"".join(lines)[: data_end(lines, size)]
    log = Growing("log")
    log.feed(data)
    before = len(content(log.snapshot().items)[0]["step"])
    log.feed(b'{"step": 1000000, "approx')
    assert len(content(log.snapshot().items)[0]["step"]) == before
    log.feed(b'_kl": 0.5}\n')
    assert content(log.snapshot().items)[0]["approx_kl"][before][1] == "0.5"
    log.close()


def data_end(lines, size):
    """Return the length of as many lines as are at least `size` bytes."""
    total = 0
    for line in lines:
        total += len(line)
        if total >= size:
            return total
    raise AssertionError("too few lines")


def test_what_begins_like_one_container_may_turn_out_another():
    log = Growing("log")
    log.feed(b"loading model ...\n")
    assert log.container() == "console"
    for line in jsonl(20):
        log.feed(f"{line}\n".encode())
    assert log.container() == "jsonl"
    assert len(content(log.snapshot().items)[0]["step"]) == 20


def test_nothing_yet_is_told_apart_from_no_log():
    log = Growing("log")
    with pytest.raises(DoctorError, match="empty"):
        log.snapshot()
    log.feed(b"\x00\x01\x02\x03" * 1000)
    with pytest.raises(DoctorError):
        log.snapshot()


def test_large_data_of_no_known_kind_neither_hangs_nor_piles_up():
    log = Growing("log")
    for _ in range(4):
        log.feed(bytes(range(1, 9)) * 50_000)
        with pytest.raises(DoctorError):
            log.snapshot()
    log.close()


def test_packed_text_grows_too():
    import gzip

    data = "".join(f"{line}\n" for line in jsonl(20_000)).encode()
    packed = gzip.compress(data)
    assert len(packed) > SMALL
    log = Growing("log")
    for start in range(0, len(packed), 50_000):
        log.feed(packed[start : start + 50_000])
    assert content(log.finish().items) == whole(data)


def test_memory_grows_by_the_stated_bytes_per_record():
    """8 bytes for each value, 16 for record and line; a bytearray keeps an eighth in reserve."""
    lines = [json.dumps({"step": step, **dict.fromkeys(KEYS, step / 7)}).encode() + b"\n" for step in range(40_000)]
    log = Growing("log")
    log.feed(b"".join(lines[:10_000]))
    log.snapshot()
    tracemalloc.start()
    for start in range(10_000, 40_000, 100):
        log.feed(b"".join(lines[start : start + 100]))
        if start % 5_000 == 0:
            log.snapshot()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    stated = 30_000 * (8 * (1 + len(KEYS)) + 16)
    assert grown <= 1.3 * stated + 200_000
    log.close()


def test_only_streamed_containers_have_readers_that_show_what_they_hold():
    assert set(growing.STREAMED) <= set(readers.READERS)
    assert Path(growing.__file__).is_file()


@pytest.mark.parametrize("before", [b"\0" * 65_536, b"\n" * 65_536, b"\0" * (3 << 20), b"\r\n" * (SMALL + 1)])
@pytest.mark.parametrize("form", FORMS)
def test_a_log_that_was_truncated_while_it_was_written_is_read_from_its_first_record(form, before):
    """copytruncate empties the file, the writer goes on where it was, and NULs fill what is before."""
    text = "".join(line + "\n" for line in FORMS[form](60)).encode()
    growing_log, alone = Growing("log"), Growing("log")
    for at in range(0, len(before), 1 << 16):
        growing_log.feed(before[at : at + (1 << 16)])
    for at in range(0, len(text), 1000):
        growing_log.feed(text[at : at + 1000])
    alone.feed(text)
    got, expected = growing_log.snapshot(), alone.snapshot()
    assert got.container == expected.container
    columns = [[item.columns for item in reading.items if isinstance(item, Table)] for reading in (got, expected)]
    assert str(columns[0]) == str(columns[1])
    lines = [[item.lines.tolist() for item in reading.items if isinstance(item, Table)] for reading in (got, expected)]
    shift = before.count(b"\n")
    assert lines[0] == [[line + shift for line in table] for table in lines[1]]
    growing_log.close()
    alone.close()


@pytest.mark.parametrize("size", [1_000, 20_000, SMALL])
@pytest.mark.parametrize("form", FORMS)
def test_nuls_that_a_crash_leaves_lose_no_log_that_was_followed(form, size):
    lines = [f"{line}\n".encode() for line in FORMS[form](60)]
    log = Growing("log")
    log.feed(b"".join(lines[:30]))
    container, before = log.container(), len(content(log.snapshot().items)[0]["step"])
    log.feed(b"\0" * size)
    assert log.container() == container
    assert len(content(log.snapshot().items)[0]["step"]) >= before - (form == "pairs")  # the last may go on
    log.feed(b"\n" + b"".join(lines[30:]))
    assert same(log.snapshot(), b"".join(lines[:30]) + b"\0" * size + b"\n" + b"".join(lines[30:]))
    assert len(content(log.snapshot().items)[0]["step"]) > before
    log.close()
