"""The live view at every size: within the screen, nothing lost that matters, nothing of the log taken for markup."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from ppo_doctor.cli.watch.live import _thinned, draw
from ppo_doctor.cli.watch.monitor import Event
from ppo_doctor.cli.watch.session import duration
from ppo_doctor.report.layout import sparkline

from .conftest import SICK, SOUND


def drawn(view, width, height):
    """Return the lines of the view."""
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=False)
    console.print(draw(view, width, height), end="")
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("size", [(40, 10), (60, 14), (80, 24), (120, 40), (200, 60)])
@pytest.mark.parametrize("log", [SICK, SOUND])
def test_it_fits_the_screen(size, log, watching, samples):
    watched = watching(samples.joinpath(*log))
    watched.look()
    lines = drawn(watched.session.view, *size)
    assert len(lines) <= size[1]
    assert max(map(len, lines)) <= size[0]
    assert lines[0].split()[0] == ("unhealthy" if log == SICK else "healthy")


def test_the_cause_its_remedy_and_its_metric_are_shown(watching, samples):
    watched = watching(samples.joinpath(*SICK))
    watched.look()
    text = "\n".join(drawn(watched.session.view, 100, 30))
    assert "● The learning rate is 0 in every record" in text
    assert "established · critical" in " ".join(text.replace("\u00a0", " ").split())
    assert "  do " in text
    assert "learning_rate" in text
    assert "step 80" in text


def test_a_problem_has_the_line_of_an_observed_script(watching, samples, tmp_path):
    places = {"learning_rate": {"file": "a[b]\x1b[2J.py", "line": 7, "function": "train", "text": "step()"}}
    path = tmp_path / "run.jsonl"
    log = samples.joinpath(*SICK).read_text(encoding="utf-8")
    path.write_text(json.dumps({"ppo_doctor": 1, "places": places}) + "\n" + log, encoding="utf-8")
    watched = watching(path)
    watched.look()
    text = "\n".join(drawn(watched.session.view, 120, 30))
    assert r"a[b]\x1b[2J.py:7" in text
    assert "\x1b" not in text


def test_what_is_usual_and_what_stands_out_is_told_beside_a_curve(watching, samples):
    watched = watching(samples.joinpath(*SICK))
    watched.look()
    monitor = watched.session.view.monitor
    first, *others = monitor.story.table.rows
    rows = (replace(first, usual="1e-5 to 3e-4", remark="off"), *others)
    monitor.story = replace(monitor.story, table=replace(monitor.story.table, rows=rows))
    lines = drawn(watched.session.view, 100, 30)
    assert next(line for line in lines if line.startswith(first.key)).rstrip().endswith("usual 1e-5 to 3e-4 off")


def test_a_cause_that_is_not_confirmed_says_so(watching, tmp_path, lines, append):
    path = tmp_path / "run.jsonl"
    watched = watching(path)
    for line in lines(SICK)[:8]:
        append(path, line)
        watched.look()
        if watched.session.view.monitor and watched.session.view.monitor.pending:
            break
    text = "\n".join(drawn(watched.session.view, 100, 30))
    assert "○ The learning rate is 0" in text
    assert "not yet confirmed · critical" in " ".join(text.replace("\u00a0", " ").split())


def test_waiting_and_silence_are_shown(watching, tmp_path, lines, append):
    path = tmp_path / "run.jsonl"
    watched = watching(path)
    watched.look()
    assert "waiting" in drawn(watched.session.view, 80, 24)[0]
    append(path, lines(SOUND))
    watched.look()
    assert "live" in drawn(watched.session.view, 80, 24)[0]
    watched.look(12, pause=60.0)
    assert "nothing new for 12 min" in drawn(watched.session.view, 80, 24)[0]


def test_text_of_a_log_is_neither_markup_nor_control(watching, tmp_path):
    path = tmp_path / "a[red]b\x1b[31m.jsonl"
    watched = watching(path)
    watched.session.view.events.append(Event(kind="problem", text="[bold]x[/bold]\x1b[2J\nend"))
    text = "\n".join(drawn(watched.session.view, 200, 24))
    assert "[bold]x[/bold]" in text
    assert "a[red]b" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("odd", [50.0, np.nan, np.inf, -50.0])
@pytest.mark.parametrize("at", [0, 12_345, 99_999])
def test_a_single_odd_value_of_a_long_series_stays_visible(odd, at):
    values = np.sin(np.arange(100_000) / 5_000)
    plain = sparkline(_thinned(values).tolist(), 60)
    values[at] = odd
    thin = _thinned(values)
    assert len(thin) < 3_000
    assert sparkline(thin.tolist(), 60) != plain
    assert any(value == odd or (np.isnan(odd) and np.isnan(value)) for value in thin)


@pytest.mark.parametrize("size", [0, 1, 5, 1_000, 2_001, 7_777])
def test_short_series_are_drawn_as_they_are(size):
    values = np.arange(float(size))
    thin = _thinned(values)
    assert len(thin) <= 3_000
    assert size > 2_000 or np.array_equal(thin, values)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "0 s"), (59, "59 s"), (60, "1 min"), (725, "12 min"), (3600, "1 h"), (11100, "3 h 5 min")],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_a_line_of_an_event_is_one_line():
    event = Event(kind="cause", text="a\nb\x1b[31m", step=12, severity="high")
    line = event.line("2026-01-01 00:00:00")
    assert "\n" not in line
    assert "\x1b" not in line
    assert line.split()[:5] == ["2026-01-01", "00:00:00", "step", "12", "cause"]
