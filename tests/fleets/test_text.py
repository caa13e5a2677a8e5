"""A fleet as text and JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from ppo_doctor.fleets.summary import summarize
from ppo_doctor.fleets.text import as_json, as_text
from ppo_doctor.report import RenderOptions
from tests.fleets.rows import SICK, a_failure, a_fleet, a_row, plain

PLAIN = RenderOptions(color=False, width=100)


def test_a_fleet_is_one_screen():
    rows = [*a_fleet(1000, planted=True), a_failure("runs/x/log.jsonl")]
    text = as_text(summarize(plain(rows)), PLAIN)
    lines = text.splitlines()
    assert 24 <= len(lines) <= 34
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("1,001 runs: ")
    assert "1 not judged" in lines[0]
    assert "association, not cause" in text
    assert "image = old" in text
    assert "reward-too-sparse from step 7" in text
    assert "benign-converged" not in text


def test_it_says_that_nothing_separates():
    assert "none separates the" in as_text(summarize(plain(a_fleet(300))), PLAIN)


def test_the_worst_twenty_are_listed_and_no_count_is_cut():
    rows = [replace(row, settings={**row.settings, "a_setting_with_a_name": "x" * 30}) for row in a_fleet(300)]
    rows = [replace(row, settings={**row.settings, "image": f"{row.verdict} {'y' * 20}"}) for row in rows]
    text = as_text(summarize(plain(rows)), RenderOptions(color=False, width=80))
    assert "The worst 20" in text
    assert text.count("reward-too-sparse from") == 20
    assert re.search(r"others [0-9]+ of [0-9]+\n", text)


def test_where_no_run_was_judged_nothing_is_said_to_separate():
    assert "separates" not in as_text(summarize(plain([a_failure("x")])), PLAIN)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_every_width_and_alphabet_holds(width):
    summary = summarize(plain([*a_fleet(100, planted=True), a_failure("x" * 300, "a reason " * 30)]))
    text = as_text(summary, RenderOptions(color=False, width=width, ascii=True))
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= width


def test_what_a_log_says_cannot_move_the_cursor():
    rows = plain([a_row("a\x1b[2Jb/log", **SICK, settings={"a\x1b": "b"}), a_failure("x", "\x1b]0;title\x07")])
    assert "\x1b" not in as_text(summarize(rows), PLAIN)


def test_colours_are_those_of_other_reports():
    text = as_text(summarize(plain(a_fleet(30))), RenderOptions(color=True, width=100))
    assert "\x1b[1;31m" in text


def test_json_holds_all_of_it():
    summary = summarize(plain([*a_fleet(1000, planted=True), a_failure("x")]))
    found = json.loads(as_json(summary))
    assert found["format"] == "ppo-doctor fleet"
    assert found["runs"] == 1001
    assert found["verdicts"] == dict(summary.verdicts)
    assert found["separating"]["found"][0]["setting"] == "image"
    assert len(found["worst"]) == 20
    assert found["failures"] == [{"run": "x", "reason": "the file is empty"}]


def test_no_run_at_all():
    assert as_text(summarize([]), PLAIN).startswith("0 runs")
    assert json.loads(as_json(summarize([])))["runs"] == 0
