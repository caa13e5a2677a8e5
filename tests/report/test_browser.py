"""The HTML report in a real browser, opened from disk; skipped where no Chromium is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ppo_doctor.report import RenderOptions, render, render_many

from .browser import CHROMIUM, Tab, browser
from .cases import CASES, hostile, unhealthy
from .test_html import INJECTION, a_run, injected

pytestmark = pytest.mark.skipif(CHROMIUM is None or sys.platform == "win32", reason="no Chromium on the path")

LONG = 10_000
SIGNS = {name: np.linspace(0.0, 1.0, 412) ** 2 for name in ("reward_mean", "approx_kl", "entropy")}
VIEWS = [(390, False), (390, True), (1600, False), (1600, True)]
FOCUSABLE = "a[href], button:not([hidden]), input:not([hidden]), summary"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    steps = np.arange(LONG)
    noisy = {"kl": np.sin(steps / 90) + (steps * 7919 % 100) / 100, "loss": np.where(steps > 6000, np.nan, steps)}
    long = a_run(LONG, **noisy)
    several = [replace(found, run=replace(found.run, id=f"runs/{i}")) for i, found in enumerate(CASES.values())]
    texts = {
        "long": render(unhealthy(), long, RenderOptions(), "html"),
        "healthy": render(CASES["healthy"], a_run(**SIGNS), RenderOptions(), "html"),
        "several": render_many(several, RenderOptions(), "html", [a_run() for _ in several]),
        "hostile": render(hostile(), a_run(), RenderOptions(), "html"),
        "injected": render(injected(), a_run(**{f"raw{INJECTION}": np.ones(412)}), RenderOptions(), "html"),
    }
    paths = {name: folder / f"{name}.html" for name in texts}
    for name, text in texts.items():
        paths[name].write_text(text, encoding="utf-8")
    return paths


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.mark.parametrize("name", ["long", "healthy", "several", "hostile", "injected"])
@pytest.mark.parametrize(("width", "dark"), VIEWS)
def test_no_error_no_request_and_nothing_beside_the_page(
    tab: Tab, pages: dict[str, Path], name: str, width: int, dark: bool
) -> None:
    tab.open(pages[name], width, dark=dark)
    assert tab.events("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled") == []
    asked = {event["request"]["url"] for event in tab.events("Network.requestWillBeSent")}
    assert {url for url in asked if not url.startswith("data:")} == {pages[name].as_uri()}
    assert tab.js("document.documentElement.scrollWidth <= innerWidth")
    cut = (
        "[...document.querySelectorAll('button, .badge, .link .name')].filter((e) => e.scrollWidth > e.clientWidth + 1)"
    )
    assert tab.js(f"{cut}.map((e) => e.textContent)") == []
    assert tab.js("document.scripts.length") == 1
    assert tab.js("!document.querySelector('#theme').hidden"), "the script did not run"


def test_a_script_that_a_log_smuggled_in_would_not_run(tab: Tab, pages: dict[str, Path]) -> None:
    """Beside the escaping: the policy of the page stops what escaping might miss."""
    tab.open(pages["healthy"], 1600)
    tab.js("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.evil = 1'}))")
    assert tab.js("window.evil === undefined")
    assert "Content Security Policy" in str(tab.events("Log.entryAdded"))


@pytest.mark.parametrize("name", ["long", "healthy", "several"])
def test_plots_are_drawn(tab: Tab, pages: dict[str, Path], name: str) -> None:
    tab.open(pages[name], 1600)
    sizes = tab.js(
        "[...document.querySelectorAll('.plot .line')].map((line) => [line.getTotalLength(),"
        " line.closest('.data').getBoundingClientRect().width])"
    )
    assert len(sizes) >= 3
    assert all(length > 100 and width > 300 for length, width in sizes)
    assert tab.js("document.querySelectorAll('.scrub').length") == len(sizes)


def test_a_long_run_is_few_points_and_a_small_file(tab: Tab, pages: dict[str, Path]) -> None:
    assert pages["long"].stat().st_size < 2_000_000
    tab.open(pages["long"], 1600)
    points = tab.js(
        "[...document.querySelectorAll('.plot .line')].map((l) => l.getAttribute('d').match(/[ML]/g).length)"
    )
    assert max(points) <= 800
    assert tab.js("document.querySelectorAll('*').length") < 3000


def test_themes_differ_and_the_button_changes_them(tab: Tab, pages: dict[str, Path]) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    tab.open(pages["healthy"], 1600)
    light = tab.js(paper)
    tab.open(pages["healthy"], 1600, dark=True)
    dark = tab.js(paper)
    assert light != dark
    tab.js("document.querySelector('#theme').click()")
    assert tab.js(paper) == light
    tab.js("document.querySelector('#theme').click()")
    tab.js("localStorage.clear()")


@pytest.mark.parametrize("width", [390, 1600])
def test_everything_is_within_reach_of_the_keyboard(tab: Tab, pages: dict[str, Path], width: int) -> None:
    tab.open(pages["long"], width)
    tab.js("document.activeElement.blur()")
    visible = f"[...document.querySelectorAll('{FOCUSABLE}')].filter((e) => e.checkVisibility())"
    wanted = tab.js(f"({visible}).length")
    tab.js(f"window.reached = new Set(); window.wanted = {visible}")
    outlines = []
    for _ in range(wanted + 2):
        tab.press("Tab", code=9)
        outlines.append(
            tab.js(
                "{ const e = document.activeElement; reached.add(e); const o = (n) => getComputedStyle(n).outlineStyle;"
                " e === document.body || o(e) !== 'none' || o(e.closest('.plot') || e) !== 'none' }"
            )
        )
    assert tab.js("wanted.filter((e) => !reached.has(e)).map((e) => e.outerHTML.slice(0, 80))") == []
    assert all(outlines), "a focused element does not look focused"


def test_the_keyboard_unfolds_reads_out_and_searches(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["long"], 1600)
    tab.js("document.querySelector('.problem summary').focus()")
    tab.press("Enter", code=13, text="\r")
    assert tab.js("document.activeElement.parentElement.open")
    tab.js("document.querySelector('.scrub').focus()")
    first = tab.js("document.querySelector('.reading').textContent")
    tab.press("ArrowRight", code=39)
    assert first.startswith("step 1:")
    assert tab.js("document.querySelector('.reading').textContent") not in ("", first)
    tab.js("document.querySelector('#search').focus()")
    tab.do("Input.insertText", text="ratio one")
    rows = "[...document.querySelectorAll('.filtered')]"
    shown = tab.js(f"{rows}.filter((row) => !row.hidden).map((row) => row.textContent.toLowerCase())")
    assert 0 < len(shown) < tab.js(f"{rows}.length")
    assert all("ratio" in words and "one" in words for words in shown)
    assert tab.js("document.querySelector('.all-checks').open"), "a match in a folded table was not shown"
    tab.press("Escape", code=27)
    assert tab.js(f"{rows}.every((row) => !row.hidden)")


def test_a_link_of_the_table_unfolds_its_run(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["several"], 1600)
    assert tab.js("[...document.querySelectorAll('.one-run')].every((run) => !run.open)")
    tab.js("document.querySelector('.runs a[href=\"#run-2\"]').click()")
    assert tab.js("[...document.querySelectorAll('.one-run')].filter((run) => run.open).map((run) => run.id)") == [
        "run-2"
    ]


def test_cause_and_first_action_are_on_the_first_screen(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["long"], 1280)
    assert tab.js("document.querySelector('.problem .advice dd').getBoundingClientRect().bottom") < 900


def test_the_read_out_stands_on_the_line(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["long"], 1600)
    apart = tab.js(
        """(() => {
          const plot = document.querySelector('.plot'), scrub = plot.querySelector('.scrub');
          scrub.value = Math.floor(scrub.max / 2); scrub.dispatchEvent(new Event('input'));
          const line = plot.querySelector('.line'), spot = plot.querySelector('.spot').getBoundingClientRect();
          const x = spot.x + spot.width / 2, y = spot.y + spot.height / 2;
          const matrix = line.getScreenCTM(), length = line.getTotalLength();
          return Math.min(...Array.from({length: 20001}, (_, i) => {
            const at = line.getPointAtLength(length * i / 20000).matrixTransform(matrix);
            return Math.hypot(at.x - x, at.y - y);
          }));
        })()"""
    )
    assert apart < 2


def test_print_has_every_run_and_keeps_the_ink_on_white(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["long"], 1600, dark=True)
    tab.do("Emulation.setEmulatedMedia", media="print")
    assert tab.js("getComputedStyle(document.querySelector('.bar')).display") == "none"
    red, green, blue = tab.js("getComputedStyle(document.body).color.match(/\\d+/g).map(Number)")
    assert max(red, green, blue) < 80
    assert tab.do("Page.printToPDF")["data"]
    tab.open(pages["several"], 1600)
    tab.do("Emulation.setEmulatedMedia", media="print")
    assert tab.js("[...document.querySelectorAll('.one-run .hero')].every((e) => e.checkVisibility())")
    assert not tab.js("[...document.querySelectorAll('.all-checks table')].some((e) => e.checkVisibility())")
    tab.do("Emulation.setEmulatedMedia", media="")
