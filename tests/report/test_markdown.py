"""The Markdown report: whole reports letter by letter, and nothing of a log that acts as markup."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from markdown_it import MarkdownIt

from ppo_doctor.diagnosis.gate_result import GateItem, GateResult
from ppo_doctor.model.errors import ExitCode
from ppo_doctor.report import RenderOptions, render, render_many
from ppo_doctor.report.escape import md, md_code, md_line
from tests.report.cases import CASES, CODE, LOG, TOGETHER, observed, unhealthy
from tests.report.golden import check_golden
from tests.report.test_html import a_run

GFM = MarkdownIt("commonmark").enable("table")


def tokens(text):
    return [inner for token in GFM.parse(text) for inner in (token, *(token.children or ()))]


def shown(text):
    return "".join(t.content for t in tokens(text) if t.type in ("text", "code_inline"))


def test_golden():
    check_golden("unhealthy.md", render(unhealthy(), None, RenderOptions(), "markdown"))


@pytest.mark.parametrize("name", [name for name in CASES if name != "hostile"])
def test_a_report_names_the_verdict_and_every_problem(name):
    text = shown(render(CASES[name], None, RenderOptions(), "markdown"))
    assert CASES[name].verdict in text.lower()
    assert [problem.title for problem in CASES[name].problems if problem.title not in text] == []


@pytest.mark.parametrize("text", [CODE.text, "x = `a` | b  # <img src=x> [link](http://e.vil)"])
def test_the_line_of_an_observed_script_is_one_code_span(text):
    report = render(observed(replace(CODE, text=text)), None, RenderOptions(all=True), "markdown")
    spans = [token.content for token in tokens(report) if token.type == "code_inline"]
    line = f"train.py:205 in update: {text}".replace("|", r"\|").replace("  ", " ")
    assert line in spans
    assert [" ".join(span.split()) for span in spans].count(line) == 2  # of the problem, and of its check


def test_further_lines_of_an_observed_script_are_items_below_the_first():
    report = render(observed(TOGETHER), None, RenderOptions(all=True), "markdown")
    rows = [f"- **at** `{TOGETHER.says}`", *(f"  - `{each.does}`" for each in TOGETHER.also)]
    assert "\n".join(rows) in report
    spans = [token.content for token in tokens(report) if token.type == "code_inline"]
    assert [spans.count(each.does) for each in TOGETHER.also] == [2, 2, 2]


def test_accounts_are_told_on_request():
    amounts = [str(abs(line.db)) for line in unhealthy().causes[0].ledger]
    text = shown(render(unhealthy(), None, RenderOptions(why=True, all=True), "markdown"))
    assert all(amount in text for amount in amounts)
    assert [f.rule for f in unhealthy().findings if f.rule not in text] == []


def test_golden_of_several_runs():
    ours = [CASES["unhealthy"], CASES["healthy"]]
    check_golden("several.md", render_many(ours, RenderOptions(), "markdown"))


@pytest.mark.parametrize("options", [RenderOptions(), RenderOptions(why=True, all=True), RenderOptions(quiet=True)])
def test_text_from_a_log_is_never_markup(options):
    text = render(CASES["hostile"], None, options, "markdown")
    assert not {token.type for token in tokens(text)} & {"link_open", "image", "fence", "code_block"}
    html = [token.content for token in tokens(text) if token.type.startswith("html")]
    ours = ("<!-- ppo-doctor -->", "<details><summary>", "</details>", "<sub>", "</sub>")
    assert all(block.startswith(ours) for block in html)
    assert not any(character in text for character in "\x1b\x07\x9b\u202e\u200b\udcff")


@pytest.mark.parametrize(
    "text",
    [
        "[a](http://e.vil)",
        "<script>alert(1)</script>",
        "![x](y)",
        "a | b",
        "**bold** _em_ ~~gone~~",
        "`code`",
        "&lt;b&gt;",
        "$x$",
        "http://e.vil and www.e.vil",
        "@somebody, see #12 and GH-7",
        "\\*not escaped\\*",
    ],
)
def test_a_sentence_shows_as_it_was_written(text):
    assert {t.type for t in tokens(md(text))} <= {"paragraph_open", "paragraph_close", "inline", "text", "text_special"}
    assert "".join(t.content for t in tokens(md(text)) if t.type == "text").replace("\u200b", "") == text


@pytest.mark.parametrize("text", ["@somebody", "#12", "http://e.vil", "www.e.vil", "GH-7"])
def test_nothing_links_or_notifies(text):
    assert "&#8203;" in md(text)


@pytest.mark.parametrize("text", ["# heading", "- item", "+ item", "1. item", "12) item", "> quote", "=== x", "---"])
def test_a_sentence_at_the_start_of_a_line_opens_nothing(text):
    assert [t.type for t in GFM.parse(md_line(text))] == ["paragraph_open", "inline", "paragraph_close"]
    assert shown(md_line(text)) == text


@pytest.mark.parametrize("text", ["plain", "a`b", "``", "`edge`", "", "x\ny"])
def test_a_name_is_one_code_span(text):
    spans = [t.content for t in tokens(md_code(text)) if t.type == "code_inline"]
    assert spans in ([text.replace("\n", "\\n")], [" "], [f" {text} "])


def test_a_row_of_a_table_keeps_its_cells():
    table = f"| a | b |\n|---|---|\n| {md('x | y')} | {md_code('p|q')} |"
    assert [t.type for t in tokens(table)].count("td_open") == 2


def test_a_gate_tells_what_it_held():
    result = GateResult(
        code=ExitCode.SICK,
        items=(
            GateItem(kind="cause", name="adv-exactly-zero", outcome="failed", message="adv-exactly-zero <b>leads</b>"),
        ),
        fixed=("lr-zero",),
    )
    text = render(unhealthy(), None, RenderOptions(gate_results={LOG: result}), "markdown")
    assert "gate failed" in text
    assert "- **failed:** adv-exactly-zero &lt;b&gt;leads" in text
    assert "- **fixed:** lr-zero" in text


def test_a_run_takes_sixty_lines_however_many_problems_it_has():
    """Three problems are told in full, each further one in a line; on request there is more."""
    cause = replace(unhealthy().causes[0], level_with=())
    causes = tuple(replace(cause, id=f"c{n}", rank=n, title=f"Cause {n}", problem=f"p{n}") for n in range(1, 9))
    shown = unhealthy().problems[0]
    problems = tuple(replace(shown, id=f"p{n}", title=f"Title {n}", follows=()) for n in range(1, 9))
    found = replace(unhealthy(), causes=causes, problems=problems)
    run = a_run(
        **{name: np.ones(412) for name in ("reward_mean", "entropy", "approx_kl", "clip_fraction", "grad_norm")}
    )
    text = render(found, run, RenderOptions(), "markdown")
    assert len(text.splitlines()) <= 60
    assert all(f"Title {n}" in text for n in range(1, 9))
    assert [t.type for t in tokens(text)].count("tr_open") == 7
    assert len(render(found, run, RenderOptions(why=True, all=True), "markdown")) > len(text)


def test_what_is_no_part_of_the_story_is_folded():
    text = render(unhealthy(), None, RenderOptions(), "markdown")
    told, folded = text.split("<details>")
    assert unhealthy().causes[0].title in told
    assert "reward-function-crashes" in folded
    assert "reward-function-crashes" not in told


def test_the_gravest_run_is_the_first_row():
    ours = [replace(CASES[name], run=replace(CASES[name].run, id=name)) for name in ("healthy", "warning", "unhealthy")]
    rows = [line for line in render_many(ours, RenderOptions(quiet=True), "markdown").splitlines() if "`" in line]
    assert [row.split("|")[1].strip() for row in rows] == ["unhealthy", "warning", "healthy"]
    assert "num\\_generations: 8 → 16" in rows[0]


def test_a_comment_stays_within_what_github_takes():
    text = render_many([CASES["hostile"]] * 20, RenderOptions(all=True), "markdown")
    assert len(text) < 65_536
    assert "more parts are left out" in text
