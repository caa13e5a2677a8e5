"""The report for a terminal: calm, exact, wrapped to the width, and without rich unless colours are wanted."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from typing import TYPE_CHECKING

from ppo_doctor.judgement import exit_code
from ppo_doctor.model import QUESTIONS
from ppo_doctor.report import sections
from ppo_doctor.report.cause_blocks import causes, heading, standing
from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import NARROWEST, WIDEST, Page, Span, columns
from ppo_doctor.report.nearby import relative
from ppo_doctor.report.screen import closing, outcome, screen, short_screen
from ppo_doctor.report.words import VERDICT_STYLE, count, remedy_says
from ppo_doctor.story import story

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ppo_doctor.model import Diagnosis, RankedCause, Run
    from ppo_doctor.report import RenderOptions

#: The signs that the report uses; an output that cannot encode one gets ASCII throughout.
SIGNS = "✓✗→–−·…"


def render(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> str:
    """Return one diagnosis as text."""
    page = page_for(options)
    write(page, diagnosis, run, options)
    return paint(page, options)


def render_many(diagnoses: Sequence[Diagnosis], options: RenderOptions) -> str:
    """Return several diagnoses, each in short, and a table with one line per run."""
    page = page_for(options)
    if not options.quiet:
        for diagnosis in diagnoses:
            _short(page, diagnosis)
            page.blank()
    _table(page, diagnoses)
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
    told = story(diagnosis, run)
    if options.quiet:
        short_screen(page, told, diagnosis)
        _exit_code(page, diagnosis, options)
        return
    screen(page, told, diagnosis)
    if options.why or options.all:
        _behind(page, diagnosis, options)
        page.blank()
    _footer(page, diagnosis, options)
    if options.why or options.all:
        closing(page, told)


def _exit_code(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    if options.fail_on:
        page.row(f"exit code {exit_code(diagnosis, options.fail_on):d} (--fail-on {options.fail_on})", 3)


def _behind(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
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
    more += [f"ppo-doctor explain {plain(cause.id)}" for cause in _leaders(diagnosis)[:1]]
    if more:
        page.add(Span(f"More: {', '.join(more)}", "dim"), 0, 3)


def _short(page: Page, diagnosis: Diagnosis) -> None:
    sections.verdict(page, diagnosis)
    page.add(outcome(story(diagnosis, None)), 3)
    for cause in _leaders(diagnosis):
        heading(page, cause)
        page.add(standing(cause), 3, 2)
        chosen = cause.remedies
        if chosen and not cause.benign:
            page.labelled("Try first:", remedy_says(chosen[0]), 3)


def _leaders(diagnosis: Diagnosis) -> list[RankedCause]:
    return [cause for cause in diagnosis.causes if cause.leader]


def _table(page: Page, diagnoses: Sequence[Diagnosis]) -> None:
    tally = Counter(diagnosis.verdict for diagnosis in diagnoses)
    parts = [f"{tally[verdict]} {verdict}" for verdict in VERDICT_STYLE if tally[verdict]]
    page.add((Span(count(len(diagnoses), "run"), "bold"), f": {', '.join(parts)}"))
    rows = [_cells(diagnosis) for diagnosis in diagnoses]
    widths = [max((columns(row[i]) for row in rows), default=0) for i in range(2)]
    for diagnosis, (word, leader, path) in zip(diagnoses, rows, strict=True):
        style = VERDICT_STYLE[diagnosis.verdict]
        page.row((Span(_padded(word, widths[0]), style), "  ", _padded(leader, widths[1]), "  ", path), indent=3)


def _cells(diagnosis: Diagnosis) -> tuple[str, str, str]:
    """Return verdict, leading cause and run; the run stands last, where a long path pushes nothing aside."""
    leaders = _leaders(diagnosis)
    level = f" (+{len(leaders) - 1} more)" if len(leaders) > 1 else ""
    first = f"{plain(leaders[0].id)}, {leaders[0].confidence}{level}" if leaders else _without_cause(diagnosis)
    return diagnosis.verdict, first, plain(diagnosis.run.id)


def _without_cause(diagnosis: Diagnosis) -> str:
    if diagnosis.verdict == "healthy":
        return "nothing found"
    open_questions = [question for question in QUESTIONS if not getattr(diagnosis.coverage, question)]
    open_questions += diagnosis.coverage.failed
    return f"open: {', '.join(open_questions)}" if diagnosis.verdict == "inconclusive" else "no known cause"


def _padded(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


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
