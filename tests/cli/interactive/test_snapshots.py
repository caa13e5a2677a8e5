"""Every view at three sizes, and letter by letter at one of them; goldens are rewritten with UPDATE_GOLDENS=1.

The text of the screen is compared, not the picture: pictures change with versions of Textual, words do not.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ppo_doctor.report.layout import columns
from tests.cli.interactive.stage import SIZES, Screen, a_case, drive
from tests.report.golden import check_golden

GOLDENS = Path(__file__).parent / "goldens"
VIEWS = {"1": "story", "2": "findings", "3": "metrics", "4": "settings", "5": "source"}
#: Scrollbars are Textual's business.
_SCROLLBAR = re.compile(r"[▁▂▃▄▅▆▇█](?=\s*(▕|$))", re.MULTILINE)


def golden(name: str, text: str) -> None:
    lines = _SCROLLBAR.sub(" ", text).splitlines()
    check_golden(f"{name}.txt", "".join(f"{line.rstrip()}\n" for line in lines), GOLDENS)


def test_golden_of_every_view():
    async def script(screen: Screen) -> None:
        for key, name in VIEWS.items():
            await screen.press(key)
            golden(f"{name}-120x40", screen.text())

    drive(script, [a_case()], size=(120, 40))


@pytest.mark.parametrize("size", [SIZES[0], SIZES[-1]], ids=lambda size: f"{size[0]}x{size[1]}")
def test_every_view_fits_every_size(size):
    async def script(screen: Screen) -> None:
        for key in VIEWS:
            await screen.press(key)
            if (key, size) == ("1", (80, 24)):
                golden("story-80x24", screen.text())
            lines = screen.text().splitlines()
            assert lines[0].strip(), key
            assert len(lines) <= size[1], key
            assert max(map(columns, lines)) <= size[0], key
            assert screen.page.strip(), key

    drive(script, [a_case()], size=size)


def test_a_terminal_without_our_signs_keeps_every_row_of_a_list_on_its_line():
    async def script(screen: Screen) -> None:
        ours = set(screen.text()) - set("▁▂▃▄▅▆▇█▕▏│ ")
        assert max(map(ord, ours)) < 128
        await screen.press("3")
        text = screen.text()
        assert screen.rows
        for place, name in enumerate(screen.rows):
            assert name[:8] in text.splitlines()[2 + place]

    drive(script, size=(80, 24), ascii_signs=True)
