"""A file that goes on behind what could be read, or began before it, may hold anything there: it is not healthy."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest

from tests.readers.event_files import event_file, scalars

SOUND = Path(__file__).resolve().parent.parent.parent / "sample_logs" / "healthy" / "healthy.canonical" / "run.jsonl"


def cut_off(whole: bytes) -> bytes:
    return gzip.compress(whole)[:-40]


def damaged(whole: bytes) -> bytes:
    packed = gzip.compress(whole)
    return packed[:-400] + b"\xff" * 100 + packed[-300:]


def damaged_document(whole: bytes) -> bytes:
    """Return lines of JSON as one document with a list of records, behind which stands what nobody can read."""
    records = [json.loads(line) for line in whole.splitlines()][1:]
    return json.dumps({"log_history": records})[:-1].encode() + b", [[[ and more"


def cut_document(whole: bytes) -> bytes:
    """Return the document without its end, and nothing behind: a document is written as one, and its end was there."""
    return damaged_document(whole)[: -len(b", [[[ and more") - 3]


def begins_within_a_record(whole: bytes) -> bytes:
    return whole[whole.index(b"\n", 1_000) + 200 :]


def unreadable_settings(whole: bytes) -> bytes:
    return whole.replace(b'"config": {', b'"config": ', 1)


def settings_damaged_below_a_record(whole: bytes) -> bytes:
    settings, first, rest = unreadable_settings(whole).split(b"\n", 2)
    return b"\n".join([first, settings, rest])


DAMAGED = {
    "cut off.jsonl.gz": cut_off,
    "damaged.jsonl.gz": damaged,
    "damaged.json": damaged_document,
    "cut off.json": cut_document,
    "begins within.jsonl": begins_within_a_record,
    "unreadable settings.jsonl": unreadable_settings,
    "settings below.jsonl": settings_damaged_below_a_record,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_was_lost_is_not_healthy(cli, tmp_path, name):
    (tmp_path / name).write_bytes(DAMAGED[name](SOUND.read_bytes()))
    judged = cli("analyze", tmp_path / name, "--format", "json")
    assert judged.json["verdict"] == "inconclusive"
    assert name in judged.json["headline"]


@pytest.fixture(scope="module")
def events() -> bytes:
    """A sound log as an event file."""
    with (SOUND.parent.parent / "healthy.sb3" / "progress.csv").open(encoding="utf-8") as rows:
        read = [{tag: float(cell) for tag, cell in row.items() if cell} for row in csv.DictReader(rows)]
    return event_file(*scalars((int(row["time/total_timesteps"]), row) for row in read))


@pytest.mark.parametrize("piece", ["begins within", "its first record is damaged", "whole"])
def test_an_event_file_whose_begin_is_not_there_is_not_healthy(cli, tmp_path, events, piece):
    data = {"begins within": events[2_000:], "its first record is damaged": b"\x07" + events[1:], "whole": events}[
        piece
    ]
    (tmp_path / "events.out.tfevents.1").write_bytes(data)
    judged = cli("analyze", tmp_path / "events.out.tfevents.1", "--format", "json").json
    assert judged["verdict"] == ("inconclusive" if piece == "begins within" else "healthy")
    assert ("begins within a record" in judged["headline"]) == (piece == "begins within")


def test_a_last_line_that_is_cut_off_is_how_a_log_that_is_written_looks(cli, tmp_path):
    (tmp_path / "run.jsonl").write_bytes(SOUND.read_bytes()[:-5])
    assert cli("analyze", tmp_path / "run.jsonl", "--format", "json").json["verdict"] == "healthy"


def without_settings(whole: bytes) -> bytes:
    """Return the records alone: a sound log, and nobody can see that there was more."""
    return whole.split(b"\n", 1)[1]


def one_record_damaged(whole: bytes) -> bytes:
    """Return the log with a piece of a record among others: it costs itself, and what was lost is told."""
    lines = whole.split(b"\n")
    return b"\n".join([*lines[:20], lines[20][:100], *lines[21:]])


def piece_before_settings(whole: bytes) -> bytes:
    """Return the log behind a piece of an older one: from the settings on, everything is there."""
    return whole.split(b"\n")[3][100:] + b"\n" + whole


def behind_a_message(whole: bytes) -> bytes:
    return b"Training begins\n" + without_settings(whole)


@pytest.mark.parametrize("changed", [without_settings, one_record_damaged, piece_before_settings, behind_a_message])
def test_what_is_there_in_whole_is_judged(cli, tmp_path, changed):
    (tmp_path / "run.jsonl").write_bytes(changed(SOUND.read_bytes()))
    assert cli("analyze", tmp_path / "run.jsonl", "--format", "json").json["verdict"] == "healthy"
