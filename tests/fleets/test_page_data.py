"""The columns of a page: they give back every run, and stay small."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.fleets import page_data
from ppo_doctor.fleets.page_data import Columns, Pairs, columns_of, embedded, limit_of
from tests.fleets.rows import SICK, a_failure, a_fleet, a_row, plain


def unpacked(kept: dict[str, Any], run: int) -> dict[str, Any]:
    """Return the values of a run as the script of the page reads them."""
    shape, *rest = kept["rows"][run]
    values = [rest.pop(0) if one is None else one for one in kept["shared"][shape]]
    return dict(zip(kept["names"][shape], values, strict=True))


NAMED = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3))


@given(st.lists(NAMED, max_size=20))
def test_named_values_are_given_back(runs):
    pairs = Pairs()
    for each in runs:
        pairs.put(each)
    kept = pairs.columns()
    assert [unpacked(kept, at) for at in range(len(runs))] == runs


def settings_of(columns: Columns, run: int) -> dict[str, str]:
    return {name: columns["about"]["setting_values"][at] for name, at in unpacked(columns["settings"], run).items()}


def test_a_run_is_given_back():
    rows = [*a_fleet(40), a_failure("runs/x/log.jsonl")]
    columns = columns_of(plain(rows))
    for at, row in enumerate(rows):
        assert columns["run"][at] == row.run
        assert settings_of(columns, at) == row.settings
        assert columns["words"]["verdict"][columns["verdict"][at]] == (row.verdict or "failed")
        ids = [columns["about"]["findings"][each][0] for each in columns["findings"][at][::2]]
        assert ids == [each.id for each in row.findings]
        if row.metrics_start:
            assert unpacked(columns["metrics"], at) == {"entropy": [1.235, -0.5]}
    worst = columns["rank"].index(0)
    assert rows[worst].verdict == "unhealthy"
    assert columns["words"]["what"][columns["what"][-1]] == "the file is empty"


def test_runs_are_named_by_their_folders_where_those_are_unique():
    columns = columns_of(plain([a_row("runs/a/log.jsonl"), a_row("runs/b/log.jsonl")]))
    assert (columns["prefix"], columns["folders"]) == (5, True)
    columns = columns_of(plain([a_row("runs/a/1.jsonl"), a_row("runs/a/2.jsonl")]))
    assert (columns["prefix"], columns["folders"]) == (7, False)


def test_what_a_log_says_does_not_end_the_element():
    evil = "</script><script>alert(1)</script><!--"
    rows = plain([a_row(evil, **{**SICK, "headline": f"{evil}\u202e"}, settings={evil: evil})])
    text, gone = embedded(columns_of(rows))
    inside = text.removeprefix('<script type="application/json" id="data">').removesuffix("</script>")
    assert "<" not in inside
    assert "\u202e" not in inside
    assert gone == ()
    assert json.loads(inside)["run"] == [evil]


def test_parts_are_left_out_of_a_page_that_would_be_too_large(monkeypatch):
    columns = columns_of(plain(a_fleet(50)))
    whole = len(embedded(columns)[0])
    monkeypatch.setattr(page_data, "MOST_BYTES", whole - 60)
    text, gone = embedded(columns)
    assert gone == ("metrics",)
    assert len(text) < whole
    monkeypatch.setattr(page_data, "MOST_BYTES", 100)
    assert embedded(columns)[1] == ("metrics", "settings", "headline")


def test_only_the_worst_runs_of_a_large_fleet_are_listed(monkeypatch):
    monkeypatch.setattr(page_data, "MOST_RUNS", 20)
    rows = plain(a_fleet(100))
    columns = columns_of(rows, limit=limit_of(rows, len(rows)))
    assert len(columns["run"]) == 20
    assert {columns["words"]["verdict"][at] for at in columns["verdict"]} == {"unhealthy"}
    assert limit_of(rows[:20], 20) is None


def test_the_report_of_a_run_is_linked():
    columns = columns_of(plain([a_row("a"), a_row("b")]), lambda row: "reports/b.html" if row["run"] == "b" else "")
    assert columns["report"] == ["", "reports/b.html"]


@pytest.mark.parametrize("size", [5000])
def test_five_thousand_runs_of_sixty_settings_are_less_than_ten_megabytes(size):
    rows = plain(a_fleet(size, planted=True))
    for at, row in enumerate(rows):
        row["settings"] += [(f"setting_{n}", f"{at * n % 97}") for n in range(57)]
        row["headline"] = f"The reward of run {at} rose from {at / 7} to {at / 3}, and more is said of it here."
        names = page_data._MAIN[:12]
        row["metrics_start"] = [(name, at * 1.2345678 + n) for n, name in enumerate(names)]
        row["metrics_end"] = [(name, at / 1.2345678 - n) for n, name in enumerate(names)]
    text, gone = embedded(columns_of(rows))
    assert gone == ()
    assert len(text.encode()) < 5_500_000
