"""Observations are written as lines of JSON, by one process."""

from __future__ import annotations

import json

import pytest

from ppo_doctor.record.script.log import RunLog
from ppo_doctor.record.script.places import Place


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch\nlr = 0\n")
    return tmp_path / "run.jsonl"


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_settings_and_lines_come_before_the_record_that_they_belong_to(out, tmp_path):
    log = RunLog(str(out))
    log.settings({"clip_range": 0.2})
    log.places({"learning_rate": (Place(str(tmp_path / "train.py"), 2, "<module>"),)})
    assert not out.exists()
    log.record(8, 1, {"learning_rate": 0.0, "ratio_max": float("nan")})
    log.close()
    first, second, third = lines(out)
    assert first["config"] == {"clip_range": 0.2}
    assert second["places"]["learning_rate"] == {
        "file": "train.py", "line": 2, "function": "<module>", "text": "lr = 0",
    }  # fmt: skip
    assert (third["step"], third["update"], third["learning_rate"]) == (8, 1, 0.0)
    assert all(line["ppo_doctor"] for line in (first, second, third))


def test_settings_are_written_once_and_of_lines_what_is_new(out):
    log = RunLog(str(out))
    log.record(1, 1, {})
    for value in (0.2, 0.3):
        log.settings({"clip_range": value})
    here, there = Place("train.py", 1, ""), Place("train.py", 2, "")
    for places in ({"loss": here}, {"loss": here}, {"loss": here, "passes": here}, {"loss": there}):
        log.places({name: (place,) for name, place in places.items()})
    log.close()
    assert [line["config"] for line in lines(out) if "config" in line] == [{"clip_range": 0.2}]
    written = [{name: each["line"] for name, each in line["places"].items()} for line in lines(out)[2:]]
    assert written == [{"loss": 1}, {"passes": 1}, {"loss": 2}]


def test_reasons_are_written_even_without_a_record(out):
    log = RunLog(str(out))
    log.unseen({})
    log.close()
    assert not out.exists()
    log.unseen({"ratio": "the loss is compiled"})
    log.close()
    assert lines(out)[0]["unseen"] == {"ratio": "the loss is compiled"}


def test_the_first_process_with_a_record_makes_the_file(out):
    first, second = RunLog(str(out)), RunLog(str(out))
    second.settings({"learning_rate": 1.0})
    first.record(8, 1, {"loss": 1.0})
    second.record(8, 1, {"loss": 2.0})
    second.settings({"n_epochs": 1})
    first.record(16, 2, {"loss": 3.0})
    first.close()
    second.close()
    assert [line["loss"] for line in lines(out)] == [1.0, 3.0]
