"""Manual pages for a terminal: the Markdown that `pages` writes, wrapped and styled; no other Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ppo_doctor.report.layout import BOUND, Page, Span, columns
from ppo_doctor.report.terminal import page_for, paint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.report import RenderOptions

INDENT = 3
_CODE = re.compile(r"`([^`]*)`")
_CELL = re.compile(r"(?<!\\)\|")
_ITEM = re.compile(r"(-|\d+\.) ")


def show(markdown: str, options: RenderOptions) -> str:
    """Return a page of `pages` as text for a terminal."""
    page = page_for(options)
    for block in markdown.strip().split("\n\n"):
        _block(page, block.split("\n"))
    return paint(page, options)


def _block(page: Page, lines: Sequence[str]) -> None:
    first = lines[0]
    if first.startswith("#"):
        page.blank()
        page.add(Span(_unescaped(first.lstrip("# ")), "bold"))
    elif first.startswith("|"):
        _table(page, [_cells(line) for line in lines if not line.startswith("| --- |")])
    else:
        _gap(page)
        for line in lines:
            _line(page, line)


def _gap(page: Page) -> None:
    """Keep paragraphs of one section apart; the first follows its heading directly."""
    if page.lines and page.lines[-1] and page.lines[-1][0].text.startswith(" "):
        page.blank()


def _line(page: Page, line: str) -> None:
    item = _ITEM.match(line)
    if item is None:
        page.add(_styled(line), INDENT)
    else:
        page.add((item.group(1) + BOUND, *_styled(line[item.end() :])), INDENT, len(item.group()))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _CELL.split(line)[1:-1]]


def _table(page: Page, rows: Sequence[Sequence[str]]) -> None:
    """Add a table in columns; the last column wraps, and a table too wide for the page is told row by row."""
    widths = [max(columns(_bare(row[i])) for row in rows) for i in range(len(rows[0]) - 1)]
    start = INDENT + sum(widths) + 2 * len(widths)
    longest = max(columns(_bare(row[-1])) for row in rows)
    if start + min(longest, 24) > page.width:
        _told(page, rows)
        return
    for index, row in enumerate(rows):
        padded = [_padded(cell, width) for cell, width in zip(row, widths, strict=False)]
        lead = "".join(padded)
        style = "dim" if index == 0 else ""
        cells = (Span(BOUND.join(lead.split(" ")), style), *_styled(row[-1], style))
        page.add(cells, INDENT, start - INDENT)


def _padded(cell: str, width: int) -> str:
    bare = _bare(cell)
    return bare + " " * (width - columns(bare) + 2)


def _told(page: Page, rows: Sequence[Sequence[str]]) -> None:
    """Add each row as a paragraph: its first cell, then the others with the names of their columns."""
    head = rows[0]
    for row in rows[1:]:
        rest = [f"{name}: {cell}" for name, cell in zip(head[1:], row[1:], strict=True) if cell]
        page.add(_styled("; ".join([row[0], *rest] if row[0] else rest)), INDENT if row[0] else INDENT + 2, 2)


def _styled(text: str, style: str = "") -> tuple[Span, ...]:
    """Return text with inline code in a colour of its own."""
    pieces = _CODE.split(text)
    return tuple(Span(_unescaped(piece), "cyan" if index % 2 else style) for index, piece in enumerate(pieces))


def _bare(text: str) -> str:
    return _unescaped(_CODE.sub(r"\1", text))


def _unescaped(text: str) -> str:
    return text.replace("\\|", "|").replace("&lt;", "<")
