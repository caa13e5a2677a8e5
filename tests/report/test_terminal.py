"""The terminal report: whole texts, widths, alphabets, colours, and text that attacks the terminal."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import pytest

from ppo_doctor.model.diagnosis import Diagnosis
from ppo_doctor.report import RenderOptions, render, render_error, render_many
from ppo_doctor.report.layout import columns
from ppo_doctor.report.terminal import names, wants_color

from .cases import BROKEN, CASES, FLAT_GROUPS, LOG, diagnosis, hostile, inconclusive, summary, unhealthy
from .golden import check_golden

ANSI = re.compile(r"\x1b\[[0-9;]*m")
TAME = [name for name in CASES if name != "hostile"]
GOLDENS = {
    "healthy": ("healthy", {}),
    "inconclusive": ("inconclusive", {}),
    "unhealthy": ("unhealthy", {}),
    "unhealthy-60": ("unhealthy", {"width": 60}),
    "unhealthy-why": ("unhealthy", {"why": True}),
}


def text(found: Diagnosis, **options: object) -> str:
    values = {"width": 80, "color": False, "ascii": False} | options
    return render(found, None, RenderOptions(**values))  # type: ignore[arg-type]


@pytest.mark.parametrize("golden", GOLDENS)
def test_golden(golden: str) -> None:
    name, options = GOLDENS[golden]
    check_golden(f"{golden}.txt", text(CASES[name], **options))


@pytest.mark.parametrize("name", TAME)
def test_a_report_opens_with_its_verdict_and_is_no_longer_than_a_screen(name: str) -> None:
    lines = text(CASES[name]).splitlines()
    assert lines[0].startswith(CASES[name].verdict.upper())
    assert len(lines) <= 24


@pytest.mark.parametrize("name", TAME)
def test_all_lists_every_check(name: str) -> None:
    checks = text(CASES[name], all=True).split("\nChecks  ")[1]
    assert [finding.rule for finding in CASES[name].findings if finding.code not in checks] == []


def test_golden_of_several_runs() -> None:
    runs = [replace(CASES[n], run=replace(CASES[n].run, id=f"runs/{n}/run.jsonl")) for n in TAME]
    check_golden("several.txt", render_many(runs, RenderOptions(width=80, color=False, ascii=False)))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("width", "options"),
    [(60, {}), (80, {}), (160, {}), (60, {"why": True, "all": True}), (100, {"why": True}), (60, {"ascii": True})],
    ids=str,
)
def test_only_unbreakable_words_are_wider_than_the_page(name: str, width: int, options: dict[str, bool]) -> None:
    for line in text(CASES[name], width=width, **options).splitlines():
        assert columns(line) <= width or " " not in line.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ ?✗!")
        assert line == line.rstrip()


@pytest.mark.parametrize("options", [{}, {"why": True}, {"all": True}, {"quiet": True}, {"color": True}], ids=str)
def test_hostile_text_reaches_no_terminal(options: dict[str, bool]) -> None:
    shown = ANSI.sub("", text(hostile(), **options))
    assert all(character == "\n" or character.isprintable() for character in shown)
    assert r"\x1b[31mred\x1b]8;;http://e.vil\x07 \x9b2J [bold" in shown
    assert re.search(r"\[\d+ characters left out\]", " ".join(shown.split()))
    assert shown.encode("utf-8")


def test_no_line_of_a_hostile_report_begins_like_ours() -> None:
    """A log cannot write a verdict of its own: its line ends are escaped, and its lines are indented."""
    forged = "ok\n\nHEALTHY  all is well\nCause\n1  none"
    found = diagnosis((BROKEN,), run=summary(notes=(forged,), framework=forged), verdict_because=forged)
    lines = text(found).splitlines()
    assert sum(line.startswith("HEALTHY") for line in lines) == 1
    assert not [line for line in lines if line.startswith(("Cause", "1  "))]


@pytest.mark.parametrize("name", CASES)
def test_ascii_is_ascii(name: str) -> None:
    for options in ({}, {"why": True}, {"all": True}):
        assert text(CASES[name], ascii=True, **options).isascii()


def test_an_output_that_cannot_encode_our_signs_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    class Latin:
        encoding = "latin-1"

        def isatty(self) -> bool:
            return False

    monkeypatch.setattr(sys, "stdout", Latin())
    assert text(unhealthy(), ascii=None).isascii()


@pytest.mark.parametrize("name", CASES)
def test_colour_changes_no_letter(name: str) -> None:
    painted = text(CASES[name], color=True)
    assert "\x1b[" in painted
    assert ANSI.sub("", painted) == text(CASES[name])


def test_no_colour_means_no_escape() -> None:
    assert "\x1b" not in text(unhealthy(), color=False)


def test_environment_decides_where_nobody_else_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert wants_color(None)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_color(None)
    assert wants_color(True)
    assert "\x1b[" in text(unhealthy(), color=True)


def test_columns_are_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert text(unhealthy(), width=None) == text(unhealthy(), width=60)


def test_an_errored_check_is_always_named() -> None:
    for options in ({}, {"all": True}, {"why": True}):
        assert "KL001 kl-runaway: ZeroDivisionError" in text(CASES["errored"], **options)


def test_unanswered_questions_are_not_silent() -> None:
    told = " ".join(text(inconclusive()).split())
    assert "Open: whether the policy moves (log ratio_std, ratio_max or clip_fraction), whether there is a" in told
    shown = text(inconclusive(), why=True)
    block = shown.split("Not answered")[1].split("Checks")[0]
    assert "whether the policy moves" in block
    assert "needs a reward" in block
    assert "ratio_std, ratio_max, clip_fraction" in " ".join(shown.split())
    assert "whether the numbers are finite" not in block


def test_the_account_adds_up() -> None:
    shown = text(unhealthy(), why=True)
    account = shown.split("Account")[1].split("Try first")[0]
    amounts = [int(n.replace("−", "-")) for n in re.findall(r"^ +([+−]?\d+)  ", account, re.MULTILINE)]
    assert sum(amounts[:-1]) == amounts[-1] == FLAT_GROUPS.score_db


def test_long_paths_are_told_once() -> None:
    folder = "/data/experiments/2024-05-01/a-very-long-name/"

    def moved(value: str) -> str:
        return value.replace("runs/exp1/", folder)

    found = unhealthy()
    causes = tuple(replace(c, ledger=tuple(replace(e, says=moved(e.says)) for e in c.ledger)) for c in found.causes)
    sources = (replace(found.run.sources[0], path=moved(LOG)),)
    run = replace(found.run, id=moved(LOG), sources=sources, notes=(moved(found.run.notes[0]),))
    shown = text(replace(found, run=run, causes=causes), why=True)
    assert shown.count(folder) == 1
    assert "(run.jsonl:12)" in shown


def test_an_error_as_text() -> None:
    assert render_error("no\x1b[2J file", "look again", 3) == "no\\x1b[2J file\nlook again\n"


def test_a_run_alone_in_its_folder_is_named_by_it_whatever_the_others_are():
    assert names(["x/a/events.1", "x/b/events.2", "x/c/events.3", "x/c/events.4"]) == [
        *("a", "b"),
        *("c/events.3", "c/events.4"),
    ]
    assert names(["x/a/events.1", "x/b/events.2"]) == ["a", "b"]
    assert names(["events.1", "events.2"]) == ["events.1", "events.2"]
