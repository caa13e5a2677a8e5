"""The terminal report as a picture, for README files and web pages; it loads no font from anywhere."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor.report.terminal import page_for, print_page, write

if TYPE_CHECKING:
    from ppo_doctor.model import Diagnosis, Run
    from ppo_doctor.report import RenderOptions

#: Columns of a picture when nobody says: it should be legible in a page 700 pixels wide.
WIDTH = 96
_FONT_FACE = re.compile(r"@font-face \{\{.*?\}\}\n", re.DOTALL)
_FONTS = "DejaVu Sans Mono, Menlo, Consolas, Liberation Mono, monospace"


def render(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> str:
    """Return one diagnosis as SVG."""
    return svg(diagnosis, run, options)


def svg(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> str:
    """Return the terminal report as an SVG; colours and signs are always on, the width is `options.width` or 96."""
    from io import StringIO

    from rich.console import Console

    page = page_for(replace(options, width=options.width or WIDTH, ascii=False))
    write(page, diagnosis, run, options)
    page.blank()  # rich clips the descenders of the last line
    console = Console(file=StringIO(), record=True, width=page.width, force_terminal=True, color_system="standard")
    print_page(console, page)
    # The id names CSS classes; a fixed one keeps the output the same from run to run.
    return console.export_svg(title="ppo-doctor analyze", code_format=_code_format(), unique_id="ppo-doctor") + "\n"


def _code_format() -> str:
    """Return rich's template without its web fonts: nothing is fetched, and nothing shifts when it is not."""
    from rich._export_format import CONSOLE_SVG_FORMAT

    return _FONT_FACE.sub("", CONSOLE_SVG_FORMAT).replace("Fira Code, monospace", _FONTS)
