"""Lines of a log around a place: unpacked and decoded as its reader does, secrets hidden."""

from __future__ import annotations

import gzip
import json

import pytest

from ppo_doctor.model.run import SourceRef, SourceSummary
from ppo_doctor.readers.excerpts import excerpt, hidden

LINES = [json.dumps({"step": n, "loss": n / 8}) for n in range(1, 101)]


def around(path, line, container="jsonl", **reach):
    sources = (SourceSummary(path=str(path), container=container, records=100),)
    reach = {"before": 2, "after": 3} | reach
    return excerpt(SourceRef(path=str(path), line=line, key="loss"), sources, **reach)


@pytest.mark.parametrize("kind", ["plain", "gzip", "utf-16", "crlf"])
def test_lines_around_a_place(tmp_path, kind):
    path = tmp_path / "run.jsonl"
    text = ("\r\n" if kind == "crlf" else "\n").join(LINES)
    raw = text.encode("utf-16" if kind == "utf-16" else "utf-8")
    path.write_bytes(gzip.compress(raw) if kind == "gzip" else raw)
    held = around(path, 50)
    assert [number for number, _ in held.lines] == [48, 49, 50, 51, 52, 53]
    assert held.lines[2][1].rstrip("\r") == LINES[49]


def test_the_first_and_the_last_line_have_fewer_neighbours(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(LINES), encoding="utf-8")
    assert [number for number, _ in around(path, 1).lines] == [1, 2, 3, 4]
    assert [number for number, _ in around(path, 100).lines] == [98, 99, 100]


@pytest.mark.parametrize(
    ("path", "line", "container"),
    [("<stdin>", 3, "jsonl"), ("events.out.tfevents.1", 3, "tfevents"), ("gone.jsonl", 3, "jsonl"), ("x", None, "csv")],
)
def test_where_there_are_no_lines_it_says_so(path, line, container):
    held = around(path, line, container)
    assert held.lines == ()
    assert held.because


@pytest.mark.parametrize(
    ("line", "kept", "gone"),
    [
        ('{"api_key": "abc123", "loss": 0.5}', '"loss": 0.5', "abc123"),
        ("password=hunter2 loss=0.5", "loss=0.5", "hunter2"),
        ("Authorization: 'Zm9vYmFy' loss: 1", "loss: 1", "Zm9vYmFy"),
        ("loading hf_abcdefghijklmnopqrstuvwxyz", "loading", "abcdefghijkl"),
        ('{"tokens_in_loss": 1024, "max_tokens": 512}', '"tokens_in_loss": 1024, "max_tokens": 512', "redacted"),
        ("wandb.api_key: 'quoted \\' inside' x=1", "x=1", "inside"),
    ],
)
def test_secrets_are_hidden_and_numbers_are_not(line, kept, gone):
    assert kept in hidden(line)
    assert gone not in hidden(line)


def test_a_line_of_megabytes_is_cut(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"step": 1, "text": "' + "x" * 3_000_000 + '"}\n', encoding="utf-8")
    assert len(around(path, 1).lines[0][1]) < 100_000


def test_of_a_file_behind_a_url_it_is_not_said_that_it_is_missing():
    assert "URL" in around("s3://bucket/run.jsonl", 3).because
