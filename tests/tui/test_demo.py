"""The pictures for the README come from the real program, load nothing, and are small."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from benchmarks.demo import MOST_BYTES, SCENES, cleaned, interactive
from tests.tui.stage import shown


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


@pytest.mark.parametrize("name", [*SCENES, "watch-plain"])
def test_every_picture_is_there_and_is_safe(root, name):
    svg = (root / "docs" / "images" / f"{name}.svg").read_text(encoding="utf-8")
    assert cleaned(svg) == svg
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg).iter()}  # noqa: S314 - our own
    assert tags <= {"svg", "style", "defs", "clipPath", "rect", "g", "text", "circle"}
