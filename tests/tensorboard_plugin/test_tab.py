"""The tab in a headless Chromium, served by a real TensorBoard; skipped where no Chromium is installed."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import CHROMIUM, Tab, browser

pytestmark = pytest.mark.skipif(CHROMIUM is None or sys.platform == "win32", reason="no Chromium on the path")

#: TensorBoard with its own tabs and ours, whether or not this package is installed with its entry point.
SERVER = """
import sys
from absl import app
from tensorboard import default, main_lib, program
from ppo_doctor.tensorboard_plugin.plugin import DoctorPlugin
main_lib.global_init()
board = program.TensorBoard(plugins=[*default.get_static_plugins(), DoctorPlugin])
app.run(board.main, flags_parser=board.configure)
"""
PATIENCE = 60.0
#: The document of the tab, in the frame that TensorBoard makes for it.
PAGE = "document.querySelector('iframe').contentDocument"
#: What a hostile log has as the name of a column and of its folder.
INJECTION = "<img src=x onerror=parent.evil=1>"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Path:
    """Return a log directory with a sound run, a sick one, one that has just begun, and a hostile one."""
    folder = tmp_path_factory.mktemp("logs")
    write_events(samples / "healthy" / "healthy.sb3" / "progress.csv", folder / "sound")
    shutil.copytree(samples / "sick" / "lr-zero.sb3", folder / "sick")
    lines = table(samples / "healthy" / "healthy.sb3")
    for name in ("young", INJECTION):
        (folder / name).mkdir()
        (folder / name / "progress.csv").write_text("".join(lines[:40]), encoding="utf-8")
    hostile = folder / INJECTION / "progress.csv"
    hostile.write_text(hostile.read_text(encoding="utf-8").replace("train/loss", f"train/{INJECTION}"), "utf-8")
    return folder


def write_events(log: Path, folder: Path) -> None:
    """Write a table as an event file, by TensorBoard's own writer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorBoard's own
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    with log.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            step = int(row.pop("time/total_timesteps"))
            values = [Summary.Value(tag=tag, simple_value=float(text)) for tag, text in row.items() if text]
            writer.add_event(Event(wall_time=1e9 + step, step=step, summary=Summary(value=values)))
    writer.close()


def table(folder: Path) -> list[str]:
    return (folder / "progress.csv").read_text(encoding="utf-8").splitlines(keepends=True)


