"""Escapes, wrapping, sparklines and the picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from ppo_doctor.report import RenderOptions, render
from ppo_doctor.report.escape import bounded, plain, prose
from ppo_doctor.report.layout import BOUND, Page, Span, columns, spans, sparkline, wrap

from .cases import ATTACK, CASES, ZALGO


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("loss 0.5", "loss 0.5"),
        ("C:\\runs\\a", "C:\\runs\\a"),
        ("наград – 損失", "наград – 損失"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b", r"\x9b"),
        ("\u202e\u2066\u200b\ufeff", r"\u202e\u2066\u200b\ufeff"),
        ("\U000e0041", r"\U000e0041"),
        ("\udc80", r"\udc80"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\u2028\u3164\ufe0f", r"\u2028\u3164\ufe0f"),
    ],
)
def test_plain(text: str, safe: str) -> None:
    assert plain(text) == safe
    assert plain(safe) == safe


def test_prose_joins_lines_and_plain_keeps_them_visible() -> None:
    assert prose("one\n  two\tthree ") == "one two three"


def test_marks_do_not_pile_up() -> None:
    assert columns(plain(ZALGO, 5000)) == 1 + 197 * len(r"\u0301")


def test_bounded_says_how_much_is_gone() -> None:
    assert bounded("x" * 1000, 30) == "x" * 20 + "…[970 characters left out]…" + "x" * 10
    assert len(plain(ATTACK * 1000)) < 340


def test_wrap_hangs_and_cuts_nothing() -> None:
    lines = ["".join(s.text for s in line) for line in wrap(spans("aa bbbb a/path/that/is/long c"), 8, "- ", "  ")]
    assert lines == ["- aa", "  bbbb", "  a/path/that/is/long", "  c"]


def test_wrap_counts_columns_of_wide_characters() -> None:
    assert columns("損失") == 4
    assert len(wrap(spans("損失 損失"), 8)) == 2


def test_bound_words_stay_together() -> None:
    lines = wrap(spans(f"from step{BOUND}12 on"), 12)
    assert ["".join(s.text for s in line) for line in lines] == ["from step 12", "on"]


def test_styles_survive_wrapping() -> None:
    (line,) = wrap((Span("a ", "bold"), Span("b", "red"), Span("c")), 20)
    assert line == (Span("a", "bold"), Span(" "), Span("b", "red"), Span("c"))


def test_one_blank_line_is_enough() -> None:
    page = Page(width=40)
    page.blank()
    page.add("a")
    page.blank()
    page.blank()
    page.add("b")
    assert page.text() == "a\n\nb\n"


@pytest.mark.parametrize(
    ("points", "drawn"),
    [
        ([], ""),
        ([0.0, 0.0], "▁▁"),
        ([2.0, 2.0], "▄▄"),
        ([0.0, 1.0, None, float("nan"), float("inf"), float("-inf")], "▁█·×↑↓"),
        ([0.0] * 50 + [9.0] + [0.0] * 49, "▁" * 16 + "█" + "▁" * 17),
    ],
)
def test_sparkline(points: list[float | None], drawn: str) -> None:
    assert sparkline(points) == drawn


@pytest.mark.parametrize("name", CASES)
def test_the_picture_is_well_formed_and_fetches_nothing(name: str) -> None:
    picture = render(CASES[name], None, RenderOptions(), "svg")
    ET.fromstring(picture)  # noqa: S314 (our own picture)
    assert "url(http" not in picture.replace('"', "").replace("'", "")
    assert "<script" not in picture
    assert picture == render(CASES[name], None, RenderOptions(), "svg")
