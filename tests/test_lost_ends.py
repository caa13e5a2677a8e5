"""A file that goes on behind what could be read may hold anything there: nobody calls its run healthy."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

SOUND = Path(__file__).resolve().parent.parent / "sample_logs" / "healthy" / "healthy.canonical" / "run.jsonl"


def cut_off(whole: bytes) -> bytes:
    return gzip.compress(whole)[:-40]


def damaged(whole: bytes) -> bytes:
    packed = gzip.compress(whole)
    return packed[:-400] + b"\xff" * 100 + packed[-300:]


def damaged_document(whole: bytes) -> bytes:
    """Return lines of JSON as one document with a list of records, behind which stands what nobody can read."""
    records = [json.loads(line) for line in whole.splitlines()][1:]
    return json.dumps({"log_history": records})[:-1].encode() + b", [[[ and more"


DAMAGED = {"cut off.jsonl.gz": cut_off, "damaged.jsonl.gz": damaged, "damaged.json": damaged_document}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_was_lost_is_not_healthy(cli, tmp_path, name):
    (tmp_path / name).write_bytes(DAMAGED[name](SOUND.read_bytes()))
    judged = cli("analyze", tmp_path / name, "--format", "json")
    assert judged.json["verdict"] == "inconclusive"
    assert name in judged.json["verdict_because"]


def test_a_last_line_that_is_cut_off_is_how_a_log_that_is_written_looks(cli, tmp_path):
    (tmp_path / "run.jsonl").write_bytes(SOUND.read_bytes()[:-5])
    assert cli("analyze", tmp_path / "run.jsonl", "--format", "json").json["verdict"] == "healthy"
