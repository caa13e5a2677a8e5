"""Reports as text for a terminal, wrapped to its width; rich is imported only for colours."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import Counter
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING, TypeAlias

from ppo_doctor.diagnosis.gate_result import exit_code
from ppo_doctor.report.escape import plain, prose
from ppo_doctor.report.layout import BOUND, NARROWEST, WIDEST, Page, Span, columns
from ppo_doctor.report.phrases import VERDICT_STYLE, VERDICTS, apart, count, first_action, flowing, what
from ppo_doctor.report.screen import closing, details, screen, short_screen
from ppo_doctor.report.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from ppo_doctor.diagnosis.gate_result import GateResult
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.run import Run
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.summary import Summary

    Judged: TypeAlias = tuple[Diagnosis, Summary]

#: Signs of the report; if the output cannot encode them, the whole report is in ASCII.
SIGNS = "✓✗→–−·…"
#: Up to this many runs, the report of each follows the table.
FEW_RUNS = 3
#: The default width of an SVG in columns, so that it is legible on a page 700 pixels wide.
PICTURE_WIDTH = 96
#: With more runs than this, the healthy ones are only counted.
MOST_ROWS = 20
#: The least width at which the action is on the same line as the problem.
BESIDE_FROM = 90
#: The greatest share of a line for the name of a run, and of the rest of the line for the action.
NAME, ACTION = 0.22, 0.47
GAP = "  "
_FONT_FACE = re.compile(r"@font-face \{\{.*?\}\}\n", re.DOTALL)
_FONTS = "DejaVu Sans Mono, Menlo, Consolas, Liberation Mono, monospace"


def render(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> str:
    """Return one diagnosis as text."""
    page = page_for(options)
    _write(page, summarize(diagnosis, run), diagnosis, options)
    return paint(page, options)


def render_many(
    diagnoses: Sequence[Diagnosis], options: RenderOptions, summaries: Sequence[Summary | None] = ()
) -> str:
    """Return a table with a row per run, followed by the report of each if runs are few or details are requested."""
    known = summaries or [None] * len(diagnoses)
    rows = [(d, summary or summarize(d, None)) for d, summary in zip(diagnoses, known, strict=True)]
    page = page_for(options)
    fleet(page, rows, everything=options.all)
    if not options.quiet and (len(rows) <= FEW_RUNS or options.why or options.all):
        for diagnosis, summary in gravest_first(rows):
            page.blank()
            _write(page, summary, diagnosis, options)
        page.blank()
        gravest(page, rows)
    return paint(page, options)


def svg(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> str:
    """Return the report as a coloured SVG, `options.width` or `PICTURE_WIDTH` columns wide, that loads no font."""
    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.console import Console

    page = page_for(replace(options, width=options.width or PICTURE_WIDTH, ascii=False))
    _write(page, summarize(diagnosis, run), diagnosis, options)
    page.blank()  # rich clips the descenders of the last line
    console = Console(file=StringIO(), record=True, width=page.width, force_terminal=True, color_system="standard")
    _print(console, page)
    # Web fonts would be fetched from the network, and the layout would shift if that fails.
    code_format = _FONT_FACE.sub("", CONSOLE_SVG_FORMAT).replace("Fira Code, monospace", _FONTS)
    # The id is part of the CSS classes; a fixed one makes the output reproducible.
    return console.export_svg(title="ppo-doctor analyze", code_format=code_format, unique_id="ppo-doctor") + "\n"


def page_for(options: RenderOptions) -> Page:
    """Return an empty page whose width and alphabet are those of the options, or else of the standard output."""
    width = options.width or shutil.get_terminal_size((80, 24)).columns
    ascii_only = _needs_ascii() if options.ascii is None else options.ascii
    return Page(width=max(NARROWEST, min(width, WIDEST)), ascii=ascii_only)


def _needs_ascii() -> bool:
    try:
        SIGNS.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (LookupError, UnicodeEncodeError):
        return True
    return False


def _write(page: Page, summary: Summary, diagnosis: Diagnosis, options: RenderOptions) -> None:
    if options.quiet:
        short_screen(page, summary, diagnosis)
        if options.fail_on:
            page.row(f"exit code {exit_code(diagnosis, options.fail_on):d} (--fail-on {options.fail_on})", 3)
        return
    screen(page, summary, diagnosis, whole=options.why or options.all)
    if options.why or options.all:
        details(page, diagnosis, options)
        page.blank()
    _footer(page, diagnosis, options)
    if options.why or options.all:
        closing(page, summary)


def _footer(page: Page, diagnosis: Diagnosis, options: RenderOptions) -> None:
    more = [] if options.why else ["--why"]
    more += [] if options.all else ["--all"]
    more += [f"ppo-doctor explain {plain(cause.id)}" for cause in diagnosis.causes[:1] if cause.leader]
    if more:
        page.add(Span(f"More: {', '.join(more)}", "dim"), 0, 3)


def paint(page: Page, options: RenderOptions) -> str:
    """Return a page as text, with colours if the options or the standard output ask for them."""
    if not wants_color(options.color):
        return page.text()
    from rich.console import Console

    file = StringIO()
    _print(Console(file=file, force_terminal=True, color_system="standard", width=page.width, no_color=False), page)
    return file.getvalue()


def _print(console: Console, page: Page) -> None:
    """Print a page on a rich console line by line, without markup, wrapping or cropping by rich."""
    from rich.text import Text

    for line in page.lines:
        text = Text.assemble(*((span.text, span.style) for span in line))
        text.rstrip()
        console.print(text, soft_wrap=True, highlight=False, markup=False, emoji=False)


def wants_color(color: bool | None) -> bool:
    """Return whether to print colours: `color`, or else by NO_COLOR, FORCE_COLOR and whether stdout is a terminal."""
    if color is not None:
        return color
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def gravest_first(judged: Sequence[Judged]) -> list[Judged]:
    """Return runs by verdict, then by the severity of their most severe problem; the sort is stable."""
    return sorted(judged, key=_gravity)


def _gravity(judged: Judged) -> tuple[int, int]:
    diagnosis, summary = judged
    return VERDICTS[diagnosis.verdict], min((problem.severity.rank for problem in summary.problems), default=99)


def fleet(page: Page, judged: Sequence[Judged], *, everything: bool) -> None:
    """Add the table of runs; if they are many, the healthy ones are only counted unless `everything` is requested."""
    ordered = gravest_first(judged)
    not_healthy = sum(diagnosis.verdict != "healthy" for diagnosis, _ in judged)
    most = None if everything or len(judged) <= MOST_ROWS else max(not_healthy, 1)
    _head(page, [diagnosis for diagnosis, _ in judged])
    _rows(page, ordered[:most], judged)
    for note in dict.fromkeys(note for diagnosis, _ in judged for note in diagnosis.run.several_runs):
        page.add(Span(flowing(note), "dim"), 0, 3)
    if most is not None and most < len(judged):
        page.add(Span(f"and {len(judged) - most} healthy: --all lists them", "dim"), 0, 3)


def gravest(page: Page, judged: Sequence[Judged]) -> None:
    """Add the number of runs per verdict and the most severe run, because the end of the output stays visible."""
    _head(page, [diagnosis for diagnosis, _ in judged])
    _rows(page, gravest_first(judged)[:1], judged)


def _head(page: Page, diagnoses: Sequence[Diagnosis]) -> None:
    tally = Counter(diagnosis.verdict for diagnosis in diagnoses)
    parts = ", ".join(f"{tally[verdict]} {verdict}" for verdict in VERDICTS if tally[verdict])
    page.add((Span(count(len(diagnoses), "run"), "bold"), f": {parts}"), 0, 3)


def _rows(page: Page, shown: Sequence[Judged], judged: Sequence[Judged]) -> None:
    """Add a row per run, with a name that is unique among all runs."""
    unique = names([diagnosis.run.id for diagnosis, _ in judged])
    room = int(page.width * NAME)
    name_of = {id(summary): _end(plain(name), room) for (_, summary), name in zip(judged, unique, strict=True)}
    name_width = max((columns(name_of[id(summary)]) for _, summary in shown), default=0)
    verdict_width = max((len(diagnosis.verdict) for diagnosis, _ in shown), default=0)
    for diagnosis, summary in shown:
        word = Span(diagnosis.verdict.ljust(verdict_width), VERDICT_STYLE[diagnosis.verdict])
        head = (word, GAP, fitted(name_of[id(summary)], name_width))
        _row(page, head, verdict_width + name_width + 2 * len(GAP), summary)


def names(ids: Sequence[str]) -> list[str]:
    """Return short unique names of runs: of each its folder if no other is in it; names of event files say little."""
    folders = [name.rpartition("/")[0] if "." in name.rpartition("/")[2] else name for name in ids]
    runs = Counter(folders)
    short = [folder if folder and runs[folder] == 1 else name for folder, name in zip(folders, ids, strict=True)]
    return apart(short if len({*short}) == len(ids) > 1 else ids)


def _row(page: Page, head: tuple[str | Span, ...], used: int, summary: Summary) -> None:
    action, room = cut(first_action(summary), page.width - 7), max(page.width - used, 12)
    if not action or page.width < BESIDE_FROM:
        page.row((*head, GAP, cut(what(summary), room)))
        if action:
            page.row((" " * 3, Span("do", "bold"), GAP, action))
        return
    action_width = min(int(room * ACTION), columns(action))
    width = room - action_width - len(GAP)
    page.row((*head, GAP, fitted(cut(what(summary), width), width), GAP, cut(action, action_width)))


def cut(text: str, room: int) -> str:
    """Return text of at most `room` columns; longer text is cut after a word and gets an ellipsis."""
    text = text.replace(BOUND, " ")
    if columns(text) <= room:
        return text
    end = next((i for i in range(len(text)) if columns(text[: i + 2]) > room), room)
    kept = text[:end].rpartition(" ")[0] if not text[end : end + 1].isspace() else text[:end]
    return (kept.rstrip(" ,;:.") or text[:end]) + "…"


def _end(name: str, room: int) -> str:
    return name if columns(name) <= room else "…" + name[-(room - 1) :]


def fitted(text: str, width: int) -> str:
    """Return text padded with spaces to a width in columns."""
    return text + " " * (width - columns(text))


def gate_text(results: Mapping[str, GateResult]) -> str:
    """Return the result of the gate for each run with its lines: what did not pass, and notes."""
    blocks = []
    for name, result in results.items():
        head = f"Gate {result.word}" + (f"  {plain(name)}" if len(results) > 1 else "")
        blocks += [head, *(f"   {word:<9} {prose(message)}" for word, message in result.lines())]
    return "".join(f"{line}\n" for line in blocks)
