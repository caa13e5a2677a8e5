"""The table of several runs: the gravest first, a line for each, at every width."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ppo_doctor.model.rules import Remedy
from ppo_doctor.report import RenderOptions, render_many
from ppo_doctor.report.layout import Page, columns
from ppo_doctor.report.summary import summarize
from ppo_doctor.report.terminal import cut, fleet
from tests.report.cases import CASES, ZERO


def text(names: list[str], width: int = 100, **options: bool) -> str:
    runs = [replace(CASES[n], run=replace(CASES[n].run, id=f"runs/{n}-{i}/run.jsonl")) for i, n in enumerate(names)]
    return render_many(runs, RenderOptions(width=width, color=False, ascii=False, **options))


def test_the_gravest_stands_first() -> None:
    lines = text(["healthy", "inconclusive", "warning", "unhealthy", "healthy"]).splitlines()
    assert [line.split()[0] for line in lines[1:6]] == ["unhealthy", "warning", "inconclusive", "healthy", "healthy"]


def test_a_run_is_named_by_what_tells_it_apart() -> None:
    first = text(["unhealthy", "warning", "healthy", "healthy"]).splitlines()[1]
    assert "unhealthy-0" in first
    assert "run.jsonl" not in first


def test_a_line_tells_verdict_problem_and_action() -> None:
    lines = text(["unhealthy", "healthy", "healthy", "healthy"]).splitlines()
    assert ZERO.title in lines[1]
    assert "num_generations: 8 → 16" in lines[1]
    assert len(lines) == 5


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_no_line_is_wider_than_the_page(width: int) -> None:
    lines = text([name for name in CASES for _ in range(4)], width).splitlines()
    assert max(map(columns, lines)) <= width


def test_few_runs_are_told_and_the_gravest_is_last() -> None:
    told = text(["healthy", "unhealthy"])
    assert "UNHEALTHY" in told
    assert told.splitlines()[-1].startswith("unhealthy")


def test_many_runs_are_told_on_request_only() -> None:
    many = ["unhealthy", "warning", "healthy", "healthy"]
    assert "UNHEALTHY" not in text(many)
    assert "UNHEALTHY" in text(many, all=True)
    assert "UNHEALTHY" not in text(many[:2], quiet=True)


def test_of_very_many_runs_the_healthy_ones_are_counted() -> None:
    many = ["healthy"] * 30 + ["unhealthy"]
    assert len(text(many).splitlines()) == 3
    assert "30 healthy" in text(many).splitlines()[-1]
    assert text(many, all=True).splitlines()[1:32].pop().startswith("healthy")


def test_an_action_begins_with_the_value_to_give() -> None:
    told = summarize(CASES["unhealthy"], None)
    action = Remedy(do="Lower it.", key="lr", now="1e-4", then="1e-5")
    page = Page(width=100)
    fleet(
        page,
        [(CASES["unhealthy"], replace(told, problems=(replace(told.problems[0], do=(action,)),)))],
        everything=False,
    )
    assert "lr: 1e-4 → 1e-5" in page.text().splitlines()[1]


def test_text_is_cut_between_words() -> None:
    assert cut("one two three", 13) == "one two three"
    assert cut("one two three", 12) == "one two…"
    assert cut("one two three", 8) == "one two…"
    assert cut("unbreakable", 6) == "unbre…"
