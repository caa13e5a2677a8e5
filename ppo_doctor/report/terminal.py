"""The report for a terminal: calm, exact, wrapped to the width, and without rich unless colours are wanted."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from ppo_doctor.diagnose.gate_result import exit_code
from ppo_doctor.report import sections
from ppo_doctor.report.cause_blocks import causes
from ppo_doctor.report.escape import plain
from ppo_doctor.report.fleet import fleet, gravest, gravest_first
from ppo_doctor.report.layout import NARROWEST, WIDEST, Page, Span
from ppo_doctor.report.nearby import relative
from ppo_doctor.report.screen import closing, screen, short_screen
from ppo_doctor.story import story

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ppo_doctor.model import Diagnosis, Run
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.story import Story

#: The signs that the report uses; an output that cannot encode one gets ASCII throughout.
SIGNS = "✓✗→–−·…"
#: Up to this many runs the story of each follows their table.
FEW_RUNS = 3


def render(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> str:
    """Return one diagnosis as text."""
    page = page_for(options)
    write(page, diagnosis, run, options)
    return paint(page, options)


def render_many(diagnoses: Sequence[Diagnosis], options: RenderOptions, stories: Sequence[Story | None] = ()) -> str:
    """Return a table with a line per run, and below it the story of each where runs are few, or on request."""
    held = stories or [None] * len(diagnoses)
    told = [(d, kept or story(d, None)) for d, kept in zip(diagnoses, held, strict=True)]
    page = page_for(options)
    fleet(page, told, everything=options.all)
    if not options.quiet and (len(told) <= FEW_RUNS or options.why or options.all):
        for diagnosis, of_run in gravest_first(told):
            page.blank()
            _tell(page, of_run, diagnosis, options)
        page.blank()
        gravest(page, told)
    return paint(page, options)


def page_for(options: RenderOptions) -> Page:
    """Return an empty page as wide, and in the alphabet, that the options or the standard output ask for."""
    width = options.width or shutil.get_terminal_size((80, 24)).columns
    ascii_only = _needs_ascii() if options.ascii is None else options.ascii
    return Page(width=max(NARROWEST, min(width, WIDEST)), ascii=ascii_only)


def _needs_ascii() -> bool:
    try:
        SIGNS.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (LookupError, UnicodeEncodeError):
        return True
    return False


def write(page: Page, diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> None:
    """Write a diagnosis on a page: its story, and what is behind it where that is asked for."""
    _tell(page, story(diagnosis, run), diagnosis, options)


def _tell(page: Page, told: Story, diagnosis: Diagnosis, options: RenderOptions) -> None:
    if options.quiet:
        short_screen(page, told, diagnosis)
        _exit_code(page, diagnosis, options)
        return
    screen(page, told, diagnosis)
    if options.why or options.all:
        behind(page, diagnosis, options)
        page.blank()
    _footer(page, diagnosis, options)
    if options.why or options.all:
        closing(page, told)


def _exit_code(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    if options.fail_on:
        page.row(f"exit code {exit_code(diagnosis, options.fail_on):d} (--fail-on {options.fail_on})", 3)


def behind(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    """Write what stands behind a story: the chain, the accounts of all causes, every check."""
    page.blank()
    sections.sources(page, diagnosis)
    diagnosis = relative(diagnosis)
    sections.chain(page, diagnosis, options)
    causes(page, diagnosis, options)
    sections.unexplained(page, diagnosis)
    sections.unanswered(page, diagnosis)
    sections.checks(page, diagnosis, options)
    sections.never_shown(page, diagnosis, options)
    sections.notes(page, diagnosis, options)


def _footer(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    more = [] if options.why else ["--why"]
    more += [] if options.all else ["--all"]
    more += [f"ppo-doctor explain {plain(cause.id)}" for cause in diagnosis.causes[:1] if cause.leader]
    if more:
        page.add(Span(f"More: {', '.join(more)}", "dim"), 0, 3)


def paint(page: Page, options: RenderOptions) -> str:
    """Return a page as text, with colours when the options or the standard output ask for them."""
    if not wants_color(options.color):
        return page.text()
    from io import StringIO

    from rich.console import Console

    console = Console(file=StringIO(), force_terminal=True, color_system="standard", width=page.width, no_color=False)
    print_page(console, page)
    written = console.file
    return written.getvalue() if isinstance(written, StringIO) else ""


def print_page(console: Console, page: Page) -> None:
    """Print a page on a console of rich, line by line and without its markup, wrapping or cropping."""
    from rich.text import Text

    for line in page.lines:
        text = Text.assemble(*((span.text, span.style) for span in line))
        text.rstrip()
        console.print(text, soft_wrap=True, highlight=False, markup=False, emoji=False)


def wants_color(color: bool | None) -> bool:
    """Tell whether to colour: as told, else NO_COLOR, FORCE_COLOR, and whether standard output is a terminal."""
    if color is not None:
        return color
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
