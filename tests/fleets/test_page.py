"""The page of a fleet: what it holds, and what it does in a real browser, opened from disk."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ppo_doctor.fleets.page import _round_up, render
from ppo_doctor.fleets.page_data import columns_of
from ppo_doctor.fleets.row import Row
from ppo_doctor.fleets.summary import summarize
from tests.fleets.rows import DAY, NOON, SICK, WELL, a_failure, a_fleet, a_row, plain
from tests.report.browser import CHROMIUM, Tab, browser

needs_browser = pytest.mark.skipif(CHROMIUM is None or sys.platform == "win32", reason="no Chromium on the path")
EVIL = "</script><img src=x onerror=alert(1)><b>"


def page_of(rows: list[Row], reports: str = "") -> str:
    given = plain(rows)
    return render(summarize(given), columns_of(given, lambda _: reports and f"{reports}/1.html"))


def hostile() -> list[Row]:
    """Return rows whose every text is an attack."""
    sick = a_row(EVIL, **SICK, settings={EVIL: EVIL}, model=EVIL, metrics_start={EVIL: 1.0})
    return [*a_fleet(20), sick, a_failure(f"x{EVIL}", EVIL)]


def test_what_the_page_says_without_its_script():
    page = page_of([*a_fleet(600, planted=True), a_failure("x")])
    assert re.search(r"<h1[^>]*>601 runs</h1>", page)
    assert "not cause" in page
    assert "image = old" in page
    assert "1 not judged" in page
    assert "the file is empty" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


def test_without_a_difference_it_says_that_nothing_separates():
    assert "No setting separates" in page_of(a_fleet(300))


def test_bars_are_of_days_weeks_or_months():
    for length, unit in ((1, "day"), (62, "day"), (63, "week"), (500, "30 days"), (5000, "year")):
        rows = [a_row("a", **WELL, modified=NOON), a_row("b", **WELL, modified=NOON - (length - 1) * DAY)]
        page = page_of(rows)
        assert f"by {unit}, UTC" in page
        assert page.count('<rect class="healthy"') == min(length, 2)


def test_the_axis_ends_at_a_round_number():
    assert [_round_up(n) for n in (0, 1, 2, 3, 7, 9, 10, 11, 21, 260, 9999)] == [
        *(2, 2, 2, 3, 8, 10, 10, 20, 30, 300, 10_000),
    ]


def test_a_fleet_without_runs_has_a_page():
    assert "0 runs" in page_of([])
    assert "1 run<" in page_of([a_failure("x")])


def test_no_markup_of_a_log_is_markup_of_the_page():
    page = page_of(hostile())
    assert "<img" not in page
    assert "<b>" not in page
    assert page.count("</script>") == 2


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("fleet")
    fleets = {"many": [*a_fleet(5000, planted=True), a_failure("x")], "hostile": hostile(), "none": []}
    for name, rows in fleets.items():
        (folder / f"{name}.html").write_text(page_of(rows, "reports"), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in fleets}


def lines(tab: Tab) -> list[str]:
    """Return the names of the runs that are drawn."""
    return tab.js("[...document.querySelectorAll('#rows .line .c-run')].map((e) => e.textContent)")


def listed(tab: Tab) -> str:
    return tab.js("document.querySelector('#found').textContent")


def ask(tab: Tab, words: str) -> str:
    tab.js(f"document.querySelector('#search').value = {words!r}")
    tab.js("document.querySelector('#search').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}))")
    return listed(tab)


@needs_browser
@pytest.mark.parametrize("name", ["many", "hostile", "none"])
@pytest.mark.parametrize(("width", "dark"), [(390, False), (1600, True)])
def test_no_error_no_request_and_nothing_beside_the_page(tab, pages, name, width, dark):
    tab.open(pages[name], width, dark=dark)
    assert tab.events("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled") == []
    asked = {event["request"]["url"] for event in tab.events("Network.requestWillBeSent")}
    assert {url for url in asked if not url.startswith("data:")} == {pages[name].as_uri()}
    assert tab.js("document.documentElement.scrollWidth <= innerWidth")
    assert not tab.js("document.querySelector('#list').hidden"), "the script did not run"


@needs_browser
def test_five_thousand_runs_are_a_few_elements_and_open_soon(tab, pages):
    assert pages["many"].stat().st_size < 10_000_000
    tab.open(pages["many"], 1600)
    assert listed(tab) == "5,001 of 5,001"
    assert 10 < len(lines(tab)) < 60
    assert tab.js("document.querySelectorAll('*').length") < 6000
    # Two seconds on a machine of its own; here the tests of others run beside it.
    assert tab.js("performance.getEntriesByType('navigation')[0].loadEventEnd") < 10_000


@needs_browser
def test_scrolling_shows_every_run_once(tab, pages):
    tab.open(pages["many"], 1600)
    seen: dict[str, None] = {}
    ask(tab, "seed gamma=0.99 image=old verdict=healthy")
    tab.js("document.querySelector('#search').value = ''")
    found = int(ask(tab, "gamma=0.99 image=old verdict=healthy").split()[0])
    for at in range(0, found * 40, 400):
        tab.js(f"document.querySelector('#view').scrollTop = {at}")
        tab.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        seen |= dict.fromkeys(lines(tab))
    rows = [each for each in a_fleet(5000, planted=True) if each.verdict == "healthy"]
    wanted = [each for each in rows if (each.settings["gamma"], each.settings["image"]) == ("0.99", "old")]
    assert len(seen) == found == len(wanted)


@needs_browser
def test_filters_and_their_buttons(tab, pages):
    tab.open(pages["many"], 1600)
    rows = a_fleet(5000, planted=True)
    sick = sum(each.verdict == "unhealthy" for each in rows)
    tab.js("document.querySelector('.hero [data-value=unhealthy]').click()")
    assert listed(tab) == f"{sick:,} of 5,001"
    tab.js("document.querySelector('#reset').click()")
    assert listed(tab) == "5,001 of 5,001"
    tab.js("document.querySelector('.separators .as-link').click()")
    assert listed(tab) == f"{sum(each.settings['image'] == 'old' for each in rows):,} of 5,001"
    tab.js("document.querySelector('.crossed[data-name=trainer] button').click()")
    assert listed(tab) == f"{sick:,} of 5,001"
    assert ask(tab, "nothing of this") == "0 of 5,001"
    assert "No run matches" in tab.js("document.querySelector('#rows').textContent")


@needs_browser
def test_a_click_on_a_head_sorts_and_another_one_turns_it(tab, pages):
    tab.open(pages["many"], 1600)
    assert ask(tab, "verdict=healthy model=small gamma=0.95") != "0 of 5,001"
    names = [f"runs/{at}" for at in range(5000)]
    tab.js("document.querySelector('[data-sort=run]').click()")
    up = lines(tab)
    assert up == sorted(up, key=names.index)
    tab.js("document.querySelector('[data-sort=run]').click()")
    down = lines(tab)
    assert down == sorted(down, key=names.index, reverse=True)
    assert tab.js("document.querySelector('[aria-sort=descending]').textContent") == "Run"


@needs_browser
def test_a_run_unfolds_to_what_it_has(tab, pages):
    tab.open(pages["many"], 1600)
    tab.js("document.querySelector('#rows .line button').focus()")
    tab.press("Enter", code=13, text="\r")
    text = tab.js("document.querySelector('.details').innerText")
    for words in ("The reward is 0", "reward-too-sparse", "Most groups", "from step 7", "entropy", "1.235", "−0.5"):
        assert words in text
    assert re.search(r"ppo-doctor analyze runs/\d+/log.jsonl", text)
    assert "image" in text
    assert tab.js("document.querySelector('.details a').getAttribute('href')") == "reports/1.html"
    assert tab.js("document.activeElement.getAttribute('aria-expanded')") == "true"
    tops = tab.js("[...document.querySelectorAll('#rows .line')].map((e) => e.getBoundingClientRect().top)")
    height = tab.js("document.querySelector('.details').offsetHeight")
    assert tops[1] - tops[0] == 40 + height
    tab.press("ArrowDown", code=40)
    assert tab.js("document.activeElement.closest('.line').dataset.at") == "1"
    tab.js("document.querySelector('#rows .line.open button').click()")
    assert tab.js("document.querySelector('.details')") is None


@needs_browser
def test_what_a_log_says_is_text(tab, pages):
    tab.open(pages["hostile"], 1600)
    tab.js("document.querySelector('#rows .line button').click()")
    assert tab.js("document.querySelectorAll('main img, main b').length") == 0
    assert tab.js("document.querySelector('.configured li').innerText").count("onerror") == 2
    assert tab.js("document.querySelector('.command').innerText") == f"ppo-doctor analyze '{EVIL}'"


@needs_browser
def test_one_table_of_findings_is_shown_at_a_time(tab, pages):
    tab.open(pages["many"], 1600)
    shown = "[...document.querySelectorAll('.cross:not([hidden]) table')].map((e) => e.dataset.name)"
    assert tab.js(shown) == ["trainer"]
    tab.js("{ const s = document.querySelector('#by-of'); s.value = '2'; s.dispatchEvent(new Event('change')); }")
    assert tab.js(shown) == ["image"]


def shown_colours(tab: Tab) -> list[str]:
    return tab.js("[...document.querySelectorAll('.bars rect')].slice(0, 3).map((e) => getComputedStyle(e).fill)")


@needs_browser
def test_charts_have_the_colours_of_the_theme(tab, pages):
    tab.open(pages["many"], 1600)
    light = shown_colours(tab)
    tab.open(pages["many"], 1600, dark=True)
    dark = shown_colours(tab)
    assert len(light) == 3
    assert set(light).isdisjoint(dark)
