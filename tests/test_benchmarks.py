"""The benchmarks run, compare what they say they compare, and write their page; how fast it is, no test asserts."""

from __future__ import annotations

import json

import pytest

from benchmarks import data, page
from benchmarks.limits import limit_of
from benchmarks.measuring import Cost, Line, Unmeasured, exponent, interleaved, line


def costs(**cpu):
    return {name: [Cost(value, 0.0, 0.0) for value in values] for name, values in cpu.items()}


def test_a_line_is_the_median_of_the_rounds():
    row = line("x", costs(ours=[2.0, 9.0, 4.0], peer=[1.0, 3.0, 1.0]), "ours", "peer", bound=3.0)
    assert (row.ratio, row.low, row.high, row.rounds, row.met) == (3.0, 2.0, 4.0, 3, True)
    assert not line("x", costs(ours=[3.1], peer=[1.0]), "ours", "peer", bound=3.0).met
    fast = line("x", costs(ours=[1.0], peer=[8.0]), "ours", "peer", bound=8.0, at_least=True)
    assert fast.ratio == 8.0 and fast.met
    assert not line("x", costs(ours=[1.1], peer=[8.0]), "ours", "peer", bound=8.0, at_least=True).met


def test_rounds_are_interleaved_and_the_first_is_dropped():
    order = []
    cases = {name: lambda name=name: order.append(name) or Cost(len(order), 0, 0) for name in ("a", "b")}
    measured = interleaved(cases, 2)
    assert order == ["a", "b"] * 3
    assert [cost.cpu for cost in measured["a"]] == [3, 5]


@pytest.mark.parametrize(("power", "factor"), [(1.0, 3.0), (2.0, 0.1), (0.5, 7.0)])
def test_the_exponent_of_growth(power, factor):
    sizes = [10, 100, 1000]
    assert exponent(sizes, [factor * size**power for size in sizes]) == pytest.approx(power)


def test_data_are_the_same_bytes_each_time(tmp_path):
    for dirt in ("", "nan", "torn", "mixed"):
        first, second = (data.jsonl(tmp_path / name, 120, 12, dirt=dirt).read_bytes() for name in ("a", "b"))
        assert first == second
        assert (b"NaN" in first) == (dirt == "nan")


def test_the_page_tells_a_missed_bound_and_what_was_not_measured(tmp_path):
    row = Line(task="t", peer="p", clock="cpu", ratio=2.0, low=1.0, high=3.0, bound=1.5, note="n")
    page.write(tmp_path, [row, Unmeasured(task="u", why="w")], 1.0)
    text = (tmp_path / "benchmarks.md").read_text()
    assert "**missed**" in text and "- u: w." in text and "- t: n." in text
    held = json.loads((tmp_path / "benchmarks.json").read_text())
    assert held["lines"][0]["met"] is False and held["unmeasured"][0]["task"] == "u"


def test_a_missed_line_tells_what_limits_it_and_a_met_one_does_not(tmp_path):
    tasks = {"JSONL → columns, 100k × 40, NaN tokens in a tenth": 1.9, "1,000 runs of 500 records in one process": 9.0}
    rows = [
        Line(task=task, peer="p", clock="cpu", ratio=ratio, low=1.0, high=20.0, bound=1.8 if ratio < 2 else 15.0)
        for task, ratio in tasks.items()
    ]
    page.write(tmp_path, rows, 1.0)
    text = (tmp_path / "benchmarks.md").read_text()
    assert limit_of(rows[0].task) in text
    assert limit_of(rows[0].task) != limit_of("JSONL → columns, 100k × 40, clean")
    assert limit_of(rows[1].task) and limit_of(rows[1].task) not in text
    assert limit_of("something else") == ""


def test_every_line_that_the_published_table_misses_tells_what_limits_it(root):
    published = json.loads((root / "docs" / "benchmarks.json").read_text(encoding="utf-8"))["lines"]
    missed = [line["task"] for line in published if not line["met"]]
    assert [task for task in missed if not limit_of(task)] == []
