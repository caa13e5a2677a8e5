"""A comparison as people read it: on one screen, in its order, with the keys of the log; and as a page."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

from ppo_doctor.cli.compare import compare_sources
from ppo_doctor.model.request import Request
from ppo_doctor.report import RenderOptions
from ppo_doctor.report.compare import Comparison, Difference
from ppo_doctor.report.comparison import as_html, as_text
from ppo_doctor.report.layout import columns
from tests.report.golden import check_golden

SAMPLES = Path(__file__).resolve().parent.parent.parent / "sample_logs"
SICK = ("adv-exactly-zero", "lr-zero", "nan-inf", "target-kl-stops-early", "clip-range-too-small")
LOGS = [f"sick/{name}.sb3" for name in SICK] + ["healthy/healthy.sb3", "benign/benign-single-update.sb3"]
PAIRS = list(combinations(LOGS, 2))


@cache
def compared(a: str, b: str) -> Comparison:
    return compare_sources([str(SAMPLES / a), str(SAMPLES / b)], Request(), (), group=False)


def lines(a: str, b: str, width: int = 100, **options: bool) -> list[str]:
    return as_text(compared(a, b), RenderOptions(width=width, color=False, ascii=False, **options)).splitlines()


def test_golden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SAMPLES.parent)
    pair = [f"sample_logs/{name}" for name in ("sick/lr-zero.sb3", "healthy/healthy.sb3")]
    found = compare_sources(pair, Request(), (), group=False)
    check_golden("comparison.txt", as_text(found, RenderOptions(width=100, color=False, ascii=False)))


@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_a_comparison_fits_one_screen(pair: tuple[str, str]) -> None:
    told = lines(*pair)
    assert len(told) <= 24
    assert max(map(columns, told)) <= 100


def test_the_verdict_comes_last_and_reward_first() -> None:
    told = "\n".join(lines("sick/lr-zero.sb3", "healthy/healthy.sb3"))
    order = ["\nreward", "\ndiverged", "\nsettings", "\nA  ", "do ", "\nB  HEALTHY"]
    assert [told.find(part) for part in order] == sorted(told.find(part) for part in order)
    assert all(part in told for part in order)


def test_metrics_are_named_as_logged() -> None:
    told = "\n".join(lines("sick/lr-zero.sb3", "healthy/healthy.sb3", all=True))
    assert "train/approx_kl" in told
    assert "rollout/ep_rew_mean" in told


def test_what_has_no_room_is_counted() -> None:
    a, b = "sick/nan-inf.sb3", "healthy/healthy.sb3"
    few, every = lines(a, b, 100), lines(a, b, 100, all=True)
    assert not any("more, --all" in line for line in every)
    assert len(every) >= len(few)


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_comparison_keeps_its_order(width: int) -> None:
    told = lines("sick/lr-zero.sb3", "healthy/healthy.sb3", width)
    assert max(map(columns, told)) <= width


def drawn(a: str, b: str) -> str:
    return as_html(compared(a, b), RenderOptions(all=True))


def test_a_page_draws_both_curves_with_the_step_of_parting() -> None:
    found, source = (
        compared("sick/lr-zero.sb3", "healthy/healthy.sb3"),
        drawn("sick/lr-zero.sb3", "healthy/healthy.sb3"),
    )
    parted = found.divergences or ()
    assert source.count('class="line other"') == len(parted) + 1  # and that of the reward
    assert all(f"diverged: step {divergence.step}<" in source for divergence in parted)


def test_a_page_fetches_and_runs_nothing() -> None:
    source = drawn("sick/lr-zero.sb3", "healthy/healthy.sb3")
    assert "<script" not in source
    assert re.findall(r"""(?:src|href)=|url\((?!["']?#)|@import""", source) == []
    assert "default-src 'none'" in html.unescape(source)
    assert "script-src" not in source


def test_what_a_log_says_is_escaped() -> None:
    found = compared("sick/lr-zero.sb3", "healthy/healthy.sb3")
    evil = Difference(key="<script>alert(1)</script>", canonical=None, a="\x1b[2J", b="<img src=x>")
    found = replace(found, a=replace(found.a, name="<b>run\u202e"), differences=(evil,))
    source = as_html(found, RenderOptions())
    assert "<script" not in source
    assert "<img" not in source
    assert "<b>" not in source
    assert not {"\x1b", "\u202e"} & set(source + as_text(found, RenderOptions(color=False)))


def test_runs_of_different_lengths_and_without_numbers_are_drawn() -> None:
    source = drawn("sick/nan-inf.sb3", "healthy/healthy.sb3")
    assert "NaN" in source
