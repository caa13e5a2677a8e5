"""A snapshot is the same for the same answers, wherever it is taken, and tells what differs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab import snapshot

SICK = Path(__file__).resolve().parents[2] / "sample_logs" / "sick" / "lr-zero.sb3"


@pytest.fixture
def of_sample(monkeypatch):
    """Return the line of a sample log that is read as it lies or alone."""
    monkeypatch.chdir(SICK)
    monkeypatch.setenv("COLUMNS", "100")

    def line(*files: str, alone: bool) -> dict[str, object]:
        return snapshot.answer(snapshot.Input("sample", SICK, files, alone=alone))

    return line


def test_a_line_holds_verdict_and_causes_and_is_the_same_each_time(of_sample):
    line = of_sample("progress.csv", alone=True)
    assert line["verdict"] == "unhealthy"
    assert "lr-zero (established)" in line["causes"]
    assert line == of_sample("progress.csv", alone=True)


def test_what_lies_beside_a_log_counts_only_where_it_is_read_as_it_lies(of_sample):
    assert of_sample("progress.csv", alone=True)["text"] != of_sample("progress.csv", alone=False)["text"]


def test_differences_name_the_input_and_what_changed(tmp_path):
    lines = [{"name": name, "verdict": "healthy", "findings": [], "causes": [], "text": "1"} for name in "abc"]
    changed = [lines[0], lines[1] | {"verdict": "warning", "findings": ["x", "y"]}, lines[2] | {"name": "d"}]
    for path, content in (("before", lines), ("after", changed)):
        (tmp_path / path).write_text("".join(json.dumps(line) + "\n" for line in content), encoding="utf-8")
    assert list(snapshot.differences(tmp_path / "before", tmp_path / "before", "")) == []
    assert list(snapshot.differences(tmp_path / "before", tmp_path / "after", "")) == [
        "b: verdict healthy -> warning; findings  -> x,y",
        "c: gone",
        "d: new",
    ]
