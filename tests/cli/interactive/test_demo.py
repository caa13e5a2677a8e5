"""The pictures for the README come from the real program, load nothing, and are small."""

from __future__ import annotations

import json
import tempfile
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import demo_casts
from benchmarks.demo import MOST_BYTES, SCENES, cleaned, interactive
from tests.cli.interactive.stage import shown


def test_a_scene_is_drawn_by_the_real_program(root, monkeypatch):
    monkeypatch.chdir(root)
    svg = cleaned(interactive(SCENES["interactive-small"]))
    assert "The old policy is the" in shown(svg)
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "").replace("https://www.textualize.io", "")


def test_pictures_that_would_load_something_are_refused():
    with pytest.raises(ValueError, match="load"):
        cleaned('<svg><image href="x"/></svg>')
    with pytest.raises(ValueError, match="bytes"):
        cleaned("x" * (MOST_BYTES + 1))


@pytest.mark.parametrize("name", demo_casts.TAKES)
def test_every_recording_can_be_played(root, name):
    head, *events = map(json.loads, (root / "docs/images" / f"{name}-recorded.cast").read_text("utf-8").splitlines())
    take = demo_casts.TAKES[name]
    assert (head["version"], head["width"], head["height"]) == (2, *take.size)
    times = [at for at, _, _ in events]
    assert times == sorted(times)
    assert all(after - at <= demo_casts.LONGEST_PAUSE + 0.01 for at, after in pairwise(times))
    assert {kind for _, kind, _ in events} == {"o"}
    written = "".join(text for _, _, text in events)
    assert written.count("\x1b[?1049h") == written.count("\x1b[?1049l") == 1
    assert not any(word in written for word in (str(root), tempfile.gettempdir(), str(Path.home())))


def test_a_program_is_recorded_as_it_writes():
    take = demo_casts.Take("sick/lr-zero.canonical", ("watch", "run.jsonl", "--plain", "--until-idle", "600ms"), ())
    recording = demo_casts.recorded(take)
    assert "The learning rate is exactly 0" in recording.until(1e9)
    assert json.loads(recording.cast().splitlines()[0])["version"] == 2


@pytest.mark.parametrize("name", [*SCENES, "watch-plain", *(f"{name}-recorded" for name in demo_casts.TAKES)])
def test_every_picture_is_there_and_is_safe(root, name):
    svg = (root / "docs" / "images" / f"{name}.svg").read_text(encoding="utf-8")
    assert cleaned(svg) == svg
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg).iter()}  # noqa: S314 - our own
    assert tags <= {"svg", "style", "defs", "clipPath", "rect", "g", "text", "circle"}
