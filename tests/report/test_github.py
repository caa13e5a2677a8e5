"""Workflow commands: one line each, escaped, at the right place, and never more than GitHub shows."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ppo_doctor.diagnosis.gate_result import GateItem, GateResult
from ppo_doctor.model.errors import ExitCode
from ppo_doctor.report import RenderOptions, render, render_error, render_many
from ppo_doctor.report.github import MOST, guarded, summary
from tests.report.cases import CASES, LOG, TOGETHER, observed, unhealthy
from tests.report.golden import check_golden

COMMAND = re.compile(r"::(error|warning|notice) (?:file=[^,:]+,(?:line=\d+,)?)?title=[^:]*::[^\r\n]*\Z")


def annotations(diagnosis, **options):
    return render(diagnosis, None, RenderOptions(**options), "github").splitlines()


def test_golden():
    check_golden("unhealthy.github.txt", render(unhealthy(), None, RenderOptions(), "github"))


@pytest.mark.parametrize(("name", "lines"), [("inconclusive", 1), ("errored", 2)])
def test_a_run_that_cannot_be_judged_is_a_warning(name, lines):
    assert [line.split()[0] for line in annotations(CASES[name])] == ["::warning"] * lines


@pytest.mark.parametrize("name", list(CASES))
def test_every_line_is_one_command(name):
    assert all(COMMAND.match(line) for line in annotations(CASES[name]))


def test_a_healthy_run_says_nothing():
    assert annotations(CASES["healthy"]) == []
    assert annotations(CASES["benign"]) == []


def test_the_place_is_the_log_line():
    assert annotations(unhealthy())[0].startswith(f"::error file={LOG},line=12,title=ppo-doctor%3A adv-exactly-zero")


def test_the_place_is_the_line_of_an_observed_script():
    (line,) = annotations(observed())
    assert line.startswith("::error file=train.py,line=205,title=ppo-doctor%3A adv-exactly-zero")
    assert "train.py:205 in update: loss = -torch.min(a, b).mean()" in line


def test_further_lines_of_an_observed_script_are_in_the_annotation():
    (line,) = annotations(observed(TOGETHER))
    assert line.startswith("::error file=train.py,line=205,")
    assert ". Set at conf.py:26: EPS = 2e-6. Called from train.py:231 in main: self.sync(). Changed at" in line


@pytest.mark.parametrize("text", ["a\n::error::b", "100%", "a\r\nb", "x,y:z", "::stop-commands::t"])
def test_a_title_cannot_leave_its_line(text):
    cause = replace(unhealthy().causes[0], id=text, title=text, says=text)
    shown = replace(unhealthy().problems[0], title=text)
    (line,) = annotations(replace(unhealthy(), causes=(cause,), problems=(shown,)))
    assert COMMAND.match(line)
    assert "%250A" not in line


def test_a_gate_that_passes_warns_only():
    result = GateResult(code=ExitCode.OK)
    assert {line.split()[0] for line in annotations(unhealthy(), gate_results={LOG: result})} == {"::warning"}


def test_a_broken_budget_is_an_error():
    held = GateItem(kind="budget", name="approx_kl.p95 < 0.05", outcome="failed", message="approx_kl.p95 is 0.2")
    (line,) = annotations(CASES["healthy"], gate_results={LOG: GateResult(code=ExitCode.SICK, items=(held,))})
    assert line.startswith("::error file=")
    assert line.endswith("::approx_kl.p95 is 0.2")


def test_more_than_github_shows_are_counted():
    many = [replace(unhealthy(), run=replace(unhealthy().run, id=str(n))) for n in range(3)]
    causes = [replace(unhealthy().causes[0], id=f"cause-{n}", problem=f"p{n}") for n in range(MOST + 3)]
    parts = [replace(unhealthy().problems[0], id=f"p{n}") for n in range(MOST + 3)]
    one = replace(many[0], causes=tuple(causes), problems=tuple(parts))
    lines = render_many([one], RenderOptions(), "github").splitlines()
    assert len(lines) == MOST + 1
    assert lines[-1].startswith("3 more")


def test_an_error_is_an_annotation():
    assert render_error("no file", "look", 3, "github") == "::error title=ppo-doctor (exit code 3)::no file. look\n"


def test_text_of_a_log_cannot_act_inside_a_guard():
    text = guarded("   ::error::forged\n", "0123abc")
    assert text.splitlines() == ["::stop-commands::0123abc", "   ::error::forged", "::0123abc::"]


def test_the_summary_is_markdown():
    assert summary([CASES["healthy"]], RenderOptions()).startswith("<!-- ppo-doctor -->")
    assert "2 runs" in summary([CASES["healthy"], CASES["unhealthy"]], RenderOptions())
