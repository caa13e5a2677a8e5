"""The story on a screen: over all sample logs within its lines, in the words of users, nothing said twice."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from ppo_doctor.checks.run_view import STATISTICS
from ppo_doctor.diagnosis.analyze import load_run
from ppo_doctor.model.diagnosis import Diagnosis
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.run import Run
from ppo_doctor.model.words import Confidence
from ppo_doctor.report import RenderOptions, render

from .cases import (
    CASES,
    CHANGED,
    CODE,
    FLAT_GROUPS,
    LOG,
    NOTHING_TO_LEARN,
    SET,
    TOGETHER,
    ZERO,
    healthy,
    observed,
    unhealthy,
)
from .test_html import a_run

SAMPLES = Path(__file__).resolve().parents[2] / "sample_logs"
LOGS = [
    log["path"]
    for log in tomllib.loads((SAMPLES / "index.toml").read_text(encoding="utf-8"))["log"]
    if log["verdict"] != "error"
]
INTERNAL = re.compile(rf"\b({'|'.join(name for name in STATISTICS if name not in METRICS and '_' in name)})\b")


@cache
def judged(path: str) -> tuple[Diagnosis, Run]:
    from ppo_doctor.checks.rulepack import load_pack
    from ppo_doctor.diagnosis.analyze import diagnose

    run = load_run(SAMPLES / path)
    return diagnose(run, load_pack()), run


def text(path: str, **options: object) -> str:
    values = {"width": 100, "color": False, "ascii": False} | options
    return render(*judged(path), RenderOptions(**values))  # type: ignore[arg-type]


def shown(found: Diagnosis, run: Run | None = None, **options: object) -> str:
    values = {"width": 100, "color": False, "ascii": False} | options
    return render(found, run, RenderOptions(**values))  # type: ignore[arg-type]


@pytest.mark.parametrize("path", LOGS)
def test_a_screen_of_a_sample_log(path: str) -> None:
    told = text(path)
    lines = told.splitlines()
    assert len(lines) <= (16 if lines[0].startswith("HEALTHY") else 24), told
    assert not INTERNAL.search(told), "a quantity of ours is named"
    assert "no fault was found that explains" not in told, "a healthy run is contradicted"
    sentences = [said for said in re.split(r"(?<=[.:;]) ", " ".join(told.split())) if len(said.split()) > 4]
    assert len(set(sentences)) == len(sentences), "something is said twice"
    quiet = text(path, quiet=True, fail_on="high").splitlines()
    assert len(quiet) <= 4
    assert quiet[-1].strip().startswith("exit code ")


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_page_keeps_start_and_end(width: int) -> None:
    lines = text("sick/nan-inf.sb3/progress.csv", width=width).splitlines()
    steps = [cell for cell in next(line for line in lines if line.startswith("   step  ")).split() if cell.isdigit()]
    assert (steps[0], steps[-1]) == ("1024", "40960")
    assert max(map(len, lines[1:])) <= width  # the path may be any length


def test_the_first_action_has_the_value_that_it_changes() -> None:
    assert "learning_rate: 0 → 0.001." in " ".join(text("sick/lr-zero.sb3/progress.csv").split())


@pytest.mark.parametrize("options", [{"why": True}, {"all": True}], ids=str)
def test_a_long_report_ends_with_verdict_and_first_action(options: dict[str, bool]) -> None:
    end = " ".join("\n".join(shown(unhealthy(), **options).splitlines()[-4:]).split())
    assert f"UNHEALTHY {ZERO.title}" in end
    assert "do num_generations: 8 → 16." in end


def test_quiet_is_verdict_problem_and_action() -> None:
    lines = shown(unhealthy(), quiet=True).splitlines()
    assert lines == [
        f"UNHEALTHY  {LOG}",
        f"   {ZERO.title}",
        "   do: num_generations: 8 → 16.",
    ]


def test_a_problem_has_the_line_of_an_observed_script_in_its_heading_and_below() -> None:
    lines = shown(observed()).splitlines()
    heading = next(at for at, line in enumerate(lines) if line.startswith("1 "))
    assert lines[heading].endswith("train.py:205")
    assert lines[heading + 1].split(maxsplit=1) == ["at", f"train.py:205 in update: {CODE.text}"]
    assert len(lines) <= 24
    assert "train.py:205" in shown(observed(), quiet=True)
    assert " – train.py:205" in " ".join(shown(observed(), why=True).split())  # in the account of the cause
    assert shown(observed(), all=True).count(CODE.text) == 2


def test_two_further_lines_of_code_are_below_the_first_problem_and_the_others_in_the_details() -> None:
    lines = shown(observed(TOGETHER)).splitlines()
    at = next(n for n, line in enumerate(lines) if line.split()[0:1] == ["at"])
    assert lines[at + 1 : at + 3] == [
        f"{' ' * 9}set at conf.py:26: EPS = 2e-6",
        f"{' ' * 9}called from train.py:231 in main: self.sync()",
    ]
    assert len(lines) <= 24
    assert CHANGED.does not in "\n".join(lines)
    for options in ({"why": True}, {"all": True}):
        assert f"{' ' * 9}changed at train.py:88 in anneal: eps *= decay" in shown(observed(TOGETHER), **options)
    assert shown(observed(TOGETHER), all=True).count(SET.does) == 2  # below the problem and its check
    assert SET.does not in shown(observed(TOGETHER), quiet=True)


def test_further_lines_of_code_go_before_the_report_is_longer_than_a_screen() -> None:
    problems = [replace(observed().problems[0], id=f"p{number}") for number in range(1, 6)]
    lines = shown(replace(observed(TOGETHER), problems=tuple(problems))).splitlines()
    assert len(lines) <= 24
    assert CODE.text in "\n".join(lines)


def test_a_line_of_code_reaches_no_terminal_unescaped() -> None:
    code = replace(CODE, file="a\x1b[2J.py", function="f\u202e", text="x = 1\n\x9b2J")
    assert not set("\x1b\x9b\u202e") & set(shown(observed(replace(code, also=(code,))), all=True, why=True))


def test_quiet_tells_the_exit_code_of_the_command() -> None:
    assert "exit code 1 (--fail-on high)" in shown(unhealthy(), quiet=True, fail_on="high")
    assert "exit code 0 (--fail-on never)" in shown(unhealthy(), quiet=True, fail_on="never")


def test_further_problems_are_told_within_the_same_lines() -> None:
    one = replace(FLAT_GROUPS, level_with=())
    causes = [replace(one, id=f"c{n}", rank=n, problem=f"p{n}", title=f"Fault {n}") for n in range(1, 5)]
    parts = [replace(NOTHING_TO_LEARN, id=f"p{n}", title=f"Finding {n}", follows=()) for n in range(1, 5)]
    for size in (1, 2, 4):
        found = replace(unhealthy(), causes=tuple(causes[:size]), problems=tuple(parts[:size]))
        lines = shown(found, a_run()).splitlines()
        assert len(lines) <= 24
        assert [line[3:12] for line in lines if line[:1].isdigit()] == [f"Finding {n}" for n in range(1, size + 1)]


def test_what_speaks_for_a_cause_is_behind_why() -> None:
    assert "Account" not in shown(unhealthy())
    assert "Signal chain" not in shown(unhealthy())
    assert "Account" in shown(unhealthy(), why=True)


def test_a_file_is_named_once() -> None:
    assert shown(unhealthy(), a_run()).count("run.jsonl") == 1
    assert "since step 12 · line 12" in " ".join(shown(unhealthy(), a_run()).split())


def test_the_remedy_that_harms_is_advised_against() -> None:
    cause = replace(FLAT_GROUPS, avoid="raising the limit: outputs are near-random")
    shape = " ".join(shown(replace(unhealthy(), causes=(cause,))).split())
    assert "not Raising the limit: outputs are near-random." in shape


def test_a_healthy_run_says_what_was_answered() -> None:
    assert "3 checks clear, 1 not run, mostly for lack of metrics." in " ".join(shown(healthy()).split())


@pytest.mark.parametrize("name", CASES)
def test_a_key_in_the_table_is_made_safe(name: str) -> None:
    evil = a_run(reward_mean=[1.0] * 412)
    held = {n: replace(s, raw="\x1b[31m" + "k" * 100) for n, s in evil.series.items()}
    assert "\x1b" not in shown(CASES[name], replace(evil, series=held))


@pytest.mark.parametrize(("confidence", "first"), [("suspected", "check"), ("likely", "do"), ("established", "do")])
def test_a_suspicion_is_settled_before_it_is_treated(confidence: Confidence, first: str) -> None:
    found = replace(unhealthy(), causes=(replace(FLAT_GROUPS, confidence=confidence),))
    labels = [line.split()[0] for line in shown(found).splitlines() if line.startswith("   ") and line.split()]
    assert next(label for label in labels if label in ("do", "check")) == first