@pytest.fixture(scope="module")
def url(logs: Path) -> Iterator[str]:
    command = [sys.executable, "-W", "ignore", "-c", SERVER, "--logdir", str(logs), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stderr
            said = ""
            while not (found := re.search(r"http://\S+:\d+", said)):
                line = process.stderr.readline()
                assert line, said
                said += line
            yield found[0]
        finally:
            process.kill()


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def until(tab: Tab, code: str) -> Any:
    """Return what an expression is worth as soon as that is something; in it PAGE is the document of the tab."""
    end = time.monotonic() + PATIENCE
    guarded = f"(() => {{ try {{ const PAGE = {PAGE}; return {code} }} catch (error) {{ return null }} }})()"
    while not (value := tab.js(guarded)):
        assert time.monotonic() < end, (code, tab.js(f"{PAGE}.body.innerText"))
        time.sleep(0.1)
    return value


def look(tab: Tab, url: str, *, dark: bool = False, width: int = 1500) -> None:
    """Open the tab and wait until each run is judged."""
    tab.open("about:blank", width)
    tab.open(f"{url}/#ppo_doctor", width, dark=dark)
    badges = "[...PAGE.querySelectorAll('.runs-below .badge')].map((badge) => badge.textContent)"
    until(tab, f"PAGE.querySelectorAll('.runs-below li').length === 4 && !/waiting|judging/.test({badges})")


def choose(tab: Tab, name: str) -> None:
    """Open the report of a run and wait for it."""
    buttons = "[...PAGE.querySelectorAll('.runs-below button')]"
    until(tab, f"({buttons}.find((b) => b.querySelector('.name').textContent === {name!r}).click(), true)")
    there = "PAGE.querySelector('.frames:not([hidden]) iframe:not(.coming)')"
    until(tab, f"PAGE.querySelector('.title').textContent === {name!r} && {there}?.title === 'Report of ' + {name!r}")


def rows(tab: Tab) -> dict[str, str]:
    return tab.js(
        f"Object.fromEntries([...{PAGE}.querySelectorAll('.runs-below button')]"
        ".map((b) => [b.querySelector('.name').textContent, b.querySelector('.badge').textContent]))"
    )


@contextmanager
def inside_report(tab: Tab) -> Iterator[Tab]:
    """Talk to the report, which has a process of its own because it is sandboxed."""
    page, tab.session = tab.session, ""
    try:
        targets = tab.do("Target.getTargets")["targetInfos"]
        (target,) = [each["targetId"] for each in targets if each["type"] == "iframe" and "/report?" in each["url"]]
        tab.session = tab.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        yield tab
    finally:
        session, tab.session = tab.session, ""
        tab.do("Target.detachFromTarget", sessionId=session)
        tab.session = page


def report(tab: Tab, code: str) -> Any:
    with inside_report(tab):
        return tab.js(code)


def errors(tab: Tab) -> list[str]:
    """Return what the browser complains of; TensorBoard's own page has warnings of its own."""
    told = [event["entry"] for event in tab.events("Log.entryAdded")]
    return [entry["text"] for entry in told if entry["level"] == "error"] + [
        str(event) for event in tab.events("Runtime.exceptionThrown")
    ]


def test_the_tab_shows_each_run_with_its_verdict_and_filters_them(tab: Tab, url: str) -> None:
    look(tab, url)
    assert rows(tab)["sound"] == "✓ healthy"
    assert rows(tab)["sick"] == "✗ unhealthy"
    assert "4 runs: 1 unhealthy" in tab.js(f"{PAGE}.querySelector('.status').textContent")
    tab.js(f"{PAGE}.querySelector('nav input').value = 'UNHEALTHY'")
    tab.js(f"{PAGE}.querySelector('nav input').dispatchEvent(new Event('input'))")
    shown = "[...PAGE.querySelectorAll('.runs-below li:not([hidden]) .name')].map((name) => name.textContent).join()"
    assert until(tab, shown) == "sick"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_report_is_shown_and_its_script_runs(tab: Tab, url: str, dark: bool) -> None:
    look(tab, url, dark=dark)
    choose(tab, "sick")
    assert "The learning rate is 0 in every record" in report(tab, "document.body.innerText")
    assert report(tab, "!document.querySelector('#theme').hidden && document.querySelectorAll('.scrub').length > 0")
    assert report(tab, "document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert tab.js(f"{PAGE}.documentElement.dataset.theme") == ("dark" if dark else "light")
    with inside_report(tab):
        tab.do("Log.enable")  # the browser tells what it has kept
        tab.do("Runtime.enable")
    assert errors(tab) == []
    asked = {event["request"]["url"] for event in tab.events("Network.requestWillBeSent")}
    assert all(each.startswith((url, "data:", "blob:", "about:")) for each in asked)


def test_a_report_cannot_reach_the_page_around_it_and_what_a_log_says_is_no_markup(tab: Tab, url: str) -> None:
    look(tab, url)
    choose(tab, "sound")
    assert report(tab, "origin") == "null"
    assert report(tab, "(() => { try { return parent.document.title } catch (error) { return error.name } })()") == (
        "SecurityError"
    )
    choose(tab, INJECTION)
    assert tab.js(f"{PAGE}.querySelectorAll('img').length") == 0
    assert report(tab, "document.querySelectorAll('img').length") == 0
    assert tab.js("window.evil === undefined")
    assert tab.js(f"{PAGE}.defaultView.evil === undefined")


def test_a_report_follows_a_run_that_grows(tab: Tab, url: str, logs: Path, samples: Path) -> None:
    look(tab, url)
    choose(tab, "young")
    facts = "document.querySelector('.facts').textContent"
    assert "39 records" in report(tab, facts).replace("\u00a0", " ")
    with (logs / "young" / "progress.csv").open("a", encoding="utf-8") as file:
        file.write("".join(table(samples / "healthy" / "healthy.sb3")[40:]))
    until(tab, "/step 40,960.*still being written/.test(PAGE.querySelector('[aria-current=true]').textContent)")
    end = time.monotonic() + PATIENCE
    while "40960" not in _facts(tab, facts):
        assert time.monotonic() < end
        time.sleep(0.2)


def _facts(tab: Tab, code: str) -> str:
    """Return the facts of the report that is shown, and nothing while a new one takes its place."""
    if tab.js(f"{PAGE}.querySelectorAll('.frames iframe').length") != 1:
        return ""
    return report(tab, f"document.querySelector('.facts') ? {code} : ''")


def test_who_reads_a_report_decides_when_a_newer_one_comes(tab: Tab, url: str, logs: Path) -> None:
    look(tab, url)
    choose(tab, "young")
    tab.js(f"{PAGE}.querySelector('.frames iframe').focus()")
    log = logs / "young" / "progress.csv"
    log.write_text("".join(log.read_text(encoding="utf-8").splitlines(keepends=True)[:50]), encoding="utf-8")
    words = until(tab, "!PAGE.querySelector('.fresh').hidden && PAGE.querySelector('.fresh').textContent")
    assert words == "Show the report up to step 25,088"
    assert "40960" in _facts(tab, "document.querySelector('.facts').textContent")
    tab.js(f"{PAGE}.querySelector('.fresh').click()")
    end = time.monotonic() + PATIENCE
    while "25088" not in _facts(tab, "document.querySelector('.facts').textContent"):
        assert time.monotonic() < end
        time.sleep(0.2)


def test_the_tab_asks_nothing_while_another_is_shown(tab: Tab, url: str) -> None:
    look(tab, url)
    named = "[...document.querySelectorAll('[role=tab]')].find((each) => /time series/i.test(each.textContent))"
    place = tab.js(
        f"(({{ x, y, width, height }}) => ({{ x: x + width / 2, y: y + height / 2 }}))({named}.getBoundingClientRect())"
    )
    for kind in ("mousePressed", "mouseReleased"):
        tab.do("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)
    until(tab, "getComputedStyle(document.querySelector('iframe')).visibility === 'hidden'")
    time.sleep(2.5)  # an answer may be on its way
    tab.events()
    tab.seen.clear()
    time.sleep(5)
    asked = [event["request"]["url"] for event in tab.events("Network.requestWillBeSent")]
    assert [each for each in asked if "/ppo_doctor/runs" in each] == []


def test_the_page_fits(tab: Tab, url: str) -> None:
    look(tab, url, width=390)
    choose(tab, "sick")
    for width in (390, 700, 1500):
        tab.do("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        until(tab, f"innerWidth === {width}")
        assert tab.js(f"{PAGE}.documentElement.scrollWidth <= {PAGE}.defaultView.innerWidth")
        assert report(tab, "document.documentElement.scrollWidth <= innerWidth")
