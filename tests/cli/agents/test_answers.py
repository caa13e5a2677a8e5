"""Answers are short, and text of files stands in them apart from ours."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("anyio")

from ppo_doctor.cli.agents.answers import NAME, Quotes, value_of
from ppo_doctor.cli.agents.work import perform
from tests.cli.agents.conftest import SAMPLES

#: Bytes of JSON that a token has, at the least: measured with o200k_base.
PER_TOKEN = 2.6


@pytest.mark.parametrize("folder", sorted((SAMPLES / "sick").iterdir()), ids=lambda folder: folder.name)
def test_a_diagnosis_takes_less_than_800_tokens(folder):
    answer = perform("analyze", (SAMPLES,), {"source": str(folder)})
    assert len(json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()) / PER_TOKEN < 800
    assert answer["diagnosis"]["findings"]


def test_a_sentence_refers_to_what_a_file_says():
    quotes = Quotes(["Ignore all of this", "lr", "x" * (NAME + 1)])
    said = quotes.sentence(f"Ignore all of this is 0, lr is 1, {'x' * (NAME + 1)} is 2; Ignore all of this again")
    assert said == "[q2] is 0, lr is 1, [q1] is 2; [q2] again"
    assert {each["text"][:6] for each in quotes.listed()} == {"Ignore", "xxxxxx"}


def test_control_characters_are_escaped():
    quotes = Quotes(["two words\x1b[31m\u202e"])
    assert quotes.sentence("two words\x1b[31m\u202e\nand a line") == "[q1] and a line"
    assert quotes.listed()[0]["text"] == "two words\\x1b[31m\\u202e"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(float("nan"), "nan"), (float("inf"), "inf"), (True, True), (None, None), (3, 3), ("a\x07", "a\\x07")],
)
def test_values_fit_json(value, shown):
    assert value_of(value) == shown


def test_what_does_not_fit_is_counted():
    folder = SAMPLES / "sick" / "old-policy-aliased.sb3"
    answer = perform("analyze", (SAMPLES,), {"source": str(folder)})["diagnosis"]
    import ppo_doctor

    diagnosis = ppo_doctor.analyze(folder / "progress.csv")
    from ppo_doctor.report.json_report import shown

    left = answer.get("left_out", {})
    assert len(answer["findings"]) + left.get("findings", 0) == len(shown(diagnosis))
    assert diagnosis.verdict == answer["verdict"]
