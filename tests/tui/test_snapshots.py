"""What every view says at three sizes, letter by letter; rewritten with UPDATE_GOLDENS=1.

The text of the screen is compared, not the picture: pictures change with versions of Textual, words do not.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.tui.stage import SIZES, Screen, a_case, drive

GOLDENS = Path(__file__).parent / "goldens"
VIEWS = {"1": "story", "2": "findings", "3": "metrics", "4": "settings", "5": "source"}
#: Scrollbars are Textual's business.
_SCROLLBAR = re.compile(r"[▁▂▃▄▅▆▇█](?=\s*(▕|$))", re.MULTILINE)


def check_golden(name: str, text: str) -> None:
    path = GOLDENS / f"{name}.txt"
    text = "".join(f"{line.rstrip()}\n" for line in _SCROLLBAR.sub(" ", text).splitlines())
    if os.environ.get("UPDATE_GOLDENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    assert path.is_file(), f"{name} is missing: run with UPDATE_GOLDENS=1 and read what it writes"
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_every_view_at_every_size(size):
    async def script(screen: Screen) -> None:
        for key, name in VIEWS.items():
            await screen.press(key)
            check_golden(f"{name}-{size[0]}x{size[1]}", screen.text())

    drive(script, [a_case()], size=size)


def test_a_terminal_without_our_signs():
    async def script(screen: Screen) -> None:
        text = screen.text()
        check_golden("story-ascii-120x40", text)
        ours = set(text) - set("▁▂▃▄▅▆▇█▕▏│ ")
        assert max(map(ord, ours)) < 128

    drive(script, size=(120, 40), ascii_signs=True)


def test_stand_ins_in_a_list_keep_every_row_on_its_line():
    async def script(screen: Screen) -> None:
        await screen.press("3")
        text = screen.text()
        check_golden("metrics-ascii-80x24", text)
        for place, name in enumerate(screen.rows):
            assert name[:8] in text.splitlines()[2 + place]

    drive(script, size=(80, 24), ascii_signs=True)
